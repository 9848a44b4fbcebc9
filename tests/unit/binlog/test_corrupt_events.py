"""Bytes that no server writes end in a named error: at once, and without taking memory for what is not there."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from kit.binlog_bytes import HEADER, Dump, event_bytes, format_body, packets, payload_body, stream_of
from kit.cases import for_each
from kit.decode_builder import body, column, context, image, table, table_map
from kit.json_builder import document

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import control_events as control
from airflow_provider_mysql_cdc.cdc.binlog.control_events import decompress_events
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import (
    parse_gtid,
    parse_previous_gtids,
    parse_query,
    parse_rotate,
    parse_xid,
)
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import UPDATE_ROWS, WRITE_ROWS, check_rows, rows_header
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import TolerantDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import json_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import read_tree
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, CdcError, UnsupportedEventError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

START = BinlogOffset("binlog.000001", 4)
ROOT = Path(__file__).resolve().parents[3]


def event(kind: int, data: bytes) -> Event:
    raw = event_bytes(kind, data, 0, crc=False)
    return Event(kind, 0, 1, 0, "binlog.000001", 4711, 4711 + len(raw), raw, HEADER.size, len(raw))


# -- row events -------------------------------------------------------------------------------------------------------

T = table(*(column(name, "INT", default=value, stored_default=value) for name, value in ("a1", "b2")), key=())
MAP = table_map((wt.LONG, 0), (wt.LONG, 0))


def rows_event(kind: int, width: int, present: bytes, rows: bytes, extra: int = 2) -> Event:
    return event(kind, struct.pack("<IHHHB", 7, 0, 1, extra, width) + present + rows)


ONE = image(2, struct.pack("<ii", 3, 4))


@for_each("width", [0, 1, 3, 8, 9])
def test_a_row_event_has_the_width_of_its_table(width: int) -> None:
    given = rows_event(WRITE_ROWS, width, b"\xff" * ((width + 7) // 8), ONE)
    with pytest.raises(BinlogCorruptError) as caught:
        check_rows(given, rows_header(given), 2)
    assert caught.value.where == "binlog.000001:4711" and "columns" in caught.value.why


@for_each(
    ("kind", "present", "rows", "why"),
    [
        (WRITE_ROWS, b"\x00", ONE, "no columns"),
        (WRITE_ROWS, b"\xfc", ONE, "no columns"),
        (UPDATE_ROWS, b"\x00\x00", ONE, "no columns"),
        (UPDATE_ROWS, b"\x00\x00", b"", "no columns"),
        (32, b"\x00", b"", "no columns"),
        (WRITE_ROWS, b"\x03", b"", "no rows"),
        (WRITE_ROWS, b"\x02", b"", "no rows"),
    ],
)
def test_rows_without_columns_are_refused(kind: int, present: bytes, rows: bytes, why: str) -> None:
    given = rows_event(kind, 2, present, rows)
    with pytest.raises(BinlogCorruptError, match=why):
        check_rows(given, rows_header(given), 2)


@for_each("present", [b"\x03", b"\xff", b"\x01", b"\x02"])
def test_rows_of_some_columns_pass(present: bytes) -> None:
    given = rows_event(WRITE_ROWS, 2, present, ONE)
    check_rows(given, rows_header(given), 2)


@pytest.mark.parametrize("extra", [0, 1])
def test_extra_data_counts_its_own_length(extra: int) -> None:
    with pytest.raises(BinlogCorruptError):
        rows_header(rows_event(WRITE_ROWS, 2, b"\x03", ONE, extra))


def test_an_insert_that_names_no_column_is_one_row_of_defaults() -> None:
    given = rows_event(WRITE_ROWS, 2, b"\x00", b"")
    header = rows_header(given)
    check_rows(given, header, 2)
    out: list[Any] = []
    made = compile_decoder(T, MAP, DecoderOptions(), EnvelopeText())
    assert made.write(given.buf, header.pos, given.end, context(), out) == 1
    assert [json.loads(value)["after"] for _, value, *_ in out] == [{"a": 1, "b": 2}]


def test_a_row_of_defaults_that_cannot_be_recognised_is_not_lost() -> None:
    given = rows_event(WRITE_ROWS, 2, b"\x00", b"")
    failed: list[Any] = []
    unknown = table(*(replace(each, stored_default=None) for each in T.columns), key=())
    made = TolerantDecoder(compile_decoder(unknown, MAP, DecoderOptions(), EnvelopeText()), failed)
    assert made.write(given.buf, rows_header(given).pos, given.end, context(), []) == 1
    assert len(failed) == 1


@for_each("tolerant", [False, True])
@for_each("images", [1, 2])
def test_the_decoder_does_not_loop_over_rows_without_bytes(images: int, tolerant: bool) -> None:
    buf = b"\0" * images + bytes(9)
    made: Any = compile_decoder(T, MAP, DecoderOptions(), EnvelopeText())
    made = TolerantDecoder(made, []) if tolerant else made
    with pytest.raises(ValueDecodeError):
        (made.write if images == 1 else made.update)(buf, images, len(buf), context(), [])


@pytest.mark.parametrize("value", [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"], ids=["nan", "infinite"])
def test_a_float_that_mysql_cannot_store_is_refused(value: bytes) -> None:
    made = compile_decoder(table(column("f", "FLOAT")), table_map((wt.FLOAT, 4)), DecoderOptions(), EnvelopeText())
    buf, pos, end = body(image(1, value), columns=1)
    with pytest.raises(ValueDecodeError, match="column f"):
        made.write(buf, pos, end, context(), [])


# -- binary JSON ------------------------------------------------------------------------------------------------------


def shared(depth: int) -> bytes:
    """Return nested arrays of two cells that both point to the next array: a text of 2**depth cells."""
    cell = struct.pack("<HHBHBH", 2, 10, 2, 10, 2, 10)
    return b"\x02" + cell * depth + struct.pack("<HH", 0, 4)


def same_string(cells: int, size: int) -> bytes:
    entries = struct.pack("<BI", 12, 8 + 5 * cells) * cells
    string = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + b"x" * size
    return b"\x03" + struct.pack("<II", cells, 8 + len(entries) + len(string)) + entries + string


def same_name(members: int, size: int) -> bytes:
    keys = struct.pack("<IH", 8 + 11 * members, size) * members
    values = struct.pack("<BI", 4, 1) * members
    return b"\x01" + struct.pack("<II", members, 0) + keys + values + b"k" * size


@for_each("read", [json_byte_text, read_tree])
@for_each("data", [shared(90), same_string(50_000, 500_000), same_name(50_000, 60_000)], ids=len)
def test_values_of_a_document_cannot_overlap(read: Any, data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="overlap"):
        read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(data) + (1 << 20)


def test_a_document_of_one_long_value_has_its_bytes() -> None:
    value = {"k" * 300: ["s" * 70_000, {"n" * 200: 1}], "m": "t" * 500}
    assert json.loads(json_byte_text(document(value))) == value


@for_each(
    "data",
    [
        b"\x0c" + b"\xff" * 20,
        b"\x0b" + struct.pack("<d", float("nan")),
        b"\x0f\xf6\x03\x05\x09\x80",
        b"\x0f\xf6\x02\x00\x00",
        b"\x0f\x0a\x02\x00\x00",
        b"\x00" + struct.pack("<HHHHBH", 1, 11, 0xFFF0, 5, 4, 1),
    ],
    ids=["length", "nan", "scale", "precision", "date", "name"],
)
def test_a_damaged_document_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # the decoder adds column and place
        json_byte_text(data)


# -- compressed transactions ------------------------------------------------------------------------------------------

PROBE = """
import resource, sys
import zstandard
sys.path[:0] = {paths!r}
from kit.binlog_bytes import HEADER, event_bytes, payload_body
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.control_events import decompress_events
from airflow_provider_mysql_cdc.cdc.errors import CdcError

