"""How the native kernel writes rows of the text protocol as Avro."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO, avro_column_format
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op
from airflow_provider_mysql_cdc.cdc.decode.native_rows import unsupported_column
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextFormat, TextColumnPlan, text_op
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

_BYTES = "latin-1"  # byte text has one character a byte
_TEMPORAL_OPS = ("date", "time", "datetime", "timestamp")
_RENDERED_OPS = (*_TEMPORAL_OPS, "decimal_string", "base64", "base64-url-safe", "hex")
_ZERO, _NULL = b"Z", b"N"  # native/src/avro_union.rs
_YEAR_BITS = 16


def _integer_bits(column: Column) -> int:
    """Return the bits of a type's range; a number outside of it is one for Python."""
    return _YEAR_BITS if column.family is Family.YEAR else 8 * column.mysql_type.width


def avro_column_plan(column: Column, options: DecoderOptions, null: str) -> TextColumnPlan:
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
        f"avro-{'shown' if op.name in _RENDERED_OPS else 'stored'}:{op.name}",
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


AVRO_TEXT = NativeTextFormat(AVRO, BINARY_MARK, avro_column_plan, "format", "written as Avro")
