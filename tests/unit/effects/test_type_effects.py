"""Each type and each mode of values, on each path: the row image and a snapshot's text, in Python and by the kernel.

Properties are given as text, and records are read as a consumer reads them: one row of all types for each mode, which
must have another value in the columns that the mode is about and the same value in all others.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from hashlib import sha256
from typing import Any, NamedTuple

import pytest
from kit.avro_rig import shown
from kit.cases import case
from kit.effect_rig import IN_AVRO, WRITE, drain, snapshot
from kit.json_builder import document
from kit.table_records import TICDC

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.decode import native_text
from airflow_provider_mysql_cdc.cdc.model.mysql_types import MYSQL_TYPES, Family, type_names

RAW = b"\xfb\xff\x00\x01"
EMPTY_WKB = b"\1\7\0\0\0\0\0\0\0"
POINT_WKB = struct.pack("<BIdd", 1, 1, 1.5, -2.5)


class Typed(NamedTuple):
    """A column with its value.

    Args:
        declared: Its declaration.
        image: The value in a row image.
        text: The value in the text protocol.
        value: The value in events without any property; bytes as such.
    """

    declared: str
    image: bytes
    text: bytes
    value: Any


def _sized(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "little") + data


def _date(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def _datetime(year: int, month: int, day: int, clock: int) -> bytes:
    return (1 << 39 | (year * 13 + month) << 22 | day << 17 | clock).to_bytes(5, "big")


CLOCK, FRACTION = 12 << 12 | 34 << 6 | 56, (7890).to_bytes(2, "big")
DAYS, DAYS_12, DAYS_2012 = 19_782, -715_086, 15_399
MILLIS = DAYS * 86_400_000 + 45_296_789
_TEXTS = {
    name.lower(): Typed(declared, _sized(width, b"abc"), b"abc", "abc")
    for name, declared, width in (
        ("CHAR", "CHAR(5)", 1), ("VARCHAR", "VARCHAR(5)", 1), ("TINYTEXT", "TINYTEXT", 1), ("TEXT", "TEXT", 2),
        ("MEDIUMTEXT", "MEDIUMTEXT", 3), ("LONGTEXT", "LONGTEXT", 4),
    )
}  # fmt: skip
_BYTES = {
    name.lower(): Typed(declared, _sized(width, RAW), RAW, RAW)
    for name, declared, width in (
        ("BINARY", "BINARY(4)", 1), ("VARBINARY", "VARBINARY(5)", 1), ("TINYBLOB", "TINYBLOB", 1), ("BLOB", "BLOB", 2),
        ("MEDIUMBLOB", "MEDIUMBLOB", 3), ("LONGBLOB", "LONGBLOB", 4),
    )
}  # fmt: skip
PLAIN: dict[str, Typed] = {
    "tinyint": Typed("TINYINT(1)", b"\1", b"1", 1),
    "smallint": Typed("SMALLINT", struct.pack("<h", -300), b"-300", -300),
    "mediumint": Typed("MEDIUMINT", b"\xfe\xff\xff", b"-2", -2),
    "int": Typed("INT", struct.pack("<i", -70_000), b"-70000", -70_000),
    "bigint": Typed("BIGINT", struct.pack("<q", -(2**40)), b"-1099511627776", -(2**40)),
    "bigint_unsigned": Typed("BIGINT UNSIGNED", b"\xff" * 8, b"18446744073709551615", -1),
    "decimal": Typed("DECIMAL(5,2)", b"\x80\x7b\x2d", b"123.45", b"\x30\x39"),
    "float": Typed("FLOAT", struct.pack("<f", 1.5), b"1.5", 1.5),
    "double": Typed("DOUBLE", struct.pack("<d", 2.25), b"2.25", 2.25),
    "bit": Typed("BIT(9)", b"\1\2", b"\1\2", b"\2\1"),
    **_TEXTS,
    **_BYTES,
    "date": Typed("DATE", _date(2024, 2, 29), b"2024-02-29", DAYS),
    "date_12": Typed("DATE", _date(12, 2, 29), b"0012-02-29", DAYS_2012),
    "time": Typed("TIME(3)", (1 << 23 | CLOCK).to_bytes(3, "big") + FRACTION, b"12:34:56.789", 45_296_789_000),
    "datetime": Typed("DATETIME(3)", _datetime(2024, 2, 29, CLOCK) + FRACTION, b"2024-02-29 12:34:56.789", MILLIS),
    "datetime_12": Typed("DATETIME", _datetime(12, 2, 29, 0), b"0012-02-29 00:00:00", DAYS_2012 * 86_400_000),
    "timestamp": Typed(
        "TIMESTAMP(3) NULL",
        struct.pack(">I", MILLIS // 1000) + FRACTION,
        b"2024-02-29 12:34:56.789",
        "2024-02-29T12:34:56.789Z",
    ),
    "year": Typed("YEAR", b"\x7c", b"2024", 2024),
    "enum": Typed("ENUM('a','b')", b"\2", b"b", "b"),
    "set": Typed("SET('a','b')", b"\3", b"a,b", "a,b"),
    "json": Typed("JSON", _sized(4, document({"a": 1})), b'{"a": 1}', '{"a":1}'),
}
_GEOMETRY = (4326).to_bytes(4, "little") + EMPTY_WKB
_POINT = bytes(4) + POINT_WKB
_VECTOR = struct.pack("<2f", 0.5, -2.5)
OTHERS: dict[str, Typed] = {
    **{
        name.lower(): Typed(name, _sized(4, _GEOMETRY), _GEOMETRY, {"wkb": EMPTY_WKB, "srid": 4326})
        for name in type_names(Family.GEOMETRY)
    },
    "point": Typed("POINT", _sized(4, _POINT), _POINT, {"x": 1.5, "y": -2.5, "wkb": POINT_WKB, "srid": None}),
    "vector": Typed("VECTOR(2)", _sized(4, _VECTOR), _VECTOR, [0.5, -2.5]),
}
"""Types that Avro gets by way of JSON, so that the kernel does not write them as Avro."""

BOOLEANS = {"converters": "b", "b.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"}
MODES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({"decimal.handling.mode": "double"}, {"decimal": 123.45}),
    ({"decimal.handling.mode": "string"}, {"decimal": "123.45"}),
    ({"bigint.unsigned.handling.mode": "precise"}, {"bigint_unsigned": b"\0" + b"\xff" * 8}),
    ({"binary.handling.mode": "base64"}, dict.fromkeys(_BYTES, b64encode(RAW).decode())),
    ({"binary.handling.mode": "base64-url-safe"}, dict.fromkeys(_BYTES, "-_8AAQ==")),
    ({"binary.handling.mode": "hex"}, dict.fromkeys(_BYTES, "fbff0001")),
    ({"time.precision.mode": "adaptive"}, {"time": 45_296_789}),
    ({"time.precision.mode": "connect"}, {"time": 45_296_789}),
    (
        {"time.precision.mode": "isostring"},
        {
            "date": "2024-02-29Z",
            "date_12": "2012-02-29Z",
            "time": "12:34:56.789Z",
            "datetime": "2024-02-29T12:34:56.789Z",
            "datetime_12": "2012-02-29T00:00:00Z",
        },
    ),
    (
        {"time.precision.mode": "microseconds"},
        {"datetime": MILLIS * 1000, "datetime_12": DAYS_2012 * 86_400_000_000},
    ),
    (
        {"time.precision.mode": "nanoseconds"},
        {"time": 45_296_789_000_000, "datetime": MILLIS * 10**6, "datetime_12": DAYS_2012 * 86_400 * 10**9},
    ),
    ({"enable.time.adjuster": "false"}, {"date_12": DAYS_12, "datetime_12": DAYS_12 * 86_400_000}),
    (BOOLEANS, {"tinyint": True}),
    ({"column.mask.with.3.chars": r"shop\.t\.(var)?char,shop\.t\..*text"}, dict.fromkeys(_TEXTS, "***")),
    (
        {"column.mask.hash.SHA-256.with.salt.x": r"shop\.t\.text"},
        {"text": sha256(b"x" + b"\xac\xed\0\5t\0\3" + b"abc").hexdigest()},  # as ObjectOutputStream writes a String
    ),
    ({"column.mask.hash.v2.SHA-256.with.salt.x": r"shop\.t\.text"}, {"text": sha256(b"xabc").hexdigest()}),
    ({"column.truncate.to.1.chars": r"shop\.t\.(var)?char,shop\.t\..*text"}, dict.fromkeys(_TEXTS, "a")),
]
IN_PYTHON = ("column.truncate.", "column.mask.hash.")
"""Rules whose columns the kernel leaves to Python."""
COUNTED = (F.DECIMAL_HANDLING_MODE, F.BIGINT_UNSIGNED_HANDLING_MODE, F.BINARY_HANDLING_MODE, F.TIME_PRECISION_MODE)
PATHS = [
    "image",
    "text",
    pytest.param("image by the kernel", marks=pytest.mark.native),
    pytest.param("text by the kernel", marks=pytest.mark.native),
]


def test_all_types_and_all_values_of_modes_are_tried() -> None:
    columns = PLAIN | OTHERS
    assert {typed.declared.partition("(")[0].split()[0] for typed in columns.values()} == MYSQL_TYPES.keys()
    assert {name for name, typed in OTHERS.items()} == {n.lower() for n, t in MYSQL_TYPES.items() if not t.direct_avro}
    for declared in COUNTED:
        tried = {properties.get(declared.name) for properties, _ in MODES}
        assert tried == {None, *(declared.enum or ())} - {str(declared.default), *declared.refused}, declared.name


def create(columns: dict[str, Typed]) -> str:
    return f"CREATE TABLE t ({', '.join(f'`{name}` {typed.declared}' for name, typed in columns.items())})"


def row(
    monkeypatch: pytest.MonkeyPatch, path: str, columns: dict[str, Typed], properties: dict[str, str], native: bool
) -> dict[str, Any]:
    """Return a row as an event has it; the kernel must have decoded it, if it is to."""
    by_kernel = "kernel" in path
    if path.startswith("image"):
        rows = bytes(len(columns) + 7 >> 3) + b"".join(typed.image for typed in columns.values())
        drained = drain(monkeypatch, create(columns), [(WRITE, rows)], properties, native=by_kernel)
        assert drained.native_rows() == int(by_kernel and native)
        (value,) = drained.values()
    else:
        texts = [typed.text for typed in columns.values()]
        written, records = snapshot(monkeypatch, create(columns), texts, properties, native=by_kernel)
        (value,) = written.values()
        decode: Any = records._emitter._decode
        assert isinstance(decode, native_text.NativeTextDecoder) == (by_kernel and native)
    return dict(value["after"])


@pytest.mark.req("TYPE-16", "TYPE-17", "TYPE-18", "TYPE-20", "TYPE-22", "TYPE-24", "TYPE-33", "TYPE-34", "TYPE-35")
@pytest.mark.req("TYPE-62", "TYPE-70", "CFG-22", "CFG-23", "CFG-24", "CFG-40", "CFG-63")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["json", "avro"])
def test_modes_change_the_values_of_their_types(monkeypatch: pytest.MonkeyPatch, path: str, form: str) -> None:
    for columns in (PLAIN, OTHERS):
        for mode, changed in MODES:
            with case(mode, *list(columns)[:1]):
                native = not next(iter(mode), "").startswith(IN_PYTHON) or columns is OTHERS
                properties = mode | (IN_AVRO if form == "avro" else {})
                wanted = {name: changed.get(name, typed.value) for name, typed in columns.items()}
                found = row(monkeypatch, path, columns, properties, native and (form == "json" or columns is PLAIN))
                wanted = wanted if form == "avro" else shown(wanted)
                assert found == wanted
                assert list(map(repr, found.values())) == list(map(repr, wanted.values())), "1 is no boolean"


TICDC_MODES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"decimal": b"\x30\x39", "bigint_unsigned": -1}),
    ({"avro-decimal-handling-mode": "string"}, {"decimal": "123.45", "bigint_unsigned": -1}),
    (
        {"avro-bigint-unsigned-handling-mode": "string"},
        {"decimal": b"\x30\x39", "bigint_unsigned": "18446744073709551615"},
    ),
]


@pytest.mark.req("CFG-125", "CFG-126", "AVRO-50", "AVRO-51")
@pytest.mark.parametrize("path", PATHS[:3])
def test_the_modes_of_ticdc_change_the_values_of_their_types(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The text of a snapshot is read in Python, with a kernel too."""
    typed = {name: PLAIN[name] for name in ("int", "decimal", "bigint_unsigned")}
    columns = create(typed).replace("`int` INT", "`int` INT PRIMARY KEY")
    for mode, wanted in TICDC_MODES:
        with case(mode):
            if path == "text":
                written, _ = snapshot(monkeypatch, columns, [t.text for t in typed.values()], TICDC | mode)
            else:
                native = "kernel" in path
                image = b"\0" + b"".join(t.image for t in typed.values())
                written = drain(monkeypatch, columns, [(WRITE, image)], TICDC | mode, native=native)
                assert written.native_rows() == int(native)
            assert written.values() == [{"int": -70_000, **wanted}]
