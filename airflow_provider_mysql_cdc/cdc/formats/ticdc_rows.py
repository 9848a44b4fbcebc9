"""Decode rows directly to TiCDC's protocol, and via JSON where that is not possible."""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike, WireType, wire_types
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.row_functions import AppendRows, Buffer
from airflow_provider_mysql_cdc.cdc.decode.table_check import require_width
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows
from airflow_provider_mysql_cdc.cdc.formats.native_ticdc_rows import create_ticdc_decoder
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import TicdcRowPlan
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_partition import row_partitioner
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import json_context

log = logging.getLogger(__name__)


class TicdcRows(AvroRows):
    """Convert row events of one table version to records with a partition, or to JSON records without.

    The table's format then converts the JSON records, and reports their errors and dead letters. Arguments are those of
    ``AvroRows``.
    """

    def _append_via_json(
        self, decode: AppendRows, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]
    ) -> int:
        return decode(buf, pos, end, json_context(ctx), out)


def ticdc_row_plan(
    record_format: TicdcFormat,
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    count: int,
) -> TicdcRowPlan:
    """Return how records of a table version are built.

    Args:
        record_format: The format of the table's records.
        table: The table.
        wires: Wire types of its columns.
        options: From ``table_options.table_options``.
        envelope: From ``table_options.envelope_text``.
        count: Partitions of the topic.
    """
    return TicdcRowPlan(
        options=replace(options, key_columns=record_format.keys),
        envelope=envelope,
        modes=record_format.modes,
        prefixes=record_format.row_prefixes(),
        partitioner=row_partitioner(record_format, table, wires, options, envelope, count),
    )


def create_ticdc_rows(
    record_format: TicdcFormat,
    table: Table,
    table_map: TableMapLike,
    options: DecoderOptions,
    envelope: EnvelopeText,
    count: int,
    tally: Tally | None = None,
) -> TicdcRows | None:
    """Return the direct decoder of a table version's rows, or None if they are converted via JSON.

    Args:
        record_format: The format of the table's records.
        table: The table.
        table_map: The TABLE_MAP event that announced the rows.
        options: From ``table_options.table_options``.
        envelope: From ``table_options.envelope_text``.
        count: Partitions of the topic.
        tally: Counts what the native kernel decodes.

    Raises:
        SchemaMismatchError: The TABLE_MAP contradicts the table.
    """
    require_width(table, len(table_map.column_types))
    wires = wire_types(table_map)
    try:
        row_plan = ticdc_row_plan(record_format, table, wires, options, envelope, count)
        ticdc_decoder = create_ticdc_decoder(table, wires, row_plan, tally)
    except Declined as reason:
        log.info("rows of %s are converted to TiCDC's protocol via JSON: %s", table.id, reason)
        return None
    return TicdcRows(ticdc_decoder, lambda: compile_decoder(table, table_map, options, envelope), record_format)
