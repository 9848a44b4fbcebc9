"""Rows of the text protocol through the native kernel, and through Python where it declines (``native_rows``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import constant_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import TIMES_OF_DAY, datetime_unit, time_unit
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_row_source import TextRowPlan
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Op, Tally, kernel, require_plain_values
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import JSON_MARK, split_marks
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import DecodeTextRow, TextDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text, to_byte_text
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column

log = logging.getLogger(__name__)
_BYTES = "latin-1"  # byte text has one character a byte
TextColumnPlan = tuple[bool, bytes, str, list[int], list[bytes]]
"""Whether a column may be NULL, the text of NULL, the operation's name, numbers and texts."""


class _TextOpRequest(NamedTuple):
    column: Column
    options: DecoderOptions
    null: str


def _integer(request: _TextOpRequest) -> Op:
    return _BY_WIDTH.get(request.column.mysql_type.width, _plain_integer)(request)


def _plain_integer(request: _TextOpRequest) -> Op:
    return Op("plain" if request.column.zerofill else "copy")


def _tinyint(request: _TextOpRequest) -> Op:
    test = request.options.boolean_test(request.column)
    return _plain_integer(request) if test is None else Op("boolean", (int(test == "> 0"),))


def _bigint(request: _TextOpRequest) -> Op:
    if not request.column.unsigned:
        return _plain_integer(request)
    if request.options.bigint_unsigned_mode == "precise":
        return Op("unsigned_base64")
    return Op("wrapped", (int(request.column.zerofill),))


_BY_WIDTH = {1: _tinyint, 8: _bigint}


def _decimal(request: _TextOpRequest) -> Op:
    return Op(f"decimal_{request.options.decimal_mode}", (request.column.scale or 0,))


def _float(request: _TextOpRequest) -> Op:
    return Op("float" if request.options.single_float(request.column) else "double")


def _double(request: _TextOpRequest) -> Op:
    return Op("double_as_float" if request.options.single_float(request.column) else "double")


def _bit(request: _TextOpRequest) -> Op:
    return Op("bit" if (request.column.length or 1) == 1 else "bits")


def _string(request: _TextOpRequest) -> Op:
    if request.column.charset == "binary":
        return _binary(request)
    return Op("text", (int(request.column.type_name == "CHAR"),))


def _member(request: _TextOpRequest) -> Op:
    if request.column.charset == "binary":
        raise Declined(f"column {request.column.name} has members in the character set binary")
    return _string(request)


def _binary(request: _TextOpRequest) -> Op:
    return Op(request.options.binary_mode)


def _named(request: _TextOpRequest) -> Op:
    return Op(request.column.mysql_type.formats[0].native_op)


def _clock(request: _TextOpRequest) -> Op:
    column, options = request.column, request.options
    kind = column.mysql_type.formats[0].native_op
    if kind == "timestamp" and column.length and options.trims_timestamps:
        raise Declined(f"column {column.name} is a TIMESTAMP whose text has no zeros at its end")
    mode, digits, day_mode = options.time_mode, column.length or 0, 0
    iso = mode == "isostring"
    unit = 0 if iso or kind in ("date", "timestamp") else datetime_unit(mode, digits)
    if kind == "date":
        unit = 0 if iso else 1000
    if kind == "time":
        day_mode = 1 + TIMES_OF_DAY.index(mode) if mode in TIMES_OF_DAY else 0
        unit = 0 if day_mode else time_unit(mode, digits)
    epoch = {"date": '"1970-01-01Z"' if iso else "0", "datetime": '"1970-01-01T00:00:00Z"' if iso else "0"}
    zero = request.null if column.nullable else epoch.get(kind, '"1970-01-01T00:00:00Z"')
    numbers = (digits, unit, int(options.time_adjuster), int(column.nullable), day_mode)
    return Op(kind, numbers, (zero.encode(_BYTES), request.null.encode(_BYTES)))


OPS: dict[Family, Callable[[_TextOpRequest], Op] | None] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _string,
    Family.BYTES: _binary,
    Family.ENUM: _member,
    Family.SET: _member,
    Family.JSON: _named,
    Family.DATE: _clock,
    Family.TIME: _clock,
    Family.DATETIME: _clock,
    Family.TIMESTAMP: _clock,
    Family.YEAR: lambda request: Op("plain"),
    Family.GEOMETRY: _named,
    Family.POINT: _named,
    Family.VECTOR: _named,
}
"""None where the kernel has no operation."""


