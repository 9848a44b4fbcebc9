"""Drain again within one job, once no other run holds the lock of the stream: what was before has freed it."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_drain
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError, RunInProgressError, StateError
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log

WAIT_FOR_RUNS_S = 600.0
"""Seconds for which other runs are awaited that hold the lock of the topic.prefix."""
_MAX_PAUSE_S = 60.0


def run_when_free(
    spec: JobSpec,
    runner: TaskRunner,
    log: Log,
    other_work: drain_driver.OtherWork,
    of_what: str,
    run_for_s: float = 0.0,
) -> dict[str, int]:
    """Drain to the end of the binlog and do other work after it, once no other run holds the lock.

    A batch of this run that is not complete comes first.

    Args:
        spec: The job, whose first drain has ended or failed.
        runner: Runs the tasks.
        log: Takes one line of text.
        other_work: The work.
        of_what: Names it, as in ``a repair could not begin``.
        run_for_s: Seconds for which to drain batch after batch; 0 drains one batch.

    Returns:
        Records by topic.

    Raises:
        CdcError: Another run holds the lock for longer than ``WAIT_FOR_RUNS_S``, another driver of this run has
            started, this one has lost its lock, or the drain or the work has failed.
    """
    cfg = ConnectorConfig.from_properties(spec.properties)
    deadline = time.monotonic() + WAIT_FOR_RUNS_S
    while True:
        try:
            plan = read_with_retries(cfg, log, partial(_next_plan, cfg, spec))
            following = replace(spec, plan=plan.to_json(), run_for_s=run_for_s)
            return drain_driver.run_drain(following, runner, log, other_work)
        except (RunInProgressError, OffsetConflictError) as error:
            if error.what == run_lock.LOCK_LOST:
                raise  # a person has ended this run, or a later try of it has begun
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise StateError(
                    f"{of_what} could not begin", where=error.where, why=error.message(), retriable=True
                ) from error
            log(f"{of_what} waits for another run: {error.what}")
        pause_s = min(_MAX_PAUSE_S, left_s)
        owner_wait.wait_as_owner(cfg.connection_settings(), cfg.topic_prefix, spec.owner, pause_s)


def _next_plan(cfg: ConnectorConfig, spec: JobSpec) -> BatchPlan:
    """Return the plan of the batch with which the drain begins.

    Raises:
        RunInProgressError: Another run has not completed its batch.
    """
    with kafka_clients.ledger(cfg) as ledger, connect(cfg.connection_settings()) as conn:
        state = ledger.read(chunks=False) or LedgerState()
        planned = BatchPlan.from_json(spec.plan)
        if state.plan is None or state.plan.epoch < planned.epoch:
            return planned  # the job has failed before it was in force
        start, plan = state.end(), state.plan
        if start is None and plan.kind == "drain" and plan.owner == spec.owner:
            return plan
        if start is None:
            raise RunInProgressError("a batch of another run is incomplete", where=f"topic.prefix={cfg.topic_prefix}")
        following = plan_drain(cfg, conn, start, plan.epoch + 1, spec.owner, {}, state.prepared(), even_empty=True)
        assert following is not None
        return following
