"""Declare the ledger records whose JSON is kept as it is: the members that are read of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    CAPTURED_LISTS_KEY,
    CHUNK_PREFIX,
    ENDS_KEY,
    HISTORY_KEY,
    OUTCOME_KEY,
    PROCESSED_SIGNALS_KEY,
    REPORTED_KEY,
    RUN_KEY,
    SNAPSHOT_KEY,
    UNCHECKED_PREFIX,
    UNREAD_PREFIX,
    VIEW_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import ProcessedSignals
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.commit.unchecked_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record, read_as


class SnapshotRecord(TypedDict):
    """A snapshot; the ledger and the stored state both hold it."""

    epoch: Count
    status: Literal["planned", "done"]
    list: NotRequired[str]
    count: NotRequired[Count]
    offset: NotRequired[BinlogOffset]


class ChunkRecord(TypedDict):
    """A chunk that is planned."""

    epoch: Count
    list: str
    order: Count
    chunk: dict[str, Any]


class DoneChunkRecord(ChunkRecord):
    """A chunk whose rows are committed."""

    offset: BinlogOffset
    rows: Count
    left_out: Count
    ts_ms: Count
    native: NotRequired[NativeCounts]


class OutcomeRecord(TypedDict):
    """How a batch ended."""

    epoch: Count
    counts: dict[str, Count]


class ViewRecord(TypedDict):
    """The view of a snapshot."""

    epoch: Count
    offset: BinlogOffset
    commit_ts: NotRequired[Count]


class HistoryTopic(TypedDict):
    """The schema history's topic."""

    topic: str
    id: str | None


class RecordedEnds(TypedDict):
    """Where a topic ended, by partition."""

    id: str
    ends: list[Count]


class EndsRecord(TypedDict):
    """Where topics ended behind a batch."""

    topics: dict[str, RecordedEnds]


class ReportedRun(TypedDict):
    """What of a run's counts was reported, and by which one."""

    run: str
    epoch: Count
    by: str


class CapturedLists(TypedDict):
    """The lists of captured tables, packed."""

    lists: str


_KINDS: dict[str, Any] = {
    CAPTURED_LISTS_KEY: CapturedLists,
    ENDS_KEY: EndsRecord,
    SNAPSHOT_KEY: SnapshotRecord,
    OUTCOME_KEY: OutcomeRecord,
    VIEW_KEY: ViewRecord,
    HISTORY_KEY: HistoryTopic,
    PROCESSED_SIGNALS_KEY: ProcessedSignals,
    RUN_KEY: RunTally,
    REPORTED_KEY: ReportedRun,
}
_PREFIXES: dict[str, Any] = {UNCHECKED_PREFIX: UncheckedTable, UNREAD_PREFIX: NeverReadTable}


def check_record(key: str, record: Mapping[str, Any]) -> None:
    """Check the members that are read of a record whose JSON is kept as it is.

    Args:
        key: Its key; one that is not known here is not checked.
        record: Its members.

    Raises:
        DamagedRecordError: A member is missing or of another type.
    """
    kind = _KINDS.get(key) or _PREFIXES.get(key.partition("/")[0] + "/")
    if key.startswith(CHUNK_PREFIX):
        kind = DoneChunkRecord if record.keys() & {"offset", "rows"} else ChunkRecord
    if isinstance(kind, type) and issubclass(kind, Record):
        kind.from_json(record)
    elif kind is not None:
        read_as(kind, record)
