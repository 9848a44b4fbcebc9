"""TiCDC's flat rows through the native kernel, and through Python where it declines (``decode.native_rows``)."""

from __future__ import annotations

import logging
from typing import Any
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.avro.column_form import ColumnForm
from airflow_provider_mysql_cdc.cdc.avro.native_avro_rows import avro_op, plain_characters
from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen import literal_temporal_renderers as literal_times
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import Request
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op, op_of, require_unchanged
from airflow_provider_mysql_cdc.cdc.decode.native_rows import GivenColumn, NativeDecoder, unknown
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import FlatDecoder, FlatText, PlainFlat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_partition import ByTransaction, ByValues, OnePartition, Spread
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.ticdc.flat_columns import flat_form
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import table_sum
from airflow_provider_mysql_cdc.cdc.ticdc.tidb_types import TicdcModes, tidb_type

log = logging.getLogger(__name__)
_BYTES = "latin-1"  # byte text has one character a byte
# What MySQL prints, by wire type; native/src/flat_op.rs has the same names.
_TIMES = {
    wt.DATE: "date", wt.NEWDATE: "date", wt.TIME: "old_time", wt.DATETIME: "old_datetime",
    wt.TIMESTAMP: "old_timestamp", wt.TIME2: "time", wt.DATETIME2: "datetime", wt.TIMESTAMP2: "timestamp",
}  # fmt: skip
# Partitions, what the checksums of values are joined with, and of each column that decides: its place, the checksum of
# its name, operation.
_Deciding = tuple[int, int, str, list[int], list[bytes]]
_GivenSpread = tuple[int, int, list[_Deciding]]


