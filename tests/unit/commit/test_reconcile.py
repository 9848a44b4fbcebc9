"""Every case of stored state against ledger (design, section 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.cases import for_each
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, reset_plan
from airflow_provider_mysql_cdc.cdc.commit.reconcile import Reconciliation, reconcile
from airflow_provider_mysql_cdc.cdc.errors import LedgerMismatchError, LedgerMissingError, RecordsLostError, SinkError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition

LATER = END.with_position("binlog.000011", 900)
FIRST = plan(1)
SECOND = plan(2, END, LATER)
SNAPSHOT = replace(FIRST, kind="snapshot", end=START)
SNAPSHOT_DONE = {"epoch": 1, "status": "done", "offset": END.to_json()}


def marker(of: BatchPlan, writer: int, done: bool = True) -> Marker:
    return Marker(of.epoch, writer, of.start, of.end, ResumePosition(of.end if done else of.start, 0), done)


def ledger(of: BatchPlan | None, done: int = 0, **more: object) -> LedgerState:
    markers = {w: marker(of, w) for w in range(done)} if of else {}
    return LedgerState(plan=of, markers=markers, topic_id="id", **more)  # type: ignore[arg-type]


def committed(of: BatchPlan = FIRST) -> StoredState:
    return StoredState(epoch=of.epoch, committed=of.end, revision=4, ledger_id="id")


def pending(of: BatchPlan = SECOND, before: BinlogOffset | None = END) -> StoredState:
    return StoredState(epoch=of.epoch, committed=before, pending=of, revision=4, ledger_id="id")


def assert_moved(result: Reconciliation, offset: BinlogOffset, epoch: int) -> None:
    assert result.changed and result.state.pending is None
    assert (result.state.committed, result.state.epoch) == (offset, epoch)
    assert result.state.history[-1].offset == offset


@for_each("stored", [None, StoredState(), StoredState(revision=3)])
@for_each("found", [None, LedgerState(), LedgerState(topic_id="id")])
def test_nothing_anywhere_is_a_fresh_start(stored: StoredState | None, found: LedgerState | None) -> None:
    result = reconcile(stored, found)
    assert (result.action, result.changed) == ("fresh", False)
    assert result.state == (stored or StoredState())


def test_what_is_restored_follows_the_revision_that_the_store_has() -> None:
    assert reconcile(StoredState(revision=3), ledger(SECOND, 2)).state.revision == 3


def test_both_agree() -> None:
    result = reconcile(committed(SECOND), ledger(SECOND, 2))
    assert (result.action, result.changed, result.state) == ("none", False, committed(SECOND))


def test_a_batch_that_stands_in_kafka_is_committed_without_running_again() -> None:
    result = reconcile(pending(), ledger(SECOND, 2), at_ms=77)
    assert result.action == "finish-commit"
    assert_moved(result, LATER, 2)
    assert result.state.history[-1].at_ms == 77
    assert result.state.revision == 4


def test_a_broker_that_gives_no_ids_does_not_take_the_known_one_away() -> None:
    assert reconcile(pending(), replace(ledger(SECOND, 2), topic_id=None)).state.ledger_id == "id"


def test_going_on_leaves_the_stored_offset_as_it_was_written() -> None:
    """The same place, in the file of the server that it was read from."""
    elsewhere = BinlogOffset("mysql-bin.000002", 4, END.gtids, "another-server")
    result = reconcile(pending(SECOND, elsewhere), ledger(SECOND, 1))
    assert (result.changed, result.state.committed) == (False, elsewhere)


def test_a_batch_with_missing_writers_goes_on() -> None:
    result = reconcile(pending(), ledger(SECOND, 1))
    assert (result.action, result.changed) == ("resume", False)
    assert result.state.pending == SECOND and "1 of its 2 writer(s) have not reached its end" in result.reason


def test_a_plan_taken_over_by_another_run_is_still_the_same_work() -> None:
    result = reconcile(pending(replace(SECOND, owner="retry")), ledger(SECOND, 1))
    assert result.action == "resume" and result.state.pending is not None
    assert result.state.pending.same_work(SECOND)


def test_a_lost_value_is_restored_from_a_complete_ledger_and_never_snapshots_again() -> None:
    for lost in (None, StoredState()):
        result = reconcile(lost, ledger(SECOND, 2, snapshot=SNAPSHOT_DONE))
        assert result.action == "restore"
        assert_moved(result, LATER, 2)
        assert result.state.snapshot == SNAPSHOT_DONE


def test_a_lost_value_is_restored_from_an_unfinished_batch() -> None:
    result = reconcile(None, ledger(SECOND, 1))
    assert (result.action, result.changed) == ("restore", True)
    assert (result.state.committed, result.state.pending, result.state.epoch) == (END, SECOND, 2)


def test_a_lost_value_is_restored_from_a_snapshot() -> None:
    result = reconcile(None, ledger(SNAPSHOT, snapshot=SNAPSHOT_DONE))
    assert result.action == "restore"
    assert_moved(result, END, 1)
    half = reconcile(None, ledger(SNAPSHOT, snapshot=SNAPSHOT_DONE | {"status": "running"}))
    assert (half.state.committed, half.state.pending) == (None, SNAPSHOT)


@pytest.mark.parametrize("stored", [None, committed()])
def test_the_stream_before_an_unfinished_snapshot_is_restored_with_it(stored: StoredState | None) -> None:
    again = replace(plan(3, LATER, LATER), kind="snapshot", gapless=True)
    result = reconcile(stored, ledger(again))
    assert (result.state.committed, result.state.pending) == (LATER, again)


def test_a_finished_snapshot_moves_the_offset_and_is_remembered() -> None:
    result = reconcile(pending(SNAPSHOT, None), ledger(SNAPSHOT, snapshot=SNAPSHOT_DONE))
    assert result.action == "finish-commit" and result.state.snapshot == SNAPSHOT_DONE
    assert_moved(result, END, 1)


def test_a_snapshot_of_a_server_that_was_set_back_moves_the_offset_back() -> None:
    again = replace(SNAPSHOT, epoch=2, start=LATER, end=LATER)
    done = SNAPSHOT_DONE | {"epoch": 2}
    assert_moved(reconcile(pending(again, LATER), ledger(again, snapshot=done)), END, 2)


def test_an_unfinished_snapshot_over_an_older_stream_keeps_the_old_offset() -> None:
    again = replace(SNAPSHOT, epoch=2, start=LATER, end=LATER)
    result = reconcile(pending(again, END), ledger(again))
    assert result.action == "resume" and result.state.committed == END


def test_a_plan_that_never_reached_the_ledger_is_carried_out() -> None:
    result = reconcile(pending(SECOND), ledger(FIRST, 2))
    assert (result.action, result.state, result.changed) == ("resume", pending(SECOND), False)


@pytest.mark.parametrize(
    ("ledger_id", "found"), [("id", LedgerState(topic_id="id")), (None, LedgerState(topic_id="id")), (None, None)]
)
def test_a_first_plan_that_never_reached_the_ledger_is_carried_out(
    ledger_id: str | None, found: LedgerState | None
) -> None:
    stored = replace(pending(FIRST, None), ledger_id=ledger_id)
    assert reconcile(stored, found).action == "resume"


@for_each("found", [None, LedgerState(), LedgerState(topic_id="anew")])
@for_each("stored", [committed(), pending(), pending(FIRST, None)])
def test_a_lost_ledger_stops_until_a_person_decides(stored: StoredState, found: LedgerState | None) -> None:
    with pytest.raises(LedgerMissingError) as caught:
        reconcile(stored, found)
    assert not caught.value.can_retry
    assert str(stored.committed) in caught.value.where
    assert (
        ("does not exist" in caught.value.why) == (found is None) != ("empty or was created again" in caught.value.why)
    )
    assert "reset" in caught.value.remedy


@for_each(
    "stored",
    [
        committed(),
        pending(),
        pending(FIRST, END),
        pending(plan(2), None),
        replace(pending(FIRST, None), pending=None),
        StoredState(committed=END, ledger_id="id"),
    ],
    ids=["committed", "second", "over an offset", "second without an offset", "given up", "offset by hand"],
)
def test_a_ledger_that_lost_its_records_stops_unless_only_the_first_plan_was_stored(stored: StoredState) -> None:
    """The topic is the same one: somebody deleted its records, or its retention did."""
    with pytest.raises(LedgerMissingError, match="gone"):
        reconcile(stored, LedgerState(topic_id="id"))


def test_an_offset_that_was_set_by_hand_is_not_taken_for_a_lost_one() -> None:
    by_hand = StoredState(committed=END)
    assert reconcile(by_hand, ledger(SECOND, 2)).action == "finish-commit"
    with pytest.raises(LedgerMismatchError, match="begins at"):
        reconcile(StoredState(committed=LATER), ledger(SECOND, 2))


def test_an_older_copy_of_the_value_is_brought_up_to_date() -> None:
    old = committed(FIRST)
    done = reconcile(old, ledger(SECOND, 2))
    assert done.action == "finish-commit"
    assert_moved(done, LATER, 2)
    going_on = reconcile(old, ledger(SECOND, 1))
    assert (going_on.action, going_on.changed, going_on.state.pending) == ("resume", True, SECOND)
    assert going_on.state.committed == END


@pytest.mark.parametrize(
    ("stored", "epoch"), [(committed(FIRST), 5), (pending(SECOND), 3)], ids=["far behind", "one behind, with a plan"]
)
def test_an_older_copy_need_not_end_where_a_much_newer_batch_begins(stored: StoredState, epoch: int) -> None:
    newer = plan(epoch, LATER, LATER.with_position("binlog.000020", 4))
    result = reconcile(stored, ledger(newer, 1))
    assert (result.action, result.state.committed, result.state.pending) == ("resume", LATER, newer)


def test_of_two_plans_of_one_epoch_the_snapshot_in_the_ledger_may_begin_elsewhere() -> None:
    again = replace(plan(2, LATER, LATER), kind="snapshot")
    result = reconcile(pending(SECOND), ledger(again))
    assert (result.action, result.state.pending, result.state.committed) == ("resume", again, END)


def test_the_rest_of_the_work_is_returned() -> None:
    assert reconcile(None, ledger(SECOND, 1)).reason.endswith("batch 2 is to be finished")
    assert f"everything up to {LATER} is done" in reconcile(None, ledger(SECOND, 2)).reason


def test_a_plan_without_its_topics_in_the_store_is_the_ledgers_plan() -> None:
    digest = replace(pending(), pending=SECOND.without_topics())
    assert reconcile(digest, ledger(SECOND, 1)).changed is False
    other = replace(SECOND, partitions={"p.d.t": 3})
    assert reconcile(digest, ledger(other, 1)).changed is True


def test_a_much_older_copy_with_its_own_plan_is_brought_up_to_date() -> None:
    fifth = plan(5, LATER, LATER.with_position("binlog.000020", 4))
    result = reconcile(pending(SECOND), ledger(fifth, 1))
    assert (result.action, result.state.committed, result.state.pending) == ("resume", LATER, fifth)


def test_of_two_plans_of_one_epoch_the_one_in_the_ledger_counts() -> None:
    loser = plan(2, END, LATER.with_position("binlog.000099", 4), owner="loser")
    result = reconcile(pending(loser), ledger(SECOND, 1))
    assert (result.action, result.changed, result.state.pending) == ("resume", True, SECOND)
    assert "another run" in result.reason
    finished = reconcile(pending(loser), ledger(SECOND, 2))
    assert_moved(finished, LATER, 2)


def test_of_two_first_plans_the_one_in_the_ledger_counts() -> None:
    loser = pending(plan(1, END, LATER, owner="loser"), None)
    result = reconcile(loser, ledger(FIRST, 1))
    assert (result.action, result.state.pending, result.state.committed) == ("resume", FIRST, START)


@for_each(
    ("stored", "found", "why"),
    [
        pytest.param(committed(SECOND), ledger(SECOND, 1), "1 of its 2 writer", id="done-but-markers-missing"),
        pytest.param(committed(SECOND), ledger(FIRST, 2), "ahead of the ledger", id="stored-one-epoch-ahead"),
        pytest.param(pending(SECOND), ledger(FIRST, 1), "ahead of the ledger", id="planned-over-unfinished"),
        pytest.param(pending(SECOND, None), ledger(FIRST, 1), "ahead of the ledger", id="planned-over-nothing"),
        pytest.param(
            replace(committed(FIRST), committed=None), ledger(FIRST, 1), "1 of its 2 writer", id="done-nowhere"
        ),
        pytest.param(pending(plan(3, END, LATER)), ledger(FIRST, 2), "ahead of the ledger", id="two-epochs-ahead"),
        pytest.param(pending(SECOND, LATER), ledger(FIRST, 2), "ahead of the ledger", id="ahead-at-another-place"),
        pytest.param(
            replace(committed(SECOND), committed=LATER.with_position("binlog.000050", 4)),
            ledger(SECOND, 2),
            "differs from the batch's end",
            id="another-offset",
        ),
        pytest.param(committed(FIRST), ledger(plan(2, LATER, LATER)), "begins at", id="gap-between-batches"),
        pytest.param(committed(FIRST), ledger(plan(4, START, END)), "begins at", id="newer-plan-from-before"),
        pytest.param(
            pending(plan(2, END, LATER.with_position("binlog.000012", 4))),
            ledger(plan(2, START, LATER)),
            "different offsets",
            id="plans-from-different-places",
        ),
    ],
)
def test_contradictions_stop(stored: StoredState, found: LedgerState, why: str) -> None:
    assert found.plan is not None
    with pytest.raises(LedgerMismatchError, match=why) as caught:
        reconcile(stored, found)
    assert not caught.value.can_retry and "reset to that offset" in caught.value.remedy
    assert f"stored {stored.committed}, epoch {stored.epoch}; ledger epoch {found.plan.epoch}, " in caught.value.where
    assert caught.value.where.endswith(f"{found.plan.start} to {found.end() or found.plan.end}")


def test_markers_without_a_plan_stop() -> None:
    with pytest.raises(LedgerMismatchError, match="no plan"):
        reconcile(None, LedgerState(markers={0: marker(FIRST, 0)}))


def test_a_reset_by_hand_moves_the_offset_back_even_over_an_unfinished_batch() -> None:
    for stored in (committed(SECOND), pending(SECOND)):
        result = reconcile(stored, ledger(reset_plan(3, START, "a person")))
        assert result.action == "finish-commit"
        assert_moved(result, START, 3)


def test_after_a_lost_ledger_a_reset_goes_on_from_the_chosen_offset() -> None:
    anew = LedgerState(plan=reset_plan(3, END, "a person"), topic_id="anew")
    result = reconcile(committed(SECOND), anew)
    assert_moved(result, END, 3)
    assert result.state.ledger_id == "anew"


def test_offsets_of_another_server_agree_when_their_gtid_sets_do() -> None:
    moved = replace(FIRST, end=BinlogOffset("mysql-bin.000002", 4, END.gtids, "another-server"))
    assert reconcile(committed(FIRST), ledger(moved, 2)).action == "none"


def test_a_run_that_found_lost_records_is_the_last_until_a_person_has_reset_the_offset() -> None:
    lost = RecordsLostError("records are gone", where="topic t")
    outcome = {"epoch": SECOND.epoch, "error": lost.to_json(), "counts": {}}
    with pytest.raises(RecordsLostError, match="records are gone"):
        reconcile(pending(), ledger(SECOND, 2, outcome=outcome))
    with pytest.raises(RecordsLostError, match="records are gone"):
        reconcile(pending(), ledger(FIRST, 2, outcome=outcome))
    assert reconcile(pending(), ledger(SECOND, 2, outcome=outcome | {"error": None})).action == "finish-commit"
    other = SinkError("slow").to_json()
    assert reconcile(pending(), ledger(SECOND, 2, outcome=outcome | {"error": other})).action == "finish-commit"
    reset = replace(SECOND, epoch=SECOND.epoch + 1, kind="reset", start=END, end=END)
    assert reconcile(pending(), ledger(reset, 2, outcome=outcome, progress_end=8)).state.ledger_end == 8


def test_markers_whose_plan_the_ledger_lacks_are_not_taken_for_a_batch_that_has_not_begun() -> None:
    found = replace(ledger(FIRST, 2), markers={0: marker(FIRST, 0), 1: marker(FIRST, 1), 2: marker(SECOND, 2)})
    with pytest.raises(RecordsLostError, match="ledger epoch 1, with a marker of epoch 2"):
        reconcile(pending(), found)


def test_a_reset_goes_behind_every_epoch_that_is_left_of_lost_records() -> None:
    """Also where the stored state was lost, or restored from before: its remedy must not lead back to the error."""
    lost = {"epoch": SECOND.epoch, "error": RecordsLostError("records are gone").to_json(), "counts": {}}
    for found in (
        ledger(FIRST, 2, outcome=lost),
        replace(ledger(FIRST, 2), markers={0: marker(FIRST, 0), 1: marker(SECOND, 1)}),
    ):
        assert found.newest_epoch == SECOND.epoch
        after = replace(found, plan=reset_plan(found.newest_epoch + 1, END, "a person"))
        assert_moved(reconcile(committed(FIRST), after), END, SECOND.epoch + 1)
    assert LedgerState().newest_epoch == 0
