"""Start a driver that outlives the process of its task."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from airflow.providers.common.compat.sdk import conf

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook

EPHEMERAL_EXECUTORS = ("Kubernetes", "Ecs", "Batch", "Lambda")
"""In names of executors whose workers end with their task, and with them every process beside it."""


def attached_reason(hook: CdcSparkSubmitHook, executor: str | None) -> str:
    """Return why a driver cannot outlive its task's process; empty when it can.

    Args:
        hook: The hook, with its connection.
        executor: The task's executor; None takes the first one of the configuration.
    """
    if hook.deploy_mode == "cluster":
        return ""
    name = executor or str(conf.get("core", "executor", fallback="")).split(",")[0]
    if any(kind in name for kind in EPHEMERAL_EXECUTORS):
        return f"executor {name}: its workers end with their task, and the driver with them"
    return ""


def not_detachable_error(reason: str) -> ConfigError:
    """Return the error of a task that is to be deferred and cannot be.

    Args:
        reason: From ``attached_reason``.
    """
    return ConfigError(
        "the task cannot be deferred while Spark works",
        where="deferrable=True",
        why=reason,
        remedy="leave deferrable out, or run the driver on a worker that stays (LocalExecutor, CeleryExecutor), "
        "or on the cluster (deploy mode cluster of YARN and Kubernetes)",
    )


def output_path(job: str) -> str:
    """Return the file that the output of a driver goes to; its folder is made.

    Args:
        job: The submission's id.
    """
    folder = Path(str(conf.get("logging", "base_log_folder"))) / "mysql_cdc"
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / f"driver-{job}.log")


def start_driver(hook: CdcSparkSubmitHook, application: str, output: str) -> subprocess.Popen[bytes]:
    """Start spark-submit in a session of its own, with its output in a file.

    Of the task's process, which may end before it, it inherits only what keeps the job's spec.

    Args:
        hook: Builds the command line; it carries the job.
        application: Path of the Spark application.
        output: The file, which does not exist yet.
    """
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with hook.spark_submit_context(outlives=True) as popen_arguments:
            command = hook._build_spark_submit_command(application)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, **popen_arguments)
    finally:
        os.close(fd)
    hook._submit_sp = process
    return process
