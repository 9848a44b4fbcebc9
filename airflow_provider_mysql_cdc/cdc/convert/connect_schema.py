"""Kafka Connect schemas of columns as JsonConverter writes them, with their defaults.

Column defaults as the ``default`` member of Connect schemas.

Rules read from Debezium 3.6.1: expression defaults are left out, except that CURRENT_TIMESTAMP becomes the epoch
(TYPE-54); a zero date is the epoch in a NOT NULL column and no default in a nullable one (TYPE-53); a nullable
TIMESTAMP whose default is the epoch has none. A literal of a statement is not rounded, padded or stripped. Where
Debezium writes a default that no row could hold (quotes left doubled, hexadecimal literals cut, YEAR 0 as 2000, the
epoch for dates without separators), the value MySQL stores is written instead.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert import connect_types as ct
from airflow_provider_mysql_cdc.cdc.convert.connect_types import TypeModes, connect_type
from airflow_provider_mysql_cdc.cdc.convert.json_text import Float32
from airflow_provider_mysql_cdc.cdc.ddl.literals import split_datetime, split_time
from airflow_provider_mysql_cdc.cdc.decode.codegen.custom_values import converted_text
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import full_year
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.column_rule import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.java import java_float
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

EPOCH_TEXT = "1970-01-01 00:00:00"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_MAX_DIGITS = 400  # 1e999999999 as a whole number would not fit memory
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_FLOAT = struct.Struct("<f")
_CURRENT_TIMESTAMP = re.compile(r"(CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)(\s*\(\s*\d*\s*\))?", re.IGNORECASE)
_BITS = re.compile(r"(?:b'([01]*)'|0b([01]+))", re.IGNORECASE)
_HEX = re.compile(r"(?:x'([0-9a-f]*)'|0x([0-9a-f]+))", re.IGNORECASE)


def is_current_timestamp(column: Column) -> bool:
    """Return whether the default is CURRENT_TIMESTAMP or a synonym of it."""
    return (
        column.default is not None
        and column.default_is_expression
        and bool(_CURRENT_TIMESTAMP.fullmatch(column.default.strip()))
    )


def default_literal(column: Column) -> str | None:
    """Return the default as a literal's text: the epoch for CURRENT_TIMESTAMP, None for other expressions and NULL."""
    if column.default is None or not column.has_default or column.generated:
        return None
    if column.default_is_expression:
        return EPOCH_TEXT if is_current_timestamp(column) else None
    bits = _BITS.fullmatch(column.default) if column.type_name == "BIT" else None
    return bits[1] or bits[2] if bits else column.default


def default_value(column: Column, modes: ct.TypeModes) -> Any:
    """Return the ``default`` member of the column's Connect schema, or None when it has none.

    Args:
        column: The column.
        modes: The type settings.
    """
    custom = modes.custom(column)
    if custom is not None:
        return _custom_default(column, custom)
    literal = default_literal(column)
    if literal is None or not column.mysql_type.literal_default:
        return None
    text = (column.default or "") if column.type_name == "BIT" else literal
    try:
        return CONVERTERS[column.family](text, column, modes)
    except (ValueError, InvalidOperation, OverflowError):
        # A literal MySQL itself reads with a warning only; the row values do not depend on it.
        return None


def _custom_default(column: Column, custom: CustomColumn) -> Any:
    """Return a converter's value of a literal default; None where it cannot convert it."""
    parse = PLAIN_VALUES.get(column.family)
    if column.stored_default is None or parse is None:
        return None
    try:
        value = json.loads(converted_text(custom, parse(column.stored_default)).encode("latin-1"))
    except (ValueError, InvalidOperation, OverflowError):
        return None
    return Float32(value) if custom.type == "float" and value is not None else value


def _integer_value(text: str) -> int:
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return int(lowered == "true")
    if bits := _BITS.fullmatch(lowered):
        return int(bits[1] or bits[2] or "0", 2)
    if digits := _HEX.fullmatch(lowered):
        return int(digits[1] or digits[2] or "0", 16)
    value = Decimal(lowered)
    if value.adjusted() > _MAX_DIGITS:
        raise ValueError(text)
    return int(value.to_integral_value(ROUND_HALF_UP))


def _integer(text: str, column: Column, modes: ct.TypeModes) -> Any:
    value = _integer_value(text)
    if column.mysql_type.width == 8 and column.unsigned:
        return unscaled_base64(value) if modes.bigint_unsigned_mode == "precise" else min(value, _LONG_MAX)
    test = modes.boolean_test(column)
    if test:
        return value > 0 if test == "> 0" else value != 0
    return value


def unscaled_base64(value: int) -> str:
    """Return a decimal's unscaled value as base64 of its shortest two's complement bytes, highest first."""
    size = (value + (value < 0)).bit_length() // 8 + 1
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


def _decimal(text: str, column: Column, modes: ct.TypeModes) -> Any:
    _, scale = ct.decimal_precision(column)
    with localcontext() as context:
        context.prec = 130
        value = Decimal(text.strip()).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        if modes.decimal_mode == "string":
            return f"{value:f}"
        if modes.decimal_mode == "double":
            return float(value)
        return unscaled_base64(int(value.scaleb(scale)))


