"""Reconcile the stored offset with the ledger, follow it while a job runs, and move it to another store.

Move a stream's offset from one store to another: export it as a document, and import the document.

The ledger is the authority: an imported document is reconciled with it under the run lock. So an old document never
moves the stream back, a document of another stream is refused, and without a ledger no document is accepted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPORTED_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, read_existing
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.commit.reconcile import Reconciliation, reconcile
from airflow_provider_mysql_cdc.cdc.commit.run_tally import (
    RunTally,
    reported_by,
    reported_record,
    tally_of_run,
    unreported_tally,
)
from airflow_provider_mysql_cdc.cdc.commit.takeover import read_as_planner
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, NoOffsetError, RunInProgressError, StateError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_error import WRITE_TIMEOUT_S
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_position
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, record_location
from airflow_provider_mysql_cdc.cdc.operate.lag import record_batch
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain


def follow_ledger(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> BinlogOffset | None:
    """Move the stored offset to the end of the last batch that is complete in Kafka; return it when it has moved.

    The ledger is read up to its oldest open transaction, which belongs to the job: nothing waits, no writer is fenced,
    and later records are read the next time. A contradiction between state and ledger is reported by ``settle_offset``
    after the job.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.

    Raises:
        CdcError: Kafka or the store cannot be reached, or they contradict each other.
    """
    stored = store.load()
    ledger = kafka_clients.ledger(cfg).peek()
    if stored is None or ledger.plan is None:
        return None
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    before, after = stored.committed, result.state.committed
    if not result.changed or after is None or (before is not None and same_position(before, after)):
        return None
    store.save(result.state, stored)
    record_batch(store, ledger, log)
    log(f"the stored offset moves to {after} while the job is running (batch {result.state.epoch})")
    return after


def tally_of(cfg: ConnectorConfig, run_id: str) -> RunTally | None:
    """Return the counts of a run; None when it has written nothing, or another run reports them.

    Args:
        cfg: The connector's configuration.
        run_id: The run's id.

    Raises:
        CdcError: Kafka cannot be reached.
    """
    ledger = kafka_clients.ledger(cfg).peek()
    tally = tally_of_run(ledger, run_id)
    return tally if tally is not None and reported_by(ledger, tally) in (None, run_id) else None


def tally_of_ended_run(cfg: ConnectorConfig, owner: str) -> RunTally | None:
    """Return the counts of earlier runs that no task has reported; None while a driver is running that will.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        CdcError: The server or Kafka cannot be reached.
    """
    try:
        run_lock.require_sole_run(at_server_of_ledger(cfg).connection_settings(), cfg.topic_prefix, owner)
    except RunInProgressError:
        return None
    ledger = kafka_clients.ledger(cfg).peek()
    return unreported_tally(ledger) if ledger.plan is not None and ledger.complete() else None


def mark_reported(cfg: ConnectorConfig, tally: RunTally, run_id: str, log: Log) -> None:
    """Record in the ledger that a successful task has reported a tally; otherwise the next run reports it again.

    Args:
        cfg: The connector's configuration.
        tally: The tally that it reported.
        run_id: The task's run.
        log: Receives one line of text.
    """
    try:
        record = SideRecord(cfg.ledger_topic, REPORTED_KEY.encode(), encode(reported_record(tally, run_id)))
        write_plain(cfg.kafka_settings(), [record], timeout_s=WRITE_TIMEOUT_S)
    except CdcError as error:
        log(f"the next run will report these batches again: {type(error).__name__}: {error.message()}")


FENCE_AFTER_S = 5.0


def read_ledger(cfg: ConnectorConfig, owner: str = "", stored: StoredState | None = None) -> LedgerState | None:
    """Return the ledger, or None when its topic does not exist.

    A killed writer leaves an open transaction that hides later commits; such a writer is fenced. A live one commits
    within seconds; a slow one of another run is not fenced.

    Args:
        cfg: The connector's configuration.
        owner: The run whose writers may be fenced although they are running.
        stored: The stored state, behind which the ledger may not have gone back.

    Raises:
        RecordsLostError: It has.
        RunInProgressError: A run of another owner is running and hides the end of the ledger.
    """

    def require_sole_run() -> None:
        run_lock.require_sole_run(at_server_of_ledger(cfg).connection_settings(), cfg.topic_prefix, owner)

    ledger = kafka_clients.ledger(cfg)
    if stored is not None:
        ledger.expect(stored.ledger_id, stored.ledger_end)
    return ledger.read(fence_after_s=FENCE_AFTER_S, before_fence=require_sole_run)


def reconcile_store(
    cfg: ConnectorConfig, store: OffsetStore, log: Log, owner: str = ""
) -> tuple[Reconciliation, LedgerState | None]:
    """Reconcile the stored state with the ledger, and store the result.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.
        owner: ``dag_id/run_id/task_id/map_index``; empty for no run.

    Returns:
        The result, with the state that is stored now, and the ledger.

    Raises:
        LedgerMissingError, LedgerMismatchError, RecordsLostError: A person has to decide.
        OffsetConflictError: Another run changed the stored state at the same time.
        RunInProgressError: Another run is running and hides the end of the ledger.
    """
    stored = store.load()
    offset_stored = stored is not None and stored.committed is not None
    ledger = read_existing(partial(read_ledger, cfg, owner, stored), expect_plan=offset_stored)
    result = reconcile(stored, ledger, at_ms=time.time_ns() // 1_000_000)
    log(result.reason)
    if result.changed:
        result = replace(result, state=store.save(result.state, stored))
    return result, ledger


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
