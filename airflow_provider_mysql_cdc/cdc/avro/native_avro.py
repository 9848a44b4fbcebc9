"""Row events and rows of the text protocol as Avro through the native kernel."""

from __future__ import annotations

from functools import partial

from airflow_provider_mysql_cdc.cdc.avro.avro_binary import ColumnFormat
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO, avro_column_format, avro_row_decoder
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import native_row_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Op, Tally, binlog_op, require_plain_values
from airflow_provider_mysql_cdc.cdc.decode.native_rows import (
    ColumnPlan,
    NativeRowFormat,
    RowEventDecoder,
    event_plan,
    unsupported_column,
)
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextFormat, TextColumnPlan, text_op
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text
from airflow_provider_mysql_cdc.cdc.decode.values.text_values import charset
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_BYTES = "latin-1"  # byte text has one character a byte
_RENDERED_OPS = ("decimal_string", "base64", "base64-url-safe", "hex", "year")
_ZERO, _NULL = b"Z", b"N"  # native/src/avro_union.rs


def utf8_characters(name: str) -> tuple[bytes, ...]:
    """Return each byte's character of a character set in UTF-8; empty for one that is an error.

    Args:
        name: The character set, of one byte a character.
    """
    decode, texts = charset(name).decode, []
    for code in range(256):
        try:
            texts.append(decode(bytes([code])).encode())
        except UnicodeDecodeError:
            texts.append(b"")
    return tuple(texts)


def _op_texts(op: Op, column: Column, fmt: ColumnFormat) -> tuple[bytes, ...]:
    """Return the texts of an operation as Avro has them."""
    if op.name == "enum":
        return tuple(fmt.encode(text).encode(_BYTES) for text in ('""', *map(quote_byte_text, column.enum_values)))
    if op.name == "set":
        return tuple(member.encode("utf-8", "replace") for member in column.enum_values)
    if op.name == "text:table":
        return utf8_characters(column.charset or "utf8mb4")
    return (_ZERO, _NULL) if op.name.startswith("clock:") else op.texts


def avro_op(request: ColumnRequest, fmt: ColumnFormat, null: str) -> Op | None:
    """Return the kernel's operation on a column's values, or None where it has none.

    Args:
        request: The column.
        fmt: How its values are written.
        null: Bytes of NULL, byte text.
    """
    op = binlog_op(request)
    if op is None or not request.column.mysql_type.direct_avro:
        return None
    clock = op.name.startswith("clock:")
    encoding = "double" if op.name == "decimal_double" else "shown" if clock or op.name in _RENDERED_OPS else "stored"
    zero_date = fmt.encode(op.texts[0].decode(_BYTES)) if clock and not request.column.nullable else null
    texts = (fmt.branch, zero_date, null)
    op_texts = (*(text.encode(_BYTES) for text in texts), *_op_texts(op, request.column, fmt))
    return Op(f"avro-{encoding}:{op.name}", op.numbers, op_texts)


def avro_column_plan(column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> ColumnPlan:
    """Return how the kernel reads a column of a row image, and writes it as Avro.

    Args:
        column: The column.
        wire: Its wire type.
        code: Its code in Python.
        options: Modes.

    Raises:
        Declined: The kernel does not know the column's type or treatment.
    """
    require_plain_values(column, options)
    request = ColumnRequest(column, wire, options, "null")
    # Of a column that is in no record only the size matters.
    included = code.in_value or code.in_key
    op = avro_op(request, avro_column_format(column, options), code.null) if included else binlog_op(request)
    if op is None:
        raise unsupported_column(column)
    null = None if code.refuse_null is not None else code.null.encode(_BYTES)
    constant = None if code.constant is None else code.constant.encode(_BYTES)
    return b"", null, code.in_value, constant, op.name, list(op.numbers), list(op.texts)


AVRO_ROWS = NativeRowFormat(partial(event_plan, avro_column_plan), "written as Avro")


def create_avro_decoder(
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    prefixes: tuple[str, str],
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> RowEventDecoder:
    """Return the decoder that writes a table version as Avro: the native one where the kernel knows the table.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        prefixes: Text that keys and values begin with.
        tally: Counts what the kernel decodes.
        owned: Selects the rows whose records are produced; None for all.

    Raises:
        Declined: The decoder in Python has no code for the table either.
    """
    python = avro_row_decoder(table, wires, options, envelope, prefixes, owned)
    return native_row_decoder(python, wires, AVRO_ROWS, tally)


_TEMPORAL_OPS = ("date", "time", "datetime", "timestamp")
_TEXT_RENDERED_OPS = (*_TEMPORAL_OPS, "decimal_string", "base64", "base64-url-safe", "hex")
_YEAR_BITS = 16


def _integer_bits(column: Column) -> int:
    """Return the bits of a type's range; a number outside of it is one for Python."""
    return _YEAR_BITS if column.family is Family.YEAR else 8 * column.mysql_type.width


def avro_text_plan(column: Column, options: DecoderOptions, null: str) -> TextColumnPlan:
    """Return how the kernel reads a column of the SELECT, and writes it as Avro.

    Args:
        column: The column.
        options: Modes.
        null: JSON text of NULL, byte text.

    Raises:
        Declined: The kernel does not know the column's type or treatment.
    """
    op, fmt, nullable = text_op(column, options, null), avro_column_format(column, options), column.nullable
    if not column.mysql_type.direct_avro:
        raise unsupported_column(column)
    encoded_null = ""
    try:
        encoded_null = fmt.encode(null)
    except ValueError:
        nullable = False  # NULL is an error here, which the decoder in Python raises
    is_temporal = op.name in _TEMPORAL_OPS
    # A TIME is never a zero date.
    zero_date = (
        fmt.encode(op.texts[0].decode(_BYTES))
        if is_temporal and op.name != "time" and not column.nullable
        else encoded_null
    )
    texts = (fmt.branch, zero_date, encoded_null)
    avro_column_op = Op(
        f"avro-{'shown' if op.name in _TEXT_RENDERED_OPS else 'stored'}:{op.name}",
        (_integer_bits(column),) if op.name in ("copy", "plain") else op.numbers,
        (*(text.encode(_BYTES) for text in texts), *((_ZERO, _NULL) if is_temporal else op.texts)),
    )
    return (
        nullable,
        encoded_null.encode(_BYTES),
        avro_column_op.name,
        list(avro_column_op.numbers),
        list(avro_column_op.texts),
    )


AVRO_TEXT = NativeTextFormat(AVRO, BINARY_MARK, avro_text_plan, "format", "written as Avro")
