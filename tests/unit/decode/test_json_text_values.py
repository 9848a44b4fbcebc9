"""JSON strings and numbers as Jackson and Java write them."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import (
    base64_int,
    base64_text,
    escape_utf8,
    quote,
    quote_byte_text,
)
from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float


def byte_text(text: str) -> str:
    return text.encode().decode("latin-1")


@for_each(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("/slash", '"/slash"'),
        ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
        ("\x00\x01\x1a\x1f", '"\\u0000\\u0001\\u001A\\u001F"'),
        ("\x7f\x80\xff", '"\x7f\x80\xff"'),
        ("ünï 中文 \u2028 \uffff", '"ünï 中文 \u2028 \uffff"'),
        ("😀", '"\\uD83D\\uDE00"'),
        ("\U0010ffff", '"\\uDBFF\\uDFFF"'),
    ],
)
def test_strings_are_escaped_as_jackson_does(text: str, written: str) -> None:
    assert quote(text) == written
    assert f'"{escape_utf8(byte_text(text))}"' == byte_text(written)


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_fast_and_plain_escaping_agree_and_parse_back(text: str) -> None:
    assert f'"{escape_utf8(byte_text(text))}"' == quote_byte_text(text)
    assert json.loads(quote(text)) == text


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        escape_utf8("\xed\xa0\x80")


@for_each(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (-0.1, "-0.1"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-5, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1e16, "-1.0E16"),
        (123456789.125, "1.23456789125E8"),
        (123456789012345678.0, "1.2345678901234568E17"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


@for_each(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.1, "1.1"),
        (0.1, "0.1"),
        (16777216.0, "1.6777216E7"),
        (3.14159274, "3.1415927"),
        (123456.789, "123456.79"),
        (3.4028234663852886e38, "3.4028235E38"),
        (-3.4e38, "-3.4E38"),
        (1.17549435e-38, "1.1754944E-38"),
        (1.4e-45, "1.4E-45"),
        (3e10, "3.0E10"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
    ],
)
def test_floats_are_written_with_the_fewest_digits(value: float, text: str) -> None:
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    assert java_float(single) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back_as_the_same_double(value: float) -> None:
    assert struct.pack("<d", float(java_double(value))) == struct.pack("<d", value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_text_reads_back_as_the_same_float(value: float) -> None:
    assert struct.pack("<f", float(java_float(value))) == struct.pack("<f", value)


@given(st.integers(-(10**65), 10**65))
def test_base64_of_a_number_is_the_shortest_twos_complement(value: int) -> None:
    data = base64.b64decode(base64_int(value))
    assert int.from_bytes(data, "big", signed=True) == value
    if len(data) > 1:
        assert int.from_bytes(data[1:], "big", signed=True) != value


@for_each(("value", "text"), [(0, "AA=="), (127, "fw=="), (128, "AIA="), (-128, "gA=="), (-129, "/38=")])
def test_base64_of_small_numbers(value: int, text: str) -> None:
    assert base64_int(value) == text


def test_base64_has_padding() -> None:
    assert base64_text(b"\xfb\xff") == "+/8="
