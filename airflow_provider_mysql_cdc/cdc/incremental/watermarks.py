"""The watermarks of a window: positions in the binlog between which the tasks' views were opened.

The low watermark is taken before the first view is opened, when every transaction before it is visible:

* a row of the signal table, committed by this driver. MySQL commits in the engine in the order of the binlog
  (``binlog_order_commits``), so everything before the row in the binlog is visible when its commit returns;
* with read.only the end of the binlog, once no transaction before it owns its GTID any more;
* for a blocking snapshot without either, and for one of a table without a key, the end of the binlog under the read
  lock that the view of an initial snapshot is opened with. It is held until the tasks have opened their views.

The high watermark is the end of the binlog after the last view was opened: everything that a view sees is before it, as
a transaction is written to the binlog before the engine commits it. Debezium's row that closes the window is written as
well, for consumers of the signal table's events.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import gtids_on, wait_for_visible_offset
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import EventContract
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import read_locked

WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"
SETTLE_TIMEOUT_S = 10.0
"""Longest wait in seconds for running commits; semi-synchronous replication slows them down."""


@dataclass(frozen=True, slots=True)
class LowWatermark:
    """Describe from where on an event means that a row was changed after the views were opened.

    Args:
        offset: A position before which every transaction is visible; None if the watermark is a row.
        row_id: Id of the row of the signal table; None if the watermark is a position.
        locked: Whether a read lock keeps the tables as they were at ``offset`` until the views are open.
    """

    offset: BinlogOffset | None
    row_id: str | None
    locked: bool = False


class WatermarkUnavailable(Exception):
    """Raised with the reason why no low watermark can be taken now."""


def watermark_table(cfg: ConnectorConfig) -> TableId | None:
    """Return the signal table for watermark rows; None if nothing is written to the source.

    Args:
        cfg: The connector's configuration.
    """
    return None if cfg[F.READ_ONLY] else cfg[F.SIGNAL_DATA_COLLECTION]


def needs_lock(cfg: ConnectorConfig, conn: MySqlConnection, scans: Sequence[TableScan], state: SchemaState) -> bool:
    """Return whether the views of a window are opened under a read lock.

    A table without a key can only be read where no event changes it between the watermark and the views. Incremental
    snapshots open a window every ten seconds, and never lock.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        scans: The scans of the window.
        state: Table structures at the start of its batch.

    Raises:
        SourceError: A query fails.
    """
    if str(cfg[F.SNAPSHOT_LOCKING_MODE]) == "none" or any(scan.kind != "blocking" for scan in scans):
        return False
    keyless = any(
        not table.key_columns() for table in (state.tables.get(scan.table) for scan in scans) if table is not None
    )
    return keyless or (watermark_table(cfg) is None and not gtids_on(conn))


@contextmanager
def low_watermark(
    cfg: ConnectorConfig, conn: MySqlConnection, tables: Sequence[TableId], *, lock: bool
) -> Iterator[LowWatermark]:
    """Take the low watermark, and close the window when the block ends: all views are open then.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source, autocommit.
        tables: The tables that the window reads.
        lock: Whether to lock them (``needs_lock``).

    Raises:
        WatermarkUnavailable: No low watermark can be taken now.
        SourceError: The server returned an error.
    """
    if not lock:
        low = take_low_watermark(cfg, conn)
        yield low
        close_window(cfg, conn, low)
        return
    with connect(cfg.connection_settings()) as lock_conn, contextlib.ExitStack() as held:
        try:
            offset = held.enter_context(read_locked(lock_conn, cfg, list(tables)))
        except (SourcePrivilegeError, SourceConnectionError) as error:
            raise WatermarkUnavailable(error.message()) from error
        yield LowWatermark(offset, None, locked=True)


def take_low_watermark(cfg: ConnectorConfig, conn: MySqlConnection) -> LowWatermark:
    """Take the low watermark.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source, autocommit.

    Raises:
        WatermarkUnavailable: Running commits did not end in time, or the signal table cannot be written to.
        SourceError: The server returned another error.
    """
    table = watermark_table(cfg)
    if table is None:
        if not gtids_on(conn):
            raise WatermarkUnavailable(
                "no low watermark is possible: without a signal table (signal.data.collection) it needs GTIDs, and "
                "gtid_mode is not ON"
            )
        offset, settled = wait_for_visible_offset(conn, SETTLE_TIMEOUT_S)
        if not settled:
            raise WatermarkUnavailable(
                f"no low watermark is possible: transactions before {offset} were still being committed after "
                f"{SETTLE_TIMEOUT_S:.0f} s"
            )
        return LowWatermark(offset, None)
    row_id = f"{uuid.uuid4()}-open"
    try:
        _insert_watermark(cfg, conn, table, row_id, WINDOW_OPEN, "openWindowTimestamp")
    except pymysql.MySQLError as error:
        source_error = from_exception(error, f"signal table {table}")
        if isinstance(source_error, SourceConnectionError):
            raise source_error from error
        raise WatermarkUnavailable(
            f"the low watermark cannot be written to the signal table {table}: {' '.join(map(str, error.args))}"
        ) from error
    return LowWatermark(None, row_id)


def close_window(cfg: ConnectorConfig, conn: MySqlConnection, low: LowWatermark) -> None:
    """Write the row that closes the window, as Debezium does; with insert_delete delete the opening row instead.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source, autocommit.
        low: The low watermark.

    Raises:
        SourceError: The server returned an error.
    """
    table = watermark_table(cfg)
    if table is None or low.row_id is None:
        return
    if str(cfg[F.INCREMENTAL_SNAPSHOT_WATERMARKING_STRATEGY]) == "insert_delete":
        with conn.cursor() as cursor:
            cursor.execute(f"DELETE FROM {table.quoted()} WHERE {_column_names(conn, table)[0]} = %s", (low.row_id,))
        return
    row_id = low.row_id.removesuffix("-open") + "-close"
    _insert_watermark(cfg, conn, table, row_id, WINDOW_CLOSE, "closeWindowTimestamp")


def _insert_watermark(
    cfg: ConnectorConfig, conn: MySqlConnection, table: TableId, row_id: str, kind: str, time_member: str
) -> None:
    """Write a row as Debezium does; that of 1.9.7 has no data."""
    column_list = ", ".join(_column_names(conn, table))
    data = None if cfg[F.EVENT_CONTRACT] is EventContract.OLD else json.dumps({time_member: _now_text()})
    with conn.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table.quoted()} ({column_list}) VALUES (%s, %s, %s)", (row_id, kind, data))


def _column_names(conn: MySqlConnection, table: TableId) -> list[str]:
    """Return the first three columns, whatever their names, as SQL."""
    sql = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    columns = fetch_all(conn, f"{sql} ORDER BY ordinal_position LIMIT 3", (table.db, table.table))
    return [quote_name(str(name)) for (name,) in columns]


def _now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
