"""TiCDC's rows: decoded as the binlog and a snapshot give them, encoded, and read again by fastavro."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
import pytest
from kit.cases import for_each
from kit.decode_builder import column, context, image, packet, table, table_map, write
from unit.decode.test_values import date, datetime2, time2
from unit.ticdc.test_ticdc_schema import TYPE_TABLE

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Column
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import MAX_TS, CommitClock, CommitTs, commit_ts, transaction_number
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import columns_encoder, extension_text, row_options
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, value_schema

DEFAULT = TicdcModes()
TEXT = TicdcModes(decimal="string", bigint_unsigned="string")


def read_again(col: Column, row: dict[str, Any], modes: TicdcModes) -> Any:
    """Return the column's value as fastavro reads it from its encoded row."""
    made = table(col)
    data = columns_encoder(made.columns, modes)(row).encode("latin-1")
    schema = json.loads(value_schema(made, made.columns, modes))
    stream = io.BytesIO(data)
    found: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.tell() == len(data)
    return found[col.name]


def row_of(record: tuple[Any, ...]) -> dict[str, Any]:
    after: dict[str, Any] = json.loads(record[1])["after"]
    return after


def both(col: Column, wire: tuple[int, int], data: bytes, text: bytes, modes: TicdcModes = DEFAULT) -> Any:
    """Return the column's value, which must be the same from a row image and from a snapshot's row."""
    made = table(col)
    options = row_options(DecoderOptions(), modes)
    (streamed,) = write(compile_decoder(made, table_map(wire), options, EnvelopeText()), image(1, data), columns=1)
    out: list[Any] = []
    compile_text_decoder(made, options, EnvelopeText())(packet(text), 0, context(), out)
    found = [read_again(col, row_of(record), modes) for record in (streamed, out[0])]
    assert found[0] == found[1]
    return found[0]


NUL = b"\0"
DECIMAL = (wt.NEWDECIMAL, 10 | 4 << 8)


