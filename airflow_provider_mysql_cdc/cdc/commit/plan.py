"""Batch plans and the markers of writers, as values with JSON codecs.

Nothing here connects to a server. ``ledger`` reads and writes these values, ``ledger_state`` interprets them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import orjson

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import writer_key
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, same_place, same_position
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    VERSION_MEMBER,
    Members,
    as_members,
    damaged_record,
    is_integer,
    parse_json,
    require_version,
    versioned,
)
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa

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


@dataclass(frozen=True, slots=True)
class BatchPlan:
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
            (``drain.failover``); None on the same server.
    """

    epoch: int
    kind: PlanKind
    start: BinlogOffset
    end: BinlogOffset
    writers: int
    partitions: Mapping[str, int] = field(default_factory=dict)
    assignment: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    owner: str = ""
    created_ms: int = 0
    server_id: int = 0
    prepared: tuple[PreparedXa, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    attempt: str = field(default="", compare=False)
    gapless: bool = field(default=False, compare=False)
    omitted_topics: str | None = None
    commit_ts: int = field(default=0, compare=False)
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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        out: dict[str, Any] = {
            "epoch": self.epoch,
            "kind": self.kind,
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "writers": self.writers,
            "partitions": dict(self.partitions),
            "assignment": {topic: list(owners) for topic, owners in self.assignment.items()},
            "owner": self.owner,
            "created_ms": self.created_ms,
            "server_id": self.server_id,
            "prepared": [xa.to_json() for xa in self.prepared],
            "pins": dict(self.pins),
            "attempt": self.attempt,
            "gapless": self.gapless,
        }
        out |= {"commit_ts": self.commit_ts} if self.commit_ts else {}
        out |= {"continued_from": self.continued_from.to_json()} if self.continued_from is not None else {}
        return out if self.omitted_topics is None else out | {"topics": self.omitted_topics}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> BatchPlan:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = as_members(data)
        kind = record.one_of("kind", get_args(PlanKind))
        writers = record.integer("writers", low=0 if kind == "reset" else 1, high=MAX_WRITERS)
        return cls(
            epoch=record.integer("epoch"),
            kind=cast(PlanKind, kind),
            start=BinlogOffset.from_json(record.object("start")),
            end=BinlogOffset.from_json(record.object("end")),
            writers=writers,
            partitions=record.each_member(
                "partitions", lambda topics, t: topics.integer(t, low=1, high=MAX_PARTITIONS)
            ),
            assignment=record.each_member("assignment", lambda topics, t: _read_assignment(topics, t, writers)),
            owner=record.text("owner"),
            created_ms=record.integer("created_ms"),
            server_id=record.integer("server_id", high=2**32 - 1),
            prepared=tuple(PreparedXa.from_json(xa) for xa in record.objects("prepared")),
            pins=record.each_member("pins", Members.text),
            attempt=record.text("attempt"),
            gapless=record.flag("gapless"),
            omitted_topics=record.text_or_none("topics"),
            commit_ts=record.integer("commit_ts", 0),
            continued_from=BinlogOffset.from_json(record.object("continued_from"))
            if "continued_from" in record
            else None,
        )


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
class Marker:
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

    epoch: int
    writer: int
    start: BinlogOffset
    end: BinlogOffset
    reached: ResumePosition
    done: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    gtids: str | None = None
    prepared: tuple[PreparedXa, ...] = ()
    tables: Mapping[str, int] = field(default_factory=dict)
    native: NativeCounts = field(default_factory=NativeCounts)
    commit_ts: int = 0
    metrics: WriterMetrics = field(default_factory=WriterMetrics, compare=False)
    xa_searched: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        metrics = self.metrics.to_json()
        return {
            "epoch": self.epoch,
            "writer": self.writer,
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "reached": self.reached.to_json(),
            "done": self.done,
            "counts": bounded_counts(self.counts),
            "tables": bounded_counts(self.tables),
            "gtids": self.gtids,
            "prepared": [xa.to_json() for xa in self.prepared],
            **self.native.members(),
            **({"commit_ts": self.commit_ts} if self.commit_ts else {}),
            **({"metrics": metrics} if metrics else {}),
            **({"xa_searched": True} if self.xa_searched else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> Marker:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = as_members(data)
        return cls(
            epoch=record.integer("epoch"),
            writer=record.integer("writer", high=MAX_WRITERS),
            start=BinlogOffset.from_json(record.object("start")),
            end=BinlogOffset.from_json(record.object("end")),
            reached=ResumePosition.from_json(record.object("reached")),
            done=record.flag("done"),
            counts=record.each_member("counts", Members.integer),
            gtids=record.text_or_none("gtids"),
            prepared=tuple(PreparedXa.from_json(xa) for xa in record.objects("prepared")),
            tables=record.each_member("tables", Members.integer),
            native=NativeCounts.from_members(record),
            commit_ts=record.integer("commit_ts", 0),
            metrics=WriterMetrics.from_json(record.object("metrics", {})),
            xa_searched=record.flag("xa_searched", False),
        )

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


def _read_assignment(topics: Members, topic: str, writers: int) -> tuple[int, ...]:
    writer_ids = topics.values(topic)
    if not writer_ids or not all(is_integer(w) and 0 <= w < max(writers, 1) for w in writer_ids):
        raise topics.member_error(topic, f"a list of writers below {writers}")
    return writer_ids
