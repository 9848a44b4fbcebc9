"""Compare how many records of each batch a topic has with how many the ledger counts.

Only a loss is told: records that are too many are told by what they are. A delete stands for its tombstone too. The
ledger topic keeps older records until it is compacted, so the counts of batches of some hours are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY, WRITER_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL, Marker, decode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, StoredVersionError
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, Record
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, place_order, source_order
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import is_repair
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable

_CHANGES = frozenset("cudt")
CLOCK_SKEW_MS = 600_000
"""How far the clocks of drivers, writers and brokers may be apart."""
_READ_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """Hold what the ledger says of a batch that is complete.

    Args:
        epoch: Its number.
        start: Where it begins in the binlog, as ``event_record`` orders places.
        end: Where it ends.
        begun_ms: When it was planned, milliseconds since 1970.
        ended_ms: When its last marker was written.
        counts: Its records by topic.
    """

    epoch: int
    start: int
    end: int
    begun_ms: int
    ended_ms: int
    counts: Mapping[str, int]


class KeptBatches:
    """Find the batch of an event.

    Args:
        batches: Batches that do not overlap, in the order of the binlog.
    """

    def __init__(self, batches: Sequence[KeptBatch]) -> None:
        self._batches, self._starts = batches, [batch.start for batch in batches]

    def batch_of(self, order: int, timestamp_ms: int) -> KeptBatch | None:
        """Return the batch that has written an event; None if it is none of these.

        Args:
            order: Where the event is in the binlog. Positions come again on another server.
            timestamp_ms: The record's timestamp.
        """
        index = bisect_right(self._starts, order) - 1
        if index < 0:
            return None
        batch = self._batches[index]
        in_time = batch.begun_ms - CLOCK_SKEW_MS <= timestamp_ms <= batch.ended_ms + CLOCK_SKEW_MS
        return batch if order < batch.end and in_time else None


@dataclass(slots=True)
class _Plan:
    kind: str
    writers: int
    begun_ms: int
    prepared: bool
    continued: bool


def read_kept_batches(cfg: ConnectorConfig) -> tuple[KeptBatch, ...]:
    """Return the drained batches of which the ledger topic still has the plan and the last marker of each writer.

    Raises:
        SinkError: The ledger cannot be read.
    """
    records = read_topic(cfg.kafka_settings(), cfg.ledger_topic, timeout_s=_READ_TIMEOUT_S, stable=True)
    return kept_batches(records)


def kept_batches(records: Iterable[TopicRecord]) -> tuple[KeptBatch, ...]:
    """Return the batches of ledger records, all versions of them.

    Args:
        records: The records, in their order.
    """
    plans: dict[int, _Plan] = {}
    markers: dict[int, dict[int, tuple[Marker, int]]] = {}
    for record in records:
        if record.key is None or record.value is None:
            continue
        key = record.key.decode(errors="replace")
        try:
            if key == PLAN_KEY:
                epoch, plan = _read_plan(record.value)
                plans[epoch] = plan
            elif key.startswith(WRITER_PREFIX):
                marker = Marker.from_json(decode(record.value))
                of_epoch = markers.setdefault(marker.epoch, {})
                of_epoch.pop(marker.writer, None)
                if marker.done:
                    of_epoch[marker.writer] = marker, record.timestamp_ms
        except (DamagedRecordError, StoredVersionError):
            continue  # whoever reads the ledger's state names it
    batches = [
        batch
        for epoch, of_epoch in markers.items()
        if epoch in plans and (batch := _batch(epoch, plans[epoch], list(of_epoch.values()))) is not None
    ]
    return _without_overlaps(batches)


def _read_plan(value: bytes) -> tuple[int, _Plan]:
    plan = Members(decode(value))
    prepared, continued = bool(plan.objects("prepared")), plan.value("continued_from", None) is not None
    begun_ms = plan.integer("created_ms")
    return plan.integer("epoch"), _Plan(plan.text("kind"), plan.integer("writers"), begun_ms, prepared, continued)


def _batch(epoch: int, plan: _Plan, markers: Sequence[tuple[Marker, int]]) -> KeptBatch | None:
    """Return a batch; None where its counts are not complete, or events have places outside of it.

    Those of prepared XA transactions have places of earlier batches. A batch that goes on at another server may have
    been moved there (``operate.moved_batch``): what was committed before has the former server's places.
    """
    if plan.kind != "drain" or len(markers) != plan.writers or plan.prepared or plan.continued:
        return None
    counts: dict[str, int] = {}
    for marker, _ in markers:
        if (
            marker.prepared
            or marker.xa_searched
            or OTHERS_LABEL in marker.counts
            or (marker.counts and not plan.begun_ms)
        ):
            return None
        for topic, number in marker.counts.items():
            counts[topic] = counts.get(topic, 0) + number
    places = {(place_order(marker.start), place_order(marker.end)) for marker, _ in markers}
    if len(places) != 1:
        return None
    ((start, end),) = places
    ended_ms = max(timestamp_ms for _, timestamp_ms in markers)
    return KeptBatch(epoch, start, end, plan.begun_ms, ended_ms, counts) if start < end else None


def _without_overlaps(batches: Sequence[KeptBatch]) -> tuple[KeptBatch, ...]:
    """Return the batches that have their part of the binlog for themselves, in its order.

    After a reset, and on another server, positions come again.
    """
    ordered = sorted(batches, key=lambda batch: (batch.start, batch.end))
    latest, kept = -1, list[KeptBatch]()
    for number, batch in enumerate(ordered):
        following = ordered[number + 1 : number + 2]
        if batch.start >= latest and all(batch.end <= other.start for other in following):
            kept.append(batch)
        latest = max(latest, batch.end)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class CountedPart(Record):
    """Report how many records of each batch a part of a topic has.

    Args:
        start: The part's first offset.
        first_ms: Timestamp of its first record.
        counts: Number of records by the batch's epoch.
        unreadable: Number of records that do not say of which batch they are.
    """

    topic: str
    partition: int
    start: int
    first_ms: int
    counts: Mapping[int, int]
    unreadable: int = 0


class PartCounter:
    """Count the records of one part of a topic by their batches.

    Args:
        tombstones: Whether a tombstone follows each delete.
    """

    def __init__(self, batches: KeptBatches, *, tombstones: bool) -> None:
        self._batches, self._deletes = batches, 2 if tombstones else 1
        self.first_ms: int | None = None
        self.counts: dict[int, int] = {}
        self.unreadable = 0

    def add(self, event: EventRecord, record: TopicRecord) -> None:
        """Count an event."""
        if event.op not in _CHANGES or is_repair(record.headers):
            return
        batch = self._batches.batch_of(source_order(event.source), record.timestamp_ms)
        if batch is not None:
            number = self._deletes if event.op == "d" else 1
            self.counts[batch.epoch] = self.counts.get(batch.epoch, 0) + number


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Say that a topic has fewer records of a batch than the ledger counts.

    Args:
        found: Number of records in the topic.
        expected: Number of records that were committed.
    """

    batch: KeptBatch
    found: int
    expected: int


