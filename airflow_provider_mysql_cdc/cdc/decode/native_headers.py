"""How the native kernel writes keys in headers: those of records of an update that changes the key."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import (
    connect_date_unit,
    header_value,
    is_precise,
    parse_key,
    quoted_header,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op, binlog_op
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family

HeaderColumnPlan = tuple[int, bytes, bytes, bool, str, list[int], list[bytes]]
"""Index, quoted name, text of NULL, whether JSON strings are written without quotes, operation."""
_NO_JSON_SCALAR = (Family.GEOMETRY, Family.POINT, Family.VECTOR)


def header_plan(python: RowDecoder, wires: tuple[WireType, ...]) -> list[HeaderColumnPlan] | None:
    """Return how the kernel writes keys in headers; None where updates that change the key are left to Python.

    Args:
        python: The decoder in Python.
        wires: Wire types of the table's columns.
    """
    table, options, codes = python.table, python.options, python.json_shape.columns
    names = [field_name(table.columns[index].name, options.field_names) for index in python.keys]
    if len({*names, *dict(options.key_fields)}) < len(names) + len(options.key_fields):
        return None
    plan: list[HeaderColumnPlan] = []
    for index, name in zip(python.keys, names, strict=True):
        column, wire, precise = table.columns[index], wires[index], is_precise(table.columns[index], options)
        request = ColumnRequest(column, wire, replace(options, decimal_mode="string") if precise else options, "null")
        op = Op("unsigned", (8,)) if precise and column.family is Family.INTEGER else binlog_op(request)
        if op is None or column.family in _NO_JSON_SCALAR or connect_date_unit(column, options) is not None:
            return None
        try:
            null = header_value(parse_key(codes[index].null), column, options)
        except ValueError:
            return None
        label = quoted_header(name) + ":"
        plan.append((index, label.encode(), null.encode(), precise, op.name, list(op.numbers), list(op.texts)))
    return plan
