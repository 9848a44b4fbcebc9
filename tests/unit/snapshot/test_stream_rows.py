"""Rows out of a connection: whole packets, however the network cuts them."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaMismatchError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.snapshot import rows as rows_module
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_rows, with_last


@pytest.fixture(autouse=True)
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for rows in Python: test_fuzz_native_text compares the kernel with it."""
    monkeypatch.setenv("MYSQL_CDC_NATIVE", "off")


COLUMN = b"\x03def"
EOF = b"\xfe\x00\x00\x02\x00"
CHANGED = b"\xff" + struct.pack("<H", 1412) + b"#HY000Table definition has changed"


class Wire(io.RawIOBase):
    """Gives bytes in pieces of some size, then the end of the connection or an error."""

    def __init__(self, data: bytes, piece: int, error: OSError | None = None) -> None:
        self._data, self._piece, self._error = io.BytesIO(data), piece, error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._data.read(min(self._piece, len(buffer)))
        if not found and self._error is not None:
            raise self._error
        buffer[: len(found)] = found
        return len(found)


class Connection:
    """A pymysql connection as far as ``stream_rows`` uses it."""

    encoding = "utf8"

    def __init__(self, wire: Wire, buffer: int = 64) -> None:
        self._rfile = io.BufferedReader(wire, buffer)
        self._next_seq_id = 0
        self.closed = False
        self.asked = ""

    def _execute_command(self, command: int, sql: str) -> None:
        self.asked, self._next_seq_id = sql, 1

    def _read_packet(self) -> Any:
        from pymysql.protocol import MysqlPacket

        size, number = struct.unpack("<HxB", self._rfile.read(4))
        assert number == self._next_seq_id
        self._next_seq_id = (number + 1) % 256
        return MysqlPacket(self._rfile.read(size), self.encoding)

    def _force_close(self) -> None:
        self.closed = True


def packets(payloads: Iterable[bytes], first: int = 1) -> Iterator[bytes]:
    for number, payload in enumerate(payloads, first):
        yield len(payload).to_bytes(3, "little") + bytes([number % 256]) + payload


def result(*rows: bytes, end: bytes = EOF) -> bytes:
    """Return the answer to a query of one column."""
    return b"".join(packets([b"\x01", COLUMN, EOF, *rows, end]))


def read(data: bytes, piece: int = 1 << 20, error: OSError | None = None) -> tuple[list[bytes], Connection]:
    conn = Connection(Wire(data, piece, error))
    return list(stream_rows(conn, "SELECT 1", "table d.t")), conn


ROWS = [b"\x01a", b"\xfb", b"\x05" + b"b" * 400, b"\xfe" + bytes(8) + b"c", *(b"\x03%03d" % n for n in range(600))]


@for_each("piece", [1, 3, 5, 1000, 1 << 20])
@for_each("at_once", [7, 1 << 18])
def test_rows_come_whole_however_they_are_cut(monkeypatch: pytest.MonkeyPatch, piece: int, at_once: int) -> None:
    """A row longer than what is read at once, more rows than packet numbers, and one that begins as the end does."""
    monkeypatch.setattr(rows_module, "PIECE_BYTES", at_once)
    found, conn = read(result(*ROWS), piece)
    assert found == ROWS and not conn.closed
    # Whatever is asked next begins with its own answer.
    assert conn._rfile.read() == b""


def test_rows_that_the_kernel_does_not_find_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = SimpleNamespace(module=SimpleNamespace(frames=lambda chunk, pos, number, largest: (0, pos, number)))
    monkeypatch.setattr(rows_module, "kernel", lambda: blind)
    assert read(result(*ROWS), 100)[0] == ROWS


def test_a_row_of_several_packets_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_MAX_PAYLOAD", 10)
    parts = [b"\x1da" + b"x" * 8, b"y" * 10, b"z" * 9]
    assert read(result(b"\x01a", *parts, b"\x01b"))[0] == [b"\x01a", b"".join(parts), b"\x01b"]
    assert read(result(b"y" * 10, b"", b"\x01b"))[0] == [b"y" * 10, b"\x01b"]


def test_an_error_among_the_rows_is_named_and_the_connection_can_be_used_again() -> None:
    conn = Connection(Wire(result(b"\x01a", end=CHANGED), 1 << 20))
    rows = stream_rows(conn, "SELECT 1", "table d.t")
    assert next(rows) == b"\x01a"
    with pytest.raises(SchemaMismatchError, match="altered") as caught:
        next(rows)
    assert "definition has changed" in caught.value.why and not conn.closed


@for_each(
    ("data", "error"),
    [
        (result(*ROWS)[:-3], None),
        (result(*ROWS)[:300], None),
        (result(*ROWS)[:-3], TimeoutError("no answer for 60 s")),
        (result(*ROWS)[:300], ConnectionResetError(104, "Connection reset by peer")),
        (b"".join((*packets([b"\x01", COLUMN, EOF]), *packets([b"\x01a"], 0), *packets([EOF], 5))), None),
        (b"".join((*packets([b"\x01", COLUMN, EOF]), *packets([b"\x01b"], 9), *packets([EOF], 5))), None),
    ],
    ids=["end", "middle", "silence", "reset", "shutdown", "out of order"],
)
def test_a_broken_connection_is_named_and_never_ends_the_rows_quietly(data: bytes, error: OSError | None) -> None:
    conn = Connection(Wire(data, 100, error))
    with pytest.raises(CdcError) as caught:
        list(stream_rows(conn, "SELECT 1", "table d.t"))
    assert conn.closed and caught.value.can_retry
    assert isinstance(caught.value, SourceConnectionError)
    assert str(error or "") in caught.value.why


def test_which_one_is_the_last() -> None:
    assert list(with_last([])) == []
    assert list(with_last("ab")) == [("a", False), ("b", True)]
