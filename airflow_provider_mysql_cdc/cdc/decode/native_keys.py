"""Keys of rows of the text protocol, many at once, through the native kernel."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op
from airflow_provider_mysql_cdc.cdc.decode.native_text import GivenText, label, text_op
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import key_indexes
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_BYTES = "latin-1"  # byte text has one character a byte


class NativeKeys:
    """Read the keys of rows, as ``text.compile_key_reader`` reads that of one; of other columns the lengths only.

    Args:
        table: The table.
        options: Modes and key columns.
        columns: The columns that the SELECT gives, in its order.
        module: The kernel.

    Raises:
        Declined: The kernel does not know the key's columns or modes.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...], module: Any) -> None:
        keys = [table.columns[i] for i in key_indexes(table, options)]
        made = module.text_plan(
            [_given(column, options, shown=column in keys) for column in columns],
            [],
            [(label(column, options), columns.index(column), b"") for column in keys],
            [text.encode(_BYTES) for text in (JSON.key.head, JSON.key_members(options) + JSON.key.tail, "")],
            module.Tally(),
        )
        if made is None:
            raise Declined("the kernel does not know one of its columns")
        self._rows: Any = made.rows

    def __call__(self, data: bytes, at: int, most: int) -> tuple[list[bytes], int]:
        """Return the keys of rows up to the first one that is left to Python, and the offset behind them.

        Args:
            data: Rows, each behind the 4-byte header of its packet.
            at: Offset of the first header.
            most: Number of rows.
        """
        if self._rows is None:
            return [], at
        made: list[Any] = []
        rows, stop = self._rows(data, at, most, "", [], 0, 0, made)
        if rows == PANIC:
            self._rows = None
        return ([record[0] for record in made], stop) if rows > 0 else ([], at)


def _given(column: Column, options: DecoderOptions, *, shown: bool) -> GivenText:
    op = text_op(column, options, "null") if shown else Op("passed")
    return column.nullable, b"null", op.name, list(op.numbers), list(op.texts)


def native_keys(table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> NativeKeys | None:
    """Return what reads the keys of many rows, or None where they are read in Python.

    Args:
        table: The table.
        options: Modes and key columns.
        columns: The columns that the SELECT gives, in its order.
    """
    module = kernel().module
    if module is None:
        return None
    try:
        return NativeKeys(table, options, columns, module)
    except Declined:
        return None
