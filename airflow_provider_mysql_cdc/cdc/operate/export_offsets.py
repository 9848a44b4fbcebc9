"""Carry a stream's offset from one store to another: a document to write out, and the way back in.

The ledger decides, as everywhere: what comes in is reconciled with it under the run lock, so that an old document never
moves the stream back, one of another stream is refused, and without a ledger nothing is believed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.takeover import read_as_planner
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, NoOffsetError, StateError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, record_location

DOCUMENT_FORMAT = "mysql-cdc-offsets"
DOCUMENT_VERSION = 1
MAX_EXPORTED_OFFSETS = 1000
"""Past offsets written out."""


@runtime_checkable
class OffsetHistoryStore(Protocol):
    """A store that keeps offsets beside the state."""

    def history(self, limit: int = 100) -> list[PastOffset]:
        """Return the last committed offsets, newest first."""

    def remember(self, past: Iterable[PastOffset]) -> int:
        """Add offsets that are not there yet; return how many."""


@dataclass(frozen=True, slots=True)
class OffsetsDocument:
    """Hold what a document says.

    Args:
        prefix: topic.prefix.
        state: The stored state.
        history: Past offsets, oldest first.
    """

    prefix: str
    state: StoredState
    history: tuple[PastOffset, ...]


def past_offsets(store: OffsetStore, limit: int = 100) -> list[PastOffset]:
    """Return the last committed offsets of a store, newest first.

    Args:
        store: The store.
        limit: Most offsets to return.
    """
    if isinstance(store, OffsetHistoryStore):
        return store.history(limit)
    state = store.load()
    return list(reversed(state.history))[:limit] if state else []


def export_document(store: OffsetStore, prefix: str) -> dict[str, Any]:
    """Return what a store holds as plain JSON.

    Args:
        store: The store.
        prefix: topic.prefix.

    Raises:
        NoOffsetError: It holds nothing.
    """
    state = store.load()
    if state is None:
        raise NoOffsetError(
            "there is nothing to write out",
            where=f"topic.prefix={prefix}",
            why="the store holds no state of this stream",
            remedy="name the store that the DAGs use; if it was lost, the next run restores it from the ledger",
        )
    return {
        "form": DOCUMENT_FORMAT,
        "version": DOCUMENT_VERSION,
        "topic.prefix": prefix,
        "written_ms": time.time_ns() // 1_000_000,
        "state": state.to_json(),
        "history": [past.to_json() for past in reversed(past_offsets(store, MAX_EXPORTED_OFFSETS))],
    }


def read_document(data: Mapping[str, Any], where: str = "document") -> OffsetsDocument:
    """Read what ``export_document`` returned.

    Args:
        data: The document.
        where: Its place, for errors.

    Raises:
        ConfigError: It is something else.
        StateError: A newer version of this package wrote it, or it is damaged.
    """
    if not isinstance(data, Mapping) or data.get("form") != DOCUMENT_FORMAT:
        raise ConfigError(
            "this is no document of offsets", where=where, remedy="give what mysql-cdc offsets export wrote"
        )
    if data.get("version") != DOCUMENT_VERSION:
        raise StateError(
            "the document was written by another version of this package",
            where=where,
            why=f"its form is version {data.get('version')}; this package knows {DOCUMENT_VERSION}",
            remedy="install that version here",
        )
    with record_location(where):
        members = Members(data)
        history = tuple(PastOffset.from_json(past) for past in members.objects("history", ()))
        return OffsetsDocument(
            members.text("topic.prefix"), StoredState.from_json(members.value("state"), where), history
        )


def import_offsets(
    cfg: ConnectorConfig, store: OffsetStore, imported: OffsetsDocument, owner: str, log: Log, *, replace: bool = False
) -> StoredState:
    """Store what a document says, as far as the ledger confirms it.

    Args:
        cfg: The connector's configuration.
        store: Where it goes.
        imported: The document.
        owner: Who does it, in the form ``dag_id/run_id/task_id/map_index``.
        log: Takes one line of text.
        replace: Whether it may take the place of a state that is there already.

    Returns:
        What is stored now.

    Raises:
        ConfigError: The document is another stream's.
        StateError: The store holds a state already, or the document holds none.
        LedgerMissingError, LedgerMismatchError: The ledger does not confirm it; a person has to decide.
        RunInProgressError: A run is at work.
        OffsetConflictError: The store was changed at the same time.
    """
    if imported.prefix != cfg.topic_prefix:
        raise ConfigError(
            "the document is of another stream",
            where=f"topic.prefix={imported.prefix}",
            why=f"the configuration's is {cfg.topic_prefix}",
            remedy="name the connection of that stream",
        )
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, owner) as lock:
        existing = store.load()
        if existing is not None and not replace:
            raise StateError(
                "the store holds an offset already",
                where=f"topic.prefix={cfg.topic_prefix}, offset {existing.committed}, epoch {existing.epoch}",
                remedy="nothing has to be brought in when the DAGs run on it; otherwise say --replace",
            )
        ledger = read_as_planner(kafka_clients.ledger(cfg), expect_plan=imported.state.committed is not None)
        result = reconcile(imported.state, ledger, at_ms=time.time_ns() // 1_000_000)
        log(f"document and ledger: {result.action}: {result.reason}")
        if result.action == "fresh":
            raise StateError(
                "the document holds no offset, and there is no ledger",
                where=f"topic.prefix={cfg.topic_prefix}",
                remedy="take a snapshot; there is nothing to carry",
            )
        lock.require()
        stored = store.save(result.state, existing)
    if isinstance(store, OffsetHistoryStore):
        log(f"{store.remember(imported.history)} offset(s) added to the history")
    log(f"stored offset {stored.committed}, epoch {stored.epoch}")
    return stored
