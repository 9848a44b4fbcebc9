"""Rows of the text protocol as Avro through the native kernel, and through Python where it declines."""

from __future__ import annotations

import logging

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO, column_form
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op
from airflow_provider_mysql_cdc.cdc.decode.native_rows import unknown
from airflow_provider_mysql_cdc.cdc.decode.native_text import GivenText, NativeText, counted, text_op
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK
from airflow_provider_mysql_cdc.cdc.decode.row_functions import TextDecoder
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

log = logging.getLogger(__name__)
_BYTES = "latin-1"  # byte text has one character a byte
_CLOCKS = ("date", "time", "datetime", "timestamp")
_SHOWN = (*_CLOCKS, "decimal_string", "base64", "base64-url-safe", "hex")
_UNKNOWN = ("geometry", "point", "vector")
_ZERO, _NULL = b"Z", b"N"  # native/src/avro.rs
# A number outside of its type's range is one for Python.
_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64, "YEAR": 16}


class NativeAvroText(NativeText):
    """Write row packets of one table as Avro; arguments and errors as for ``NativeText``."""

    dialect, sign, punctuation = AVRO, BINARY_MARK, tuple(AVRO.image)

    def _given(self, column: Column, options: DecoderOptions, null: str) -> GivenText:
        op, form, nullable = text_op(column, options, null), column_form(column, options), column.nullable
        if op.name in _UNKNOWN:
            raise unknown(column)
        nothing = ""
        try:
            nothing = form.of(null)
        except ValueError:
            nullable = False  # NULL is an error then, which Python tells
        dated = op.name in _CLOCKS
        # A TIME is never a zero date.
        zero = form.of(op.texts[0].decode(_BYTES)) if dated and op.name != "time" and not column.nullable else nothing
        texts = (form.head, zero, nothing)
        given = Op(
            f"avro-{'shown' if op.name in _SHOWN else 'stored'}:{op.name}",
            (_BITS[column.type_name],) if op.name in ("copy", "plain") else op.numbers,
            (*(text.encode(_BYTES) for text in texts), *((_ZERO, _NULL) if dated else op.texts)),
        )
        return nullable, nothing.encode(_BYTES), given.name, list(given.numbers), list(given.texts)


def avro_text_decoder(
    plain: TextDecoder,
    table: Table,
    options: DecoderOptions,
    envelope: EnvelopeText,
    columns: tuple[Column, ...],
    heads: tuple[str, str],
    tally: Tally | None = None,
) -> TextDecoder:
    """Return what writes a table's rows as Avro: the native one where there is a kernel and it knows the table.

    Args:
        plain: What writes them in Python.
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant text around the rows.
        columns: The columns that the SELECT gives, in its order.
        heads: What keys and values begin with.
        tally: Counts what the kernel decodes.
    """
    module = kernel().module
    if module is None:
        return plain
    try:
        return NativeAvroText(plain, table, options, envelope, columns, module, tally, heads)
    except Declined as reason:
        log.info("rows of %s are written as Avro in Python: %s", table.id, reason)
    return plain if tally is None else counted(plain, tally, "format")
