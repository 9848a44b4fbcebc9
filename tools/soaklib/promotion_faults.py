"""The replica is promoted: as an operator plans it, and after kill -9 of the primary."""

from __future__ import annotations

from collections.abc import Callable

import pymysql

from soaklib.attempts import Attempt
from soaklib.steps import Fault, fill_batch, kill_begun, kill_unfinished, start_attempt
from soaklib.world import SoakStream

_DOWN_S = 2.0


def switch_over(world: SoakStream) -> bool:
    """A planned switchover; the jobs' connections to the former primary are cut, or stay open."""
    return _promote(world, lambda: world.servers.switch_over(cut=world.rng.random() < 0.5))


def fail_over(world: SoakStream) -> bool:
    """Kill -9 of the primary; the replica is promoted, and the killed server comes back as its replica."""
    return _promote(world, lambda: world.servers.fail_over(world.rng.uniform(0.0, _DOWN_S)))


def _promote(world: SoakStream, exchange: Callable[[], None]) -> bool:
    """Exchange the servers at a moment of the stream, and count which; return whether they were exchanged."""
    attempt, said = world.rng.choice(_MOMENTS)(world)
    alive = attempt is not None and attempt.alive
    try:
        exchange()
    except pymysql.err.OperationalError as error:
        # Commits could not be held: a statement has a lock for too long.
        world.say(f"no promotion: {error}")
        return False
    if attempt is not None:
        world.run(attempt, excused=True)
        said = "promoted while an attempt works" if alive else said
    world.fired[said] += 1
    return True


def _between(world: SoakStream) -> tuple[Attempt | None, str]:
    fill_batch(world)
    return None, "promoted between batches"


def _at_work(world: SoakStream) -> tuple[Attempt | None, str]:
    return start_attempt(world), "promoted between batches"


def _in_batch(world: SoakStream) -> tuple[Attempt | None, str]:
    return None, "promoted inside a batch" if kill_unfinished(world) else "promoted between batches"


def _half_committed(world: SoakStream) -> tuple[Attempt | None, str]:
    begun = kill_begun(world) is not None
    return None, "promoted inside a half committed batch" if begun else "promoted between batches"


_MOMENTS: tuple[Callable[[SoakStream], tuple[Attempt | None, str]], ...] = (
    _between,
    _at_work,
    _in_batch,
    _half_committed,
)
PROMOTIONS: dict[str, Fault] = {"planned switchover": switch_over, "kill mysqld and promote": fail_over}
