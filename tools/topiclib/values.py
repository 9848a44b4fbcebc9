"""From both sides to the same Python values: Debezium's JSON by its Connect schema, and MySQL's rows by column type."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

Convert = Callable[[Any], Any]

# MySQL's widest decimal has 65 digits.
_EXACT = Context(prec=100)
_EPOCH = datetime(1970, 1, 1)
_DAY_ONE = date(1970, 1, 1).toordinal()


def converted(value: Any, convert: Convert | None) -> Any:
    """Return a value in its comparable form; NULL stays None."""
    return value if value is None or convert is None else convert(value)


def nearest_float4(value: float) -> float:
    """Return the nearest 4-byte float, as a double."""
    nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return nearest


def normalized_json(text: str) -> str:
    """Return a JSON document in a form that is equal exactly when the documents mean the same."""
    return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)


def _decimal(schema: Mapping[str, Any]) -> Convert:
    scale = int(schema["parameters"]["scale"])

    def convert(value: str) -> Decimal:
        number = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return Decimal(number).scaleb(-scale, _EXACT)

    return convert


def _micros(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def _geometry(value: Mapping[str, Any]) -> tuple[int, bytes]:
    return value.get("srid") or 0, base64.b64decode(value["wkb"])


_BY_NAME: dict[str, Convert] = {
    "io.debezium.time.Date": lambda v: date.fromordinal(_DAY_ONE + v),
    "io.debezium.time.Timestamp": lambda v: _micros(v * 1000),
    "io.debezium.time.MicroTimestamp": _micros,
    "io.debezium.time.MicroTime": lambda v: timedelta(microseconds=v),
    "io.debezium.time.ZonedTimestamp": lambda v: datetime.fromisoformat(v).replace(tzinfo=None),
    "io.debezium.time.Year": int,
    "io.debezium.data.Json": normalized_json,
    "io.debezium.data.Enum": str,
    "io.debezium.data.EnumSet": str,
    "io.debezium.data.Bits": lambda v: int.from_bytes(base64.b64decode(v), "little"),
    "io.debezium.data.geometry.Point": _geometry,
    "io.debezium.data.geometry.Geometry": _geometry,
}
_BY_TYPE: dict[str, Convert] = {"bytes": base64.b64decode, "float": nearest_float4, "double": float}


def converter_of_schema(schema: Mapping[str, Any]) -> Convert | None:
    """Return what turns a field's JSON value into a Python value, None when it is one already.

    Args:
        schema: The field's Connect schema as JsonConverter writes it.

    Raises:
        LookupError: The schema's name is not known here.
    """
    name = schema.get("name")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(schema)
    if name is not None:
        return _BY_NAME[name]
    return _BY_TYPE.get(schema["type"])


def _bits(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _wrapped(value: int) -> int:
    """Return what Debezium's default (bigint.unsigned.handling.mode=long) makes of a value of 2**63 and more."""
    return value - (1 << 64) if value >> 63 else value


def _stored_geometry(value: bytes) -> tuple[int, bytes]:
    return int.from_bytes(value[:4], "little"), value[4:]


_BY_COLUMN: dict[str, Convert] = {
    "float": nearest_float4,
    "json": normalized_json,
    "bit": _bits,
    "point": _stored_geometry,
    "geometry": _stored_geometry,
}


def converter_of_column(column_type: str) -> Convert | None:
    """Return what turns a value selected from MySQL into the value an event has, None when they are the same."""
    if column_type == "bit(1)":
        return lambda v: v != b"\0"
    if column_type.startswith("bigint") and "unsigned" in column_type:
        return _wrapped
    return _BY_COLUMN.get(column_type.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0])


def select_expression(name: str, column_type: str) -> str:
    """Return how a column is selected so that its value is exact: as text, a FLOAT would be rounded to six digits."""
    quoted = "`" + name.replace("`", "``") + "`"
    return f"CAST({quoted} AS DOUBLE)" if column_type.startswith("float") else quoted
