"""The Spark jobs of one task: plan a job, submit it, follow its driver and the ledger, settle the offset, or give
way.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
from airflow_provider_mysql_cdc.operators.common import owner_of, run_key
from airflow_provider_mysql_cdc.operators.detached_driver import DetachedDriver, DriverHandle, SparkJobActions
from airflow_provider_mysql_cdc.operators.task_error import JobEnd, is_other_run_error
from airflow_provider_mysql_cdc.operators.task_result import TaskResult

if TYPE_CHECKING:
    import logging

    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
    from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob


FollowedStream = tuple["ConnectorConfig", "OffsetStore", Log]
LEDGER_POLL_S = 10.0
"""Seconds between two reads of the ledger."""
POLL_BACKOFF = 20
"""The pause after a read is at least this many times the read's duration."""
JOIN_TIMEOUT_S = 30.0
"""Seconds to wait for a read in progress when the job has ended."""


@contextmanager
def following_ledger(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> Iterator[None]:
    """Let the stored offset follow the ledger inside; errors are left to the settlement after the job.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store; its accessor may be used in another thread (Airflow's channel has a lock).
        log: Takes one line of text.
    """
    with following_ledgers([(cfg, store, log)]):
        yield


@contextmanager
def following_ledgers(streams: Sequence[FollowedStream]) -> Iterator[None]:
    """Let the stored offset of each stream follow its ledger inside, one after the other.

    Args:
        streams: What ``following_ledger`` takes, for each stream.
    """
    end = threading.Event()
    thread = threading.Thread(target=_follow, args=(streams, end), name="cdc-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(JOIN_TIMEOUT_S)


def _follow(streams: Sequence[FollowedStream], end: threading.Event) -> None:
    from airflow_provider_mysql_cdc.cdc.operate.stored_offset import follow_ledger

    pause = LEDGER_POLL_S
    while not end.wait(pause):
        started = time.monotonic()
        for cfg, store, log in streams:
            if end.is_set():
                return
            try:
                follow_ledger(cfg, store, log)
            except Exception as error:  # also of the store's database; the job must not end because of this thread
                log(f"The stored offset could not be moved yet: {type(error).__name__}: {error}")
        pause = max(LEDGER_POLL_S, POLL_BACKOFF * (time.monotonic() - started))


IDLE_POLL_S = 5.0
"""Seconds between two checks for new work while ``run_for`` lasts."""
DRAINING_MODES = frozenset({"drain", "verify"})
"""Modes in which batches are drained, so that the stored offset moves while the job runs."""
PlanJob = Callable[[float], "PreparedJob | None"]
"""Plans a job that may run for so many seconds; None when there is nothing to do."""


@dataclass(frozen=True, slots=True)
class JobKind:
    """Describe what differs between the operators that run Spark jobs.

    Args:
        mode: ``drain``, ``snapshot`` or ``verify``; part of the application's name.
        application: File name of the Spark application.
        run: Does the work of a task: takes the operator with its rendered arguments and its ``JobRun``, and returns the
            task's result.
        complete: Adds to the result of a job that has ended while the task was deferred; takes the result too.
    """

    mode: str
    application: str
    run: Callable[[Any, JobRun], dict[str, Any]]
    complete: Callable[[Any, JobRun, dict[str, Any]], dict[str, Any]] = lambda task, run, result: result


@dataclass(frozen=True, slots=True)
class JobRun:
    """Carry out the Spark jobs of one try of a task.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        context: Airflow's context.
        spark: The operator's part in submitting and deferring.
        handle: Ends the driver when the task is killed.
        task_result: Builds the task's result.
        logger: The task's logger.
    """

    cfg: ConnectorConfig
    store: OffsetStore
    context: Any
    spark: SparkJobActions
    handle: DriverHandle
    task_result: TaskResult
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger]

    @property
    def owner(self) -> str:
        """``dag_id/run_id/task_id/map_index``."""
        return owner_of(self.context)

    @property
    def log(self) -> Callable[..., None]:
        """Takes a line for the task log, with its arguments."""
        return self.logger.info

    def run_or_defer(self, plan_job: PlanJob, deadline: float) -> dict[str, Any]:
        """Run one job; defer the task while the driver works, where that is requested.

        Args:
            plan_job: Plans it.
            deadline: Until when to wait for something to do, in seconds of ``time.monotonic``.

        Returns:
            The task's result, also when there was nothing to do.

        Raises:
            TaskDeferred: The driver works.
        """
        from airflow_provider_mysql_cdc.cdc.operate.lag import record_idle

        submit = self.submit
        if self.spark.should_defer():
            detached = DetachedDriver([self.cfg], self.context, self.spark, self.handle, self.log)
            detached.follow_earlier()
            submit = detached.submit
        spec = self.plan(plan_job, deadline)
        if spec is None:
            self.log("Nothing to do.")
            record_idle(self.store, self.log)
            return self.task_result.idle_result(self.cfg, self.store)
        return self.settle(spec, submit(spec))

    def run_attached(self, plan_job: PlanJob) -> dict[str, Any] | None:
        """Run one job while the task waits; return None when there is nothing to do now.

        Args:
            plan_job: Plans it.
        """
        spec = self.plan(plan_job, time.monotonic())
        return None if spec is None else self.settle(spec, self.submit(spec))

    def plan(self, plan_job: PlanJob, deadline: float) -> JobSpec | None:
        """Plan a job; wait for something to do until the deadline.

        Args:
            plan_job: Plans it.
            deadline: In seconds of ``time.monotonic``.

        Returns:
            The job's spec; None when there was nothing to do.
        """
        while True:
            remaining_s = max(0.0, deadline - time.monotonic())
            job = plan_job(remaining_s)
            if job is not None or remaining_s == 0 or self.handle.killed:
                break
            self._wait_for_work(deadline)
        self.handle.raise_if_killed()
        return None if job is None else replace(job.spec, run=run_key(self.context))

    def submit(self, spec: JobSpec) -> Exception | None:
        """Run a job to its end while the task waits; return the error of spark-submit or of its tracker.

        Args:
            spec: The job.
        """
        with following_ledger(self.cfg, self.store, self.log) if spec.mode in DRAINING_MODES else nullcontext():
            failure = self.spark.submit(spec)
        self.handle.raise_if_killed()
        return failure

    def settle(self, spec: JobSpec, failure: Exception | None) -> dict[str, Any]:
        """Move the stored offset to what Kafka holds, whatever the job ended with; return the task's result.

        Args:
            spec: The job.
            failure: What submitting or tracking it raised.

        Raises:
            AirflowException: The job has failed, or the ledger or the offset store cannot be reached.
        """
        from airflow_provider_mysql_cdc.cdc.operate.settle import settle_offset, settle_verification

        job = JobEnd(failure, self.handle.error())
        verifies = spec.mode == "verify"
        try:
            outcome = (settle_verification if verifies else settle_offset)(self.cfg, self.store, self.log, spec)
            if verifies and (failure or job.driver_error):
                # The verdicts that are there may be those of an earlier try.
                outcome = replace(outcome, complete=False)
        except CdcError as error:
            raise job.unsettled_exception(error) from (failure or error)
        if (exception := job.exception(outcome)) is not None:
            raise exception from failure
        if (late_error := job.driver_error or failure) is not None:
            self.logger.warning("The job failed after everything had been committed: %s", late_error)
        self.log("Done: %s records, offset %s.", sum(outcome.counts.values()), outcome.offset)
        return self.task_result.result(self.cfg, outcome.offset, outcome.counts, outcome.tally)

    def _wait_for_work(self, deadline: float) -> None:
        """Wait until there may be something to do, or until the deadline."""
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import may_have_work

        remaining_s = deadline - time.monotonic()
        self.log("Nothing to do yet. Checking every %s s for up to %.0f s.", IDLE_POLL_S, remaining_s)
        with suppress(CdcError):  # the next plan raises it with more detail
            while remaining_s > 0 and not self.handle.killed:
                time.sleep(min(IDLE_POLL_S, remaining_s))
                if may_have_work(self.cfg, self.store, self.owner):
                    return
                remaining_s = deadline - time.monotonic()


MAX_RACES = 3
"""How often another run may start first before that is an error; each time may cost a start of Spark."""


def run_or_give_way(run: JobRun, plan_job: PlanJob, deadline: float) -> dict[str, Any]:
    """Run one job; plan again when another run has started between the plan and the first step of its driver.

    Args:
        run: The task's jobs.
        plan_job: Plans the job; returns None while another run is active.
        deadline: Until when to wait for something to do, in seconds of ``time.monotonic``.

    Returns:
        The task's result, also when no job was started.

    Raises:
        TaskDeferred: The driver works.
    """
    from airflow_provider_mysql_cdc.cdc.job.run_lock import LOCK_LOST

    for attempts_left in reversed(range(MAX_RACES)):
        try:
            return run.run_or_defer(plan_job, deadline)
        except (AirflowException, CdcError) as error:
            if not attempts_left or not is_other_run_error(error) or LOCK_LOST in str(error):
                raise
            run.log("Another run has started first: %s; planning again", error)
    raise AssertionError("the last attempt returns or raises")


def build_hook(task: Any) -> CdcSparkSubmitHook:
    """Return this provider's hook with the arguments of a ``SparkSubmitOperator``.

    Args:
        task: The operator, with rendered arguments and a ``master``. ``SparkSubmitOperator._get_hook`` reads the same
            attributes.

    Raises:
        ConfigError: The connection, or an argument, cannot be used.
    """
    # Not with the operators' modules: what it imports is not needed to parse a DAG.
    from airflow_provider_mysql_cdc.hooks.spark_connect import CdcSparkConnectHook, is_connect, refuse_arguments

    kind = CdcSparkSubmitHook
    if is_connect(task.master, task._conn_id):
        refuse_arguments(task)
        kind = CdcSparkConnectHook
    return kind(
        master=task.master,
        driver_env=driver_env(os.environ, task.env_vars),
        conf=task.conf,
        conn_id=task._conn_id,
        files=task.files,
        py_files=task.py_files,
        archives=task._archives,
        driver_class_path=task.driver_class_path,
        jars=task.jars,
        packages=task.packages,
        exclude_packages=task.exclude_packages,
        repositories=task._repositories,
        total_executor_cores=task._total_executor_cores,
        executor_cores=task._executor_cores,
        executor_memory=task._executor_memory,
        driver_memory=task._driver_memory,
        keytab=task.keytab,
        principal=task.principal,
        proxy_user=task.proxy_user,
        name=task.name,
        num_executors=task._num_executors,
        status_poll_interval=task._status_poll_interval,
        application_args=task.application_args,
        env_vars=task.env_vars,
        verbose=task._verbose,
        spark_binary=task._spark_binary,
        properties_file=task.properties_file,
        yarn_queue=task._yarn_queue,
        deploy_mode=task._deploy_mode,
        use_krb5ccache=task._use_krb5ccache,
        post_submit_commands=task.post_submit_commands,
        track_driver_via_k8s_api=task._track_driver_via_k8s_api,
        yarn_track_via_rm_api=task._yarn_track_via_rm_api,
        yarn_rm_auth=task._yarn_rm_auth,
    )
