"""One job in a process of its own, without Spark: what its threads cost, and samples of what they do (py-spy)."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelinelib.submit import PROCESS, ROOT
from stacklib import commands
from stacklib.bootstrap import uv_environment
from stacklib.native import cargo_folder

from airflow_provider_mysql_cdc.cdc.decode.native_kernel import ENV_VARIABLE
from benchlib.process_tree import process_ids

RATE = 200
"""Samples a second. Each costs the process half a millisecond of CPU or more, so times are those of another run."""
_EVERY_S = 0.02
_CLIENT = "rdk:"
"""How librdkafka's threads are named (2.x: rdk:main, rdk:broker1)."""
_JOBS = ("incremental.drain_job", "snapshot.snapshot_driver")


@dataclass
class CpuUsage:
    """Add up what the processes of some jobs used.

    Args:
        cpu_s: CPU seconds, user and system.
        client_s: Of these, those of the Kafka client's own threads.
        threads: CPU seconds of the other threads by id.
        stacks: What the sampler wrote.
    """

    cpu_s: float = 0.0
    client_s: float = 0.0
    threads: dict[int, float] = field(default_factory=dict)
    stacks: list[str] = field(default_factory=list)

    def add_threads(self, found: Mapping[tuple[int, str], float]) -> None:
        """Add the threads of one process.

        Args:
            found: CPU seconds by id and name.
        """
        for (thread, name), seconds in found.items():
            if name.startswith(_CLIENT):
                self.client_s += seconds
            else:
                self.threads[thread] = self.threads.get(thread, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class JobProfiler:
    """Run jobs one after the other, by the same Python as this one.

    Args:
        folder: A folder of its own, which keeps compiled modules from run to run: a start does not compile them.
        kernel: A folder with the kernel to use in place of the installed one; None for Python alone.
        sampling: Whether to sample.
    """

    folder: Path
    kernel: Path | None
    sampling: bool

    def run(self, spec: Any, spent: CpuUsage) -> None:
        """Run a job, and add what it used.

        Args:
            spec: The job's spec.
            spent: Is added to.

        Raises:
            RuntimeError: It failed, or must not be sampled on this machine.
        """
        name = os.urandom(4).hex()
        path, stacks = self.folder / f"spec-{name}.json", self.folder / f"stacks-{name}.txt"
        spec.write(path)
        command = [sys.executable, "-c", PROCESS, str(path), "1"]
        if self.sampling:
            spy = str(Path(sys.executable).with_name("py-spy"))
            how = ("--native", "--threads", "--rate", str(RATE), "--format", "raw", "--output", str(stacks))
            command = [spy, "record", *how, "--", *command]
        before = _reaped_s()
        self._watched(command, spent)
        spent.cpu_s += _reaped_s() - before
        if self.sampling:
            spent.stacks.append(stacks.read_text(encoding="utf-8", errors="replace"))

    def warm(self) -> None:
        """Let all modules be compiled."""
        imports = "\n".join(f"import airflow_provider_mysql_cdc.cdc.{name}" for name in _JOBS)
        subprocess.run([sys.executable, "-c", imports], env=self._environment(), check=True)

    def _watched(self, command: list[str], spent: CpuUsage) -> None:
        with (self.folder / "log").open("w+") as log:
            process = subprocess.Popen(
                command, env=self._environment(), cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
            )
            found: dict[tuple[int, str], float] = {}
            try:
                while process.poll() is None:
                    found |= watched_threads(process.pid, sampling=self.sampling)
                    time.sleep(_EVERY_S)
            finally:
                process.kill()
                process.wait()
            log.seek(0)
            if process.returncode:
                raise RuntimeError(f"the job ended with code {process.returncode}:\n{log.read()}")
        spent.add_threads(found)

    def _environment(self) -> dict[str, str]:
        found = [*([] if self.kernel is None else [str(self.kernel)]), str(ROOT), str(ROOT / "tools")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(found),
            "PYTHONPYCACHEPREFIX": str(self.folder / "compiled"),
            "PYTHONDONTWRITEBYTECODE": "",
            ENV_VARIABLE: "off" if self.kernel is None else "on",
        }


def watched_threads(pid: int, *, sampling: bool) -> dict[tuple[int, str], float]:
    """Return the CPU seconds of a job's threads by id and name.

    Args:
        pid: What was started: the job, or the sampler, whose only child it is. The sampler runs longer than the job,
            and its own time is not counted.
        sampling: Whether it is the sampler.
    """
    if not sampling:
        return threads_of(pid)
    below = process_ids(pid)[1:]
    return threads_of(below[0]) if below else {}


def threads_of(pid: int) -> dict[tuple[int, str], float]:
    """Return the CPU seconds of a process's threads by id and name; those that end meanwhile are left out.

    ``schedstat`` counts nanoseconds, where ``stat`` counts hundredths of a second.

    Args:
        pid: The process.
    """
    found = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                name = (task / "comm").read_text().strip()
                found[int(task.name), name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def kernel_with_lines(folder: Path) -> Path:
    """Build the native kernel with the lines of its source, which an installed one leaves out; return its folder.

    Args:
        folder: A folder of its own.

    Raises:
        StackError: It cannot be built.
    """
    source, target = folder / "source", folder / "kernel"
    shutil.copytree(ROOT / "native", source, ignore=shutil.ignore_patterns("target"))
    for name in ("Cargo.toml", "pyproject.toml"):
        path = source / name
        path.write_text(path.read_text(encoding="utf-8").replace("strip = true", "strip = false"), encoding="utf-8")
    programs = f"{cargo_folder(os.environ) or ''}{os.pathsep}{os.environ['PATH']}"
    pip = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    more = {"PATH": programs, "CARGO_PROFILE_RELEASE_DEBUG": "line-tables-only"}
    environment = {**uv_environment(pip.stdout, os.environ), **more}
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "install", "--python", sys.executable, "--no-deps", "--no-cache"]
    remedy = "install Rust's cargo, or profile Python alone: --side python"
    commands.run(
        [*command, "--target", str(target), str(source)], "building the native kernel", remedy, env=environment
    )
    return target


def _reaped_s() -> float:
    """Return the CPU seconds of all children that have ended (getrusage(2))."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
