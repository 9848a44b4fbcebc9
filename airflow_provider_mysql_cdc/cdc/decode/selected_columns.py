"""The columns of a table that a snapshot selects, and the expressions that give them."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.mask_functions import constant_text
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import key_indexes
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, quote_name


def selected_columns(table: Table, options: DecoderOptions | None = None) -> tuple[Column, ...]:
    """Return the columns that a snapshot reads: those of the value and of the key, in table order.

    Columns of which only a mask is shown are not read. There is at least one column, because SELECT needs one.

    Args:
        table: The table.
        options: Included and key columns; None means all.
    """
    if options is None:
        return table.columns
    keys = {table.columns[i] for i in key_indexes(table, options)}
    read_values = {c for c in included_columns(table, options) if constant_text(options.treatment(c).change) is None}
    return tuple(c for c in table.columns if c in keys or c in read_values) or table.columns[:1]


def included_columns(table: Table, options: DecoderOptions) -> tuple[Column, ...]:
    """Return the columns of the value in table order."""
    if options.included is None:
        return table.columns
    names = {name.lower() for name in options.included}
    return tuple(c for c in table.columns if c.name.lower() in names)


def select_list(table: Table, options: DecoderOptions | None = None) -> str:
    """Return the expressions of a SELECT whose rows ``compile_text_decoder`` reads.

    FLOAT is printed with 6 digits, and DOUBLE(M,D) with D digits, so these are asked as products with 1e0: a plain
    double, printed with all its digits.

    Args:
        table: The table.
        options: Included and key columns; None means all. Give the decoder the same.
    """
    return ", ".join(map(column_expression, selected_columns(table, options)))


def column_expression(column: Column) -> str:
    """Return the expression that gives one column as the decoder reads it."""
    name = quote_name(column.name)
    if column.type_name == "FLOAT" or (column.type_name == "DOUBLE" and column.scale is not None):
        return f"{name} * 1e0 AS {name}"
    return name
