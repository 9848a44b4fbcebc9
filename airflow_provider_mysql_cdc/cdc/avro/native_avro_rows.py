"""Row events as Avro through the native kernel, and through Python where it declines (``decode.native_rows``)."""

from __future__ import annotations

import logging

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO, column_form
from airflow_provider_mysql_cdc.cdc.avro.avro_row_decoder import DirectDecoder
from airflow_provider_mysql_cdc.cdc.avro.column_form import ColumnForm
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import Request
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op, op_of, require_unchanged
from airflow_provider_mysql_cdc.cdc.decode.native_rows import GivenColumn, NativeDecoder, unknown
from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

log = logging.getLogger(__name__)
_BYTES = "latin-1"  # byte text has one character a byte
_SHOWN = ("decimal_string", "base64", "base64-url-safe", "hex", "year")
_UNKNOWN = ("geometry", "point", "vector")
_ZERO, _NULL = b"Z", b"N"  # native/src/avro.rs


def plain_characters(name: str) -> tuple[bytes, ...]:
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


def _texts(op: Op, column: Column, form: ColumnForm) -> tuple[bytes, ...]:
    """Return the texts of an operation as Avro has them."""
    if op.name == "enum":
        return tuple(form.of(text).encode(_BYTES) for text in ('""', *map(quote_byte_text, column.enum_values)))
    if op.name == "set":
        return tuple(member.encode("utf-8", "replace") for member in column.enum_values)
    if op.name == "text:table":
        return plain_characters(column.charset or "utf8mb4")
    return (_ZERO, _NULL) if op.name.startswith("clock:") else op.texts


def avro_op(request: Request, form: ColumnForm, null: str) -> Op | None:
    """Return what the kernel does with a column's values, or None where it has nothing for them.

    Args:
        request: The column.
        form: How its values are written.
        null: What stands for NULL, byte text.
    """
    op = op_of(request)
    if op is None or op.name in _UNKNOWN:
        return None
    clock = op.name.startswith("clock:")
    way = "double" if op.name == "decimal_double" else "shown" if clock or op.name in _SHOWN else "stored"
    zero = form.of(op.texts[0].decode(_BYTES)) if clock and not request.column.nullable else null
    texts = (form.head, zero, null)
    given = (*(text.encode(_BYTES) for text in texts), *_texts(op, request.column, form))
    return Op(f"avro-{way}:{op.name}", op.numbers, given)


class NativeDirect(NativeDecoder, DirectDecoder):
    """Write the rows of one table version as Avro; arguments and errors as for ``NativeDecoder``."""

    def _given(self, column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> GivenColumn:
        require_unchanged(column, options)
        request = Request(column, wire, options, "null")
        # Of a column that is in no record only the size matters.
        shown = code.in_value or code.in_key
        op = avro_op(request, column_form(column, options), code.null) if shown else op_of(request)
        if op is None:
            raise unknown(column)
        null = None if code.refuse_null is not None else code.null.encode(_BYTES)
        constant = None if code.constant is None else code.constant.encode(_BYTES)
        return b"", null, code.in_value, constant, op.name, list(op.numbers), list(op.texts)


def direct_decoder(
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    heads: tuple[str, str],
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> DirectDecoder:
    """Return what writes a table version as Avro: the native one where there is a kernel and it knows the table.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        heads: What keys and values begin with.
        tally: Counts what the kernel decodes.
        owned: Tells rows whose records are wanted; None for all.

    Raises:
        Declined: There is no code for the table in Python either.
    """
    module = kernel().module
    if module is not None:
        try:
            return NativeDirect(table, wires, options, envelope, module, tally, AVRO, heads, owned)
        except Declined as reason:
            log.info("rows of %s are written as Avro in Python: %s", table.id, reason)
    return DirectDecoder(table, wires, options, envelope, AVRO, heads, owned)
