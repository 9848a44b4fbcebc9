"""The table of renderers: one per column type and handling mode.

A renderer adds the statements that turn a value's raw parts into JSON text and returns an f-string body of plain names.
All mode choices are made here, when the code is generated.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import orjson

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen import literal_temporal_renderers, temporal_renderers
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnRenderer, Emitter, Render, WireLayout
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_documents import json_string
from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import (
    BASE64_PAIRS,
    FloatTexts,
    base64_int,
    base64_text,
    decimal_double,
    decimal_groups,
    decimal_text,
    escape_utf8,
    narrowed_float,
    quote_byte_text,
)
from airflow_provider_mysql_cdc.cdc.decode.values.text_values import charset, geometry_text, point_text, vector_text
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.java import java_double
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, WireFormat
from airflow_provider_mysql_cdc.cdc.model.table import Column

_FLOAT_TEXTS = FloatTexts()


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """Describe a column whose code is to be generated.

    Args:
        column: The column.
        wire: Its wire type.
        options: Modes.
        null: JSON text of NULL.
    """

    column: Column
    wire: WireType
    options: DecoderOptions
    null: str

    @property
    def wire_format(self) -> WireFormat | None:
        """Return the format of its values, or None for a type number that contradicts the schema."""
        return self.column.mysql_type.wire_format(self.wire.code)

    def unique(self, hint: str) -> str:
        """Return a name for an object that belongs to this column."""
        return f"{hint}_{self.column.position}"


def _plain(emitter: Emitter, names: list[str]) -> str:
    return f"{{{names[0]}}}"


def _integer(request: ColumnRequest) -> ColumnRenderer:
    return _BY_WIDTH[request.column.mysql_type.width](request)


def _tinyint(request: ColumnRequest) -> ColumnRenderer:
    layout, render = _plain_integer("b", request)
    test = request.options.boolean_test(request.column)
    return layout, render if test is None else _boolean(test)


def _boolean(test: str) -> Render:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = 'true' if {names[0]} {test} else 'false'")
        return f"{{{names[0]}}}"

    return render


def _plain_integer(fmt: str, request: ColumnRequest) -> ColumnRenderer:
    return WireLayout((("<" if fmt not in "bB" else "", fmt.upper() if request.column.unsigned else fmt),)), _plain


def _mediumint(request: ColumnRequest) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} += {names[1]} << 16")
        return f"{{{names[0]}}}"

    return WireLayout((("<", "H"), ("", "B" if request.column.unsigned else "b"))), render


def _bigint(request: ColumnRequest) -> ColumnRenderer:
    if not request.column.unsigned or request.options.bigint_unsigned_mode == "long":
        # Above 2**63-1 the number wraps, as Debezium's does (TYPE-58).
        return WireLayout((("<", "q"),)), _plain

    def render(emitter: Emitter, names: list[str]) -> str:
        return _base64_of_int(emitter, names[0])

    return WireLayout((("<", "Q"),)), render


_BY_WIDTH: dict[int, Callable[[ColumnRequest], ColumnRenderer]] = {
    1: _tinyint,
    2: partial(_plain_integer, "h"),
    3: _mediumint,
    4: partial(_plain_integer, "i"),
    8: _bigint,
}


def _base64_of_int(emitter: Emitter, name: str) -> str:
    """Add Base64 of the number's shortest two's complement form; three bytes are the usual size of money."""
    pairs, general = emitter.bind("B64_PAIRS", BASE64_PAIRS), emitter.bind("b64_int", base64_int)
    emitter.line(
        f"{name} = {pairs}[{name} >> 12] + {pairs}[{name} & 4095] if 32767 < {name} < 8388608 else {general}({name})"
    )
    return f'"{{{name}}}"'


def _decimal(request: ColumnRequest) -> ColumnRenderer:
    return decimal_renderer(request, _DECIMAL_MODES[request.options.decimal_mode])


def decimal_renderer(request: ColumnRequest, finish: Callable[[Emitter, str, int], str]) -> ColumnRenderer:
    """Return wire layout and renderer of a DECIMAL.

    Args:
        request: The column.
        finish: Gets the emitter, the name of the unscaled number and the scale; returns the value's f-string body.
    """
    groups = decimal_groups(request.wire.length, request.wire.scale)
    scale = request.wire.scale
    formats = {1: (("", "B"),), 2: ((">", "H"),), 3: (("", "B"), (">", "H")), 4: ((">", "I"),)}

    def render(emitter: Emitter, names: list[str]) -> str:
        parts, remaining = [], iter(names)
        for _, size in groups:
            name = next(remaining)
            if size == 3:
                emitter.line(f"{name} = {name} << 16 | {next(remaining)}")
            parts.append(name)
        emitter.line(f"{names[0]} = {_unscaled(groups, parts)}")
        return finish(emitter, names[0], scale)

    return WireLayout(tuple(f for _, size in groups for f in formats[size])), render


def _unscaled(groups: list[tuple[int, int]], parts: list[str]) -> str:
    """Return the expression of the unscaled number: the top bit is inverted; of negative numbers all bits are."""
    top = 1 << (8 * groups[0][1] - 1)
    positive, negative, power = [], [], 0
    for index in range(len(groups) - 1, -1, -1):
        digits, size = groups[index]
        flip = top - 1 if index == 0 else (1 << 8 * size) - 1
        scale = f" * {10**power}" if power else ""
        positive.append((f"({parts[0]} - {top})" if index == 0 else parts[index]) + scale)
        negative.append(f"({parts[index]} ^ {flip}){scale}")
        power += digits
    return f"{' + '.join(positive)} if {parts[0]} >= {top} else -({' + '.join(negative)})"


def _decimal_precise(emitter: Emitter, name: str, scale: int) -> str:
    return _base64_of_int(emitter, name)


def _decimal_string(emitter: Emitter, name: str, scale: int) -> str:
    if scale:
        emitter.line(f"{name} = {emitter.bind('dec_text', decimal_text)}({name}, {scale})")
    return f'"{{{name}}}"'


def _decimal_double(emitter: Emitter, name: str, scale: int) -> str:
    double, java = emitter.bind("dec_double", decimal_double), emitter.bind("java_double", java_double)
    emitter.line(f"{name} = {java}({double}({name}, {scale}))")
    return f"{{{name}}}"


_DECIMAL_MODES: dict[str, Callable[[Emitter, str, int], str]] = {
    "precise": _decimal_precise,
    "string": _decimal_string,
    "double": _decimal_double,
}


def _float(request: ColumnRequest) -> ColumnRenderer:
    if not request.options.single_float(request.column):
        return _double_as("f")

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind('FLOATS', _FLOAT_TEXTS)}[{names[0]}]")
        return f"{{{names[0]}}}"

    return WireLayout((("<", "I"),)), render


def _double_as(fmt: str) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        name = names[0]
        java, text = emitter.bind("java_double", java_double), emitter.bind("repr", repr)
        emitter.line(f"{name} = {text}({name}) if 0.001 <= {name} < 10000000.0 else {java}({name})")
        return f"{{{name}}}"

    return WireLayout((("<", fmt),)), render


def _double(request: ColumnRequest) -> ColumnRenderer:
    if not request.options.single_float(request.column):
        return _double_as("d")

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind('narrowed', narrowed_float)}({names[0]})")
        return f"{{{names[0]}}}"

    return WireLayout((("<", "d"),)), render


def _bit(request: ColumnRequest) -> ColumnRenderer:
    bits = request.wire.length
    if bits == 1:

        def boolean(emitter: Emitter, names: list[str]) -> str:
            emitter.line(f"{names[0]} = {emitter.bind('BOOLEANS', ('false', 'true'))}[{names[0]}]")
            return f"{{{names[0]}}}"

        return WireLayout((("", "B"),)), boolean

    def render(emitter: Emitter, names: list[str]) -> str:
        # MySQL stores big-endian, Debezium writes little-endian (TYPE-05).
        emitter.line(f"{names[0]} = {emitter.bind('b64', base64_text)}({names[0]}[::-1])")
        return f'"{{{names[0]}}}"'

    return WireLayout((("", f"{(bits + 7) // 8}s"),)), render


def _enum(request: ColumnRequest) -> ColumnRenderer:
    # 0 is the error value '' (an invalid member stored in a lax sql_mode).
    texts = ('""', *map(quote_byte_text, request.column.enum_values))

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind(request.unique('ENUM'), texts)}[{names[0]}]")
        return f"{{{names[0]}}}"

    return WireLayout((("", "B") if request.wire.length == 1 else ("<", "H"),)), render


def set_text(members: tuple[str, ...], mask: int) -> str:
    """Return the JSON string of a SET value.

    Args:
        members: The column's members.
        mask: Bit i set means member i.

    Raises:
        ValueError: When the mask has a bit beyond the members.
    """
    if mask >> len(members):
        raise ValueError(f"SET value {mask} has members beyond the {len(members)} of the column")
    return quote_byte_text(",".join(m for i, m in enumerate(members) if mask >> i & 1))


SET_FIELDS = {
    1: (("", "B"),),
    2: (("<", "H"),),
    3: (("<", "H"), ("", "B")),
    4: (("<", "I"),),
    8: (("<", "Q"),),
}


def _set(request: ColumnRequest) -> ColumnRenderer:
    size = request.wire.length
    if size not in SET_FIELDS:
        raise ValueError(f"a SET value of {size} bytes is not supported")
    texts = temporal.Memo(partial(set_text, request.column.enum_values))

    def render(emitter: Emitter, names: list[str]) -> str:
        if len(names) == 2:
            emitter.line(f"{names[0]} |= {names[1]} << 16")
        emitter.line(f"{names[0]} = {emitter.bind(request.unique('SET'), texts)}[{names[0]}]")
        return f"{{{names[0]}}}"

    return WireLayout(SET_FIELDS[size]), render


def _base64_url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode("ascii")


BINARY_TEXTS: dict[str, Callable[[bytes], str]] = {
    "bytes": base64_text,
    "base64": base64_text,
    "base64-url-safe": _base64_url,
    "hex": bytes.hex,
}


def _binary(prefix: int, pad: int, request: ColumnRequest) -> ColumnRenderer:
    mode = request.options.binary_mode

    def render(emitter: Emitter, names: list[str]) -> str:
        # The server cuts trailing zero bytes of BINARY(n) in row images.
        padded = f"{names[0]}.ljust({pad}, NUL)" if pad else names[0]
        if pad:
            emitter.bind("NUL", b"\0")
        text = emitter.bind(f"binary_{mode.replace('-', '_')}", BINARY_TEXTS[mode])
        emitter.line(f"{names[0]} = {text}({padded})")
        return f'"{{{names[0]}}}"'

    return WireLayout(prefix=prefix, as_bytes=True), render


def _text(prefix: int, request: ColumnRequest, *, fixed_length: bool = False) -> ColumnRenderer:
    name = request.column.charset or "utf8mb4"
    encoding = charset(name)
    if encoding.unit > 1 and fixed_length:
        return _wide_char(prefix, name)

    def render(emitter: Emitter, names: list[str]) -> str:
        text, length = names
        escape = emitter.bind(f"escape_{name}", encoding.escape)
        if encoding.ascii_compatible:
            # orjson scans fastest: its text is two quotes longer exactly when nothing needs an escape.
            dumps = emitter.bind("dumps", orjson.dumps)
            emitter.line(f"if len({dumps}({text})) != {length} + 2: {text} = {escape}({text})")
        else:
            emitter.line(f"{text} = {escape}({text})")
        return f'"{{{text}}}"'

    return WireLayout(prefix=prefix), render


def _wide_char(prefix: int, name: str) -> ColumnRenderer:
    """CHAR of two or four bytes a character: the server cuts trailing 0x20 bytes, also half of a character."""
    encoding = charset(name)

    def restore(data: str) -> str:
        missing = -len(data) % encoding.unit
        text = encoding.decode((data + " " * missing).encode("latin-1")).rstrip(" ")
        return escape_utf8(text.encode().decode("latin-1"))

    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind(f'escape_char_{name}', restore)}({names[0]})")
        return f'"{{{names[0]}}}"'

    return WireLayout(prefix=prefix), render


def string_layout(wire: WireType) -> tuple[int, int, bool]:
    """Return bytes of the length, declared bytes, and whether the length is fixed, of a type of strings."""
    fixed = wire.code == wt.STRING
    return wire.length if wire.code == wt.BLOB else (2 if wire.length > 255 else 1), wire.length, fixed


def _character(request: ColumnRequest) -> ColumnRenderer:
    """CHAR, VARCHAR and the TEXT types, also in character set binary."""
    prefix, size, fixed = string_layout(request.wire)
    if request.column.charset == "binary":
        return _binary(prefix, size if fixed else 0, request)
    return _text(prefix, request, fixed_length=fixed)


def _bytes(request: ColumnRequest) -> ColumnRenderer:
    prefix, size, fixed = string_layout(request.wire)
    return _binary(prefix, size if fixed else 0, request)


def _call(hint: str, function: Callable[[bytes], str], quoted: bool, request: ColumnRequest) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind(hint, function)}({names[0]})")
        return f'"{{{names[0]}}}"' if quoted else f"{{{names[0]}}}"

    return WireLayout(prefix=request.wire.length, as_bytes=True), render


def _temporal(request: ColumnRequest) -> ColumnRenderer:
    code = request.wire.code
    literals = literal_temporal_renderers.RENDERERS if request.options.flat else {}
    build = literals.get(code) or temporal_renderers.RENDERERS[code]
    return build(temporal_renderers.TemporalRequest(request.wire, request.options, request.null, request.column))


RENDERERS: dict[Family, Callable[[ColumnRequest], ColumnRenderer]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.BYTES: _bytes,
    Family.ENUM: _enum,
    Family.SET: _set,
    Family.JSON: partial(_call, "json_string", json_string, True),
    Family.DATE: _temporal,
    Family.TIME: _temporal,
    Family.DATETIME: _temporal,
    Family.TIMESTAMP: _temporal,
    Family.YEAR: _temporal,
    Family.GEOMETRY: partial(_call, "geometry_text", geometry_text, False),
    Family.POINT: partial(_call, "point_text", point_text, False),
    Family.VECTOR: partial(_call, "vector_text", vector_text, False),
}


def column_renderer(request: ColumnRequest) -> ColumnRenderer:
    """Return wire layout and renderer of a column.

    Raises:
        SchemaMismatchError: When the binlog's type cannot be that of the column.
    """
    if request.wire_format is None:
        raise SchemaMismatchError(
            f"Column {request.column.name} is {request.column.type_name}, but the binlog has type {request.wire.code}",
            remedy=f"the schema history does not describe this table version: {READ_AGAIN}",
        )
    return RENDERERS[request.column.family](request)
