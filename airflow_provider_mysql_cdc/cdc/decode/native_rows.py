"""Row events through the native kernel, and through Python where it declines.

The kernel declines a table when it has no operation for one of its columns. It declines an event with malformed rows,
with images that leave columns out, or with a changed key: the Python decoder then reads it, and raises its errors. Both
decoders write the same records, byte for byte (``tests/kit/native_identity.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Tally
from airflow_provider_mysql_cdc.cdc.decode.native_ops import binlog_op
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

log = logging.getLogger(__name__)
# buffer, first row, end, text before the row number, text after it, the number, records: rows, or why it declines
DecodeEvent = Callable[[Buffer, int, int, str, str, int, list[RowRecord]], int]
ColumnPlan = tuple[bytes, bytes | None, bool, bytes | None, str, list[int], list[bytes]]
"""Label, text of NULL where it is allowed, whether it is in the value, constant, operation."""
_BYTES = "latin-1"


def unsupported_column(column: Column) -> Declined:
    """Return the reason why a table with this column is declined: the kernel has no operation for it."""
    kind = f"{column.type_name} {column.charset}" if column.charset else column.type_name
    return Declined(f"column {column.name} is {kind}")


class NativeRowDecoder(RowDecoder):
    """Decode the row events of one table version, as ``RowDecoder`` does.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.
        dialect: How records are assembled.
        prefixes: Text that keys and values begin with; None for the schemas of ``envelope``.
        owned: Selects the rows whose records are produced; None for all.

    Raises:
        Declined: The kernel does not know the table's columns or modes.
    """

    native = True
    flat_rows = False
    """Whether records are those of TiCDC's protocol."""

    def __init__(
        self,
        table: Table,
        wires: tuple[WireType, ...],
        options: DecoderOptions,
        envelope: EnvelopeText,
        module: Any,
        tally: Tally | None = None,
        dialect: Dialect = JSON,
        prefixes: tuple[str, str] | None = None,
        owned: OwnedKeys | None = None,
    ) -> None:
        super().__init__(table, wires, options, envelope, dialect, prefixes, owned)
        if options.flat and not self.flat_rows:
            raise Declined("records are in TiCDC's protocol")
        columns = [
            self._column_plan(*given, options) for given in zip(table.columns, wires, self._columns, strict=True)
        ]
        self._tally = tally or Tally(module.Tally())
        plan = self._plan(module, columns, options)
        if plan is None:
            raise Declined("the kernel does not support one of its columns")
        self._kernel_failed = False
        self.plan = plan
        self._native: dict[str, DecodeEvent] = {"c": plan.write, "u": plan.update, "d": plan.delete}
        for op in options.skipped_ops:
            self._native.pop(op, None)

    def _plan(self, module: Any, columns: list[ColumnPlan], options: DecoderOptions) -> Any:
        """Return the kernel's part, or None where it does not know a column.

        Raises:
            Declined: It has nothing for such rows.
        """
        return module.plan(
            columns,
            list(self._keys),
            self._texts(),
            self._number is not None,
            options.tombstones,
            self._tally.native,
            None if self._owned is None else (self._owned.partition_count, sorted(self._owned.own_partitions)),
        )

    @property
    def operations(self) -> Set[str]:
        """The operation letters of events that the kernel decodes."""
        return self._native.keys()

    def row_texts(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the text before the row number and after it, byte text.

        Args:
            ctx: Text around the rows.
            op: Operation letter.
        """
        return self._row_texts(ctx, op)

    def _column_plan(self, column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> ColumnPlan:
        """Return what the kernel is told of a column.

        Raises:
            Declined: It has nothing for it.
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

    def _texts(self) -> list[bytes]:
        """Return what stands around keys, images and their members."""
        dialect = self._dialect
        texts = (
            self._key_wrapper[0] + dialect.key.opening,
            self._extra_key_members + dialect.key.closing + self._key_wrapper[1],
            self._value_wrapper[0],
            dialect.insert(),
            dialect.before,
            dialect.after,
            *dialect.image,
        )
        return [text.encode(_BYTES) for text in texts]

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a WRITE_ROWS event; arguments and errors as for ``RowDecoder.write``."""
        rows = self.natively("c", buf, pos, end, ctx, out)
        return super().write(buf, pos, end, ctx, out) if rows < 0 else rows

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        rows = self.natively("u", buf, pos, end, ctx, out)
        return super().update(buf, pos, end, ctx, out) if rows < 0 else rows

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        rows = self.natively("d", buf, pos, end, ctx, out)
        return super().delete(buf, pos, end, ctx, out) if rows < 0 else rows

    def natively(self, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
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
        before, after = self._row_texts(ctx, op)
        rows = decode(buf, pos, end, before, after, first, out)
        if rows == PANIC:
            self._kernel_failed = True
            self._native.clear()
            log.warning(
                "rows of %s are decoded in Python from %s on: the native kernel failed", self.table.id, ctx.where
            )
        return rows
