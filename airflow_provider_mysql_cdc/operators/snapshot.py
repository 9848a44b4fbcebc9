"""The operator that snapshots tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mysql_cdc.operators.adhoc_snapshot import AdhocSnapshot, wait_for_other_run
from airflow_provider_mysql_cdc.operators.arguments import parse_bool, reject_arguments
from airflow_provider_mysql_cdc.operators.common import generation_of, run_key
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.task_error import OTHER_RUN_ERRORS

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import RepeatedSnapshot


def take_snapshot(task: MySqlCdcSnapshotOperator, run: JobRun) -> dict[str, Any]:
    """Take a snapshot when one is due; where there is a stream, drain it first and keep it.

    Args:
        task: The operator, with rendered arguments.
        run: Its jobs, with the configuration of the stream.
    """
    from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
    from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
    from airflow_provider_mysql_cdc.cdc.operate.send_signal import parse_tables
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import capturing_only

    snapshot_run = replace(run, cfg=capturing_only(run.cfg, parse_tables(task.tables)))
    again = parse_bool(task.again, "again")
    if (request := _finish_interrupted(snapshot_run)) is not None and not again:
        return _read_rest(run, request)  # drains capture what the stream captures, not only the tables of this task
    repeated = _plan_repeated(run, snapshot_run.cfg, again=again)
    if repeated is not None and repeated.collections:
        return _read_after_drain(run, repeated.collections)
    if repeated is not None:
        run.log("The tables cannot be read by a drain (%s), so the stream is drained before.", repeated.reason)
        run.run_attached(lambda _: prepare_drain(run.cfg, run.store, run.owner, run.log))

    def plan_snapshot(_: float) -> PreparedJob | None:
        return prepare_snapshot(snapshot_run.cfg, run.store, run.owner, run.log, again=again, stream_cfg=run.cfg)

    return snapshot_run.run_or_defer(plan_snapshot, time.monotonic())


def _finish_interrupted(run: JobRun) -> str | None:
    """Return the request whose scans finish an interrupted snapshot; wait while another run is active."""
    from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_interrupted

    while True:
        try:
            return finish_interrupted(run.cfg, run.store, run.owner, run.log, run_key(run.context))
        except OTHER_RUN_ERRORS as error:
            run.log("Another run is active: %s", error)
        wait_for_other_run(run)


def _read_rest(run: JobRun, request: str) -> dict[str, Any]:
    """Drain until the tables of an interrupted snapshot are read."""
    if run.spark.should_defer():
        run.log("The task is not deferred: it drains until the tables are read, and waits for other runs.")
    run.log("A snapshot was interrupted. Windows of the drain read the rest of its tables (%s).", request)
    snapshot = AdhocSnapshot(run)
    snapshot.follow(request)
    return {**run.task_result.idle_result(run.cfg, run.store), **snapshot.drain_until_done()}


def _plan_repeated(run: JobRun, snapshot_cfg: ConnectorConfig, *, again: bool) -> RepeatedSnapshot | None:
    """Decide how a stream is kept; wait while another run is active."""
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import plan_repeated_snapshot

    while True:
        try:
            return plan_repeated_snapshot(run.cfg, snapshot_cfg, run.store, run.owner, run.log, again=again)
        except OTHER_RUN_ERRORS as error:
            run.log("Another run is active: %s", error)
        wait_for_other_run(run)


def _read_after_drain(run: JobRun, collections: Sequence[str]) -> dict[str, Any]:
    from airflow_provider_mysql_cdc.cdc.operate.send_signal import signal_id, snapshot_signal

    if run.spark.should_defer():
        run.log("The task is not deferred: it drains until the tables are read, and waits for other runs.")
    run.log("There is a stream. It is drained to the end of the binlog and waits there while the tables are read.")
    snapshot = AdhocSnapshot(run)
    id_ = signal_id(run.owner, generation_of(run.context))
    snapshot.send_signal(
        snapshot_signal(run.cfg, collections, kind="blocking", channel="airflow", id_=id_), collections
    )
    return {**run.task_result.idle_result(run.cfg, run.store), **snapshot.drain_until_done()}


class MySqlCdcSnapshotOperator(MySqlCdcSparkOperator):
    """Read the captured tables in one consistent view, in parallel, and store the view's offset.

    Does nothing when ``snapshot.mode`` requires no snapshot, for example when an offset exists already (mode
    ``initial``). Of an interrupted snapshot, what was read is kept, and windows of the drain read the rest.

    With ``again`` (or ``snapshot.mode=always``), where there is a stream, it is a blocking snapshot: a drain brings
    Kafka to the end of the binlog, and the stream waits there while the tables are read. No change is skipped, of
    tables that are read or of others, and no row stays in a topic that was deleted meanwhile. It is a snapshot of its
    own where there is no stream to keep: the binlog was purged, the schema history is lost, or a person moved the
    offset.

    Args:
        tables: Tables to read, each an entry as in ``table.include.list``; one, a list, or a list's JSON text; none
            means all. A first snapshot captures no others. (templated)
        again: Take a new snapshot although an offset is stored already. (templated)
        kwargs: As for ``MySqlCdcSparkOperator``, without ``run_for``.
    """

    template_fields: Sequence[str] = (*MySqlCdcSparkOperator.template_fields, "tables", "again")
    rejected_arguments: ClassVar[Mapping[str, str]] = {
        **MySqlCdcSparkOperator.rejected_arguments,
        "run_for": "the task runs until its tables are read",
    }
    job_kind = JobKind("snapshot", "snapshot_tables.py", take_snapshot)

    def __init__(self, *, tables: Sequence[str] | str = (), again: bool | str = False, **kwargs: Any) -> None:
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        super().__init__(**kwargs)
        self.tables = tables
        self.again = again
