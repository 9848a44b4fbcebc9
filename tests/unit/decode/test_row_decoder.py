"""Row events: headers, images, updates, key changes, tombstones, contracts and failures."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import DEFAULT, NO_SCHEMA, body, column, context, image, python_decoder, table, table_map, write

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import PARTIAL_UPDATE_ROWS, rows_header
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import header_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import MAX_BITMAPS
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    SchemaMismatchError,
    UnsupportedEventError,
    ValueDecodeError,
)
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

T = table(
    column("id", "INT", nullable=False),
    column("name", "VARCHAR", length=20, charset="utf8mb4"),
    column("price", "DECIMAL", length=10, scale=2),
    key=("id",),
)
MAP = table_map((wt.LONG, 0), (wt.VARCHAR, 80), (wt.NEWDECIMAL, 10 | 2 << 8))


def row(number: int, name: str | None = "n", cents: int | None = 1) -> bytes:
    nulls = (2 if name is None else 0) | (4 if cents is None else 0)
    data = struct.pack("<i", number)
    if name is not None:
        data += bytes([len(name.encode())]) + name.encode()
    if cents is not None:
        data += struct.pack(">IB", cents // 100 | 1 << 31, cents % 100)
    return image(3, data, nulls)


def decoder(options: DecoderOptions = DEFAULT, texts: EnvelopeText = NO_SCHEMA, made: Any = T) -> RowDecoder:
    return compile_decoder(made, MAP, options, texts)


def update(made: RowDecoder, *rows: bytes) -> list[Any]:
    out: list[Any] = []
    buf, pos, end = body(*rows, columns=len(made.table.columns), images=2)
    assert made.update(buf, pos, end, context(), out) == len(rows) // 2
    return out


def delete(made: RowDecoder, *rows: bytes) -> list[Any]:
    out: list[Any] = []
    buf, pos, end = body(*rows, columns=len(made.table.columns))
    assert made.delete(buf, pos, end, context(), out) == len(rows)
    return out


@pytest.mark.req("EVT-20", "EVT-22", "EVT-24")
def test_insert_gives_one_create_a_row_in_order() -> None:
    records = write(decoder(), row(1, "ünï"), row(2, None), row(3, "c", None), columns=3)
    assert records == [
        (
            b'{"id":1}',
            '{"before":null,"after":{"id":1,"name":"ünï","price":"AQ=="},"source":{"row":0},"transaction":null,'
            '"op":"c","ts_ms":7}'.encode(),
            0,
            0,
            None,
            None,
        ),
        (
            b'{"id":2}',
            b'{"before":null,"after":{"id":2,"name":null,"price":"AQ=="},"source":{"row":1},"transaction":null,'
            b'"op":"c","ts_ms":7}',
            1,
            0,
            None,
            None,
        ),
        (
            b'{"id":3}',
            b'{"before":null,"after":{"id":3,"name":"c","price":null},"source":{"row":2},"transaction":null,'
            b'"op":"c","ts_ms":7}',
            2,
            0,
            None,
            None,
        ),
    ]


@pytest.mark.req("EVT-25")
def test_update_has_both_images() -> None:
    (record,) = update(decoder(), row(1, "old", None), row(1, "new", 200))
    assert record[0] == b'{"id":1}'
    assert record[1] == (
        b'{"before":{"id":1,"name":"old","price":null},"after":{"id":1,"name":"new","price":"AMg="},'
        b'"source":{"row":0},"transaction":null,"op":"u","ts_ms":7}'
    )


@pytest.mark.req("EVT-26", "EVT-31", "EVT-32", "DIS-08")
def test_delete_is_followed_by_a_tombstone_unless_switched_off() -> None:
    records = delete(decoder(), row(1), row(2))
    assert [(r[0], r[1] is None, r[2], r[3]) for r in records] == [
        (b'{"id":1}', False, 0, 0),
        (b'{"id":1}', True, 0, 1),
        (b'{"id":2}', False, 1, 0),
        (b'{"id":2}', True, 1, 1),
    ]
    value = json.loads(records[0][1])
    assert (value["before"], value["after"], value["op"]) == ({"id": 1, "name": "n", "price": "AQ=="}, None, "d")
    assert len(delete(decoder(DecoderOptions(tombstones=False)), row(1), row(2))) == 2


@pytest.mark.req("EVT-28", "EVT-29", "EVT-30")
def test_a_key_change_is_delete_tombstone_create_with_headers() -> None:
    first, tombstone, create = update(decoder(), row(1, "a"), row(2, "b"))
    new, old = ("__debezium.newkey", b'{"id":2}'), ("__debezium.oldkey", b'{"id":1}')
    assert (first[0], first[2:]) == (b'{"id":1}', (0, 0, new, None))
    assert tombstone == (b'{"id":1}', None, 0, 1, new, None)
    assert (create[0], create[2:]) == (b'{"id":2}', (0, 2, old, None))
    assert json.loads(first[1])["op"] == "d" and json.loads(first[1])["after"] is None
    assert json.loads(create[1])["op"] == "c" and json.loads(create[1])["before"] is None
    without = update(decoder(DecoderOptions(tombstones=False)), row(1, "a"), row(2, "b"))
    assert [r[3] for r in without] == [0, 2]


def test_headers_of_a_key_change_are_written_as_simple_header_converter_does() -> None:
    made = decoder(DecoderOptions(key_columns=("name", "price")))
    records = update(made, row(1, 'q"\\\n😀', 150), row(1, None, 151))
    assert records[0][4] == ("__debezium.newkey", b'{"name":null,"price":1.51}')
    assert records[2][4] == ("__debezium.oldkey", '{"name":"q\\"\\\\\n😀","price":1.50}'.encode())
    assert records[0][0] == b'{"name":"q\\"\\\\\\n\\uD83D\\uDE00","price":"AJY="}'


@for_each(
    ("kind", "value", "expected"),
    [
        ("DATE", 20089, "2025-01-01"),
        ("DATE", 0, "00:00:00.000Z"),
        ("TIME", 45296789, "12:34:56.789Z"),
        ("DATETIME", 1735689600000, "2025-01-01"),
        ("DATETIME", 1735689600900, "2025-01-01T00:00:00.900Z"),
        ("DATETIME", -1, "23:59:59.999Z"),
    ],
)
def test_headers_of_a_key_change_print_dates_of_connect_mode_as_java_does(kind: str, value: int, expected: str) -> None:
    columns = [column("k", kind)]
    connect = DecoderOptions(time_mode="connect")
    assert header_text(f'{{"k":{value}}}', columns, connect) == f'{{"k":{expected}}}'.encode()
    assert header_text(f'{{"k":{value}}}', columns, DecoderOptions()) == f'{{"k":{value}}}'.encode()


@pytest.mark.req("EVT-08", "EVT-31")
def test_a_table_without_a_key_has_null_keys_also_on_tombstones() -> None:
    made = decoder(made=replace(T, primary_key=()))
    assert [r[0] for r in write(made, row(1), columns=3)] == [None]
    assert [(r[0], r[1] is None) for r in delete(made, row(1))] == [(None, False), (None, True)]
    (record,) = update(made, row(1), row(2))
    assert record[0] is None and json.loads(record[1])["op"] == "u"


@pytest.mark.req("STRM-15", "CFG-66")
def test_skipped_operations_give_nothing_but_a_key_change_goes_with_updates() -> None:
    made = decoder(DecoderOptions(skipped_ops=frozenset("cd")))
    out: list[Any] = []
    buf, pos, end = body(row(1), columns=3)
    assert made.write(buf, pos, end, context(), out) == made.delete(buf, pos, end, context(), out) == 0
    assert out == []
    assert len(update(made, row(1), row(2))) == 3
    skipped = decoder(DecoderOptions(skipped_ops=frozenset("u")))
    buf, pos, end = body(row(1), row(1), columns=3, images=2)
    assert skipped.update(buf, pos, end, context(), out) == 0 and out == []


def test_key_and_value_carry_their_schema_when_asked_for() -> None:
    made = decoder(texts=EnvelopeText('{"k":"ü"}', '{"v":1}'))
    for record in write(made, row(1), columns=3) + update(made, row(1), row(1)) + delete(made, row(1))[:1]:
        assert record[0] == '{"schema":{"k":"ü"},"payload":{"id":1}}'.encode()
        value = json.loads(record[1])
        assert list(value) == ["schema", "payload"] and value["schema"] == {"v": 1}
        assert list(value["payload"]) == ["before", "after", "source", "transaction", "op", "ts_ms"]


@pytest.mark.req("EVT-21", "EVT-14")
def test_contract_1_9_has_a_transaction_member_only_with_transaction_metadata() -> None:
    made = decoder(DecoderOptions(contract="1.9"))
    (record,) = write(made, row(1), columns=3)
    assert list(json.loads(record[1])) == ["before", "after", "source", "op", "ts_ms"]
    made = decoder(DecoderOptions(contract="1.9", transaction=True))
    (record,) = write(made, row(1), columns=3, ctx=context(transaction='{"id":"x"}'))
    assert list(json.loads(record[1])) == ["before", "after", "source", "op", "ts_ms", "transaction"]


def test_text_around_the_rows_may_hold_any_character() -> None:
    ctx = context(transaction='{"id":"ü😀"}', first_row=5)
    ctx.src_head = '{"query":"é\'{}\\\\","row":'
    (record,) = write(decoder(), row(1, "ß"), columns=3, ctx=ctx)
    value = json.loads(record[1])
    assert value["source"] == {"query": "é'{}\\", "row": 5}
    assert value["transaction"] == {"id": "ü😀"} and value["after"]["name"] == "ß"
    assert record[2] == 5


def test_column_names_may_hold_any_character() -> None:
    names = ("a'b", 'q"{x}', "ü😀\\n")
    made = table(*(column(n, "INT") for n in names), key=(names[1],))
    decoder = compile_decoder(made, table_map(*[(wt.LONG, 0)] * 3), DEFAULT, NO_SCHEMA)
    (record,) = write(decoder, image(3, struct.pack("<iii", 1, 2, 3)), columns=3)
    assert json.loads(record[1])["after"] == dict(zip(names, (1, 2, 3), strict=True))
    assert json.loads(record[0]) == {names[1]: 2}


@pytest.mark.req("COL-13", "COL-02")
def test_only_included_columns_go_into_the_value_but_the_key_keeps_its_own() -> None:
    made = decoder(DecoderOptions(included=("PRICE",)))
    (record,) = write(made, row(4, "x", 3), columns=3)
    assert (record[0], json.loads(record[1])["after"]) == (b'{"id":4}', {"price": "Aw=="})
    none = decoder(DecoderOptions(included=("name",), key_columns=()))
    (record,) = write(none, row(4, "x", 3), columns=3)
    assert (record[0], json.loads(record[1])["after"]) == (None, {"name": "x"})


def test_many_columns_need_several_bitmap_bytes() -> None:
    columns = [column(f"c{i}", "TINYINT") for i in range(19)]
    made = compile_decoder(table(*columns), table_map(*[(wt.TINY, 0)] * 19), DEFAULT, NO_SCHEMA)
    nulls = 1 << 0 | 1 << 8 | 1 << 18
    rows = [image(19, bytes(range(16)), nulls), image(19, bytes(range(19))), image(19, bytes(range(16)), nulls)]
    afters = [list(json.loads(r[1])["after"].values()) for r in write(made, *rows, columns=19)]
    with_nulls = [None, *range(7), None, *range(7, 16), None]
    assert afters == [with_nulls, list(range(19)), with_nulls]


def test_more_null_patterns_than_have_code_of_their_own_still_decode() -> None:
    texts = [column(f"t{i}", "VARCHAR", length=5, charset="utf8mb4") for i in range(5)]
    columns = [c for i in range(5) for c in (column(f"c{i}", "SMALLINT"), texts[i])]
    wires = [(wt.SHORT, 0), (wt.VARCHAR, 20)] * 5
    made = compile_decoder(table(*columns, key=("c0",)), table_map(*wires), DEFAULT, NO_SCHEMA)
    parts = [part for i in range(5) for part in (bytes([i, 0]), b"\x02x" + str(i).encode())]
    rows = []
    for nulls in range(1024):
        data = b"".join(p for i, p in enumerate(parts) if not nulls >> i & 1)
        rows.append(image(10, data, nulls))
    wanted = [v for i in range(5) for v in (i, f"x{i}")]
    for records in (write(made, *rows, columns=10), [write(made, r, columns=10)[0] for r in rows], delete(made, *rows)):
        images = [json.loads(r[1]) for r in records if r[1] is not None]
        for nulls, found in enumerate(images):
            after = found["after"] or found["before"]
            assert list(after.values()) == [None if nulls >> i & 1 else v for i, v in enumerate(wanted)]
    assert len(python_decoder(made)._writes) <= MAX_BITMAPS
    updated = update(made, *[r for r in rows for _ in range(2)])
    assert [json.loads(r[1])["after"] for r in updated] == [
        json.loads(r[1])["after"] for r in write(made, *rows, columns=10)
    ]


# -- headers ----------------------------------------------------------------------------------------------------------


def event(kind: int, data: bytes) -> Event:
    buf = b"x" * 19 + data
    return Event(kind, 0, 1, 0, "binlog.000002", 100, 200, buf, 19, len(buf))


@for_each(
    ("kind", "data", "start"),
    [
        (30, "2a0000000000" "0100" "0200" "03" "ff" "aa", 12),
        (30, "2a0000000000" "0100" "0700" "0102030405" "03" "ff" "aa", 17),
        (23, "2a0000000000" "0100" "03" "ff" "aa", 10),
        (31, "2a0000000000" "0100" "0200" "03" "ff" "ff" "aa", 13),
        (32, "2a0000000000" "0100" "0200" "fc0300" "ff" "aa", 14),
    ],
)  # fmt: skip
def test_header_of_both_versions(kind: int, data: str, start: int) -> None:
    header = rows_header(event(kind, bytes.fromhex(data)))
    assert (header.table_id, header.flags, header.width, header.pos - 19) == (42, 1, 3, start)
    assert header.has_all_columns() and (header.present_after is not None) == (kind == 31)


def test_header_of_a_partial_update_has_two_bitmaps() -> None:
    header = rows_header(event(PARTIAL_UPDATE_ROWS, bytes.fromhex("2a00000000000100020003ff07aa")))
    assert (header.present, header.present_after, header.pos - 19) == (b"\xff", b"\x07", 13)


def test_header_names_other_types_and_damage() -> None:
    with pytest.raises(UnsupportedEventError, match="carries no rows") as caught:
        rows_header(event(2, b""))
    assert caught.value.where == "binlog.000002:100"
    with pytest.raises(BinlogCorruptError):
        rows_header(event(30, bytes.fromhex("2a0000000000010002000a")))


# -- failures ---------------------------------------------------------------------------------------------------------


def test_spare_bits_of_the_bitmap_may_be_clear() -> None:
    exact = b"\x07" + row(1)
    assert decoder().write(exact, 1, len(exact), context(), []) == 1


@for_each("cut", range(1, 11))
def test_a_row_that_ends_too_early_is_never_taken_for_a_row(cut: int) -> None:
    buf, pos, end = body(row(1), row(2), columns=3)
    with pytest.raises(ValueDecodeError, match=r"binlog.000001:4, table db.t, row 1"):
        decoder().write(buf, pos, end - cut, context(), [])


def test_a_failure_names_place_table_column_row_and_key() -> None:
    bad = row(2, "xy").replace(b"xy", b"\xff\xfe")
    buf, pos, end = body(row(1), bad, row(3), columns=3)
    with pytest.raises(ValueDecodeError) as caught:
        decoder().write(buf, pos, end, context(), [])
    assert caught.value.what == "A value of column name of table db.t cannot be decoded"
    assert caught.value.where == "binlog.000001:4, table db.t, row 1, key id=2"
    assert "utf-8" in caught.value.why
    assert not caught.value.can_retry
    buf, pos, end = body(row(1), row(1), row(2), bad, columns=3, images=2)
    with pytest.raises(ValueDecodeError, match="column name") as caught:
        decoder().update(buf, pos, end, context(), [])
    assert caught.value.where.endswith("row 1, key id=2")


def test_another_number_of_columns_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="number of columns"):
        compile_decoder(T, table_map((wt.LONG, 0)), DEFAULT, NO_SCHEMA)
