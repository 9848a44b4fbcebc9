"""Rows of the text protocol through the native kernel, and through Python where it declines (``native_rows``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.mask_functions import constant_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import TIMES_OF_DAY, datetime_unit, time_unit
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_ops import Op, require_plain_values
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import JSON_MARK, split_marks
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import schema_wrapper
from airflow_provider_mysql_cdc.cdc.decode.row_functions import TextDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text, to_byte_text
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import BINARY_TYPES, COLLATED_TYPES, Column, Table

log = logging.getLogger(__name__)
_BYTES = "latin-1"  # byte text has one character a byte
TextColumnPlan = tuple[bool, bytes, str, list[int], list[bytes]]
"""Whether a column may be NULL, the text of NULL, its operation."""


class _TextOpRequest(NamedTuple):
    column: Column
    options: DecoderOptions
    null: str


def _integer(request: _TextOpRequest) -> Op:
    return Op("plain" if request.column.zerofill else "copy")


def _tinyint(request: _TextOpRequest) -> Op:
    test = request.options.boolean_test(request.column)
    return _integer(request) if test is None else Op("boolean", (int(test == "> 0"),))


def _bigint(request: _TextOpRequest) -> Op:
    if not request.column.unsigned:
        return _integer(request)
    if request.options.bigint_unsigned_mode == "precise":
        return Op("unsigned_base64")
    return Op("wrapped", (int(request.column.zerofill),))


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
        return Op(request.options.binary_mode)
    return Op("text", (int(request.column.type_name == "CHAR"),))


def _clock(kind: str, request: _TextOpRequest) -> Op:
    column, options = request.column, request.options
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


_OP_BY_TYPE: dict[str, Callable[[_TextOpRequest], Op]] = {
    **dict.fromkeys(("SMALLINT", "MEDIUMINT", "INT"), _integer),
    **dict.fromkeys(COLLATED_TYPES, _string),
    **dict.fromkeys(BINARY_TYPES, lambda request: Op(request.options.binary_mode)),
    **dict.fromkeys(
        ("GEOMETRY", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"),
        lambda request: Op("geometry"),
    ),
    "TINYINT": _tinyint,
    "BIGINT": _bigint,
    "DECIMAL": _decimal,
    "FLOAT": _float,
    "DOUBLE": _double,
    "BIT": _bit,
    "YEAR": lambda request: Op("plain"),
    "JSON": lambda request: Op("json"),
    "POINT": lambda request: Op("point"),
    "VECTOR": lambda request: Op("vector"),
    "DATE": partial(_clock, "date"),
    "TIME": partial(_clock, "time"),
    "DATETIME": partial(_clock, "datetime"),
    "TIMESTAMP": partial(_clock, "timestamp"),
}


def text_op(column: Column, options: DecoderOptions, null: str) -> Op:
    """Return what the kernel does with the values of a column of the SELECT.

    Args:
        column: The column.
        options: Modes.
        null: JSON text of NULL, byte text.

    Raises:
        Declined: It has nothing for them.
    """
    require_plain_values(column, options)
    make_op = _OP_BY_TYPE.get(column.type_name)
    if make_op is None:
        raise Declined(f"column {column.name} is {column.type_name}")
    return make_op(_TextOpRequest(column, options, null))


def null_text(column: Column, options: DecoderOptions, envelope: EnvelopeText) -> str:
    """Return the JSON text of NULL in a column, byte text.

    Args:
        column: The column.
        options: Modes.
        envelope: Constant schema text.
    """
    return to_byte_text(envelope.null_text.get(column.name, "null")) if options.replace_null_with_default else "null"


class NativeTextDecoder:
    """Read row packets of one table, as the decoder does that ``compile_text_decoder`` makes.

    Args:
        plain: That decoder.
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant schema text.
        columns: The columns that the SELECT gives, in its order.
        module: The kernel.
        tally: Counts what the kernel decodes and declines.
        prefixes: What keys and values begin with; None for what ``envelope`` says.

    Attributes:
        now: The time in nanoseconds that records of ``many`` tell; 0 for that of the clock.

    Raises:
        Declined: The kernel does not know the table's columns or modes.
    """

    now = 0
    dialect: Dialect = JSON
    sign = JSON_MARK
    """What stands around the names of marks in texts behind rows."""
    delimiters: tuple[str, ...] = ()
    """What stands before, between and behind the members of an image; empty for those of JSON."""

    def __init__(
        self,
        plain: TextDecoder,
        table: Table,
        options: DecoderOptions,
        envelope: EnvelopeText,
        columns: tuple[Column, ...],
        module: Any,
        tally: Tally | None = None,
        prefixes: tuple[str, str] | None = None,
    ) -> None:
        if options.flat:
            raise Declined("records are those of another protocol")
        dialect = self.dialect
        self.plain, self._table, self._op = plain, table, options.read_op
        self._tally = tally or Tally(module.Tally())
        self._after_row = dialect.after_row(options)
        wrappers = (*schema_wrapper(envelope.key_schema), *schema_wrapper(envelope.value_schema))
        if prefixes is not None:
            wrappers = (prefixes[0], "", prefixes[1], "")
        self._before, self._tail = dialect.before_source("r"), wrappers[3]
        texts = (
            wrappers[0] + dialect.key.opening,
            dialect.key_members(options) + dialect.key.closing + wrappers[1],
            wrappers[2] + dialect.insert(),
            *self.delimiters,
        )
        plan = module.text_plan(
            [self._column_plan(column, options, null_text(column, options, envelope)) for column in columns],
            [self._member(column, options, columns) for column in value_columns(table, options)],
            [(self._label(column, options), columns.index(column), b"") for column in key_columns(table, options)],
            [text.encode(_BYTES) for text in texts],
            self._tally.native,
        )
        if plan is None:
            raise Declined("the kernel does not know one of its columns")
        self._row: Callable[..., int] | None = plan.row
        self._rows: Callable[..., tuple[int, int]] = plan.rows

    def _column_plan(self, column: Column, options: DecoderOptions, null: str) -> TextColumnPlan:
        """Return what the kernel is told of a column of the SELECT.

        Raises:
            Declined: It has nothing for it.
        """
        op = text_op(column, options, null)
        return column.nullable, null.encode(_BYTES), op.name, list(op.numbers), list(op.texts)

    def _label(self, column: Column, options: DecoderOptions) -> bytes:
        return member_label(column, options) if self.dialect.image.separator else b""

    def _member(
        self, column: Column, options: DecoderOptions, columns: tuple[Column, ...]
    ) -> tuple[bytes, int | None, bytes]:
        """Return the label of a column of values, its place in the row, and what stands there where it has none."""
        constant = constant_text(options.treatment(column).change)
        if constant is None:
            return self._label(column, options), columns.index(column), b""
        return self._label(column, options), None, self.dialect.constant(column, options, constant).encode(_BYTES)

    def __call__(self, packet: bytes, pos: int, ctx: EventContext, out: list[Any]) -> None:
        """Append the record of a row; arguments and errors as for the decoder in Python."""
        if self.natively(packet, pos, ctx, out) < 0:
            self.plain(packet, pos, ctx, out)

    def natively(self, packet: bytes, pos: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the record of a row and return 1, or return a number below zero and append nothing.

        Args:
            packet: The row.
            pos: Offset of its first value.
            ctx: What its records have in common.
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
        """Return what stands before the row number and behind it, byte text."""
        before, after = self._before + ctx.src_head, self._after_row(ctx, self._op)
        if self.dialect.needs_byte_text and not (before.isascii() and after.isascii()):
            before, after = to_byte_text(before), to_byte_text(after)
        return before, after + self._tail

    def many(self, data: bytes, at: int, max_rows: int, ctx: EventContext, out: list[Any]) -> tuple[int, int]:
        """Append the records of rows up to the first one that is left to Python, or a megabyte of them.

        Args:
            data: Rows, each behind the 4-byte header of its packet.
            at: Offset of the first header.
            max_rows: Number of rows.
            ctx: What their records have in common; what stands behind the operation has marks
                (``native_transactions.CURRENT_TIME``).
            out: Gets the records.

        Returns:
            The number of rows, and the offset behind them.
        """
        if self._row is None or type(ctx.first_row) is not int:
            return 0, at
        before, after = self._row_texts(ctx)
        rows, at = self._rows(data, at, max_rows, before, split_marks(after, self.sign), ctx.first_row, self.now, out)
        if rows == PANIC:
            self._disable_kernel(ctx)
        return max(rows, 0), at

    def _disable_kernel(self, ctx: EventContext) -> None:
        self._row = None
        where = (self._table.id, ctx.where)
        log.warning("rows of %s are decoded in Python from %s on: the native kernel failed", *where)


def member_label(column: Column, options: DecoderOptions) -> bytes:
    """Return what stands before a column's value in JSON.

    Args:
        column: The column.
        options: Modes.
    """
    return (quote_byte_text(field_name(column.name, options.field_names)) + ":").encode(_BYTES)


def counting_fallbacks(plain: TextDecoder, tally: Tally, reason: str) -> TextDecoder:
    """Return a decoder that counts its rows as left to Python.

    Args:
        plain: The decoder.
        tally: Counts them.
        reason: Why.
    """

    def decode(packet: bytes, pos: int, ctx: EventContext, out: list[Any]) -> None:
        tally.count_fallback(reason)
        plain(packet, pos, ctx, out)

    return decode


def choose_text_decoder(
    plain: TextDecoder,
    table: Table,
    options: DecoderOptions,
    envelope: EnvelopeText,
    columns: tuple[Column, ...],
    tally: Tally | None = None,
) -> TextDecoder:
    """Return the decoder of a table's rows: the native one where there is a kernel and it knows the table.

    Args:
        plain: The decoder in Python.
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant schema text.
        columns: The columns that the SELECT gives, in its order.
        tally: Counts what the kernel decodes.
    """
    module = kernel().module
    if module is None:
        return plain
    try:
        return NativeTextDecoder(plain, table, options, envelope, columns, module, tally)
    except Declined as reason:
        log.info("rows of %s are decoded in Python: %s", table.id, reason)
    return plain if tally is None else counting_fallbacks(plain, tally, "table")
