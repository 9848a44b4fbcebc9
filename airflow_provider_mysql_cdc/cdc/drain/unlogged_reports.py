"""What is done about rows that a statement changed without row events: log line, notification, signal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import QueryEvent
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult
from airflow_provider_mysql_cdc.cdc.ddl.parse import has_cascades
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType
from airflow_provider_mysql_cdc.cdc.signals.signal import build_signal
from airflow_provider_mysql_cdc.cdc.signals.table_names import entry_for
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import UnloggedChange

_MAX_STATEMENT_CHARS = 200
_MAX_LINES = 20
"""Tables that have a line of their own: DROP DATABASE may drop thousands."""
_REMEDY = (
    "Read the table again with an incremental snapshot (signal execute-snapshot, or DAG mysql_cdc_adhoc_snapshot); "
    "rows that are gone get no delete events, so let mysql_cdc_verify with repair=yes write them while the table "
    "exists, or remove them where the events are applied"
)


def unlogged_warnings(changes: Sequence[UnloggedChange], sql: str, where: str) -> Iterator[str]:
    """Yield the lines of the log.

    Args:
        changes: What happened.
        sql: The statement.
        where: ``file:position`` of the statement.
    """
    end = f"{_REMEDY}. Statement: {_shorten(sql)}"
    for change in changes[:_MAX_LINES]:
        yield (
            f"WARNING: rows of {change.table} were changed without row events by a statement at {where}: "
            f"{change.what}. {end}"
        )
    if more := changes[_MAX_LINES:]:
        tables = f"rows of {len(more)} more tables"
        yield f"WARNING: {tables} were changed without row events by a statement at {where}. {end}"


def cascade_warnings(cfg: ConnectorConfig, applied: DdlResult, query: QueryEvent, where: str) -> Iterator[str]:
    """Yield the lines of the log about foreign keys whose changes of rows the server does not log.

    Args:
        cfg: The connector's configuration.
        applied: What the statement did.
        query: The statement.
        where: ``file:position`` of the statement.
    """
    altered = (change.id for change in applied.changes if change.kind in ("CREATE", "ALTER", "RENAME"))
    for table in dict.fromkeys(altered):
        if table is not None and cfg.captures(table) and has_cascades(query.sql, query.sql_mode or 0):
            yield (
                f"WARNING: a statement at {where} gave {table} a foreign key that changes its rows by CASCADE or SET "
                "NULL, and the server writes no row events for these changes (before MySQL 9.6, and with "
                "innodb_native_foreign_keys=ON). Delete and update the child rows by statements of their own, or read "
                f"the table again with incremental snapshots. Statement: {_shorten(query.sql)}"
            )


def unlogged_notification(cfg: ConnectorConfig, change: UnloggedChange, sql: str, where: str) -> SideRecord | None:
    """Return the notification; None when no notification topic is configured.

    Args:
        cfg: The connector's configuration.
        change: What happened.
        sql: The statement.
        where: ``file:position`` of the statement.
    """
    additional_data = {
        notification_record.DATA_COLLECTIONS: str(change.table),
        notification_record.REASON: change.what,
        notification_record.STATEMENT: _shorten(sql),
        notification_record.POSITION: where,
    }
    return notification_record.notification_record(
        cfg,
        notification_record.UNLOGGED,
        NotificationType.SKIPPED,
        f"{where}/{change.table}",
        additional_data,
        time.time_ns() // 1_000_000,
    )


def snapshot_signal(
    cfg: ConnectorConfig, changes: Sequence[UnloggedChange], epoch: int, where: str
) -> SideRecord | None:
    """Return the ledger record of a signal that reads tables again; None when no table has rows that are in no event.

    The signal is processed after the batch, like one of an Airflow task.

    Args:
        cfg: The connector's configuration.
        changes: What a statement did.
        epoch: The batch's epoch; a statement that is read again after a move of the stream requests another snapshot.
        where: ``file:position`` of the statement.
    """
    entries = [entry_for(change.table) for change in changes if change.adds_rows]
    if not entries:
        return None
    id_ = f"unlogged-{epoch}-{where}"
    data = json.dumps({"data-collections": entries, "type": "incremental"})
    now_ms = time.time_ns() // 1_000_000
    signal = replace(build_signal(id_, "execute-snapshot", data, "airflow"), sent_ms=now_ms)
    return SideRecord(cfg.ledger_topic, signal.ledger_key(id_).encode(), encode(signal.to_json()))


def _shorten(sql: str) -> str:
    """Return the statement's beginning on one line."""
    return " ".join(sql[:_MAX_STATEMENT_CHARS].split())
