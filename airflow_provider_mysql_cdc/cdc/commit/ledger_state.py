"""The committed content of the ledger as one value, what it is read with, and its first read.

Read a ledger that is known to exist: a single read that does not find it is repeated.

A broker that had just restarted after a crash answered as if the topic were empty, and a moment later returned
everything (scripts/soak, Kafka killed under a driver). Believing that answer would stop a stream until a person
decides, on wrong information.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PROCESSED_SIGNALS_KEY, PROGRESS_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedSchemaId, RecordedTopic
from airflow_provider_mysql_cdc.cdc.errors import FencedError, StateError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import (
    BinlogOffset,
    PreparedXa,
    comparable,
    compare_offsets,
    same_position,
)
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter


@dataclass(frozen=True, slots=True)
class ProcessedSignals(Record):
    """Say how far rows of the signal table were processed when the stream was moved back: earlier rows come again.

    Args:
        offset: Rows before it were processed.
        epoch: Epoch of the move; rows before ``offset`` that this or a later batch reads were processed before.
    """

    offset: BinlogOffset
    epoch: Count

    def covers(self, position: BinlogOffset | None, epoch: int) -> bool:
        """Return whether a row was processed before the move.

        Args:
            position: The boundary before its transaction; None for a signal that is not a row of the signal table.
            epoch: Epoch of the batch that has read it.
        """
        if position is None or epoch < self.epoch or not comparable(position, self.offset):
            return False
        return compare_offsets(position, self.offset) < 0


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Hold the committed content of the ledger, the last value of each key.

    Args:
        plan: The newest plan, or None when no batch was ever planned.
        markers: The last marker of each writer, also of older epochs.
        chunks: Values of ``chunk/...`` keys, the key without that prefix.
        snapshot: The record of the last snapshot: {"epoch", "status", "offset", ...}.
        outcome: The last outcome that a driver wrote.
        topics: Topics as the last batch left them.
        other_records: Values of all other keys.
        topic_id: Kafka's id of the ledger topic; one that was created again has another id. None when not known.
        plan_parts: Parts of a plan that the ledger holds (``plan_parts``).
        writer_count: Writers 0 to ``writer_count`` - 1 may have written for this topic.prefix, in any plan or attempt.
        signals: Values of ``signal/...`` keys, the key without that prefix: signals that the driver has not processed.
        schemas: Ids of Avro key schemas, by ``schema_id_records.schema_key_name``.
        verdicts: The last verdict about each table as JSON text, by its name (``verify.report.verdict_records``).
        owner: ``topic.prefix`` of the stream that has claimed the ledger first; empty before.
        progress_end: Offset of the last record of a plan, a writer or a chunk, or of an outcome; 0 when not known.
    """

    plan: BatchPlan | None = None
    markers: Mapping[int, Marker] = field(default_factory=dict)
    chunks: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    snapshot: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    topics: Mapping[str, RecordedTopic] = field(default_factory=dict)
    other_records: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    topic_id: str | None = None
    writer_count: int = 0
    plan_parts: int = 0
    signals: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    schemas: Mapping[str, RecordedSchemaId] = field(default_factory=dict)
    verdicts: Mapping[str, bytes] = field(default_factory=dict)
    owner: str = ""
    progress_end: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing was ever planned or written."""
        return self.plan is None and not self.markers and self.snapshot is None

    @property
    def newest_epoch(self) -> int:
        """The newest epoch of any record; where records were lost, the plan's may be older. 0 where there is none."""
        epochs = [marker.epoch for marker in self.markers.values()]
        epochs += [0 if self.plan is None else self.plan.epoch, (self.outcome or {}).get("epoch", 0)]
        return max(epochs)

    def marker(self, writer: int, epoch: int) -> Marker | None:
        """Return a writer's marker in this epoch, or None when it has committed nothing in it yet."""
        marker = self.markers.get(writer)
        return marker if marker is not None and marker.epoch == epoch else None

    def missing_writers(self) -> tuple[int, ...]:
        """Return the writers of the newest plan that are not done; for a snapshot, all until it is complete."""
        plan = self.plan
        if plan is None or self._snapshot_done(plan):
            return ()
        if plan.kind == "snapshot":
            return tuple(range(plan.writers))
        markers = (self.marker(writer, plan.epoch) for writer in range(plan.writers))
        return tuple(writer for writer, m in enumerate(markers) if m is None or not m.done)

    def complete(self) -> bool:
        """Return whether the newest plan is completely committed."""
        return self.plan is not None and not self.missing_writers()

    def end(self) -> BinlogOffset | None:
        """Return the offset at which a complete batch ends, or None when the batch is not complete."""
        plan = self.plan
        if plan is None or not self.complete():
            return None
        if plan.kind == "snapshot" and self.snapshot is not None:
            return BinlogOffset.from_json(self.snapshot["offset"]).remembering(plan.start)
        # A plan that ends with an earlier binlog file has no GTID set for its end. The set of another one may lack
        # transactions that stand before its end and were being committed when it was planned (``position``); the
        # markers of its writers have all that they read.
        reached = [m.reached.offset for m in self.markers.values() if m.epoch == plan.epoch]
        reached = [offset for offset in reached if same_position(offset, plan.end)]
        last = next(iter(reached), plan.end)
        end = replace(plan.end, last_commit=last.last_commit).remembering(last)
        gtid_sets = {offset.gtids for offset in reached if offset.gtids} - {plan.end.gtids}
        if not gtid_sets:
            return end
        end_gtids = GtidSet.parse(plan.end.gtids)
        return replace(end, gtids=str(reduce(GtidSet.union, map(GtidSet.parse, gtid_sets), end_gtids)))

    def prepared(self) -> tuple[PreparedXa, ...]:
        """Return the XA transactions that a complete drain left undecided; each of its writers has the same ones."""
        if self.plan is None or self.plan.kind != "drain" or not self.complete():
            return ()
        marker = self.marker(0, self.plan.epoch)
        return marker.prepared if marker is not None else ()

    def last_commit_ts(self) -> int:
        """Return the highest commit timestamp (TiCDC's) that a committed record can have; 0 where there are none."""
        planned = self.plan.commit_ts if self.plan is not None else 0
        viewed = int(self.other_records.get(VIEW_KEY, {}).get("commit_ts", 0))
        return max([planned, viewed, *(marker.commit_ts for marker in self.markers.values())])

    @property
    def processed_signals(self) -> ProcessedSignals | None:
        """How far rows of the signal table were processed when the stream was moved back; None when it was not."""
        record = self.other_records.get(PROCESSED_SIGNALS_KEY)
        return None if record is None else ProcessedSignals.from_json(record)

    def signal_table_offset(self) -> BinlogOffset | None:
        """Return up to where rows of the signal table were processed, also by a batch that is not complete.

        None when the newest plan has processed none: a reset, or a snapshot that leaves out the changes before it.
        """
        plan, end = self.plan, self.end()
        if plan is None or plan.kind == "reset":
            return None
        if end is not None:
            return end
        if plan.kind == "drain":
            marker = self.marker(0, plan.epoch)
            reached = plan.start if marker is None else marker.reached.offset
            origins = {plan.end.file: plan.end.origin, plan.start.file: plan.start.origin}
            return replace(reached, origin=origins.get(reached.file))
        return plan.start if plan.gapless else None

    def _snapshot_done(self, plan: BatchPlan) -> bool:
        record = self.snapshot
        return (
            plan.kind == "snapshot"
            and record is not None
            and record["epoch"] == plan.epoch
            and record["status"] == "done"
            and record.get("offset") is not None
        )

    def has_commits(self) -> bool:
        """Return whether anything of the newest plan is committed: a marker, a snapshot's view or a chunk of it.

        Metrics of a job that is running are not: they are written outside of its transactions.
        """
        plan = self.plan
        if plan is None:
            return False
        others = (record for key, record in self.other_records.items() if key != PROGRESS_KEY)
        records = (*self.done_chunks(plan.epoch).values(), *others)
        return any(m.epoch == plan.epoch for m in self.markers.values()) or any(
            r.get("epoch") == plan.epoch for r in records
        )

    def done_chunks(self, epoch: int) -> dict[str, dict[str, Any]]:
        """Return the records of a snapshot's committed chunks; a planned chunk has no offset yet.

        Args:
            epoch: The snapshot's epoch.
        """
        return {name: r for name, r in self.chunks.items() if r["epoch"] == epoch and "offset" in r}

    def writer_ids(self, writers: int = 0) -> tuple[int, ...]:
        """Return every writer that may still have an open transaction, lowest first.

        Args:
            writers: Number of writers of the next plan, which are included.
        """
        return tuple(range(max(self.writer_count, writers)))

    def require_plan(self, plan: BatchPlan) -> None:
        """Check that a plan is still the one in force, and carried out by the same attempt.

        Args:
            plan: The plan that the writer was started with.

        Raises:
            FencedError: Another plan, or another attempt of this one, is in force.
        """
        current = self.plan
        same_attempt = (
            current is not None
            and current.same_work(plan)
            and (current.owner, current.attempt) == (plan.owner, plan.attempt)
        )
        if not same_attempt:
            raise FencedError(
                "this attempt is no longer in force",
                where=f"epoch {plan.epoch} of {plan.owner or 'unknown'}, attempt {plan.attempt or 'unknown'}",
                why="the ledger holds "
                + (
                    f"epoch {current.epoch} of {current.owner or 'unknown'}, attempt {current.attempt}"
                    if current
                    else "no plan"
                ),
                remedy="nothing: the newer attempt continues from what is committed",
                retriable=False,
            )

    def plan_in_force(self) -> BatchPlan:
        """Return the plan, with the attempt that carries it out.

        Raises:
            StateError: There is none.
        """
        if self.plan is None:
            raise StateError("the ledger holds no plan", remedy="run the task again", retriable=True)
        return self.plan


