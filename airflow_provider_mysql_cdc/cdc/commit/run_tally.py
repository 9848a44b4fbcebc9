"""What the batches of one run have written together; the ledger keeps it, so that nothing goes untold.

A run is one task instance of Airflow with all its tries. Its record changes in the transaction that writes a batch's
outcome. A task that succeeds writes down that it has told of it (``TOLD_KEY``). The plan that a driver puts in force
brings the record of its run along: the one that is there when it is the same run's, or when nobody has told of it: its
task has failed, was ended, or learns of its driver's end only now; otherwise a new one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, bounded_counts
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, members

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

RUN_KEY = "run"
TOLD_KEY = "told"
"""Key of what was told of last: ``run`` and ``epoch`` of a tally, and the run whose task has told of it."""
NONE = NativeCounts()
NOBODY = "nobody/"
"""Ids of runs without a task begin so; what they have finished needs no telling."""


@dataclass(frozen=True, slots=True)
class RunTally:
    """Count what a run has written.

    Args:
        run: The run's id.
        epoch: The last batch that is counted; 0 for none.
        batches: How many are.
        start: Where the first one began; None for none.
        counts: Records by topic.
        tables: Records of row events by table (``TableId.path``).
        native: What the native kernel has decoded.
    """

    run: str
    epoch: int = 0
    batches: int = 0
    start: BinlogOffset | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    native: NativeCounts = field(default_factory=NativeCounts)

    def add(
        self, plan: BatchPlan, counts: Mapping[str, int], tables: Mapping[str, int], native: NativeCounts = NONE
    ) -> RunTally:
        """Return the tally with a batch; one that is counted already, and a reset, change nothing.

        Args:
            plan: The batch.
            counts: Its records by topic.
            tables: Its records by table.
            native: What the native kernel has decoded of it.
        """
        if plan.kind == "reset" or plan.epoch <= self.epoch:
            return self
        return replace(
            self,
            epoch=plan.epoch,
            batches=self.batches + 1,
            start=plan.start if self.start is None else self.start,
            counts=bounded_counts(added(self.counts, counts)),
            tables=bounded_counts(added(self.tables, tables)),
            native=self.native.add(native),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "run": self.run,
            "epoch": self.epoch,
            "batches": self.batches,
            "start": None if self.start is None else self.start.to_json(),
            "counts": dict(self.counts),
            "tables": dict(self.tables),
            **self.native.members(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> RunTally:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        return cls(
            run=given.text("run"),
            epoch=given.whole("epoch"),
            batches=given.whole("batches"),
            start=None if given.value("start") is None else BinlogOffset.from_json(given.object("start")),
            counts=given.each("counts", Members.whole),
            tables=given.each("tables", Members.whole),
            native=NativeCounts.of_members(given),
        )


def new_run() -> str:
    """Return an id for a run that is nobody's second try."""
    return NOBODY + secrets.token_hex(8)


def added(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return two sets of counts together.

    Args:
        first: Counts by name.
        second: Counts by name.
    """
    return {**first, **{name: first.get(name, 0) + n for name, n in second.items()}}


def counted(ledger: LedgerState) -> RunTally | None:
    """Return the tally of the run that the newest batch belongs to; None in ledgers of older versions.

    A complete drain whose driver died before it could write the outcome is counted by its markers.

    Args:
        ledger: The ledger.
    """
    record, plan = ledger.others.get(RUN_KEY), ledger.plan
    if record is None:
        return None
    tally = RunTally.from_json(record)
    if plan is None or plan.kind != "drain" or not ledger.complete():
        return tally
    counts: dict[str, int] = {}
    tables: dict[str, int] = {}
    native = NONE
    for marker in ledger.markers.values():
        if marker.epoch == plan.epoch:
            counts, tables = added(counts, marker.counts), added(tables, marker.tables)
            native = native.add(marker.native)
    return tally.add(plan, counts, tables, native)


def of_run(ledger: LedgerState, run: str) -> RunTally | None:
    """Return the tally of one run; None when there is none, or another run has taken it up and tells of it.

    Args:
        ledger: The ledger.
        run: The run's id.
    """
    newest = counted(ledger)
    return newest if newest is not None and newest.run == run else None


def teller(ledger: LedgerState, tally: RunTally) -> str | None:
    """Return the run whose task has told of a tally; None when nobody has.

    Args:
        ledger: The ledger.
        tally: Its newest tally.
    """
    plan, record = ledger.plan, ledger.others.get(TOLD_KEY, {})
    if (record.get("run"), record.get("epoch")) == (tally.run, tally.epoch):
        return str(record["by"])
    if not tally.run.startswith(NOBODY) or plan is None or not ledger.complete():
        return None
    return tally.run if plan.kind == "reset" or (ledger.outcome or {}).get("epoch") == plan.epoch else None


def untold(ledger: LedgerState) -> RunTally | None:
    """Return the newest tally when it has batches and nobody has told of them.

    Args:
        ledger: The ledger.
    """
    newest = counted(ledger)
    return newest if newest is not None and newest.batches and teller(ledger, newest) is None else None


def told_record(tally: RunTally, by: str) -> dict[str, Any]:
    """Return the value of ``TOLD_KEY`` once a tally is told of.

    Args:
        tally: The tally.
        by: The run whose task tells.
    """
    return {"run": tally.run, "epoch": tally.epoch, "by": by}


def taken_up(found: LedgerState, run: str) -> RunTally:
    """Return the tally with which a driver begins.

    Args:
        found: The ledger before the driver's plan is put in force.
        run: The driver's run.
    """
    before = counted(found)
    if before is None or found.plan is None or teller(found, before) not in (None, run):
        return RunTally(run)
    return replace(before, run=run)
