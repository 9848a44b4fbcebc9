"""Compare the structures of tables that statements touched with the server's, as soon as the stream has caught up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.dump import UNREGISTERED_SERVER_ID
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import UncheckedTable, unchecked_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.decode.table_check import expected_types, vector_dimensions
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import range_bytes
from airflow_provider_mysql_cdc.cdc.drain.batch_writers import can_end_at
from airflow_provider_mysql_cdc.cdc.drain.between_batches import correction_between_batches
from airflow_provider_mysql_cdc.cdc.errors import CdcError, DdlParseError, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import read_create_statements
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import statements_between

MAX_SEARCHED_BYTES = 64 << 20
"""Bytes of the binlog after the batch that are searched for statements; further behind, a later batch compares."""
MAX_SHOWN_TABLES = 5
_LOCK_WAIT_S = 5
"""Seconds to wait for a table whose metadata a statement has locked."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Hold a table's structures in the schema history and on the server; None where one does not have the table."""

    unchecked: UncheckedTable
    history: Table | None
    server: Table | None

    def differs(self) -> bool:
        """Return whether the schema history has the table with another structure than the server."""
        return self.history is not None and not (
            same_structure(self.history, self.server) and same_text(self.history, self.server)
        )

    def may_have_wrong_rows(self) -> bool:
        """Return whether rows may have been decoded with another structure than the server's."""
        if self.history is None or self.server is None:
            return False
        return self.unchecked.has_rows and not same_structure(self.history, self.server)

    def structures(self) -> str:
        """Return both structures as a text."""
        return f"{describe(self.history)} in the schema history, {describe(self.server)} on the server"

    def warning(self) -> str:
        """Return the line of the log."""
        what = "the schema history is corrected" if self.server is not None else "the server does not have the table"
        return (
            f"WARNING: the structure of {self.unchecked.table} in the schema history differs from the server's, since "
            f"{self.unchecked.where} or before: {self.structures()}; {what}. A statement was not in the binlog "
            "(SET sql_log_bin=0, a restored backup), or it was misread: then please report it"
        )


def check_structures(cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, ledger: LedgerState, log: JobLog) -> None:
    """Compare tables after a batch, and correct the schema history where it differs.

    Nothing is asked where no statement touched a captured table. A table that cannot be compared now, because a
    statement has touched it since the batch's end or the server cannot be asked, is compared after a later batch.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The batch; it is complete.
        ledger: The ledger, read after the batch.
        log: The job's log.

    Raises:
        SchemaMismatchError: Rows were decoded with another structure than the server's. The history is corrected.
    """
    end = ledger.end()
    if end is not None:
        _check_structures_at(cfg, job, plan, end, unchecked_tables(ledger), log)


def check_skipped_tables(cfg: ConnectorConfig, job: JobLedger, log: JobLog) -> None:
    """Compare tables before a batch if a skipped statement touched one: its rows are refused until then.

    Args:
        cfg: The connector's configuration.
        job: The ledger; no writer is running.
        log: The job's log.

    Raises:
        SchemaMismatchError: As ``check_structures``.
    """
    ledger = job.latest()
    unchecked, plan = unchecked_tables(ledger), ledger.plan
    if plan is None or not any(table.skipped for table in unchecked.values()):
        return
    if (end := ledger.end()) is not None:
        _check_structures_at(cfg, job, plan, end, unchecked, log)
    elif plan.kind == "drain" and can_end_at(ledger, plan, plan.start):
        # An earlier try has begun the batch and committed nothing of it.
        _check_structures_at(cfg, job, replace(plan, epoch=plan.epoch - 1), plan.start, unchecked, log)


