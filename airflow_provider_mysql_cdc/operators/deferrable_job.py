"""Defer a task while its driver works: start it apart, let a trigger follow it, and judge from the ledger."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, conf
from airflow.sdk.exceptions import TaskDeferralTimeout

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json
from airflow_provider_mysql_cdc.hooks.spec_delivery import deliver_spec
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.operators.arguments import parse_bool
from airflow_provider_mysql_cdc.operators.common import (
    airflow_error,
    owner_of,
    run_key,
    trigger_properties,
    with_registry,
)
from airflow_provider_mysql_cdc.operators.detached_driver import (
    attached_reason,
    not_detachable_error,
    output_path,
    start_driver,
)
from airflow_provider_mysql_cdc.operators.spark_job import SparkJobOperator
from airflow_provider_mysql_cdc.triggers.task_state import UNFINISHED_STATES, state_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

DRIVER_POLL_S = 1.0
"""Seconds between two looks whether a driver has come to work."""


class DeferrableJobOperator(SparkJobOperator):
    """Let a job's driver outlive the task's process, and follow it in the triggerer.

    The truth about the driver is the stream's lock on the source server, which it holds while it works, and the ledger,
    which says what it has done. So whatever dies, worker, triggerer or scheduler, the driver goes on; a later try that
    finds it at work follows it and starts none; and where the driver itself is dead, its lock is free, and the next try
    goes on from its markers.

    Args:
        deferrable: Whether to defer; None takes ``[operators] default_deferrable`` where it can be done. (templated)
        poll_interval: Seconds between two looks of the triggerer.
        kwargs: As for ``SparkJobOperator``.
    """

    mysql_cdc_conn_id: str
    kafka_conn_id: str | None
    schema_registry_conn_id: str | None
    properties: Any

    def __init__(self, *, deferrable: bool | str | None = None, poll_interval: float = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self._detached: Submission | None = None
        self._ti: Any = None
        self._timed_out = False

    def resume(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on when the driver has ended.

        Args:
            context: Airflow's context.
            event: The trigger's event.

        Returns:
            As ``execute``.
        """
        if event["status"] == "failed":
            raise airflow_error(from_json(event["error"]))
        from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

        try:
            cfg, store = self._config_and_store(context)
            earlier = Submission.from_context(context)
            if earlier is not None:
                earlier.relay_output(self.log.info)
            job = earlier.job if earlier is not None else ""
            spec = JobSpec(self.mode, {}, {}, owner_of(context), id=job, run=run_key(context))
            result = self._finish_job(cfg, store, spec, None, context)
            self._mark_reported(context)
            return result
        except CdcError as error:
            raise airflow_error(error) from error

    def _config(self) -> ConnectorConfig:
        raise NotImplementedError

    def _config_and_store(self, context: Any) -> tuple[ConnectorConfig, OffsetStore]:
        raise NotImplementedError

    def _finish_job(
        self, cfg: ConnectorConfig, store: OffsetStore, spec: JobSpec, failure: Exception | None, context: Any
    ) -> dict[str, Any]:
        raise NotImplementedError

    def _mark_reported(self, context: Any) -> None:
        raise NotImplementedError

    def _should_defer(self) -> bool:
        """Return whether to defer; say why not where nobody has asked for it by name."""
        explicit = self.deferrable not in (None, "", "None")
        requested = (
            parse_bool(self.deferrable, "deferrable")
            if explicit
            else conf.getboolean("operators", "default_deferrable", fallback=False)
        )
        if not requested:
            return False
        reason = attached_reason(self._get_hook(), self.executor)
        if reason and explicit:
            raise not_detachable_error(reason)
        if reason:
            self.log.info("The task is not deferred (%s).", reason)
        return not reason

    def on_kill(self) -> None:
        """End the driver, when somebody has ended the task or its time is over; else leave it to the next try.

        Airflow tells a task's process to end without saying why: also when a scheduler that began anew has given the
        task to another try, when the worker goes down, or when its signs of life came too late.
        """
        if self._detached is not None and not self._timed_out and (state := state_of(self._ti)) in UNFINISHED_STATES:
            self.log.info("The task is %s and goes on, and so does its driver, which the next try follows.", state)
            return
        super().on_kill()
        if self._detached is not None and self._hook is None:
            self._detached.kill()

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Go on after the deferral; end the driver when the time is over.

        A trigger is not told that, and its task fails on a worker (``SchedulerJobRunner.check_trigger_timeouts``).

        Args:
            next_method: As in ``BaseOperator``.
            next_kwargs: As in ``BaseOperator``.
            context: Airflow's context.

        Raises:
            TaskDeferralTimeout: The time is over.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self.log.info("The time is over (execution_timeout), so the driver is ended.")
            try:
                self._end_earlier_driver(self._config(), context)
            except CdcError as error:
                self.log.error("The driver may go on: %s", error)
            raise

    def _end_earlier_driver(self, cfg: ConnectorConfig, context: Any) -> None:
        """End the driver that this task instance has started last, wherever it works."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run

        try:
            end_run(cfg, owner_of(context), self.log.info)
        finally:
            if (earlier := Submission.from_context(context)) is not None:
                earlier.kill()

    def _follow_earlier_driver(self, cfg: ConnectorConfig, context: Any) -> None:
        """Follow a driver of an earlier try, if there is one at work or about to be; end it if it was cleared."""
        owner, earlier = owner_of(context), Submission.from_context(context)
        if earlier is not None and earlier.run not in ("", run_key(context)):
            self.log.info("The task was cleared; what is left of it before is ended.")
            self._end_earlier_driver(cfg, context)
            return
        self._ti, self._detached = context["ti"], earlier
        if earlier is not None and not _is_driver_running(cfg, owner):
            self._await_start(cfg, owner, earlier)
        if _is_driver_running(cfg, owner):
            self.log.info("A driver of an earlier try is at work; this try follows it and starts none.")
            if earlier is not None:
                earlier.delete_secret()
            self._defer(owner, earlier, context)
        self._detached = None

    def _await_start(self, cfg: ConnectorConfig, owner: str, earlier: Submission) -> None:
        """Wait for a driver of an earlier try, as long as it may be starting."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import server_time

        # Where another server answers by now its clock may be behind; the wait ends all the same.
        began, age = time.monotonic(), 0.0 if earlier.on_this_host else max(0.0, server_time(cfg) - earlier.at)
        if not earlier.may_start(age):
            return
        self.log.info("A driver of an earlier try may be starting on %s; this try waits for it.", earlier.host)
        while earlier.may_start(age + time.monotonic() - began) and not _is_driver_running(cfg, owner):
            time.sleep(DRIVER_POLL_S)
            self._stop_if_killed()

    def _run_detached(self, cfg: ConnectorConfig, store: OffsetStore, spec: JobSpec, context: Any) -> dict[str, Any]:
        """Start the driver and defer as soon as it is at work; judge it here when it has ended before."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import server_time

        self._hook = self._get_hook()
        with deliver_spec(spec, self._hook.driver_target) as delivery:
            self._hook.use_delivery(delivery)
            submission = Submission(
                spec.id,
                str(self.name),
                socket.gethostname(),
                output_path(spec.id),
                run=run_key(context),
                at=server_time(cfg),
                cluster=self._hook.cluster_driver(spec.id),
            ).save(context)
            self._ti, self._detached = context["ti"], submission
            process = start_driver(self._hook, self.application, submission.output)
            submission = replace(submission, pid=process.pid).save(context)
            while (exit_code := process.poll()) is None and not _is_driver_running(cfg, spec.owner):
                time.sleep(DRIVER_POLL_S)
                self._stop_if_killed()
        if exit_code is None:
            self._defer(spec.owner, submission, context)
        self._hook._last_submit_log_lines = deque(submission.relay_output(self.log.info))
        failure = AirflowException(f"spark-submit ended. Error code is: {exit_code}.") if exit_code else None
        return self._finish_job(cfg, store, spec, failure, context)

    def _defer(self, owner: str, submission: Submission | None, context: Any) -> None:
        from airflow_provider_mysql_cdc.triggers.job import MySqlCdcJobTrigger

        if submission is not None:
            submission = submission.mark_worked(context)
        self.log.info("The driver works on its own; the task is deferred until it has ended.")
        self.defer(
            trigger=MySqlCdcJobTrigger(
                owner=owner,
                submission=submission.to_json() if submission is not None else None,
                mysql_cdc_conn_id=self.mysql_cdc_conn_id,
                kafka_conn_id=self.kafka_conn_id or None,
                properties=trigger_properties(
                    with_registry(self.properties, self.schema_registry_conn_id), self.mysql_cdc_conn_id
                ),
                poll_interval=max(float(self.poll_interval), 0.1),
            ),
            method_name="resume",
            timeout=self.execution_timeout,
        )


def _is_driver_running(cfg: ConnectorConfig, owner: str) -> bool:
    from airflow_provider_mysql_cdc.cdc.operate.end_run import driver_running

    return driver_running(cfg, owner)
