"""The native kernel's operation on a column: a name, numbers and texts (``native/src/json_renderer.rs`` reads them).

The choices are those of ``renderers`` and ``temporal_code``; an unsupported column has no operation here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.decode.codegen import renderers
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.mask_functions import constant_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    TIMES_OF_DAY,
    TemporalRequest,
    datetime_unit,
    time_unit,
)
from airflow_provider_mysql_cdc.cdc.decode.values.charset_tables import SINGLE
from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape, quote_byte_text
from airflow_provider_mysql_cdc.cdc.model.table import BINARY_TYPES, CHARACTER_TYPES, Column


class Op(NamedTuple):
    """Name an operation on a value.

    Args:
        name: The operation.
        numbers: Its parameters.
        texts: Its texts.
    """

    name: str
    numbers: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()


MakeOp = Callable[[ColumnRequest], Op | None]
_BYTES = "latin-1"  # byte text has one character a byte


def _integer(size: int, request: ColumnRequest) -> Op:
    return Op("unsigned" if request.column.unsigned else "signed", (size,))


def _tinyint(request: ColumnRequest) -> Op:
    test = request.options.boolean_test(request.column)
    if test is None:
        return _integer(1, request)
    return Op("boolean", (1, (0 if request.column.unsigned else 1) | (2 if test == "> 0" else 0)))


def _bigint(request: ColumnRequest) -> Op:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        return Op("signed", (8,))
    return Op("unsigned_base64", (8,))


def _decimal(request: ColumnRequest) -> Op:
    return Op(f"decimal_{request.options.decimal_mode}", (request.wire.length, request.wire.scale))


def _float(request: ColumnRequest) -> Op:
    return Op("float" if request.options.single_float(request.column) else "float_as_double")


def _double(request: ColumnRequest) -> Op:
    return Op("double_as_float" if request.options.single_float(request.column) else "double")


def _bit(request: ColumnRequest) -> Op:
    return Op("bit") if request.wire.length == 1 else Op("bits", ((request.wire.length + 7) // 8,))


def _enum(request: ColumnRequest) -> Op:
    texts = ('""', *map(quote_byte_text, request.column.enum_values))
    return Op("enum", (1 if request.wire.length == 1 else 2,), tuple(text.encode(_BYTES) for text in texts))


def _set(request: ColumnRequest) -> Op:
    members = (quote_byte_text(member)[1:-1] for member in request.column.enum_values)
    return Op("set", (request.wire.length,), tuple(member.encode(_BYTES) for member in members))


_UNICODE = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf8"),
    **dict.fromkeys(("ucs2", "utf16"), "utf16"),
    "utf16le": "utf16le",
    "utf32": "utf32",
}


@cache
def _character_texts(name: str) -> tuple[bytes, ...]:
    """Return the text of each byte of a character set inside a JSON string; empty for one that is an error."""
    decode, texts = charset(name).decode, []
    for code in range(256):
        try:
            texts.append(escape(decode(bytes([code]))).encode())
        except UnicodeDecodeError:
            texts.append(b"")
    return tuple(texts)


def _text(prefix: int, request: ColumnRequest, *, fixed_length: bool) -> Op | None:
    name = request.column.charset or "utf8mb4"
    if name in SINGLE or name == "ascii":
        return Op("text:table", (prefix,), _character_texts(name))
    if name not in _UNICODE:
        return None
    return Op(f"{'char' if fixed_length and charset(name).unit > 1 else 'text'}:{_UNICODE[name]}", (prefix,))


def _string(request: ColumnRequest, *, binary: bool = False) -> Op | None:
    prefix, size, fixed_length = renderers.string_layout(request.wire)
    if binary or request.column.charset == "binary":
        return Op(request.options.binary_mode, (prefix, size if fixed_length else 0))
    return _text(prefix, request, fixed_length=fixed_length)


def _prefixed(name: str, request: ColumnRequest) -> Op:
    return Op(name, (request.wire.length,))


def _clock(kind: str, request: ColumnRequest) -> Op:
    column, options = request.column, request.options
    temporal_request = TemporalRequest(request.wire, options, column.nullable, request.null, column.length or 0)
    iso, digits, day_mode = temporal_request.mode == "isostring", request.wire.length, 0
    if kind.endswith("time") and not kind.endswith("datetime"):
        unit = 0 if temporal_request.mode in TIMES_OF_DAY else time_unit(temporal_request.mode, digits)
        day_mode = 1 + TIMES_OF_DAY.index(temporal_request.mode) if temporal_request.mode in TIMES_OF_DAY else 0
    else:
        unit = 0 if iso else datetime_unit(temporal_request.mode, digits)
    if kind == "date":
        zero = temporal_request.zero('"1970-01-01Z"' if iso else "0")
    else:
        zero = temporal_request.zero('"1970-01-01T00:00:00Z"' if iso or kind.endswith("timestamp") else "0")
    numbers = (digits, unit, int(options.time_adjuster), int(column.nullable), day_mode)
    return Op(f"clock:{kind}", numbers, (zero.encode(_BYTES), request.null.encode(_BYTES)))


_OP_BY_TYPE: dict[tuple[str, int], MakeOp] = {
    ("TINYINT", wt.TINY): _tinyint,
    ("SMALLINT", wt.SHORT): partial(_integer, 2),
    ("MEDIUMINT", wt.INT24): partial(_integer, 3),
    ("INT", wt.LONG): partial(_integer, 4),
    ("BIGINT", wt.LONGLONG): _bigint,
    ("DECIMAL", wt.NEWDECIMAL): _decimal,
    ("FLOAT", wt.FLOAT): _float,
    ("DOUBLE", wt.DOUBLE): _double,
    ("BIT", wt.BIT): _bit,
    ("ENUM", wt.ENUM): _enum,
    ("SET", wt.SET): _set,
    ("JSON", wt.JSON): partial(_prefixed, "json"),
    ("POINT", wt.GEOMETRY): partial(_prefixed, "point"),
    ("VECTOR", wt.VECTOR): partial(_prefixed, "vector"),
    ("YEAR", wt.YEAR): lambda request: Op("year"),
    ("DATE", wt.DATE): partial(_clock, "date"),
    ("DATE", wt.NEWDATE): partial(_clock, "date"),
    ("TIME", wt.TIME): partial(_clock, "old_time"),
    ("DATETIME", wt.DATETIME): partial(_clock, "old_datetime"),
    ("TIMESTAMP", wt.TIMESTAMP): partial(_clock, "old_timestamp"),
    ("TIME", wt.TIME2): partial(_clock, "time"),
    ("DATETIME", wt.DATETIME2): partial(_clock, "datetime"),
    ("TIMESTAMP", wt.TIMESTAMP2): partial(_clock, "timestamp"),
    **{(name, wt.GEOMETRY): partial(_prefixed, "geometry") for name in renderers.SPATIAL_TYPES},
    **{(name, code): _string for name in CHARACTER_TYPES for code in wt.STRING_CODES},
    **{(name, code): partial(_string, binary=True) for name in BINARY_TYPES for code in wt.STRING_CODES},
}


def require_plain_values(column: Column, options: DecoderOptions) -> None:
    """Decline a column whose values are masked, hashed, cut or converted.

    Args:
        column: The column.
        options: Modes.

    Raises:
        Declined: A converter handles it, or its values are truncated or hashed.
    """
    if options.custom(column) is not None:
        raise Declined(f"a converter handles column {column.name}")
    value_change = options.treatment(column).change
    if value_change is not None and constant_text(value_change) is None:
        raise Declined(f"column {column.name} is truncated or hashed")


def binlog_op(request: ColumnRequest) -> Op | None:
    """Return the kernel's operation on a column's values, or None where it has none.

    Args:
        request: The column.
    """
    make_op = _OP_BY_TYPE.get((request.column.type_name, request.wire.code))
    return None if make_op is None else make_op(request)
