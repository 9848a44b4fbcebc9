"""Count what the batches of one run have written; the ledger keeps the tally, so that every batch is reported.

A run is one task instance of Airflow with all its tries. Its tally changes in the transaction that writes a batch's
outcome. A task that succeeds records that it has reported the tally (``REPORTED_KEY``). A driver writes the tally of
its run together with its plan: it continues the one in the ledger when that is of the same run, or was never reported
because its task failed, was killed, or has not yet learned of its driver's end; otherwise it starts a new one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPORTED_KEY, RUN_KEY
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, bounded_counts
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import streaming_metrics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

NO_NATIVE_COUNTS = NativeCounts()
NO_METRICS = StreamMetrics()
NO_TASK_PREFIX = "nobody/"
"""Prefix of the ids of runs without an Airflow task; their complete batches need no report."""


@dataclass(frozen=True, slots=True)
class RunTally(Record):
    """Count what a run has written.

    Args:
        run: The run's id.
        epoch: The last batch that is counted; 0 for none.
        batches: Number of batches.
        start: Where the first batch began; None for none.
        counts: Records by topic.
        tables: Records of row events by table (``TableId.path``).
        native: What the native kernel has decoded.
        metrics: The stream's metrics at the end of the last batch; their counts go on from run to run.
        started_ms: When the first batch was planned, milliseconds since 1970; 0 when it is not known.
    """

    run: str
    epoch: Count = 0
    batches: Count = 0
    start: BinlogOffset | None = None
    counts: Mapping[str, Count] = field(default_factory=dict)
    tables: Mapping[str, Count] = field(default_factory=dict)
    native: NativeCounts = field(default_factory=NativeCounts)
    metrics: StreamMetrics = field(default_factory=StreamMetrics)
    started_ms: Count = 0

    def add(
        self,
        plan: BatchPlan,
        counts: Mapping[str, int],
        tables: Mapping[str, int],
        native: NativeCounts = NO_NATIVE_COUNTS,
        metrics: StreamMetrics = NO_METRICS,
    ) -> RunTally:
        """Return the tally with a batch; one that is counted already, and a reset, change nothing.

        Args:
            plan: The batch.
            counts: Its records by topic.
            tables: Its records by table.
            native: What the native kernel has decoded of it.
            metrics: What it adds to the stream's metrics.
        """
        if plan.kind == "reset" or plan.epoch <= self.epoch:
            return self
        return replace(
            self,
            epoch=plan.epoch,
            batches=self.batches + 1,
            start=plan.start if self.start is None else self.start,
            counts=bounded_counts(add_counts(self.counts, counts)),
            tables=bounded_counts(add_counts(self.tables, tables)),
            native=self.native.add(native),
            metrics=self.metrics.followed_by(metrics),
            started_ms=self.started_ms if self.batches else plan.created_ms,
        )

    def add_rows(self, counts: Mapping[str, int], tables: Mapping[str, int]) -> RunTally:
        """Return the tally with rows that belong to no batch.

        Args:
            counts: Rows by topic.
            tables: Rows by table.
        """
        return replace(
            self,
            counts=bounded_counts(add_counts(self.counts, counts)),
            tables=bounded_counts(add_counts(self.tables, tables)),
        )


def taskless_run_id() -> str:
    """Return a new id for a run without an Airflow task."""
    return NO_TASK_PREFIX + secrets.token_hex(8)


def add_counts(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return the sums of two sets of counts.

    Args:
        first: Counts by name.
        second: Counts by name.
    """
    return {**first, **{name: first.get(name, 0) + n for name, n in second.items()}}


def current_tally(ledger: LedgerState) -> RunTally | None:
    """Return the tally of the run that the newest batch belongs to; None where no run has begun one.

    A complete drain whose driver died before it could write the outcome is counted by its markers.

    Args:
        ledger: The ledger.
    """
    record, plan = ledger.other_records.get(RUN_KEY), ledger.plan
    if record is None:
        return None
    tally = RunTally.from_json(record)
    if plan is None or plan.kind != "drain" or not ledger.complete():
        return tally
    counts: dict[str, int] = {}
    tables: dict[str, int] = {}
    native = NO_NATIVE_COUNTS
    for marker in ledger.markers.values():
        if marker.epoch == plan.epoch:
            counts, tables = add_counts(counts, marker.counts), add_counts(tables, marker.tables)
            native = native.add(marker.native)
    writers = [marker.metrics for marker in ledger.markers.values() if marker.epoch == plan.epoch]
    metrics = streaming_metrics(writers, None, None, plan.created_ms)
    return tally.add(plan, counts, tables, native, metrics)


def tally_of_run(ledger: LedgerState, run: str) -> RunTally | None:
    """Return the tally of one run; None when there is none, or another run has continued it and reports it.

    Args:
        ledger: The ledger.
        run: The run's id.
    """
    tally = current_tally(ledger)
    return tally if tally is not None and tally.run == run else None


def reported_by(ledger: LedgerState, tally: RunTally) -> str | None:
    """Return the run whose task has reported a tally; None when none has.

    Args:
        ledger: The ledger.
        tally: Its newest tally.
    """
    plan, record = ledger.plan, ledger.other_records.get(REPORTED_KEY, {})
    if (record.get("run"), record.get("epoch")) == (tally.run, tally.epoch):
        return str(record["by"])
    if not tally.run.startswith(NO_TASK_PREFIX) or plan is None or not ledger.complete():
        return None
    return tally.run if plan.kind == "reset" or (ledger.outcome or {}).get("epoch") == plan.epoch else None


def unreported_tally(ledger: LedgerState) -> RunTally | None:
    """Return the newest tally when it has batches and was not reported.

    Args:
        ledger: The ledger.
    """
    tally = current_tally(ledger)
    return tally if tally is not None and tally.batches and reported_by(ledger, tally) is None else None


def reported_record(tally: RunTally, by: str) -> dict[str, Any]:
    """Return the value of ``REPORTED_KEY`` for a tally that was reported.

    Args:
        tally: The tally.
        by: The run whose task reports it.
    """
    return {"run": tally.run, "epoch": tally.epoch, "by": by}


def initial_tally(ledger: LedgerState, run: str) -> RunTally:
    """Return the tally with which a driver starts.

    Args:
        ledger: The ledger before the driver's plan is put in force.
        run: The driver's run.
    """
    previous = current_tally(ledger)
    if previous is None or ledger.plan is None or reported_by(ledger, previous) not in (None, run):
        metrics = NO_METRICS if previous is None else previous.metrics.for_next_run()
        return RunTally(run, metrics=metrics)
    return replace(previous, run=run)
