"""Every column type and mode, from the bytes of a row image or a text row to JSON text."""

from __future__ import annotations

import struct

import pytest
from kit.cases import for_each
from kit.decode_builder import column, one_text, one_value

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Column

DECIMAL_10_2 = (wt.NEWDECIMAL, 10 | 2 << 8)


def datetime2(text: str, digits: int = 0) -> bytes:
    day, _, clock = text.partition(" ")
    clock, _, fraction = clock.partition(".")
    y, mo, d = map(int, day.split("-"))
    h, mi, s = map(int, (clock or "0:0:0").split(":"))
    packed = (((y * 13 + mo) << 5 | d) << 17 | h << 12 | mi << 6 | s) + (1 << 39)
    size = (digits + 1) // 2
    return packed.to_bytes(5, "big") + int((fraction or "").ljust(size * 2, "0") or 0).to_bytes(size, "big")


def time2(hms: tuple[int, int, int], micros: int, digits: int, negative: bool = False) -> bytes:
    size = (digits + 1) // 2
    packed = (hms[0] << 12 | hms[1] << 6 | hms[2]) << 8 * size | micros * 100**size // 10**6
    packed = -packed if negative else packed
    return (packed + (0x800000 << 8 * size)).to_bytes(3 + size, "big")


def date(y: int, m: int, d: int) -> bytes:
    return (y << 9 | m << 5 | d).to_bytes(3, "little")


@pytest.mark.req("TYPE-06", "TYPE-07", "TYPE-08", "TYPE-09", "TYPE-10", "TYPE-58", "TYPE-69", "FAULT-25")
@for_each(
    ("type_name", "code", "fmt", "signed", "unsigned"),
    [
        ("TINYINT", wt.TINY, "<B", (0x80, "-128"), (0xFF, "255")),
        ("SMALLINT", wt.SHORT, "<H", (0x8000, "-32768"), (0xFFFF, "65535")),
        ("INT", wt.LONG, "<I", (0x80000000, "-2147483648"), (0xFFFFFFFF, "4294967295")),
        ("BIGINT", wt.LONGLONG, "<Q", (1 << 63, "-9223372036854775808"), (2**64 - 2, "-2")),
    ],
)
def test_integers(type_name: str, code: int, fmt: str, signed: tuple[int, str], unsigned: tuple[int, str]) -> None:
    for value, text in (signed, (1, "1")):
        assert one_value(column("c", type_name), (code, 0), struct.pack(fmt, value)) == text
    data = struct.pack(fmt, unsigned[0])
    assert one_value(column("c", type_name, unsigned=True), (code, 0), data) == unsigned[1]


@pytest.mark.parametrize(
    ("raw", "signed", "unsigned"), [(0xFFFFFF, "-1", "16777215"), (0x800000, "-8388608", "8388608")]
)
def test_mediumint(raw: int, signed: str, unsigned: str) -> None:
    data = raw.to_bytes(3, "little")
    assert one_value(column("c", "MEDIUMINT"), (wt.INT24, 0), data) == signed
    assert one_value(column("c", "MEDIUMINT", unsigned=True), (wt.INT24, 0), data) == unsigned


@pytest.mark.req("TYPE-59")
def test_bigint_unsigned_precise_is_a_decimal() -> None:
    col, options = column("c", "BIGINT", unsigned=True), DecoderOptions(bigint_unsigned_mode="precise")
    assert one_value(col, (wt.LONGLONG, 0), b"\xff" * 8, options) == '"AP//////////"'
    assert one_text(col, b"18446744073709551615", options) == '"AP//////////"'
    assert one_text(col, b"18446744073709551615") == "-1"


