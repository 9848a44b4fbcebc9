"""Which columns of a table its records have, and functions that cut, mask or hash their values.

Which columns of a table its records have: in their keys, in their values, and therefore in a snapshot's SELECT.

Decoders, schemas, Avro, TiCDC's protocol and snapshots all use these functions, so they cannot disagree.

Functions that change the JSON text of a value: cut it, or replace it by a hash.

They see byte text (``jsontext``) of one JSON value as the renderers make it and leave ``null`` alone.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Callable, Iterable

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import base64_text, quote_byte_text
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.column_rule import ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, folded_name, quote_name

ChangeText = Callable[[str], str]

# Stream header, TC_STRING and TC_LONGSTRING. Source: Java Object Serialization Specification, chapter 6.
_JAVA_STREAM = b"\xac\xed\x00\x05"
_JAVA_STRING, _JAVA_LONG_STRING = b"t", b"|"


def java_serialized(text: str) -> bytes:
    """Return what Java's ObjectOutputStream writes for a String: header, length and modified UTF-8."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = (chr(int.from_bytes(data[i : i + 2], "big")) for i in range(0, len(data), 2))
    body = text.encode() if text.isascii() else b"".join(u.encode("utf-8", "surrogatepass") for u in units)
    body = body.replace(b"\0", b"\xc0\x80")
    if len(body) > 0xFFFF:
        return _JAVA_STREAM + _JAVA_LONG_STRING + len(body).to_bytes(8, "big") + body
    return _JAVA_STREAM + _JAVA_STRING + len(body).to_bytes(2, "big") + body


def truncate(text: str, length: int) -> str:
    """Return the first ``length`` UTF-16 units, as Java counts; half a character at the end is left out."""
    if len(text) * 2 <= length:
        return text
    data = text.encode("utf-16-be", "surrogatepass")[: 2 * length]
    return data.decode("utf-16-be", "ignore")


def _text_of(value: str) -> str:
    text: str = json.loads(value.encode("latin-1"))
    return text


def _truncate_text(change: ValueChange) -> ChangeText:
    length = change.length or 0

    def run(value: str) -> str:
        # A JSON text is never shorter than the value in UTF-16 units.
        if len(value) <= length + 2 or value == "null":
            return value
        return quote_byte_text(truncate(_text_of(value), length))

    return run


def _truncate_bytes(change: ValueChange) -> ChangeText:
    length = change.length or 0

    def run(value: str) -> str:
        return value if value == "null" else f'"{base64_text(b64decode(value[1:-1])[:length])}"'

    return run


def _hash(change: ValueChange) -> ChangeText:
    algorithm, salt, length = change.algorithm, change.salt.reveal().encode(), change.length
    encode: Callable[[str], bytes] = java_serialized if change.kind is ValueChangeKind.HASH else _utf8

    def run(value: str) -> str:
        if value == "null":
            return value
        return f'"{hashlib.new(algorithm, salt + encode(_text_of(value))).hexdigest()[:length]}"'

    return run


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


_BUILDERS: dict[ValueChangeKind, Callable[[ValueChange], ChangeText]] = {
    ValueChangeKind.TRUNCATE_TEXT: _truncate_text,
    ValueChangeKind.TRUNCATE_BYTES: _truncate_bytes,
    ValueChangeKind.HASH: _hash,
    ValueChangeKind.HASH_V2: _hash,
}


def change_text(change: ValueChange | None) -> ChangeText | None:
    """Return the function for a change, or None when there is nothing to compute."""
    return None if change is None or change.kind is ValueChangeKind.CONSTANT else _BUILDERS[change.kind](change)


def constant_text(change: ValueChange | None) -> str | None:
    """Return the JSON text that replaces every value, or None."""
    return quote_byte_text(change.text) if change is not None and change.kind is ValueChangeKind.CONSTANT else None


def key_indexes(table: Table, options: DecoderOptions) -> tuple[int, ...]:
    """Return the indexes of the event key's columns in key order; empty for a table whose events have no key.

    The columns are those of ``message.key.columns``, else those of the table's own key (EVT-08, EVT-09, COL-13).

    Args:
        table: The table.
        options: Key columns.

    Raises:
        SchemaError: A key column does not exist.
    """
    names = table.key_columns() if options.key_columns is None else options.key_columns
    indexes = []
    for name, index in _indexes_by_name(table.columns, names):
        if index is None:
            raise SchemaError(
                f"key column {name} is not a column of the table",
                where=str(table.id),
                remedy="correct message.key.columns",
            )
        indexes.append(index)
    return tuple(indexes)


def key_columns(table: Table, options: DecoderOptions) -> tuple[Column, ...]:
    """Return the columns of the event key in key order; arguments and errors as for ``key_indexes``."""
    return tuple(table.columns[index] for index in key_indexes(table, options))


def value_indexes(columns: tuple[Column, ...], options: DecoderOptions) -> frozenset[int]:
    """Return the indexes of the columns that go into the row images of values.

    Args:
        columns: The table's columns.
        options: Included columns.
    """
    if options.included is None:
        return frozenset(range(len(columns)))
    return frozenset(index for _, index in _indexes_by_name(columns, options.included) if index is not None)


def value_columns(table: Table, options: DecoderOptions) -> tuple[Column, ...]:
    """Return the columns that go into the row images of values, in table order.

    Args:
        table: The table.
        options: Included columns.
    """
    return tuple(table.columns[index] for index in sorted(value_indexes(table.columns, options)))


def selected_columns(table: Table, options: DecoderOptions | None = None) -> tuple[Column, ...]:
    """Return the columns that a snapshot reads: those of the value and of the key, in table order.

    Columns of which only a mask is shown are not read. There is at least one column, because SELECT needs one.

    Args:
        table: The table.
        options: Included and key columns; None means all.
    """
    if options is None:
        return table.columns
    indexes = set(key_indexes(table, options))
    for index in value_indexes(table.columns, options):
        if constant_text(options.treatment(table.columns[index]).change) is None:
            indexes.add(index)
    return tuple(table.columns[index] for index in sorted(indexes)) or table.columns[:1]


def select_list(table: Table, options: DecoderOptions | None = None) -> str:
    """Return the expressions of a SELECT whose rows ``compile_text_decoder`` reads.

    FLOAT is printed with 6 digits, and DOUBLE(M,D) with D digits, so these are selected as products with 1e0: a plain
    double, printed with all its digits.

    Args:
        table: The table.
        options: Included and key columns; None means all. The decoder must have the same.
    """
    return ", ".join(map(column_expression, selected_columns(table, options)))


def column_expression(column: Column) -> str:
    """Return the expression that gives one column as the decoder reads it."""
    name = quote_name(column.name)
    if column.type_name == "FLOAT" or (column.type_name == "DOUBLE" and column.scale is not None):
        return f"{name} * 1e0 AS {name}"
    return name


def _indexes_by_name(columns: tuple[Column, ...], names: Iterable[str]) -> list[tuple[str, int | None]]:
    """Return each name with the index of its column, or None; see ``Table.column``."""
    exact = {column.name: index for index, column in enumerate(columns)}
    if all(name in exact for name in names):
        return [(name, exact[name]) for name in names]
    folded = {folded_name(column.name): index for index, column in reversed(list(enumerate(columns)))}
    return [(name, exact.get(name, folded.get(folded_name(name)))) for name in names]
