"""The time of records and metrics, and durations as people write them."""

from __future__ import annotations

import time

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Units of durations, with their seconds; each is used from two of it on."""


def now_ms() -> int:
    """Return the time in milliseconds since 1970, by this host's clock."""
    return time.time_ns() // 1_000_000


def duration_text(seconds: float) -> str:
    """Return a duration as a person writes it: ``90 s``, ``15 min``, ``2.5 h``.

    Args:
        seconds: The duration.
    """
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            count = seconds / size
            return f"{count:.0f} {unit}" if size == 60 else f"{f'{count:.1f}'.removesuffix('.0')} {unit}"
    return f"{seconds:.0f} s"