def lost_records(topic: str, batches: Iterable[KeptBatch], parts: Sequence[CountedPart]) -> Iterator[LostRecords]:
    """Yield what a topic has lost of each batch; batches from before its first records are left out.

    Records that cannot be read may be those that are missed: after a change of converters, all earlier ones are.
    """
    first: dict[int, tuple[int, int]] = {}
    found: dict[int, int] = {}
    unreadable = sum(part.unreadable for part in parts)
    for part in parts:
        place = part.start, part.first_ms
        first[part.partition] = min(place, first.get(part.partition, place))
        for epoch, number in part.counts.items():
            found[epoch] = found.get(epoch, 0) + number
    if not first:
        return
    lost = [first_ms for start, first_ms in first.values() if start]
    since = max([min(first_ms for _, first_ms in first.values()), *lost]) + CLOCK_SKEW_MS * bool(lost)
    for batch in batches:
        expected = batch.counts.get(topic, 0)
        if batch.begun_ms >= since and found.get(batch.epoch, 0) + unreadable < expected:
            yield LostRecords(batch, found.get(batch.epoch, 0), expected)


@dataclass(slots=True)
class PartCounts:
    """Collect what the parts of topics have.

    Args:
        topics: The topics of which no records between others are lost.
    """

    batches: tuple[KeptBatch, ...] = ()
    topics: frozenset[str] = frozenset()
    _parts: dict[tuple[str, int, int], CountedPart] = field(default_factory=dict)

    @classmethod
    def of_tables(
        cls, cfg: ConnectorConfig, tables: Iterable[ComparedTable], rules: Mapping[int, HistoryRules]
    ) -> PartCounts:
        """Return what to collect; nothing where histories are not checked.

        Args:
            cfg: The connector's configuration.
            tables: The tables of a verification.
            rules: What holds for the histories of their keys; empty where they are not checked.

        Raises:
            SinkError: The ledger cannot be read.
        """
        topics = frozenset(c.topic for c in tables if c.number in rules and rules[c.number].complete)
        return cls(read_kept_batches(cfg) if topics else (), topics)

    def add(self, part: CountedPart) -> EmptyMessage:
        """Add what a part has; one that a later attempt has read again counts once."""
        self._parts[part.topic, part.partition, part.start] = part
        return EMPTY

    def lost(
        self, tables: Iterable[ComparedTable], bounds: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> dict[int, list[LostRecords]]:
        """Return what topics have lost, by the number of their first table.

        Args:
            tables: The tables.
            bounds: First offset, and the offset after the last record, by topic and partition.
        """
        first: dict[str, int] = {}
        for compared in tables:
            first.setdefault(compared.topic, compared.number)
        lost = {}
        for topic, number in first.items():
            gone = any(start == end > 0 for start, end in bounds.get(topic, {}).values())
            if topic in self.topics and not gone:
                parts = [part for part in self._parts.values() if part.topic == topic]
                lost[number] = list(lost_records(topic, self.batches, parts))
        return lost
