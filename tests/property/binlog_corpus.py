"""The recorded binlog as a corpus, its events changed by Hypothesis, and the way an event takes through the product."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from kit.binlog_bytes import HEADER, event_bytes, packets

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.packets import PassedOver
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import ROW_EVENTS, check_rows, rows_header
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import TolerantDecoder
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

FILE = Path(__file__).parent / "data" / "binlog.gz"
METHODS = {23: "write", 30: "write", 24: "update", 31: "update", 25: "delete", 32: "delete", 39: "partial_update"}
START = BinlogOffset("binlog.000007", 4)
_CRC, _MAGIC = 4, 4


@dataclass(frozen=True)
class Group:
    """Hold one transaction of the recording.

    Args:
        raws: Its events as (type, flags, timestamp, body without checksum).
        tables: Structures of all tables when it begins.
    """

    raws: tuple[tuple[int, int, int, bytes], ...]
    tables: SchemaState


class Packets:
    """Serve bytes as a socket would; at their end the connection breaks."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def next_chunk(self, chunk: bytes, pos: int, more_than: int = 0, enough: int = 0) -> bytes:
        rest = chunk[pos:]
        if not self._data:
            raise SourceConnectionError("the recording ends here")
        self._data, found = b"", rest + self._data
        return found

    def join_packets(self, chunk: bytes, pos: int, max_length: int) -> tuple[bytes, int]:
        raise SourceConnectionError("the recording has no packets of 16 MB")

    def pass_over(self, chunk: bytes, pos: int, length: int, kept: int) -> PassedOver:
        raise SourceConnectionError("nobody leaves rows out")


