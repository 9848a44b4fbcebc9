"""What the batches of a run have written together: kept over tries, taken over where nobody has counted of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, START, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPORTED_KEY
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import MAX_COUNTS, OTHERS_LABEL, BatchPlan, Marker, reset_plan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import (
    RunTally,
    current_tally,
    reported_by,
    reported_record,
    taskless_run_id,
    unreported_tally,
)
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.operate import stored_offset as following
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import follow_ledger, tally_of

CFG = config()
SECOND = END.with_position(END.file, END.pos + 500)
THIRD = END.with_position(END.file, END.pos + 900)
PLANS = [plan(1, START, END, writers=1), plan(2, END, SECOND, writers=1), plan(3, SECOND, THIRD, writers=1)]


class Drivers:
    """Drivers one after another on one ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch, self.kafka = monkeypatch, MemoryKafka()
        self.job: JobLedger
        self.start("")

    def start(self, run: str) -> None:
        """Start a driver; an older one can write nothing any more."""
        self.job = memory_job(self.monkeypatch, CFG, self.kafka, run)

    def begin(self, batch: BatchPlan) -> None:
        self.job.begin(batch)

    def write(self, batch: BatchPlan, **tables: int) -> None:
        """Let the batch's writer reach its end."""
        counts = {f"p.{name}": n for name, n in tables.items()}
        paths = {f"d.{name}": n for name, n in tables.items()}
        marker = Marker(
            batch.epoch, 0, batch.start, batch.end, ResumePosition(batch.end, 0), True, counts, tables=paths
        )
        self.job.commit([marker.record(CFG.ledger_topic)])

    def close(self, batch: BatchPlan) -> None:
        """Write the outcome of a batch whose writer is done."""
        marker = self.job.read().markers[0]
        self.job.add_table_counts(marker.tables)
        self.job.write_outcome(batch, counts=dict(marker.counts))

    def batch(self, batch: BatchPlan, **tables: int) -> None:
        self.begin(batch)
        self.write(batch, **tables)
        self.close(batch)

    def tell(self, by: str) -> None:
        """Let a task succeed that has told of what is written."""
        self.job.put(REPORTED_KEY, reported_record(self.tally(), by))

    def tally(self) -> RunTally:
        found = current_tally(self.job.read())
        assert found is not None
        return found


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Drivers:
    return Drivers(monkeypatch)


def test_all_batches_of_a_driver_are_counted(drivers: Drivers) -> None:
    drivers.start("a")
    drivers.batch(PLANS[0], orders=3)
    drivers.batch(PLANS[1], orders=1, items=5)
    drivers.batch(PLANS[2])
    tally = drivers.tally()
    assert (tally.run, tally.epoch, tally.batches, tally.start) == ("a", 3, 3, START)
    assert tally.counts == {"p.orders": 4, "p.items": 5}
    assert tally.tables == {"d.orders": 4, "d.items": 5}


def test_a_second_try_continues_counting_and_another_run_starts_again(drivers: Drivers) -> None:
    drivers.start("a")
    drivers.batch(PLANS[0], orders=3)
    drivers.start("a")
    drivers.batch(PLANS[1], items=1)
    assert drivers.tally().tables == {"d.orders": 3, "d.items": 1}
    drivers.tell("a")
    drivers.start("b")
    drivers.batch(PLANS[2], items=2)
    tally = drivers.tally()
    assert (tally.run, tally.batches, tally.start, tally.tables) == ("b", 1, SECOND, {"d.items": 2})


@pytest.mark.parametrize("written", ["", "marker", "outcome"])
def test_what_a_dead_run_has_not_reported_is_reported_by_the_next_one(drivers: Drivers, written: str) -> None:
    """Its task has not succeeded, so no event was made of its batches."""
    drivers.start("a")
    drivers.batch(PLANS[0], orders=3)
    drivers.begin(PLANS[1])
    if written:
        drivers.write(PLANS[1], items=1)
    if written == "outcome":
        drivers.close(PLANS[1])
    drivers.start("b")
    following = PLANS[2] if written else PLANS[1]
    drivers.begin(following)
    drivers.start("c")  # and b dies at once, too
    drivers.batch(following, logs=7)
    tally = drivers.tally()
    assert tally.run == "c"
    assert tally.tables == {"d.orders": 3, "d.logs": 7} | ({"d.items": 1} if written else {})
    assert tally.start == START


def test_a_report_of_its_task_is_made_once_whether_the_outcome_was_written_or_not(drivers: Drivers) -> None:
    drivers.start("a")
    drivers.begin(PLANS[0])
    drivers.write(PLANS[0], orders=3)
    drivers.tell("a")
    drivers.start("b")
    drivers.batch(PLANS[1], items=2)
    assert (drivers.tally().batches, drivers.tally().tables) == (1, {"d.items": 2})


