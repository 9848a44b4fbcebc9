"""The driver that a task has started or follows, also beyond its process, and how to end it."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, conf

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
from airflow_provider_mysql_cdc.hooks.spec_delivery import deliver_spec
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.operators.arguments import parse_bool
from airflow_provider_mysql_cdc.operators.common import owner_of, run_key
from airflow_provider_mysql_cdc.operators.task_error import airflow_error
from airflow_provider_mysql_cdc.triggers.task_state import UNFINISHED_STATES, state_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec


class DriverHandle:
    """Hold what is needed to end the driver of one try of a task.

    Airflow calls ``on_kill`` from a signal handler, at any moment, and the task's code continues afterwards.

    Attributes:
        hook: The hook of the latest job that this try has submitted.
        timed_out: Whether ``execution_timeout`` has passed; Airflow then calls ``on_kill`` while the task is running.
        deadline_passed: Whether ``kill_at`` has ended the driver.
        output_error: The error in the output of a driver that ran on its own.
        kill_note: What to write into the task log when the task is killed.
    """

    def __init__(self) -> None:
        self.hook: CdcSparkSubmitHook | None = None
        self.killed = self.timed_out = self.deadline_passed = False
        self.output_error: CdcError | None = None
        self.kill_note = ""
        self._submission: Submission | None = None
        self._ti: Any = None

    def follow(self, ti: Any, submission: Submission | None) -> None:
        """Remember a driver that outlives this process.

        Args:
            ti: The task instance.
            submission: What is known about the driver; None when there is no such driver.
        """
        self._ti, self._submission = ti, submission

    def kill(self, log: Callable[..., None]) -> None:
        """End the driver when the task was ended or its timeout has passed; otherwise leave it to the next try.

        Airflow sends the same signal when a restarted scheduler has assigned the task to another try, when the worker
        shuts down, and when the heartbeats of this process came too late. In these cases the task is unfinished.

        Args:
            log: Takes a line with its arguments.
        """
        detached = self._submission
        if detached is not None and not self.timed_out and (state := state_of(self._ti)) in UNFINISHED_STATES:
            log("The task is %s and not finished, so its driver keeps running and the next try follows it.", state)
        else:
            self.killed = True
            if self.hook is not None:
                self.hook.on_kill()
            if detached is not None and self.hook is None:
                detached.kill()
        if self.kill_note:
            log("%s", self.kill_note)

    def raise_if_killed(self) -> None:
        """Stop here when the task was killed.

        Raises:
            TaskRetryError: It was.
        """
        if self.killed:
            raise airflow_error(
                StateError(
                    "the task was killed",
                    remedy="run it again; it continues from the last committed marker",
                    retriable=True,
                )
            )

    def error(self) -> CdcError | None:
        """Return the named error in the output of the driver on this host."""
        return self.output_error or (self.hook.driver_error() if self.hook is not None else None)

    @contextmanager
    def kill_at(self, deadline: float) -> Iterator[None]:
        """End the driver when the deadline passes inside.

        Args:
            deadline: In seconds of ``time.monotonic``; infinity for none.
        """
        if deadline == math.inf:
            yield
            return
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._pass_deadline)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _pass_deadline(self) -> None:
        self.deadline_passed = True
        if self.hook is not None:
            self.hook.on_kill()


@dataclass(frozen=True, slots=True)
class SparkJobActions:
    """Hold what only the operator can do for a job, because Airflow and the Spark provider call the operator.

    Args:
        application: Path of the Spark application.
        name: Name of the Spark application.
        new_hook: Makes the hook of the next job, which ``on_kill`` ends.
        submit: Runs a job to its end with ``SparkSubmitOperator.execute``; returns the error it failed with.
        should_defer: Returns whether to defer the task while the driver runs.
        defer: Defers the task until the driver has ended, which raises ``TaskDeferred``; takes what is known about the
            driver.
    """

    application: str
    name: str
    new_hook: Callable[[], CdcSparkSubmitHook]
    submit: Callable[[JobSpec], Exception | None]
    should_defer: Callable[[], bool]
    defer: Callable[[Submission | None], None]


DRIVER_POLL_S = 1.0
"""Seconds between two checks whether a driver holds its lock."""
EPHEMERAL_EXECUTORS = ("Kubernetes", "Ecs", "Batch", "Lambda")
"""In names of executors whose workers end with their task, and with them every other process of the worker."""


@dataclass(frozen=True, slots=True)
class DetachedDriver:
    """Start or follow a driver that outlives the process of its task.

    Two things are reliable about such a driver: the stream's lock on the source server, which it holds while it works,
    and the ledger, which says what it has done. So when a worker, the triggerer or the scheduler dies, the driver
    continues, and a later try follows it and starts none. When the driver itself is dead its lock is free, and the next
    try continues from its markers.

    Args:
        cfgs: The configuration of each stream that the driver works for.
        context: Airflow's context.
        spark: The operator's part.
        handle: Ends the driver when the task is killed.
        log: Takes a line with its arguments.
    """

    cfgs: Sequence[ConnectorConfig]
    context: Any
    spark: SparkJobActions
    handle: DriverHandle
    log: Callable[..., None]

    def follow_earlier(self) -> None:
        """Defer the task when a driver of an earlier try runs or is starting; end that driver if the task was cleared.

        Raises:
            TaskDeferred: There is one to follow.
        """
        owner, earlier = owner_of(self.context), Submission.from_context(self.context)
        if earlier is not None and earlier.run not in ("", run_key(self.context)):
            self.log("The task was cleared, so the driver that it had started before is ended.")
            end_earlier_driver(self.cfgs, self.context, self.log)
            return
        self.handle.follow(self.context["ti"], earlier)
        if earlier is not None and not _is_driver_running(self.cfgs, owner):
            self._await_start(owner, earlier)
        if _is_driver_running(self.cfgs, owner):
            self.log("A driver of an earlier try is running. This try follows it and starts none.")
            if earlier is not None:
                earlier.delete_secret()
            self.spark.defer(earlier)
        self.handle.follow(self.context["ti"], None)

    def _await_start(self, owner: str, earlier: Submission) -> None:
        """Wait for a driver of an earlier try, as long as it may be starting."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import server_time

        # The source may be another server by now, whose clock may be slow; the wait still ends.
        began, age = time.monotonic(), 0.0 if earlier.on_this_host else max(0.0, server_time(self.cfgs) - earlier.at)
        if not earlier.may_start(age):
            return
        self.log("A driver of an earlier try may be starting on %s. This try waits for it.", earlier.host)
        while earlier.may_start(age + time.monotonic() - began) and not _is_driver_running(self.cfgs, owner):
            time.sleep(DRIVER_POLL_S)
            self.handle.raise_if_killed()

    def submit(self, spec: JobSpec) -> Exception | None:
        """Start a driver and defer the task as soon as the driver holds its lock.

        Args:
            spec: The job.

        Returns:
            The error of spark-submit when the driver has ended before that; None when it has ended well.

        Raises:
            TaskDeferred: The driver works.
        """
        from airflow_provider_mysql_cdc.cdc.operate.end_run import server_time

        hook = self.spark.new_hook()
        with deliver_spec(spec, hook.driver_target) as delivery:
            hook.use_delivery(delivery)
            submission = Submission(
                spec.id,
                self.spark.name,
                socket.gethostname(),
                output_path(spec.id),
                run=run_key(self.context),
                at=server_time(self.cfgs),
                cluster=hook.cluster_driver(spec.id),
            ).save(self.context)
            self.handle.follow(self.context["ti"], submission)
            process = start_driver(hook, self.spark.application, submission.output)
            submission = replace(submission, pid=process.pid).save(self.context)
            while (exit_code := process.poll()) is None and not _is_driver_running(self.cfgs, spec.owner):
                time.sleep(DRIVER_POLL_S)
                self.handle.raise_if_killed()
        if exit_code is None:
            self.spark.defer(submission)
        self.handle.output_error = submission.relay_output(self.log)
        return AirflowException(f"spark-submit ended. Error code is: {exit_code}.") if exit_code else None


