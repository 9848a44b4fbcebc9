"""Rows written as Avro at once are, byte for byte, what they are by way of JSON."""

from __future__ import annotations

import json
import logging
import struct
from datetime import datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.avro_identity import GTID, Sides
from kit.avro_rig import avro
from kit.cases import for_each
from kit.decode_builder import body, column, image, packet, table, table_map
from unit.decode.test_values import datetime2

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import encoder
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.formats import avro_rows, table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId, Secret
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition_python

pytestmark = pytest.mark.quick

T = table(
    column("id", "BIGINT", nullable=False),
    column("note", "VARCHAR", length=50, charset="utf8mb4", default="-"),
    column("amount", "DECIMAL", length=10, scale=2),
    column("at", "DATETIME", length=3, nullable=False),
    column("n", "INT", nullable=False, default="7"),
    key=("id",),
)
WIRES = ((wt.LONGLONG, 0), (wt.VARCHAR, 200), (wt.NEWDECIMAL, 10 | 2 << 8), (wt.DATETIME2, 3), (wt.LONG, 0))
MAP = table_map(*WIRES)
OPTIONS = [
    DecoderOptions(),
    DecoderOptions(contract="1.9"),
    DecoderOptions(contract="1.9", source_struct="v1"),
    DecoderOptions(tombstones=False, decimal_mode="string"),
    DecoderOptions(key_columns=("note", "amount"), decimal_mode="double"),
    DecoderOptions(key_columns=(), time_mode="connect"),
    DecoderOptions(replace_null_with_default=True, time_mode="isostring"),
    DecoderOptions(included=("note", "n"), key_fields=(("__dbz", "shop.t"),)),
]