def _check_structures_at(
    cfg: ConnectorConfig,
    job: JobLedger,
    plan: BatchPlan,
    end: BinlogOffset,
    unchecked: Mapping[TableId, UncheckedTable],
    log: JobLog,
) -> None:
    if not unchecked:
        return
    try:
        server = _read_structures(cfg, end, unchecked)
    except (CdcError, pymysql.MySQLError, OSError) as error:
        log.once(f"structures of {len(unchecked)} tables are compared with the server after a later batch: {error}")
        return
    if not server:
        return
    state = load_schema_state(cfg, until=end, epoch=plan.epoch + 1, cache=job.history_cache)
    compared = [_Comparison(unchecked[table], state.tables.get(table), server[table]) for table in server]
    differing = [each for each in compared if each.differs()]
    job.put_all((each.unchecked.ledger_key(), None) for each in compared if not each.differs())
    if differing:
        _correct_history(cfg, job, plan, end, differing, log)


def _correct_history(
    cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, end: BinlogOffset, differing: list[_Comparison], log: JobLog
) -> None:
    """Replace structures in the schema history by the server's; report rows that were decoded with another one."""
    for each in differing:
        log(each.warning())
    records = [record for each in differing for record in _correction(cfg, each, end, plan.epoch)]
    records += [SideRecord(cfg.ledger_topic, each.unchecked.ledger_key().encode(), None) for each in differing]
    wrong = [each for each in differing if each.may_have_wrong_rows()]
    if not wrong:
        job.commit(records)
        return
    mismatch = _wrong_rows_error(wrong)
    # In one transaction: a driver that dies afterwards leaves the error for the operator.
    job.write_outcome(plan, error=mismatch, records=records)
    raise mismatch


def _read_structures(
    cfg: ConnectorConfig, end: BinlogOffset, unchecked: Mapping[TableId, UncheckedTable]
) -> dict[TableId, Table | None]:
    """Return the server's structures of tables that no statement has touched since a position."""
    with connect(cfg.connection_settings()) as conn:
        with conn.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = %s", (_LOCK_WAIT_S,))
        # SHOW CREATE TABLE waits for a statement in progress, so what it shows is in the binlog when it returns.
        definitions, missing = read_create_statements(conn, list(unchecked), lambda _: None)
        now = current_offset(conn)
        if (
            not comparable(now, end)
            or compare_offsets(now, end) < 0
            or (range_bytes(conn, end, now) > MAX_SEARCHED_BYTES and not any(t.skipped for t in unchecked.values()))
        ):
            return {}
    touched = _touched_since(cfg, end, now, definitions.lower_case_table_names)
    if touched is None:
        return {}
    server: dict[TableId, Table | None] = dict.fromkeys(missing)
    for table, statement in definitions.tables.items():
        try:
            server[table] = captured_state(replace(definitions, tables={table: statement})).tables.get(table)
        except DdlParseError:
            continue  # a snapshot stops at it, with the statement
    return {table: structure for table, structure in server.items() if table not in touched}


def _touched_since(
    cfg: ConnectorConfig, end: BinlogOffset, now: BinlogOffset, lower_case_table_names: int
) -> frozenset[TableId] | None:
    """Return the tables that statements between two positions touch; None if it is not known which."""
    touched: set[TableId] = set()
    for statement in statements_between(cfg, end, now, lower_case_table_names, UNREGISTERED_SERVER_ID):
        classified = classify_ddl(statement.sql, statement.context, in_any_case(cfg.captures))
        if not classified.relevant:
            continue
        if not classified.tables:
            return None
        touched |= {name for table in classified.tables for name in (table, table.folded())}
    return frozenset(touched)


def same_structure(history: Table, server: Table | None) -> bool:
    """Return whether rows mean the same with both structures.

    Args:
        history: The structure in the schema history.
        server: The server's; None where it does not have the table.
    """
    if server is None or _row_facts(history) != _row_facts(server):
        return False
    return all(map(_same_members, history.columns, server.columns))


def same_text(history: Table, server: Table | None) -> bool:
    """Return whether what row events do not depend on is the same: ZEROFILL, and character sets of ENUM and SET.

    Args:
        history: The structure in the schema history.
        server: The server's; None where it does not have the table.
    """
    return server is not None and _text_facts(history) == _text_facts(server)


