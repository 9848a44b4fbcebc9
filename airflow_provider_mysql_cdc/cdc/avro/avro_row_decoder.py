"""The decoder in Python that writes records as Avro directly."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.model.table import Table


class FallbackToJson(Exception):
    """Report that an event has to be converted by way of JSON.

    Args:
        error: The error of a value; None for rows that are always converted so.
    """

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(repr(error))
        self.error = error


def avro_row_decoder(
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    prefixes: tuple[str, str],
    owned: OwnedKeys | None = None,
) -> RowDecoder:
    """Return the decoder that writes complete row images as Avro; it refuses other events.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        prefixes: Text that keys and values begin with.
        owned: Selects the rows whose records are produced; None for all.

    Raises:
        Declined: A column cannot be written as Avro directly.
    """
    return RowDecoder(table, wires, options, envelope, AVRO, prefixes, owned, FallbackToJson)