@pytest.mark.req("TYPE-55", "TYPE-56", "TYPE-57")
@for_each(
    ("data", "shown", "precise", "string", "double"),
    [
        ("8000000000", "0.00", '"AA=="', '"0.00"', "0.0"),
        ("8000000001", "0.01", '"AQ=="', '"0.01"', "0.01"),
        ("7ffffffffe", "-0.01", '"/w=="', '"-0.01"', "-0.01"),
        ("85f5e0ff63", "99999999.99", '"AlQL4/8="', '"99999999.99"', "9.999999999E7"),
        ("7a0a1f009c", "-99999999.99", '"/av0HAE="', '"-99999999.99"', "-9.999999999E7"),
        ("8000270f63", "9999.99", '"D0I/"', '"9999.99"', "9999.99"),
    ],
)
def test_decimal_modes(data: str, shown: str, precise: str, string: str, double: str) -> None:
    col = column("c", "DECIMAL", length=10, scale=2)
    for mode, text in (("precise", precise), ("string", string), ("double", double)):
        options = DecoderOptions(decimal_mode=mode)
        assert one_value(col, DECIMAL_10_2, bytes.fromhex(data), options) == text
        assert one_text(col, shown.encode(), options) == text


def test_decimal_without_whole_digits_and_with_65_digits() -> None:
    col = column("c", "DECIMAL", length=30, scale=30)
    data = bytes.fromhex("bb9ac9ff3b9ac9ff3b9ac9ff03e7")
    options = DecoderOptions(decimal_mode="string")
    assert one_value(col, (wt.NEWDECIMAL, 30 | 30 << 8), data, options) == '"0.' + "9" * 30 + '"'
    col = column("c", "DECIMAL", length=65, scale=0)
    data = bytes([0x80 + 99]) + (999_999_999).to_bytes(4, "big") * 7
    assert one_value(col, (wt.NEWDECIMAL, 65), data, options) == '"' + "9" * 65 + '"'
    inverted = bytes(b ^ 0xFF for b in data)
    assert one_value(col, (wt.NEWDECIMAL, 65), inverted, options) == '"-' + "9" * 65 + '"'


@pytest.mark.req("TYPE-11", "TYPE-12", "TYPE-13")
def test_float_is_written_as_a_float_and_float_with_digits_as_a_double() -> None:
    data = struct.pack("<f", 0.1)
    assert one_value(column("c", "FLOAT"), (wt.FLOAT, 4), data) == "0.1"
    assert one_value(column("c", "FLOAT", length=7, scale=2), (wt.FLOAT, 4), data) == "0.10000000149011612"
    assert one_value(column("c", "DOUBLE"), (wt.DOUBLE, 8), struct.pack("<d", 1e10)) == "1.0E10"
    assert one_text(column("c", "FLOAT"), b"0.10000000149011612") == "0.1"
    assert one_text(column("c", "FLOAT", length=7, scale=2), b"0.10000000149011612") == "0.10000000149011612"


@pytest.mark.req("TYPE-04", "TYPE-05", "TYPE-31")
def test_bit() -> None:
    one, ten = column("c", "BIT", length=1), column("c", "BIT", length=10)
    assert one_value(one, (wt.BIT, 1), b"\x01") == one_text(one, b"\x01") == "true"
    assert one_value(one, (wt.BIT, 1), b"\x00") == one_text(one, b"\x00") == "false"
    assert one_value(ten, (wt.BIT, 2 | 1 << 8), b"\x02\xaa") == one_text(ten, b"\x02\xaa") == '"qgI="'
    assert one_value(column("c", "BIT", length=64), (wt.BIT, 8 << 8), bytes(range(1, 9))) == '"CAcGBQQDAgE="'


@pytest.mark.req("TYPE-37", "TYPE-53", "TYPE-70")
@for_each(
    ("ymd", "days"),
    [
        ((1970, 1, 1), "0"),
        ((1969, 12, 31), "-1"),
        ((9999, 12, 31), "2932896"),
        ((1000, 1, 1), "-354285"),
        ((1582, 10, 4), "-141438"),
        ((2024, 2, 29), "19782"),
        ((1900, 2, 28), "-25509"),
        ((1, 1, 1), "11323"),
        ((60, 12, 31), "33237"),
        ((69, 12, 31), "36524"),
        ((70, 12, 31), "364"),
        ((99, 12, 31), "10956"),
        ((0, 0, 0), "null"),
        ((2024, 0, 0), "null"),
        ((2024, 5, 0), "null"),
        ((0, 1, 1), "null"),
    ],
)
def test_date(ymd: tuple[int, int, int], days: str) -> None:
    col = column("c", "DATE")
    assert one_value(col, (wt.DATE, 0), date(*ymd)) == days
    assert one_text(col, "{:04d}-{:02d}-{:02d}".format(*ymd).encode()) == days


