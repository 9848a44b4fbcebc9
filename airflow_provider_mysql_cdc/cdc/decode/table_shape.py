"""What tables of one shape share: the code of their columns and the functions generated from it.

A shape is everything that decides about generated code but the texts around a payload, in which the table's name
stands. Those are put into the compiled code in place of marks, so that a thousand tables of a shape are compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import CodeType
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.changes import change_text, constant_text
from airflow_provider_mysql_cdc.cdc.decode.custom_values import conversion, null_conversion, plain_answer
from airflow_provider_mysql_cdc.cdc.decode.emitter import ColumnCode, Emitter, emit_image, literal
from airflow_provider_mysql_cdc.cdc.decode.json_bytes import quote_byte_text, to_byte_text
from airflow_provider_mysql_cdc.cdc.decode.options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.renderers import Request, column_answer
from airflow_provider_mysql_cdc.cdc.decode.variants import VARIANTS, Variants, compiled, function_of
from airflow_provider_mysql_cdc.cdc.decode.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import Column

# Generated code holds byte text, in which no character is above U+00FF.
KEY_HEAD, KEY_TAIL, VALUE_HEAD = "\u0100", "\u0101", "\u0102"
_SHAPES, _RUNS = 256, 4 * VARIANTS


class TableShape:
    """Hold the code of one shape.

    Args:
        columns: The table's columns.
        keys: Indexes of the event key's columns in key order.
        wires: Wire types of the columns.
        options: Modes.
        null_text: Texts of defaults for NULL, by column name.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        keys: tuple[int, ...],
        wires: tuple[WireType, ...],
        options: DecoderOptions,
        null_text: tuple[tuple[str, str], ...],
    ) -> None:
        names = tuple(columns[i].name.lower() for i in keys)
        self.columns = column_codes(columns, wires, options, dict(null_text), names)
        self.size = (len(columns) + 7) >> 3
        self.key_more = key_members(options)
        # (bytes, byte text, offset of the bitmap) -> offset after the image, key text, row text
        self.images = Variants(self._make_image)
        self._keys = keys
        self._namespace: dict[str, Any] = {}
        self._runs: dict[tuple[str, bool, bytes | None], CodeType] = {}

    def run(self, start: str, bitmap: bytes | None, *, tombstone: bool, texts: Mapping[str, str]) -> Any:
        """Return the function that reads rows with one image, for a table of this shape.

        Args:
            start: What the payload begins with.
            bitmap: NULL columns of the rows that it reads; None for any.
            tombstone: Whether a tombstone follows each record.
            texts: What stands in place of the marks: the texts around keys and before values.
        """
        which = start, tombstone, bitmap
        code = self._runs.get(which)
        if code is None:
            if len(self._runs) >= _RUNS:  # each table has at most VARIANTS of its own, but there may be many tables
                self._runs.clear()
            code = self._runs[which] = compiled("\n".join(self._run_lines(start, bitmap, tombstone=tombstone)))
        return function_of(filled(code, texts), self._namespace)

    def _body(self, bitmap: bytes | None) -> tuple[list[str], str, str]:
        emitter = Emitter(self._namespace)
        if bitmap is None:
            emitter.line(f"nulls = int.from_bytes(b[p - {self.size}:p], 'little')")
        nulls = None if bitmap is None else int.from_bytes(bitmap, "little")
        value, key = emit_image(emitter, self.columns, nulls, self._keys, self.key_more)
        return emitter.lines, value, key

    def _make_image(self, bitmap: bytes | None) -> Any:
        body, value, key = self._body(bitmap)
        lines = ["def run(b, t, p):", f" p += {self.size}", *(" " + x for x in body)]
        code = compiled("\n".join([*lines, f" return p, f'{key}', f'{value}'"]))
        return function_of(code, self._namespace)

    def _run_lines(self, start: str, bitmap: bytes | None, *, tombstone: bool) -> list[str]:
        body, value, key = self._body(bitmap)
        if key:
            key = f"f'{literal(KEY_HEAD)}{key}{literal(KEY_TAIL)}'.encode('latin-1')"
        head, size, same = literal(VALUE_HEAD + start), self.size, ""
        if bitmap is not None:
            same = f" and b[p] == {bitmap[0]}" if size == 1 else f" and b[p:p + {size}] == {bitmap!r}"
        return [
            "def run(b, t, p, end, m, x, row, append):",
            f" while p < end{same}:",
            f"  p += {size}",
            *("  " + line for line in body),
            f"  k = {key or None}",
            f"  append((k, f'{head}{value}{{m}}{{row}}{{x}}'.encode('latin-1'), row, 0, None))",
            *(("  append((k, None, row, 1, None))",) if tombstone else ()),
            "  row += 1",
            " return p, row",
        ]


