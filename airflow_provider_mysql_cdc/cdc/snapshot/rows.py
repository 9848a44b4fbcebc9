"""Stream the rows of a query as raw packets of MySQL's text protocol.

Turning every row into Python objects costs more than everything else; the generated decoder reads the packet itself.
Nor does every row go through pymysql's packet reader, which reads twice and makes an object for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.constants import COMMAND, CR
from pymysql.protocol import MysqlPacket

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaMismatchError, SourceConnectionError

# The view is older than the table; the table is gone; a column of the chunk is gone.
CHANGED = (1412, 1146, 1054)
PIECE_BYTES = 1 << 18
"""Bytes read from the connection at once, if there are so many."""
_HEADER, _LARGEST = 4, 0xFFFFFF
_EOF, _ERROR, _EOF_BYTES = 0xFE, 0xFF, 9


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
        yield from _payloads(conn)
    except pymysql.MySQLError as error:
        raise _row_error(error, where) from error


def _payloads(conn: Any) -> Iterator[bytes]:
    """Yield the payload of each packet up to the one that ends the rows (MySQL protocol, "Text Resultset").

    A payload of 16 MB - 1 goes on in the next packet. Packets are numbered from the command on, modulo 256.

    Raises:
        pymysql.MySQLError: What pymysql's own reader raises.
    """
    chunk, pos, end, number = b"", 0, 0, conn._next_seq_id
    begun: list[bytes] = []
    while True:
        start = pos + _HEADER
        stop = start + (chunk[pos] | chunk[pos + 1] << 8 | chunk[pos + 2] << 16) if start <= end else start
        if stop > end:
            chunk, pos = chunk[pos:] + _more(conn, stop - end), 0
            end = len(chunk)
            continue
        if chunk[pos + 3] != number:
            _out_of_order(conn, chunk[pos + 3], number)
        number = conn._next_seq_id = (number + 1) & 0xFF
        payload, pos = chunk[start:stop], stop
        if stop - start == _LARGEST:
            begun.append(payload)
            continue
        if begun:
            payload = b"".join((*begun, payload))
            begun.clear()
        if payload[0] == _ERROR:
            MysqlPacket(payload, conn.encoding).raise_for_error()
        if payload[0] == _EOF and len(payload) < _EOF_BYTES:
            return
        yield payload


def _more(conn: Any, need: int) -> bytes:
    """Return what the connection gives next, at least one byte; a connection that gives nothing is closed."""
    why = ""
    try:
        piece: bytes = conn._rfile.read(need) if need > PIECE_BYTES else conn._rfile.read1(PIECE_BYTES)
    except OSError as error:
        piece, why = b"", f" ({error})"
    except BaseException:
        conn._force_close()
        raise
    if not piece:
        conn._force_close()
        raise pymysql.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query{why}")
    return piece


def _out_of_order(conn: Any, got: int, expected: int) -> None:
    conn._force_close()
    if got == 0:  # MariaDB, when it shuts down
        raise pymysql.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
    raise pymysql.InternalError(f"Packet sequence number wrong - got {got} expected {expected}")


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
