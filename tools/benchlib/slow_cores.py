"""A processor of its own for each Python worker, by the kernel's bandwidth control (cgroups, version 1 or 2).

Two processors that MySQL, Kafka, Spark's JVM and the writers share cannot show what a processor for each writer brings.
Each worker is bound to the same small share of a processor, whether there is one or several, so that the servers have
enough of the rest. Wall time is then what it is where each writer has a processor of its own, slower by that share,
next to servers whose processors are not.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchlib.process_tree import kind_of, process_ids

WORKER = "pyspark.daemon"
# A thread that has used its share waits until the period ends: a short one keeps the worker's pace even.
_PERIOD_US = 10_000
_REMOVE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class CgroupControl:
    """Say where and how a share of a processor is set.

    Args:
        root: Folder of the hierarchy.
        limits: Text of each file, from the share's microseconds in a period.
    """

    root: Path
    limits: Callable[[int], Mapping[str, str]]


_CONTROLS = (
    # Version 1: Documentation/scheduler/sched-bwc of the Linux kernel. Version 2: cpu.max in cgroup-v2.
    CgroupControl(
        Path("/sys/fs/cgroup/cpu"),
        lambda us: {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(us)},
    ),
    CgroupControl(Path("/sys/fs/cgroup"), lambda us: {"cpu.max": f"{us} {_PERIOD_US}"}),
)


class SlowCores:
    """Give each Python worker of a process tree a processor of its own.

    Args:
        share: Its speed, as a share of a whole processor.

    Raises:
        RuntimeError: This machine, or this user, cannot limit processes.
    """

    def __init__(self, share: float) -> None:
        self._us = round(share * _PERIOD_US)
        self._folders: dict[int, Path] = {}
        self._name = f"mysql-cdc-bench-{secrets.token_hex(4)}"
        self._control = self._usable()

    def bind_workers(self, root: int) -> None:
        """Bind workers that are not bound yet."""
        for pid in process_ids(root):
            if pid not in self._folders and _is_worker(pid):
                folder = self._make(str(pid))
                with suppress(ProcessLookupError):
                    (folder / "cgroup.procs").write_text(str(pid))
                self._folders[pid] = folder

    def remove(self) -> None:
        """Remove what bound them; the workers have ended."""
        end = time.monotonic() + _REMOVE_TIMEOUT_S
        for folder in self._folders.values():
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    # The kernel releases a process a moment after its end.
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)
        self._folders.clear()

    def _usable(self) -> CgroupControl:
        whys = []
        for control in _CONTROLS:
            self._control = control
            try:
                self._make("probe").rmdir()
            except OSError as error:
                whys.append(str(error))
            else:
                return control
        raise RuntimeError(
            "a processor for each writer needs a control group whose CPU bandwidth this user may set "
            f"(user {os.getuid()}: {'; '.join(whys)}); run as root, or leave out the workloads named ...-cores-..."
        )

    def _make(self, name: str) -> Path:
        folder = self._control.root / f"{self._name}-{name}"
        folder.mkdir()
        try:
            for file, text in self._control.limits(self._us).items():
                if not (folder / file).exists():
                    raise FileNotFoundError(f"{folder.parent}: its groups have no {file}")
                (folder / file).write_text(text)
        except OSError:
            folder.rmdir()
            raise
        return folder


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        return kind_of(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")) == WORKER
    return False