@pytest.mark.req("STRM-39")
def test_years_below_100_stay_without_time_adjuster() -> None:
    options = DecoderOptions(time_adjuster=False)
    assert one_value(column("c", "DATE"), (wt.DATE, 0), date(1, 1, 1), options) == "-719162"
    assert one_text(column("c", "DATETIME"), b"0001-01-01 00:00:00", options) == "-62135596800000"


@pytest.mark.req("TYPE-53")
def test_zero_dates_of_not_null_columns_are_the_epoch() -> None:
    assert one_value(column("c", "DATE", nullable=False), (wt.DATE, 0), date(0, 0, 0)) == "0"
    zero = datetime2("0-0-0")
    assert one_value(column("c", "DATETIME", nullable=False), (wt.DATETIME2, 0), zero) == "0"
    zero = one_value(column("c", "TIMESTAMP", nullable=False), (wt.TIMESTAMP2, 0), b"\0\0\0\0")
    assert zero == '"1970-01-01T00:00:00Z"'
    assert one_text(column("c", "TIMESTAMP", nullable=False), b"0000-00-00 00:00:00") == zero
    assert one_text(column("c", "TIMESTAMP"), b"0000-00-00 00:00:00") == "null"


def test_a_day_that_does_not_exist_is_refused() -> None:
    for read in (
        lambda: one_value(column("c", "DATE"), (wt.DATE, 0), date(2023, 2, 29)),
        lambda: one_text(column("c", "DATE"), b"2023-02-29"),
    ):
        with pytest.raises(ValueDecodeError, match=r"column c.*2023-02-29 is not a day"):
            read()


@pytest.mark.req("TYPE-39", "TYPE-40", "TYPE-45", "TYPE-46", "TYPE-49")
@for_each(
    ("text", "digits", "mode", "value"),
    [
        ("2018-06-20 06:37:03", 0, "adaptive_time_microseconds", "1529476623000"),
        ("2024-02-29 12:34:56.789", 3, "adaptive_time_microseconds", "1709210096789"),
        ("2024-02-29 12:34:56.7", 1, "adaptive_time_microseconds", "1709210096700"),
        ("2024-02-29 12:34:56.789123", 6, "adaptive_time_microseconds", "1709210096789123"),
        ("2024-02-29 12:34:56.78912", 5, "adaptive_time_microseconds", "1709210096789120"),
        ("1969-12-31 23:59:59.9999", 4, "adaptive_time_microseconds", "-100"),
        ("9999-12-31 23:59:59.999999", 6, "microseconds", "253402300799999999"),
        ("1000-01-01 00:00:00", 0, "microseconds", "-30610224000000000"),
        ("1000-01-01 00:00:00.1234", 4, "connect", "-30610223999877"),
        ("2024-02-29 12:34:56.789123", 6, "nanoseconds", "1709210096789123000"),
        ("9999-12-31 23:59:59", 0, "nanoseconds", "null"),
        ("2024-02-29 12:34:56.7891", 4, "isostring", '"2024-02-29T12:34:56.7891Z"'),
        ("0-0-0 0:0:0", 0, "isostring", "null"),
    ],
)
def test_datetime_modes(text: str, digits: int, mode: str, value: str) -> None:
    col, options = column("c", "DATETIME", length=digits), DecoderOptions(time_mode=mode)
    assert one_value(col, (wt.DATETIME2, digits), datetime2(text, digits), options) == value
    if text[0] != "0":
        assert one_text(col, text.encode(), options) == value