def _own_op(request: Request, modes: TicdcModes) -> tuple[str, Op] | None:
    """Return what Confluent's Avro writes otherwise: how bytes come of an operation, and that."""
    column, wire = request.column, request.wire
    if (column.type_name, wire.code) in literal_times.RENDERERS:
        return "shown", Op(f"flat:{_TIMES[wire.code]}", (wire.a,))
    if column.type_name == "BIGINT" and tidb_type(column, modes).avro == "string":
        return "shown", Op("flat:unsigned")
    found: dict[tuple[str, int], tuple[str, Op]] = {
        ("BIT", wt.BIT): ("stored", Op("flat:bits", ((wire.a + 7) // 8, int(wire.a == 1)))),
        ("FLOAT", wt.FLOAT): ("stored", Op("float_as_double")),
        ("VECTOR", wt.VECTOR): ("shown", Op("flat:vector", (wire.a,))),
    }
    return found.get((column.type_name, wire.code))


def flat_op(request: Request, form: ColumnForm, null: str, modes: TicdcModes) -> Op | None:
    """Return what the kernel does with a column's values, or None where it has nothing for them.

    Args:
        request: The column.
        form: How its values are written.
        null: What stands for NULL, byte text.
        modes: How values are written.
    """
    own = _own_op(request, modes)
    if own is None:
        return avro_op(request, form, null)
    way, op = own
    texts = (form.head.encode(_BYTES), b"", null.encode(_BYTES))
    return Op(f"avro-{way}:{op.name}", op.numbers, texts)


_NO_TEXT = ("boolean", "float", "float_as_double", "double", "double_as_float", "geometry", "point", "vector")


def deciding_op(request: Request) -> Op:
    """Return what gives the text of a column's values of which checksums are made.

    Args:
        request: The column.

    Raises:
        Declined: The kernel has nothing for it.
    """
    column = request.column
    if (column.type_name, request.wire.code) in literal_times.RENDERERS:
        return Op(f"flat:{_TIMES[request.wire.code]}", (request.wire.a,))
    op = op_of(request)
    if op is None or op.name in _NO_TEXT:
        raise Declined(f"column {column.name}, which decides about partitions, is {column.type_name}")
    return Op(op.name, op.numbers, _plain_texts(op, column))


def _plain_texts(op: Op, column: Column) -> tuple[bytes, ...]:
    """Return the texts of an operation without what JSON puts around and into them."""
    if op.name in ("enum", "set"):
        members = column.enum_values if op.name == "set" else ("", *column.enum_values)
        return tuple(member.encode("utf-8", "replace") for member in members)
    return plain_characters(column.charset or "utf8mb4") if op.name == "text:table" else op.texts


def spread_given(spread: Spread, table: Table, wires: tuple[WireType, ...], options: DecoderOptions) -> _GivenSpread:
    """Return what the kernel is told of partitions; where transactions decide, Python puts them in.

    Args:
        spread: How rows are spread.
        table: The table.
        wires: Wire types of its columns.
        options: Modes.

    Raises:
        Declined: It has nothing for a column that decides.
    """
    if isinstance(spread, OnePartition):
        return spread.partition + 1, spread.partition, []
    if not isinstance(spread, ByValues):
        return 1, 0, []
    places = {column.name: index for index, column in enumerate(table.columns)}
    found = []
    for name in spread.names:
        if name not in places:
            raise Declined(f"column {name}, which decides about partitions, is spelled otherwise")
        column, wire = table.columns[places[name]], wires[places[name]]
        # Of a key that is masked in values, the key's own values decide.
        if not spread.by_key and options.treatment(column).change is not None:
            raise Declined(f"column {name}, which decides about partitions, is masked")
        op = deciding_op(Request(column, wire, options, ""))
        found.append((places[name], crc32(name.encode()), op.name, list(op.numbers), list(op.texts)))
    return spread.count, table_sum(table), found


class NativeFlat(NativeDecoder, FlatDecoder):
    """Write the flat rows of one table version.

    Args:
        table: The table.
        wires: Wire types of its columns.
        flat: How rows are put together.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.

    Raises:
        Declined: The kernel does not know the table's columns, or how its rows are spread.
    """

    flat_rows = True

    def __init__(
        self, table: Table, wires: tuple[WireType, ...], flat: FlatText, module: Any, tally: Tally | None = None
    ) -> None:
        self.flat, self._wires = flat, wires
        super().__init__(table, wires, flat.options, flat.envelope, module, tally, flat.dialect, flat.heads)

    def _plan(self, module: Any, columns: list[GivenColumn], options: DecoderOptions) -> Any:
        spread = spread_given(self.flat.spread, self.table, self._wires, options)
        heads = tuple(text.encode(_BYTES) for text in self.flat.heads)
        return module.flat_plan(columns, list(self._keys), heads, spread, self._tally.native)

    def _given(self, column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> GivenColumn:
        require_unchanged(column, options)
        request = Request(column, wire, options, "null")
        # Of a column that is in no record only the size matters.
        if code.in_value or code.in_key:
            modes = self.flat.modes
            op = flat_op(request, flat_form(column, options, modes), code.null, modes)
        else:
            op = op_of(request)
        if op is None:
            raise unknown(column)
        null = None if code.refuse_null is not None else code.null.encode(_BYTES)
        constant = None if code.constant is None else code.constant.encode(_BYTES)
        return b"", null, code.in_value, constant, op.name, list(op.numbers), list(op.texts)

    def natively(self, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of an event; see ``NativeDecoder.natively``."""
        if ctx.stamp < 0:
            self._tally.left("value")
            return -1
        made = len(out)
        rows = super().natively(op, buf, pos, end, ctx, out)
        if rows > 0 and isinstance(self.flat.spread, ByTransaction):
            part = self.flat.spread.of_event(ctx.stamp)
            out[made:] = [(key, value, row, leg, part) for key, value, row, leg, _ in out[made:]]
        return rows


def flat_decoder(table: Table, wires: tuple[WireType, ...], flat: FlatText, tally: Tally | None = None) -> FlatDecoder:
    """Return what writes a table version's flat rows: the native one where there is a kernel and it knows the table.

    Args:
        table: The table.
        wires: Wire types of its columns.
        flat: How rows are put together.
        tally: Counts what the kernel decodes.

    Raises:
        Declined: There is no code for the table in Python either.
    """
    module = kernel().module
    if module is not None:
        try:
            return NativeFlat(table, wires, flat, module, tally)
        except Declined as reason:
            log.info("rows of %s are written in TiCDC's protocol in Python: %s", table.id, reason)
    return PlainFlat(table, wires, flat)
