"""What the native kernel does with a column, told by a name, numbers and texts (``native/src/op.rs`` reads them).

The choices are those of ``renderers`` and ``temporal_code``; what the kernel does not know has no operation here.
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
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import Request
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    TIMES_OF_DAY,
    Temporal,
    datetime_unit,
    time_unit,
)
from airflow_provider_mysql_cdc.cdc.decode.values.charset_tables import SINGLE
from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape, quote_byte_text
from airflow_provider_mysql_cdc.cdc.model.table import BINARY_TYPES, CHARACTER_TYPES, Column


class Op(NamedTuple):
    """Name what becomes of a value.

    Args:
        name: The operation.
        numbers: Its parameters.
        texts: Its texts.
    """

    name: str
    numbers: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()


Make = Callable[[Request], Op | None]
_BYTES = "latin-1"  # byte text has one character a byte


def _integer(size: int, request: Request) -> Op:
    return Op("unsigned" if request.column.unsigned else "signed", (size,))


def _tinyint(request: Request) -> Op:
    test = request.options.boolean_test(request.column)
    if test is None:
        return _integer(1, request)
    return Op("boolean", (1, (0 if request.column.unsigned else 1) | (2 if test == "> 0" else 0)))


def _bigint(request: Request) -> Op:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        return Op("signed", (8,))
    return Op("unsigned_base64", (8,))


def _decimal(request: Request) -> Op:
    return Op(f"decimal_{request.options.decimal_mode}", (request.wire.a, request.wire.b))


def _float(request: Request) -> Op:
    return Op("float" if request.options.single_float(request.column) else "float_as_double")


def _double(request: Request) -> Op:
    return Op("double_as_float" if request.options.single_float(request.column) else "double")


def _bit(request: Request) -> Op:
    return Op("bit") if request.wire.a == 1 else Op("bits", ((request.wire.a + 7) // 8,))


def _enum(request: Request) -> Op:
    texts = ('""', *map(quote_byte_text, request.column.enum_values))
    return Op("enum", (1 if request.wire.a == 1 else 2,), tuple(text.encode(_BYTES) for text in texts))


def _set(request: Request) -> Op:
    members = (quote_byte_text(member)[1:-1] for member in request.column.enum_values)
    return Op("set", (request.wire.a,), tuple(member.encode(_BYTES) for member in members))


_UNICODE = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf8"),
    **dict.fromkeys(("ucs2", "utf16"), "utf16"),
    "utf16le": "utf16le",
    "utf32": "utf32",
}


@cache
def _characters(name: str) -> tuple[bytes, ...]:
    """Return the text of each byte of a character set inside a JSON string; empty for one that is an error."""
    decode, texts = charset(name).decode, []
    for code in range(256):
        try:
            texts.append(escape(decode(bytes([code]))).encode())
        except UnicodeDecodeError:
            texts.append(b"")
    return tuple(texts)


def _text(prefix: int, request: Request, *, fixed: bool) -> Op | None:
    name = request.column.charset or "utf8mb4"
    if name in SINGLE or name == "ascii":
        return Op("text:table", (prefix,), _characters(name))
    if name not in _UNICODE:
        return None
    return Op(f"{'char' if fixed and charset(name).unit > 1 else 'text'}:{_UNICODE[name]}", (prefix,))


def _string(request: Request, *, binary: bool = False) -> Op | None:
    prefix, size, fixed = renderers.string_layout(request.wire)
    if binary or request.column.charset == "binary":
        return Op(request.options.binary_mode, (prefix, size if fixed else 0))
    return _text(prefix, request, fixed=fixed)


def _prefixed(name: str, request: Request) -> Op:
    return Op(name, (request.wire.a,))


def _clock(kind: str, request: Request) -> Op:
    column, options = request.column, request.options
    form = Temporal(request.wire, options, column.nullable, request.null, column.length or 0)
    iso, digits, of_day = form.mode == "isostring", request.wire.a, 0
    if kind.endswith("time") and not kind.endswith("datetime"):
        unit = 0 if form.mode in TIMES_OF_DAY else time_unit(form.mode, digits)
        of_day = 1 + TIMES_OF_DAY.index(form.mode) if form.mode in TIMES_OF_DAY else 0
    else:
        unit = 0 if iso else datetime_unit(form.mode, digits)
    if kind == "date":
        zero = form.zero('"1970-01-01Z"' if iso else "0")
    else:
        zero = form.zero('"1970-01-01T00:00:00Z"' if iso or kind.endswith("timestamp") else "0")
    numbers = (digits, unit, int(options.time_adjuster), int(column.nullable), of_day)
    return Op(f"clock:{kind}", numbers, (zero.encode(_BYTES), request.null.encode(_BYTES)))


_OF_TYPE: dict[tuple[str, int], Make] = {
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


def require_unchanged(column: Column, options: DecoderOptions) -> None:
    """Leave a column to Python whose values are not shown as they are stored.

    Args:
        column: The column.
        options: Modes.

    Raises:
        Declined: A converter handles it, or its values are cut or hashed.
    """
    if options.custom(column) is not None:
        raise Declined(f"a converter handles column {column.name}")
    change = options.treatment(column).change
    if change is not None and constant_text(change) is None:
        raise Declined(f"column {column.name} is cut or hashed")


def op_of(request: Request) -> Op | None:
    """Return what the kernel does with a column's values, or None where it has nothing for them.

    Args:
        request: The column.
    """
    make = _OF_TYPE.get((request.column.type_name, request.wire.code))
    return None if make is None else make(request)
