"""Statements that were not understood, which ``schema.history.internal.skip.unparseable.ddl`` skips.

Such a statement may have changed a table: two columns that were swapped have each other's values in row events that do
not name them. So the statement is reported, and rows of its tables wait until the structures are compared with the
server's, which happens when the batch has ended before them (``structure_check``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import QueryEvent
from airflow_provider_mysql_cdc.cdc.commit.unchecked_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType

_MAX_STATEMENT_CHARS = 500


def skipped_warning(query: QueryEvent, why: str, where: str) -> str:
    """Return the line of the log.

    Args:
        query: The statement.
        why: Why it was not understood.
        where: ``file:position`` of the statement.
    """
    return (
        f"WARNING: a statement at {where}, database {query.db or '(none)'}, was not understood and is skipped "
        f"(schema.history.internal.skip.unparseable.ddl=true): {why}. Please report it: {_shorten(query.sql)}"
    )


def skipped_notification(cfg: ConnectorConfig, query: QueryEvent, why: str, where: str) -> SideRecord | None:
    """Return the notification; None when no notification topic is configured.

    Args:
        cfg: The connector's configuration.
        query: The statement.
        why: Why it was not understood.
        where: ``file:position`` of the statement.
    """
    additional_data = {
        notification_record.REASON: why,
        notification_record.STATEMENT: _shorten(query.sql),
        notification_record.POSITION: where,
    }
    return notification_record.notification_record(
        cfg,
        notification_record.SKIPPED_STATEMENT,
        NotificationType.SKIPPED,
        where,
        additional_data,
        time.time_ns() // 1_000_000,
    )


def skipped_before(unchecked: Mapping[TableId, UncheckedTable], start: BinlogOffset) -> dict[TableId, str]:
    """Return the tables that a skipped statement before a batch touched, with ``file:position`` of it.

    Args:
        unchecked: Tables that are not compared with the server yet.
        start: The batch's start; statements behind it are read again.
    """
    return {table: record.where for table, record in unchecked.items() if record.skipped and _is_before(record, start)}


def _is_before(record: UncheckedTable, start: BinlogOffset) -> bool:
    """Return whether a statement is before a batch; what was drained on another server is, wherever it stands there."""
    if record.server_uuid.lower() != (start.server_uuid or "").lower():
        return True
    file, _, position = record.where.rpartition(":")
    return (file_number(file), int(position)) < (file_number(start.file), start.pos)


def unknown_structure_error(table: TableId, where: str, statement: str) -> SchemaMismatchError:
    """Return the error for rows of a table that a skipped statement touched.

    Args:
        table: The table.
        where: ``file:position`` of its rows.
        statement: ``file:position`` of the statement.
    """
    return SchemaMismatchError(
        f"rows of {table} come behind a statement that was skipped",
        where=where,
        why=f"the statement at {statement} was not understood, and may have changed the table's columns; the batch "
        "ended before these rows, and the structure is then compared with the server's",
        remedy="run the task again, with the property still set; if the error comes again, a later statement has "
        "changed the table too, and its structure here cannot be known: run mysql_cdc_reset_offset with current, then "
        "mysql_cdc_snapshot with *Snapshot again*. "
        "With binlog_row_metadata=FULL the rows themselves tell the structure",
        retriable=True,
    )


def _shorten(sql: str) -> str:
    return " ".join(sql[:_MAX_STATEMENT_CHARS].split())
