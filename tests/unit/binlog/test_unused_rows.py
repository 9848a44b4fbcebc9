"""Large row events of tables that nobody reads: they pass like others, and are not held."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from kit.binlog_bytes import HEADER, SERVER_ID, TIMESTAMP, Dump, stream_of
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.packets import MAX_PACKET_PAYLOAD
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import rows_header
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.unused_rows import LARGE_EVENT, no_rows
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

START = BinlogOffset("binlog.000001", 4)
UNUSED, USED = 0x7654321, 8
ROWS_HEAD = struct.pack("<HHB", 1, 2, 3) + b"\xff"
"""Flags, no extra data, three columns, all present."""


def body(table_id: int, size: int) -> bytes:
    return table_id.to_bytes(6, "little") + ROWS_HEAD + b"r" * size


def unused(table_id: int) -> bool:
    return table_id == UNUSED


def large(size: int, table_id: int = UNUSED, *, crc: bool = True) -> Dump:
    dump = Dump(crc=crc).begin().transaction()
    dump.add(c.TABLE_MAP_EVENT, b"map").add(c.WRITE_ROWS_EVENT_V2, body(table_id, size))
    return dump.add(c.UPDATE_ROWS_EVENT_V2, body(table_id, size)).add(c.XID_EVENT, bytes(8)).transaction()


def header(event: Event) -> tuple[int, int, int, int, str, int, int]:
    return event.type, event.timestamp, event.server_id, event.flags, event.file, event.start_pos, event.end_pos


# Header, checksum and status byte of these events, and what precedes their rows.
_AROUND = HEADER.size + 4 + 1 + 6 + len(ROWS_HEAD)


@for_each("crc", [True, False])
@for_each(
    "size",
    [LARGE_EVENT, 2_000_000, MAX_PACKET_PAYLOAD - _AROUND - 1, MAX_PACKET_PAYLOAD - _AROUND + 1, 35_000_000],
    ids=["large", "larger", "the last of one packet", "the first of two", "three packets"],
)
@for_each("piece", [60_001, 1 << 24])
def test_large_rows_of_an_unused_table_pass_with_their_beginning(size: int, crc: bool, piece: int) -> None:
    dump = large(size, crc=crc)
    pieces = [bytes(dump.data[i : i + piece]) for i in range(0, len(dump.data), piece)]
    with stream_of(pieces, START) as stream:
        events = list(stream.events(dump.offset(), unused=unused))
    assert [(e.type, e.start_pos, e.end_pos) for e in events] == [(k, a, b) for k, _, a, b, _ in dump.events]
    assert all(a.end_pos == b.start_pos for a, b in pairwise(events))
    rows = [e for e in events if e.type in (c.WRITE_ROWS_EVENT_V2, c.UPDATE_ROWS_EVENT_V2) and e.end - e.body > 10]
    assert len(rows) == 2
    for event, (_, _, _, _, whole) in zip(rows, [e for e in dump.events if len(e[4]) > size], strict=True):
        assert whole.startswith(event.buf[event.body : event.end])
        assert event.end - event.body < 5000 or size == LARGE_EVENT, "one that has arrived as a whole may be whole"
        assert rows_header(event).table_id == UNUSED and event.server_id == SERVER_ID and event.timestamp == TIMESTAMP


@pytest.mark.parametrize("size", [LARGE_EVENT, 35_000_000, MAX_PACKET_PAYLOAD - _AROUND])
def test_other_rows_are_whole(size: int) -> None:
    """Those of a table that is read; and those after which an empty packet comes, wherever they belong."""
    dump = large(size, USED)
    with stream_of(dump.data, START) as stream:
        used = [(header(e), e.buf[e.body : e.end]) for e in stream.events(dump.offset(), unused=unused)]
    with stream_of(dump.data, START) as stream:
        plain = [(header(e), e.buf[e.body : e.end]) for e in stream.events(dump.offset())]
    assert used == plain
    if size + _AROUND == MAX_PACKET_PAYLOAD:
        dump = large(size)
        with stream_of(dump.data, START) as stream:
            assert [e.end_pos for e in stream.events(dump.offset(), unused=no_rows)] == [e[3] for e in dump.events]


@for_each("size", [LARGE_EVENT, 20_000_000])
@for_each("place", [100, -60], ids=["in the head", "in the rows"])
def test_a_checksum_that_does_not_hold_is_found(size: int, place: int) -> None:
    dump = Dump().begin().add(c.WRITE_ROWS_EVENT_V2, body(UNUSED, size))
    begin = len(dump.data) - size if place > 0 else len(dump.data)
    dump.data[begin + place] ^= 1
    with (
        stream_of(dump.data, START) as stream,
        pytest.raises(BinlogCorruptError, match="checksum"),
    ):
        list(stream.events(dump.offset(), unused=unused))


def test_a_packet_of_another_length_is_refused() -> None:
    dump = Dump().begin().add(c.WRITE_ROWS_EVENT_V2, body(UNUSED, 20_000_000))
    second = len(dump.data) - (20_000_000 + _AROUND - MAX_PACKET_PAYLOAD) - 4
    dump.data[second] ^= 1
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="length contradicts"):
        list(stream.events(dump.offset(), unused=unused))


def test_the_end_of_the_batch_may_be_behind_such_rows() -> None:
    dump = Dump().begin().add(c.WRITE_ROWS_EVENT_V2, body(UNUSED, LARGE_EVENT))
    with stream_of(dump.data, START, close=False) as stream:
        assert len(list(stream.events(dump.offset(), unused=unused))) == 1
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="not an event boundary"):
        list(stream.events(BinlogOffset("binlog.000001", dump.pos - 1), unused=unused))


def pieces_of(count: int, piece: bytes) -> Iterator[bytes]:
    """Yield the packets of an event with so many pieces of rows, without ever holding it."""
    fixed = UNUSED.to_bytes(6, "little") + ROWS_HEAD
    size = HEADER.size + len(fixed) + count * len(piece) + 4
    head = HEADER.pack(TIMESTAMP, c.WRITE_ROWS_EVENT_V2, SERVER_ID, size, 4 + size, 0) + fixed
    crc = zlib.crc32(head)
    for _ in range(count):
        crc = zlib.crc32(piece, crc)
    left, room = size + 1, 0
    for part in (b"\0" + head, *[piece] * count, struct.pack("<I", crc)):
        at = 0
        while at < len(part):
            if not room:
                room = min(left, MAX_PACKET_PAYLOAD)
                yield room.to_bytes(3, "little") + b"\0"
            sent = part[at : at + room]
            yield sent
            at, left, room = at + len(sent), left - len(sent), room - len(sent)


def slowly(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Let the first header arrive alone."""
    yield next(pieces)
    time.sleep(0.2)
    yield from pieces


@pytest.mark.parametrize("arrive", [iter, slowly])
def test_such_rows_are_not_held(arrive: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
    """A row of 60 MB took 240 MB; the buffer of the socket has 1 MB."""
    with stream_of(arrive(pieces_of(240, bytes(250_000))), BinlogOffset("binlog.000001", 4)) as stream:
        stream._checksum_length = 4
        tracemalloc.start()
        try:
            (event,) = stream.events(
                BinlogOffset("binlog.000001", 4 + HEADER.size + 12 + 60_000_000 + 4), unused=unused
            )
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert event.end_pos - event.start_pos > 60_000_000
    assert peak < 4_000_000, peak
