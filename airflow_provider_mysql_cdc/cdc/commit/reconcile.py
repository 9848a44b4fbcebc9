"""Reconcile the stored state with the ledger before anything else happens.

The ledger holds what Kafka has committed, so it decides what is done; the stored state is a copy. Every case is listed
here, and anything else ends with a named error.

==================  ====================================  =============================================
stored              ledger                                result
==================  ====================================  =============================================
nothing             nothing or empty                      ``fresh``
nothing             plan                                  ``restore`` from the ledger, never a new snapshot
something           nothing or empty                      ``LedgerMissingError``, but see the next line
first plan pending  the same topic, empty; or no topic    ``resume``: the plan never reached the ledger
                    when the plan was made
epoch n pending     complete at n - 1, same offset        ``resume``: the plan never reached the ledger
epoch n pending     epoch n, not complete                 ``resume`` (the ledger's plan)
epoch n pending     epoch n, complete                     ``finish-commit``
epoch n pending     epoch n with an earlier end           as above: the ledger's plan was ended before a schema that
                                                          was refused (``drain.batch_writers``)
epoch n committed   epoch n, complete, same offset        ``none``
epoch n             epoch above n, not complete           ``resume`` (the stored state is an older copy)
epoch n             epoch above n, complete               ``finish-commit`` (an older copy, or a reset by hand)
something           its last run found lost records       that run's ``RecordsLostError``, until a reset
anything else                                             ``LedgerMismatchError``
==================  ====================================  =============================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import (
    PREVENT_LOSS,
    LedgerMismatchError,
    LedgerMissingError,
    RecordsLostError,
    from_json,
)
from airflow_provider_mysql_cdc.cdc.model.offset import moves_back, same_position

ReconcileAction = Literal["fresh", "resume", "finish-commit", "restore", "none"]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Say what the state is and why.

    Args:
        state: The state to continue from; when ``changed`` it has to be saved first.
        action: ``fresh`` nothing exists yet; ``resume`` carry ``state.pending`` out; ``finish-commit`` the batch is in
            Kafka and only the stored offset had to move; ``restore`` the stored state was lost (``state.pending`` is
            the batch that is left to carry out, if any); ``none`` both agree and nothing is pending.
        reason: One sentence for the log.
        changed: Whether the state differs from the stored one.
    """

    state: StoredState
    action: ReconcileAction
    reason: str
    changed: bool = False


def reconcile(stored: StoredState | None, ledger: LedgerState | None, *, at_ms: int = 0) -> Reconciliation:
    """Decide where to continue.

    Args:
        stored: The stored state, or None.
        ledger: The ledger, or None when its topic does not exist.
        at_ms: Now, milliseconds since 1970; goes into the history of offsets.

    Raises:
        LedgerMissingError: A state is stored, but the ledger is gone.
        RecordsLostError: A run has ended because records were lost, and nobody has reset the offset since.
        LedgerMismatchError: They contradict each other.
    """
    if ledger is None or ledger.plan is None:
        return _without_plan(stored, ledger)
    if stored is None or (stored.epoch == 0 and stored.committed is None):
        return _restore(stored, ledger, ledger.plan, at_ms)
    _require_nothing_lost(ledger, ledger.plan)
    if ledger.plan.epoch > stored.epoch:
        return _ledger_ahead(stored, ledger, ledger.plan, at_ms)
    if ledger.plan.epoch < stored.epoch:
        return _stored_ahead(stored, ledger, ledger.plan)
    if stored.pending is None:
        return _both_committed(stored, ledger, ledger.plan)
    return _both_pending(stored, stored.pending, ledger, ledger.plan, at_ms)


def _require_nothing_lost(ledger: LedgerState, plan: BatchPlan) -> None:
    """Check that no run has found lost records since a person's last decision, and that the newest plan is not lost.

    The plan may be among what was lost, so its run's outcome and markers may be of a newer epoch.
    """
    outcome = ledger.outcome or {}
    found = from_json(outcome["error"]) if outcome.get("error") and outcome["epoch"] >= plan.epoch else None
    if isinstance(found, RecordsLostError):
        raise found
    newest = max((marker.epoch for marker in ledger.markers.values()), default=0)
    if newest > plan.epoch:
        raise RecordsLostError(
            "the ledger has lost a plan that Kafka had confirmed",
            where=f"ledger epoch {plan.epoch}, with a marker of epoch {newest}",
            why="a broker that lacked the plan became the leader (unclean election, or a lost disk)",
            remedy=f"{PREVENT_LOSS}. Then run DAG mysql_cdc_reset_offset with offset=stored (events of the batch may "
            "come a second time), and mysql_cdc_verify with history=true",
        )


