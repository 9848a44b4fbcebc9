"""What later tries, and the triggerer, know about a driver that outlives the process of its task, and its output.

What later tries, and the triggerer, know about a driver that outlives the process of its task.

The triggerer imports this module, so it must not import Spark's provider, which takes seconds.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_message
from airflow_provider_mysql_cdc.cdc.model.stored_record import VersionedRecord
from airflow_provider_mysql_cdc.hooks.kill_application import kill_in_cluster, kill_process_group
from airflow_provider_mysql_cdc.hooks.kubernetes_secret import core_api, delete_secret

# The line in which ``spark.main`` names the job's error.
_ERROR_LINE = re.compile(r"\[mysql-cdc\] (\w+Error: .*)")
# The line of ``spark.main``; those of spark-submit in deploy mode cluster (org.apache.spark.deploy.yarn.Client and
# org.apache.spark.deploy.k8s.submit.LoggingPodStatusWatcherImpl, 4.3).
_APPLICATION = re.compile(
    r"\[mysql-cdc\] Spark application ([^\s,]+)|Submitted application (application_\w+)|"
    r"spark-app-selector -> (spark-\w+)"
)
_PAGE = re.compile(r"\[mysql-cdc\] Spark application \S+, page (https?://\S+)|tracking URL: (https?://\S+)")
TAIL_LINES = 50
"""Lines of a driver's output that one look brings at most: the newest ones."""
TAIL_BYTES = 1 << 16
"""Bytes of it that one look reads at most."""
LINE_CHARS = 1000
"""Characters of a line that a look brings at most."""
LEFT_OUT = "(lines of the driver were left out)"


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """Name a Spark application.

    Args:
        id: Its id; empty as long as it is not known.
        page: Address of its web page while it runs, if it has one.
    """

    id: str = ""
    page: str = ""

    def with_line(self, line: str) -> SparkApplication:
        """Return it with what a line of output says.

        Args:
            line: A line of the driver, or of spark-submit.
        """
        found, page = _APPLICATION.search(line), _PAGE.search(line)
        if found is None and page is None:
            return self
        return SparkApplication(_group(found) or self.id, _group(page) or self.page)


def _group(match: re.Match[str] | None) -> str:
    return "" if match is None else str(match[match.lastindex or 0])


class DriverOutput:
    """Separate the line that names the job's error from the other lines, and find the one that names the application.

    Args:
        debug: Takes the line that names the error.
        on_application: Takes the Spark application each time more is known about it.
    """

    def __init__(
        self,
        debug: Callable[[str], None] = lambda line: None,
        on_application: Callable[[SparkApplication], None] = lambda application: None,
    ) -> None:
        self._debug, self.on_application = debug, on_application
        self.application = SparkApplication()
        self._error_text = ""

    def error(self, *, retriable: bool | None = None) -> CdcError | None:
        """Return the error; None when no line names one.

        Args:
            retriable: Whether a retry can help; None for what the line says.
        """
        return from_message(self._error_text, retriable=retriable) if self._error_text else None

    def other_lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines that do not name the error.

        Args:
            lines: The output.
        """
        for line in lines:
            if match := _ERROR_LINE.match(line.strip()):
                self._error_text = match[1]
                self._debug(line)
                continue
            if (application := self.application.with_line(line)) != self.application:
                self.application = application
                self.on_application(application)
            yield line


@dataclass(slots=True)
class OutputTail:
    """Read the output of a running driver little by little, as much of it as a log can bear.

    Args:
        path: File with the output; it may not exist.
        position: Bytes of it that were read.
    """

    path: Path
    position: int = 0

    def new_lines(self) -> list[str]:
        """Return the lines that were written since the last look, without the one that names the job's error.

        At most ``TAIL_LINES`` of the last ``TAIL_BYTES`` are returned, behind a note if there were more. A line that is
        still being written comes with the next look.
        """
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                start = max(self.position, end - TAIL_BYTES)
                file.seek(start)
                block = file.read(end - start)
        except OSError:
            return []
        cut = start > self.position
        if cut:  # it begins inside a line
            start, block = start + block.find(b"\n") + 1, block[block.find(b"\n") + 1 :]
        whole = block[: block.rfind(b"\n") + 1]
        self.position = start + len(whole)
        lines = list(DriverOutput().other_lines(whole.decode(errors="replace").splitlines()))
        shown = [line[:LINE_CHARS] for line in lines[-TAIL_LINES:]]
        return [LEFT_OUT, *shown] if cut or len(lines) > TAIL_LINES else shown


STATE_KEY = "mysql_cdc_submission"
"""Key in the task's state store, which is kept over tries."""
LOG_TAIL_LINES = 500
"""Number of last lines of a driver's output that are copied to the task log."""
APPLICATION_BYTES = 1 << 20
"""Bytes at the beginning of a driver's output in which the Spark application is named."""
START_TIMEOUT_S = 300.0
"""Seconds during which a driver without a lock may still be starting on another host."""