def test_what_another_task_has_reported_is_not_the_run_s_any_more(drivers: Drivers) -> None:
    """A deferred task learns of its driver's end seconds later; meanwhile a run that finds nothing to do has told."""
    drivers.start("a")
    drivers.batch(PLANS[0], orders=3)
    assert unreported_tally(drivers.job.read()) == drivers.tally()
    drivers.tell("b")
    ledger = drivers.job.read()
    assert unreported_tally(ledger) is None and reported_by(ledger, drivers.tally()) == "b"
    drivers.start("b")  # its events replace those that it has added before
    drivers.batch(PLANS[1], items=2)
    assert drivers.tally().tables == {"d.orders": 3, "d.items": 2}


def test_a_run_without_a_task_is_not_reported(drivers: Drivers) -> None:
    run = taskless_run_id()
    drivers.start(run)
    drivers.batch(PLANS[0], orders=3)
    assert unreported_tally(drivers.job.read()) is None
    drivers.start("b")
    drivers.batch(PLANS[1], items=2)
    assert drivers.tally().tables == {"d.items": 2}


def test_a_batch_whose_outcome_was_never_written_is_counted_by_its_markers(drivers: Drivers) -> None:
    drivers.start("a")
    drivers.begin(PLANS[0])
    assert drivers.tally().batches == 0
    drivers.write(PLANS[0], orders=3)
    assert (drivers.tally().batches, drivers.tally().tables) == (1, {"d.orders": 3})
    drivers.start("a")
    drivers.begin(PLANS[0])
    drivers.close(PLANS[0])
    assert (drivers.tally().batches, drivers.tally().tables) == (1, {"d.orders": 3})


def test_a_reset_is_no_batch_and_an_error_changes_nothing(drivers: Drivers) -> None:
    drivers.start("a")
    drivers.batch(PLANS[0], orders=3)
    drivers.job.begin(reset_plan(2, THIRD, "somebody"))
    drivers.job.write_outcome(reset_plan(2, THIRD, "somebody"), counts={"p.orders": 3})
    assert (drivers.tally().batches, drivers.tally().counts) == (1, {"p.orders": 3})
    drivers.start("a")
    last = replace(PLANS[2], start=THIRD, end=THIRD)
    drivers.begin(last)
    drivers.job.write_outcome(last, error=SinkConnectionError("no broker answers"))
    assert drivers.tally().counts == {"p.orders": 3}


def test_a_ledger_of_an_older_version_reports_nothing(drivers: Drivers) -> None:
    drivers.batch(PLANS[0], orders=3)
    assert current_tally(drivers.job.read()) is None


def test_counts_are_bounded() -> None:
    many = {f"t{n}": n for n in range(MAX_COUNTS + 5)}
    tally = RunTally("a").add(PLANS[0], many, many)
    assert len(tally.counts) == len(tally.tables) == MAX_COUNTS
    assert sum(tally.counts.values()) == sum(many.values())
    assert OTHERS_LABEL in tally.tables


# -- the stored offset follows -----------------------------------------------------------------------------------------


def test_the_stored_offset_follows_each_batch_while_the_driver_goes_on(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following.kafka_clients, "ledger", lambda cfg: drivers.job._ledger)
    store, lines = MemoryOffsetStore(), list[str]()
    store.save(StoredState().with_plan(PLANS[0]), None)
    drivers.start("a")
    drivers.begin(PLANS[0])
    assert follow_ledger(CFG, store, lines.append) is None
    drivers.write(PLANS[0], orders=1)
    assert follow_ledger(CFG, store, lines.append) == END
    drivers.close(PLANS[0])
    drivers.begin(PLANS[1])
    assert follow_ledger(CFG, store, lines.append) is None
    drivers.write(PLANS[1], orders=1)
    drivers.close(PLANS[1])
    drivers.begin(PLANS[2])
    assert follow_ledger(CFG, store, lines.append) == SECOND
    state = store.load()
    assert state is not None and state.pending is not None
    assert (state.epoch, state.committed, state.pending.epoch) == (3, SECOND, 3)
    assert len(lines) == 2
    assert tally_of(CFG, "a") == drivers.tally()
    assert tally_of(CFG, "b") is None


def test_a_plan_that_the_ledger_does_not_know_yet_stays_stored(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following.kafka_clients, "ledger", lambda cfg: drivers.job._ledger)
    store = MemoryOffsetStore()
    drivers.start("a")
    drivers.batch(PLANS[0])
    state = store.save(StoredState().with_plan(PLANS[0]).commit(END, 1), None)
    state = store.save(state.with_plan(PLANS[1]), state)
    assert follow_ledger(CFG, store, lambda line: None) is None
    assert store.load() == state


def test_a_run_began_when_its_first_batch_was_planned() -> None:
    first, second = replace(PLANS[0], created_ms=1_000), replace(PLANS[1], created_ms=2_000)
    tally = RunTally("a").add(first, {}, {}).add(second, {}, {})
    assert tally.started_ms == 1_000
