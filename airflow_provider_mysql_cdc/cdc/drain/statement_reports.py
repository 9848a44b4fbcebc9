"""What is said and noted of statements: skipped, without row events, touching or correcting structures, incomplete
ones.

Statements that were not understood, which ``schema.history.internal.skip.unparseable.ddl`` skips.

Such a statement may have changed a table: two columns that were swapped have each other's values in row events that do
not name them. So the statement is reported, and rows of its tables wait until the structures are compared with the
server's, which happens when the batch has ended before them (``structure_check``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.query import QueryEvent
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES
from airflow_provider_mysql_cdc.cdc.ddl.parse import has_cascades
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.decode.table_correction import TableCorrection
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import (
    has_hidden_members,
    has_no_charset,
    with_members,
    with_table_charset,
)
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.actions import entry_for
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType
from airflow_provider_mysql_cdc.cdc.signals.signal import build_signal
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import UnloggedChange

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


_MAX_QUOTED_CHARS = 200
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
    end = f"{_REMEDY}. Statement: {_quoted_statement(sql)}"
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
                f"the table again with incremental snapshots. Statement: {_quoted_statement(query.sql)}"
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
        notification_record.STATEMENT: _quoted_statement(sql),
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


def _quoted_statement(sql: str) -> str:
    """Return the statement's beginning on one line."""
    return " ".join(sql[:_MAX_QUOTED_CHARS].split())


class TouchedTables:
    """Write a ledger record for each table that a statement touched, with the next commit of writer 0.

    A record that is written again by a retry of the batch is the same.

    Args:
        ledger_topic: The topic of the ledger.
        unchecked: Tables that earlier batches have touched.
        side_records: Gets the records.
        server_uuid: The server that the batch is read from; empty where that is not known.
    """

    def __init__(
        self,
        ledger_topic: str,
        unchecked: Mapping[TableId, UncheckedTable],
        side_records: list[SideRecord],
        server_uuid: str = "",
    ) -> None:
        self._topic, self._tables, self._side_records = ledger_topic, dict(unchecked), side_records
        self._server_uuid = server_uuid

    def on_statement(self, tables: Iterable[TableId], where: str, *, skipped: bool = False) -> None:
        """Note the tables that a statement touched.

        Args:
            tables: The tables.
            where: ``file:position`` of the statement.
            skipped: Whether it was not understood and skipped.
        """
        for table in tables:
            known = self._tables.get(table)
            if known is None:
                known = UncheckedTable(table, where, skipped=skipped, server_uuid=self._server_uuid if skipped else "")
                self._put(known)
            elif skipped and not known.skipped:
                self._put(replace(known, where=where, skipped=True, server_uuid=self._server_uuid))

    def on_rows(self, table: TableId) -> None:
        """Note that rows of a table come, whose events do not contain the names of its columns.

        Args:
            table: The table.
        """
        unchecked = self._tables.get(table)
        if unchecked is not None and not unchecked.has_rows:
            self._put(replace(unchecked, has_rows=True))

    def _put(self, unchecked: UncheckedTable) -> None:
        self._tables[unchecked.table] = unchecked
        self._side_records.append(SideRecord(self._topic, unchecked.ledger_key().encode(), encode(unchecked.to_json())))


def correction_warning(correction: TableCorrection, where: str) -> str:
    """Return the line of the log.

    Args:
        correction: The structure.
        where: ``file:position`` of the TABLE_MAP event.
    """
    return (
        f"WARNING: the structure of {correction.table.id} in the schema history differs from that of its rows at "
        f"{where}: {correction.differences()}. The schema history is corrected from the binlog; please report the last "
        "statements that changed the table"
    )


def correction_history(cfg: ConnectorConfig, change: TableChange, position: BinlogOffset, epoch: int) -> SideRecord:
    """Return the history record of a corrected structure.

    Args:
        cfg: The connector's configuration.
        change: The correction, as a change of the table.
        position: The position from which on it is valid.
        epoch: The batch's epoch.
    """
    record = HistoryRecord(
        cfg[F.TOPIC_PREFIX],
        position,
        epoch,
        time.time_ns() // 1_000_000,
        change.db,
        "",
        table_changes=(change_dict(change),),
        structure=change.table,
    )
    return SideRecord(cfg.history_topic, None, record.to_bytes())


def completed_statement(
    cfg: ConnectorConfig, context: DdlContext, query: QueryEvent, timestamp: int, where: str, *, before_8: bool
) -> QueryEvent:
    """Return a statement with the members and the character set that the server could not write or left out.

    Args:
        cfg: The connector's configuration.
        context: The statement's session.
        query: The QUERY event.
        timestamp: Its time in seconds since the epoch.
        where: ``file:position`` for the error.
        before_8: Whether TABLE_MAP events do not tell character sets.

    Raises:
        DdlParseError: The server does not have the members any more, and the table is captured.
    """
    lacks_members = query.written_by_server and has_hidden_members(query.sql)
    lacks_charset = before_8 and query.server_layout and has_no_charset(query.sql)
    if not (lacks_members or lacks_charset):
        return query
    tables = classify_ddl(query.sql, context, cfg.needs_schema)
    if not tables.relevant:
        return query
    table = tables.tables[0]
    if lacks_members:
        query = query._replace(sql=_with_members(cfg, table, query.sql, where))
    return _with_charset(cfg, table, query, timestamp) if lacks_charset else query


def _with_members(cfg: ConnectorConfig, table: TableId, sql: str, where: str) -> str:
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        try:
            completed = with_members(conn, table, sql)
        except pymysql.MySQLError as error:
            raise from_exception(error, settings.address()) from error
    if completed is not None:
        return completed
    raise DdlParseError(
        "the members of a column are not known",
        where=f"{where}: {sql[:500]}",
        why="the server wrote the statement with ? for characters beyond U+FFFF, and cannot be asked for them: the "
        "table has changed since, or the server is MySQL 8.0",
        remedy="move the stream past the statement (mysql_cdc_reset_offset), then take a snapshot of the table",
    )


def _with_charset(cfg: ConnectorConfig, table: TableId, query: QueryEvent, timestamp: int) -> QueryEvent:
    """Return the statement with its table's default character set; as it is where the table has changed since."""
    created = range(timestamp, timestamp + query.exec_time + 2)
    ansi_quotes = bool((query.sql_mode or 0) & ANSI_QUOTES)
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        try:
            sql = with_table_charset(conn, table, query.sql, created, ansi_quotes=ansi_quotes)
        except pymysql.MySQLError as error:
            raise from_exception(error, settings.address()) from error
    return query if sql is None else query._replace(sql=sql)
