"""Share the task slots of one Spark application among the streams of a fleet.

Spark itself would run the stages of many streams in the order in which they came, or in fair pools, and a barrier stage
would wait in it for as many free slots as it has tasks, which never come while small stages keep taking them. So a
stream takes slots here before it submits a stage, and every stage that is submitted starts at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(slots=True, eq=False)
class SlotRequest:
    """Hold what one stage waits for.

    Args:
        wanted: Number of tasks.
        barrier: Whether all of them must run at once.
        granted: Slots that it got; 0 as long as it waits.
    """

    wanted: int
    barrier: bool
    granted: int = 0


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Count the slots in use.

    Args:
        total: All slots.
        ordinary: Slots of stages whose tasks do not wait for each other: the writers of drains.
        barrier: Slots of barrier stages: the tasks of snapshots.
    """

    total: int
    ordinary: int = 0
    barrier: int = 0

    @property
    def barrier_limit(self) -> int:
        """Slots that barrier stages may have altogether: half of them, so that snapshots leave drains the rest."""
        return max(1, self.total // 2)

    def add(self, request: SlotRequest, slots: int) -> SlotUse:
        """Return it with slots of a request taken, or given back if the number is negative."""
        if request.barrier:
            return replace(self, barrier=self.barrier + slots)
        return replace(self, ordinary=self.ordinary + slots)


def grant(waiting: list[SlotRequest], use: SlotUse) -> SlotUse:
    """Grant what can be granted, in the order of the requests, and return the use of the slots afterwards.

    =========  ===================================  ======================================================
    request    condition                            gets
    =========  ===================================  ======================================================
    ordinary   a slot is free                       its part of the free slots, at least one, at most what
                                                    it wants; its other tasks ask again
    barrier    within the limit of barrier stages,  all that it wants
               and as many slots are free
    barrier    within the limit, too few are free   nothing; the free slots are kept for it
    barrier    beyond the limit                     nothing, and nothing is kept for it
    =========  ===================================  ======================================================

    Args:
        waiting: The requests that wait, oldest first; those that are granted are removed from it.
        use: The slots in use.
    """
    free = use.total - use.ordinary - use.barrier
    waiting_count = len(waiting)
    for request in list(waiting):
        if request.barrier and use.barrier + request.wanted > use.barrier_limit:
            slots = 0
        elif request.barrier and request.wanted > free:
            slots, free = 0, 0
        elif request.barrier:
            slots = request.wanted
        else:
            slots = min(request.wanted, free, max(1, free // waiting_count))
        if slots > 0:
            request.granted, free, use = slots, free - slots, use.add(request, slots)
            waiting.remove(request)
        waiting_count -= 1
    return use


class SharedSlots:
    """Lend slots to the threads of the streams.

    Args:
        total: Tasks that run at once.
    """

    def __init__(self, total: int) -> None:
        self._use = SlotUse(max(1, total))
        self._waiting: list[SlotRequest] = []
        self._changed = threading.Condition()

    @property
    def barrier_limit(self) -> int:
        """Most tasks of a barrier stage."""
        return self._use.barrier_limit

    @property
    def total(self) -> int:
        """Number of slots."""
        return self._use.total

    @property
    def barrier_waits(self) -> bool:
        """Whether a barrier stage that may have more slots waits for free ones."""
        with self._changed:
            free_for_barriers = self._use.barrier_limit - self._use.barrier
            return any(request.barrier and request.wanted <= free_for_barriers for request in self._waiting)

    @contextmanager
    def lend(self, wanted: int, *, barrier: bool) -> Iterator[int]:
        """Wait for slots, yield their number, and take them back afterwards.

        Args:
            wanted: Number of tasks; of a barrier stage at most ``barrier_limit``.
            barrier: Whether all of them must run at once.

        Raises:
            ValueError: A barrier stage wants more than it can ever get.
        """
        if barrier and wanted > self.barrier_limit:
            raise ValueError(f"a barrier stage of {wanted} tasks never gets {self.barrier_limit} slots")
        request = SlotRequest(wanted, barrier)
        with self._changed:
            self._waiting.append(request)
            self._grant()
            self._changed.wait_for(lambda: request.granted)
        try:
            yield request.granted
        finally:
            with self._changed:
                self._use = self._use.add(request, -request.granted)
                self._grant()

    def _grant(self) -> None:
        self._use = grant(self._waiting, self._use)
        self._changed.notify_all()