def filled(code: CodeType, texts: Mapping[str, str]) -> CodeType:
    """Return code whose constants have texts in place of marks.

    Args:
        code: The code.
        texts: By mark.
    """

    def fill(constant: Any) -> Any:
        if isinstance(constant, CodeType):
            return filled(constant, texts)
        if isinstance(constant, str) and not constant.isascii():
            for mark, text in texts.items():
                constant = constant.replace(mark, text)
        return constant

    return code.replace(co_consts=tuple(map(fill, code.co_consts)))


_shared = lru_cache(maxsize=_SHAPES)(TableShape)


def shape_of_table(
    columns: tuple[Column, ...],
    keys: tuple[int, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
) -> TableShape:
    """Return the shape of a table version; tables that are alike get the same.

    Args:
        columns: The table's columns.
        keys: Indexes of the event key's columns in key order.
        wires: Wire types of the columns.
        options: Modes.
        envelope: Constant texts.
    """
    nulls = tuple(envelope.null_text.items()) if options.replace_null_with_default else ()
    given = columns, keys, wires, replace(options, schema_titles=()) if options.schema_titles else options, nulls
    try:
        return _shared(*given)
    except TypeError:  # what a converter of one's own gave cannot be compared
        return TableShape(*given)


def column_codes(
    columns: tuple[Column, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    null_text: Mapping[str, str],
    key_columns: tuple[str, ...],
) -> tuple[ColumnCode, ...]:
    """Return the code of every column of a table.

    Args:
        columns: The table's columns.
        wires: Their wire types.
        options: Modes.
        null_text: Texts of defaults for NULL (``EnvelopeText.null_text``).
        key_columns: Names of the key columns, lower case.
    """
    included = None if options.included is None else {name.lower() for name in options.included}
    codes = []
    for column, wire in zip(columns, wires, strict=True):
        null = "null"
        if options.replace_null_with_default:
            null = to_byte_text(null_text.get(column.name, "null"))
        change = options.treatment(column).change
        custom, convert, refuse_null = options.custom(column), None, None
        if custom is None:
            layout, render = column_answer(Request(column, wire, options, null))
        else:
            layout, render = plain_answer(column, wire, options)
            convert = conversion(column, custom, hidden=change is not None)
            if column.nullable:
                null, refuse_null = null_conversion(custom, null, hidden=change is not None)
        codes.append(
            ColumnCode(
                name=column.name,
                label=quote_byte_text(field_name(column.name, options.field_names)) + ":",
                wire=layout,
                render=render,
                null=null,
                in_value=included is None or column.name.lower() in included,
                in_key=column.name.lower() in key_columns,
                constant=constant_text(change),
                change=change_text(change),
                convert=convert,
                refuse_null=refuse_null,
            )
        )
    return tuple(codes)


def key_members(options: DecoderOptions) -> str:
    """Return the members behind the columns of every key, byte text; a comma stands before each."""
    return "".join(f",{quote_byte_text(name)}:{quote_byte_text(value)}" for name, value in options.key_fields)