def text_op(column: Column, options: DecoderOptions, null: str) -> Op:
    """Return the kernel's operation on the values of a column of the SELECT.

    Args:
        column: The column.
        options: Modes.
        null: JSON text of NULL, byte text.

    Raises:
        Declined: The kernel has no operation for them.
    """
    require_plain_values(column, options)
    make_op = OPS.get(column.family)
    if make_op is None:
        raise Declined(f"column {column.name} is {column.type_name}")
    return make_op(_TextOpRequest(column, options, null))


def json_column_plan(column: Column, options: DecoderOptions, null: str) -> TextColumnPlan:
    """Return how the kernel reads a column of the SELECT, and writes it as JSON.

    Args:
        column: The column.
        options: Modes.
        null: JSON text of NULL, byte text.

    Raises:
        Declined: The kernel does not know the column's type or treatment.
    """
    op = text_op(column, options, null)
    return column.nullable, null.encode(_BYTES), op.name, list(op.numbers), list(op.texts)


@dataclass(frozen=True, slots=True)
class NativeTextFormat:
    """Say how the kernel writes rows of the text protocol in one format.

    Args:
        dialect: How records are assembled.
        mark: Text around the names of marks in the text after rows.
        column_plan: Returns how the kernel reads and writes a column, of the modes and its JSON text of NULL.
        fallback_reason: What rows are counted as when the kernel does not know their table.
        action: What a decoder does with rows, for the log.
    """

    dialect: Dialect
    mark: str
    column_plan: Callable[[Column, DecoderOptions, str], TextColumnPlan]
    fallback_reason: str
    action: str


JSON_TEXT = NativeTextFormat(JSON, JSON_MARK, json_column_plan, "table", "decoded")


