"""Batch plans and the markers that writers leave behind, as values with JSON codecs.

Nothing here talks to a server. ``sink`` writes these values into the ledger, ``state`` reasons about them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import orjson

from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, Reached
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, damaged, is_whole, members, parse
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa

PlanKind = Literal["drain", "snapshot", "reset"]

PLAN_KEY = "plan"
SNAPSHOT_KEY = "snapshot"
OUTCOME_KEY = "outcome"
WRITERS_KEY = "writers"
WRITER_PREFIX = "writer/"
CHUNK_PREFIX = "chunk/"
VIEW_KEY = "view"
HISTORY_KEY = "history"
SIGNAL_PREFIX = "signal/"
SIGNAL_OFFSET_KEY = "signal-offset"
SIGNALS_TAKEN_KEY = "signals-taken"
"""How far rows of the signal table have been carried out, where the stream was moved back behind them."""
SIGNAL_CHANNELS = ("source", "kafka", "airflow")
"""Where signals come from; the part of their keys behind the prefix begins with one of them."""

MAX_WRITERS = 10_000
"""More writers or snapshot tasks than any record can speak of; it bounds what a damaged one makes others do."""
MAX_COUNTS = 1000
"""Counts that a marker or an outcome holds singly; no record grows with the number of topics or chunks."""
OTHERS = "(others)"
"""Stands for all topics or chunks beyond them; no topic can have this name."""
MAX_PARTITIONS = 1_000_000
"""More partitions than a topic can have."""


def writer_key(writer: int) -> str:
    """Return the ledger key of a writer's marker."""
    return f"{WRITER_PREFIX}{writer}"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Fix what one batch will read and who writes what, before anything is read.

    Args:
        epoch: Number of the batch; each new plan takes the next one.
        kind: ``drain`` reads the binlog from ``start`` to ``end``; ``snapshot`` reads tables; ``reset`` reads nothing
            and moves the offset to ``end`` because a person decided so (see ``reset_plan``).
        start: Where the batch begins, a transaction boundary.
        end: Where it ends, a transaction boundary; a snapshot's end is known only from its ledger record.
        writers: Number of writers W; they are numbered from 0.
        partitions: Kafka partition count of each known topic.
        assignment: The owning writer of each partition of each known topic.
        owner: The run that made the plan (``dag_id/run_id/task_id/map_index``).
        created_ms: When it was made, milliseconds since 1970.
        server_id: Server id of writer 0; writer n registers with ``server_id + n``.
        prefix: ``topic.prefix`` of the connector, put in by the ledger; empty in plans of older versions.
        prepared: XA transactions whose rows lie before ``start`` and that are not decided yet.
        pins: What decides the batch's records, by property (``pinned_properties``); a batch that was begun under some
            values is not finished under others.
        attempt: Random id of the driver that carries the plan out, given by ``takeover.begin_epoch``. The owner names a
            piece of work, and two drivers of one owner can be alive; the attempt in the ledger is the one that counts.
        gapless: Whether the stream goes on at ``start``: no change of a captured table may lie between there and a
            snapshot's view; and a reset has left nothing out.
        topics: Digest of the topics that were left out (``without_topics``); None in a plan that is whole.
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
    prefix: str = field(default="", compare=False)
    prepared: tuple[PreparedXa, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    attempt: str = field(default="", compare=False)
    gapless: bool = field(default=False, compare=False)
    topics: str | None = None

    def owner_of(self, topic: str, partition: int) -> int:
        """Return the writer that owns a partition; a topic born during the batch goes whole to one writer.

        Args:
            topic: Topic name.
            partition: Partition number.
        """
        owners = self.assignment.get(topic)
        if owners is None or partition >= len(owners):
            return zlib.crc32(topic.encode()) % self.writers
        return owners[partition]

    def same_work(self, other: BatchPlan) -> bool:
        """Return whether both plans write the same records through the same writers."""
        return self.same_range(other) and self._same_topics(other)

    def same_range(self, other: BatchPlan) -> bool:
        """Return whether both plans read the same with as many writers; their topics may differ."""
        mine = (self.epoch, self.kind, self.start, self.end, self.writers)
        return mine == (other.epoch, other.kind, other.start, other.end, other.writers)

    def _same_topics(self, other: BatchPlan) -> bool:
        if self.topics is not None or other.topics is not None:
            return self.topics_digest() == other.topics_digest()
        return dict(self.partitions) == dict(other.partitions) and dict(self.assignment) == dict(other.assignment)

    def topics_digest(self) -> str:
        """Return the digest of all partition counts and owners, also where they were left out."""
        return topics_digest(self.partitions, self.assignment) if self.topics is None else self.topics

    def without_topics(self) -> BatchPlan:
        """Return the plan with the digest of its topics in their place; it cannot be carried out."""
        return replace(self, partitions={}, assignment={}, topics=self.topics_digest())

    def with_topics(self, partitions: Mapping[str, int], assignment: Mapping[str, tuple[int, ...]]) -> BatchPlan:
        """Return the plan with these topics, whole.

        Args:
            partitions: Kafka partition count of each topic.
            assignment: The owning writer of each partition of each topic.
        """
        return replace(self, partitions=partitions, assignment=assignment, topics=None)

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
            "prefix": self.prefix,
            "prepared": [xa.to_json() for xa in self.prepared],
            "pins": dict(self.pins),
            "attempt": self.attempt,
            "gapless": self.gapless,
        }
        return out if self.topics is None else out | {"topics": self.topics}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> BatchPlan:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        kind = given.one_of("kind", get_args(PlanKind))
        writers = given.whole("writers", low=0 if kind == "reset" else 1, high=MAX_WRITERS)
        return cls(
            epoch=given.whole("epoch"),
            kind=cast(PlanKind, kind),
            start=BinlogOffset.from_json(given.object("start")),
            end=BinlogOffset.from_json(given.object("end")),
            writers=writers,
            partitions=given.each("partitions", lambda topics, t: topics.whole(t, low=1, high=MAX_PARTITIONS)),
            assignment=given.each("assignment", lambda topics, t: _owners(topics, t, writers)),
            owner=given.text("owner", ""),
            created_ms=given.whole("created_ms", 0),
            server_id=given.whole("server_id", 0, high=2**32 - 1),
            prefix=given.text("prefix", ""),
            prepared=tuple(PreparedXa.from_json(xa) for xa in given.objects("prepared", ())),
            pins=given.each("pins", Members.text),
            attempt=given.text("attempt", ""),
            gapless=given.flag("gapless", False),
            topics=given.text_or_none("topics"),
        )


