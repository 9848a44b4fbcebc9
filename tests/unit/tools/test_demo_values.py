"""Debezium's JSON and MySQL's rows come to the same Python values."""

from __future__ import annotations

import base64
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from kit.cases import case
from topiclib.values import converter_of_column, converter_of_schema, select_expression


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decimal_schema(scale: int) -> dict[str, Any]:
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "name": name, "parameters": {"scale": str(scale)}}


def named(name: str) -> dict[str, Any]:
    return {"type": "any", "name": f"io.debezium.{name}"}


SAME = object()
POINT = {"x": 1, "y": 2, "wkb": b64(b"wkb"), "srid": None}
CASES: list[tuple[dict[str, Any], Any, str, Any, Any]] = [
    (decimal_schema(2), b64((-12345).to_bytes(3, "big", signed=True)), "decimal(12,2)", Decimal("-123.45"), SAME),
    (decimal_schema(4), b64(b"\x00"), "decimal(16,4)", Decimal("0.0000"), SAME),
    (named("time.Date"), -1, "date", date(1969, 12, 31), SAME),
    (named("time.Timestamp"), -1, "datetime(3)", datetime(1969, 12, 31, 23, 59, 59, 999000), SAME),
    (named("time.MicroTimestamp"), 1_000_001, "datetime(6)", datetime(1970, 1, 1, 0, 0, 1, 1), SAME),
    (named("time.MicroTime"), -1_500_000, "time(3)", timedelta(seconds=-1.5), SAME),
    (
        named("time.ZonedTimestamp"),
        "2026-11-21T10:00:00.5Z",
        "timestamp(1)",
        datetime(2026, 11, 21, 10, 0, 0, 500000),
        SAME,
    ),
    (named("time.Year"), 2030, "year", 2030, SAME),
    (named("data.Json"), '{"b":1,"a":[2.5,null]}', "json", '{"a": [2.5, null], "b": 1}', SAME),
    (named("data.Bits"), b64(b"\x01\x0f"), "bit(12)", b"\x0f\x01", 0x0F01),
    ({"type": "boolean"}, True, "bit(1)", b"\x01", True),
    ({"type": "float"}, 1.1, "float", 1.100000023841858, SAME),
    ({"type": "double"}, 5, "double", 5.0, SAME),
    ({"type": "bytes"}, b64(b"\x00\xfe"), "blob", b"\x00\xfe", SAME),
    ({"type": "int64"}, -1, "bigint unsigned", 2**64 - 1, -1),
    ({"type": "int64"}, 5, "bigint unsigned", 5, SAME),
    ({"type": "string"}, "é", "varchar(3)", "é", SAME),
    (named("data.geometry.Point"), POINT, "point", b"\0\0\0\0wkb", (0, b"wkb")),
    (named("data.geometry.Geometry"), {"wkb": b64(b"x"), "srid": 4326}, "geometry", b"\xe6\x10\0\0x", (4326, b"x")),
]


def test_both_sides_meet() -> None:
    for schema, given, kind, stored, value in CASES:
        with case(schema, given, kind, stored, value):
            from_event, from_table = converter_of_schema(schema), converter_of_column(kind)
            wanted = stored if value is SAME else value
            decoded = from_event(given) if from_event else given
            assert decoded == wanted and repr(decoded) == repr(wanted)
            assert (from_table(stored) if from_table else stored) == wanted


def test_json_is_compared_by_meaning_and_not_by_text() -> None:
    convert = converter_of_column("json")
    assert convert is not None
    assert convert('{"a":1,"b":2}') == convert('{"b": 2, "a": 1}')
    assert convert("[1,2]") != convert("[2,1]")
    assert convert('"1"') != convert("1")


def test_an_unknown_schema_is_an_error() -> None:
    with pytest.raises(LookupError):
        converter_of_schema(named("data.Unheard"))


def test_floats_are_selected_exactly() -> None:
    assert select_expression("w`t", "float") == "CAST(`w``t` AS DOUBLE)"
    assert select_expression("price", "decimal(10,2)") == "`price`"