def test_a_not_null_datetime_beyond_nanoseconds_is_refused() -> None:
    col, options = column("c", "DATETIME", nullable=False), DecoderOptions(time_mode="nanoseconds")
    with pytest.raises(ValueDecodeError, match="64-bit nanoseconds"):
        one_value(col, (wt.DATETIME2, 0), datetime2("9999-12-31 0:0:0"), options)


@pytest.mark.req("TYPE-30", "TYPE-50")
@for_each(
    ("seconds", "fraction", "digits", "text"),
    [
        (1, "", 0, "1970-01-01T00:00:01Z"),
        (2**31 - 1, "", 0, "2038-01-19T03:14:07Z"),
        (2**32 - 1, "", 0, "2106-02-07T06:28:15Z"),
        (1709210096, "46", 1, "2024-02-29T12:34:56.7Z"),
        (1709210096, "00", 2, "2024-02-29T12:34:56.00Z"),
        (1709210096, "04b0", 3, "2024-02-29T12:34:56.120Z"),
        (1709210096, "04b0", 4, "2024-02-29T12:34:56.1200Z"),
        (1709210096, "01d4c0", 5, "2024-02-29T12:34:56.12000Z"),
        (1709210096, "000001", 6, "2024-02-29T12:34:56.000001Z"),
    ],
)
def test_timestamp_is_utc_text_with_the_digits_of_the_column(
    seconds: int, fraction: str, digits: int, text: str
) -> None:
    col = column("c", "TIMESTAMP", length=digits)
    data = seconds.to_bytes(4, "big") + bytes.fromhex(fraction)
    for mode in ("adaptive_time_microseconds", "connect", "isostring"):
        options = DecoderOptions(time_mode=mode)
        assert one_value(col, (wt.TIMESTAMP2, digits), data, options) == f'"{text}"'
        assert one_text(col, text[:-1].replace("T", " ").encode(), options) == f'"{text}"'


@pytest.mark.req("TYPE-38", "TYPE-41", "TYPE-42", "TYPE-44", "TYPE-46", "TYPE-48", "FAULT-24")
@for_each(
    ("hms", "micros", "digits", "negative", "shown", "value"),
    [
        ((0, 0, 0), 0, 0, False, "00:00:00", 0),
        ((838, 59, 59), 0, 0, False, "838:59:59", 3020399000000),
        ((838, 59, 59), 0, 0, True, "-838:59:59", -3020399000000),
        ((0, 0, 0), 10000, 2, True, "-00:00:00.01", -10000),
        ((0, 0, 0), 1, 6, True, "-00:00:00.000001", -1),
        ((0, 0, 0), 900, 4, True, "-00:00:00.0009", -900),
        ((24, 0, 0), 0, 0, False, "24:00:00", 86_400_000_000),
        ((24, 0, 0), 1, 6, False, "24:00:00.000001", 86_400_000_001),
        ((0, 0, 1), 0, 0, True, "-00:00:01", -1000000),
        ((45, 10, 1), 505000, 3, True, "-45:10:01.505", -162601505000),
        ((12, 34, 56), 789123, 6, False, "12:34:56.789123", 45296789123),
        ((838, 59, 58), 999999, 6, True, "-838:59:58.999999", -3020398999999),
    ],
)
def test_time(hms: tuple[int, int, int], micros: int, digits: int, negative: bool, shown: str, value: int) -> None:
    col, data = column("c", "TIME", length=digits), time2(hms, micros, digits, negative)
    nanos, milli = value * 1000, abs(value) // 1000 * (-1 if value < 0 else 1)
    expected = {
        "adaptive_time_microseconds": str(value),
        "microseconds": str(value),
        "nanoseconds": str(nanos),
        "connect": str(milli) if 0 <= value <= 86_400_000_000 else "null",
    }
    if digits > 3 or abs(milli) < 1 << 31:
        expected["adaptive"] = str(milli if digits <= 3 else value)
    for mode, text in expected.items():
        options = DecoderOptions(time_mode=mode)
        assert one_value(col, (wt.TIME2, digits), data, options) == text
        assert one_text(col, shown.encode(), options) == text
    if "adaptive" not in expected:
        refused(col, data, shown)