def difference_in_view(conn: MySqlConnection, table: Table) -> str:
    """Return how the server's structure of a table differs from that of the schema history; empty if it does not.

    Args:
        conn: The connection whose view is read; it holds the table, so no statement can change it now.
        table: The structure in the schema history, at the position of the view.

    Raises:
        SourceError: The server does not show the table's structure, or the connection broke.
    """
    try:
        definitions, _ = read_create_statements(conn, [table.id], lambda _: None)
    except pymysql.MySQLError as error:
        raise from_exception(error, f"structure of table {table.id}") from error
    try:
        server = captured_state(definitions).tables.get(table.id)
    except DdlParseError:
        return ""  # a snapshot stops at it, with the statement
    compared = _Comparison(UncheckedTable(table.id, ""), table, server)
    return compared.structures() if compared.differs() else ""


def _row_facts(table: Table) -> Any:
    keys = [name.lower() for name in table.key_columns()]
    return [_column_facts(column) for column in table.columns], keys


def _text_facts(table: Table) -> Any:
    return [(column.zerofill, column.charset) for column in table.columns]


def _column_facts(column: Column) -> Any:
    charset = None if column.mysql_type.has_members else column.charset  # their rows have numbers
    shape = (column.type_name, expected_types(column), column.unsigned, column.nullable, charset)
    return column.name, shape, vector_dimensions(column)


def _same_members(history: Column, server: Column) -> bool:
    """Return whether members are equal; the server shows a question mark for characters that utf8mb3 does not have."""
    pairs = zip(history.enum_values, server.enum_values, strict=False)
    same_count = len(history.enum_values) == len(server.enum_values)
    return same_count and all(known == shown or "?" in shown for known, shown in pairs)


def _with_members(server: Table, history: Table) -> Table:
    """Return the server's structure with members as the history has them, where the server cannot show them."""
    columns = []
    for column in server.columns:
        known = history.column(column.name)
        is_same = known is not None and _same_members(known, column)
        columns.append(replace(column, enum_values=known.enum_values) if known is not None and is_same else column)
    return replace(server, columns=tuple(columns))


def _correction(cfg: ConnectorConfig, compared: _Comparison, end: BinlogOffset, epoch: int) -> Iterable[SideRecord]:
    """Return the records of the server's structure; none for a table that the server does not have."""
    if compared.server is None or compared.history is None:
        return ()
    table = _with_members(compared.server, compared.history)
    change = TableChange("ALTER", table.id, None, table, "", table.id.db)
    return correction_between_batches(cfg, change, end, epoch)


def describe(table: Table | None) -> str:
    """Return a structure as a short text.

    Args:
        table: The structure, or None.
    """
    if table is None:
        return "no table"
    columns = (_column_text(column) for column in table.columns)
    return f"({', '.join(columns)}; key {', '.join(table.key_columns()) or 'none'})"


def _column_text(column: Column) -> str:
    numbers = ",".join(str(n) for n in (column.length, column.scale) if n is not None)
    words = [column.name, f"{column.type_name}({numbers})" if numbers else column.type_name]
    words += ["UNSIGNED"] * column.unsigned + ["ZEROFILL"] * column.zerofill + ["NOT NULL"] * (not column.nullable)
    words += [column.charset] if column.charset else []
    return " ".join(words) + (f" {column.enum_values}" if column.enum_values else "")


def _wrong_rows_error(wrong: list[_Comparison]) -> SchemaMismatchError:
    names = ", ".join(str(each.unchecked.table) for each in wrong[:MAX_SHOWN_TABLES])
    more = f" and {len(wrong) - MAX_SHOWN_TABLES} more tables" if len(wrong) > MAX_SHOWN_TABLES else ""
    return SchemaMismatchError(
        f"rows of {names}{more} were written with a structure that the server does not have",
        where=f"rows after the statement at {wrong[0].unchecked.where}",
        why=wrong[0].structures(),
        remedy="run the task again: the schema history is corrected, so later rows are right; then trigger "
        "mysql_cdc_verify with repair=yes, which also removes records under wrong keys (an incremental snapshot leaves "
        "them; a table without a key needs a blocking one, signal execute-snapshot). With "
        "binlog_row_metadata=FULL the rows themselves would have corrected the structure",
    )
