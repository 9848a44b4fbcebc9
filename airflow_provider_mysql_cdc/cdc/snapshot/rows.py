"""Stream the rows of a query as raw packets of MySQL's text protocol, and keep those of a chunk until all are read.

Stream the rows of a query as raw packets of MySQL's text protocol.

Converting every row to Python objects would cost more than all other steps, so the generated decoder reads the packets.
pymysql's packet reader is not used for rows either: it reads twice and creates an object for each packet.

Keep the rows of a chunk until all of them are read: in memory, and above a limit in a temporary file.

A Kafka transaction must not last longer than ``transaction.timeout.ms``, but a task cannot limit how long the source
takes to return rows. So the transaction of a chunk begins after its last row was read.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, TypeVar

import pymysql
from pymysql.constants import COMMAND, CR
from pymysql.protocol import MysqlPacket

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaMismatchError, StateError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.table import TableId

T = TypeVar("T")

# The view is older than the table; the table does not exist; a column of the chunk does not exist.
TABLE_CHANGED_ERRORS = (1412, 1146, 1054)
PIECE_BYTES = 1 << 18
"""Most bytes read from the connection at once."""
_HEADER, _MAX_PAYLOAD = 4, 0xFFFFFF
_EOF, _ERROR, _EOF_BYTES = b"\xfe", b"\xff", 9


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Hold consecutive rows as the server sent them.

    Args:
        rows: Their number.
        data: Their packets, each with its header of 4 bytes; for a large row only its payload.
        large: Whether it is one row of several packets.
    """

    rows: int
    data: bytes
    large: bool = False

    def __iter__(self) -> Iterator[bytes]:
        data, offset = self.data, 0
        if self.large:
            yield data
            return
        for _ in range(self.rows):
            packet, offset = self.row_at(offset)
            yield packet

    def row_at(self, offset: int) -> tuple[bytes, int]:
        """Return a row's packet without its header, and the offset after it.

        Args:
            offset: Offset of the header.
        """
        data, start = self.data, offset + _HEADER
        stop = start + (data[offset] | data[offset + 1] << 8 | data[offset + 2] << 16)
        return data[start:stop], stop


def stream_rows(conn: MySqlConnection, sql: str, where: str) -> Iterator[bytes]:
    """Yield each row's packet, without its 4-byte header; arguments and errors as for ``stream_blocks``."""
    for block in stream_blocks(conn, sql, where):
        yield from block


def stream_blocks(conn: Any, sql: str, where: str) -> Iterator[RowBlock]:
    """Yield rows in blocks of as many as have arrived.

    Args:
        conn: An open pymysql connection; it must not be used otherwise until the rows are consumed.
        sql: A SELECT.
        where: The chunk, for error messages.

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
        yield from _blocks(conn)
    except pymysql.MySQLError as error:
        raise _row_error(error, where) from error


def _blocks(conn: Any) -> Iterator[RowBlock]:
    """Yield the rows up to the packet that ends them (MySQL protocol, "Text Resultset").

    A payload of 16 MB - 1 goes on in the next packet. Packets are numbered from the command on, modulo 256.

    Raises:
        pymysql.MySQLError: What pymysql's own reader raises.
    """
    module = kernel().module
    frames = _scan_rows if module is None else module.frames
    chunk, pos, number = b"", 0, conn._next_seq_id
    fragments: list[bytes] = []
    while True:
        if not fragments:
            rows, stop, number = frames(chunk, pos, number, _MAX_PAYLOAD)
            if rows:
                conn._next_seq_id = number
                yield RowBlock(rows, chunk[pos:stop])
                pos = stop
        # The next packet is incomplete, or is not a row of one packet.
        start, end = pos + _HEADER, len(chunk)
        stop = start + (chunk[pos] | chunk[pos + 1] << 8 | chunk[pos + 2] << 16) if start <= end else start
        if stop > end:
            chunk, pos = chunk[pos:] + _receive(conn, stop - end), 0
            continue
        if chunk[pos + 3] != number:
            _out_of_order(conn, chunk[pos + 3], number)
        number = conn._next_seq_id = (number + 1) & 0xFF
        payload, pos = chunk[start:stop], stop
        if stop - start == _MAX_PAYLOAD:
            fragments.append(payload)
            continue
        if fragments:
            yield RowBlock(1, b"".join((*fragments, payload)), large=True)
            fragments.clear()
        elif payload[:1] == _ERROR:
            MysqlPacket(payload, conn.encoding).raise_for_error()
        elif payload[:1] == _EOF and len(payload) < _EOF_BYTES:
            return
        else:
            yield RowBlock(1, chunk[start - _HEADER : stop])


def _scan_rows(chunk: bytes, pos: int, number: int, largest: int) -> tuple[int, int, int]:
    """Return the number of complete rows of one packet, the offset after them and the next packet's number.

    Args:
        chunk: Packets.
        pos: Offset of the first.
        number: The number that it has to have.
        largest: Bytes of a payload that goes on in the next packet.
    """
    rows, end = 0, len(chunk)
    while pos + _HEADER < end:
        length = chunk[pos] | chunk[pos + 1] << 8 | chunk[pos + 2] << 16
        stop, first = pos + _HEADER + length, chunk[pos + _HEADER : pos + _HEADER + 1]
        if stop > end or chunk[pos + 3] != number or not 0 < length < largest:
            break
        if first >= _EOF and (first == _ERROR or length < _EOF_BYTES):
            break
        rows, pos, number = rows + 1, stop, (number + 1) & 0xFF
    return rows, pos, number


def _receive(conn: Any, need: int) -> bytes:
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
    if error.args and error.args[0] in TABLE_CHANGED_ERRORS:
        return SchemaMismatchError(
            "the table was altered while its snapshot was being taken",
            where=where,
            why=str(error.args[-1]),
            remedy="run the task again; finished chunks are kept and the rest is read in a new view",
            retriable=True,
        )
    return from_exception(error, where)


def with_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Yield each item with whether it is the last one.

    Args:
        items: The items.
    """
    pending: list[T] = []
    for item in items:
        if pending:
            yield pending.pop(), False
        pending.append(item)
    if pending:
        yield pending.pop(), True


