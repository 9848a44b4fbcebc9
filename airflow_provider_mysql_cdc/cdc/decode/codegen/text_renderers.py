"""The table of renderers for the text protocol: one per column type and handling mode.

A renderer adds the statements that turn ``s`` (byte text), or ``d`` (bytes), of ``n`` bytes into JSON text, and returns
its expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import BINARY_TEXTS
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    DAY_MICROS,
    TIMES_OF_DAY,
    datetime_unit,
    time_of_day_text,
    time_unit,
    within_int64,
)
from airflow_provider_mysql_cdc.cdc.decode.values import temporal, text_values
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import (
    BASE64_PAIRS,
    base64_int,
    base64_text,
    decimal_text,
    escape,
    escape_utf8,
    quote_byte_text,
    to_byte_text,
)
from airflow_provider_mysql_cdc.cdc.decode.values.text_values import geometry_text, point_text, vector_text
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shown_text
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Describe a column whose code is to be generated.

    Args:
        column: The column.
        options: Modes.
        null: JSON text of NULL.
        bind: Makes an object known to the generated code under a hint; equal hints must mean equal objects.
    """

    column: Column
    options: DecoderOptions
    null: str
    bind: Callable[[str, Any], str]

    def zero(self, epoch: str) -> str:
        """Return the text of MySQL's zero dates (TYPE-53)."""
        return self.null if self.column.nullable else epoch


@dataclass(frozen=True, slots=True)
class TextCode:
    """Hold the code of one value.

    Args:
        lines: Statements.
        result: Expression of the JSON text.
        as_bytes: Whether it reads ``d`` instead of ``s``.
    """

    lines: tuple[str, ...]
    result: str
    as_bytes: bool = False


def _integer(request: TextRequest) -> TextCode:
    return _BY_WIDTH.get(request.column.mysql_type.width, _plain_integer)(request)


def _plain_integer(request: TextRequest) -> TextCode:
    if request.column.zerofill:
        return TextCode((), f"{request.bind('plain_number', text_values.plain_number)}(s)")
    return TextCode((), "s")


def _tinyint(request: TextRequest) -> TextCode:
    test = request.options.boolean_test(request.column)
    return _plain_integer(request) if test is None else TextCode((), f"'true' if int(s) {test} else 'false'")


def _bigint(request: TextRequest) -> TextCode:
    if not request.column.unsigned:
        return _plain_integer(request)
    if request.options.bigint_unsigned_mode == "precise":
        return TextCode(("u = int(s)",), _base64_of_int(request))
    plain = _plain_integer(request).result
    return TextCode((), f"{plain} if n < 19 else {request.bind('wrap_int64', text_values.wrap_int64)}(s)")


_BY_WIDTH = {1: _tinyint, 8: _bigint}


def _base64_of_int(request: TextRequest) -> str:
    pairs, general = request.bind("B64_PAIRS", BASE64_PAIRS), request.bind("b64_int", base64_int)
    short = f"{{{pairs}[u >> 12]}}{{{pairs}[u & 4095]}}"
    return f"f'\"{short}\"' if 32767 < u < 8388608 else f'\"{{{general}(u)}}\"'"


def _decimal(request: TextRequest) -> TextCode:
    scale = request.column.scale or 0
    digits = "int(s.replace('.', ''))" if scale else "int(s)"
    if request.options.decimal_mode == "precise":
        return TextCode((f"u = {digits}",), _base64_of_int(request))
    if request.options.decimal_mode == "double":
        return TextCode((), f"{request.bind('double_json', text_values.double_json)}(s)")
    text = request.bind("dec_text", decimal_text)
    return TextCode((f"u = {text}({digits}, {scale})",), "f'\"{u}\"'")


def _float(request: TextRequest) -> TextCode:
    if not request.options.single_float(request.column):
        return _double(request)
    return TextCode((), f"{request.bind('FLOAT_TEXTS', _FLOATS)}[s]")


_FLOATS = text_values.TextMemo(text_values.float_json)