def refused(col: Column, data: bytes, shown: str) -> None:
    """Expect that neither a row of the stream nor one of a snapshot gets another value."""
    options = DecoderOptions(time_mode="adaptive")
    with pytest.raises(ValueDecodeError, match="adaptive cannot represent a TIME"):
        one_value(col, (wt.TIME2, col.length or 0), data, options)
    with pytest.raises(ValueDecodeError, match="adaptive cannot represent a TIME"):
        one_text(col, shown.encode(), options)


@pytest.mark.req("TYPE-42")
@pytest.mark.parametrize("nullable", [False, True])
def test_a_time_that_does_not_fit_an_int32_of_milliseconds_is_refused_in_adaptive_mode(nullable: bool) -> None:
    """io.debezium.time.Time is an int32; Debezium's cast writes -1274568296 for 838:59:59."""
    options, col = DecoderOptions(time_mode="adaptive"), column("c", "TIME", nullable=nullable, length=3)
    for negative, last in ((False, "2147483647"), (True, "-2147483647")):
        sign = "-" if negative else ""
        fits = time2((596, 31, 23), 647_000, 3, negative)
        assert one_value(col, (wt.TIME2, 3), fits, options) == last
        assert one_text(col, f"{sign}596:31:23.647".encode(), options) == last
        refused(col, time2((596, 31, 23), 649_000, 3, negative), f"{sign}596:31:23.649")
    finer = column("c", "TIME", nullable=nullable, length=4)
    assert one_value(finer, (wt.TIME2, 4), time2((838, 59, 59), 0, 4), options) == "3020399000000"
    old = (8385959).to_bytes(3, "little", signed=True)
    with pytest.raises(ValueDecodeError, match="adaptive cannot represent"):
        one_value(column("c", "TIME", nullable=nullable), (wt.TIME, 0), old, options)


@pytest.mark.req("TYPE-46", "TYPE-47")
def test_a_not_null_time_outside_the_day_is_refused_in_connect_mode() -> None:
    col, options = column("c", "TIME", nullable=False), DecoderOptions(time_mode="connect")
    with pytest.raises(ValueDecodeError, match="outside of one day"):
        one_value(col, (wt.TIME2, 0), time2((25, 0, 0), 0, 0), options)
    finest = column("c", "TIME", nullable=False, length=6)
    for outside in (time2((0, 0, 0), 1, 6, True), time2((24, 0, 0), 1, 6)):
        with pytest.raises(ValueDecodeError, match="outside of one day"):
            one_value(finest, (wt.TIME2, 6), outside, options)


@for_each(
    ("hms", "micros", "negative", "shown", "text"),
    [
        ((12, 34, 56), 700_000, False, "12:34:56.700000", '"12:34:56.7Z"'),
        ((0, 0, 0), 1, True, "-00:00:00.000001", "null"),
        ((23, 59, 59), 999_999, False, "23:59:59.999999", '"23:59:59.999999Z"'),
        ((24, 0, 0), 0, False, "24:00:00.000000", "null"),
    ],
)
def test_time_as_iso_text(hms: tuple[int, int, int], micros: int, negative: bool, shown: str, text: str) -> None:
    col, options = column("c", "TIME", length=6), DecoderOptions(time_mode="isostring")
    assert one_value(col, (wt.TIME2, 6), time2(hms, micros, 6, negative), options) == text
    assert one_text(col, shown.encode(), options) == text


@pytest.mark.req("TYPE-29")
@pytest.mark.parametrize(("raw", "shown", "year"), [(0, "0000", "0"), (1, "1901", "1901"), (255, "2155", "2155")])
def test_year(raw: int, shown: str, year: str) -> None:
    assert one_value(column("c", "YEAR"), (wt.YEAR, 0), bytes([raw])) == year
    assert one_text(column("c", "YEAR"), shown.encode()) == year


