"""What kinds of faults share: filling a batch, choosing a step of the commit protocol, trying until it has fired."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from soaklib.attempts import Attempt
from soaklib.world import SoakStream

Fault = Callable[[SoakStream], bool]
POINTS = {
    "snapshot": (
        *("plan.after_store", "snapshot.view_open", "snapshot.after_chunk", "driver.before_outcome"),
        "snapshot.scans_queued",  # the stream takes over what an interrupted snapshot has left
    ),
    "drain": (
        *("plan.after_store", "writer.after_init", "writer.done", "driver.before_outcome", "airflow.before_commit"),
        *("writer.mid_batch", "writer.before_commit", "writer.after_commit") * 3,
    ),
}
WINDOW_POINTS = (
    *("incremental.view_open", "incremental.before_books", "signals.before_commit", "driver.before_outcome"),
    *("writer.before_commit", "writer.after_commit"),
)
# Passed by tasks, on Spark in a Python worker.
TASK_POINTS = {
    "snapshot": ("snapshot.view_open", "snapshot.chunk_read", "snapshot.after_chunk"),
    "drain": ("writer.after_init", "writer.mid_batch", "writer.before_commit", "writer.after_commit"),
}
# After these steps the batch cannot be complete: the writer has something to commit, the snapshot its state.
UNFINISHED_POINTS = {
    "snapshot": ("plan.after_store", "snapshot.view_open", "snapshot.after_chunk", "snapshot.before_books"),
    "drain": ("plan.after_store", "writer.after_init", "writer.mid_batch", "writer.before_commit"),
}
# After these steps a part of the batch is committed, often not all.
COMMITTED_POINTS = {"snapshot": ("snapshot.after_chunk",), "drain": ("writer.after_commit",)}
_SMALL = {"commit.bytes": "30000", "commit.interval.ms": "200", "drain.small.batch.bytes": "0"}
_TRIES = 5


def fill_batch(world: SoakStream) -> None:
    """Let the load fill a batch that is worth disturbing."""
    time.sleep(world.rng.uniform(0.2, 1.2))


def start_attempt(world: SoakStream) -> Attempt:
    """Start an attempt and return when it is about in the middle of its work."""
    fill_batch(world)
    attempt = world.start()
    time.sleep(world.middle_delay())
    return attempt


def point(
    world: SoakStream, action: str, points: Sequence[str] | None = None, nths: Sequence[int] = (1, 1, 2, 3, 5)
) -> dict[str, object]:
    """Return a fault point at one of some steps.

    Args:
        world: What it is for.
        action: What happens there.
        points: The steps; those of the job that is next when left out.
        nths: At which passage, where a step is passed often.
    """
    name = world.rng.choice(points or POINTS[world.kind])
    nth = world.rng.choice(nths) if name.startswith(("writer.", "snapshot.after")) else 1
    return {"point": name, "action": action, "nth": nth}


def kill_unfinished(world: SoakStream) -> bool:
    """Kill an attempt whose batch is not complete, the next one when it ended before; return whether one was hit."""
    for _ in range(_TRIES):
        fill_batch(world)
        attempt = world.start(fault=point(world, "kill-self", UNFINISHED_POINTS[world.kind], (1, 1, 2)))
        world.run(attempt, excused=True)
        if attempt.fired:
            return True
    return False


def kill_begun(world: SoakStream) -> int | None:
    """Kill an attempt that has committed a part of its batch; return the batch's epoch, None when it ended before."""
    before = dict(world.properties)
    world.properties |= _SMALL
    fill_batch(world)
    attempt = world.start(fault=point(world, "kill-self", COMMITTED_POINTS[world.kind], (1, 1, 2, 3)))
    world.run(attempt, excused=True)
    world.properties = before
    return attempt.epoch if attempt.fired else None