def _floating(text: str, column: Column, modes: ct.TypeModes) -> float:
    if not modes.single_float(column):
        return float(text)
    single: float = _FLOAT.unpack(_FLOAT.pack(float(text)))[0]
    return Float32(single)


def _bit(text: str, column: Column, modes: ct.TypeModes) -> Any:
    value, length = _integer_value(text), ct.bit_length(column)
    if length == 1:
        return bool(value)
    return base64.b64encode(value.to_bytes((length + 7) // 8, "little")).decode()


def _text(text: str, column: Column, modes: ct.TypeModes) -> str:
    return _bytes(text, column, modes) if column.charset == "binary" else text


_BINARY_TEXT: dict[str, Callable[[bytes], str]] = {
    "bytes": lambda b: base64.b64encode(b).decode(),
    "base64": lambda b: base64.b64encode(b).decode(),
    "base64-url-safe": lambda b: base64.urlsafe_b64encode(b).decode(),
    "hex": bytes.hex,
}


def _bytes(text: str, column: Column, modes: ct.TypeModes) -> str:
    digits = _HEX.fullmatch(text)
    raw = bytes.fromhex(digits[1] or digits[2] or "") if digits else text.encode("utf-8", "surrogateescape")
    return _BINARY_TEXT[modes.binary_mode](raw)


def parse_datetime_us(text: str, *, adjust: bool = False) -> int | None:
    """Return microseconds since the epoch of a date or datetime literal read as UTC; None for a zero date.

    Args:
        text: The literal.
        adjust: Whether the years 1 to 99 count as 1970 to 2069 (``enable.time.adjuster``).

    Raises:
        ValueError: The text is no date.
    """
    (year, month, day, hour, minute, second), fraction = split_datetime(text)
    if not (year and month and day):
        return None
    days = date(full_year(year) if adjust else year, month, day).toordinal() - _EPOCH_DAY
    return days * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + _micros(fraction)


def _micros(fraction: str) -> int:
    return int(fraction[:6].ljust(6, "0"))


def _microseconds(text: str, column: Column, modes: ct.TypeModes) -> int | None:
    """Return microseconds since the epoch; in a NOT NULL column a literal that is no date counts as a zero date.

    Such as one with an offset, which the server converts to the time zone of its session.
    """
    try:
        us = parse_datetime_us(text, adjust=modes.time_adjuster)
    except ValueError:
        if column.nullable:
            raise
        return None
    return None if us is None else _rounded(us, text, column)


def _rounded(us: int, text: str, column: Column) -> int:
    """Return the microseconds of a number, which Debezium does not read, rounded as the server does."""
    if not text.strip(" -").replace(".", "").isdecimal():
        return us
    unit: int = 10 ** (6 - ct.fraction_digits(column))
    rounded = (abs(us) + unit // 2) // unit * unit
    return rounded if us >= 0 else -rounded


def _is_zero_and_nullable(us: int | None, column: Column) -> bool:
    return us is None and column.nullable


def _date(text: str, column: Column, modes: ct.TypeModes) -> Any:
    us = _microseconds(text, column, modes)
    if _is_zero_and_nullable(us, column):
        return None
    days = (us or 0) // _DAY_US
    return f"{date.fromordinal(days + _EPOCH_DAY).isoformat()}Z" if modes.time_mode == "isostring" else days


def iso_timestamp(us: int) -> str:
    """Return microseconds since the epoch as ISO 8601 in UTC, without trailing zeros in the fraction."""
    days, day_us = divmod(us, _DAY_US)
    return f"{date.fromordinal(days + _EPOCH_DAY).isoformat()}T{_clock(day_us)}Z"


def _clock(us: int) -> str:
    seconds, micros = divmod(us, 1_000_000)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


_FROM_MICROS: dict[str, Callable[[int], Any]] = {
    "io.debezium.time.Timestamp": lambda us: us // 1000,
    "io.debezium.time.MicroTimestamp": lambda us: us,
    "io.debezium.time.NanoTimestamp": lambda us: us * 1000,
    "org.apache.kafka.connect.data.Timestamp": lambda us: us // 1000,
    "io.debezium.time.IsoTimestamp": iso_timestamp,
    "io.debezium.time.Time": lambda us: int(us / 1000),
    "io.debezium.time.MicroTime": lambda us: us,
    "io.debezium.time.NanoTime": lambda us: us * 1000,
    "org.apache.kafka.connect.data.Time": lambda us: us // 1000,
    "io.debezium.time.IsoTime": lambda us: f"{_clock(us)}Z",
}
# These two hold a time of day only (TYPE-46).
_TIME_OF_DAY_TYPES = ("org.apache.kafka.connect.data.Time", "io.debezium.time.IsoTime")


def _datetime(text: str, column: Column, modes: ct.TypeModes) -> Any:
    us = _microseconds(text, column, modes)
    if _is_zero_and_nullable(us, column):
        return None
    value = _FROM_MICROS[ct.connect_type(column, modes).name or ""](us or 0)
    # Nanoseconds before 1677 or after 2262 do not fit 64 bits: no default, as such a value cannot be written either.
    return None if isinstance(value, int) and not -_LONG_MAX <= value <= _LONG_MAX else value


def _timestamp(text: str, column: Column, modes: ct.TypeModes) -> Any:
    us = parse_datetime_us(text) or 0
    if us == 0:
        return None if column.nullable else iso_timestamp(0)
    if modes.contract == "1.9":
        return iso_timestamp(us)
    # As many digits as the column's values have; the epoch, the default for CURRENT_TIMESTAMP, has none.
    whole_seconds, digits = iso_timestamp(us - us % 1_000_000), ct.fraction_digits(column)
    return (
        f"{whole_seconds[:-1]}.{us % 1_000_000:06d}"[: len(whole_seconds) + digits] + "Z" if digits else whole_seconds
    )


def parse_time_us(text: str) -> int:
    """Return microseconds of a TIME literal (``[-][D ]HH:MM[:SS[.f]]`` or digits ``[-]HHMMSS``).

    Raises:
        ValueError: The text is no time.
    """
    sign, seconds, fraction = split_time(text)
    us = seconds * 1_000_000 + _micros(fraction)
    return -us if sign else us


def _time(text: str, column: Column, modes: ct.TypeModes) -> Any:
    us = _rounded(parse_time_us(text), text, column)
    name = ct.connect_type(column, modes).name or ""
    if name in _TIME_OF_DAY_TYPES and not 0 <= us < _DAY_US:
        return None if column.nullable else _FROM_MICROS[name](0)
    value = _FROM_MICROS[name](us)
    # Milliseconds of an int32 end at 596 hours: no default, as such a value cannot be written either.
    return None if name == "io.debezium.time.Time" and not -_INT_MAX <= value <= _INT_MAX else value


def _member(text: str, column: Column, modes: ct.TypeModes) -> str:
    return text


def _year(text: str, column: Column, modes: ct.TypeModes) -> int:
    return _year_number(text)


def _year_number(text: str) -> int:
    value = _integer_value(text)
    if value > 99 or (value == 0 and text.strip() != "00"):
        return value
    return value + (2000 if value < 70 else 1900)


CONVERTERS: dict[Family, Callable[[str, Column, ct.TypeModes], Any]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _floating,
    Family.DOUBLE: _floating,
    Family.BIT: _bit,
    Family.TEXT: _text,
    Family.BYTES: _bytes,
    Family.ENUM: _member,
    Family.SET: _member,
    Family.DATE: _date,
    Family.TIME: _time,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.YEAR: _year,
}


# -- plain values, as custom converters receive them ----------------------------------------------------------


def _plain_float(stored: str) -> float:
    return float(java_float(float(stored)))


def _plain_bytes(stored: str) -> bytes:
    return stored.encode("latin-1")


# Of stored defaults; that of a TIMESTAMP is a time in the zone of the session that altered the table.
PLAIN_VALUES: dict[Family, Callable[[str], Any]] = {
    Family.INTEGER: int,
    Family.DECIMAL: Decimal,
    Family.FLOAT: _plain_float,
    Family.DOUBLE: float,
    Family.BIT: lambda stored: int.from_bytes(_plain_bytes(stored), "big"),
    Family.TEXT: str,
    Family.BYTES: _plain_bytes,
    Family.ENUM: str,
    Family.SET: str,
    Family.DATE: str,
    Family.TIME: str,
    Family.DATETIME: str,
    Family.YEAR: int,
}


ConnectSchema = dict[str, Any]


def field_schema(
    column: Column,
    modes: TypeModes,
    *,
    comments: bool = False,
    parameters: tuple[tuple[str, str], ...] = (),
    names: str = "none",
) -> ConnectSchema:
    """Return the schema of a column as a field of the row or key struct, in JsonConverter's member order.

    Args:
        column: The column.
        modes: The type settings.
        comments: Whether the column's comment becomes ``doc`` (``include.schema.comments``).
        parameters: Parameters after those of the type (``ColumnTreatment.parameters``).
        names: ``field.name.adjustment.mode``.
    """
    kind = connect_type(column, modes)
    default = default_value(column, modes)
    doc = column.comment if comments and column.comment else kind.doc
    schema: ConnectSchema = {"type": kind.type}
    if kind.fields:
        schema["fields"] = [dict(f) for f in kind.fields]
    if kind.items is not None:
        schema["items"] = dict(kind.items)
    schema["optional"] = column.nullable or kind.optional
    optional_members = (
        ("name", kind.name),
        ("version", kind.version),
        ("doc", doc),
        ("parameters", dict(kind.parameters + parameters) or None),
        ("default", default),
    )
    schema |= {name: value for name, value in optional_members if value is not None}
    schema["field"] = field_name(column.name, names)
    return schema