def compressed(pieces):
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join([*(packer.compress(p) for p in pieces), packer.flush()])

zeros = bytes(1 << 20)
one = event_bytes(c.WRITE_ROWS_EVENT_V2, zeros, 0, crc=False)
lying = HEADER.pack(0, 30, 1, {claim}, 0, 0)
inner, size = {{
    "honest": lambda: (compressed([one] * 300), 300 * len(one)),
    "untold": lambda: (compressed([one] * 300), 0),
    "lying event": lambda: (compressed([lying] + [zeros] * 300), 0),
    "lying event and size": lambda: (compressed([lying] + [zeros] * 300), {claim}),
    "more than told": lambda: (compressed([one] * 300), 3 * len(one)),
}}[{case!r}]()
body = payload_body(inner, size=size)
raw = event_bytes(c.TRANSACTION_PAYLOAD_EVENT, body, 0, crc=False)
event = Event(40, 0, 1, 0, "binlog.000001", 4, 5, raw, HEADER.size, len(raw))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = 0
try:
    for _ in decompress_events(event):
        count += 1
    end = "complete"
except CdcError as error:
    end = type(error).__name__
print(len(inner), count, end, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@for_each(
    ("case", "claim", "count", "end"),
    [
        ("honest", 0, 300, "complete"),
        ("untold", 0, 300, "complete"),
        ("lying event", 0xFFFFFFFF, 0, "BinlogCorruptError"),
        ("lying event and size", 0xFFFFFFFF, 0, "BinlogCorruptError"),
        ("more than told", 0, 3, "BinlogCorruptError"),
    ],
)
def test_memory_stays_flat_however_large_a_compressed_transaction_is(
    case: str, claim: int, count: int, end: str
) -> None:
    code = PROBE.format(paths=[str(ROOT), str(ROOT / "tests")], claim=claim, case=case)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env={**os.environ}
    )
    size, found, how, grown_mb = done.stdout.split()
    assert (int(found), how) == (count, end) and int(size) < 200_000
    assert int(grown_mb) < 40