class NativeTextDecoder:
    """Decode rows of one SELECT through the kernel, and with another decoder the rows that the kernel declines.

    Args:
        python: That decoder.
        plan: How rows become records.
        native_format: How the kernel writes them.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.

    Attributes:
        now: The time in nanoseconds in the records of ``decode_many``; 0 for the clock's.

    Raises:
        Declined: The kernel does not know the table's columns or modes.
    """

    now = 0

    def __init__(
        self,
        python: DecodeTextRow,
        plan: TextRowPlan,
        native_format: NativeTextFormat,
        module: Any,
        tally: Tally | None = None,
    ) -> None:
        if plan.options.flat:
            raise Declined("records are in TiCDC's protocol")
        self.python, self.format, self._table = python, native_format, plan.table
        self._op, self._tally = plan.options.read_op, tally or Tally(module.Tally())
        self._after_row = native_format.dialect.after_row(plan.options)
        self._before, self._tail = native_format.dialect.before_source("r"), plan.wrappers[3]
        kernel_plan = _kernel_plan(plan, native_format, module, self._tally)
        self._row: Callable[..., int] | None = kernel_plan.row
        self._rows: Callable[..., tuple[int, int]] = kernel_plan.rows

    def __call__(self, packet: bytes, pos: int, ctx: EventContext, out: list[RowRecord]) -> None:
        """Append the record of a row; arguments and errors as for ``PythonTextDecoder``."""
        if self.decode_natively(packet, pos, ctx, out) < 0:
            self.python(packet, pos, ctx, out)

    def decode_natively(self, packet: bytes, pos: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the record of a row and return 1, or return a negative number and append nothing.

        Args:
            packet: The row.
            pos: Offset of its first value.
            ctx: Text around the row.
            out: Gets the record.
        """
        row, number = self._row, ctx.first_row
        if row is None:
            self._tally.count_fallback("defect")
            return -1
        if type(number) is not int:
            self._tally.count_fallback("row_number")
            return -1
        appended = row(packet, pos, *self._row_texts(ctx), number, out)
        if appended == PANIC:
            self._disable_kernel(ctx)
        return appended

    def _row_texts(self, ctx: EventContext) -> tuple[str, str]:
        """Return the text before the row number and after it, byte text."""
        before, after = self._before + ctx.src_head, self._after_row(ctx, self._op)
        if self.format.dialect.needs_byte_text and not (before.isascii() and after.isascii()):
            before, after = to_byte_text(before), to_byte_text(after)
        return before, after + self._tail

    def decode_many(
        self, data: bytes, at: int, max_rows: int, ctx: EventContext, out: list[RowRecord]
    ) -> tuple[int, int]:
        """Append the records of rows up to the first one that Python has to decode, or a megabyte of them.

        Args:
            data: Rows, each after the 4-byte header of its packet.
            at: Offset of the first header.
            max_rows: Number of rows.
            ctx: Text around the rows; the text after the operation has marks
                (``native_transactions.CURRENT_TIME``).
            out: Gets the records.

        Returns:
            The number of rows, and the offset after them.
        """
        if self._row is None or type(ctx.first_row) is not int:
            return 0, at
        before, after = self._row_texts(ctx)
        marked_after = split_marks(after, self.format.mark)
        rows, at = self._rows(data, at, max_rows, before, marked_after, ctx.first_row, self.now, out)
        if rows == PANIC:
            self._disable_kernel(ctx)
        return max(rows, 0), at

    def _disable_kernel(self, ctx: EventContext) -> None:
        self._row = None
        where = (self._table.id, ctx.where)
        log.warning("rows of %s are decoded in Python from %s on: the native kernel failed", *where)


def _kernel_plan(plan: TextRowPlan, native_format: NativeTextFormat, module: Any, tally: Tally) -> Any:
    """Return the kernel's functions for one row and for many.

    Raises:
        Declined: The kernel does not know a column.
    """
    dialect, options = plan.dialect, plan.options
    before_key, after_key, before_value, _ = plan.wrappers
    texts = (
        before_key + dialect.key.opening,
        dialect.key_members(options) + dialect.key.closing + after_key,
        before_value + dialect.insert(),
        *dialect.image,
    )
    kernel_plan = module.text_plan(
        [native_format.column_plan(column, options, plan.null_text(column)) for column in plan.columns],
        [_value_member(plan, column) for column in plan.value],
        [(_label(plan, column), plan.columns.index(column), b"") for column in plan.key],
        [text.encode(_BYTES) for text in texts],
        (dialect.number is not None, bool(dialect.row)),
        tally.native,
    )
    if kernel_plan is None:
        raise Declined("the kernel does not support one of its columns")
    return kernel_plan


def _label(plan: TextRowPlan, column: Column) -> bytes:
    return member_label(column, plan.options) if plan.dialect.image.separator else b""


def _value_member(plan: TextRowPlan, column: Column) -> tuple[bytes, int | None, bytes]:
    """Return a value column's label, its index in the row, and the constant that replaces it where it has no index."""
    constant = constant_text(plan.options.treatment(column).change)
    if constant is None:
        return _label(plan, column), plan.columns.index(column), b""
    return _label(plan, column), None, plan.dialect.constant(column, plan.options, constant).encode(_BYTES)


def member_label(column: Column, options: DecoderOptions) -> bytes:
    """Return the text before a column's value in JSON.

    Args:
        column: The column.
        options: Modes.
    """
    return (quote_byte_text(field_name(column.name, options.field_names)) + ":").encode(_BYTES)


class CountedTextDecoder:
    """Count rows as left to Python, and decode them.

    Args:
        python: The decoder.
        tally: Counts them.
        reason: Why they are left to Python.
    """

    __slots__ = ("_python", "_reason", "_tally")
    decode_many: None = None

    def __init__(self, python: DecodeTextRow, tally: Tally, reason: str) -> None:
        self._python, self._tally, self._reason = python, tally, reason

    def __call__(self, packet: bytes, pos: int, ctx: EventContext, out: list[RowRecord]) -> None:
        """Append the record of a row; see ``TextDecoder``."""
        self._tally.count_fallback(self._reason)
        self._python(packet, pos, ctx, out)


def choose_text_decoder(
    python: TextDecoder, plan: TextRowPlan, native_format: NativeTextFormat, tally: Tally | None = None
) -> TextDecoder:
    """Return the decoder of a table's rows: the native one where there is a kernel and it knows the table.

    Args:
        python: The decoder in Python.
        plan: How rows become records.
        native_format: How the kernel writes them.
        tally: Counts what the kernel decodes.
    """
    module = kernel().module
    if module is None:
        return python
    try:
        return NativeTextDecoder(python, plan, native_format, module, tally)
    except Declined as reason:
        log.info("rows of %s are %s in Python: %s", plan.table.id, native_format.action, reason)
    return python if tally is None else CountedTextDecoder(python, tally, native_format.fallback_reason)
