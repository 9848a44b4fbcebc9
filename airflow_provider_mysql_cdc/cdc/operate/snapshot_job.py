"""The snapshot as a job: where its view breaks, the rest is done in the same job.

A view cannot be opened again at its position. So what Airflow's retry does is done here: a snapshot without a committed
row begins again; of another one, windows of a drain read the rest (``interrupted_snapshot``).
"""

from __future__ import annotations

from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import taskless_run_id
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.incremental import drain_job
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import go_on_where_broken, run_when_free
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import active_initial_request
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.stage_runner import named_errors
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_in_ledger
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import snapshot_unstarted
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import SOME_TABLES


def run_snapshot(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Take the snapshot of a job; return records by topic.

    Args:
        spec: The job; its plan has kind ``snapshot``.
        runner: Runs all tasks at the same time.
        log: Writes one line to the log.

    Raises:
        CdcError: The snapshot could not be completed; finished chunks are kept, and windows of the drain read the rest.
    """
    cfg = ConnectorConfig.from_properties(spec.properties)

    def take() -> dict[str, int]:
        return snapshot_driver.run_snapshot(spec, runner, log)

    def take_rest() -> dict[str, int]:
        with named_errors(cfg):
            begins_again = read_with_retries(cfg, log, partial(_hand_over, cfg, spec, log))
        return take() if begins_again else _read_rest(cfg, spec, runner, log)

    return go_on_where_broken(cfg, spec.owner, log, take, take_rest)


def _hand_over(cfg: ConnectorConfig, spec: JobSpec, log: Log) -> bool:
    """Hand the snapshot over to a drain; return whether it begins again instead."""
    plan, ledger = BatchPlan.from_json(spec.plan), _read_ledger(cfg)
    if ledger.plan is None or ledger.plan.epoch < plan.epoch:
        return True
    if ledger.plan.epoch > plan.epoch or ledger.complete():
        return False
    if snapshot_unstarted(plan, ledger):
        return True
    if spec.options.get(SOME_TABLES) and ledger.done_chunks(plan.epoch):
        raise StateError(
            "the view of the snapshot is lost, and drains of the stream have to read the rest",
            where=f"snapshot {plan.epoch}",
            remedy="run the task again; what is committed stays",
            retriable=True,
        )
    finish_in_ledger(cfg, plan, ledger, log, spec.run or taskless_run_id())
    return not _read_ledger(cfg).complete()


def _read_rest(cfg: ConnectorConfig, spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Let windows of a drain read what the view did not."""
    if active_initial_request(read_incremental_state(_read_ledger(cfg))) is None:
        return {}
    counts = run_when_free(spec, runner, log, drain_job.WORK, "the rest of a snapshot")
    if (request := active_initial_request(read_incremental_state(_read_ledger(cfg)))) is not None:
        raise StateError(
            "tables of the snapshot are not read completely",
            where=request,
            why="its view was lost, and windows of a drain could not read all of the rest now",
            remedy="run the task again; what is committed stays",
            retriable=True,
        )
    return counts


def _read_ledger(cfg: ConnectorConfig) -> LedgerState:
    with kafka_clients.ledger(cfg) as ledger:
        return ledger.read() or LedgerState()
