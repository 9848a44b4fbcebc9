"""Renderers of row images that write Avro at once: one per column type and handling mode.

A renderer adds the statements that turn a value's raw parts into byte text and returns an f-string body, as those of
``decode.codegen.renderers`` do for JSON. What has no renderer here goes by way of JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro.column_form import ColumnForm
from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import Emitter, Render, Wire, literal
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import (
    SET_FIELDS,
    Request,
    decimal_answer,
    set_text,
    string_layout,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    FRACTION_FIELDS,
    TIMES_OF_DAY,
    datetime_unit,
    fraction_bytes,
    fraction_text,
    joined,
    scaled,
    time2,
    time_unit,
)
from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import json_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import FloatTexts, quote_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.numbers import decimal_double, decimal_text
from airflow_provider_mysql_cdc.cdc.model.table import BINARY_TYPES, CHARACTER_TYPES

Answer = tuple[Wire, Render]
UTF8 = ("utf8mb4", "utf8mb3", "utf8")
_FLOATS = FloatTexts()
FLOATS: temporal.Memo[str] = temporal.Memo(lambda bits: binary.single(float(_FLOATS[bits])))
"""Floats by their 32 bits."""
_NANO = 1_000_000_000
_LONGEST_FRACTION = 3


def _whole(form: ColumnForm) -> Render:
    def render(emitter: Emitter, names: list[str]) -> str:
        if len(names) == 2:
            emitter.line(f"{names[0]} += {names[1]} << 16")
        emitter.line(f"{names[0]} = {form.bare().whole(names[0])}")
        return form.body(f"{{{names[0]}}}")

    return render


def _integer(fmt: str, request: Request, form: ColumnForm, null: str) -> Answer:
    wire = Wire((("<", fmt.upper() if request.column.unsigned else fmt),))
    return wire, _whole(form)


def _tinyint(request: Request, form: ColumnForm, null: str) -> Answer:
    test = request.options.boolean_test(request.column)

    def render(emitter: Emitter, names: list[str]) -> str:
        value = f"S[{names[0]}]" if test is None else f"S[-({names[0]} {test})]"
        return form.body(f"{{{value}}}")

    return Wire((("", "B" if request.column.unsigned else "b"),)), render


def _mediumint(request: Request, form: ColumnForm, null: str) -> Answer:
    return Wire((("<", "H"), ("", "B" if request.column.unsigned else "b"))), _whole(form)


def _bigint(request: Request, form: ColumnForm, null: str) -> Answer:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        return Wire((("<", "q"),)), _whole(form)

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {form.bare().unscaled(names[0])}")
        return form.body(f"{{{names[0]}}}")

    return Wire((("<", "Q"),)), render


def _decimal(request: Request, form: ColumnForm, null: str) -> Answer:
    def finish(emitter: Emitter, name: str, scale: int) -> str:
        mode = request.options.decimal_mode
        if mode == "precise":
            emitter.line(f"{name} = {form.bare().unscaled(name)}")
            return form.body(f"{{{name}}}")
        if mode == "double":
            emitter.line(f"{name} = finite({emitter.bind('dec_double', decimal_double)}({name}, {scale}))")
            return form.body(f"{{{name}}}")
        emitter.line(f"{name} = {emitter.bind('dec_text', decimal_text)}({name}, {scale})")
        return form.body(f"{{{name}}}", size=f"len({name})")

    return decimal_answer(request, finish)


def _float(request: Request, form: ColumnForm, null: str) -> Answer:
    if not request.options.single_float(request.column):
        return _number("f", form)

    def render(emitter: Emitter, names: list[str]) -> str:
        return form.body(f"{{{emitter.bind('AVRO_FLOATS', FLOATS)}[{names[0]}]}}")

    return Wire((("<", "I"),)), render


def _number(fmt: str, form: ColumnForm) -> Answer:
    def render(emitter: Emitter, names: list[str]) -> str:
        name = names[0]
        # A number that is none, or has no end, is not equal to itself then.
        emitter.line(f"{name} = double_of({name}).decode('latin-1') if {name} - {name} == 0 else finite({name})")
        return form.body(f"{{{name}}}")

    return Wire((("<", fmt),)), render


def _double(request: Request, form: ColumnForm, null: str) -> Answer | None:
    return None if request.options.single_float(request.column) else _number("d", form)


def _bit(request: Request, form: ColumnForm, null: str) -> Answer:
    bits = request.wire.a
    size = (bits + 7) // 8

    def boolean(emitter: Emitter, names: list[str]) -> str:
        return form.body(
            f"{{{emitter.bind('AVRO_BOOLEANS', (binary.boolean(False), binary.boolean(True)))}[{names[0]}]}}"
        )

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {names[0]}[::-1].decode('latin-1')")
        return form.body(literal(binary.varint(size)) + f"{{{names[0]}}}")

    return (Wire((("", "B"),)), boolean) if bits == 1 else (Wire((("", f"{size}s"),)), render)


def _enum(request: Request, form: ColumnForm, null: str) -> Answer:
    texts = tuple(map(form.of, ('""', *map(quote_byte_text, request.column.enum_values))))

    def render(emitter: Emitter, names: list[str]) -> str:
        return f"{{{emitter.bind(request.unique('AVRO_ENUM'), texts)}[{names[0]}]}}"

    return Wire((("", "B") if request.wire.a == 1 else ("<", "H"),)), render


def _set(request: Request, form: ColumnForm, null: str) -> Answer:
    members = request.column.enum_values
    texts: temporal.Memo[str] = temporal.Memo(lambda mask: form.of(set_text(members, mask)))

    def render(emitter: Emitter, names: list[str]) -> str:
        if len(names) == 2:
            emitter.line(f"{names[0]} |= {names[1]} << 16")
        return f"{{{emitter.bind(request.unique('AVRO_SET'), texts)}[{names[0]}]}}"

    return Wire(SET_FIELDS[request.wire.a]), render


def _text(prefix: int, most: int, request: Request, form: ColumnForm) -> Answer | None:
    name = request.column.charset or "utf8mb4"
    known = charset(name)
    if not known.ascii_compatible or known.unit > 1:
        return None

    def decoded(data: str) -> str:
        return known.decode(data.encode("latin-1")).encode("utf-8", "replace").decode("latin-1")

    def render(emitter: Emitter, names: list[str]) -> str:
        text, size = names
        if name in UTF8:
            emitter.line(f"if not {text}.isascii(): utf8({text})")
        else:
            emitter.line(f"if not {text}.isascii():")
            emitter.line(f" {text} = {emitter.bind(f'decoded_{name}', decoded)}({text})")
            emitter.line(f" {size} = len({text})")
        # No character takes more than four bytes.
        return form.body(f"{{{text}}}", size=size, most=most if name in UTF8 else 4 * most)

    return Wire(prefix=prefix), render


def _character(request: Request, form: ColumnForm, null: str) -> Answer | None:
    if request.column.charset == "binary":
        return _binary(request, form, null)
    prefix, size, _ = string_layout(request.wire)
    return _text(prefix, size if request.wire.code != wt.BLOB else (1 << 8 * prefix) - 1, request, form)


def _binary(request: Request, form: ColumnForm, null: str) -> Answer | None:
    prefix, size, fixed = string_layout(request.wire)
    if request.options.binary_mode != "bytes":
        return None

    def render(emitter: Emitter, names: list[str]) -> str:
        data, length = names
        if not fixed:
            return form.body(f"{{{data}}}", size=length)
        # The server cuts trailing zero bytes of BINARY(n) in row images.
        emitter.line(f"{data} = {data}.ljust({size}, {emitter.bind('NULS', chr(0))})")
        return form.body(f"{{{data}}}", size=f"len({data})")

    return Wire(prefix=prefix), render


def document(data: bytes) -> str:
    """Return a binary JSON document as UTF-8 byte text.

    Raises:
        ValueError: It is damaged.
    """
    text = json_byte_text(data)
    if not text.isascii():
        text.encode("latin-1").decode()
    return text


def _json(request: Request, form: ColumnForm, null: str) -> Answer:
    def render(emitter: Emitter, names: list[str]) -> str:
        text, size = names
        emitter.line(f"{text} = {emitter.bind('document', document)}({text})")
        emitter.line(f"{size} = len({text})")
        return form.body(f"{{{text}}}", size=size)

    return Wire(prefix=request.wire.a, as_bytes=True), render


def _date(request: Request, form: ColumnForm, null: str) -> Answer | None:
    if request.options.time_mode == "isostring":
        return None
    zero, days = form.zero(null, "0"), temporal.dates(request.options.time_adjuster)

    def text(packed: int) -> str:
        found = days[packed]
        return zero if found is None else form.head + binary.varint(found)

    texts: temporal.Memo[str] = temporal.Memo(text)

    def render(emitter: Emitter, names: list[str]) -> str:
        return f"{{{emitter.bind(request.unique('AVRO_DATES'), texts)}[{names[0]} | {names[1]} << 16]}}"

    return Wire((("<", "H"), ("", "B"))), render


def _year(request: Request, form: ColumnForm, null: str) -> Answer:
    # 0 is the year 0000; other values count from 1900.
    texts = tuple(form.head + binary.varint(value and value + 1900) for value in range(256))

    def render(emitter: Emitter, names: list[str]) -> str:
        return f"{{{emitter.bind(request.unique('AVRO_YEARS'), texts)}[{names[0]}]}}"

    return Wire((("", "B"),)), render


def _datetime(request: Request, form: ColumnForm, null: str) -> Answer | None:
    digits, mode, adjust = request.wire.a, request.options.time_mode, request.options.time_adjuster
    size, unit = fraction_bytes(digits), datetime_unit(mode, request.wire.a)
    if mode == "isostring" or unit == _NANO:
        return None
    zero = form.zero(null, "0")

    def render(emitter: Emitter, names: list[str]) -> str:
        top, low = names[:2]
        hours = emitter.bind(f"HOURS_{adjust}_{unit}", temporal.datetime_hours(adjust, unit))
        seconds = emitter.bind(f"SECONDS_{unit}", temporal.datetime_seconds(unit))
        fraction, value = scaled(joined(emitter, names[2:]), size, unit), emitter.name("v")
        emitter.line(f"{value} = {hours}[{top} >> 4]")
        emitter.line(f"if {value} is None: {value} = {zero!r}")
        emitter.line("else:")
        emitter.line(f" {value} += {seconds}[({top} & 15) << 8 | {low}]{fraction}")
        emitter.line(f" {value} = {form.instant(value, unit)}")
        return f"{{{value}}}"

    return Wire(((">", "I"), ("", "B"), *FRACTION_FIELDS[size])), render


def _timestamp(request: Request, form: ColumnForm, null: str) -> Answer:
    digits = request.wire.a
    size, zero = fraction_bytes(digits), form.zero(null, '"1970-01-01T00:00:00Z"')
    head = literal(form.head + binary.varint(20 + (digits and digits + 1)))

    def render(emitter: Emitter, names: list[str]) -> str:
        hours = emitter.bind("EPOCH_HOURS", temporal.epoch_hour_texts())
        seconds = emitter.bind("SECOND_TEXTS", temporal.second_texts())
        fraction, value = joined(emitter, names[1:]), names[0]
        tail = fraction_text(emitter, fraction, digits, size)
        # 0000-00-00 is stored as second 0; MySQL accepts no other TIMESTAMP before 1970-01-01 00:00:01.
        is_zero = f"not {value}" + (f" and not {fraction}" if size else "")
        emitter.line(f"if {is_zero}: {value} = {zero!r}")
        if size == _LONGEST_FRACTION:
            # Three bytes hold more than six digits, in damaged rows; the length stands before the text.
            sized = emitter.bind("sized", binary.byte_text)
            text = f"{{{hours}[{value} // 3600]}}{{{seconds}[{value} % 3600]}}"
            emitter.line(f"elif {fraction} > 999999: {value} = '{literal(form.head)}' + {sized}(f'{text}{tail}')")
        emitter.line(f"else: {value} = f'{head}{{{hours}[{value} // 3600]}}{{{seconds}[{value} % 3600]}}{tail}'")
        return f"{{{value}}}"

    return Wire(((">", "I"), *FRACTION_FIELDS[size])), render


def _time(request: Request, form: ColumnForm, null: str) -> Answer | None:
    digits, mode = request.wire.a, request.options.time_mode
    size, unit = fraction_bytes(digits), time_unit(mode, digits)
    if mode in TIMES_OF_DAY:
        return None
    texts: temporal.Memo[str] = temporal.Memo(
        lambda packed: form.head + binary.varint(temporal.time_units(packed, size, unit))
    )

    return time2(
        digits, lambda emitter, _, packed: f"{{{emitter.bind(request.unique('AVRO_TIMES'), texts)}[{packed}]}}"
    )


RENDERERS: dict[tuple[str, int], Callable[[Request, ColumnForm, str], Answer | None]] = {
    ("TINYINT", wt.TINY): _tinyint,
    ("SMALLINT", wt.SHORT): partial(_integer, "h"),
    ("MEDIUMINT", wt.INT24): _mediumint,
    ("INT", wt.LONG): partial(_integer, "i"),
    ("BIGINT", wt.LONGLONG): _bigint,
    ("DECIMAL", wt.NEWDECIMAL): _decimal,
    ("FLOAT", wt.FLOAT): _float,
    ("DOUBLE", wt.DOUBLE): _double,
    ("BIT", wt.BIT): _bit,
    ("ENUM", wt.ENUM): _enum,
    ("SET", wt.SET): _set,
    **{(name, code): _character for name in CHARACTER_TYPES for code in wt.STRING_CODES},
    **{(name, code): _binary for name in BINARY_TYPES for code in wt.STRING_CODES},
    ("JSON", wt.JSON): _json,
    ("DATE", wt.DATE): _date,
    ("DATE", wt.NEWDATE): _date,
    ("YEAR", wt.YEAR): _year,
    ("TIME", wt.TIME2): _time,
    ("DATETIME", wt.DATETIME2): _datetime,
    ("TIMESTAMP", wt.TIMESTAMP2): _timestamp,
}


def fast_answer(request: Request, form: ColumnForm, null: str) -> Answer | None:
    """Return wire layout and renderer of a column, or None when its values go by way of JSON.

    Args:
        request: The column.
        form: How its values are written.
        null: What stands for NULL.
    """
    build = RENDERERS.get((request.column.type_name, request.wire.code))
    return None if build is None else build(request, form, null)