def _double(request: TextRequest) -> TextCode:
    if request.options.single_float(request.column):
        return TextCode((), f"{request.bind('narrowed_json', text_values.narrowed_json)}(s)")
    return TextCode((), f"{request.bind('double_json', text_values.double_json)}(s)")


def _bit(request: TextRequest) -> TextCode:
    if (request.column.length or 1) == 1:
        return TextCode((), "'true' if d[0] else 'false'", as_bytes=True)
    return TextCode((), f"f'\"{{{request.bind('b64', base64_text)}(d[::-1])}}\"'", as_bytes=True)


def _string(request: TextRequest) -> TextCode:
    if request.column.charset == "binary":
        return _binary(request)
    escape, dumps = request.bind("escape_utf8", escape_utf8), request.bind("dumps", orjson.dumps)
    # CHAR keeps no trailing blanks in row images; SELECT returns them under PAD_CHAR_TO_FULL_LENGTH.
    strip = ("if s[-1:] == ' ':", " s = s.rstrip(' ')", " n = len(s)") if request.column.type_name == "CHAR" else ()
    return TextCode(strip, f"f'\"{{s}}\"' if len({dumps}(s)) == n + 2 else f'\"{{{escape}(s)}}\"'")


def _member(request: TextRequest) -> TextCode:
    """ENUM and SET: members are text in the character set binary too, a character for each byte."""
    if request.column.charset == "binary":
        return TextCode((), f"{request.bind('quote_byte_text', quote_byte_text)}(s)")
    shown = request.bind(f"member_{request.column.family.name}", partial(_escaped_members, request.column.family))
    dumps = request.bind("dumps", orjson.dumps)
    return TextCode((), f"f'\"{{s}}\"' if len({dumps}(s)) == n + 2 else f'\"{{{shown}(s)}}\"'")


def _escaped_members(family: Family, data: str) -> str:
    """Return members as ``escape_utf8`` does, also those of utf8mb4 that are no text: SELECT gives their bytes."""
    try:
        return escape_utf8(data)
    except UnicodeDecodeError:
        value = data.encode("latin-1")
        members = value.split(b",") if family is Family.SET else [value]
        return to_byte_text(escape(",".join(shown_text(member, "utf8mb4") for member in members)))


def _binary(request: TextRequest) -> TextCode:
    mode = request.options.binary_mode
    text = request.bind(f"binary_{mode.replace('-', '_')}", BINARY_TEXTS[mode])
    return TextCode((), f"f'\"{{{text}(d)}}\"'", as_bytes=True)


def _json(request: TextRequest) -> TextCode:
    return TextCode((), f"f'\"{{{request.bind('json_document', text_values.json_document)}(s)}}\"'")


def _call(hint: str, function: Callable[[bytes], str], request: TextRequest) -> TextCode:
    return TextCode((), f"{request.bind(hint, function)}(d)", as_bytes=True)


def _memo(request: TextRequest, hint: str, compute: Callable[[str], str]) -> TextCode:
    return TextCode((), f"{request.bind(f'{hint}_{request.column.position}', text_values.TextMemo(compute))}[s]")


def _year(request: TextRequest) -> TextCode:
    return _memo(request, "YEARS", text_values.plain_number)


def _date(request: TextRequest) -> TextCode:
    iso, adjust = request.options.time_mode == "isostring", request.options.time_adjuster
    zero = request.zero('"1970-01-01Z"' if iso else "0")

    def compute(text: str) -> str:
        days = text_values.text_days(text, adjust)
        if days is None:
            return zero
        return f'"{temporal.date_text(days)}Z"' if iso else str(days)

    return _memo(request, "DATES", compute)


def _time(request: TextRequest) -> TextCode:
    mode, digits = request.options.time_mode, request.column.length or 0
    if mode in TIMES_OF_DAY:
        return _time_of_day(request, digits)
    unit = time_unit(mode, digits)
    return _memo(request, "TIMES", lambda text: str(text_values.time_value(text, unit)))


