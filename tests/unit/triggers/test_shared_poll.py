"""One poll for all who wait for the same thing, in real event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.polls import active_polls

from airflow_provider_mysql_cdc.triggers.base import Subscription

SOON_S, NEVER_S = 0.01, 3600.0


class Counter:
    """Count reads; fails from the given number on."""

    def __init__(self, fails_at: int = 10**9) -> None:
        self.reads, self.fails_at = 0, fails_at

    def __call__(self) -> int:
        self.reads += 1
        if self.reads >= self.fails_at:
            raise ValueError("the read failed")
        return self.reads


async def first_at_least(read: Callable[[], int], number: int, every_s: float = SOON_S) -> int:
    subscription = Subscription("server", read, every_s)
    async for found in subscription.results():
        if found >= number:
            subscription.leave()
            return int(found)
    raise AssertionError("a poll has no end")


def run(*waiting: Awaitable[Any]) -> list[Any]:
    async def together() -> list[Any]:
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert active_polls() == 0, "the last one to leave ends the poll"
        return found

    return asyncio.run(together())


def test_twenty_wait_and_one_reads() -> None:
    read = Counter()
    assert min(run(*[first_at_least(read, 5) for _ in range(20)])) == 5
    assert read.reads < 20  # each for itself would be a hundred; a slow machine may read again before all have left


def test_a_late_one_gets_what_was_read_last_at_once() -> None:
    async def late() -> tuple[int, int]:
        read = Counter()
        patient = asyncio.create_task(first_at_least(read, 2, NEVER_S))
        while not read.reads:
            await asyncio.sleep(0)
        seen = await first_at_least(read, 1, NEVER_S)
        patient.cancel()
        return seen, read.reads

    assert asyncio.run(late()) == (1, 1)


def test_the_most_impatient_one_sets_the_pace_also_when_it_comes_late() -> None:
    async def late() -> list[int]:
        read = Counter()
        patient = asyncio.create_task(first_at_least(read, 2, NEVER_S))
        while not read.reads:
            await asyncio.sleep(SOON_S)
        return await asyncio.gather(patient, first_at_least(read, 3))

    assert asyncio.run(asyncio.wait_for(late(), 60)) == [2, 3]


def test_an_error_reaches_everybody_and_ends_the_poll() -> None:
    read = Counter(fails_at=2)
    found = run(*[first_at_least(read, 5) for _ in range(3)])
    assert [str(error) for error in found] == ["the read failed"] * 3
    assert read.reads == 2


def test_a_task_that_comes_after_an_error_starts_again_while_others_still_leave() -> None:
    async def again() -> int:
        with pytest.raises(ValueError, match="the read failed"):
            await first_at_least(Counter(fails_at=1), 1)
        return await first_at_least(Counter(), 1)

    async def both() -> list[Any]:
        failing = Counter(fails_at=1)
        return await asyncio.gather(again(), first_at_least(failing, 1), return_exceptions=True)

    found, error = asyncio.run(both())
    assert (found, str(error)) == (1, "the read failed")


def test_a_blocking_read_holds_up_neither_the_loop_nor_another_poll() -> None:
    release = threading.Event()

    def blocked() -> int:
        release.wait(60)
        return 1

    async def beside() -> int:
        waiting = [asyncio.create_task(first_at_least(blocked, 1)) for _ in range(3)]
        other = Subscription("another server", Counter(), SOON_S)
        async for found in other.results():
            if found == 3:
                break
        other.leave()
        assert not any(task.done() for task in waiting)
        release.set()
        return sum(await asyncio.gather(*waiting))

    assert asyncio.run(beside()) == 3


def test_cancelling_one_leaves_the_others_waiting_and_the_last_ends_the_poll() -> None:
    async def cancelled() -> None:
        read = Counter()
        first, second = (asyncio.create_task(first_at_least(read, 10**9)) for _ in range(2))
        while read.reads < 2:
            await asyncio.sleep(SOON_S)
        first.cancel()
        await asyncio.wait([first])
        seen = read.reads
        while read.reads < seen + 2:
            await asyncio.sleep(SOON_S)
        assert active_polls() == 1
        second.cancel()
        await asyncio.wait([second])
        assert active_polls() == 0

    asyncio.run(cancelled())
