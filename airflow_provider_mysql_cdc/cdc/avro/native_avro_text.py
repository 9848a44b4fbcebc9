"""Rows of the text protocol as Avro through the native kernel, and through Python where it declines."""

from __future__ import annotations

import logging

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO, avro_column_format
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op
from airflow_provider_mysql_cdc.cdc.decode.native_rows import unsupported_column
from airflow_provider_mysql_cdc.cdc.decode.native_text import (
    NativeTextDecoder,
    TextColumnPlan,
    counting_fallbacks,
    text_op,
)
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK
from airflow_provider_mysql_cdc.cdc.decode.row_functions import TextDecoder
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

log = logging.getLogger(__name__)
_BYTES = "latin-1"  # byte text has one character a byte
_TEMPORAL_OPS = ("date", "time", "datetime", "timestamp")
_RENDERED_OPS = (*_TEMPORAL_OPS, "decimal_string", "base64", "base64-url-safe", "hex")
_UNSUPPORTED_OPS = ("geometry", "point", "vector")
_ZERO, _NULL = b"Z", b"N"  # native/src/avro.rs
# A number outside of its type's range is one for Python.
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64, "YEAR": 16}


class NativeAvroText(NativeTextDecoder):
    """Write row packets of one table as Avro; arguments and errors as for ``NativeTextDecoder``."""

    dialect, sign, delimiters = AVRO, BINARY_MARK, tuple(AVRO.image)

    def _column_plan(self, column: Column, options: DecoderOptions, null: str) -> TextColumnPlan:
        op, fmt, nullable = text_op(column, options, null), avro_column_format(column, options), column.nullable
        if op.name in _UNSUPPORTED_OPS:
            raise unsupported_column(column)
        encoded_null = ""
        try:
            encoded_null = fmt.encode(null)
        except ValueError:
            nullable = False  # NULL is an error then, which Python tells
        is_temporal = op.name in _TEMPORAL_OPS
        # A TIME is never a zero date.
        zero_date = (
            fmt.encode(op.texts[0].decode(_BYTES))
            if is_temporal and op.name != "time" and not column.nullable
            else encoded_null
        )
        texts = (fmt.branch, zero_date, encoded_null)
        avro_column_op = Op(
            f"avro-{'shown' if op.name in _RENDERED_OPS else 'stored'}:{op.name}",
            (_INTEGER_BITS[column.type_name],) if op.name in ("copy", "plain") else op.numbers,
            (*(text.encode(_BYTES) for text in texts), *((_ZERO, _NULL) if is_temporal else op.texts)),
        )
        return (
            nullable,
            encoded_null.encode(_BYTES),
            avro_column_op.name,
            list(avro_column_op.numbers),
            list(avro_column_op.texts),
        )


def avro_text_decoder(
    plain: TextDecoder,
    table: Table,
    options: DecoderOptions,
    envelope: EnvelopeText,
    columns: tuple[Column, ...],
    prefixes: tuple[str, str],
    tally: Tally | None = None,
) -> TextDecoder:
    """Return what writes a table's rows as Avro: the native one where there is a kernel and it knows the table.

    Args:
        plain: What writes them in Python.
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant text around the rows.
        columns: The columns that the SELECT gives, in its order.
        prefixes: What keys and values begin with.
        tally: Counts what the kernel decodes.
    """
    module = kernel().module
    if module is None:
        return plain
    try:
        return NativeAvroText(plain, table, options, envelope, columns, module, tally, prefixes)
    except Declined as reason:
        log.info("rows of %s are written as Avro in Python: %s", table.id, reason)
    return plain if tally is None else counting_fallbacks(plain, tally, "format")