def test_temporal_types_of_tables_from_mysql_5_5() -> None:
    stamp = one_value(column("c", "TIMESTAMP"), (wt.TIMESTAMP, 0), (1709210096).to_bytes(4, "little"))
    assert stamp == '"2024-02-29T12:34:56Z"'
    number = (20240229123456).to_bytes(8, "little")
    assert one_value(column("c", "DATETIME"), (wt.DATETIME, 0), number) == "1709210096000"
    assert one_value(column("c", "DATETIME"), (wt.DATETIME, 0), bytes(8)) == "null"
    assert one_value(column("c", "TIME"), (wt.TIME, 0), (-123456).to_bytes(3, "little", signed=True)) == "-45296000000"


@pytest.mark.req("TYPE-27", "TYPE-28")
def test_enum_and_set() -> None:
    enum = column("c", "ENUM", enum_values=("x,y", 'q"', "ü"), charset="utf8mb4")
    wire = (wt.STRING, wt.ENUM | 1 << 8)
    texts = [one_value(enum, wire, bytes([i])) for i in range(4)]
    assert texts == ['""', '"x,y"', '"q\\""', '"ü"']
    members = column("c", "SET", enum_values=("a", "b", "ü"), charset="utf8mb4")
    wire = (wt.STRING, wt.SET | 1 << 8)
    assert [one_value(members, wire, bytes([i])) for i in (0, 1, 5)] == ['""', '"a"', '"a,ü"']
    large = column("c", "SET", enum_values=tuple(f"m{i}" for i in range(24)), charset="utf8mb4")
    assert one_value(large, (wt.STRING, wt.SET | 3 << 8), b"\x01\x80\x81") == '"m0,m15,m16,m23"'
    with pytest.raises(ValueDecodeError, match="column c"):
        one_value(enum, (wt.STRING, wt.ENUM | 1 << 8), b"\x04")
    with pytest.raises(ValueDecodeError, match="beyond the 3"):
        one_value(members, wire, b"\x08")


def test_enum_of_more_than_255_members_has_two_bytes() -> None:
    many = column("c", "ENUM", enum_values=tuple(f"m{i}" for i in range(300)), charset="utf8mb4")
    assert one_value(many, (wt.STRING, wt.ENUM | 2 << 8), (299).to_bytes(2, "little")) == '"m298"'


@pytest.mark.req("TYPE-14", "TYPE-15", "TYPE-02")
@for_each(
    ("text", "written"),
    [("", '""'), ("plain", '"plain"'), ('q"\\\n\x01', '"q\\"\\\\\\n\\u0001"'), ("ü中😀", '"ü中\\uD83D\\uDE00"')],
)
def test_text_of_every_length_prefix(text: str, written: str) -> None:
    raw = text.encode()
    col = column("c", "VARCHAR", length=20, charset="utf8mb4")
    assert one_value(col, (wt.VARCHAR, 80), bytes([len(raw)]) + raw) == written
    assert one_value(col, (wt.VARCHAR, 800), len(raw).to_bytes(2, "little") + raw) == written
    assert one_text(col, raw) == written
    for size, name in enumerate(("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"), 1):
        col = column("c", name, charset="utf8mb4")
        assert one_value(col, (wt.BLOB, size), len(raw).to_bytes(size, "little") + raw) == written


def test_a_long_char_has_its_length_bits_in_the_type_byte() -> None:
    col = column("c", "CHAR", length=255, charset="utf8mb4")
    length = 255 * 4
    meta = (0xFE ^ (length & 0x300) >> 4) | (length & 0xFF) << 8
    raw = b"x" * 300
    assert one_value(col, (wt.STRING, meta), len(raw).to_bytes(2, "little") + raw) == f'"{"x" * 300}"'


def test_char_of_two_bytes_a_character_gets_back_the_half_blank_the_server_cut() -> None:
    col = column("c", "CHAR", length=6, charset="ucs2")
    wire = (wt.STRING, 0xFE | 12 << 8)
    raw = "愠".encode("utf-16-be")  # U+6120: its second byte is a blank, and the server cuts it
    assert one_value(col, wire, b"\x01" + raw[:1]) == '"愠"'
    padded = "ab    ".encode("utf-16-be")[:-1]
    assert one_value(col, wire, bytes([len(padded)]) + padded) == '"ab"'