ExtraRecords = Sequence[SideRecord] | Callable[[LedgerState], Sequence[SideRecord]]
"""Records that become visible with a plan, or a function that returns them for the ledger as it is before."""


class LedgerStore(Protocol):
    """The ledger topic."""

    topic: str
    fences: int
    """How often writers were fenced by way of this object."""

    def ensure(self) -> None:
        """Create the topic when it is missing; otherwise check it."""

    def claim(self) -> None:
        """Record that the ledger is this stream's, before its first other record."""

    def read(
        self,
        timeout_s: float = 60.0,
        *,
        fence_after_s: float | None = None,
        fence_planner: bool = True,
        before_fence: Callable[[], None] = lambda: None,
        chunks: bool = True,
    ) -> LedgerState | None:
        """Return what is committed, or None when the topic does not exist."""

    def peek(self) -> LedgerState:
        """Return what is committed before the oldest open transaction; never waits for one."""

    def current_id(self) -> str | None:
        """Return Kafka's id of the topic; None without a topic, and where the brokers know no ids."""

    def begin(
        self, plan: BatchPlan, planner: RecordWriter | None = None, extra_records: ExtraRecords = ()
    ) -> LedgerState:
        """Put a plan in force."""

    def put(self, records: Mapping[str, bytes | None]) -> None:
        """Write further keys in one transaction."""


log = logging.getLogger(__name__)

MISSING_TIMEOUT_S = 5.0
"""Seconds for which a ledger has to be missing, or without a plan, before it counts as gone."""
_RETRY_INTERVAL_S = 0.25


def read_existing(read: Callable[[], LedgerState | None], *, expect_plan: bool) -> LedgerState | None:
    """Return the ledger; read it again for a while when it is known to hold a plan and shows none.

    Args:
        read: Reads the ledger once; None when its topic does not exist.
        expect_plan: Whether a plan was committed to it before.
    """
    deadline, warned = time.monotonic() + MISSING_TIMEOUT_S, False
    while True:
        state = read()
        if not expect_plan or (state is not None and state.plan is not None) or time.monotonic() >= deadline:
            return state
        if not warned:
            warned = True
            log.warning(
                "Kafka shows no plan in the ledger, although it held one; reading it again for %.0f s",
                MISSING_TIMEOUT_S,
            )
        time.sleep(_RETRY_INTERVAL_S)
