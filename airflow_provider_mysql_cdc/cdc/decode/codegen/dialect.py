"""How a record is assembled from the parts that generated code writes, and how that looks in JSON.

How a record is assembled from the parts that generated code writes: the differences between JSON and Avro.

Generated code reads rows the same way for both, and joins texts. A dialect defines how a value becomes text, and the
text between values, images and the source block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.custom_values import (
    null_converter,
    plain_renderer,
    plain_text,
    value_converter,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import JSON_OBJECT, ColumnCode, ObjectDelimiters
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import change_text, constant_text, value_indexes
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest, column_renderer
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextCode, TextRequest, text_code
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text, to_byte_text
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import Column

AfterRow = Callable[[EventContext, str], str]
# Columns, their wire types, modes, texts of defaults for NULL, indexes of the key columns
MakeColumnCodes = Callable[
    [tuple[Column, ...], tuple[WireType, ...], DecoderOptions, Mapping[str, str], tuple[int, ...]],
    tuple[ColumnCode, ...],
]
NO_NAMES: Mapping[str, Any] = MappingProxyType({})


class Declined(Exception):
    """Report that a dialect has no code for a table, or the native kernel no plan; the message says why."""


class TextParts(NamedTuple):
    """Hold the code of a column of the text protocol.

    Args:
        code: Reads the value.
        result: Expression of the text in keys, and in values where no mask or hash changes it.
        null: Expression of the same for NULL.
        change: Name of the function that returns the masked or hashed text in values, or None.
        change_null: Whether it is called for NULL too.
    """

    code: TextCode
    result: str
    null: str
    change: str | None = None
    change_null: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Define how records are assembled. Equal only to itself, so that it can be a key of the shape cache.

    Args:
        codes: Returns the code of a table's columns in row images.
        text: Returns the code of a column (its index, its request, whether it is in the key) of the text protocol.
        constant: Turns the JSON text of a constant mask into the text in values; byte text.
        key_members: Returns the text after the columns of every key.
        after_row: Returns the function that writes the text after the row number.
        before: Text before the before image.
        after: Text before the after image.
        null: Text of an absent image.
        source: Text before the source block.
        image: Text around an image's columns.
        key: Text around a key's columns.
        row: Body of an f-string that holds the number in the name ``row``.
        number: Returns the text of a row's number; None for the number itself.
        needs_byte_text: Whether texts around rows may hold characters that are no bytes.
        names: Further objects that the generated code uses, by name.
    """

    codes: MakeColumnCodes
    text: Callable[[int, TextRequest, bool], TextParts]
    constant: Callable[[Column, DecoderOptions, str], str]
    key_members: Callable[[DecoderOptions], str]
    after_row: Callable[[DecoderOptions], AfterRow]
    before: str = '{"before":'
    after: str = ',"after":'
    null: str = "null"
    source: str = ',"source":'
    image: ObjectDelimiters = JSON_OBJECT
    key: ObjectDelimiters = JSON_OBJECT
    row: str = "{row}"
    number: Callable[[int], str] | None = None
    needs_byte_text: bool = True
    names: Mapping[str, Any] = field(default_factory=lambda: NO_NAMES)

    def insert(self) -> str:
        """Return the text before the only image of an insert."""
        return self.before + self.null + self.after

    def before_source(self, op: str) -> str:
        """Return the text between the last image and the source block.

        Args:
            op: The operation: the only image of a create is the after image, that of a delete the before image.
        """
        return (self.after + self.null if op == "d" else "") + self.source


def after_row(ctx: EventContext, op: str) -> str:
    """Return what follows the row number in the payload."""
    return f'{ctx.src_tail},"transaction":{ctx.transaction},"op":"{op}"{ctx.tail}'


NO_TRANSACTION = ',"transaction":null'
"""The end of a value of contract 1.9 without transaction metadata, before its last brace."""


def _after_row_1_9(ctx: EventContext, op: str) -> str:
    return f'{ctx.src_tail},"op":"{op}"{ctx.tail}'