def split(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    pos = _MAGIC
    while pos < len(data):
        timestamp, kind, _, size, _, flags = HEADER.unpack_from(data, pos)
        yield kind, flags, timestamp, data[pos + HEADER.size : pos + size - _CRC]
        pos += size


def place(kind: int, body: bytes) -> Event:
    """Return an event outside of a stream."""
    raw = event_bytes(kind, body, 0, crc=False)
    return Event(kind, 0, 1, 0, START.file, 4711, 4711 + len(raw), raw, HEADER.size, len(raw))


@cache
def corpus() -> tuple[Group, ...]:
    """Return the recorded transactions with the structures they need, which the recorded DDL gives."""
    groups: list[Group] = []
    state, group = SchemaState(), list[tuple[int, int, int, bytes]]()
    for raw in split(gzip.decompress(FILE.read_bytes())):
        kind = raw[0]
        if kind in (c.FORMAT_DESCRIPTION_EVENT, c.ROTATE_EVENT, c.STOP_EVENT):
            continue
        if kind in c.GTID_EVENTS and group:
            groups.append(Group(tuple(group), state))
            state, group = structures(state, group), []
        group.append(raw)
    groups.append(Group(tuple(group), state))
    return tuple(groups)


def structures(state: SchemaState, group: list[tuple[int, int, int, bytes]]) -> SchemaState:
    for kind, _, _, body in group:
        if kind == c.QUERY_EVENT:
            query = ev.parse_query(place(kind, body))
            if not query.sql.startswith(("BEGIN", "XA", "COMMIT")):
                state = apply_ddl(state, query.sql, DdlContext.from_query(query)).state
    return state


def stream_bytes(raws: list[tuple[int, int, int, bytes]], sound: list[bool] | None = None) -> bytes:
    """Return what a server would send for these events.

    Args:
        raws: The events.
        sound: Whether the checksum of each event fits its bytes; all do without.
    """
    rotate = struct.pack("<Q", 4) + START.file.encode()
    out = [packets(b"\0" + event_bytes(c.ROTATE_EVENT, rotate, 0, flags=c.LOG_EVENT_ARTIFICIAL_F, timestamp=0))]
    kind, flags, timestamp, body = next(split(gzip.decompress(FILE.read_bytes())))
    raws, pos = [(kind, flags, timestamp, body), *raws], 4
    for number, (kind, flags, timestamp, body) in enumerate(raws):
        pos += HEADER.size + len(body) + _CRC
        whole = event_bytes(kind, body, pos, flags=flags & ~1, timestamp=timestamp)
        if sound is not None and number and not sound[number - 1]:
            whole = whole[:-4] + struct.pack("<I", zlib.crc32(whole) & 0xFFFFFFFF ^ 1)
        out.append(packets(b"\0" + whole))
    return b"".join(out)


@dataclass
class Reader:
    """Take events the way a drain takes them, without Kafka.

    Args:
        state: Structures of the tables.
        tolerant: Whether rows that cannot be decoded are put aside.
    """

    state: SchemaState
    tolerant: bool = False
    records: list[Any] = field(default_factory=list)
    rows: int = 0
    _tables: dict[int, RowDecoder] = field(default_factory=dict)
    _failed: list[Any] = field(default_factory=list)
    _xa: XaTransactions = field(default_factory=XaTransactions)

    def take(self, event: Event) -> None:
        kind = event.type
        if kind == c.TABLE_MAP_EVENT:
            found = parse_table_map(event)
            table = self.state.tables.get(TableId(found.db, found.table))
            if table is not None:
                check_table_map(table, found)
                self._tables[found.table_id] = decoder(table, found.raw, found.column_types, found.column_meta)
        elif kind in ROW_EVENTS:
            self._rows(event)
        elif kind in (c.QUERY_EVENT, c.EXECUTE_LOAD_QUERY_EVENT):
            ev.parse_query(event)
        elif kind in c.GTID_EVENTS:
            ev.parse_gtid(event)
        elif (parse := _PARSERS.get(kind)) is not None:
            parse(event)
        elif kind == c.XA_PREPARE_LOG_EVENT:
            self._xa.start("x", START)
            self._xa.end(event)

    def _rows(self, event: Event) -> None:
        header = rows_header(event)
        made: Any = self._tables.get(header.table_id)
        if made is None:
            return
        check_rows(event, header, len(made.table.columns))
        if self.tolerant:
            made = TolerantDecoder(made, self._failed)
        out: list[Any] = []
        ctx = EventContext(where=event.where())
        self.rows += getattr(made, METHODS[event.type])(event.buf, header.pos, event.end, ctx, out)
        for key, value, *_ in out:
            for text in (key, value):
                if text is not None:
                    json.loads(text.decode())
        self.records += out


_PARSERS = {
    c.XID_EVENT: ev.parse_xid,
    c.ROWS_QUERY_LOG_EVENT: ev.parse_rows_query,
    c.ROTATE_EVENT: ev.parse_rotate,
    c.PREVIOUS_GTIDS_LOG_EVENT: ev.parse_previous_gtids,
}
_DECODERS: dict[Any, RowDecoder] = {}


def decoder(table: Table, raw: bytes, types: bytes, meta: tuple[int, ...]) -> RowDecoder:
    """Return the decoder of a table version, made once for all examples."""
    key = (table, raw)
    if key not in _DECODERS:

        class Map:
            column_types, column_meta = types, meta

        options = DecoderOptions(unavailable_as_null=True)
        _DECODERS[key] = compile_decoder(table, Map, options, EnvelopeText())  # type: ignore[arg-type]
    return _DECODERS[key]


def read(data: bytes, state: SchemaState, *, tolerant: bool = False) -> Reader:
    """Read a stream to its end.

    Raises:
        CdcError: What the stream or its events are refused for; the recording's end is none.
    """
    reader = Reader(state, tolerant)
    with BinlogStream(Packets(data), START) as stream:
        try:
            for event in stream.events():
                reader.take(event)
        except SourceConnectionError as error:
            if "the recording" not in error.what:
                raise
    return reader


# -- changes ----------------------------------------------------------------------------------------------------------

_TELLING = [0, 1, 2, 3, 4, 12, 15, 16, 127, 128, 200, 250, 251, 252, 253, 254, 255]


@st.composite
def changed(draw: st.DrawFn, data: bytes, most: int = 3) -> bytes:
    """Draw bytes that differ from these in a few places: one byte, a number, a hole, a repeated or moved piece."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, max(len(out) - 1, 0)))
        how = draw(st.sampled_from(("byte", "telling", "number", "bit", "cut", "hole", "double", "insert", "move")))
        if how == "byte" and out:
            out[at] = draw(st.integers(0, 255))
        elif how == "telling" and out:
            out[at] = draw(st.sampled_from(_TELLING))
        elif how == "number":
            size = draw(st.sampled_from((2, 3, 4, 8)))
            value = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0xFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF)))
            out[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif how == "bit" and out:
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del out[at:]
        elif how == "insert":
            out[at:at] = draw(st.binary(min_size=1, max_size=9))
        else:
            size = draw(st.integers(1, 40))
            piece = bytes(out[at : at + size])
            if how != "double":
                del out[at : at + size]
            if how != "hole":
                to = draw(st.integers(0, len(out)))
                out[to:to] = piece
    return bytes(out)
