"""Batch plans and the markers that writers leave behind, as values with JSON codecs.

Nothing here talks to a server. ``sink`` writes these values into the ledger, ``state`` reasons about them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, Reached
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa

PlanKind = Literal["drain", "snapshot", "reset"]

PLAN_KEY = "plan"
SNAPSHOT_KEY = "snapshot"
OUTCOME_KEY = "outcome"
WRITER_PREFIX = "writer/"
CHUNK_PREFIX = "chunk/"


def writer_key(writer: int) -> str:
    """Return the ledger key of a writer's marker."""
    return f"{WRITER_PREFIX}{writer}"


def chunk_key(table: str, number: int) -> str:
    """Return the ledger key of a snapshot chunk: ``chunk/<db.table>/<n>``."""
    return f"{CHUNK_PREFIX}{table}/{number}"


def transactional_id(prefix: str, writer: int | str) -> str:
    """Return ``<topic.prefix>.<writer>``; it stays the same over batches so that an older attempt is fenced."""
    return f"{prefix}.{writer}"


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
        transforms: Mark of the transforms that route topics; empty without them.
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
    transforms: str = ""

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
        return (
            (self.epoch, self.kind, self.start, self.end, self.writers)
            == (other.epoch, other.kind, other.start, other.end, other.writers)
            and dict(self.partitions) == dict(other.partitions)
            and dict(self.assignment) == dict(other.assignment)
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
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
            "transforms": self.transforms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchPlan:
        """Read what ``to_json`` wrote."""
        return cls(
            epoch=int(data["epoch"]),
            kind=cast(PlanKind, str(data["kind"])),
            start=BinlogOffset.from_json(data["start"]),
            end=BinlogOffset.from_json(data["end"]),
            writers=int(data["writers"]),
            partitions={str(t): int(n) for t, n in data.get("partitions", {}).items()},
            assignment={str(t): tuple(int(w) for w in ws) for t, ws in data.get("assignment", {}).items()},
            owner=str(data.get("owner", "")),
            created_ms=int(data.get("created_ms", 0)),
            server_id=int(data.get("server_id", 0)),
            prefix=str(data.get("prefix", "")),
            prepared=tuple(PreparedXa.from_json(xa) for xa in data.get("prepared", ())),
            transforms=str(data.get("transforms", "")),
        )


def reset_plan(epoch: int, offset: BinlogOffset, owner: str, created_ms: int = 0) -> BatchPlan:
    """Return the plan by which a person moves the offset; it is complete as soon as it stands in the ledger.

    Args:
        epoch: One above the newest epoch that stored state and ledger know.
        offset: Where the next batch begins, a transaction boundary.
        owner: Who decided.
        created_ms: Now, milliseconds since 1970.
    """
    return BatchPlan(epoch, "reset", offset, offset, writers=0, owner=owner, created_ms=created_ms)


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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "epoch": self.epoch,
            "writer": self.writer,
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "reached": self.reached.to_json(),
            "done": self.done,
            "counts": dict(self.counts),
            "gtids": self.gtids,
            "prepared": [xa.to_json() for xa in self.prepared],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Marker:
        """Read what ``to_json`` wrote."""
        return cls(
            epoch=int(data["epoch"]),
            writer=int(data["writer"]),
            start=BinlogOffset.from_json(data["start"]),
            end=BinlogOffset.from_json(data["end"]),
            reached=Reached.from_json(data["reached"]),
            done=bool(data["done"]),
            counts={str(t): int(n) for t, n in data.get("counts", {}).items()},
            gtids=data.get("gtids"),
            prepared=tuple(PreparedXa.from_json(xa) for xa in data.get("prepared", ())),
        )

    def record(self, topic: str) -> tuple[str, bytes, bytes]:
        """Return the ledger record (topic, key, value) of this marker.

        Args:
            topic: The ledger topic.
        """
        return topic, writer_key(self.writer).encode(), encode(self.to_json())


def encode(value: Mapping[str, Any]) -> bytes:
    """Return a ledger value: compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(key: str, value: bytes) -> dict[str, Any]:
    """Read a ledger value.

    Args:
        key: Its key, for the message.
        value: Bytes that ``encode`` wrote.

    Raises:
        StateError: The bytes are not a JSON object.
    """
    try:
        data = json.loads(value)
    except ValueError as error:
        data, why = None, str(error)
    else:
        why = "it is not a JSON object"
    if not isinstance(data, dict):
        raise StateError(
            "a ledger record cannot be read",
            where=f"key {key}",
            why=why,
            remedy="nobody else may write to the ledger topic; give each topic.prefix its own ledger.topic",
        )
    return data
