"""Batch plans and the markers of writers, as values with JSON codecs.

Nothing here connects to a server. ``ledger`` reads and writes these values, ``ledger_state`` interprets them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import writer_key
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import (
    BinlogOffset,
    PreparedXa,
    ResumePosition,
    same_place,
    same_position,
)
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts, SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    VERSION_MEMBER,
    Count,
    Record,
    damaged_record,
    parse_json,
    require_version,
    versioned,
)

PlanKind = Literal["drain", "snapshot", "reset"]

SIGNAL_CHANNELS = ("source", "kafka", "airflow")
"""Channels of signals; their keys begin with one of them, after the prefix."""

MAX_WRITERS = 10_000
"""More writers or snapshot tasks than any valid record names; it limits the effect of a damaged one."""
MAX_COUNTS = 1000
"""Counts that a marker or an outcome lists; the others are summed up, so a record does not grow without limit."""
OTHERS_LABEL = "(others)"
"""Label of the sum of all other topics or chunks; no topic can have this name."""
MAX_PARTITIONS = 1_000_000
"""More partitions than a topic can have."""
WriterCount = Annotated[int, Meta(ge=0, le=MAX_WRITERS)]
PartitionCount = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
Owners = Annotated[tuple[WriterCount, ...], Meta(min_length=1)]
"""The writer of each partition of a topic."""


@dataclass(frozen=True, slots=True)
class BatchPlan(Record):
    """Fix what one batch reads and which writer writes what, before anything is read.

    Args:
        epoch: Number of the batch; each new plan takes the next one.
        kind: ``drain`` reads the binlog from ``start`` to ``end``; ``snapshot`` reads tables; ``reset`` reads nothing
            and moves the offset to ``end`` at a person's request (see ``reset_plan``).
        start: Where the batch begins, a transaction boundary.
        end: Where it ends, a transaction boundary; a snapshot's end is known only from its ledger record.
        writers: Number of writers W; they are numbered from 0.
        partitions: Kafka partition count of each known topic.
        assignment: The writer of each partition of each known topic.
        owner: The run that made the plan (``dag_id/run_id/task_id/map_index``).
        created_ms: When it was made, milliseconds since 1970.
        server_id: Server id of writer 0; writer n registers with ``server_id + n``.
        prepared: XA transactions whose rows are before ``start`` and that are not decided yet.
        pins: The properties that decide the batch's records (``pinned_properties``); a batch that was started under
            some values is not finished under others.
        attempt: Random id of the driver that carries the plan out, set by ``takeover.begin_epoch``. Two drivers of one
            owner can be alive at the same time; only the attempt in the ledger may write.
        gapless: Whether the stream continues at ``start``: no change of a captured table may lie between ``start`` and
            a snapshot's view; and a reset has left nothing out.
        omitted_topics: Digest of the topics that were left out (``without_topics``); None in a complete plan.
        commit_ts: The highest commit timestamp (TiCDC's) of earlier batches, set by ``takeover.begin_epoch``.
        continued_from: The offset of the earlier batches, where ``start`` is the same place in another server's binlog
            (``drain.failover.failover``); None on the same server.
    """

    epoch: Count
    kind: PlanKind
    start: BinlogOffset
    end: BinlogOffset
    writers: WriterCount
    partitions: Mapping[str, PartitionCount] = field(default_factory=dict)
    assignment: Mapping[str, Owners] = field(default_factory=dict)
    owner: str = ""
    created_ms: Count = 0
    server_id: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    prepared: tuple[PreparedXa, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    attempt: str = field(default="", compare=False)
    gapless: bool = field(default=False, compare=False)
    omitted_topics: str | None = None
    commit_ts: Count = field(default=0, compare=False)
    continued_from: BinlogOffset | None = field(default=None, compare=False)

    def continues(self, offset: BinlogOffset | None) -> bool:
        """Return whether the batch begins at an offset, or at its place in another server's binlog.

        Args:
            offset: Where the stream stands.
        """
        return same_position(offset, self.start) or (
            self.continued_from is not None and same_position(offset, self.continued_from)
        )

    def assigned_writer(self, topic: str, partition: int) -> int:
        """Return the writer of a partition; a topic that is created during the batch has one writer for all partitions.

        Args:
            topic: Topic name.
            partition: Partition number.
        """
        writers = self.assignment.get(topic)
        if writers is None or partition >= len(writers):
            return zlib.crc32(topic.encode()) % self.writers
        return writers[partition]

    def same_work(self, other: BatchPlan) -> bool:
        """Return whether both plans write the same records through the same writers."""
        return self.same_range(other) and self._same_topics(other)

    def same_range(self, other: BatchPlan) -> bool:
        """Return whether both plans read the same range with as many writers; their topics may differ."""
        own, others = (self.epoch, self.kind, self.writers), (other.epoch, other.kind, other.writers)
        return own == others and same_place(self.start, other.start) and same_place(self.end, other.end)

    def _same_topics(self, other: BatchPlan) -> bool:
        if self.omitted_topics is not None or other.omitted_topics is not None:
            return self.topics_digest() == other.topics_digest()
        return dict(self.partitions) == dict(other.partitions) and dict(self.assignment) == dict(other.assignment)

    def check(self) -> None:
        """Check that a batch has writers, and names no others.

        Raises:
            ValueError: The text says what contradicts it, and where.
        """
        if self.kind != "reset" and not self.writers:
            raise ValueError("Expected `int` >= 1 - at `$.writers`")
        for topic, owners in self.assignment.items():
            if max(owners) >= max(self.writers, 1):
                raise ValueError(f"Expected writers below {self.writers} - at `$.assignment.{topic}`")

    def topics_digest(self) -> str:
        """Return the digest of all partition counts and assignments, also when they were left out."""
        return topics_digest(self.partitions, self.assignment) if self.omitted_topics is None else self.omitted_topics

    def without_topics(self) -> BatchPlan:
        """Return the plan with a digest in place of its topics; it cannot be carried out."""
        return replace(self, partitions={}, assignment={}, omitted_topics=self.topics_digest())

    def with_topics(self, partitions: Mapping[str, int], assignment: Mapping[str, tuple[int, ...]]) -> BatchPlan:
        """Return the plan with these topics.

        Args:
            partitions: Kafka partition count of each topic.
            assignment: The writer of each partition of each topic.
        """
        return replace(self, partitions=partitions, assignment=assignment, omitted_topics=None)


def topics_digest(partitions: Mapping[str, int], assignment: Mapping[str, tuple[int, ...]]) -> str:
    """Return a digest of partition counts and assignments that does not depend on their order.

    Args:
        partitions: Kafka partition count of each topic.
        assignment: The writer of each partition of each topic.
    """
    text = orjson.dumps([dict(partitions), dict(assignment)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


def reset_plan(
    epoch: int, offset: BinlogOffset, owner: str, created_ms: int = 0, *, gapless: bool = False
) -> BatchPlan:
    """Return the plan with which a person moves the offset; it is complete as soon as the ledger holds it.

    Args:
        epoch: One above the newest epoch of stored state and ledger.
        offset: Where the next batch begins, a transaction boundary.
        owner: The run that resets.
        created_ms: Now, milliseconds since 1970.
        gapless: Whether the offset is the one that was stored, so that nothing was left out.
    """
    return BatchPlan(epoch, "reset", offset, offset, writers=0, owner=owner, created_ms=created_ms, gapless=gapless)


@dataclass(frozen=True, slots=True)
class Marker(Record):
    """Say how far one writer is; it is committed in the same Kafka transaction as the records before it.

    Args:
        epoch: Epoch of the batch.
        writer: Writer number.
        start: Start of the batch.
        end: End of the batch.
        reached: Position reached.
        done: Whether this writer has completed the batch.
        counts: Records produced by this writer in this batch so far, per topic.
        gtids: GTID set at ``reached``, when it is not part of the offset.
        prepared: XA transactions that are prepared and not decided at ``reached``.
        tables: Those of the records that are row events, per table (``TableId.path``).
        native: What the native kernel has decoded.
        commit_ts: The highest commit timestamp of a transaction that this writer has read (TiCDC's); 0 elsewhere.
        metrics: What this writer says of the batch for the metrics.
        xa_searched: Whether the batch commits XA transactions that were prepared before the stream began: records of
            them, which ``counts`` contains, have places before ``start``.
    """

    epoch: Count
    writer: WriterCount
    start: BinlogOffset
    end: BinlogOffset
    reached: ResumePosition
    done: bool = False
    counts: Mapping[str, Count] = field(default_factory=dict)
    gtids: str | None = None
    prepared: tuple[PreparedXa, ...] = ()
    tables: Mapping[str, Count] = field(default_factory=dict)
    native: NativeCounts = field(default_factory=NativeCounts)
    commit_ts: Count = 0
    metrics: WriterMetrics = field(default_factory=WriterMetrics, compare=False)
    xa_searched: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with bounded counts."""
        counts, tables = bounded_counts(self.counts), bounded_counts(self.tables)
        return Record.to_json(replace(self, counts=counts, tables=tables))

    def record(self, topic: str) -> SideRecord:
        """Return the ledger record of this marker.

        Args:
            topic: The ledger topic.
        """
        return SideRecord(topic, writer_key(self.writer).encode(), encode(self.to_json()))


def topic_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of topics alone.

    Whatever else is counted (statements, rows left out, tables that were never read) has a name with a blank.

    Args:
        counts: Counts by name.
    """
    return {name: count for name, count in counts.items() if " " not in name and name != OTHERS_LABEL}


def bounded_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts as a record holds them: the largest, and the sum of the others under ``OTHERS_LABEL``.

    Args:
        counts: Records by topic, or rows by chunk.
    """
    if len(counts) <= MAX_COUNTS:
        return dict(counts)
    ranked = sorted(counts.items(), key=lambda item: (item[0] == OTHERS_LABEL, -item[1], item[0]))
    largest = dict(ranked[: MAX_COUNTS - 1])
    return largest | {OTHERS_LABEL: sum(counts.values()) - sum(largest.values())}


def encode(value: Mapping[str, Any]) -> bytes:
    """Return a ledger value: compact JSON in UTF-8, with the version of its form."""
    return json.dumps(versioned(value), separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes) -> dict[str, Any]:
    """Return the members of a ledger value, without its version.

    Args:
        value: Bytes that ``encode`` wrote.

    Raises:
        DamagedRecordError: The bytes are not a JSON object.
        StoredVersionError: The record is of another version.
    """
    data: Any = parse_json(value)
    if not isinstance(data, dict):
        raise damaged_record("it is not a JSON object")
    require_version(data)
    del data[VERSION_MEMBER]
    return data