MEMORY_BYTES = 32 << 20
# Rows, bytes, and whether it is one row of several packets.
_BLOCK_HEADER = struct.Struct("<II?")


class RowSpool:
    """Store rows once and return them in their order.

    Args:
        where: The chunk, for errors.
        memory_bytes: Bytes above which the rows are written to a temporary file in the folder that TMPDIR names.
    """

    def __init__(self, where: str, memory_bytes: int = MEMORY_BYTES) -> None:
        self._where = where
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=memory_bytes, prefix="mysql-cdc-rows-")  # noqa: SIM115
        self.rows = 0

    def fill(self, blocks: Iterable[RowBlock], on_rows: Callable[[int], None]) -> None:
        """Store all rows.

        Args:
            blocks: The rows.
            on_rows: Called with the number of rows after each block.

        Raises:
            StateError: The rows cannot be written to the folder for temporary files.
        """
        for block in blocks:
            with self._disk_errors():
                self._file.write(_BLOCK_HEADER.pack(block.rows, len(block.data), block.large) + block.data)
            self.rows += block.rows
            on_rows(self.rows)
        # seek flushes the buffer of the file.
        with self._disk_errors():
            self._file.seek(0)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(
                "the rows of a chunk cannot be stored on the local disk",
                where=f"{self._where}, folder {tempfile.gettempdir()}",
                why=str(error),
                remedy="free space there, or set TMPDIR of the executors to a folder with more space; a table "
                "that cannot be "
                "split into chunks needs space for all its rows",
                retriable=True,
            ) from error

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows once, in blocks."""
        while header := self._file.read(_BLOCK_HEADER.size):
            rows, size, large = _BLOCK_HEADER.unpack(header)
            yield RowBlock(rows, self._file.read(size), large)

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # On a full disk closing fails, too, as it flushes the buffer. The file is deleted nevertheless.
        with contextlib.suppress(OSError):
            self._file.close()


_LEAVE_OUT = (
    f"to leave such rows out, set {F.EVENT_PROCESSING_FAILURE_HANDLING_MODE.name}=warn; "
    f"{F.DEAD_LETTER_TOPIC.name} names a topic that gets what can be read of them"
)


def unwritable_row(error: CdcError, table: TableId, where: str, kind: str = "") -> CdcError:
    """Return the error of a row with its table and with what helps.

    Args:
        error: A record too large, or a value that cannot be decoded.
        table: The table.
        where: The key range.
        kind: The kind of the ad-hoc snapshot that reads the table, which a signal may stop; empty for a snapshot.
    """
    remedies = [error.remedy] if error.remedy else []
    if isinstance(error, ValueDecodeError):
        remedies.append(_LEAVE_OUT)
    if kind == "incremental":
        remedies.append(f'to end this snapshot, send the signal stop-snapshot with {{"data-collections": ["{table}"]}}')
    location = error.where if where in error.where else f"{where}, table {table}; {error.where}"
    return type(error)(error.what, where=location, why=error.why, remedy="; ".join(remedies), retriable=error.can_retry)