def _without_plan(stored: StoredState | None, ledger: LedgerState | None) -> Reconciliation:
    if ledger is not None and not ledger.empty:
        raise LedgerMismatchError(
            "the ledger holds markers but no plan",
            why="the record with key 'plan' is missing",
            remedy="find out who wrote to the ledger topic; then continue with a reset (DAG mysql_cdc_reset_offset)",
        )
    if stored is None or (stored.epoch == 0 and stored.committed is None):
        return Reconciliation(
            stored or StoredState(), "fresh", "no offset is stored and no ledger exists: a new stream"
        )
    first_plan = stored.pending is not None and stored.committed is None and stored.epoch == 1
    # Without a stored id the ledger did not exist when the plan was made.
    same_topic = stored.ledger_id is None or (ledger is not None and ledger.topic_id == stored.ledger_id)
    if first_plan and same_topic:
        return Reconciliation(stored, "resume", "the first run was planned and has not begun")
    raise LedgerMissingError(
        "the ledger is gone",
        where=f"stored offset {stored.committed}, epoch {stored.epoch}",
        why="the ledger topic does not exist" if ledger is None else "the ledger topic is empty or was created again",
        remedy="find out what happened to the topic. Kafka may already hold events after the stored offset; continue "
        "only with a reset (DAG mysql_cdc_reset_offset) to an offset that you have chosen",
    )


def _state_from_ledger(ledger: LedgerState, stored: StoredState, plan: BatchPlan, at_ms: int) -> StoredState:
    """Return the state that the ledger's plan leads to: committed where it is complete, pending otherwise."""
    committed = stored.committed
    # The plan of a gapless snapshot begins at the stream's offset, too.
    continues_stream = plan.kind == "drain" or plan.gapless
    if continues_stream and not (stored.pending is not None and stored.pending.same_work(plan)):
        committed = plan.start  # the ledger's plan is newer than the stored state, and everything before it is done
    state = replace(
        stored,
        epoch=plan.epoch,
        pending=plan,
        committed=committed,
        ledger_id=ledger.topic_id or stored.ledger_id,
        ledger_end=ledger.progress_end,
    )
    end = ledger.end()
    if end is None:
        return state
    if plan.kind == "snapshot":
        return state.commit(end, at_ms, ledger.snapshot, may_move_back=True)
    return state.commit(end, at_ms, may_move_back=plan.kind == "reset")


def _restore(stored: StoredState | None, ledger: LedgerState, plan: BatchPlan, at_ms: int) -> Reconciliation:
    state = _state_from_ledger(ledger, stored or StoredState(), plan, at_ms)
    if state.snapshot is None and ledger.snapshot is not None and ledger.snapshot["status"] == "done":
        state = replace(state, snapshot=ledger.snapshot)
    next_step = f"{_name(plan)} is to be finished" if state.pending else f"everything up to {state.committed} is done"
    return Reconciliation(state, "restore", f"the stored offset was lost; restored from the ledger: {next_step}", True)


def _ledger_ahead(stored: StoredState, ledger: LedgerState, plan: BatchPlan, at_ms: int) -> Reconciliation:
    if plan.kind == "drain":
        is_next_epoch = plan.epoch == stored.epoch + 1 and stored.pending is None
        has_gap = is_next_epoch and not plan.continues(stored.committed)
        if has_gap or moves_back(stored.committed, plan.start):
            raise _mismatch_error(stored, ledger, f"epoch {plan.epoch} begins at {plan.start}")
    state = _state_from_ledger(ledger, stored, plan, at_ms)
    if state.pending is not None:
        return Reconciliation(state, "resume", f"Kafka has begun {_name(plan)}, which is to be finished", True)
    reason = f"Kafka has all of {_name(plan)}; the stored offset moves to {state.committed}"
    return Reconciliation(state, "finish-commit", reason, True)