def follow_again(
    cfgs: Sequence[ConnectorConfig],
    owner: str,
    submission: Submission | None,
    spark: SparkJobActions,
    log: Callable[..., None],
) -> None:
    """Defer a task again whose driver runs after all: that of a verification holds no lock between two groups.

    Args:
        cfgs: The configuration of each stream that the driver works for.
        owner: ``dag_id/run_id/task_id/map_index``.
        submission: What is known about the driver.
        spark: The operator's part.
        log: Takes a line with its arguments.

    Raises:
        TaskDeferred: The driver runs.
    """
    if _is_driver_running(cfgs, owner):
        log("The driver compares further tables, so this task follows it on.")
        spark.defer(submission)


def end_earlier_driver(cfgs: Sequence[ConnectorConfig], context: Any, log: Callable[..., None]) -> None:
    """End the driver that this task instance has started last, wherever it runs.

    Args:
        cfgs: The configuration of each stream that the driver works for.
        context: Airflow's context.
        log: Takes a line with its arguments.
    """
    from airflow_provider_mysql_cdc.cdc.operate.end_run import end_runs

    try:
        end_runs(cfgs, owner_of(context), log)
    finally:
        if (earlier := Submission.from_context(context)) is not None:
            earlier.kill()


def resolve_deferrable(
    deferrable: bool | str | None,
    new_hook: Callable[[], CdcSparkSubmitHook],
    executor: str | None,
    log: Callable[..., None],
) -> bool:
    """Return whether to defer a task while its driver runs; log why not when only the default requests it.

    Args:
        deferrable: The operator's argument; None and empty text use ``[operators] default_deferrable``.
        new_hook: Makes a hook, which knows the deploy mode.
        executor: The task's executor; None uses the first one of the configuration.
        log: Takes a line with its arguments.

    Raises:
        ConfigError: The argument requests it, and the driver would end with the task's process.
    """
    explicit = deferrable not in (None, "", "None")
    requested = (
        parse_bool(deferrable, "deferrable")
        if explicit
        else conf.getboolean("operators", "default_deferrable", fallback=False)
    )
    if not requested:
        return False
    reason = attached_reason(new_hook(), executor)
    if reason and explicit:
        raise not_detachable_error(reason)
    if reason:
        log("The task is not deferred (%s).", reason)
    return not reason


