"""The native kernel's operation on a column: a name, numbers and texts (``native/src/json_renderer.rs`` reads them).

The choices are those of ``renderers`` and ``temporal_code``; an unsupported column has no operation here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

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
from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape, quote_byte_text
from airflow_provider_mysql_cdc.cdc.model.charset_tables import SINGLE
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, WireFormat
from airflow_provider_mysql_cdc.cdc.model.table import Column


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


_MakeOp = Callable[[ColumnRequest, WireFormat], Op | None]
_BYTES = "latin-1"  # byte text has one character a byte


def _integer(request: ColumnRequest, form: WireFormat) -> Op:
    width = request.column.mysql_type.width
    op = _BY_WIDTH[width](request) if width in _BY_WIDTH else None
    return op or Op("unsigned" if request.column.unsigned else "signed", (width,))


def _tinyint(request: ColumnRequest) -> Op | None:
    test = request.options.boolean_test(request.column)
    if test is None:
        return None
    return Op("boolean", (1, (0 if request.column.unsigned else 1) | (2 if test == "> 0" else 0)))


def _bigint(request: ColumnRequest) -> Op:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        return Op("signed", (8,))
    return Op("unsigned_base64", (8,))


_BY_WIDTH: dict[int, Callable[[ColumnRequest], Op | None]] = {1: _tinyint, 8: _bigint}


def _decimal(request: ColumnRequest, form: WireFormat) -> Op:
    return Op(f"decimal_{request.options.decimal_mode}", (request.wire.length, request.wire.scale))


def _float(request: ColumnRequest, form: WireFormat) -> Op:
    return Op("float" if request.options.single_float(request.column) else "float_as_double")


def _double(request: ColumnRequest, form: WireFormat) -> Op:
    return Op("double_as_float" if request.options.single_float(request.column) else "double")


def _bit(request: ColumnRequest, form: WireFormat) -> Op:
    return Op("bit") if request.wire.length == 1 else Op("bits", ((request.wire.length + 7) // 8,))


def _enum(request: ColumnRequest, form: WireFormat) -> Op:
    texts = ('""', *map(quote_byte_text, request.column.enum_values))
    return Op("enum", (1 if request.wire.length == 1 else 2,), tuple(text.encode(_BYTES) for text in texts))


def _set(request: ColumnRequest, form: WireFormat) -> Op:
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


def _string(request: ColumnRequest, form: WireFormat) -> Op | None:
    prefix, size, fixed_length = renderers.string_layout(request.wire)
    if request.column.family is Family.BYTES or request.column.charset == "binary":
        return Op(request.options.binary_mode, (prefix, size if fixed_length else 0))
    return _text(prefix, request, fixed_length=fixed_length)


def _prefixed(request: ColumnRequest, form: WireFormat) -> Op:
    return Op(form.native_op, (request.wire.length,))


def _clock(request: ColumnRequest, form: WireFormat) -> Op | None:
    kind, column, options = form.native_op, request.column, request.options
    if kind == "timestamp" and request.wire.length and options.trims_timestamps:
        return None
    temporal_request = TemporalRequest(request.wire, options, request.null, column)
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


OPS: dict[Family, _MakeOp | None] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _string,
    Family.BYTES: _string,
    Family.ENUM: _enum,
    Family.SET: _set,
    Family.JSON: _prefixed,
    Family.DATE: _clock,
    Family.TIME: _clock,
    Family.DATETIME: _clock,
    Family.TIMESTAMP: _clock,
    Family.YEAR: lambda request, form: Op(form.native_op),
    Family.GEOMETRY: _prefixed,
    Family.POINT: _prefixed,
    Family.VECTOR: _prefixed,
}
"""None where the kernel has no operation."""


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
    form = request.wire_format
    make_op = None if form is None else OPS[request.column.family]
    return None if form is None or make_op is None else make_op(request, form)
