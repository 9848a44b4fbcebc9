"""Build the state of the ledger from its records, each of which is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NotRequired, TypedDict

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    CAPTURED_LISTS_KEY,
    CHUNK_PREFIX,
    ENDS_KEY,
    HISTORY_KEY,
    OUTCOME_KEY,
    OWNER_PREFIX,
    PART_PREFIX,
    PLAN_KEY,
    PROCESSED_SIGNALS_KEY,
    REPORTED_KEY,
    RUN_KEY,
    SCHEMA_KEY_PREFIX,
    SIGNAL_PREFIX,
    SNAPSHOT_KEY,
    TOPIC_KEY_PREFIX,
    UNCHECKED_PREFIX,
    UNREAD_PREFIX,
    VERIFY_TABLE_PREFIX,
    VIEW_KEY,
    WRITER_PREFIX,
    WRITERS_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, ProcessedSignals
from airflow_provider_mysql_cdc.cdc.commit.plan import MAX_WRITERS, BatchPlan, Marker, decode
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import decode_plan, part_number
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedSchemaId, RecordedTopic, read_topic_record
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, UncheckedTable
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, StoredVersionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    Count,
    Members,
    Record,
    damaged_record,
    read_as,
    record_location,
)


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


RecordLocator = Callable[[str], str]
"""Returns the location of a key's record, for errors."""


def build_ledger_state(
    records: Mapping[str, bytes | None],
    topic_id: str | None = None,
    where: RecordLocator = lambda key: f"key {key}",
    *,
    chunks: bool = True,
    require_parts: bool = True,
    read_before: ReadBefore | None = None,
) -> LedgerState:
    """Build the state from the last value of each key; None is a deleted key.

    Args:
        records: Key to value.
        topic_id: Kafka's id of the topic.
        where: Returns the location of a key's record, for errors.
        chunks: Whether to include the chunks of a snapshot.
        require_parts: Whether to include the topics of a plan in parts; before a commit, a part may be missing.
        read_before: Keeps what the records were read as; None keeps nothing.

    Raises:
        DamagedRecordError: This package has not written a record.
        StoredVersionError: A record is of another version.
    """
    verdicts = {
        key[len(VERIFY_TABLE_PREFIX) :]: value
        for key, value in records.items()
        if value is not None and key.startswith(VERIFY_TABLE_PREFIX)
    }
    topics, other_records = _split_topics(records, where)
    parsed = _ParsedRecords(ReadBefore() if read_before is None else read_before)
    for key, value in other_records:
        if chunks or not key.startswith(CHUNK_PREFIX):
            with record_location(where(key)):
                parsed.add(key, value)
    chunk_records, signals = _pop_prefix(parsed.values, CHUNK_PREFIX), _pop_prefix(parsed.values, SIGNAL_PREFIX)
    return LedgerState(
        plan=_read_plan(records.get(PLAN_KEY), parsed.parts, where, require_parts=require_parts),
        # A claim is written once, so the claims are in the order in which they were made.
        owner=next(iter(_pop_prefix(parsed.values, OWNER_PREFIX)), ""),
        markers={m.writer: m for m in parsed.markers},
        chunks=chunk_records,
        snapshot=parsed.values.pop(SNAPSHOT_KEY, None),
        outcome=parsed.values.pop(OUTCOME_KEY, None),
        signals=signals,
        topics=topics,
        schemas=parsed.schemas,
        other_records=parsed.values,
        topic_id=topic_id,
        writer_count=parsed.writer_count,
        verdicts=verdicts,
        plan_parts=max(parsed.parts, default=-1) + 1,
    )


MAX_READ_BEFORE = 10_000
"""Records whose content is kept at most."""


