"""Decode rows to TiCDC's protocol: with the native kernel, in Python, or via JSON."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.avro.avro_binary import ColumnFormat
from airflow_provider_mysql_cdc.cdc.avro.native_avro import avro_op, utf8_characters
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMapLike, WireType, wire_types
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder, native_or_python
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Op, Tally, binlog_op, require_plain_values
from airflow_provider_mysql_cdc.cdc.decode.native_rows import (
    ColumnPlan,
    NativeRowDecoder,
    NativeRowFormat,
    RowEventDecoder,
    unsupported_column,
)
from airflow_provider_mysql_cdc.cdc.decode.table_check import require_width
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import AppendRows, Buffer
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import (
    ColumnPartitioner,
    RowPartitioner,
    SinglePartition,
    TicdcRowDecoder,
    TicdcRowPlan,
    TransactionPartitioner,
    row_partitioner,
)
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.ticdc.flat_columns import ticdc_column_format
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import table_checksum
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, tidb_type
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import json_context

_BYTES = "latin-1"  # byte text has one character a byte
# Number of partitions, checksum of the table's name, and of each column that the dispatcher uses: its index, the
# checksum of its name, its operation.
_KernelColumn = tuple[int, int, str, list[int], list[bytes]]
_KernelPartitioner = tuple[int, int, list[_KernelColumn]]


def _temporal_op(request: ColumnRequest) -> Op | None:
    """Return the operation that formats values as MySQL prints them; None for other types."""
    form = request.wire_format
    if form is None or request.column.family not in TEMPORAL_FAMILIES:
        return None
    return Op(f"flat:{form.native_op}", (request.wire.length,))


def _ticdc_only_op(request: ColumnRequest, modes: TicdcModes) -> tuple[str, Op] | None:
    """Return the encoding and operation of a column that Confluent's Avro writes differently; None for others."""
    column, wire = request.column, request.wire
    temporal_op = _temporal_op(request)
    if temporal_op is not None:
        return "shown", temporal_op
    if column.family is Family.INTEGER and tidb_type(column, modes).avro_type == "string":
        return "shown", Op("flat:unsigned")
    ops: dict[Family, tuple[str, Op]] = {
        Family.BIT: ("stored", Op("flat:bits", ((wire.length + 7) // 8, int(wire.length == 1)))),
        Family.FLOAT: ("stored", Op("float_as_double")),
        Family.VECTOR: ("shown", Op("flat:vector", (wire.length,))),
    }
    return None if request.wire_format is None else ops.get(column.family)


def ticdc_op(request: ColumnRequest, fmt: ColumnFormat, null: str, modes: TicdcModes) -> Op | None:
    """Return the kernel's operation for a column's values, or None if it has none.

    Args:
        request: The column.
        fmt: Format of its values.
        null: Byte text that represents NULL.
        modes: Modes of the protocol.
    """
    own = _ticdc_only_op(request, modes)
    if own is None:
        return avro_op(request, fmt, null)
    encoding, op = own
    texts = (fmt.branch.encode(_BYTES), b"", null.encode(_BYTES))
    return Op(f"avro-{encoding}:{op.name}", op.numbers, texts)


_NO_TEXT_OPS = ("boolean", "float", "float_as_double", "double", "double_as_float")


def dispatch_op(request: ColumnRequest) -> Op:
    """Return the operation that writes the text of a column's values, from which the dispatcher computes checksums.

    Args:
        request: The column.

    Raises:
        Declined: The kernel has no operation for it.
    """
    column = request.column
    temporal_op = _temporal_op(request)
    if temporal_op is not None:
        return temporal_op
    op = binlog_op(request)
    if op is None or op.name in _NO_TEXT_OPS or not column.mysql_type.direct_avro:
        raise Declined(f"column {column.name}, which the dispatcher uses, is {column.type_name}")
    return Op(op.name, op.numbers, _plain_texts(op, column))


def _plain_texts(op: Op, column: Column) -> tuple[bytes, ...]:
    """Return the texts of an operation without JSON quotes and escapes."""
    if op.name in ("enum", "set"):
        members = column.enum_values if op.name == "set" else ("", *column.enum_values)
        return tuple(member.encode("utf-8", "replace") for member in members)
    return utf8_characters(column.charset or "utf8mb4") if op.name == "text:table" else op.texts


def kernel_partitioner(
    partitioner: RowPartitioner, table: Table, wires: tuple[WireType, ...], options: DecoderOptions
) -> _KernelPartitioner:
    """Return the partitioner in the form that the kernel takes; for the dispatcher ``ts`` Python adds the partition.

    Args:
        partitioner: The partitioner.
        table: The table.
        wires: Wire types of its columns.
        options: Modes.

    Raises:
        Declined: The kernel has no operation for a column that the dispatcher uses.
    """
    if isinstance(partitioner, SinglePartition):
        return partitioner.partition + 1, partitioner.partition, []
    if not isinstance(partitioner, ColumnPartitioner):
        return 1, 0, []
    column_indexes = {column.name: index for index, column in enumerate(table.columns)}
    columns = []
    for name in partitioner.names:
        if name not in column_indexes:
            raise Declined(f"column {name}, which the dispatcher uses, has another spelling in the table")
        column, wire = table.columns[column_indexes[name]], wires[column_indexes[name]]
        # For a key that is masked in values, the dispatcher uses the unmasked values of the key.
        if not partitioner.by_key and options.treatment(column).change is not None:
            raise Declined(f"column {name}, which the dispatcher uses, is masked")
        op = dispatch_op(ColumnRequest(column, wire, options, ""))
        columns.append((column_indexes[name], crc32(name.encode()), op.name, list(op.numbers), list(op.texts)))
    return partitioner.count, table_checksum(table), columns


def ticdc_column_plan(
    column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions, modes: TicdcModes
) -> ColumnPlan:
    """Return how the kernel reads a column of a row image, and writes it in TiCDC's protocol.

    Args:
        column: The column.
        wire: Its wire type.
        code: Its code in Python.
        options: Modes.
        modes: How values are written.

    Raises:
        Declined: The kernel does not know the column's type or treatment.
    """
    require_plain_values(column, options)
    request = ColumnRequest(column, wire, options, "null")
    # A column that is in no record is only skipped.
    if code.in_value or code.in_key:
        op = ticdc_op(request, ticdc_column_format(column, options, modes), code.null, modes)
    else:
        op = binlog_op(request)
    if op is None:
        raise unsupported_column(column)
    null = None if code.refuse_null is not None else code.null.encode(_BYTES)
    constant = None if code.constant is None else code.constant.encode(_BYTES)
    return b"", null, code.in_value, constant, op.name, list(op.numbers), list(op.texts)


def _ticdc_plan(python: TicdcRowDecoder, wires: tuple[WireType, ...], module: Any, tally: Tally) -> Any:
    """Return the kernel's functions for row events; None where it does not know a column.

    Raises:
        Declined: The kernel does not support a column or the dispatcher.
    """
    row_plan, table = python.row_plan, python.table
    columns = [
        ticdc_column_plan(column, wire, code, row_plan.options, row_plan.modes)
        for column, wire, code in zip(table.columns, wires, python.columns, strict=True)
    ]
    partitioner = kernel_partitioner(row_plan.partitioner, table, wires, row_plan.options)
    prefixes = tuple(text.encode(_BYTES) for text in row_plan.prefixes)
    return module.flat_plan(columns, list(python.keys), prefixes, partitioner, tally.native, python.row_texts)


TICDC_ROWS = NativeRowFormat(_ticdc_plan, "decoded to TiCDC's protocol")


class NativeTicdcDecoder(NativeRowDecoder):
    """Decode the rows of one table version to TiCDC's protocol.

    Args:
        python: The decoder in Python.
        wires: Wire types of the table's columns.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.

    Raises:
        Declined: The kernel does not support the table's columns or its dispatcher.
    """

    def __init__(
        self, python: TicdcRowDecoder, wires: tuple[WireType, ...], module: Any, tally: Tally | None = None
    ) -> None:
        super().__init__(python, wires, TICDC_ROWS, module, tally)
        self.row_plan = python.row_plan

    def decode_natively(self, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an event; see ``NativeRowDecoder.decode_natively``."""
        if ctx.stamp < 0:
            self._tally.count_fallback("value")
            return -1
        start = len(out)
        rows = super().decode_natively(op, buf, pos, end, ctx, out)
        if rows > 0 and isinstance(self.row_plan.partitioner, TransactionPartitioner):
            partition = self.row_plan.partitioner.event_partition(ctx.stamp)
            out[start:] = [
                (key, value, row, number, header, partition) for key, value, row, number, header, _ in out[start:]
            ]
        return rows


def create_ticdc_decoder(
    table: Table, wires: tuple[WireType, ...], row_plan: TicdcRowPlan, tally: Tally | None = None
) -> RowEventDecoder:
    """Return the decoder of a table version: the native one if the kernel is installed and supports the table.

    Args:
        table: The table.
        wires: Wire types of its columns.
        row_plan: How records are built.
        tally: Counts what the kernel decodes.

    Raises:
        Declined: Python cannot decode the table directly either.
    """
    return native_or_python(
        TicdcRowDecoder(table, wires, row_plan),
        TICDC_ROWS.action,
        lambda python, module: NativeTicdcDecoder(python, wires, module, tally),
    )


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
