"""Move a stream's offset from one store to another: export it as a document, and import the document.

The ledger is the authority: an imported document is reconciled with it under the run lock. So an old document never
moves the stream back, a document of another stream is refused, and without a ledger no document is accepted.
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
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger

DOCUMENT_FORMAT = "mysql-cdc-offsets"
MAX_EXPORTED_OFFSETS = 1000
"""Most past offsets that are exported."""


@runtime_checkable
class OffsetHistoryStore(Protocol):
    """A store that keeps past offsets in addition to the state."""

    def history(self, limit: int = 100) -> list[PastOffset]:
        """Return the last committed offsets, newest first."""

    def remember(self, past: Iterable[PastOffset]) -> int:
        """Add the offsets that the store does not have yet; return how many."""


@runtime_checkable
class PrefixLister(Protocol):
    """A store that knows which streams have an offset in it."""

    def prefixes(self) -> list[str]:
        """Return the ``topic.prefix`` of each, in order."""


@dataclass(frozen=True, slots=True)
class OffsetsDocument:
    """Hold the content of a document.

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
        limit: Maximum number of offsets.
    """
    if isinstance(store, OffsetHistoryStore):
        return store.history(limit)
    state = store.load()
    return list(reversed(state.history))[:limit] if state else []


def export_document(store: OffsetStore, prefix: str) -> dict[str, Any]:
    """Return the content of a store as plain JSON.

    Args:
        store: The store.
        prefix: topic.prefix.

    Raises:
        NoOffsetError: The store is empty.
    """
    state = store.load()
    if state is None:
        raise NoOffsetError(
            "there is no offset to export",
            where=f"topic.prefix={prefix}",
            why="the store has no state of this stream",
            remedy="name the store that the DAGs use; if its state was lost, the next run restores it from the ledger",
        )
    return {
        "form": DOCUMENT_FORMAT,
        "topic.prefix": prefix,
        "written_ms": time.time_ns() // 1_000_000,
        "state": state.to_json(),
        "history": [past.to_json() for past in reversed(past_offsets(store, MAX_EXPORTED_OFFSETS))],
    }


def read_document(data: Mapping[str, Any], where: str = "document") -> OffsetsDocument:
    """Read what ``export_document`` returned.

    Args:
        data: The document.
        where: Where it was read, for error messages.

    Raises:
        ConfigError: It is not a document of offsets.
        StoredVersionError: Its state, and so its history, is of another version.
        DamagedRecordError: It is damaged.
    """
    if not isinstance(data, Mapping) or data.get("form") != DOCUMENT_FORMAT:
        raise ConfigError(
            "this is not a document of offsets", where=where, remedy="use the output of mysql-cdc offsets export"
        )
    with record_location(where):
        members = Members(data)
        state = StoredState.read(members.value("state"), where)
        history = tuple(map(PastOffset.from_json, members.objects("history")))
        return OffsetsDocument(members.text("topic.prefix"), state, history)


def import_offsets(
    cfg: ConnectorConfig, store: OffsetStore, imported: OffsetsDocument, owner: str, log: Log, *, replace: bool = False
) -> StoredState:
    """Store the content of a document, as far as the ledger confirms it.

    Args:
        cfg: The connector's configuration.
        store: The store to write.
        imported: The document.
        owner: Who imports it: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        replace: Whether to replace a state that the store already has.

    Returns:
        The state that is stored now.

    Raises:
        ConfigError: The document is of another stream.
        StateError: The store already has a state, or the document has none.
        LedgerMissingError, LedgerMismatchError: The ledger does not confirm the document; a person has to decide.
        RunInProgressError: Another run of the stream is running.
        OffsetConflictError: The store was changed at the same time.
    """
    if imported.prefix != cfg.topic_prefix:
        raise ConfigError(
            "the document is of another stream",
            where=f"topic.prefix={imported.prefix}",
            why=f"the configuration has topic.prefix={cfg.topic_prefix}",
            remedy="use the connection of that stream, or a document of this one",
        )
    settings = at_server_of_ledger(cfg).connection_settings()
    with run_lock.hold_run_lock(settings, cfg.topic_prefix, owner) as lock:
        existing = store.load()
        if existing is not None and not replace:
            raise StateError(
                "the store already has an offset",
                where=f"topic.prefix={cfg.topic_prefix}, offset {existing.committed}, epoch {existing.epoch}",
                remedy="no import is needed when the DAGs already use this store; otherwise import with --replace",
            )
        ledger = read_as_planner(kafka_clients.ledger(cfg), expect_plan=imported.state.committed is not None)
        result = reconcile(imported.state, ledger, at_ms=time.time_ns() // 1_000_000)
        log(f"with the offset of the document: {result.reason}")
        if result.action == "fresh":
            raise StateError(
                "the document has no offset, and there is no ledger",
                where=f"topic.prefix={cfg.topic_prefix}",
                remedy="take a snapshot; there is no offset to import",
            )
        lock.require()
        stored = store.save(result.state, existing)
    if isinstance(store, OffsetHistoryStore):
        log(f"{store.remember(imported.history)} offset(s) added to the history")
    log(f"stored offset {stored.committed}, epoch {stored.epoch}")
    return stored
