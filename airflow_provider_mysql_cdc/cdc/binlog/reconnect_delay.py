"""How long a run waits before it connects to the source again."""

from __future__ import annotations

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0


def reconnect_delay_s(attempts: int) -> float:
    """Return the seconds before the next attempt to connect: twice as long each time, up to a limit.

    Args:
        attempts: Attempts that were made before.
    """
    return min(MAX_DELAY_S, FIRST_DELAY_S * float(2**attempts))