@for_each(
    ("col", "wire", "data", "text", "value"),
    [
        (column("c", "TINYINT", declared_type="BOOL"), (wt.TINY, 0), b"\x05", b"5", 5),
        (column("c", "TINYINT", unsigned=True), (wt.TINY, 0), b"\xff", b"255", 255),
        (column("c", "INT"), (wt.LONG, 0), struct.pack("<i", -7), b"-7", -7),
        (column("c", "INT", unsigned=True), (wt.LONG, 0), b"\xff" * 4, b"4294967295", 2**32 - 1),
        (column("c", "BIGINT"), (wt.LONGLONG, 0), struct.pack("<q", -(2**63)), b"-9223372036854775808", -(2**63)),
        (column("c", "FLOAT"), (wt.FLOAT, 4), struct.pack("<f", 1.1), b"1.100000023841858", 1.100000023841858),
        (column("c", "DOUBLE"), (wt.DOUBLE, 8), struct.pack("<d", 0.1), b"0.1", 0.1),
        (column("c", "YEAR"), (wt.YEAR, 0), b"\x7c", b"2024", 2024),
        (column("c", "BIT", length=10), (wt.BIT, 2 | 1 << 8), b"\x02\x01", b"\x02\x01", b"\x02\x01"),
        (column("c", "BIT", length=16), (wt.BIT, 0 | 2 << 8), b"\x00\x03", b"\x00\x03", b"\x03"),
        (column("c", "BIT", length=1), (wt.BIT, 1), b"\x01", b"\x01", b"\x01"),
        (column("c", "BIT", length=1), (wt.BIT, 1), NUL, NUL, NUL),
        (
            column("c", "ENUM", enum_values=("x", "ü"), charset="utf8mb4"),
            (wt.STRING, 0xF7 | 1 << 8),
            b"\x02",
            "ü".encode(),
            "ü",
        ),
        (
            column("c", "SET", enum_values=("a", "b", "c"), charset="utf8mb4"),
            (wt.STRING, 0xF8 | 1 << 8),
            b"\x05",
            b"a,c",
            "a,c",
        ),
        (column("c", "VARCHAR", length=20, charset="latin1"), (wt.VARCHAR, 20), b"\x01\xe9", "é".encode(), "é"),
        (column("c", "VARBINARY", length=20), (wt.VARCHAR, 20), b"\x02\x00\xff", b"\x00\xff", b"\x00\xff"),
        (column("c", "DATE"), (wt.DATE, 0), date(2024, 2, 29), b"2024-02-29", "2024-02-29"),
        (column("c", "DATE", nullable=False), (wt.DATE, 0), date(0, 0, 0), b"0000-00-00", "0000-00-00"),
        (column("c", "DATE"), (wt.DATE, 0), date(2024, 2, 31), b"2024-02-31", "2024-02-31"),
        (
            column("c", "DATETIME"),
            (wt.DATETIME2, 0),
            datetime2("9999-12-31 23:59:59"),
            b"9999-12-31 23:59:59",
            "9999-12-31 23:59:59",
        ),
        (
            column("c", "DATETIME", length=3),
            (wt.DATETIME2, 3),
            datetime2("2024-01-02 03:04:05.678", 3),
            b"2024-01-02 03:04:05.678",
            "2024-01-02 03:04:05.678",
        ),
        (
            column("c", "DATETIME", length=6),
            (wt.DATETIME2, 6),
            datetime2("0000-00-00 00:00:00.0", 6),
            b"0000-00-00 00:00:00.000000",
            "0000-00-00 00:00:00.000000",
        ),
        (
            column("c", "TIMESTAMP"),
            (wt.TIMESTAMP2, 0),
            struct.pack(">I", 1704164645),
            b"2024-01-02 03:04:05",
            "2024-01-02 03:04:05",
        ),
        (
            column("c", "TIMESTAMP", length=5),
            (wt.TIMESTAMP2, 5),
            struct.pack(">I", 1704164645) + b"\x0a\x58\xca",
            b"2024-01-02 03:04:05.67809",
            "2024-01-02 03:04:05.67809",
        ),
        (
            column("c", "TIMESTAMP", length=1, nullable=False),
            (wt.TIMESTAMP2, 1),
            NUL * 5,
            b"0000-00-00 00:00:00.0",
            "0000-00-00 00:00:00.0",
        ),
        (column("c", "TIME"), (wt.TIME2, 0), time2((838, 59, 59), 0, 0), b"838:59:59", "838:59:59"),
        (
            column("c", "TIME", length=2),
            (wt.TIME2, 2),
            time2((0, 0, 0), 10_000, 2, negative=True),
            b"-00:00:00.01",
            "-00:00:00.01",
        ),
        (column("c", "TIME", length=6), (wt.TIME2, 6), time2((1, 2, 3), 4, 6), b"01:02:03.000004", "01:02:03.000004"),
        (column("c", "DECIMAL", length=10, scale=4), DECIMAL, b"\x80\x00\x01\x00\x01", b"1.0001", Decimal("1.0001")),
        (column("c", "JSON"), (wt.JSON, 4), b"\x03\x00\x00\x00\x05\x01\x00", b"1", "1"),
        (
            column("c", "VECTOR", length=2),
            (wt.VECTOR, 4),
            b"\x08\x00\x00\x00" + struct.pack("<2f", 1, 0.1),
            struct.pack("<2f", 1, 0.1),
            "[1,0.1]",
        ),
    ],
)
@pytest.mark.req("AVRO-14", "AVRO-15")
@TYPE_TABLE
def test_values_of_every_type_are_the_servers(
    col: Column, wire: tuple[int, int], data: bytes, text: bytes, value: Any
) -> None:
    assert both(col, wire, data, text) == value


@pytest.mark.req("AVRO-50", "AVRO-51", "AVRO-52", "FAULT-30", "CFG-125", "CFG-126")
def test_the_string_modes_keep_what_long_overflows() -> None:
    huge = column("c", "BIGINT", unsigned=True)
    assert both(huge, (wt.LONGLONG, 0), b"\xff" * 8, b"18446744073709551615", TEXT) == "18446744073709551615"
    assert both(huge, (wt.LONGLONG, 0), b"\xff" * 8, b"18446744073709551615") == -1
    money = column("c", "DECIMAL", length=10, scale=4)
    assert both(money, DECIMAL, b"\x7f\xff\xfe\xff\xfe", b"-1.0001", TEXT) == "-1.0001"


def test_null_is_the_first_branch_and_refused_where_it_cannot_be() -> None:
    assert columns_encoder([column("c", "INT")], DEFAULT)({"c": None}) == "\x00"
    with pytest.raises(ValueError, match="column c is NULL"):
        columns_encoder([column("c", "INT", nullable=False)], DEFAULT)({"c": None})


def test_a_row_image_that_leaves_columns_out_is_an_error() -> None:
    made = table(column("id", "INT"), column("note", "VARCHAR", length=20, charset="utf8mb4"), key=("id",))
    wires = table_map((wt.LONG, 0), (wt.VARCHAR, 80))
    decoder = compile_decoder(made, wires, row_options(DecoderOptions(), DEFAULT), EnvelopeText())
    buf = b"\x01" + image(1, struct.pack("<i", 5))
    with pytest.raises(CdcError, match="note"):
        decoder.write(buf, 1, len(buf), context(), [])