def row(
    id_: int, note: bytes | None = b"a", cents: int | None = 100, at: str = "2024-02-29 12:34:56.7", n: int = 1
) -> bytes:
    data, nulls = struct.pack("<q", id_), 0
    data, nulls = (data + bytes([len(note)]) + note, nulls) if note is not None else (data, nulls | 2)
    if cents is None:
        nulls |= 4
    else:
        packed = struct.pack(">IB", abs(cents) // 100 | 1 << 31, abs(cents) % 100)
        data += packed if cents >= 0 else bytes(b ^ 0xFF for b in packed)
    return image(5, data + datetime2(at, 3) + struct.pack("<i", n), nulls)


ROWS = [
    row(1),
    row(-(2**63), None, None, "1000-01-01 00:00:00", -(2**31)),
    row(2**63 - 1, "ü中😀".encode(), -1, "9999-12-31 23:59:59.999", 2**31 - 1),
    row(8191, b"", 32767, "1970-01-01 00:00:00", 8192),
    row(8192, b"x" * 199, 32768, "1970-01-02 13:17:07.727", -8192),
    row(134217728, None, 99999999, "1969-12-31 23:59:59.999", -8193),
    row(134217727, b'q"\\\n\0', 12345678, "2039-09-07 15:47:35.552", 134217727),
]


def test_small_numbers_and_their_neighbours() -> None:
    for number in (
        *range(-9000, 9000),
        *(s * (1 << bits) + d for bits in range(63) for s in (1, -1) for d in (-1, 0, 1)),
    ):
        zigzag, plain = (number << 1) ^ (number >> 63), ""
        while zigzag > 0x7F:
            plain, zigzag = plain + chr(zigzag & 0x7F | 0x80), zigzag >> 7
        assert binary.varint(number) == plain + chr(zigzag), number
        if -8192 <= number < 8192:
            assert binary.SMALL[number] == plain + chr(zigzag)
    for number in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(OverflowError):
            binary.varint(number)


@for_each("options", OPTIONS)
def test_inserts_deletes_and_updates(options: DecoderOptions) -> None:
    both = Sides(T, options)
    for kind in ("write", "delete"):
        outcome = both.event(kind, MAP, *body(*ROWS, columns=5), first_row=8190)
        assert outcome is not None and outcome[0] == "records"
    pairs = [one + other for one, other in pairwise(ROWS)]
    for pair in [*pairs, ROWS[0] + row(1, b"b"), ROWS[1] + row(-(2**63), n=5)]:
        assert both.event("update", MAP, *body(pair, columns=5, images=2)) is not None


def test_a_set_of_three_bytes() -> None:
    members = column("s", "SET", charset="utf8mb4", enum_values=tuple(f"m{n}" for n in range(24)))
    both = Sides(table(column("id", "INT", nullable=False), members, key=("id",)), DecoderOptions())
    rows = [image(2, struct.pack("<i", 1) + mask.to_bytes(3, "little")) for mask in (1, 1 << 15, 1 << 16, 1 << 23)]
    outcome = both.event("write", table_map((wt.LONG, 0), (wt.STRING, wt.SET | 3 << 8)), *body(*rows, columns=2))
    assert outcome is not None and outcome[0] == "records"


def test_an_event_whose_second_row_changes_the_key() -> None:
    both = Sides(T, DecoderOptions())
    rows = ROWS[0] + row(1, b"b"), ROWS[0] + ROWS[2], ROWS[3] + row(8191, None)
    outcome = both.event("update", MAP, *body(*rows, columns=5, images=2))
    assert outcome is not None and [leg for _, _, _, leg, *_ in outcome[1]] == [0, 0, 1, 2, 0]


@for_each("options", OPTIONS)
@for_each("marker", ["true", "first", "last", "incremental"])
def test_rows_of_snapshots(options: DecoderOptions, marker: str) -> None:
    both = Sides(T, options)
    values: tuple[tuple[bytes | None, ...], ...] = (
        (b"1", b"a", b"1.00", b"2024-02-29 12:34:56.700", b"1"),
        (b"-9223372036854775808", None, None, b"0000-00-00 00:00:00.000", b"-2147483648"),
        (b"134217728", "ü中😀".encode() * 30, b"-327.68", b"1969-12-31 23:59:59.999", b"8192"),
    )
    places = [0, 1, 4] if options.included else range(5)
    for given_row in values:
        outcome = both.row(packet(*(given_row[i] for i in places)), marker)
        assert outcome is not None and outcome[0] == "records"


def test_events_without_gtid_with_their_statement_and_before_the_epochs_second_day() -> None:
    for at in (
        SimpleNamespace(gtid=None, commit_us=0, thread=0, query="INSERT INTO t /* ü */ VALUES (1)"),
        SimpleNamespace(gtid=GTID + ":tag", commit_us=1_000, thread=2**32, query=None),
        SimpleNamespace(gtid=GTID, commit_us=2**41 * 1000, thread=1, query="\ud800"),
    ):
        both = Sides(T, DecoderOptions(), at=at, include_query=at.query != "\ud800")
        outcome = both.event("write", MAP, *body(ROWS[0], columns=5))
        assert outcome is not None and outcome[0] == "records"


def test_places_and_times_of_any_size() -> None:
    sides, edges = Sides(T, OPTIONS[0]), [(1 << bits) + d for bits in range(53) for d in (-1, 0, 1)]
    encode = encoder(sides.block.layout.source_schema())
    for edge in (*edges, 8_191_999, 8_192_000):
        at = SimpleNamespace(gtid=GTID, commit_us=edge, thread=edge, query=None)
        event = SimpleNamespace(timestamp=1, server_id=edge, file="b.1", start_pos=edge)
        plain, direct = EventContext(), EventContext()
        source.fill(plain, sides.block, event, at)
        avro_source.fill(direct, sides.avro_block, event, at)
        payload = json.loads(f"{plain.src_head}0{plain.src_tail}")
        assert f"{direct.src_head}\0{direct.src_tail}" == encode(payload), edge
    now = encoder({"type": "int64", "optional": True})
    for ns in (1_795_246_498_881_590_461, 1_795_246_498_000_000_000, 1_795_246_499_999_999_999):
        wanted = "".join(now(n) for n in (ns // 1_000_000, ns // 1000, ns))
        assert sides.avro_block.op_tail(ns) == wanted


def test_times_in_microseconds_about_the_ends_of_their_parts() -> None:
    for nullable in (True, False):
        both = Sides(table(column("at", "DATETIME", length=6, nullable=nullable)), DecoderOptions())
        edges = [1 << 27, 1 << 41, 1 << 55]
        texts = [
            (datetime(1970, 1, 1) + timedelta(microseconds=edge + d)).isoformat(" ", "microseconds")
            for edge in edges
            for d in (-1, 0, 1)
        ]
        rows = [image(1, datetime2(text, 6)) for text in (*texts, "9999-12-31 23:59:59.999999")]
        outcome = both.event("write", table_map((wt.DATETIME2, 6)), *body(*rows, columns=1))
        assert outcome is not None and outcome[0] == "records"


def test_a_text_that_is_longer_than_its_type_allows_goes_by_way_of_json() -> None:
    both = Sides(table(column("c", "VARCHAR", length=1000, charset="utf8mb4")), DecoderOptions())
    texts = [b"x" * size for size in (0, 63, 64, 4000, 8191, 8192)]
    rows = [image(1, struct.pack("<H", len(text)) + text) for text in texts]
    outcome = both.event("write", table_map((wt.VARCHAR, 4000)), *body(*rows[:-1], columns=1))
    assert outcome is not None and outcome[0] == "records"
    with pytest.raises(AssertionError, match="by way of JSON, and not by intent: IndexError"):
        both.event("write", table_map((wt.VARCHAR, 4000)), *body(*rows, columns=1))


def test_more_combinations_of_nulls_than_have_functions_of_their_own() -> None:
    made = table(*(column(f"c{i}", "TINYINT") for i in range(9)))
    rows = [image(9, bytes(9 - nulls.bit_count()), nulls) for nulls in range(200)]
    outcome = Sides(made, DecoderOptions()).event("write", table_map(*[(wt.TINY, 0)] * 9), *body(*rows, columns=9))
    assert outcome is not None and len(outcome[1]) == 200


def test_a_row_image_that_leaves_columns_out_is_the_same() -> None:
    both = Sides(T, DecoderOptions(unavailable_as_null=True))
    present = bytes([0b00011]), bytes([0b10001])
    pair = image(2, struct.pack("<q", 5) + b"\x01a") + image(2, struct.pack("<qi", 5, 9))
    buf = b"head" + present[0] + present[1] + pair
    outcome = both.event("update", MAP, buf, 6, len(buf))
    assert outcome is not None


@for_each("cut", [1, 3, 9, 12])
def test_damaged_rows_are_the_same_error(cut: int) -> None:
    both = Sides(T, DecoderOptions())
    outcome = both.event("write", MAP, *body(*ROWS[:2], ROWS[2][:-cut], columns=5))
    assert outcome is not None and outcome[0] == "ValueDecodeError"
    for bad in (b"\xff\xfe", b"\xed\xa0\x80"):
        outcome = both.event("write", MAP, *body(row(1, bad), columns=5))
        assert outcome is not None and outcome[0] == "ValueDecodeError"
        outcome = both.row(packet(b"1", bad, b"1.00", b"2024-02-29 12:34:56.700", b"1"))
        assert outcome is not None and outcome[0] == "ValueDecodeError"


def test_null_in_a_not_null_column_is_the_same_error() -> None:
    both = Sides(T, DecoderOptions())
    data = struct.pack("<q", 1) + b"\x01a" + struct.pack(">IB", 1 << 31, 0) + datetime2("2024-01-01", 3)
    outcome = both.event("write", MAP, *body(image(5, data, 16), columns=5))
    assert outcome is not None and "n is null, and its schema is not optional" in outcome[1]


def treated(change: ValueChange, *names: str) -> DecoderOptions:
    return DecoderOptions(treatments=tuple((name, ColumnTreatment(change=change)) for name in names))


CHANGES = [
    ValueChange(ValueChangeKind.CONSTANT, text="***"),
    ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=2),
    ValueChange(ValueChangeKind.HASH, algorithm="sha256", salt=Secret("s")),
    ValueChange(ValueChangeKind.HASH_V2, algorithm="sha256", salt=Secret("s"), length=5),
]


@for_each("change", CHANGES)
def test_values_that_are_masked_hashed_or_cut(change: ValueChange) -> None:
    both = Sides(T, treated(change, "note"))
    assert both.event("write", MAP, *body(*ROWS, columns=5)) is not None
    values = (b"1", "ü中".encode(), b"1.00", b"2024-02-29 12:34:56.700", b"1")
    chosen = [v for i, v in enumerate(values) if i != 1] if change.kind is ValueChangeKind.CONSTANT else values
    for given_row in (chosen, [None if v == values[1] else v for v in chosen]):
        assert both.row(packet(*given_row)) is not None


@pytest.mark.parametrize("mode", ["bytes", "base64"])
def test_members_of_bytes_are_text(mode: str) -> None:
    made = table(column("e", "ENUM", charset="binary", collation="binary", enum_values=("a", "ÿ\x01")))
    both = Sides(made, DecoderOptions(binary_mode=mode))
    for value in (b"a", b"\xff\x01"):
        assert both.row(packet(value)) is not None


def test_a_key_that_is_shown_otherwise_in_the_value_goes_by_way_of_json(caplog: pytest.LogCaptureFixture) -> None:
    made = table(column("id", "VARCHAR", length=9, charset="utf8mb4", nullable=False), key=("id",))
    both = Sides(made, treated(CHANGES[2], "id"))
    assert both.event("write", table_map((wt.VARCHAR, 36)), *body(image(1, b"\x01a"), columns=1)) is None
    assert both.row(packet(b"a")) is None


BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


@pytest.mark.parametrize(
    ("more", "parts", "said"),
    [
        ({}, (), None),
        ({}, ("value",), "keys or values"),
        ({"provide.transaction.metadata": "true"}, (), "provide.transaction.metadata"),
        ({"column.mask.hash.SHA-256.with.salt.s": "db.t.note", "message.key.columns": "db.t:note"}, (), "column note"),
    ],
)
def test_which_way_a_table_goes_is_said(
    more: dict[str, str], parts: tuple[str, ...], said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = ConnectorConfig.from_properties(BASE | avro("http://r:1", *parts) | more)
    options = table_options.table_options(cfg, T)
    form = RecordFormats(cfg, lambda *_: SchemaId(7)).table_format(T, options, "topic")
    with caplog.at_level(logging.DEBUG, logger=avro_rows.__name__):
        made = avro_rows.create_avro_rows(cfg, form, T, MAP, options, table_options.envelope_text(cfg, T, options))
        text = avro_rows.create_text_rows(cfg, form, T, options)
    assert (made is not None) == text.writes_avro == (said is None)
    if said is None:
        assert "rows of db.t are decoded directly to Avro" in caplog.text
    else:
        assert "rows of db.t are converted to Avro via JSON: " in caplog.text and said in caplog.text


def test_a_writer_of_a_shared_topic_writes_its_own_rows_and_all_of_a_changed_key() -> None:
    cfg = ConnectorConfig.from_properties(BASE | avro("http://r:1"))
    options = table_options.table_options(cfg, T)
    form = RecordFormats(cfg, lambda *_: SchemaId(7)).table_format(T, options, "topic")
    given = cfg, form, T, MAP, options, table_options.envelope_text(cfg, T, options), None
    mine = OwnedKeys(3, frozenset({1}), partition_python)
    every, own = avro_rows.create_avro_rows(*given), avro_rows.create_avro_rows(*given, mine)
    assert every is not None and own is not None

    def records(made: avro_rows.AvroRows, kind: str, rows: list[bytes], images: int = 1) -> list[Any]:
        out: list[Any] = []
        _, ctx = Sides(T, DecoderOptions()).contexts()
        assert getattr(made, kind)(*body(*rows, columns=5, images=images), ctx, out) == len(rows) // images
        return out

    for kind, images in (("write", 1), ("update", 2), ("delete", 1)):
        rows = [row(n, b"x" * (n % 5)) for n in range(30) for _ in range(images)]
        found, wanted = (records(made, kind, rows, images) for made in (own, every))
        assert found == [record for record in wanted if mine.owns(record[0])] and 0 < len(found) < len(wanted)
    changed = [row(1), row(1), row(2), row(3)]
    found, wanted = (records(made, "update", changed, 2) for made in (own, every))
    assert found == [record for record in wanted if record[2] == 1 or mine.owns(record[0])] and len(wanted) == 4


def test_a_row_that_cannot_be_written_at_once_is_written_by_way_of_json_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = Sides(T, DecoderOptions())

    class Broken:
        table, native = T, False

        def write(self, *_: Any) -> int:
            raise avro_rows.FallbackToJson(ValueError("no"))

        update = delete = write

    made = avro_rows.AvroRows(Broken(), lambda: compiled(both), both.form)  # type: ignore[arg-type]
    _, ctx = both.contexts()
    out: list[Any] = []
    for _ in range(2):
        made.write(*body(ROWS[0], columns=5), ctx, out)
    assert len(out) == 2
    assert caplog.text.count("rows of db.t are converted to Avro via JSON: ValueError('no')") == 1


def compiled(both: Sides) -> Any:
    from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder

    return compile_decoder(both.table, MAP, both.options, both.texts)


INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            row,
            INT64,
            st.none() | st.text(max_size=12).map(lambda s: s.encode("utf-8", "replace")),
            st.none() | st.integers(-(10**10) + 1, 10**10 - 1),
            st.builds(
                "{:04d}-{:02d}-{:02d} {:%H:%M:%S.%f}".format,
                st.integers(1000, 9999),
                st.integers(1, 12),
                st.integers(1, 28),
                st.times(),
            ).map(lambda text: text[:-3]),
            st.integers(-(2**31), 2**31 - 1),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(OPTIONS),
    st.integers(0, 10_000),
)
def test_any_rows(rows: list[bytes], options: DecoderOptions, first_row: int) -> None:
    both = Sides(T, options)
    for kind in ("write", "delete"):
        both.event(kind, MAP, *body(*rows, columns=5), first_row=first_row)
    both.event("update", MAP, *body(*(r for r in rows for _ in "12"), columns=5, images=2), first_row=first_row)


def test_a_fraction_of_more_digits_than_it_should_have_has_its_stated_length() -> None:
    """Three bytes hold seven digits, in damaged rows; the length of a TIMESTAMP's text stands before it."""
    made = table(column("id", "INT", nullable=False), column("t", "TIMESTAMP", length=6), key=("id",))
    announced = table_map((wt.LONG, 0), (wt.TIMESTAMP2, 6))
    both = Sides(made, DecoderOptions())
    for fraction in (999_999, 1_000_000, 0xFFFFFF):
        row = image(2, b"\1\0\0\0" + b"\x65\x00\x00\x00" + fraction.to_bytes(3, "big"))
        (record,) = (both.event("write", announced, *body(row, columns=2)) or ("", ()))[1]
        both.read(record[1], both.avro[1])