def test_latin1_knows_the_characters_that_cp1252_leaves_out() -> None:
    col = column("c", "VARCHAR", length=20, charset="latin1")
    assert one_value(col, (wt.VARCHAR, 20), b"\x04\x80\x81\x8d\xe9") == '"€\x81\x8dé"'


@pytest.mark.req("TYPE-16", "TYPE-17", "TYPE-33", "TYPE-34", "TYPE-35")
@for_each(("mode", "text"), [("bytes", "+/+/"), ("base64", "+/+/"), ("base64-url-safe", "-_-_"), ("hex", "fbffbf")])
def test_binary_modes(mode: str, text: str) -> None:
    options, raw = DecoderOptions(binary_mode=mode), b"\xfb\xff\xbf"
    col = column("c", "VARBINARY", length=8)
    assert one_value(col, (wt.VARCHAR, 8), b"\x03" + raw, options) == f'"{text}"'
    assert one_text(col, raw, options) == f'"{text}"'
    blob = column("c", "BLOB")
    assert one_value(blob, (wt.BLOB, 2), b"\x03\x00" + raw, options) == f'"{text}"'


def test_binary_gets_back_the_zero_bytes_the_server_cut() -> None:
    wire = (wt.STRING, 0xFE | 4 << 8)
    assert one_value(column("c", "BINARY", length=4), wire, b"\x01a") == '"YQAAAA=="'
    assert one_value(column("c", "CHAR", length=4, charset="binary"), wire, b"\x00") == '"AAAAAA=="'


@pytest.mark.req("TYPE-66", "TYPE-67", "TYPE-68")
def test_spatial_values() -> None:
    wkb = struct.pack("<BIdd", 1, 1, 1.5, -2.5)
    raw = b"\0\0\0\0" + wkb
    data = len(raw).to_bytes(4, "little") + raw
    point = '{"x":1.5,"y":-2.5,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAATA","srid":null}'
    assert one_value(column("c", "POINT"), (wt.GEOMETRY, 4), data) == point == one_text(column("c", "POINT"), raw)
    raw = (4326).to_bytes(4, "little") + wkb
    text = '{"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAATA","srid":4326}'
    assert one_text(column("c", "GEOMETRY"), raw) == text
    with pytest.raises(ValueDecodeError, match="a value that is not a point"):
        one_text(column("c", "POINT"), raw + b"x")


def test_vector() -> None:
    raw = struct.pack("<3f", 0.1, -2.5, 3e10)
    data = len(raw).to_bytes(4, "little") + raw
    assert one_value(column("c", "VECTOR"), (wt.VECTOR, 4), data) == "[0.1,-2.5,3.0E10]"
    assert one_text(column("c", "VECTOR"), raw) == "[0.1,-2.5,3.0E10]"


def test_zerofill_is_only_a_way_to_show_numbers() -> None:
    assert one_text(column("c", "INT", zerofill=True, unsigned=True), b"0000000007") == "7"
    assert one_text(column("c", "BIGINT", zerofill=True, unsigned=True), b"00000000000000000007") == "7"
    assert one_text(column("c", "DECIMAL", length=6, scale=2, zerofill=True, unsigned=True), b"0001.28") == '"AIA="'


def test_null_is_null_or_the_default_where_asked_for() -> None:
    col, wire = column("c", "INT"), (wt.LONG, 0)
    assert one_value(col, wire, None) == "null"
    assert one_text(col, None) == "null"
    replace = DecoderOptions(replace_null_with_default=True)
    assert one_value(col, wire, None, replace, null_text="42") == "42"
    assert one_value(col, wire, None, replace) == "null"
    assert one_value(col, wire, None, DecoderOptions(), null_text="42") == "null"


def test_a_type_that_cannot_be_the_columns_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="Column c"):
        one_value(column("c", "DATE"), (wt.LONG, 0), b"\0\0\0\0")
