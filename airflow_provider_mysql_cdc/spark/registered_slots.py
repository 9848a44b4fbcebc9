"""Wait for executors that register one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable

SETTLE_S = 2.0
"""Seconds without another slot after which all executors count as registered."""
DEFAULT_REGISTRATION_WAIT_S = 30
"""Default of ``spark.scheduler.maxRegisteredResourcesWaitingTime``."""


def wait_for_slots(current_slots: Callable[[], int], required: int, timeout_s: float) -> int:
    """Return the number of slots once there are as many as required, or no more executors register.

    Args:
        current_slots: Returns the current number of slots.
        required: How many are sufficient; 0 waits until no more executors register.
        timeout_s: Longest wait in seconds.
    """
    slots, started = current_slots(), time.monotonic()
    last_change = started
    while (not required or slots < required) and time.monotonic() - started < timeout_s:
        if not required and time.monotonic() - last_change >= SETTLE_S:
            break
        time.sleep(0.1)
        if (new_slots := current_slots()) != slots:
            slots, last_change = new_slots, time.monotonic()
    return slots