@for_each(
    "data",
    [
        b"\x02\x01",
        b"\x01\xfd\xff\xff\xff\x05\x00",
        b"\x01\x09\xfe" + b"\xff" * 8 + b"\x00",
        b"\x02\xfe" + b"\xff" * 8,
    ],
)
def test_fields_of_a_payload_outside_of_it_are_refused(data: bytes) -> None:
    with pytest.raises(BinlogCorruptError, match="compressed transaction"):
        list(decompress_events(event(c.TRANSACTION_PAYLOAD_EVENT, data)))


def test_a_payload_inside_a_payload_is_refused() -> None:
    inner = event_bytes(c.TRANSACTION_PAYLOAD_EVENT, b"", 0, crc=False)
    nested = payload_body(zstandard.ZstdCompressor().compress(inner), size=len(inner))
    dump = Dump().begin().add(c.TRANSACTION_PAYLOAD_EVENT, nested)
    with stream_of(dump.data, START) as stream, pytest.raises(UnsupportedEventError):
        list(stream.events(dump.offset()))


# -- other events -----------------------------------------------------------------------------------------------------

GTID = bytes(17) + struct.pack("<q", 0) + b"\x02" + bytes(16)
DAMAGED: list[tuple[str, Any, int, bytes]] = [
    ("rotate, empty", parse_rotate, c.ROTATE_EVENT, b""),
    ("rotate, no name", parse_rotate, c.ROTATE_EVENT, bytes(8)),
    ("rotate, no text", parse_rotate, c.ROTATE_EVENT, bytes(8) + b"\xff\xfe.000001"),
    ("rotate, no number", parse_rotate, c.ROTATE_EVENT, bytes(8) + b"binlog"),
    ("xid, short", parse_xid, c.XID_EVENT, bytes(7)),
    ("gtid, short", parse_gtid, c.GTID_LOG_EVENT, bytes(5)),
    ("gtid, number 0", parse_gtid, c.GTID_LOG_EVENT, GTID),
    ("gtid, time", parse_gtid, c.ANONYMOUS_GTID_LOG_EVENT, GTID + b"\xff" * 14 + b"\xfc"),
    ("tagged gtid, empty", parse_gtid, c.GTID_TAGGED_LOG_EVENT, b""),
    ("tagged gtid, no uuid", parse_gtid, c.GTID_TAGGED_LOG_EVENT, b"\x00\x06\x00"),
    ("tagged gtid, uuid", parse_gtid, c.GTID_TAGGED_LOG_EVENT, b"\x00\x12\x00\x02\xfd\x03" + bytes(9)),
    ("previous gtids, short", parse_previous_gtids, c.PREVIOUS_GTIDS_LOG_EVENT, b"\x01" + bytes(9)),
    ("previous gtids, empty interval", parse_previous_gtids, c.PREVIOUS_GTIDS_LOG_EVENT,
     struct.pack("<Q16sQQQ", 1, b"", 1, 5, 5)),
    ("query, short", parse_query, c.QUERY_EVENT, bytes(12)),
    ("query, outside", parse_query, c.QUERY_EVENT, struct.pack("<IIBHH", 1, 1, 200, 0, 0) + b"\0"),
    ("query, status", parse_query, c.QUERY_EVENT, struct.pack("<IIBHH", 1, 1, 0, 0, 2) + b"\x02\xff\0"),
    ("table map, empty", parse_table_map, c.TABLE_MAP_EVENT, b""),
    ("table map, no default", parse_table_map, c.TABLE_MAP_EVENT, bytes(8) + b"\1d\0\1t\0\1\3\0\0" + b"\2\0"),
    ("table map, half a pair", parse_table_map, c.TABLE_MAP_EVENT, bytes(8) + b"\1d\0\1t\0\1\3\0\0" + b"\2\2\1\0"),
    ("table map, names", parse_table_map, c.TABLE_MAP_EVENT, bytes(8) + b"\1d\0\1t\0\1\3\0\0" + b"\4\4\1a\1b"),
    ("table map, prefix", parse_table_map, c.TABLE_MAP_EVENT, bytes(8) + b"\1d\0\1t\0\1\3\0\0" + b"\2\1\xff"),
    ("format, short", control.parse_format_description, c.FORMAT_DESCRIPTION_EVENT, b"\4\0"),
    ("heartbeat, no text", lambda e: control.parse_heartbeat(e, 4), c.HEARTBEAT_LOG_EVENT, b"\xff\xfe"),
    ("heartbeat 2, cut", lambda e: control.parse_heartbeat(e, 4), c.HEARTBEAT_LOG_EVENT_V2, b"\1\xfc"),
]  # fmt: skip