def _time_of_day(request: TextRequest, digits: int) -> TextCode:
    """Return the code of a TIME in a mode of times of day; one outside of a day is noted each time it is met."""
    column, options = request.column, request.options

    def compute(text: str) -> str:
        return time_of_day_text(column, options, digits, text_values.time_value(text, 1_000_000), request.null)

    def of_the_day(text: str) -> str:
        micros = text_values.time_value(text, 1_000_000)
        return compute(text) if 0 <= micros <= DAY_MICROS - (options.time_mode == "isostring") else ""

    memo = _memo(request, "TIMES", of_the_day)
    return TextCode((), f"{memo.result} or {request.bind(f'outside_day_{column.position}', compute)}(s)")


def _datetime(request: TextRequest) -> TextCode:
    mode, digits = request.options.time_mode, request.column.length or 0
    if mode == "isostring":
        return _datetime_iso(request)
    unit = datetime_unit(mode, digits)
    hours = request.bind(
        f"HOURS_{request.options.time_adjuster}_{unit}",
        text_values.datetime_hours(request.options.time_adjuster, unit),
    )
    seconds = request.bind(f"SECONDS_{unit}", text_values.minute_seconds(unit))
    scale = unit / 10**digits
    factor = "" if scale == 1 else (f" * {int(scale)}" if scale > 1 else f" // {int(1 / scale)}")
    fraction = f" + int(s[20:]){factor}" if digits else ""
    value = f"u + {seconds}[s[14:19]]{fraction}"
    if unit == _NANO:
        limit = request.bind(f"int64_{request.column.position}", partial(within_int64, request.column, request.options))
        value = f"{limit}({value}, {request.null!r})"
    return TextCode((f"u = {hours}[s[:13]]",), f"{request.zero('0')!r} if u is None else {value}")


def _datetime_iso(request: TextRequest) -> TextCode:
    adjust = request.options.time_adjuster
    zero = request.zero('"1970-01-01T00:00:00Z"')

    def compute(text: str) -> str:
        days = text_values.text_days(text, adjust)
        if days is None:
            return zero
        return f'"{temporal.without_zeros(f"{temporal.date_text(days)}T{text[11:]}Z")}"'

    return _memo(request, "DATETIMES", compute)


def _timestamp(request: TextRequest) -> TextCode:
    zero = request.zero('"1970-01-01T00:00:00Z"')
    if request.column.length and request.options.trims_timestamps:
        trim = request.bind("without_zeros", temporal.without_zeros)
        return TextCode((), f"{zero!r} if s[:4] == '0000' else '\"' + {trim}(f'{{s[:10]}}T{{s[11:]}}Z') + '\"'")
    return TextCode((), f"{zero!r} if s[:4] == '0000' else f'\"{{s[:10]}}T{{s[11:]}}Z\"'")


def _literal(request: TextRequest) -> TextCode:
    return TextCode((), "f'\"{s}\"'")


RENDERERS: dict[Family, Callable[[TextRequest], TextCode]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _string,
    Family.BYTES: _binary,
    Family.ENUM: _member,
    Family.SET: _member,
    Family.JSON: _json,
    Family.DATE: _date,
    Family.TIME: _time,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.YEAR: _year,
    Family.GEOMETRY: partial(_call, "geometry_text", geometry_text),
    Family.POINT: partial(_call, "point_text", point_text),
    Family.VECTOR: partial(_call, "vector_text", vector_text),
}


def text_code(request: TextRequest) -> TextCode:
    """Return the code of a column.

    Raises:
        SchemaError: When the column's type is not known.
    """
    family = request.column.family
    if request.options.flat and family in TEMPORAL_FAMILIES:
        # The connection's zone is UTC, and the text protocol is MySQL's own text.
        return _literal(request)
    build = RENDERERS.get(family)
    if build is None:
        raise SchemaError(
            f"Column {request.column.name} has type {request.column.type_name}, which cannot be read",
            remedy="exclude the column (column.exclude.list), or report the type",
        )
    return build(request)