@dataclass(frozen=True, slots=True)
class Submission(VersionedRecord):
    """Identify a driver for later tries and other processes; it is stored before the driver starts.

    Args:
        job: The submission's id (``JobSpec.id``).
        name: Name of the Spark application, unique for each try.
        host: The worker's host.
        output: File with the output of spark-submit.
        pid: Process id of spark-submit on that host, which leads its own process group; 0 when it is not known.
        run: The task instance with the number of times it was cleared (``common.run_key``).
        at: When it was stored, in seconds since 1970 by the source server's clock, because hosts' clocks may differ.
        worked: Whether its driver has held the lock.
        cluster: What identifies its driver on a cluster (``CdcSparkSubmitHook.cluster_driver``).
        shown: Bytes of the output that the task's log already has.
    """

    location = f"task state, key {STATE_KEY}"

    job: str
    name: str
    host: str
    output: str
    pid: int = 0
    run: str = ""
    at: float = 0.0
    worked: bool = False
    cluster: Mapping[str, str] = field(default_factory=dict)
    shown: int = 0

    @classmethod
    def from_context(cls, context: Any) -> Submission | None:
        """Return the last submission of this task instance, or None when there is none."""
        store = context.get("task_state_store")
        data = None if store is None else store.get(STATE_KEY)
        return cls.from_json(data) if data else None

    def save(self, context: Any) -> Submission:
        """Store it for later tries; return it."""
        store = context.get("task_state_store")
        if store is not None:
            store.set(STATE_KEY, self.to_json())
        return self

    def mark_worked(self, context: Any) -> Submission:
        """Store that its driver has held the lock."""
        return replace(self, worked=True).save(context)

    @property
    def on_this_host(self) -> bool:
        """Whether it was started on this host."""
        return self.host == socket.gethostname()

    def find_pid(self) -> int | None:
        """Return its process id on this host, if it runs; an unrelated process with the same id has another name.

        Source: proc(5), /proc/pid/cmdline.
        """
        if not self.on_this_host:
            return None
        pids = [self.pid] if self.pid else [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        return next((pid for pid in pids if self.name.encode() in _command_line(pid)), None)

    def may_start(self, age_s: float = 0.0) -> bool:
        """Return whether its driver, which does not hold the lock, may still be starting.

        Args:
            age_s: Seconds since it was stored.
        """
        if self.on_this_host:
            return self.find_pid() is not None
        return not self.worked and age_s < START_TIMEOUT_S

    def kill(self) -> None:
        """End spark-submit with all its processes when it runs on this host, and a driver on a cluster."""
        if (pid := self.find_pid()) is not None:
            kill_process_group(pid, lambda: self.find_pid() is not None)
        kill_in_cluster(self.cluster)

    def delete_secret(self) -> None:
        """Delete the Secret that a running driver has read, in case its task died before it could."""
        if "secret" in self.cluster:
            delete_secret(core_api(), self.cluster["namespace"], self.cluster["secret"])

    def application(self) -> SparkApplication:
        """Return what is known about its Spark application: what its output says, if this host can read it."""
        output = DriverOutput()
        with suppress(OSError), Path(self.output).open("rb") as file:
            deque(output.other_lines(_lines_until(file, APPLICATION_BYTES)), 0)
        return output.application

    def relay_output(self, log: Callable[..., None]) -> CdcError | None:
        """Copy the driver's last lines to the task log and remove the file; return the error that the driver named.

        Lines that the trigger has already written into the task log are not repeated.

        Args:
            log: Takes a line.
        """
        path = Path(self.output)
        if not path.is_file():
            log("The driver's output is on host %s, file %s.", self.host, self.output)
            return None
        output = DriverOutput()
        with path.open("rb") as file:
            deque(output.other_lines(_lines_until(file, self.shown)), 0)  # one of them may name the error
            tail = deque(output.other_lines(_lines_until(file, sys.maxsize)), LOG_TAIL_LINES)
        for line in tail:
            log("%s", line.rstrip("\n"))
        path.unlink(missing_ok=True)
        return output.error()


def _lines_until(file: BinaryIO, position: int) -> Iterator[str]:
    while file.tell() < position and (line := file.readline()):
        yield line.decode(errors="replace")


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
