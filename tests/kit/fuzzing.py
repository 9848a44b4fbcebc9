"""What all fuzz tests share: a limit of CPU time and of memory for one example.

The Hypothesis profiles are in ``hypothesis_profiles.py``; ``scripts/fuzz`` tries more examples, with new seeds.
"""

from __future__ import annotations

import signal
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CPU_SECONDS = 2.0
MEGABYTE = 1 << 20


class Hang(BaseException):
    """Say that one example took too long; not an Exception, so that nothing on the way swallows it."""


@contextmanager
def within_time(seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Raise ``Hang`` when the block takes more CPU time than this (time on a busy machine does not count)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Hang(f"more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def within_memory(megabytes: int) -> Iterator[None]:
    """Fail when the block's Python objects take more memory at once than this."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()
    assert peak < megabytes, f"{peak:.0f} MB"