@for_each(("parse", "kind", "data"), [d[1:] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_a_damaged_event_is_named_with_its_place(parse: Any, kind: int, data: bytes) -> None:
    with pytest.raises(BinlogCorruptError) as caught:
        parse(event(kind, data))
    assert caught.value.where == "binlog.000001:4711" and caught.value.remedy


# -- the stream -------------------------------------------------------------------------------------------------------


def refused(data: bytes) -> CdcError:
    with stream_of(data, START) as stream, pytest.raises(CdcError) as caught:
        list(stream.events())
    return caught.value


def test_a_packet_shorter_than_an_event_is_refused_whatever_follows() -> None:
    begun = Dump(crc=False).begin()
    size = 12
    short = b"\0" + struct.pack("<IBII", 0, c.XID_EVENT, 1, size)[:size]
    assert isinstance(refused(bytes(begun.data) + packets(short) + bytes([0]) * 64), BinlogCorruptError)


@pytest.mark.parametrize("name", [b"binlog", b"\xff\xff.000001", b""])
def test_a_rotate_to_no_file_is_refused(name: bytes) -> None:
    dump = Dump().begin().add(c.ROTATE_EVENT, struct.pack("<Q", 4) + name)
    assert isinstance(refused(bytes(dump.data)), BinlogCorruptError)


@for_each("cut", [1, 40, 57, 60])
def test_a_format_that_is_cut_off_is_refused(cut: int) -> None:
    raw = event_bytes(c.FORMAT_DESCRIPTION_EVENT, format_body()[:cut], 0)
    assert isinstance(refused(packets(b"\0" + raw)), CdcError)


def test_a_payload_of_many_packets_is_not_read_beyond_what_its_event_says() -> None:
    full = b"\xff\xff\xff\x00"
    head = b"\0" + HEADER.pack(0, c.QUERY_EVENT, 1, 20_000_000, 0, 0)
    pieces = [bytes(Dump().begin().data), full + head.ljust(0xFFFFFF, b"\0")]
    served = 0

    def endless() -> Any:
        nonlocal served
        yield from pieces
        for _ in range(100):
            served += 1
            yield full + bytes(0xFFFFFF)

    with stream_of(endless(), START) as stream, pytest.raises(BinlogCorruptError, match="length"):
        list(stream.events())
    assert served < 5