def _after_row_1_9_transaction(ctx: EventContext, op: str) -> str:
    tail = ctx.tail[:-1].removesuffix(NO_TRANSACTION)
    return f'{ctx.src_tail},"op":"{op}"{tail},"transaction":{ctx.transaction}}}'


def after_row_of(options: DecoderOptions) -> Callable[[EventContext, str], str]:
    """Return the function that writes the text after the row number.

    In contract 1.9 the transaction comes last (EX-14, EX-18); without transaction metadata it is a part of the tail.
    """
    if options.contract != "1.9":
        return after_row
    return _after_row_1_9_transaction if options.transaction else _after_row_1_9


def column_codes(
    columns: tuple[Column, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    null_text: Mapping[str, str],
    keys: tuple[int, ...],
) -> tuple[ColumnCode, ...]:
    """Return the code of every column of a table.

    Args:
        columns: The table's columns.
        wires: Their wire types.
        options: Modes.
        null_text: Texts of defaults for NULL (``EnvelopeText.null_text``).
        keys: Indexes of the key columns.
    """
    in_value, codes = value_indexes(columns, options), []
    for index, (column, wire) in enumerate(zip(columns, wires, strict=True)):
        null = "null"
        if options.replace_null_with_default:
            null = to_byte_text(null_text.get(column.name, "null"))
        change = options.treatment(column).change
        custom, convert, refuse_null = options.custom(column), None, None
        if custom is None:
            layout, render = column_renderer(ColumnRequest(column, wire, options, null))
        else:
            layout, render = plain_renderer(column, wire, options)
            convert = value_converter(column, custom, hidden=change is not None)
            if column.nullable:
                null, refuse_null = null_converter(custom, null, hidden=change is not None)
        codes.append(
            ColumnCode(
                name=column.name,
                label=quote_byte_text(field_name(column.name, options.field_names)) + ":",
                wire=layout,
                render=render,
                null=null,
                in_value=index in in_value,
                in_key=index in keys,
                constant=constant_text(change),
                change=change_text(change),
                convert=convert,
                refuse_null=refuse_null,
            )
        )
    return tuple(codes)


def key_members(options: DecoderOptions) -> str:
    """Return the members after the columns of every key, byte text, each with a comma before it."""
    return "".join(f",{quote_byte_text(name)}:{quote_byte_text(value)}" for name, value in options.key_fields)


def schema_wrapper(schema: str | None) -> tuple[str, str]:
    """Return the text before and after a payload, byte text.

    Args:
        schema: JSON text of its schema; None where payloads have none around them.
    """
    if schema is None:
        return "", ""
    return f'{{"schema":{to_byte_text(schema)},"payload":', "}"


def text_parts(index: int, request: TextRequest, in_key: bool) -> TextParts:
    """Return the code of a column of the text protocol.

    Args:
        index: Its place in the row.
        request: The column.
        in_key: Whether it is in the key.

    Raises:
        SchemaError: The column's type is not known.
    """
    column, options = request.column, request.options
    change = change_text(options.treatment(column).change)
    custom = options.custom(column)
    code = text_code(request) if custom is None else plain_text(request)
    result, null = code.result, repr(request.null)
    if custom is not None:
        hidden = options.treatment(column).change is not None
        result = f"{request.bind(f'convert_{index}', value_converter(column, custom, hidden=hidden))}({result})"
        if column.nullable:
            text, refuse = null_converter(custom, request.null, hidden=hidden)
            null = repr(text) if refuse is None else f"{request.bind(f'refuse_{index}', refuse)}()"
    changed = None if change is None else request.bind(f"change_{index}", change)
    return TextParts(code, result, null, changed, change_null=custom is not None)


JSON = Dialect(
    codes=column_codes,
    text=text_parts,
    constant=lambda column, options, text: text,
    key_members=key_members,
    after_row=after_row_of,
)
