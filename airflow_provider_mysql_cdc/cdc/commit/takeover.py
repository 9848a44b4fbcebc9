"""Fence older attempts and put a plan in force: no record of an older plan or attempt can become visible afterwards.

What is left to do, according to stored state and ledger, is decided in ``reconcile.py``.

The order matters:

1. The planner's transactional id is taken over (the caller's ``init``): an older driver can no longer write.
2. The ledger is read under that fence and the plan is checked against it: the compare of a compare-and-swap.
3. The plan is committed with the id of a new attempt: the swap. From now on a writer of another plan or attempt that
   starts is refused (``require_plan``). The number of ids to be fenced is committed with it, so that the next attempt
   knows them even if this one dies here and the next plan has fewer writers (a reset has none).
4. Every writer that may have an open transaction is fenced: a writer of another attempt that started before cannot
   commit.
5. The ledger is read again: only writers of this attempt can add anything to it now.

Fencing only before step 3 would leave a gap: an old writer could start between the two, find its old plan still in
force, and commit.

A writer joins in the same way (``join_plan``): compare, take over the id, compare again.

Where this driver put the batch before in force, it knows the ledger as it left it (``latest``), and step 2 compares
that: whoever writes another plan takes over the planner's id first, and then step 3 fails. Signals and the like that
others have written are found in step 5. A topic that was made anew meanwhile has another id, and is read.

Step 4 is left out where the writers of the batch before live on (``after``). This driver put that batch in force, and
fenced every writer then or at one of the batches before. Since then each id belongs to the writer that took it over
for this driver, or to nobody: whoever takes one over later finds this plan, or fences the planner first. A writer that
lives on has no open transaction, as its marker says that it is done, and whoever takes over its id ends it. Where this
driver itself has fenced writers since, to read a ledger whose end an open transaction hid, step 4 is done, and the
writers of the batch before end (``LedgerStore.fences``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import WRITERS_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import ExtraRecords, LedgerState, LedgerStore, read_existing
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, encode
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import plan_records
from airflow_provider_mysql_cdc.cdc.errors import (
    LedgerMissingError,
    OffsetConflictError,
    SinkConnectionError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter

PLANNER = "plan"
"""Writer name of the transactional id under which plans and outcomes are written."""
FENCE_AFTER_S = 2.0
"""Seconds to wait for an open transaction in the ledger; its writer will be fenced in any case."""
PEEK_S = 2.0
"""Seconds for which a starting writer waits for an open transaction before it checks that its plan is in force."""


def read_as_planner(ledger: LedgerStore, *, expect_plan: bool) -> LedgerState | None:
    """Return the ledger for the planner; writers whose open transactions hide its end are fenced, the planner is not.

    Args:
        ledger: The ledger.
        expect_plan: Whether a plan was committed to it before; a ledger without one is then read again before it counts
            as gone.

    Raises:
        SinkError: Kafka refuses.
    """
    return read_existing(
        partial(ledger.read, fence_after_s=FENCE_AFTER_S, fence_planner=False), expect_plan=expect_plan
    )


def begin_epoch(
    ledger: LedgerStore,
    planner: RecordWriter,
    plan: BatchPlan,
    fence: Callable[[Iterable[int]], None],
    extra_records: ExtraRecords = (),
    after: BatchPlan | None = None,
    latest: LedgerState | None = None,
) -> LedgerState:
    """Put a plan in force, and return the ledger once no other attempt can write to it.

    Args:
        ledger: The ledger; its topic exists.
        planner: A writer with the id ``<prefix>.plan``, already initialised by the caller.
        plan: The next plan, or the one in force, to be continued by another attempt.
        fence: Fences writers by number.
        extra_records: Records that become visible with the plan, in one transaction; or a function that returns them
            for the ledger as it is before.
        after: The batch before, as this driver put it in force, where its writers live on; None fences all writers.
        latest: The ledger as it is since the last record of this driver, which needs no second reading before the plan
            where ``after`` is that plan; None reads it.

    Returns:
        The ledger; its plan has the id of the new attempt, and is the plan to pass to writers.

    Raises:
        OffsetConflictError: Another run has put a plan in force since.
        FencedError: Another run is putting its plan in force at this moment, or has done so since.
        LedgerMissingError: The ledger is empty although this is not the first plan.
        StateError: The plan lacks its topics.
        SinkError: Kafka refuses.
    """
    if plan.omitted_topics is not None:
        raise StateError("a plan without its topics cannot be carried out", where=f"epoch {plan.epoch} of {plan.owner}")
    fences = ledger.fences
    known = None if latest is None or after is None or not _is_attempt(latest.plan, after) else latest
    if known is None or known.topic_id is None or known.topic_id != ledger.current_id():
        known = read_as_planner(ledger, expect_plan=_expects_predecessor(plan))
    current = known or LedgerState()
    _require_next_plan(plan, current)
    current_plan = current.plan
    # A plan keeps the pins and the timestamp under which it was started; a driver that starts late may have others.
    pins, commit_ts = plan.pins, current.last_commit_ts()
    if current_plan is not None and current_plan.same_work(plan):
        pins, commit_ts = current_plan.pins, current_plan.commit_ts
    attempt_plan = replace(plan, attempt=secrets.token_hex(8), pins=pins, commit_ts=commit_ts)
    ids = current.writer_ids(plan.writers)
    records = plan_records(attempt_plan, current.plan_parts)
    records[WRITERS_KEY] = encode({"count": ids[-1] + 1 if ids else 0})
    side_records = extra_records(current) if callable(extra_records) else extra_records
    planner.commit([*side_records, *(SideRecord(ledger.topic, key.encode(), value) for key, value in records.items())])
    fault_point("takeover.after_plan")
    if after is None or ledger.fences > fences or not _is_attempt(current_plan, after):
        fence(ids)
    state = ledger.read() or LedgerState()
    state.require_plan(attempt_plan)
    return state


def join_plan(ledger: LedgerStore, plan: BatchPlan, writer: RecordWriter, index: int) -> LedgerState:
    """Take over a writer's transactional id for the attempt in force, and return the ledger as it is then.

    The plan is compared before, so that a writer of an older attempt does not fence the current one; and again after,
    because only then can no other writer commit with this id. A newer attempt fences the id after it has committed its
    plan, so either this comparison finds that plan, or that fence ends this writer.

    Args:
        ledger: The ledger.
        plan: The plan that the writer was started with.
        writer: The writer, not yet initialised.
        index: Its index.

    Raises:
        FencedError: Another plan or attempt is in force.
        SinkError: Kafka refuses.
    """
    ledger.peek().require_plan(plan)
    fault_point("writer.before_init", index)
    writer.init()
    fault_point("writer.after_init", index)
    try:
        state = ledger.read(PEEK_S, chunks=False)
    except SinkConnectionError:
        # The open transaction may be one of the newer attempt, whose plan is before it in the ledger.
        ledger.peek().require_plan(plan)
        state = ledger.read(chunks=False)
    state = state or LedgerState()
    state.require_plan(plan)
    return state


def _is_attempt(current: BatchPlan | None, plan: BatchPlan) -> bool:
    return current is not None and (current.epoch, current.attempt) == (plan.epoch, plan.attempt)


def _expects_predecessor(plan: BatchPlan) -> bool:
    """Return whether the ledger must hold a plan before this one; a reset needs none."""
    return plan.epoch != 1 and plan.kind != "reset"


def _require_next_plan(plan: BatchPlan, current: LedgerState) -> None:
    current_plan = current.plan
    if current_plan is None:
        if _expects_predecessor(plan):
            raise LedgerMissingError(
                "the ledger is empty",
                where=f"epoch {plan.epoch} of {plan.owner}",
                why="it was deleted or created again after the plan was made",
                remedy="run the task again; its error says what to do",
            )
        return
    if current_plan.same_work(plan) or (plan.kind == "reset" and plan.epoch > current_plan.epoch):
        return
    is_next = plan.epoch == current_plan.epoch + 1 and current.complete()
    if is_next and (plan.kind != "drain" or plan.continues(current.end())):
        return
    done = "complete" if current.complete() else "not complete"
    raise OffsetConflictError(
        f"epoch {plan.epoch} cannot be started",
        where=f"{plan.start} to {plan.end}, planned by {plan.owner or 'unknown'}",
        why=f"the ledger holds epoch {current_plan.epoch} of {current_plan.owner or 'unknown'}, "
        f"{current_plan.start} to {current_plan.end}, {done}",
        remedy="run the task again: it continues from there",
    )
