"""End a batch before the first record of a table version whose schema is refused, or that a transform cannot take.

Either stops the stream. What other tables changed before it is committed first: the driver shortens the
batch to the last transaction boundary before that record, lets the writers complete it, and then fails with the error.
So the stored offset is right before what is refused, and nothing is committed of the batch that begins there:
properties that are fixed within a batch can be changed.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cmp_to_key
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import with_end
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import RefusedSchema
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, compare_offsets


class RefusedSchemas:
    """Collect the refusals that the writers of one stage report."""

    def __init__(self) -> None:
        self._refusals: list[RefusedSchema] = []
        self._lock = threading.Lock()

    def add(self, _task: int, refusal: RefusedSchema) -> EmptyMessage:
        """Take one writer's report; the reply is empty.

        Args:
            refusal: The report.
        """
        with self._lock:
            self._refusals.append(refusal)
        return EMPTY

    def first(self, error: CdcError) -> RefusedSchema | None:
        """Return the refusal at the lowest position; None where the stage ended for another reason.

        Args:
            error: The error with which the stage ended.
        """
        with self._lock:
            if not any((type(error), error.what) == (type(r.error), r.error.what) for r in self._refusals):
                return None
            return min(self._refusals, key=cmp_to_key(_compare_places))


def _compare_places(one: RefusedSchema, other: RefusedSchema) -> int:
    return compare_offsets(one.before, other.before)


def shorten_batch(
    cfg: ConnectorConfig, conn: Any, job: JobLedger, batch: StartedBatch, before: BinlogOffset
) -> tuple[StartedBatch, bool]:
    """Put the batch in force with an earlier end, where no writer has committed anything after it.

    A new attempt begins first: from then on no writer of the failed stage can commit, so the markers are final.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger.
        batch: The batch in force.
        before: The transaction boundary to end at, inside of the batch.

    Returns:
        The batch as it is in force now, and whether it was shortened.

    Raises:
        FencedError: Another run is in force.
    """
    ledger = job.begin(batch.plan)
    plan = ledger.plan_in_force()
    if not can_end_at(ledger, plan, before):
        return replace(batch, plan=plan, ledger=ledger), False
    plan = with_end(cfg, conn, plan, before)
    job.replace_plan(plan)
    return replace(batch, plan=plan, ledger=replace(ledger, plan=plan)), True


def can_end_at(ledger: LedgerState, plan: BatchPlan, before: BinlogOffset) -> bool:
    """Return whether no marker of a plan is after a transaction boundary.

    Args:
        ledger: The ledger.
        plan: The plan.
        before: The boundary.
    """
    return all(_is_reached_by(m.reached, before) for m in ledger.markers.values() if m.epoch == plan.epoch)


def _is_reached_by(reached: ResumePosition, boundary: BinlogOffset) -> bool:
    comparison = compare_offsets(reached.offset, boundary)
    return comparison < 0 or (comparison == 0 and not reached.events and not reached.statements)
