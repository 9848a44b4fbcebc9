"""Renderers of row images that write Avro directly: one per column type and handling mode.

A renderer adds the statements that turn a value's raw parts into byte text and returns an f-string body, as those of
``decode.codegen.renderers`` do for JSON. Values without a renderer here are converted by way of JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_binary import ColumnFormat
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnRenderer, Emitter, Render, WireLayout, literal
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_documents import SHAPES
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import (
    SET_FIELDS,
    ColumnRequest,
    decimal_renderer,
    set_text,
    string_layout,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    FRACTION_FIELDS,
    TIMES_OF_DAY,
    datetime_unit,
    fraction_bytes,
    fraction_text,
    join_fraction,
    scale_fraction,
    time2_renderer,
    time_unit,
)
from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import (
    FloatTexts,
    decimal_double,
    decimal_text,
    quote_byte_text,
)
from airflow_provider_mysql_cdc.cdc.decode.values.text_values import charset
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family

UTF8 = ("utf8mb4", "utf8mb3", "utf8")
_FLOATS = FloatTexts()
FLOATS: temporal.Memo[str] = temporal.Memo(lambda bits: avro_binary.single(float(_FLOATS[bits])))
"""Floats by their 32 bits."""
_NANO = 1_000_000_000
_LONGEST_FRACTION = 3


def _integer_render(fmt: ColumnFormat) -> Render:
    def render(emitter: Emitter, names: list[str]) -> str:
        if len(names) == 2:
            emitter.line(f"{names[0]} += {names[1]} << 16")
        emitter.line(f"{names[0]} = {fmt.without_branch().integer(names[0])}")
        return fmt.body(f"{{{names[0]}}}")

    return render


def _integer(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    return _BY_WIDTH[request.column.mysql_type.width](request, fmt, null)


def _plain_integer(struct_code: str, request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    wire = WireLayout((("<", struct_code.upper() if request.column.unsigned else struct_code),))
    return wire, _integer_render(fmt)


def _tinyint(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    test = request.options.boolean_test(request.column)

    def render(emitter: Emitter, names: list[str]) -> str:
        value = f"S[{names[0]}]" if test is None else f"S[-({names[0]} {test})]"
        return fmt.body(f"{{{value}}}")

    return WireLayout((("", "B" if request.column.unsigned else "b"),)), render


def _mediumint(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    return WireLayout((("<", "H"), ("", "B" if request.column.unsigned else "b"))), _integer_render(fmt)


def _bigint(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        return WireLayout((("<", "q"),)), _integer_render(fmt)

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {fmt.without_branch().unscaled(names[0])}")
        return fmt.body(f"{{{names[0]}}}")

    return WireLayout((("<", "Q"),)), render


_BY_WIDTH: dict[int, Callable[[ColumnRequest, ColumnFormat, str], ColumnRenderer]] = {
    1: _tinyint,
    2: partial(_plain_integer, "h"),
    3: _mediumint,
    4: partial(_plain_integer, "i"),
    8: _bigint,
}


def _decimal(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    def finish(emitter: Emitter, name: str, scale: int) -> str:
        mode = request.options.decimal_mode
        if mode == "precise":
            emitter.line(f"{name} = {fmt.without_branch().unscaled(name)}")
            return fmt.body(f"{{{name}}}")
        if mode == "double":
            emitter.line(f"{name} = finite({emitter.bind('dec_double', decimal_double)}({name}, {scale}))")
            return fmt.body(f"{{{name}}}")
        emitter.line(f"{name} = {emitter.bind('dec_text', decimal_text)}({name}, {scale})")
        return fmt.body(f"{{{name}}}", size=f"len({name})")

    return decimal_renderer(request, finish)


def _float(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    if not request.options.single_float(request.column):
        return _ieee_number("f", fmt)

    def render(emitter: Emitter, names: list[str]) -> str:
        return fmt.body(f"{{{emitter.bind('AVRO_FLOATS', FLOATS)}[{names[0]}]}}")

    return WireLayout((("<", "I"),)), render


def _ieee_number(struct_code: str, fmt: ColumnFormat) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        name = names[0]
        # The difference is not 0 for NaN and the infinities.
        emitter.line(f"{name} = double_of({name}).decode('latin-1') if {name} - {name} == 0 else finite({name})")
        return fmt.body(f"{{{name}}}")

    return WireLayout((("<", struct_code),)), render


def _double(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    return None if request.options.single_float(request.column) else _ieee_number("d", fmt)


def _bit(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    bits = request.wire.length
    size = (bits + 7) // 8

    def boolean(emitter: Emitter, names: list[str]) -> str:
        return fmt.body(
            f"{{{emitter.bind('AVRO_BOOLEANS', (avro_binary.boolean(False), avro_binary.boolean(True)))}[{names[0]}]}}"
        )

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {names[0]}[::-1].decode('latin-1')")
        return fmt.body(literal(avro_binary.varint(size)) + f"{{{names[0]}}}")

    return (WireLayout((("", "B"),)), boolean) if bits == 1 else (WireLayout((("", f"{size}s"),)), render)


def _enum(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    texts = tuple(map(fmt.encode, ('""', *map(quote_byte_text, request.column.enum_values))))

    def render(emitter: Emitter, names: list[str]) -> str:
        return f"{{{emitter.bind(request.unique('AVRO_ENUM'), texts)}[{names[0]}]}}"

    return WireLayout((("", "B") if request.wire.length == 1 else ("<", "H"),)), render


def _set(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    members = request.column.enum_values
    texts: temporal.Memo[str] = temporal.Memo(lambda mask: fmt.encode(set_text(members, mask)))

    def render(emitter: Emitter, names: list[str]) -> str:
        if len(names) == 2:
            emitter.line(f"{names[0]} |= {names[1]} << 16")
        return f"{{{emitter.bind(request.unique('AVRO_SET'), texts)}[{names[0]}]}}"

    return WireLayout(SET_FIELDS[request.wire.length]), render


def _text(prefix: int, max_size: int, request: ColumnRequest, fmt: ColumnFormat) -> ColumnRenderer | None:
    name = request.column.charset or "utf8mb4"
    text_charset = charset(name)
    if not text_charset.ascii_compatible or text_charset.unit > 1:
        return None

    def decoded(data: str) -> str:
        return text_charset.decode(data.encode("latin-1")).encode("utf-8", "replace").decode("latin-1")

    def render(emitter: Emitter, names: list[str]) -> str:
        text, size = names
        if name in UTF8:
            emitter.line(f"if not {text}.isascii(): utf8({text})")
        else:
            emitter.line(f"if not {text}.isascii():")
            emitter.line(f" {text} = {emitter.bind(f'decoded_{name}', decoded)}({text})")
            emitter.line(f" {size} = len({text})")
        # No character takes more than four bytes.
        return fmt.body(f"{{{text}}}", size=size, max_size=max_size if name in UTF8 else 4 * max_size)

    return WireLayout(prefix=prefix), render


def _character(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    if request.column.charset == "binary":
        return _binary(request, fmt, null)
    prefix, size, _ = string_layout(request.wire)
    return _text(prefix, size if request.wire.code != wt.BLOB else (1 << 8 * prefix) - 1, request, fmt)


def _binary(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    prefix, size, fixed = string_layout(request.wire)
    if request.options.binary_mode != "bytes":
        return None

    def render(emitter: Emitter, names: list[str]) -> str:
        data, length = names
        if not fixed:
            return fmt.body(f"{{{data}}}", size=length)
        # The server cuts trailing zero bytes of BINARY(n) in row images.
        emitter.line(f"{data} = {data}.ljust({size}, {emitter.bind('NULS', chr(0))})")
        return fmt.body(f"{{{data}}}", size=f"len({data})")

    return WireLayout(prefix=prefix), render


def json_document_text(data: bytes) -> str:
    """Return a binary JSON document as UTF-8 byte text.

    Raises:
        ValueError: It is damaged.
    """
    text = SHAPES.text(data)
    if not text.isascii():
        text.encode("latin-1").decode()
    return text


def _json(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        text, size = names
        emitter.line(f"{text} = {emitter.bind('document', json_document_text)}({text})")
        emitter.line(f"{size} = len({text})")
        return fmt.body(f"{{{text}}}", size=size)

    return WireLayout(prefix=request.wire.length, as_bytes=True), render


def _date(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    if request.options.time_mode == "isostring":
        return None
    zero, days = fmt.zero_date(null, "0"), temporal.packed_dates(request.options.time_adjuster)

    def text(packed: int) -> str:
        epoch_days = days[packed]
        return zero if epoch_days is None else fmt.branch + avro_binary.varint(epoch_days)

    texts: temporal.Memo[str] = temporal.Memo(text)

    def render(emitter: Emitter, names: list[str]) -> str:
        return f"{{{emitter.bind(request.unique('AVRO_DATES'), texts)}[{names[0]} | {names[1]} << 16]}}"

    return WireLayout((("<", "H"), ("", "B"))), render


def _year(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer:
    # 0 is the year 0000; other values count from 1900.
    texts = tuple(fmt.branch + avro_binary.varint(value and value + 1900) for value in range(256))

    def render(emitter: Emitter, names: list[str]) -> str:
        return f"{{{emitter.bind(request.unique('AVRO_YEARS'), texts)}[{names[0]}]}}"

    return WireLayout((("", "B"),)), render


def _datetime(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    digits, mode, adjust = request.wire.length, request.options.time_mode, request.options.time_adjuster
    size, unit = fraction_bytes(digits), datetime_unit(mode, request.wire.length)
    if mode == "isostring" or unit == _NANO:
        return None
    zero = fmt.zero_date(null, "0")

    def render(emitter: Emitter, names: list[str]) -> str:
        top, low = names[:2]
        hours = emitter.bind(f"HOURS_{adjust}_{unit}", temporal.datetime_hours(adjust, unit))
        seconds = emitter.bind(f"SECONDS_{unit}", temporal.datetime_seconds(unit))
        fraction, value = scale_fraction(join_fraction(emitter, names[2:]), size, unit), emitter.name("v")
        emitter.line(f"{value} = {hours}[{top} >> 4]")
        emitter.line(f"if {value} is None: {value} = {zero!r}")
        emitter.line("else:")
        emitter.line(f" {value} += {seconds}[({top} & 15) << 8 | {low}]{fraction}")
        emitter.line(f" {value} = {fmt.instant(value, unit)}")
        return f"{{{value}}}"

    return WireLayout(((">", "I"), ("", "B"), *FRACTION_FIELDS[size])), render


def _timestamp(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    digits = request.wire.length
    if digits and request.options.trims_timestamps:
        return None
    size, zero = fraction_bytes(digits), fmt.zero_date(null, '"1970-01-01T00:00:00Z"')
    branch_and_length = literal(fmt.branch + avro_binary.varint(20 + (digits and digits + 1)))

    def render(emitter: Emitter, names: list[str]) -> str:
        hours = emitter.bind("EPOCH_HOURS", temporal.epoch_hour_texts())
        seconds = emitter.bind("SECOND_TEXTS", temporal.second_texts())
        fraction, value = join_fraction(emitter, names[1:]), names[0]
        tail = fraction_text(emitter, fraction, digits, size)
        # 0000-00-00 is stored as second 0; MySQL accepts no other TIMESTAMP before 1970-01-01 00:00:01.
        is_zero = f"not {value}" + (f" and not {fraction}" if size else "")
        emitter.line(f"if {is_zero}: {value} = {zero!r}")
        if size == _LONGEST_FRACTION:
            # Three bytes hold more than six digits, in damaged rows; the length precedes the text.
            sized = emitter.bind("sized", avro_binary.byte_text)
            text = f"{{{hours}[{value} // 3600]}}{{{seconds}[{value} % 3600]}}"
            emitter.line(f"elif {fraction} > 999999: {value} = '{literal(fmt.branch)}' + {sized}(f'{text}{tail}')")
        emitter.line(
            f"else: {value} = f'{branch_and_length}{{{hours}[{value} // 3600]}}{{{seconds}[{value} % 3600]}}{tail}'"
        )
        return f"{{{value}}}"

    return WireLayout(((">", "I"), *FRACTION_FIELDS[size])), render


def _time(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    digits, mode = request.wire.length, request.options.time_mode
    size, unit = fraction_bytes(digits), time_unit(mode, digits)
    if mode in TIMES_OF_DAY:
        return None
    texts: temporal.Memo[str] = temporal.Memo(
        lambda packed: fmt.branch + avro_binary.varint(temporal.time_units(packed, size, unit))
    )

    return time2_renderer(
        digits, lambda emitter, _, packed: f"{{{emitter.bind(request.unique('AVRO_TIMES'), texts)}[{packed}]}}"
    )


_AvroRenderer = Callable[[ColumnRequest, ColumnFormat, str], ColumnRenderer | None]
RENDERERS: dict[Family, _AvroRenderer] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.BYTES: _binary,
    Family.ENUM: _enum,
    Family.SET: _set,
    Family.JSON: _json,
    Family.DATE: _date,
    Family.TIME: _time,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.YEAR: _year,
}
_OLD_FORMATS = (wt.TIME, wt.DATETIME, wt.TIMESTAMP)
"""Formats that are converted by way of JSON."""


def avro_renderer(request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    """Return wire layout and renderer of a column, or None when its values are converted by way of JSON.

    Args:
        request: The column.
        fmt: How its values are written.
        null: Bytes of NULL.
    """
    if request.wire_format is None or request.wire.code in _OLD_FORMATS or not request.column.mysql_type.direct_avro:
        return None
    return RENDERERS[request.column.family](request, fmt, null)
