"""Choose the decoder of a table version: the native one where there is a kernel and it knows the table."""

from __future__ import annotations

import logging

from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike, WireType, wire_types
from airflow_provider_mysql_cdc.cdc.decode import native_rows
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.table_check import require_width
from airflow_provider_mysql_cdc.cdc.model.table import Table


def compile_decoder(
    table: Table,
    table_map: TableMapLike,
    options: DecoderOptions,
    envelope: EnvelopeText,
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> RowDecoder:
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


log = logging.getLogger(__name__)


def choose_decoder(
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> RowDecoder:
    """Return the decoder of a table version: the native one where there is a kernel and it knows the table.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        tally: The kernel's counters.
        owned: Selects the rows whose records are produced; None for all.
    """
    module = kernel().module
    if module is not None:
        try:
            return native_rows.NativeRowDecoder(table, wires, options, envelope, module, tally, owned=owned)
        except Declined as reason:
            log.info("rows of %s are decoded in Python: %s", table.id, reason)
    return RowDecoder(table, wires, options, envelope, owned=owned)
