"""What later tries, and the triggerer, know about a driver that outlives the process of its task.

The triggerer imports this module, so it must not import Spark's provider, which takes seconds.
"""

from __future__ import annotations

import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.stored_record import VersionedRecord
from airflow_provider_mysql_cdc.hooks.driver_output import DriverOutput, SparkApplication
from airflow_provider_mysql_cdc.hooks.kill_application import kill_in_cluster, kill_process_group
from airflow_provider_mysql_cdc.hooks.kubernetes_secret import core_api, delete_secret

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
