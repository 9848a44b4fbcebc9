"""Put a plan in force so that nothing of an older one can still become visible.

The order matters:

1. The planner's transactional id is taken over (the caller's ``init``): an older planner cannot commit any more.
2. The ledger is read under that fence and the plan is checked against it: this is the compare of a compare-and-swap.
3. The plan is committed: the swap. From now on a writer of another plan that starts finds out (``require_plan``).
4. Every writer that may have something open is fenced: one of another plan that had started before cannot commit.
5. The ledger is read again: nothing can be added to what it says now, except by writers of this plan.

Fencing before step 3 only would leave a gap: a leftover writer could start between the two, find its old plan still in
force, and commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider_mysql_cdc.cdc.errors import LedgerMissingError, OffsetConflictError
from airflow_provider_mysql_cdc.cdc.sink.api import LedgerStore, RecordWriter
from airflow_provider_mysql_cdc.cdc.state.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.state.plan import PLAN_KEY, BatchPlan, encode
from airflow_provider_mysql_cdc.cdc.state.store import same_place

PLANNER = "plan"
"""Writer name of the transactional id under which plans and outcomes are written."""
FENCE_AFTER_S = 2.0
"""Seconds to wait for an open transaction in the ledger; its writer is about to be fenced in any case."""


def begin_epoch(
    ledger: LedgerStore, planner: RecordWriter, plan: BatchPlan, fence: Callable[[Iterable[int]], None]
) -> LedgerState:
    """Put a plan in force and return the ledger as it stands once nobody else can write.

    Args:
        ledger: The ledger; its topic exists.
        planner: A writer of the id ``<prefix>.plan``, already initialised by the caller.
        plan: The next plan, or the one in force, to be carried on by another attempt.
        fence: Fences writers by number.

    Raises:
        OffsetConflictError: Another run has planned since.
        FencedError: Another run is planning at this very moment.
        LedgerMissingError: The ledger is empty although this is not the first plan.
        SinkError: Kafka refuses.
    """
    found = ledger.read(fence_after_s=FENCE_AFTER_S, fence_planner=False) or LedgerState()
    _check(plan, found)
    if found.plan != plan:
        planner.commit([(ledger.topic, PLAN_KEY.encode(), encode(plan.to_json()))])
    fence(found.writer_ids(plan.writers))
    return ledger.read() or LedgerState()


def _check(plan: BatchPlan, found: LedgerState) -> None:
    old = found.plan
    if old is None:
        if plan.epoch != 1 and plan.kind != "reset":
            raise LedgerMissingError(
                "the ledger is empty",
                where=f"epoch {plan.epoch} of {plan.owner}",
                why="it was deleted or created anew after the plan was made",
                remedy="run the task again; it says what can be done",
            )
        return
    if old.same_work(plan) or (plan.kind == "reset" and plan.epoch > old.epoch):
        return
    follows = plan.epoch == old.epoch + 1 and found.complete()
    if follows and (plan.kind != "drain" or same_place(plan.start, found.end())):
        return
    done = "complete" if found.complete() else "not complete"
    raise OffsetConflictError(
        f"epoch {plan.epoch} cannot begin",
        where=f"{plan.start} to {plan.end}, planned by {plan.owner or 'unknown'}",
        why=f"the ledger holds epoch {old.epoch} of {old.owner or 'unknown'}, {old.start} to {old.end}, {done}",
        remedy="run the task again: it goes on from there",
    )
