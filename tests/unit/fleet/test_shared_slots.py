"""Slots of one Spark application, shared by the streams of a fleet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.fleet import slot_tasks
from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import StreamRunner
from airflow_provider_mysql_cdc.cdc.fleet.shared_slots import SharedSlots, SlotRequest, SlotUse, grant
from airflow_provider_mysql_cdc.cdc.fleet.slot_tasks import SlotTasks
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.job.task_runner import Shuffle

WAIT_S = 60
METERS: dict[int, Meter] = {}


@pytest.fixture
def fleet() -> Iterator[Callable[..., StreamRunner]]:
    """Return a function that makes the runner of a stream of a fleet with so many slots."""
    made: dict[int, tuple[SharedSlots, SlotTasks]] = {}

    def stream(total: int) -> StreamRunner:
        if total not in made:
            slots = SharedSlots(total)
            made[total] = slots, SlotTasks(ThreadRunner(), slots, Endpoint())
        return StreamRunner(ThreadRunner(), *made[total])

    yield stream
    for _, tasks in made.values():
        tasks.close()


def metered(index: int, arguments: tuple[int, int]) -> int:
    """Run in a meter."""
    return METERS[arguments[0]].task(index, arguments[1])


def failing(index: int, arguments: int) -> int:
    raise LookupError("lost")


def granted(use: SlotUse, *requests: SlotRequest) -> list[int]:
    """Return what each request gets; an ordinary one wants a number, a barrier stage a request of its own."""
    grant(list(requests), use)
    return [request.granted for request in requests]


def ordinary(wanted: int) -> SlotRequest:
    return SlotRequest(wanted, barrier=False)


def barrier(wanted: int) -> SlotRequest:
    return SlotRequest(wanted, barrier=True)


def test_free_slots_are_parted_among_those_that_wait() -> None:
    assert granted(SlotUse(4), ordinary(1)) == [1]
    assert granted(SlotUse(4), ordinary(8)) == [4]
    assert granted(SlotUse(4), ordinary(8), ordinary(8)) == [2, 2]
    assert granted(SlotUse(4), ordinary(8), ordinary(1), ordinary(1)) == [1, 1, 1]
    assert granted(SlotUse(2), ordinary(1), ordinary(1), ordinary(1)) == [1, 1, 0], "the oldest ones first"


def test_barrier_stages_leave_half_of_the_slots_to_drains() -> None:
    assert granted(SlotUse(4), barrier(2), barrier(1), ordinary(4)) == [2, 0, 2]
    assert granted(SlotUse(4, barrier=2), barrier(2), ordinary(1)) == [0, 1], "nothing is kept for what is not its turn"


def test_free_slots_are_kept_for_a_barrier_stage_that_waits_for_drains() -> None:
    assert granted(SlotUse(4, ordinary=3), barrier(2), ordinary(1)) == [0, 0]
    assert granted(SlotUse(4, ordinary=2), barrier(2), ordinary(1)) == [2, 0]
    assert granted(SlotUse(4, ordinary=3), ordinary(1), barrier(2)) == [1, 0], "an older request does not wait for it"


def test_one_slot_is_shared_in_turn() -> None:
    assert SlotUse(1).barrier_limit == 1
    assert granted(SlotUse(1), ordinary(1), barrier(1), ordinary(1)) == [1, 0, 0]
    assert granted(SlotUse(1), barrier(1), ordinary(1)) == [1, 0]


def test_a_barrier_stage_that_can_never_start_is_refused() -> None:
    with pytest.raises(ValueError, match="never"), SharedSlots(4).lend(3, barrier=True):
        pass


class Meter:
    """Run tasks in threads, and count those that run at once; each waits until it is let go."""

    def __init__(self) -> None:
        METERS[id(self)] = self
        self._lock = threading.Lock()
        self.running = self.most = 0
        self.goes_on, self.begun = threading.Event(), threading.Event()
        self._single = threading.Semaphore(0)

    def let_one_go(self) -> None:
        self._single.release()

    def task(self, index: int, arguments: int) -> int:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.set()
        for _ in range(WAIT_S * 100):
            if self.goes_on.is_set() or self._single.acquire(timeout=0.01):
                break
        with self._lock:
            self.running -= 1
        return arguments + index


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_no_more_tasks_run_at_once_than_there_are_slots(fleet: Any) -> None:
    meter = Meter()
    results: dict[int, list[int]] = {}

    def stream(number: int, count: int) -> None:
        results[number] = fleet(3).run(metered, count, (id(meter), number * 100), barrier=False)

    meter.goes_on.set()
    threads = [in_thread(lambda n=n: stream(n, 1 + n % 5)) for n in range(12)]
    for thread in threads:
        thread.join(WAIT_S)
    assert meter.most <= 3
    assert results == {n: [n * 100 + i for i in range(1 + n % 5)] for n in range(12)}, "results come in order"


def test_a_slow_stream_keeps_its_slots_and_no_others(fleet: Any) -> None:
    slow, quick = Meter(), Meter()
    quick.goes_on.set()
    held = in_thread(lambda: fleet(2).run(metered, 1, (id(slow), 0), barrier=False))
    for _ in range(20):
        assert fleet(2).run(metered, 1, (id(quick), 0), barrier=False) == [0]
    slow.begun.wait(WAIT_S)
    assert slow.most == 1 and held.is_alive()
    slow.goes_on.set()
    held.join(WAIT_S)


def test_a_snapshot_gets_half_of_the_slots_and_drains_go_on_beside_it(fleet: Any) -> None:
    runner = fleet(4)
    assert (runner.slots(), runner.slots(16)) == (2, 2)
    snapshot, quick = Meter(), Meter()
    quick.goes_on.set()
    held = in_thread(lambda: runner.run(metered, runner.slots(), (id(snapshot), 0), barrier=True))
    for _ in range(20):
        assert runner.run(metered, 2, (id(quick), 0), barrier=False) == [0, 1]
    snapshot.begun.wait(WAIT_S)
    assert snapshot.most <= 2 and held.is_alive()
    snapshot.goes_on.set()
    held.join(WAIT_S)


def test_a_snapshot_that_waits_gets_the_next_free_slot_though_drains_wait_too(fleet: Any) -> None:
    drain, snapshot, runner = Meter(), Meter(), fleet(2)
    drains = [in_thread(lambda: runner.run(metered, 1, (id(drain), 0), barrier=False)) for _ in range(8)]
    assert drain.begun.wait(WAIT_S)
    taken = in_thread(lambda: runner.run(metered, 1, (id(snapshot), 0), barrier=True))
    while not runner._slots.barrier_waits and not snapshot.begun.is_set():
        threading.Event().wait(0.01)
    drain.let_one_go()
    drain.let_one_go()
    assert snapshot.begun.wait(20), "drains that came later went first"
    drain.goes_on.set()
    snapshot.goes_on.set()
    for thread in (taken, *drains):
        thread.join(WAIT_S)


def test_slots_come_back_when_a_stage_fails(fleet: Any) -> None:
    runner = fleet(2)
    for is_barrier in (False, True, False, True):
        with pytest.raises(LookupError):
            runner.run(failing, 1, 0, barrier=is_barrier)
    quick = Meter()
    quick.goes_on.set()
    assert runner.run(metered, 5, (id(quick), 0), barrier=False) == [0, 1, 2, 3, 4]
    shuffled = runner.run_shuffled(lambda index, _: iter([(index, b"x")]), 1, 0, Shuffle(1, list))
    assert shuffled == [[b"x"]]


def test_what_is_too_large_for_a_call_is_a_job_of_its_own(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_tasks, "MAX_CALL_BYTES", 10)
    quick = Meter()
    quick.goes_on.set()
    assert fleet(2).run(metered, 3, (id(quick), 5), barrier=False) == [5, 6, 7]
