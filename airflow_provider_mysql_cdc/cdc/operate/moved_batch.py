"""Move an unfinished batch to another server, before any writer of it starts there.

A batch is planned by file and position, and its writers have committed up to different places of the former server's
binlog. Each of these places is found in the binlog of the server that answers, by its GTID set
(``drain.failover.failover``).
Plan, markers and the copy of the schema history come into the ledger in one transaction, after every earlier writer is
fenced: from then on the batch is one of the new server, and its writers resume as after any other failure.

The end is that of the writers that have completed the batch; where none has, the end of the server's binlog, because
what the former server logged before the planned end may not have come here.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.failover.failover import (
    carried_history,
    change_line,
    is_other_server,
    place_on_server,
    position_on_server,
)
from airflow_provider_mysql_cdc.cdc.drain.failover.replication_filters import require_fit_server
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import refused_server, reset_remedy
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, compare_offsets
from airflow_provider_mysql_cdc.cdc.operate.findings import check_source, log_warnings
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_checks import require_plan_binlog


def belongs_elsewhere(cfg: ConnectorConfig, plan: BatchPlan) -> bool:
    """Return whether a batch was planned on another server than the one that answers.

    Args:
        cfg: The connector's configuration.
        plan: The batch's plan.

    Raises:
        SourceError: The server cannot be reached.
    """
    with connect(cfg.connection_settings()) as conn:
        return is_other_server(conn, plan.start)


def require_batch_server(cfg: ConnectorConfig, plan: BatchPlan) -> None:
    """Refuse another server than that of an unfinished batch whose schema history is lost.

    Args:
        cfg: The connector's configuration.
        plan: The batch's plan.

    Raises:
        ServerChangedError: Another one answers: the batch can neither be moved nor its history be rebuilt.
    """
    with connect(cfg.connection_settings()) as conn:
        if is_other_server(conn, plan.start):
            raise refused_server(
                conn,
                plan.start,
                f"batch {plan.epoch}, which is not finished, needs the schema history, which is lost",
                "set snapshot.mode back from recovery; then let database.hostname lead to the former server until the "
                "batch is complete; or give the batch up, whose committed records may come a second time: "
                + reset_remedy(GtidSet.parse(plan.start.gtids)),
            )


def require_snapshot_binlog(cfg: ConnectorConfig, plan: BatchPlan, ledger: LedgerState | None) -> None:
    """Refuse to finish an interrupted snapshot if the stream cannot begin at its view on the server that answers.

    Args:
        cfg: The connector's configuration.
        plan: The snapshot's plan.
        ledger: The ledger.

    Raises:
        BinlogPurgedError: It cannot; where another server answers, a ``ServerChangedError``.
    """
    view = {} if ledger is None else ledger.other_records.get(VIEW_KEY, {})
    if view.get("epoch") == plan.epoch:
        offset = BinlogOffset.from_json(view["offset"])
        with connect(cfg.connection_settings()) as conn:
            if place_on_server(cfg, conn, offset) is not offset:
                return
    require_plan_binlog(cfg, plan, ledger)


def move_batch(cfg: ConnectorConfig, owner: str, plan: BatchPlan, ledger: LedgerState | None, log: Log) -> None:
    """Put an unfinished batch in force at its place in the binlog of the server that answers.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.
        plan: The batch, with its topics.
        ledger: The ledger.
        log: Receives one line of text.

    Raises:
        ServerChangedError: It cannot be continued there; nothing is written.
        CdcError: The server or the account there is not fit for a drain (``check_source``); nothing is written.
        RunInProgressError: Another run is in progress.
        OffsetConflictError: The ledger holds another plan.
    """
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        # Refused before anything is fenced.
        warnings = check_source(conn, cfg, snapshot=False)
        _moved(cfg, conn, plan, _markers(plan, ledger))
        require_fit_server(cfg, conn, plan.start, plan.epoch)
        log_warnings(warnings, log)
        with run_lock.hold_run_lock(settings, cfg.topic_prefix, owner) as lock, JobLedger(cfg) as job:
            begun = job.begin(replace(plan, owner=owner))
            plan = begun.plan_in_force()
            markers = _markers(plan, begun)
            moved_plan, moved_markers = _moved(cfg, conn, plan, markers, log)
            first, moved_first = markers.get(0), moved_markers.get(0)
            reached = None if first is None or moved_first is None else (first.reached, moved_first.reached)
            history = carried_history(cfg, plan.start, moved_plan.start, plan.epoch, reached)
            marker_records = [marker.record(cfg.ledger_topic) for marker in moved_markers.values()]
            lock.require()
            fault_point("failover.before_commit")
            job.commit([*history, *job.plan_records(moved_plan), *marker_records])
    log(change_line(plan.start, moved_plan.start, settings.address()))
    log(
        f"batch {plan.epoch}, of which {len(markers)} of {plan.writers} writer(s) have committed a part, is moved there"
    )


def _markers(plan: BatchPlan, ledger: LedgerState | None) -> dict[int, Marker]:
    found = {} if ledger is None else ledger.markers
    return {writer: marker for writer, marker in found.items() if marker.epoch == plan.epoch}


def _moved(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    plan: BatchPlan,
    markers: dict[int, Marker],
    note: Log = lambda line: None,
) -> tuple[BatchPlan, dict[int, Marker]]:
    """Return the plan and the markers as they are in the binlog of the server that answers."""
    start = place_on_server(cfg, conn, plan.start, note)
    places: dict[ResumePosition, ResumePosition] = {}
    for marker in markers.values():
        if marker.reached not in places:
            places[marker.reached] = position_on_server(cfg, conn, plan.start, marker.reached)
    done = [places[marker.reached].offset for marker in markers.values() if marker.done]
    end = with_fingerprint(conn, cfg.connection_settings(), done[0] if done else current_offset(conn))
    if compare_offsets(end, start) < 0:
        end = start
    moved = {
        writer: replace(
            marker,
            start=start,
            end=end,
            reached=ResumePosition(replace(end, origin=None)) if marker.done else places[marker.reached],
            prepared=(),
        )
        for writer, marker in markers.items()
    }
    return replace(plan, start=start, end=end, prepared=(), continued_from=plan.continued_from or plan.start), moved
