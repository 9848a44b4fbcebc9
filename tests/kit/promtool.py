"""Prometheus' promtool: the machine's own, or Debian's, unpacked into the stack's cache without root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from stacklib import debian
from stacklib.locks import build_once
from stacklib.settings import cache_dir

PROGRAM_VARIABLE = "MYSQL_CDC_PROMTOOL"


def find_promtool() -> str:
    """Return the program in ``MYSQL_CDC_PROMTOOL``, on PATH, or unpacked into the cache, where it is fetched once.

    Raises:
        StackError: There is none, and none can be fetched.
    """
    if named := os.environ.get(PROGRAM_VARIABLE) or shutil.which("promtool"):
        return named
    root = build_once(cache_dir() / "promtool", _unpack, "promtool", "Prometheus' promtool from Debian")
    return str(root / "usr/bin/promtool")


def _unpack(folder: Path) -> None:
    debian.fetch(("prometheus",), folder, "promtool", None)
    for part in ("usr/share", "usr/lib", "lib", "etc", "var"):  # the program is linked statically but for the C library
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / "usr/bin/prometheus").unlink(missing_ok=True)