class ReadBefore:
    """Keep what records were read as, by key: most are the same when a ledger is read again a moment later.

    Whoever gets such a value changes nothing in it. Records of chunks are not kept, as there may be very many.
    """

    def __init__(self) -> None:
        self._read: dict[str, tuple[bytes, Any]] = {}

    def read(self, key: str, value: bytes) -> Any:
        """Return a record's content, from its value if that is not the one that was read last.

        Args:
            key: Its key.
            value: Its value.

        Raises:
            DamagedRecordError: A member is missing or of another type.
        """
        before = self._read.get(key)
        if before is not None and before[0] == value:
            return before[1]
        content = _read_record(key, value)
        if not key.startswith(CHUNK_PREFIX):
            if len(self._read) >= MAX_READ_BEFORE:
                self._read.clear()
            self._read[key] = value, content
        return content

    def clear(self) -> None:
        """Forget everything."""
        self._read.clear()


def _read_record(key: str, value: bytes) -> Any:
    """Return the content of a record that is no part of a plan."""
    data = decode(value)
    if key.startswith(WRITER_PREFIX):
        return Marker.from_json(data)
    if key.startswith(SCHEMA_KEY_PREFIX):
        return RecordedSchemaId.from_json(data)
    if key != WRITERS_KEY:
        check_record(key, data)
    return data


class _ParsedRecords:
    """Collect the records, except for those of topics and the plan's header.

    Args:
        read_before: What records were read as.
    """

    def __init__(self, read_before: ReadBefore) -> None:
        self._read_before = read_before
        self.values: dict[str, dict[str, Any]] = {}
        self.parts: dict[int, bytes] = {}
        self.markers: list[Marker] = []
        self.schemas: dict[str, RecordedSchemaId] = {}
        self.writer_count = 0

    def add(self, key: str, value: bytes) -> None:
        """Add one record.

        Raises:
            DamagedRecordError: A member is missing or of another type.
        """
        if key == PLAN_KEY:
            return
        if key.startswith(PART_PREFIX):
            self.parts[part_number(key)] = value
            return
        content = self._read_before.read(key, value)
        if key.startswith(WRITER_PREFIX):
            self.markers.append(content)
        elif key.startswith(SCHEMA_KEY_PREFIX):
            self.schemas[key[len(SCHEMA_KEY_PREFIX) :]] = content
        elif key == WRITERS_KEY:
            self.writer_count = Members(content).integer("count", high=MAX_WRITERS)
        else:
            self.values[key] = content


def _read_plan(
    header: bytes | None, parts: Mapping[int, bytes], where: RecordLocator, *, require_parts: bool
) -> BatchPlan | None:
    """Return the plan from its header and its parts.

    Raises:
        DamagedRecordError: It cannot be read, or there are parts without a header.
    """
    if header is None:
        if parts and require_parts:
            raise damaged_record("the ledger holds parts of a plan without the plan", f"key {PART_PREFIX}{min(parts)}")
        return None
    if require_parts:
        return decode_plan(header, parts, where)
    with record_location(where(PLAN_KEY)):
        return BatchPlan.from_json(decode(header))


def _split_topics(
    records: Mapping[str, bytes | None], where: RecordLocator
) -> tuple[dict[str, RecordedTopic], list[tuple[str, bytes]]]:
    """Separate the records of topics, of which there may be 10,000, from the others.

    Raises:
        DamagedRecordError: The record of a topic cannot be read.
    """
    topics: dict[str, RecordedTopic] = {}
    other_records: list[tuple[str, bytes]] = []
    prefix_length = len(TOPIC_KEY_PREFIX)
    for key, value in records.items():
        if value is None or key.startswith(VERIFY_TABLE_PREFIX):
            continue
        if not key.startswith(TOPIC_KEY_PREFIX):
            other_records.append((key, value))
            continue
        try:
            topics[key[prefix_length:]] = read_topic_record(value)
        except (DamagedRecordError, StoredVersionError) as error:
            raise error.located(where(key)) from None
    return topics, other_records


def _pop_prefix(values: dict[str, dict[str, Any]], prefix: str) -> dict[str, dict[str, Any]]:
    """Remove the records of a key prefix and return them, with their keys without the prefix."""
    return {key[len(prefix) :]: values.pop(key) for key in list(values) if key.startswith(prefix)}
