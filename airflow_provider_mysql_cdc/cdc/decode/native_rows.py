"""Row events through the native kernel, and through Python where it declines.

Row events through the native kernel, and through Python where it declines.

The kernel declines a table when it has no operation for one of its columns. It declines an event with malformed rows or
with images that leave columns out: the Python decoder then reads it, and raises its errors. Both decoders write the
same records, byte for byte (``tests/kit/native_identity.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import (
    connect_date_unit,
    header_value,
    is_precise,
    parse_key,
    quoted_header,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import PartialRowDecoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Op, Tally, binlog_op
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import Buffer
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column

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


log = logging.getLogger(__name__)
# buffer, first row, end, text before the row number, text after it, the number, of what they were made, records: rows,
# or why it declines
DecodeEvent = Callable[[Buffer, int, int, str, str, int, EventContext, list[RowRecord]], int]
ColumnPlan = tuple[bytes, bytes | None, bool, bytes | None, str, list[int], list[bytes]]
"""Label, text of NULL where it is allowed, whether it is in the value, constant, operation."""
_BYTES = "latin-1"


def unsupported_column(column: Column) -> Declined:
    """Return the reason why a table with this column is declined: the kernel has no operation for it."""
    kind = f"{column.type_name} {column.charset}" if column.charset else column.type_name
    return Declined(f"column {column.name} is {kind}")


def json_column_plan(column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> ColumnPlan:
    """Return how the kernel reads a column of a row image, and writes it as JSON.

    Args:
        column: The column.
        wire: Its wire type.
        code: Its code in Python.
        options: Modes.

    Raises:
        Declined: The kernel does not know the column's type or treatment.
    """
    if code.convert is not None or code.refuse_null is not None:
        raise Declined(f"a converter handles column {column.name}")
    if code.change is not None:
        raise Declined(f"column {column.name} is truncated or hashed")
    op = binlog_op(ColumnRequest(column, wire, options, code.null))
    if op is None:
        raise unsupported_column(column)
    constant = None if code.constant is None else code.constant.encode(_BYTES)
    label, null = code.label.encode(_BYTES), code.null.encode(_BYTES)
    return label, null, code.in_value, constant, op.name, list(op.numbers), list(op.texts)


PlanColumn = Callable[[Column, WireType, ColumnCode, DecoderOptions], ColumnPlan]


def event_plan(
    plan_column: PlanColumn, python: RowDecoder, wires: tuple[WireType, ...], module: Any, tally: Tally
) -> Any:
    """Return the kernel's functions for row events; None where it does not know a column.

    Args:
        plan_column: Returns how the kernel reads and writes a column.
        python: The decoder in Python.
        wires: Wire types of the table's columns.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.

    Raises:
        Declined: The kernel does not know a column or mode.
    """
    options, dialect, owned = python.options, python.dialect, python.owned
    if options.flat:
        raise Declined("records are in TiCDC's protocol")
    columns = zip(python.table.columns, wires, python.columns, strict=True)
    texts = (
        python.key_wrapper[0] + dialect.key.opening,
        python.extra_key_members + dialect.key.closing + python.key_wrapper[1],
        python.value_wrapper[0],
        dialect.insert(),
        dialect.before,
        dialect.after,
        *dialect.image,
    )
    return module.plan(
        [plan_column(column, wire, code, options) for column, wire, code in columns],
        list(python.keys),
        [text.encode(_BYTES) for text in texts],
        dialect.number is not None,
        (python.writes_deletes, options.tombstones),
        tally.native,
        None if owned is None else (owned.partition_count, sorted(owned.own_partitions)),
        python.unwrapped,
        header_plan(python, wires),
        python.row_texts,
    )


@dataclass(frozen=True, slots=True)
class NativeRowFormat:
    """Say how the kernel writes row events in one format.

    Args:
        plan: Returns the kernel's functions, of the decoder in Python, the columns' wire types, the kernel and its
            counters; None where it does not know a column.
        action: What a decoder does with rows, for the log.
    """

    plan: Callable[[Any, tuple[WireType, ...], Any, Tally], Any]
    action: str


JSON_ROWS = NativeRowFormat(partial(event_plan, json_column_plan), "decoded")


class NativeRowDecoder:
    """Decode the row events of one table version through the kernel, and in Python the events that it declines.

    Args:
        python: The decoder in Python.
        wires: Wire types of the table's columns.
        native_format: How the kernel writes records.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.

    Raises:
        Declined: The kernel does not know the table's columns or modes.
    """

    native = True

    def __init__(
        self,
        python: RowDecoder,
        wires: tuple[WireType, ...],
        native_format: NativeRowFormat,
        module: Any,
        tally: Tally | None = None,
    ) -> None:
        self.python, self.format, self.table = python, native_format, python.table
        self._tally = tally or Tally(module.Tally())
        self.plan = native_format.plan(python, wires, module, self._tally)
        if self.plan is None:
            raise Declined("the kernel does not support one of its columns")
        self._kernel_failed = False
        self._native: dict[str, DecodeEvent] = {"c": self.plan.write, "u": self.plan.update, "d": self.plan.delete}
        for op in python.options.skipped_ops:
            self._native.pop(op, None)

    @property
    def operations(self) -> Set[str]:
        """The operation letters of events that the kernel decodes."""
        return self._native.keys()

    def row_texts(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the text between the images and the row number, and the text after it, byte text.

        Args:
            ctx: Text around the rows.
            op: Operation letter.
        """
        return self.python.row_texts(ctx, op)

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a WRITE_ROWS event; arguments and errors as for ``RowDecoder.write``."""
        rows = self.decode_natively("c", buf, pos, end, ctx, out)
        return self.python.write(buf, pos, end, ctx, out) if rows < 0 else rows

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        rows = self.decode_natively("u", buf, pos, end, ctx, out)
        return self.python.update(buf, pos, end, ctx, out) if rows < 0 else rows

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        rows = self.decode_natively("d", buf, pos, end, ctx, out)
        return self.python.delete(buf, pos, end, ctx, out) if rows < 0 else rows

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a PARTIAL_UPDATE_ROWS event; arguments and errors as for ``write``."""
        return self.python.partial_update(buf, pos, end, ctx, out)

    def key_bytes(self, key: str | None) -> bytes | None:
        """Return a record key; arguments as for ``RowDecoder.key_bytes``."""
        return self.python.key_bytes(key)

    def partial_decoder(self) -> PartialRowDecoder:
        """Return the decoder that reads rows of this table value by value."""
        return self.python.partial_decoder()

    def decode_natively(self, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an event and return its number of rows, or return a negative number and append nothing.

        Args:
            op: Operation letter of the event; the others are as for ``write``.
            buf: Bytes that hold the event.
            pos: Offset of the first row.
            end: Offset after the last row.
            ctx: Text around the rows.
            out: Gets the records.
        """
        decode, first = self._native.get(op), ctx.first_row
        # Python writes a row number that has no text (UnnumberedRow).
        if decode is None:
            if self._kernel_failed:
                self._tally.count_fallback("defect")
            return -1
        if type(first) is not int:
            self._tally.count_fallback("row_number")
            return -1
        before, after = self.python.row_texts(ctx, op)
        rows = decode(buf, pos, end, before, after, first, ctx, out)
        if rows == PANIC:
            self._kernel_failed = True
            self._native.clear()
            log.warning(
                "rows of %s are decoded in Python from %s on: the native kernel failed",
                self.table.id,
                ctx.where,
            )
        return rows


RowEventDecoder = RowDecoder | NativeRowDecoder
