"""Check the source before a job: errors end it before Spark starts, and warnings go into its log."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.finding import Finding, raise_first_error
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.schema.table_findings import table_findings


def source_findings(
    conn: Any, cfg: ConnectorConfig, *, snapshot: bool, state: StoredState | None = None
) -> list[Finding]:
    """Return what a person should know of the source before a job, errors first.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        snapshot: Whether tables will be read, not only the binlog.
        state: The stored state of a stream with changes that are not drained.

    Raises:
        SourceError: The server cannot be asked.
    """
    settled_ms = state.history[-1].at_ms if state is not None and state.history else None
    undrained_s = None if settled_ms is None else max(0.0, time.time() - settled_ms / 1000)
    findings = preflight(conn, cfg, snapshot=snapshot, undrained_s=undrained_s)
    if snapshot:
        findings += table_findings(conn, cfg)
    return sorted(findings, key=lambda finding: finding.error is None)


def check_source(conn: Any, cfg: ConnectorConfig, *, snapshot: bool, state: StoredState | None = None) -> list[Finding]:
    """Return the warnings for a job's log.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        snapshot: Whether tables will be read, not only the binlog.
        state: The stored state of the stream.

    Raises:
        CdcError: Server, account or lists are not fit for the job.
    """
    findings = source_findings(conn, cfg, snapshot=snapshot, state=state)
    raise_first_error(findings)
    return findings


def log_warnings(warnings: Iterable[Finding], log: Log) -> None:
    """Log one line for each warning.

    Args:
        warnings: From ``check_source``.
        log: Receives one line of text.
    """
    for finding in warnings:
        log(f"WARNING: {finding.what} ({finding.why}); {finding.fix}")
