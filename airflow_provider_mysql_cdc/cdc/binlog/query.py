"""QUERY events: statements, with what their session had set.

Layout: MySQL source, ``statement_events.h`` (``Query_event``).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from pymysqlreplication.constants import STATUS_VAR_KEY as _KEY

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event, event_parser
from airflow_provider_mysql_cdc.cdc.binlog.statement_text import (
    ANSI_QUOTES,
    NO_BACKSLASH_ESCAPES,
    SERVER_COLLATION,
    decode_statement,
    emptied_in_memory,
    has_server_layout,
    is_written_by_server,
    with_null,
)

_LOAD_HEADER_BYTES = 13  # id of the file, place of its name in the statement, handling of duplicates
_POST_HEADER = Struct(
    "<IIBHH"
)  # thread, execution time, length of the database's name, error, length of status variables
_OVER_MAX_DATABASES = 254
_BEGIN = b"BEGIN"


class QueryEvent(NamedTuple):
    """Hold a statement.

    What a server did not log is None. A statement that the server wrote itself has the settings that it wrote it with.

    Args:
        thread_id: Id of the session's thread.
        exec_time: Execution time in seconds.
        error_code: Error the statement ended with, 0 for none.
        db: The session's database; empty for none.
        sql: The statement.
        sql_mode: Bits of sql_mode.
        client_charset: Collation id of character_set_client.
        collation_connection: Collation id of collation_connection.
        collation_server: Collation id of collation_server.
        charset_database: Collation id of the database's default.
        time_zone: The session's time_zone.
        updated_dbs: Databases that the statement changes.
        microseconds: Fraction of the event's timestamp.
        explicit_defaults_for_timestamp: The session's setting.
        ddl_xid: Number of the atomic DDL's transaction.
        default_collation_for_utf8mb4: Collation id that ``CHARSET utf8mb4`` without COLLATE means.
        sql_require_primary_key: The session's setting.
        temporary: Whether it is marked as one that used a temporary table of its session. CONNECTION_ID() in a
            statement or in a default of its table marks it too.
        written_by_server: Whether the server wrote the statement (``statement_text.is_written_by_server``).
        server_layout: Whether it has the layout in which the server writes out tables.
    """

    thread_id: int
    exec_time: int
    error_code: int
    db: str
    sql: str
    sql_mode: int | None = None
    client_charset: int | None = None
    collation_connection: int | None = None
    collation_server: int | None = None
    charset_database: int | None = None
    time_zone: str | None = None
    updated_dbs: tuple[str, ...] = ()
    microseconds: int | None = None
    explicit_defaults_for_timestamp: bool | None = None
    ddl_xid: int | None = None
    default_collation_for_utf8mb4: int | None = None
    sql_require_primary_key: bool | None = None
    temporary: bool = False
    written_by_server: bool = False
    server_layout: bool = False


@event_parser("a QUERY event")
def parse_query(event: Event) -> QueryEvent:
    """Parse a QUERY event, or an EXECUTE_LOAD_QUERY event (``LOAD DATA`` in statement format).

    Raises:
        BinlogCorruptError: The structure does not hold.
    """
    buf, body, end = event.buf, event.body, event.end
    status_pos = body + _POST_HEADER.size + (_LOAD_HEADER_BYTES if event.type == c.EXECUTE_LOAD_QUERY_EVENT else 0)
    if status_pos > end:
        raise IndexError("the event is shorter than its fixed part")
    thread_id, exec_time, db_length, error_code, status_length = _POST_HEADER.unpack_from(buf, body)
    db_pos = status_pos + status_length
    sql_pos = db_pos + db_length + 1
    if sql_pos > end:
        raise IndexError("the statement ends after the event")
    values = _status_variables(buf[status_pos:db_pos]) if status_length else {}
    db_name = buf[db_pos : db_pos + db_length].decode("utf-8", "surrogateescape")
    statement, temporary = bytes(buf[sql_pos:end]), bool(event.flags & c.LOG_EVENT_THREAD_SPECIFIC_F)
    emptied = emptied_in_memory(statement, values.get("updated_dbs", ()))
    statement = emptied or statement
    written_by_server = emptied is not None or is_written_by_server(statement, temporary=temporary)
    if written_by_server:
        values |= {"client_charset": SERVER_COLLATION, "collation_connection": SERVER_COLLATION}
        values["sql_mode"] = values.get("sql_mode", 0) & ~NO_BACKSLASH_ESCAPES
    if emptied is not None and emptied.startswith(b'TRUNCATE TABLE "'):
        values["sql_mode"] |= ANSI_QUOTES  # the quotes are those of the session, the mode is not (9.7.4)
    sql = decode_statement(statement, values.get("client_charset"), values.get("sql_mode", 0))
    sql = with_null(sql) if written_by_server else sql
    return QueryEvent(
        thread_id,
        exec_time,
        error_code,
        db_name,
        sql,
        **values,
        temporary=temporary,
        written_by_server=written_by_server,
        server_layout=has_server_layout(statement),
    )


def begin_thread_id(event: Event) -> int | None:
    """Return the thread of a session whose transaction begins with this QUERY event; None for any other statement.

    A server writes the same five letters before each transaction of rows (MySQL source, ``binlog.cc``), and what its
    status variables tell of the session does not matter to rows.

    Args:
        event: The event.
    """
    buf, body, sql_pos = event.buf, event.body, event.end - len(_BEGIN)
    if buf[sql_pos : event.end] != _BEGIN or sql_pos < body + _POST_HEADER.size:
        return None
    thread_id, _, db_length, _, status_length = _POST_HEADER.unpack_from(buf, body)
    # Otherwise these letters are the end of a longer statement, or the event is damaged.
    return int(thread_id) if body + _POST_HEADER.size + status_length + db_length + 1 == sql_pos else None


StatusReader = Callable[[bytes, int], tuple[dict[str, Any], int]]


def _number_reader(name: str, size: int, convert: Callable[[int], Any] = int) -> StatusReader:
    def read(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
        return {name: convert(int.from_bytes(buf[pos : pos + size], "little"))}, pos + size

    return read


def _skip_reader(size: int) -> StatusReader:
    return lambda _, pos: ({}, pos + size)


def _text_reader(name: str, trailing: int = 0) -> StatusReader:
    def read(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
        stop = pos + 1 + buf[pos]
        return ({name: buf[pos + 1 : stop].decode("utf-8", "replace")} if name else {}), stop + trailing

    return read


def _read_charsets(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
    names = ("client_charset", "collation_connection", "collation_server")
    return {n: int.from_bytes(buf[pos + 2 * i : pos + 2 * i + 2], "little") for i, n in enumerate(names)}, pos + 6


def _skip_invoker(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
    pos += 1 + buf[pos]
    return {}, pos + 1 + buf[pos]


def _read_updated_databases(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
    count, pos = buf[pos], pos + 1
    names: list[str] = []
    if count != _OVER_MAX_DATABASES:
        for _ in range(count):
            stop = buf.find(b"\0", pos)
            if stop < 0:
                raise IndexError("a database name has no end")
            names.append(buf[pos:stop].decode("utf-8", "surrogateescape"))
            pos = stop + 1
    return {"updated_dbs": tuple(names)}, pos


_STATUS_READERS: dict[int, StatusReader] = {
    _KEY.Q_FLAGS2_CODE: _skip_reader(4),
    _KEY.Q_SQL_MODE_CODE: _number_reader("sql_mode", 8),
    _KEY.Q_CATALOG_CODE: _text_reader("", 1),
    _KEY.Q_AUTO_INCREMENT: _skip_reader(4),
    _KEY.Q_CHARSET_CODE: _read_charsets,
    _KEY.Q_TIME_ZONE_CODE: _text_reader("time_zone"),
    _KEY.Q_CATALOG_NZ_CODE: _text_reader(""),
    _KEY.Q_LC_TIME_NAMES_CODE: _skip_reader(2),
    _KEY.Q_CHARSET_DATABASE_CODE: _number_reader("charset_database", 2),
    _KEY.Q_TABLE_MAP_FOR_UPDATE_CODE: _skip_reader(8),
    _KEY.Q_MASTER_DATA_WRITTEN_CODE: _skip_reader(4),
    _KEY.Q_INVOKER: _skip_invoker,
    _KEY.Q_UPDATED_DB_NAMES: _read_updated_databases,
    _KEY.Q_MICROSECONDS: _number_reader("microseconds", 3),
    _KEY.Q_COMMIT_TS: _skip_reader(0),
    _KEY.Q_COMMIT_TS2: _skip_reader(0),
    _KEY.Q_EXPLICIT_DEFAULTS_FOR_TIMESTAMP: _number_reader("explicit_defaults_for_timestamp", 1, bool),
    _KEY.Q_DDL_LOGGED_WITH_XID: _number_reader("ddl_xid", 8),
    _KEY.Q_DEFAULT_COLLATION_FOR_UTF8MB4: _number_reader("default_collation_for_utf8mb4", 2),
    _KEY.Q_SQL_REQUIRE_PRIMARY_KEY: _number_reader("sql_require_primary_key", 1, bool),
    _KEY.Q_DEFAULT_TABLE_ENCRYPTION: _skip_reader(1),
}


def _status_variables(buf: bytes) -> dict[str, Any]:
    """Return the status variables; at a key that is not known the rest is left out, as the server does."""
    values: dict[str, Any] = {}
    pos = 0
    while pos < len(buf):
        read = _STATUS_READERS.get(buf[pos])
        if read is None:
            break
        variables, pos = read(buf, pos + 1)
        values.update(variables)
    if pos > len(buf):
        raise IndexError("the status variables end early")
    return values
