"""Stream the rows of a query as raw packets of MySQL's text protocol.

Turning every row into Python objects costs more than everything else; the generated decoder reads the packet itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.constants import COMMAND

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaMismatchError, SourceConnectionError

# The view is older than the table; the table is gone; a column of the chunk is gone.
CHANGED = (1412, 1146, 1054)


def stream_rows(conn: Any, sql: str, where: str) -> Iterator[bytes]:
    """Yield each row's packet, without its 4-byte header.

    Args:
        conn: An open pymysql connection; it must not be used otherwise until the rows are consumed.
        sql: A SELECT.
        where: The chunk, for errors.

    Raises:
        SchemaMismatchError: The table was altered after the view was opened (a retry opens a new view).
        SourceConnectionError: The connection broke.
        SourceError: What the server says otherwise.
    """
    try:
        conn._execute_command(COMMAND.COM_QUERY, sql)
        first = conn._read_packet()
        for _ in range(first.read_length_encoded_integer()):
            conn._read_packet()
        conn._read_packet()  # EOF after the column definitions
        while True:
            packet = conn._read_packet()
            if packet.is_eof_packet():
                return
            yield packet._data
    except pymysql.MySQLError as error:
        raise _row_error(error, where) from error


def _row_error(error: pymysql.MySQLError, where: str) -> CdcError:
    if error.args and error.args[0] in CHANGED:
        return SchemaMismatchError(
            "the table was altered while its snapshot was being taken",
            where=where,
            why=str(error.args[-1]),
            remedy="run the task again; finished chunks are kept and the rest is read in a new view",
            retriable=True,
        )
    named = from_exception(error, where)
    if not isinstance(named, SourceConnectionError):
        return named
    return SourceConnectionError(
        "reading the rows of a chunk failed",
        where=where,
        why=" ".join(str(a) for a in error.args) or type(error).__name__,
        remedy="run the task again; finished chunks are kept",
    )
