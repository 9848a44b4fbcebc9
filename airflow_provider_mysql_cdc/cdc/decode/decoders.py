"""Choose the decoder of a table version: the native one where there is a kernel and it knows the table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMapLike, WireType, wire_types
from airflow_provider_mysql_cdc.cdc.decode import native_rows
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_rows import NativeRowDecoder, NativeRowFormat, RowEventDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.table_check import require_width
from airflow_provider_mysql_cdc.cdc.model.table import Table

log = logging.getLogger(__name__)


def compile_decoder(
    table: Table,
    table_map: TableMapLike,
    options: DecoderOptions,
    envelope: EnvelopeText,
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> RowEventDecoder:
    """Return the decoder of one table version: the native one, where there is one for it.

    Args:
        table: The table as of this point of the binlog.
        table_map: The TABLE_MAP event that announced the rows.
        options: Modes, key and included columns.
        envelope: Constant schema text.
        tally: Counts what the native kernel decodes.
        owned: Selects the rows whose records are produced; None for all.

    Raises:
        SchemaMismatchError: When the TABLE_MAP contradicts the table.
    """
    require_width(table, len(table_map.column_types))
    return choose_decoder(table, wire_types(table_map), options, envelope, tally, owned)


def choose_decoder(
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> RowEventDecoder:
    """Return the decoder of a table version that writes JSON: the native one, where there is one for it.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        tally: The kernel's counters.
        owned: Selects the rows whose records are produced; None for all.
    """
    python = RowDecoder(table, wires, options, envelope, owned=owned)
    return native_row_decoder(python, wires, native_rows.JSON_ROWS, tally)


def native_row_decoder(
    python: RowDecoder, wires: tuple[WireType, ...], native_format: NativeRowFormat, tally: Tally | None
) -> RowEventDecoder:
    """Return the native decoder of a table version where there is a kernel and it knows the table, else that in Python.

    Args:
        python: The decoder in Python.
        wires: Wire types of the table's columns.
        native_format: How the kernel writes records.
        tally: The kernel's counters.
    """
    return native_or_python(
        python,
        native_format.action,
        lambda python, module: native_rows.NativeRowDecoder(python, wires, native_format, module, tally),
    )


PythonDecoder = TypeVar("PythonDecoder", bound=RowDecoder)


def native_or_python(
    python: PythonDecoder, action: str, create: Callable[[PythonDecoder, Any], NativeRowDecoder]
) -> PythonDecoder | NativeRowDecoder:
    """Return the native decoder of a table version where there is a kernel and it knows the table, else that in Python.

    Args:
        python: The decoder in Python.
        action: What decoders do with rows, for the log.
        create: Makes the native decoder, of the one in Python and the kernel.
    """
    module = kernel().module
    if module is None:
        return python
    try:
        return create(python, module)
    except Declined as reason:
        log.info("rows of %s are %s in Python: %s", python.table.id, action, reason)
    return python
