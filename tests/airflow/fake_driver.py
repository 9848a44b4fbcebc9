"""A driver that works on its own while its task is deferred, with a file in place of the server's lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes import FakeSubmit


class Driver:
    """A driver that holds its lock for a while, and what is known about it.

    Args:
        submit: Stands in for spark-submit.
        folder: Where it leaves its traces.
    """

    def __init__(self, submit: FakeSubmit, folder: Path) -> None:
        self.submit, self.lock, self.started = submit, folder / "lock", folder / "started"
        self.go, self.end = folder / "go", folder / "end"
        self.looks: list[str] = []
        self.seen = 0
        self.is_seen(2)

    def is_seen(self, times: int, code: int = 0) -> None:
        """Say how often it is seen running before it ends; 0 means that it ends before it works."""
        self.times = times
        self.submit.set(
            code=code,
            body=f"""
import time
late = time.time() + 120  # nobody waits any more
print(os.getpid(), file=open({str(self.started)!r}, "a"))
if {times}:
    while not os.path.exists({str(self.go)!r}) and time.time() < late:
        time.sleep(0.05)
    open({str(self.lock)!r}, "w").close()
    while not os.path.exists({str(self.end)!r}) and time.time() < late:
        time.sleep(0.05)
    os.remove({str(self.lock)!r})
""",
        )

    def holder_of(self, cfg: Any, owner: str) -> int | None:
        """Say what the server would; a driver that was started begins to work when somebody has asked."""
        self.looks.append(owner)
        if self.starts():
            self.go.touch()
        found = self.lock.exists()
        self.seen += found
        if self.seen >= self.times:
            self.end.touch()
        return 7 if found else None

    def starts(self) -> int:
        return len(self.started.read_text().splitlines()) if self.started.exists() else 0
