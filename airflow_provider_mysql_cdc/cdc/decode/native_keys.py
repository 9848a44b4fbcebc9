"""Keys of rows of the text protocol, many at once, through the native kernel."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op
from airflow_provider_mysql_cdc.cdc.decode.native_text import TextColumnPlan, member_label, text_op
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_BYTES = "latin-1"  # byte text has one character a byte


class NativeKeyReader:
    """Read the keys of rows, as ``text_decoder.KeyReader`` reads that of one; of other columns the lengths only.

    Args:
        table: The table.
        options: Modes and key columns.
        columns: The columns that the SELECT returns, in its order.
        module: The kernel.

    Raises:
        Declined: The kernel does not know the key's columns or modes, or has no operation for MySQL's own text.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...], module: Any) -> None:
        if options.flat:
            raise Declined("dates and times of the key are MySQL's own text")
        keys = key_columns(table, options)
        texts = (JSON.key.opening, JSON.key_members(options) + JSON.key.closing, "", *JSON.image)
        plan = module.text_plan(
            [_column_plan(column, options, in_key=column in keys) for column in columns],
            [],
            [(member_label(column, options), columns.index(column), b"") for column in keys],
            [text.encode(_BYTES) for text in texts],
            (False, True),
            module.Tally(),
        )
        if plan is None:
            raise Declined("the kernel does not support one of its columns")
        self._read_keys: Any = plan.rows

    def __call__(self, data: bytes, at: int, max_rows: int) -> tuple[list[bytes], int]:
        """Return the keys of rows up to the first one that Python has to read, and the offset after them.

        Args:
            data: Rows, each after the 4-byte header of its packet.
            at: Offset of the first header.
            max_rows: Number of rows.
        """
        if self._read_keys is None:
            return [], at
        records: list[Any] = []
        rows, stop = self._read_keys(data, at, max_rows, "", [], 0, 0, records)
        if rows == PANIC:
            self._read_keys = None
        return ([record[0] for record in records], stop) if rows > 0 else ([], at)


def _column_plan(column: Column, options: DecoderOptions, *, in_key: bool) -> TextColumnPlan:
    op = text_op(column, options, "null") if in_key else Op("passed")
    return column.nullable, b"null", op.name, list(op.numbers), list(op.texts)


def native_key_reader(table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> NativeKeyReader | None:
    """Return the native reader of the keys of many rows, or None where Python reads them.

    Args:
        table: The table.
        options: Modes and key columns.
        columns: The columns that the SELECT returns, in its order.
    """
    module = kernel().module
    if module is None:
        return None
    try:
        return NativeKeyReader(table, options, columns, module)
    except Declined:
        return None