@pytest.mark.req("AVRO-09", "AVRO-10", "AVRO-11", "AVRO-12")
def test_the_extension_is_operation_timestamp_and_its_milliseconds() -> None:
    made = table(column("id", "INT", nullable=False))
    modes = TicdcModes(extension=True)
    at = commit_ts(1_700_000_000_123_456, 7)
    data = columns_encoder(made.columns, modes)({"id": 5}) + extension_text("u", at)
    schema = fastavro.parse_schema(json.loads(value_schema(made, made.columns, modes)))
    assert fastavro.schemaless_reader(io.BytesIO(data.encode("latin-1")), schema, None) == {
        "id": 5,
        "_tidb_op": "u",
        "_tidb_commit_ts": at.value,
        "_tidb_commit_physical_time": 1_700_000_000_123,
    }


@pytest.mark.req("AVRO-11", "AVRO-12")
def test_commit_timestamps_rise_with_commits_and_differ() -> None:
    assert commit_ts(1_700_000_000_123_456, 7) == CommitTs(1_700_000_000_123 << 18 | 456 << 8 | 7)
    commits = [(1_000, 255), (1_000_999, 1), (1_000_999, 2), (1_001_000, 0), (1_001_001, 256), (1_002_000, 3)]
    values = [commit_ts(*commit).value for commit in commits]
    assert values == sorted(set(values))
    assert [commit_ts(*commit).physical_ms for commit in commits] == [us // 1000 for us, _ in commits]


def test_timestamps_rise_in_the_order_of_the_binlog() -> None:
    clock, places = CommitClock(), (("binlog.000001", pos) for pos in count(100, 100))
    plain = [(1_000_000_000_000_000 + n, n) for n in range(3)]
    assert [clock.next_ts(next(places), *commit) for commit in plain] == [commit_ts(*commit) for commit in plain]
    last = clock.last
    # Earlier times of another server, and the same time, get the next numbers; a later time gets its own.
    later = [clock.next_ts(next(places), us, 3).value for us in (900_000_000_000_000, 5, 0)]
    assert later == [last + 1, last + 2, last + 3]
    assert clock.next_ts(next(places), *plain[-1]).value == last + 4
    at = commit_ts(1_000_000_000_001_000, 9)
    assert clock.next_ts(next(places), 1_000_000_000_001_000, 9) == at
    # A time that does not fit fails its own rows only.
    assert clock.next_ts(next(places), 2**55 - 1, 0).value > MAX_TS and clock.last == at.value
    assert CommitClock(at.value).next_ts(next(places), 5, 5).value == at.value + 1


def test_a_transaction_that_is_read_again_keeps_its_timestamp() -> None:
    clock, first, second = CommitClock(), ("binlog.000001", 100), ("binlog.000001", 200)
    one = clock.next_ts(first, 5_000, 1)
    assert clock.last_before(first) == 0 and clock.last_before(second) == one.value
    assert clock.next_ts(first, 5_000, 1) == one
    two = clock.next_ts(second, 5_000, 1)
    assert two.value == one.value + 1 == clock.next_ts(second, 5_000, 1).value
    assert clock.last_before(second) == one.value


def test_behind_a_marker_timestamps_go_on_from_those_that_are_committed() -> None:
    """An earlier version may have computed others, and another server, which executed in another order."""
    here, later = ("binlog.000001", 100), ("binlog.000001", 200)
    own, committed = commit_ts(5_000, 1).value, commit_ts(5_000, 255).value
    partly = CommitClock(committed=committed)
    partly.continue_behind(here)
    assert partly.next_ts(here, 5_000, 1).value == committed < partly.next_ts(later, 5_000, 2).value
    # The rest of a transaction has the number of its first rows, whether or not another one is due.
    lower = CommitClock(own, committed=own - 1)
    lower.continue_behind(here)
    assert lower.next_ts(here, 5_000, 1).value == own - 1
    whole = CommitClock(committed=committed)
    whole.continue_behind(None)
    assert whole.next_ts(here, 5_000, 1).value == committed + 1
    # A marker of a version that kept none says nothing.
    unknown = CommitClock(own)
    unknown.continue_behind(here)
    assert unknown.next_ts(here, 5_000, 1).value == own + 1


def test_what_tells_transactions_of_one_microsecond_apart_is_the_same_on_every_server() -> None:
    uuid = "11111111-1111-1111-1111-111111111111"
    assert [transaction_number(gtid, 7) for gtid in (f"{uuid}:300", f"{uuid}:tag:9", None)] == [300, 9, 7]
