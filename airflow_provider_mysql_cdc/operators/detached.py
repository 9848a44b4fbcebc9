"""A driver on the worker's host that outlives the process of its task."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook

STATE_KEY = "mysql_cdc_submission"
"""Key of the task's state store; what it holds is kept over tries."""
SHOWN_LINES = 500
"""Last lines of a driver's output that come to the task log."""
EPHEMERAL = ("Kubernetes", "Ecs", "Batch", "Lambda")
"""In names of executors whose workers end with their task, and with them every process beside it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Remember a driver that was started, for the tries and processes that come after this one.

    Args:
        job: The submission's id (``JobSpec.id``).
        name: Name of the Spark application.
        host: The worker's host.
        pid: Process id of spark-submit there, which leads a group of its own.
        output: File with the driver's output.
    """

    job: str
    name: str
    host: str
    pid: int
    output: str

    @classmethod
    def of(cls, context: Any) -> Submission | None:
        """Return what this task instance has started last, or None when it is not known."""
        store = context.get("task_state_store")
        found = None if store is None else store.get(STATE_KEY)
        return cls(**found) if found else None

    def remember(self, context: Any) -> None:
        """Keep it over tries."""
        store = context.get("task_state_store")
        if store is not None:
            store.set(STATE_KEY, asdict(self))

    @property
    def here(self) -> bool:
        """Whether it was started on this host."""
        return self.host == socket.gethostname()

    def runs(self) -> bool:
        """Return whether its process is there, on this host; a process that has its number by chance has another name.

        Source: proc(5), /proc/pid/cmdline.
        """
        if not self.here:
            return False
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return self.name.encode() in words

    def relay(self, log: Callable[..., None]) -> list[str]:
        """Bring the driver's last lines to the task log and remove the file; return them.

        Args:
            log: Takes a line.
        """
        path = Path(self.output)
        if not self.here or not path.is_file():
            log("The driver's output stands on %s: %s", self.host, self.output)
            return []
        with path.open(errors="replace") as lines:
            last = [line.rstrip("\n") for line in deque(lines, SHOWN_LINES)]
        for line in last:
            log("%s", line)
        path.unlink(missing_ok=True)
        return last


def why_attached(hook: CdcSparkSubmitHook, executor: str | None) -> str:
    """Return why a driver cannot outlive its task's process; empty when it can.

    Args:
        hook: The hook, with its connection.
        executor: The task's executor; None takes the first one of the configuration.
    """
    if hook.deploy_mode != "client":
        return f"deploy mode {hook.deploy_mode}: only drivers on the worker's host (client) are followed"
    name = executor or str(conf.get("core", "executor", fallback="")).split(",")[0]
    if any(kind in name for kind in EPHEMERAL):
        return f"executor {name}: its workers end with their task, and the driver with them"
    return ""


def not_detachable(why: str) -> ConfigError:
    """Return the error of a task that is to be deferred and cannot be.

    Args:
        why: From ``why_attached``.
    """
    return ConfigError(
        "the task cannot be deferred while Spark works",
        where="deferrable=True",
        why=why,
        remedy="leave deferrable out, or run the driver in client mode on a worker that stays "
        "(LocalExecutor, CeleryExecutor)",
    )


def start(hook: CdcSparkSubmitHook, application: str, job: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start spark-submit in a session of its own, with its output in a file; return the process and the file.

    It inherits nothing of the task's process, which may end before it.

    Args:
        hook: Builds the command line; it carries the job.
        application: Path of the Spark application.
        job: The submission's id.
    """
    folder = Path(str(conf.get("logging", "base_log_folder"))) / "mysql_cdc"
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"driver-{job}.log"
    command = hook._build_spark_submit_command(application)
    hook.log.info("Spark-Submit cmd: %s", hook._mask_cmd(command))
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        process = subprocess.Popen(
            command,
            env={**hook._driver_env, **hook._carried.env},
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
        )
    finally:
        os.close(fd)
    hook._submit_sp = process
    return process, str(output)
