"""The one error type of the local stack and its progress lines."""

from __future__ import annotations

import sys
import time

_STARTED = time.monotonic()


class StackError(Exception):
    """Say in one line what failed, why, and what to do.

    Args:
        what: the step that failed, a short clause.
        why: the cause as far as it is known.
        remedy: what the reader can do about it.
        detail: optional further lines, for example the end of a log.
    """

    def __init__(self, what: str, why: str, remedy: str, detail: str = "") -> None:
        self.what, self.why, self.remedy, self.detail = what, why, remedy, detail
        line = f"{what}: {' '.join(why.split())}; {remedy}"
        super().__init__(f"{line}\n{detail.rstrip()}" if detail.strip() else line)


def say(subject: str, message: str) -> None:
    """Print a progress line to standard error: seconds since the start, the part it concerns, what happens."""
    sys.stderr.write(f"[{time.monotonic() - _STARTED:5.1f}s] {subject:<6} {message}\n")
    sys.stderr.flush()