def attached_reason(hook: CdcSparkSubmitHook, executor: str | None) -> str:
    """Return why a driver cannot outlive its task's process; empty when it can.

    Args:
        hook: The hook, with its connection.
        executor: The task's executor; None uses the first one of the configuration.
    """
    if hook.deploy_mode == "cluster":
        return ""
    name = executor or str(conf.get("core", "executor", fallback="")).split(",")[0]
    if any(kind in name for kind in EPHEMERAL_EXECUTORS):
        return f"executor {name}: its workers end with their task, and the driver with them"
    return ""


def not_detachable_error(reason: str) -> ConfigError:
    """Return the error of a task that should be deferred and cannot be.

    Args:
        reason: From ``attached_reason``.
    """
    return ConfigError(
        "the task cannot be deferred while Spark works",
        where="deferrable=True",
        why=reason,
        remedy="leave deferrable out; or run the driver on a worker that keeps running after the task (LocalExecutor, "
        "CeleryExecutor), or on the cluster (deploy mode cluster of YARN and Kubernetes)",
    )


def output_path(job: str) -> str:
    """Return the file for the output of a driver; create its folder.

    Args:
        job: The submission's id.
    """
    folder = Path(str(conf.get("logging", "base_log_folder"))) / "mysql_cdc"
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / f"driver-{job}.log")


def start_driver(hook: CdcSparkSubmitHook, application: str, output: str) -> subprocess.Popen[bytes]:
    """Start spark-submit in a session of its own, with its output in a file.

    From the task's process, which may end before it, it inherits only what carries the job spec.

    Args:
        hook: Builds the command line; it carries the job.
        application: Path of the Spark application.
        output: The file, which must not exist yet.
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


def _is_driver_running(cfgs: Sequence[ConnectorConfig], owner: str) -> bool:
    from airflow_provider_mysql_cdc.cdc.operate.end_run import any_driver_running

    return any_driver_running(cfgs, owner)
