"""Check that the server has the binlog of an interrupted plan; otherwise it cannot be finished."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset


def require_view_binlog(cfg: ConnectorConfig, conn: Any, ledger: LedgerState, epoch: int) -> None:
    """Refuse to continue a snapshot whose rows were read from another binlog than the server has now.

    The stream begins at the position of the snapshot's view.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        ledger: The ledger.
        epoch: The snapshot's epoch.

    Raises:
        BinlogPurgedError: The binlog was reset or purged since, or the connection leads to another server.
    """
    view = ledger.other_records.get(VIEW_KEY, {})
    if view.get("epoch") != epoch:
        return
    try:
        check_available(conn, cfg.connection_settings(), BinlogOffset.from_json(view["offset"]))
    except BinlogPurgedError as error:
        raise BinlogPurgedError(
            f"snapshot {epoch} cannot be finished: {error.what}",
            where=error.where,
            why=error.why,
            remedy="abandon it (DAG mysql_cdc_reset_offset with current), then take a new one (mysql_cdc_snapshot with "
            "again=true); or set database.hostname to the server that still has the earlier binlog",
        ) from error


def require_plan_binlog(cfg: ConnectorConfig, plan: BatchPlan, ledger: LedgerState | None) -> None:
    """Refuse to continue a plan on a server that cannot carry it out, before any writer is fenced.

    The run lock is held on the source, so it does not protect against two servers: of two connections with the same
    topic.prefix, the wrong one would end the attempts of the right one repeatedly.

    Args:
        cfg: The connector's configuration.
        plan: The plan, which is not finished.
        ledger: The ledger.

    Raises:
        BinlogPurgedError: The server's binlog is not the one of the plan.
    """
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        if plan.kind == "snapshot":
            require_view_binlog(cfg, conn, ledger or LedgerState(), plan.epoch)
            return
        for offset in (plan.start, plan.end):
            check_available(conn, settings, offset)