def _stored_ahead(stored: StoredState, ledger: LedgerState, plan: BatchPlan) -> Reconciliation:
    pending = stored.pending
    if (
        pending is not None
        and pending.epoch == plan.epoch + 1
        and ledger.complete()
        and same_position(stored.committed, ledger.end())
    ):
        return Reconciliation(stored, "resume", f"{_name(pending)} was planned and has not begun")
    raise _mismatch_error(stored, ledger, "the stored state is ahead of the ledger")


def _both_committed(stored: StoredState, ledger: LedgerState, plan: BatchPlan) -> Reconciliation:
    if ledger.complete() and same_position(stored.committed, ledger.end()):
        return Reconciliation(stored, "none", f"everything up to the stored offset {stored.committed} is in Kafka")
    why = "the stored offset differs from the batch's end"
    if not ledger.complete():
        why = f"the stored offset counts {_name(plan)} as done, but {_unfinished(ledger, plan)}"
    raise _mismatch_error(stored, ledger, why)


def _name(plan: BatchPlan) -> str:
    return f"{'batch' if plan.kind == 'drain' else plan.kind} {plan.epoch}"


def _unfinished(ledger: LedgerState, plan: BatchPlan) -> str:
    if plan.kind == "snapshot":
        return "tables are not read completely"
    return f"{len(ledger.missing_writers())} of its {plan.writers} writer(s) have not reached its end"


def _both_pending(
    stored: StoredState, pending: BatchPlan, ledger: LedgerState, plan: BatchPlan, at_ms: int
) -> Reconciliation:
    same_plan = pending.same_work(plan)
    starts_elsewhere = stored.committed is not None and not plan.continues(stored.committed)
    if not same_plan and plan.kind == "drain" and starts_elsewhere:
        raise _mismatch_error(
            stored, ledger, f"both hold a plan of epoch {plan.epoch}, and they begin at different offsets"
        )
    note = "" if same_plan else _other_plan_note(pending, plan)
    state = _state_from_ledger(ledger, stored, plan, at_ms)
    if state.pending is None:
        reason = f"Kafka has all of {_name(plan)}; the stored offset moves to {state.committed}{note}"
        return Reconciliation(state, "finish-commit", reason, True)
    reason = f"{_name(plan)} is not finished: {_unfinished(ledger, plan)}{note}"
    return Reconciliation(state, "resume", reason, _without_topics(state) != _without_topics(stored))


def _other_plan_note(pending: BatchPlan, plan: BatchPlan) -> str:
    """Return why the stored plan is not the ledger's; only the ledger's plan has produced records."""
    same_origin = (pending.owner, pending.created_ms) == (plan.owner, plan.created_ms)
    if same_origin and pending.same_work(replace(plan, end=pending.end)):
        return f"; it was ended earlier, before a schema that was refused, at {plan.end} instead of {pending.end}"
    if plan.continued_from is not None and same_position(pending.start, plan.continued_from):
        return f"; it was moved to {plan.start} of server {plan.start.server_uuid}"
    # Two runs planned at the same time, and a store without compare-and-swap kept the plan that the ledger refused.
    return "; the stored plan was another run's and was never started"


def _without_topics(state: StoredState) -> StoredState:
    """Return the state with a digest in place of the plan's topics, for comparison with one that was stored so."""
    return state if state.pending is None else replace(state, pending=state.pending.without_topics())


def _mismatch_error(stored: StoredState, ledger: LedgerState, why: str) -> LedgerMismatchError:
    plan = ledger.plan
    ledger_range = (
        f"ledger epoch {plan.epoch}, {plan.start} to {ledger.end() or plan.end}" if plan else "ledger without plan"
    )
    return LedgerMismatchError(
        "stored offset and ledger contradict each other",
        where=f"stored {stored.committed}, epoch {stored.epoch}; {ledger_range}",
        why=why,
        remedy="the state or the ledger topic was restored from a copy or changed by hand, or two systems share a "
        "topic.prefix; decide where the stream continues, and reset to that offset (DAG mysql_cdc_reset_offset)",
    )