def topics_digest(partitions: Mapping[str, int], assignment: Mapping[str, tuple[int, ...]]) -> str:
    """Return a digest of partition counts and owners that does not depend on their order.

    Args:
        partitions: Kafka partition count of each topic.
        assignment: The owning writer of each partition of each topic.
    """
    text = orjson.dumps([dict(partitions), dict(assignment)], option=orjson.OPT_SORT_KEYS)
    if not text.isascii() or b"\x7f" in text:
        # Names that no topic has; json writes them in ASCII, and stored digests are of that text.
        owners = {topic: list(of) for topic, of in assignment.items()}
        text = json.dumps([dict(partitions), owners], sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest()


def reset_plan(
    epoch: int, offset: BinlogOffset, owner: str, created_ms: int = 0, *, gapless: bool = False
) -> BatchPlan:
    """Return the plan by which a person moves the offset; it is complete as soon as it stands in the ledger.

    Args:
        epoch: One above the newest epoch that stored state and ledger know.
        offset: Where the next batch begins, a transaction boundary.
        owner: Who decided.
        created_ms: Now, milliseconds since 1970.
        gapless: Whether the offset is the one that was stored, so that nothing was left out.
    """
    return BatchPlan(epoch, "reset", offset, offset, writers=0, owner=owner, created_ms=created_ms, gapless=gapless)


@dataclass(frozen=True, slots=True)
class Marker:
    """Say how far one writer has come; it is committed in the same Kafka transaction as the records before it.

    Args:
        epoch: Epoch of the batch.
        writer: Writer number.
        start: Start of the batch.
        end: End of the batch.
        reached: Position reached.
        done: Whether this writer has nothing left to do in this batch.
        counts: Records produced by this writer in this batch so far, per topic.
        gtids: GTID set at ``reached``, when it is not part of the offset.
        prepared: XA transactions that are prepared and not decided at ``reached``.
        tables: Of the records those of row events, per table (``TableId.path``).
        native: What the native kernel has decoded.
    """

    epoch: int
    writer: int
    start: BinlogOffset
    end: BinlogOffset
    reached: Reached
    done: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    gtids: str | None = None
    prepared: tuple[PreparedXa, ...] = ()
    tables: Mapping[str, int] = field(default_factory=dict)
    native: NativeCounts = field(default_factory=NativeCounts)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
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
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> Marker:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        return cls(
            epoch=given.whole("epoch"),
            writer=given.whole("writer", high=MAX_WRITERS),
            start=BinlogOffset.from_json(given.object("start")),
            end=BinlogOffset.from_json(given.object("end")),
            reached=Reached.from_json(given.object("reached")),
            done=given.flag("done"),
            counts=given.each("counts", Members.whole),
            gtids=given.text_or_none("gtids"),
            prepared=tuple(PreparedXa.from_json(xa) for xa in given.objects("prepared", ())),
            tables=given.each("tables", Members.whole),
            native=NativeCounts.of_members(given),
        )

    def record(self, topic: str) -> tuple[str, bytes, bytes]:
        """Return the ledger record (topic, key, value) of this marker.

        Args:
            topic: The ledger topic.
        """
        return topic, writer_key(self.writer).encode(), encode(self.to_json())


def bounded_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts as a record holds them: the largest ``MAX_COUNTS``, and the rest together under ``OTHERS``.

    Args:
        counts: Records by topic, or rows by chunk.
    """
    if len(counts) <= MAX_COUNTS:
        return dict(counts)
    ranked = sorted(counts.items(), key=lambda item: (item[0] == OTHERS, -item[1], item[0]))
    kept = dict(ranked[: MAX_COUNTS - 1])
    return kept | {OTHERS: sum(counts.values()) - sum(kept.values())}


def encode(value: Mapping[str, Any]) -> bytes:
    """Return a ledger value: compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes) -> dict[str, Any]:
    """Read a ledger value.

    Args:
        value: Bytes that ``encode`` wrote.

    Raises:
        DamagedRecordError: The bytes are not a JSON object.
    """
    data: Any = parse(value)
    if not isinstance(data, dict):
        raise damaged("it is not a JSON object")
    return data


def _owners(topics: Members, topic: str, writers: int) -> tuple[int, ...]:
    owners = topics.values(topic)
    if not owners or not all(is_whole(w) and 0 <= w < max(writers, 1) for w in owners):
        raise topics.refuse(topic, f"a list of writers below {writers}")
    return owners
