"""What the ledger says, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import FencedError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa
from airflow_provider_mysql_cdc.cdc.state.plan import (
    CHUNK_PREFIX,
    OUTCOME_KEY,
    PLAN_KEY,
    SNAPSHOT_KEY,
    WRITER_PREFIX,
    BatchPlan,
    Marker,
    decode,
)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Hold the committed content of the ledger, the last value of each key.

    Args:
        plan: The newest plan, or None when no batch was ever planned.
        markers: The last marker of each writer; of older epochs too.
        chunks: Values of ``chunk/...`` keys, the key without that prefix.
        snapshot: The record of the last snapshot: {"epoch", "status", "offset", ...}.
        outcome: The last outcome that a driver wrote.
        others: Values of keys that this version does not know.
        topic_id: Kafka's id of the ledger topic; a topic made anew has another one. None when not known.
    """

    plan: BatchPlan | None = None
    markers: Mapping[int, Marker] = field(default_factory=dict)
    chunks: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    snapshot: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    others: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    topic_id: str | None = None

    @classmethod
    def from_records(cls, records: Mapping[str, bytes | None], topic_id: str | None = None) -> LedgerState:
        """Build the state from the last value of each key; None is a deleted key.

        Args:
            records: Key to value.
            topic_id: Kafka's id of the topic.

        Raises:
            StateError: A record is not ours.
        """
        values = {key: decode(key, value) for key, value in records.items() if value is not None}
        try:
            plan = BatchPlan.from_json(values.pop(PLAN_KEY)) if PLAN_KEY in values else None
            markers = [Marker.from_json(values.pop(k)) for k in list(values) if k.startswith(WRITER_PREFIX)]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                "a ledger record has an unexpected form",
                why=f"{type(error).__name__}: {error}",
                remedy="use the version of this package that wrote it, or a newer one",
            ) from error
        chunks = {k[len(CHUNK_PREFIX) :]: values.pop(k) for k in list(values) if k.startswith(CHUNK_PREFIX)}
        return cls(
            plan=plan,
            markers={m.writer: m for m in markers},
            chunks=chunks,
            snapshot=values.pop(SNAPSHOT_KEY, None),
            outcome=values.pop(OUTCOME_KEY, None),
            others=values,
            topic_id=topic_id,
        )

    @property
    def empty(self) -> bool:
        """Whether nothing was ever planned or written."""
        return self.plan is None and not self.markers and self.snapshot is None

    def marker(self, writer: int, epoch: int) -> Marker | None:
        """Return a writer's marker in this epoch, or None when it has committed nothing there yet."""
        found = self.markers.get(writer)
        return found if found is not None and found.epoch == epoch else None

    def missing_writers(self) -> tuple[int, ...]:
        """Return the writers of the newest plan that are not done; for a snapshot, all until its record says done."""
        plan = self.plan
        if plan is None or self._snapshot_done(plan):
            return ()
        if plan.kind == "snapshot":
            return tuple(range(plan.writers))
        found = (self.marker(writer, plan.epoch) for writer in range(plan.writers))
        return tuple(writer for writer, m in enumerate(found) if m is None or not m.done)

    def complete(self) -> bool:
        """Return whether the newest plan is carried out completely and committed."""
        return self.plan is not None and not self.missing_writers()

    def end(self) -> BinlogOffset | None:
        """Return the offset that a complete batch leads to, or None when the batch is not complete."""
        plan = self.plan
        if plan is None or not self.complete():
            return None
        if plan.kind == "snapshot" and self.snapshot is not None:
            return BinlogOffset.from_json(self.snapshot["offset"])
        if plan.end.gtids is not None:
            return plan.end
        # The end of an earlier binlog file has no GTID set in the plan; the writers that reached it know the set.
        reached = (m.reached.offset for m in self.markers.values() if m.epoch == plan.epoch)
        known = (offset.gtids for offset in reached if offset.key() == plan.end.key())
        return replace(plan.end, gtids=next((gtids for gtids in known if gtids), None))

    def prepared(self) -> tuple[PreparedXa, ...]:
        """Return the XA transactions that a complete drain left undecided; every writer of it saw the same."""
        if self.plan is None or self.plan.kind != "drain" or not self.complete():
            return ()
        marker = self.marker(0, self.plan.epoch)
        return marker.prepared if marker is not None else ()

    def _snapshot_done(self, plan: BatchPlan) -> bool:
        record = self.snapshot
        return (
            plan.kind == "snapshot"
            and record is not None
            and int(record.get("epoch", -1)) == plan.epoch
            and record.get("status") == "done"
            and record.get("offset") is not None
        )

    def writer_ids(self, writers: int = 0) -> tuple[int, ...]:
        """Return every writer that may still have an open transaction, lowest first.

        Args:
            writers: W of the plan about to begin; its writers are included.
        """
        planned = self.plan.writers if self.plan else 0
        # Snapshot tasks name themselves in their chunk records; how many were started stands beside the chunk list.
        of_chunks = {int(chunk["writer"]) for chunk in self.chunks.values() if "writer" in chunk}
        tasks = int((self.snapshot or {}).get("tasks", 0))
        return tuple(sorted({*self.markers, *of_chunks, *range(max(planned, tasks, writers))}))

    def require_plan(self, plan: BatchPlan) -> None:
        """Check that a plan is still the one in force; a writer does so after it has fenced its older attempts.

        Args:
            plan: The plan that the writer was started with.

        Raises:
            FencedError: Another plan has taken its place.
        """
        if self.plan is None or not self.plan.same_work(plan) or self.plan.owner != plan.owner:
            raise FencedError(
                "this plan is no longer in force",
                where=f"epoch {plan.epoch} of {plan.owner or 'unknown'}",
                why="the ledger holds "
                + (f"epoch {self.plan.epoch} of {self.plan.owner or 'unknown'}" if self.plan else "no plan"),
                remedy="nothing: the newer run goes on from what is committed",
                retriable=False,
            )
