"""Dates and times of row images as MySQL prints them."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.decode_builder import DEFAULT, NO_SCHEMA, body, column, context, image, member_text, table, table_map
from unit.decode.test_values import date, datetime2, time2

from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

pytestmark = pytest.mark.quick

FLAT = replace(DEFAULT, flat=True)
DIGITS = st.integers(0, 6)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)


def printed(type_name: str, code: int, digits: int, data: bytes) -> str:
    made = table(column("c", type_name, length=digits or None))
    out: list[tuple[bytes | None, bytes, int, int, None]] = []
    event = body(image(1, data), columns=1)
    compile_decoder(made, table_map((code, digits)), FLAT, NO_SCHEMA).write(*event, context(), out)  # type: ignore[arg-type]
    text = member_text(out[0][1], "c")
    assert text[0] == text[-1] == '"'
    return text[1:-1]


def cut(text: str, digits: int) -> str:
    """Return a text with six digits behind its seconds with fewer."""
    return text[: len(text) - 6 + digits] if digits else text[:-7]


@given(st.datetimes(FIRST, LAST), DIGITS)
def test_datetimes(at: datetime, digits: int) -> None:
    text = cut(at.isoformat(" ", "microseconds").rjust(26, "0"), digits)
    assert printed("DATETIME", wt.DATETIME2, digits, datetime2(text, digits)) == text
    assert printed("DATE", wt.DATE, 0, date(at.year, at.month, at.day)) == text[:10]


@pytest.mark.parametrize("text", ["0000-00-00 00:00:00", "2024-02-31 23:59:59", "2024-00-07 00:00:01"])
def test_days_that_no_calendar_has(text: str) -> None:
    for digits in range(7):
        fraction = "." + "0" * digits if digits else ""
        assert printed("DATETIME", wt.DATETIME2, digits, datetime2(text, digits)) == text + fraction
    assert printed("DATE", wt.DATE, 0, date(*map(int, text[:10].split("-")))) == text[:10]


@given(st.integers(0, 2**31 - 1), st.integers(0, 999_999), DIGITS)
def test_timestamps_are_in_utc(seconds: int, micros: int, digits: int) -> None:
    size = (digits + 1) // 2
    micros -= micros % 10 ** (6 - digits)
    at = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None) + timedelta(microseconds=micros)
    data = struct.pack(">I", seconds) + (micros * 100**size // 10**6).to_bytes(size, "big")
    text = cut(at.isoformat(" ", "microseconds"), digits)
    if not seconds and not micros:
        text = "0000-00-00 00:00:00" + text[19:]
    assert printed("TIMESTAMP", wt.TIMESTAMP2, digits, data) == text


def test_second_0_without_a_fraction_is_the_zero_date() -> None:
    assert printed("TIMESTAMP", wt.TIMESTAMP2, 0, bytes(4)) == "0000-00-00 00:00:00"
    assert printed("TIMESTAMP", wt.TIMESTAMP2, 3, bytes(6)) == "0000-00-00 00:00:00.000"
    assert printed("TIMESTAMP", wt.TIMESTAMP2, 6, bytes(6) + b"\x01") == "1970-01-01 00:00:00.000001"
    assert printed("TIMESTAMP", wt.TIMESTAMP, 0, b"\x01\0\0\0") == "1970-01-01 00:00:01"
    assert printed("TIMESTAMP", wt.TIMESTAMP, 0, bytes(4)) == "0000-00-00 00:00:00"


@given(st.integers(0, 838), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999), DIGITS, st.booleans())
def test_times(hours: int, minutes: int, seconds: int, micros: int, digits: int, negative: bool) -> None:
    micros -= micros % 10 ** (6 - digits)
    negative = negative and (hours, minutes, seconds, micros) != (0, 0, 0, 0)
    text = cut(f"{'-' if negative else ''}{hours:02d}:{minutes:02d}:{seconds:02d}.{micros:06d}", digits)
    assert printed("TIME", wt.TIME2, digits, time2((hours, minutes, seconds), micros, digits, negative)) == text


def test_a_fraction_beyond_its_digits_is_an_error() -> None:
    with pytest.raises(ValueDecodeError):
        printed("DATETIME", wt.DATETIME2, 2, datetime2("2024-01-01", 2)[:-1] + b"\x64")
