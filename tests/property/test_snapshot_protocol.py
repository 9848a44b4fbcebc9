"""Snapshots and the drains behind them, as interleavings of attempts (design, sections 4, 6 and 11).

Promises held after every step: consumers see of each key one row of a view and then each later event once, in order.
Whatever happened, undisturbed runs bring each key to its last change. Each protection is also taken away, one at a
time, and then the walks must find a violation. ``MODEL_WALKS`` sets how many interleavings are walked, here, in
test_commit_protocol.py and in test_stream_protocol.py together; ``scripts/model`` walks 100,000.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from first_seeds import WALKS, breaks_a_promise
from memo import read_once
from snapshot_world import Protections, Simulation

from airflow_provider_mysql_cdc.cdc.errors import CdcError

BLOCK_WALKS = WALKS * 7 // 10
BLOCKS = 7


def random_walk(seed: int, protections: Protections, steps: int = 60) -> None:
    """Let chance choose what happens next."""
    rng = random.Random(seed)
    sim = Simulation(protections, rng.randrange(4, 13))
    ordinary: list[Callable[[int], None]] = [
        sim.start_run,
        lambda n: sim.step_run(n, n % 4 + 1),
        lambda n: sim.step_run(-1, 10),
        lambda n: (sim.start_task(n), sim.step_task(-1, n % 12))[0],
        lambda n: sim.step_task(n, n % 9 + 1),
        lambda n: sim.step_task(n, n % 3 + 1),
        sim.finish_tasks,
        sim.source_goes_on,
    ]
    faults: list[Callable[[int], None]] = [
        sim.kill_run,
        sim.kill_task,
        sim.expire_transaction,
        sim.lose_stored_offset,
        sim.change_configuration,
    ]
    for _ in range(steps):
        rng.choice(ordinary if rng.random() < 0.85 else faults)(rng.randrange(10**6))
    # What is visible stays so, and with it whatever is wrong with it.
    sim.check()
    sim.finish()


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_once(patch)
        yield


@pytest.mark.timeout(0 if BLOCK_WALKS > 5000 else 600)
@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_promises_hold_over_many_random_interleavings(block: int) -> None:
    for seed in range(block, BLOCK_WALKS, BLOCKS):
        try:
            random_walk(seed, Protections())
        except (AssertionError, CdcError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


SHOWN_BY = {"fence_at_begin": 24, "compare_after_taking_over": 218, "pins_compared": 308}
"""Seeds whose walks miss a protection; the others show at once."""


@pytest.mark.parametrize("name", list(Protections.__dataclass_fields__))
def test_without_a_protection_an_interleaving_finds_a_violation(name: str) -> None:
    weakened = replace(Protections(), **{name: False})
    shown_by = SHOWN_BY.get(name, 0)
    assert breaks_a_promise(lambda seed: random_walk(seed, weakened), shown_by, range(20_000)), f"{name} is not needed"
