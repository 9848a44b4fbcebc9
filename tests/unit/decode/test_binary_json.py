"""Binary JSON; the documents are as MySQL 9.7 stored them."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each
from kit.decode_builder import column, one_text, one_value
from kit.json_builder import document

from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import compact_text, double_text, json_text
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

NESTED = (
    "0004007500200001002100040025000400290004000a2d000c3500004200025f00616e616d656e65737474616773355c9323bd0000000c61"
    "626320646566206768692002001d0012000100130002000b1500040100786f6b0000000000018040020016000c0a000c0f00047137207a06"
    "6b6b77203132"
)


def scalar(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + data


@pytest.mark.req("TYPE-26")
def test_a_nested_document() -> None:
    text = '{"a":812345678901,"name":"abc def ghi ","nest":{"x":512.125,"ok":true},"tags":["q7 z","kkw 12"]}'
    assert json_text(bytes.fromhex(NESTED)) == text


@for_each(
    ("data", "text"),
    [
        (b"", "null"),
        (scalar(4, b"\x00"), "null"),
        (scalar(4, b"\x01"), "true"),
        (scalar(4, b"\x02"), "false"),
        (scalar(5, b"\xff\xff"), "-1"),
        (scalar(6, b"\xff\xff"), "65535"),
        (scalar(7, b"\x00\x00\x00\x80"), "-2147483648"),
        (scalar(8, b"\xff" * 4), "4294967295"),
        (scalar(9, b"\x00" * 7 + b"\x80"), "-9223372036854775808"),
        (scalar(10, b"\xff" * 8), "18446744073709551615"),
        (scalar(11, struct.pack("<d", 1e-7)), "0.0000001"),
        (scalar(12, b"\x03abc"), '"abc"'),
        (scalar(12, '\x0bü "\\/\n\x01中'.encode()), '"ü \\"\\\\/\\n\\u0001中"'),
        (scalar(12, b"\xc8\x01" + b"x" * 200), '"' + "x" * 200 + '"'),
        (b"\x00\x00\x00\x04\x00", "{}"),
        (b"\x02\x00\x00\x04\x00", "[]"),
    ],
)
def test_scalars(data: bytes, text: str) -> None:
    assert json_text(data) == text


@for_each(
    ("kind", "data", "text"),
    [
        (wt.NEWDECIMAL, bytes.fromhex("03028132"), "1.50"),
        (wt.NEWDECIMAL, bytes.fromhex("03027ecd"), "-1.50"),
        # What MySQL 9.7 computes has up to 81 digits, and 35 nines before the point are kept as 36.
        (wt.NEWDECIMAL, bytes.fromhex("421e85f5e0ff" + "3b9ac9ff" * 6 + "03e7"), "9" * 35 + "." + "9" * 30),
        (wt.NEWDECIMAL, b"\x51\x00\xbb\x9a\xc9\xff" + bytes.fromhex("3b9ac9ff" * 8), "9" * 81),
        (wt.NEWDECIMAL, b"\x51\x00\x44\x65\x36\x00" + bytes.fromhex("c4653600" * 8), "-" + "9" * 81),
        (wt.VARCHAR, b"\x00\xff", '"base64:type15:AP8="'),
        (wt.BIT, b"\x05", '"base64:type16:BQ=="'),
        (wt.BLOB, b"\xff" * 57, '"base64:type252:' + "/" * 76 + '"'),
        (wt.BLOB, b"\xff" * 115, f'"base64:type252:{"/" * 76}\\n{"/" * 76}\\n/w=="'),
        (wt.BLOB, b"", '"base64:type252:"'),
    ],
)
def test_values_that_json_does_not_have_are_written_as_the_server_does(kind: int, data: bytes, text: str) -> None:
    document = bytes([15, kind, len(data)]) + data
    assert json_text(document) == text


@for_each(
    ("large", "kind", "word", "text"),
    [
        (False, 4, b"\x01\x00", "true"),
        (False, 5, b"\xfe\xff", "-2"),
        (False, 5, b"\xff\x7f", "32767"),
        (False, 6, b"\xff\xff", "65535"),
        (True, 4, b"\x02\x00\x00\x00", "false"),
        (True, 5, b"\xfe\xff\x00\x00", "-2"),
        (True, 6, b"\xff\xff\x00\x00", "65535"),
        (True, 7, b"\xfe\xff\xff\xff", "-2"),
        (True, 7, b"\xff\xff\xff\x7f", "2147483647"),
        (True, 8, b"\xff\xff\xff\xff", "4294967295"),
    ],
)
def test_numbers_that_stand_in_an_entry(large: bool, kind: int, word: bytes, text: str) -> None:
    number = "<II" if large else "<HH"
    size = struct.calcsize(number) + 1 + len(word)
    assert json_text(bytes([2 + large]) + struct.pack(number, 1, size) + bytes([kind]) + word) == f"[{text}]"


@given(st.data())
def test_objects_with_the_same_names_have_their_own_values(data: st.DataObject) -> None:
    names = data.draw(
        st.lists(st.sampled_from(["", "a", "%", "%s", 'b"c', "ä" * 70, "x" * 300, "y" * 1100]), unique=True)
    )
    inner = st.lists(st.booleans() | st.integers(0, 9) | st.text("%s{}x", max_size=3), min_size=len(names))
    for values in data.draw(st.lists(inner, min_size=2, max_size=3)):
        value = {"o": dict(zip(names, values, strict=False)), "%d": values}
        assert json.loads(json_text(document(value))) == value


def test_objects_with_the_same_offsets_have_their_own_names() -> None:
    texts = ['{"a":1,"bc":2}', '{"d":1,"ef":2}', '{"a":1,"bd":2}', '{"a":1,"bc":3}', '{"x":{"a":1,"bc":4}}']
    for text in texts * 2:
        assert json_text(document(json.loads(text))) == text


def test_a_name_that_lies_outside_of_the_others_is_read_where_it_is() -> None:
    def moved(text: str) -> str:
        whole = bytearray(document({"a": text, "b": True, "c": False}))
        struct.pack_into("<H", whole, 9, whole.index(text.encode()) - 1)  # where the second name stands
        return json_text(bytes(whole))

    assert moved("pq") == '{"a":"pq","p":true,"c":false}'
    assert moved("xq") == '{"a":"xq","x":true,"c":false}'


def packed(whole: int, micros: int = 0) -> bytes:
    return ((whole << 24) + micros).to_bytes(8, "little", signed=True)


def test_temporal_values_in_documents() -> None:
    day = ((2024 * 13 + 2) << 5 | 29) << 17
    clock = 12 << 12 | 34 << 6 | 56
    for kind, data, text in (
        (wt.DATE, packed(day), '"2024-02-29"'),
        (wt.DATETIME, packed(day | clock, 789012), '"2024-02-29 12:34:56.789012"'),
        (wt.TIMESTAMP, packed(day), '"2024-02-29 00:00:00.000000"'),
        (wt.TIME, packed(clock, 1), '"12:34:56.000001"'),
        (wt.TIME, (-((clock << 24) + 1)).to_bytes(8, "little", signed=True), '"-12:34:56.000001"'),
    ):
        assert json_text(bytes([15, kind, len(data)]) + data) == text


@for_each(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (0.1, "0.1"),
        (1e-14, "0.00000000000001"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (100000000000000.0, "100000000000000.0"),
        (1e15, "1e15"),
        (1234567890123456.8, "1234567890123456.8"),
        (9999999999999998.0, "9.999999999999998e15"),
        (1e100, "1e100"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_doubles_are_written_as_the_server_does(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back(value: float) -> None:
    assert struct.pack("<d", float(double_text(value))) == struct.pack("<d", value)


@for_each(
    "data",
    [
        b"\x0d",
        b"\x0c\x05abc",
        # Cut short, and as long as it says with its escape.
        b"\x02\x01\x00\x0a\x00\x0c\x07\x00\x07\x01a",
        b"\x00\x01\x00",
        b"\x00\x01\x00\x04\x00",
        b"\x02\xff\xff\x04\x00",
        b"\x0f\x0f\x09a",
        b"\x0b\x00",
        # A DECIMAL of 82 digits.
        b"\x0f\xf6\x27\x52\x00\x81" + bytes(36),
        b"\x02\x01\x00\x07\x00\x02\x00\x00",
        # An array in an array that says three values and has room for one.
        b"\x02\x01\x00\x22\x00\x02\x1b\x00" + bytes(20) + b"\x03\x00\x07\x00\x04\x01\x00",
    ],
)
def test_a_damaged_document_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError, struct.error)):
        json_text(data)


def test_text_from_select_becomes_the_text_of_the_binlog() -> None:
    shown = '{"a": [1, 2.50, "x, \\": y", null], "b": {}, "c d": true}'
    assert compact_text(shown) == '{"a":[1,2.50,"x, \\": y",null],"b":{},"c d":true}'
    assert compact_text("[1, 2]") == "[1,2]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner),
)


@given(json_values)
def test_compacting_changes_nothing_but_blanks(value: object) -> None:
    assert json.loads(compact_text(json.dumps(value))) == value
    assert compact_text(json.dumps(value)) == json.dumps(value, separators=(",", ":"))


def test_json_columns_hold_the_document_as_a_string() -> None:
    col, data = column("c", "JSON"), bytes.fromhex(NESTED)
    stored = one_value(col, (wt.JSON, 4), len(data).to_bytes(4, "little") + data)
    shown = (
        '{"a": 812345678901, "name": "abc def ghi ", "nest": {"x": 512.125, "ok": true}, "tags": ["q7 z", "kkw 12"]}'
    )
    assert stored == one_text(col, shown.encode())
    assert json.loads(json.loads(stored)) == json.loads(shown)
