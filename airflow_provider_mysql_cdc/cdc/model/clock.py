"""The time of records and metrics."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time in milliseconds since 1970, by this host's clock."""
    return time.time_ns() // 1_000_000
