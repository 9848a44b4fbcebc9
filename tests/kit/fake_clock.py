"""A clock of a server's own, which a test sets while the server runs (libfaketime)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stacklib import debian
from stacklib.locks import build_once
from stacklib.settings import cache_dir

_SETTLED_S = 1.5
"""Seconds until a process has noticed that its clock was set; it looks once a second."""


@dataclass
class FakeClock:
    """Set the clock of processes that are started with its environment; monotonic clocks stay as they are.

    Args:
        file: Holds the difference to the real clock.
    """

    file: Path

    def __post_init__(self) -> None:
        self._write(0)

    def _write(self, seconds: int) -> None:
        self.file.write_text(f"{seconds:+d}\n")

    def set(self, seconds: int) -> None:
        """Let the clock differ from the real one.

        Args:
            seconds: The difference; below 0 the clock is late.
        """
        self._write(seconds)
        time.sleep(_SETTLED_S)

    def environment(self) -> Mapping[str, str]:
        """Return what a process is started with."""
        root = build_once(
            cache_dir() / "faketime",
            lambda target: debian.fetch(("libfaketime",), target, "faketime", None),
            "faketime",
            "libfaketime for the C library of this machine",
        )
        (library,) = root.glob("usr/lib/*/faketime/libfaketimeMT.so.1")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
