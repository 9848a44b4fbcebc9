"""Turn rows of MySQL's text protocol into records, and read their keys, many at once, with the native kernel.

Turn rows of MySQL's text protocol into records.

The connection must be utf8mb4 and its ``time_zone`` ``'+00:00'``; the columns must be those of ``select_list``.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import lenenc
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED,
    DecoderOptions,
    EnvelopeText,
    EventContext,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import KEY_PREFIX, KEY_SUFFIX, VALUE_PREFIX, fill_marks
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_row_source import (
    GENERATED_FILE,
    VALUE_SUFFIX,
    TextRowPlan,
    TextRowSource,
    compile_source,
    line_columns,
)
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import PANIC, Op, Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_text import (
    JSON_TEXT,
    NativeTextFormat,
    TextColumnPlan,
    choose_text_decoder,
    member_label,
    text_op,
)
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import DecodeTextRow, TextDecoder
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.column_rule import CONVERTER_REMEDY, ConverterError
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_NULL = 0xFB


class PythonTextDecoder:
    """Decode rows of one SELECT in Python.

    Args:
        plan: How rows become records.
        fallback: Reads rows that fail, or raises their errors; None to raise them here.

    Attributes:
        decode_many: None: there is no faster way for many rows at once.

    Raises:
        SchemaError: A column's type is not known.
        Declined: The dialect has no code for the table.
    """

    __slots__ = ("_fallback", "_lines", "_plan", "_run")
    decode_many: None = None

    def __init__(self, plan: TextRowPlan, fallback: DecodeTextRow | None = None) -> None:
        source = TextRowSource(plan)
        self._plan, self._fallback, self._lines = plan, fallback, source.record_lines()
        texts = dict(zip((KEY_PREFIX, KEY_SUFFIX, VALUE_PREFIX, VALUE_SUFFIX), plan.wrappers, strict=True))
        # source generated here from the table
        exec(fill_marks(compile_source("\n".join(self._lines)), texts), source.namespace)
        self._run = source.namespace["run"]

    def __call__(self, packet: bytes, pos: int, ctx: EventContext, out: list[RowRecord]) -> None:
        """Append the record of a row; see ``TextDecoder``.

        Raises:
            ValueDecodeError: A value cannot be decoded or represented, and there is no fallback.
        """
        data = packet if isinstance(packet, bytes) else bytes(packet)
        try:
            self._run(data, data.decode("latin-1"), pos, ctx, out.append)
        except ROW_ERRORS as error:
            if self._fallback is None:
                raise self._error(error, data, pos, ctx) from error
        else:
            return
        NULLED.values.clear()
        self._fallback(data, pos, ctx, out)

    def _error(self, error: Exception, data: bytes, pos: int, ctx: EventContext) -> ValueDecodeError:
        plan = self._plan
        identity = row_identity(data, pos, plan.columns, frozenset(column.name for column in plan.key))
        where = f"{ctx.where}, table {plan.table.id}" + (f", key {identity}" if identity else "")
        return _row_error(plan, error, self._lines, where)


class KeyReader:
    """Read the key of one row; of other columns it reads the lengths only.

    The key is the one that ``compile_text_decoder`` gives its records with these options and no schema text.

    Args:
        table: The table.
        options: Modes and key columns; there is one at least.
        columns: The columns that the SELECT returns, in its order.

    Raises:
        SchemaError: A key column's type is not known.
    """

    __slots__ = ("_lines", "_plan", "_run")

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> None:
        self._plan = TextRowPlan(table, options, EnvelopeText(), columns)
        source = TextRowSource(self._plan)
        self._lines = source.key_lines()
        exec(compile("\n".join(self._lines), GENERATED_FILE, "exec"), source.namespace)  # generated from the table
        self._run = source.namespace["run"]

    def __call__(self, packet: bytes) -> bytes:
        """Return the key of a row.

        Args:
            packet: The row.

        Raises:
            ValueDecodeError: A value of the key cannot be decoded.
        """
        try:
            key: bytes = self._run(packet, packet.decode("latin-1"), 0)
        except ROW_ERRORS as error:
            raise _row_error(self._plan, error, self._lines, f"table {self._plan.table.id}") from error
        return key


def compile_text_decoder(
    table: Table,
    options: DecoderOptions,
    envelope: EnvelopeText,
    columns: tuple[Column, ...] | None = None,
    native_format: NativeTextFormat = JSON_TEXT,
    prefixes: tuple[str, str] | None = None,
    fallback: DecodeTextRow | None = None,
    tally: Tally | None = None,
) -> TextDecoder:
    """Return the decoder of a table's rows: the native one where there is a kernel and it knows the table.

    Args:
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant schema text.
        columns: The columns that the SELECT returns, in its order; None means those of ``select_list``.
        native_format: The format of records.
        prefixes: Text that keys and values begin with; None for the schemas of ``envelope``.
        fallback: Reads rows that fail, or raises their errors; None to raise them here.
        tally: Counts what the native kernel decodes.

    Raises:
        SchemaError: A column's type is not known.
        Declined: The format has no code for the table.
    """
    selected = selected_columns(table, options) if columns is None else columns
    plan = TextRowPlan(table, options, envelope, selected, native_format.dialect, prefixes)
    return choose_text_decoder(PythonTextDecoder(plan, fallback), plan, native_format, tally)


def row_identity(packet: bytes, pos: int, columns: tuple[Column, ...], keys: frozenset[str]) -> str:
    """Return the key of a row as ``name=value, ...`` in MySQL's own text, as far as it can be read.

    Args:
        packet: A row of the text protocol.
        pos: Offset of the first value.
        columns: Its columns.
        keys: Names of the key columns.
    """
    parts: list[str] = []
    for column in columns:
        if pos >= len(packet) or packet[pos] > 254:
            break
        if packet[pos] == _NULL:
            pos += 1
            continue
        size, start = lenenc(packet, pos)
        pos = start + size
        if column.name in keys:
            parts.append(f"{column.name}={packet[start:pos].decode('utf-8', 'replace')}")
    return ", ".join(parts)


def _row_error(plan: TextRowPlan, error: Exception, lines: list[str], where: str) -> ValueDecodeError:
    """Return the error that names the column at which the generated code stopped."""
    column_index, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == GENERATED_FILE:
            column_index = line_columns(lines)[trace.tb_lineno - 1]
        trace = trace.tb_next
    what = "A row" if column_index is None else f"A value of column {plan.columns[column_index].name}"
    return ValueDecodeError(
        f"{what} of table {plan.table.id} cannot be read",
        where=where,
        why=f"{type(error).__name__}: {error}",
        remedy=CONVERTER_REMEDY
        if isinstance(error, ConverterError)
        else (
            "compare the row with SELECT on the server; if the table has changed since its structure was read, "
            "take the snapshot again; otherwise exclude the column (column.exclude.list)"
        ),
    )


_BYTES = "latin-1"  # byte text has one character a byte


class NativeKeyReader:
    """Read the keys of rows, as ``text_decoder.KeyReader`` reads that of one; of other columns the lengths only.

    Args:
        table: The table.
        options: Modes and key columns.
        columns: The columns that the SELECT returns, in its order.
        module: The kernel.

    Raises:
        Declined: The kernel does not know the key's columns or modes, or has no operation for MySQL's own text.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...], module: Any) -> None:
        if options.flat:
            raise Declined("dates and times of the key are MySQL's own text")
        keys = key_columns(table, options)
        texts = (JSON.key.opening, JSON.key_members(options) + JSON.key.closing, "", *JSON.image)
        plan = module.text_plan(
            [_column_plan(column, options, in_key=column in keys) for column in columns],
            [],
            [(member_label(column, options), columns.index(column), b"") for column in keys],
            [text.encode(_BYTES) for text in texts],
            (False, True),
            module.Tally(),
        )
        if plan is None:
            raise Declined("the kernel does not support one of its columns")
        self._read_keys: Any = plan.rows

    def __call__(self, data: bytes, at: int, max_rows: int) -> tuple[list[bytes], int]:
        """Return the keys of rows up to the first one that Python has to read, and the offset after them.

        Args:
            data: Rows, each after the 4-byte header of its packet.
            at: Offset of the first header.
            max_rows: Number of rows.
        """
        if self._read_keys is None:
            return [], at
        records: list[Any] = []
        rows, stop = self._read_keys(data, at, max_rows, "", [], 0, 0, records)
        if rows == PANIC:
            self._read_keys = None
        return ([record[0] for record in records], stop) if rows > 0 else ([], at)


def _column_plan(column: Column, options: DecoderOptions, *, in_key: bool) -> TextColumnPlan:
    op = text_op(column, options, "null") if in_key else Op("passed")
    return column.nullable, b"null", op.name, list(op.numbers), list(op.texts)


def native_key_reader(table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> NativeKeyReader | None:
    """Return the native reader of the keys of many rows, or None where Python reads them.

    Args:
        table: The table.
        options: Modes and key columns.
        columns: The columns that the SELECT returns, in its order.
    """
    module = kernel().module
    if module is None:
        return None
    try:
        return NativeKeyReader(table, options, columns, module)
    except Declined:
        return None
