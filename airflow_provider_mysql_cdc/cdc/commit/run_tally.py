"""What the batches of one run have written together; the ledger keeps it, so that nothing goes untold.

A run is one task instance of Airflow with all its tries. Its record changes in the transaction that writes a batch's
outcome. The plan that a driver puts in force brings the record of its run along: the one that is there when it is the
same run's, or when it belongs to a batch that nobody has finished or told of; otherwise a new one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, bounded_counts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored import Members, members

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

RUN_KEY = "run"


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
    """

    run: str
    epoch: int = 0
    batches: int = 0
    start: BinlogOffset | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)

    def add(self, plan: BatchPlan, counts: Mapping[str, int], tables: Mapping[str, int]) -> RunTally:
        """Return the tally with a batch; one that is counted already, and a reset, change nothing.

        Args:
            plan: The batch.
            counts: Its records by topic.
            tables: Its records by table.
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
        )


def new_run() -> str:
    """Return an id for a run that is nobody's second try."""
    return secrets.token_hex(8)


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
    for marker in ledger.markers.values():
        if marker.epoch == plan.epoch:
            counts, tables = added(counts, marker.counts), added(tables, marker.tables)
    return tally.add(plan, counts, tables)


def taken_up(found: LedgerState, run: str) -> RunTally:
    """Return the tally with which a driver begins.

    Args:
        found: The ledger before the driver's plan is put in force.
        run: The driver's run.
    """
    before = counted(found)
    if before is None or found.plan is None:
        return RunTally(run)
    epoch = found.plan.epoch
    untold = not found.complete() or (found.plan.kind != "reset" and (found.outcome or {}).get("epoch") != epoch)
    return replace(before, run=run) if before.run == run or untold else RunTally(run)
