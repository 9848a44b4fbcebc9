"""Renderers of the text protocol that write Avro directly: one per column type and handling mode.

As ``decode.codegen.text_renderers`` for JSON; values without a renderer here are converted by way of JSON.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_binary import ColumnFormat, length_code
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import TIMES_OF_DAY, datetime_unit, time_unit
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextCode, TextRequest
from airflow_provider_mysql_cdc.cdc.decode.values import text_values
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import compact_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import decimal_text
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family

_NANO = 1_000_000_000
TextRenderer = Callable[[TextRequest, ColumnFormat, str], TextCode | None]


def _with_length(fmt: ColumnFormat, text: str, size: str) -> str:
    """Return the expression of a string or of bytes."""
    return f"f'{literal(fmt.branch)}{{{length_code(size)}}}{{{text}}}'"


def _with_branch(fmt: ColumnFormat, expression: str) -> str:
    """Return the expression of bytes after the branch of their union."""
    return f"'{literal(fmt.branch)}' + {expression}" if fmt.branch else expression


def _integer(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    return _BY_WIDTH.get(request.column.mysql_type.width, _plain_integer)(request, fmt, null)


def _plain_integer(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    return TextCode(("u = int(s)",), fmt.integer("u"))


def _tinyint(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    test = request.options.boolean_test(request.column)
    return TextCode((), _with_branch(fmt, "S[int(s)]" if test is None else f"S[-(int(s) {test})]"))


def _bigint(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    if not request.column.unsigned:
        return _plain_integer(request, fmt, null)
    if request.options.bigint_unsigned_mode == "precise":
        return TextCode(("u = int(s)",), fmt.unscaled("u"))
    return TextCode(("u = int(s)", "if u >> 63: u -= 1 << 64"), fmt.integer("u"))


_BY_WIDTH = {1: _tinyint, 8: _bigint}


def _decimal(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    scale = request.column.scale or 0
    mode, lines = request.options.decimal_mode, ("u = int(s.replace('.', ''))" if scale else "u = int(s)",)
    if mode == "precise":
        return TextCode(lines, fmt.unscaled("u"))
    if mode == "double":
        return TextCode((), _with_branch(fmt, "finite(float(s))"))
    text = f"s = {request.bind('dec_text', decimal_text)}(u, {scale})"
    return TextCode((*lines, text), _with_length(fmt, "s", "len(s)"))


def _float(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    if not request.options.single_float(request.column):
        return TextCode((), _with_branch(fmt, "finite(float(s))"))
    return _memo(request, "FLOATS", lambda s: fmt.branch + avro_binary.single(float(text_values.float_json(s))))


def _double(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    if request.options.single_float(request.column):
        return None
    return TextCode((), _with_branch(fmt, "finite(float(s))"))


def _bit(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    if (request.column.length or 1) == 1:
        return TextCode((), _with_branch(fmt, "('\\x01' if d[0] else '\\x00')"), as_bytes=True)
    return TextCode(("s = t[q:p][::-1]",), _with_length(fmt, "s", "n"), as_bytes=True)


def _string(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    if request.column.charset == "binary":
        return _binary(request, fmt, null)
    # CHAR keeps no trailing blanks in row images; SELECT returns them under PAD_CHAR_TO_FULL_LENGTH.
    strip = ("if s[-1:] == ' ':", " s = s.rstrip(' ')", " n = len(s)") if request.column.type_name == "CHAR" else ()
    return TextCode((*strip, "if not s.isascii(): utf8(s)"), _with_length(fmt, "s", "n"))


def _member(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    return None if request.column.charset == "binary" else _string(request, fmt, null)


def _binary(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    return TextCode((), _with_length(fmt, "s", "n")) if request.options.binary_mode == "bytes" else None


def _json(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    compact = f"s = {request.bind('compact_text', compact_text)}(s)"
    return TextCode((compact, "if not s.isascii(): utf8(s)"), _with_length(fmt, "s", "len(s)"))


def _memo(request: TextRequest, hint: str, compute: Callable[[str], str]) -> TextCode:
    return TextCode((), f"{request.bind(f'avro_{hint}_{request.column.position}', text_values.TextMemo(compute))}[s]")


def _year(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode:
    return _memo(request, "YEARS", lambda s: fmt.branch + avro_binary.varint(int(s)))


def _date(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    adjust = request.options.time_adjuster
    if request.options.time_mode == "isostring":
        return None
    zero = _zero_date(fmt, null, "0")

    def compute(text: str) -> str:
        days = text_values.text_days(text, adjust)
        return zero if days is None else fmt.branch + avro_binary.varint(days)

    return _memo(request, "DATES", compute)


def literal_value(literal: str) -> str:
    """Return the text of a literal of generated code.

    Threads that build syntax trees at once (ast.literal_eval) get a SystemError of Python 3.11.7.
    """
    return str(eval(literal, {}))


def _zero_date(fmt: ColumnFormat, null: str, epoch: str) -> str:
    # The expression of NULL is a literal except for columns with a custom converter, which have no code here.
    return fmt.zero_date(literal_value(null), epoch) if fmt.column.nullable else fmt.encode(epoch)


def _time(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    mode, unit = request.options.time_mode, time_unit(request.options.time_mode, request.column.length or 0)
    if mode in TIMES_OF_DAY:
        return None
    return _memo(request, "TIMES", lambda s: fmt.branch + avro_binary.varint(text_values.time_value(s, unit)))


def _datetime(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    mode, digits = request.options.time_mode, request.column.length or 0
    unit, adjust = datetime_unit(mode, digits), request.options.time_adjuster
    if mode == "isostring" or unit == _NANO:
        return None
    hours = request.bind(f"HOURS_{adjust}_{unit}", text_values.datetime_hours(adjust, unit))
    seconds = request.bind(f"SECONDS_{unit}", text_values.minute_seconds(unit))
    scale = unit / 10**digits
    factor = "" if scale == 1 else (f" * {int(scale)}" if scale > 1 else f" // {int(1 / scale)}")
    fraction = f" + int(s[20:]){factor}" if digits else ""
    lines = (f"u = {hours}[s[:13]]", f"if u is not None: u += {seconds}[s[14:19]]{fraction}")
    return TextCode(lines, f"{_zero_date(fmt, null, '0')!r} if u is None else {fmt.instant('u', unit)}")


def _timestamp(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    if request.column.length and request.options.trims_timestamps:
        return None
    zero, branch = _zero_date(fmt, null, '"1970-01-01T00:00:00Z"'), literal(fmt.branch)
    return TextCode((), f"{zero!r} if s[:4] == '0000' else f'{branch}{{S[n + 1]}}{{s[:10]}}T{{s[11:]}}Z'")


RENDERERS: dict[Family, TextRenderer] = {
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
}


def avro_text_code(request: TextRequest, fmt: ColumnFormat, null: str) -> TextCode | None:
    """Return generated code that writes a column's value from the text protocol as Avro, or None to go through JSON.

    Args:
        request: The column.
        fmt: How its values are written.
        null: Expression of the bytes of NULL.
    """
    build = RENDERERS.get(request.column.family) if request.column.mysql_type.direct_avro else None
    return None if build is None else build(request, fmt, null)
