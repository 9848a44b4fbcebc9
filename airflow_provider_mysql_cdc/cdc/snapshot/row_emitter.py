"""Convert the rows of one table to records and produce them, and find what can be read of one that is left out.

Find what can be read of a row of a snapshot that is left out, for its dead letter.

Each column is decoded alone, as it would be in an event: masked values stay masked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED,
    DecoderOptions,
    EnvelopeText,
    EventContext,
    NulledValue,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_row_source import value_end
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, DecodeTextRows, TextDecoder
from airflow_provider_mysql_cdc.cdc.emit.source_block import snapshot_marker
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import SnapshotSource, TextRows, create_text_rows
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, RecordFormat, error_with_row
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_decoder import SnapshotTexts
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_rows import create_unwrapped_text
from airflow_provider_mysql_cdc.cdc.model.records import Headers, RowRecord, byte_count
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock


class PartialTextRows:
    """Describe rows that are left out.

    Args:
        cfg: The connector's configuration.
        table: Their table.
        columns: The columns of the SELECT in its order; None means those of ``select_list``.
    """

    def __init__(self, cfg: ConnectorConfig, table: Table, columns: tuple[Column, ...] | None = None) -> None:
        self._cfg, self._table, self._selected = cfg, table, columns

    def describe(self, row: int, error: ValueDecodeError, packet: bytes, ctx: EventContext) -> BadRow:
        """Return what can be read of a row.

        Args:
            row: Its number.
            error: Why it is left out.
            packet: The row in MySQL's text protocol.
            ctx: Text around the rows, of JSON records.
        """
        values = self._split(packet)
        key, key_json = self._key(values, ctx)
        after, failed = dict[str, Any](), list[tuple[str, str]]()
        for column, decode in self._value_decoders.items():
            try:
                after |= json.loads(_record(decode, values.get(column, b""), ctx)[1] or b"{}")["after"]
            except ValueDecodeError as cause:
                failed.append((column.name, self._cause(column, cause)))
        text = json.dumps(after, ensure_ascii=False, separators=(",", ":"))
        return BadRow(row, "r", error, key, key_json, after=text, failed=tuple(failed))

    def _split(self, packet: bytes) -> dict[Column, bytes]:
        """Return the part of the packet that each column has."""
        parts, pos = dict[Column, bytes](), 0
        for column in self._columns:
            end = value_end(packet, pos)
            parts[column], pos = packet[pos:end], end
        return parts

    def _cause(self, column: Column, error: ValueDecodeError) -> str:
        """Return why a value cannot be read; the text may contain the value, which a masked column does not show."""
        masked = any(name == column.name for name, _ in self._options.treatments)
        return error.why.partition(":")[0] if masked else error.why

    def _key(self, values: dict[Column, bytes], ctx: EventContext) -> tuple[bytes | None, str | None]:
        """Return the key that the record would have had, and its JSON text; None where it cannot be read."""
        if self._key_decoders is None:
            return None, None
        columns, decode, decode_payload = self._key_decoders
        packet = b"".join(values[column] for column in columns)
        try:
            key, payload = _record(decode, packet, ctx)[0], _record(decode_payload, packet, ctx)[0] or b""
        except ValueDecodeError:
            return None, None
        return key, payload.decode("utf-8", "replace")

    @cached_property
    def _options(self) -> DecoderOptions:
        return table_options.table_options(self._cfg, self._table)

    @cached_property
    def _envelope(self) -> EnvelopeText:
        return table_options.envelope_text(self._cfg, self._table, self._options)

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return selected_columns(self._table, self._options) if self._selected is None else self._selected

    @cached_property
    def _key_decoders(self) -> tuple[tuple[Column, ...], TextDecoder, TextDecoder] | None:
        """The key columns, and the decoders of the record's key and of its payload; None for a table without a key."""
        columns = key_columns(self._table, self._options)
        if not columns:
            return None
        options = replace(self._options, included=())
        record = self._compile(options, EnvelopeText(self._envelope.key_schema), columns)
        return columns, record, self._compile(options, EnvelopeText(), columns)

    @cached_property
    def _value_decoders(self) -> dict[Column, TextDecoder]:
        """The decoders of single columns; a column that the SELECT leaves out has a constant value."""
        texts = EnvelopeText(null_text=self._envelope.null_text)
        decoders = dict[Column, TextDecoder]()
        for column in value_columns(self._table, self._options):
            options = replace(self._options, included=(column.name,), key_columns=())
            decoders[column] = self._compile(options, texts, (column,) if column in self._columns else ())
        return decoders

    def _compile(self, options: DecoderOptions, envelope: EnvelopeText, columns: Iterable[Column]) -> TextDecoder:
        return compile_text_decoder(self._table, options, envelope, tuple(columns))


def _record(decode: TextDecoder, packet: bytes, ctx: EventContext) -> RowRecord:
    records: list[RowRecord] = []
    decode(packet, 0, ctx, records)
    return records[0]


DEFAULT_MARKER = snapshot_marker()
"""``source.snapshot`` of rows that are neither the first nor the last."""
TRANSACTION_TIME_SHARE = 0.9
"""Share of transaction.timeout.ms after which a transaction of rows is aborted."""


def out_of_time(cfg: ConnectorConfig, sink: TransactionalWriter) -> bool:
    """Return whether the open transaction is so old that it has to be aborted before the broker does.

    Args:
        cfg: The connector's configuration.
        sink: The transactional producer.
    """
    return sink.open_s >= cfg[F.TRANSACTION_TIMEOUT_MS] / 1000 * TRANSACTION_TIME_SHARE


@dataclass(frozen=True, slots=True)
class SnapshotRoute:
    """Describe how the rows of one table become records, and their topic.

    Args:
        topic: The topic.
        partitions: Its number of partitions.
        text_rows: The decoder and the record format.
        partial_rows: Describes rows that are left out.
    """

    topic: str
    partitions: int
    text_rows: TextRows
    partial_rows: PartialTextRows


def make_snapshot_route(
    cfg: ConnectorConfig,
    formats: RecordFormats | None,
    table: Table,
    partitions: int,
    columns: tuple[Column, ...] | None = None,
    tally: Tally | None = None,
) -> SnapshotRoute:
    """Return the route of a table's rows.

    Args:
        cfg: The connector's configuration.
        formats: The formats of records; None when all of them are JSON.
        table: The table, under the name that its rows get.
        partitions: Number of partitions of its topic.
        columns: The columns of the SELECT in its order; None means those of ``chunk_sql``.
        tally: Counts the rows that the native kernel decodes.

    Raises:
        SchemaError: The type of a column is unknown.
    """
    topic = record_topics.table_topic_name(cfg, table.id)
    options = table_options.table_options(cfg, table)
    record_format = None if formats is None else formats.table_format(table, options, topic)
    text_rows = create_unwrapped_text(cfg, table, options, topic, columns, tally)
    text_rows = text_rows or create_text_rows(cfg, record_format, table, options, columns, tally)
    return SnapshotRoute(topic, partitions, text_rows, PartialTextRows(cfg, table, columns))


@dataclass(frozen=True, slots=True)
class EmitTarget:
    """Describe where records are produced.

    Args:
        sink: The transactional producer.
        topic: The topic.
        partitions: Its number of partitions.
        headers: Headers of every record.
        writer: The writer's index.
        record_format: The format of records; None if the decoder returns the final bytes.
        id_headers: Additional headers with schema ids, or None.
    """

    sink: TransactionalWriter
    topic: str
    partitions: int
    headers: list[tuple[str, bytes]]
    writer: int
    record_format: RecordFormat | None = None
    id_headers: IdHeaders | None = None


class RowEmitter:
    """Produce the rows of one table.

    Args:
        cfg: The connector's configuration.
        table: The table.
        decode: Its compiled text decoder.
        partial_rows: Describes rows that are left out.
        fill: Writes the source block for a value of ``source.snapshot`` into the decoder's context.
        source_texts: Returns the text after the operation.
        where: The key range, for error messages.
        target: Where the records are produced.
        counts: Records by topic; dead letters are added.
        id_prefix: Distinguishes this read of the table from others in the header cdc-id.
        row_id_prefix: Distinguishes, together with the row's number, rows without a unique key in that header.
        marker: ``source.snapshot`` of most rows.
    """

    def __init__(
        self,
        *,
        cfg: ConnectorConfig,
        table: Table,
        decode: TextDecoder,
        partial_rows: PartialTextRows,
        fill: Callable[[EventContext, str], None],
        source_texts: SnapshotSource | SnapshotTexts,
        where: str,
        target: EmitTarget,
        counts: dict[str, int],
        id_prefix: str,
        row_id_prefix: str,
        marker: str = DEFAULT_MARKER,
    ) -> None:
        self.topic, self.where = target.topic, where
        # Tables that share a topic may have equal keys.
        self._own_topic = record_topics.unrouted_topic(cfg, table.id)
        self._target, self._decode, self._fill = target, decode, fill
        self._partial_rows = partial_rows
        self._op_tail, self._unwrapped = source_texts.op_tail, isinstance(source_texts, SnapshotTexts)
        self._row_id_prefix = row_id_prefix
        self._id_prefix = id_prefix if cfg[F.CDC_ID_HEADER] else None
        self._key_is_unique = table_options.table_options(cfg, table).key_columns is None
        self._current_marker, self._default_marker = "", marker
        self._rows = 0
        self._ctx = EventContext()
        self._out: list[RowRecord] = []
        # Rows with another format or with headers of their own are produced one by one.
        row_by_row = target.record_format is not None or target.id_headers is not None or self._id_prefix is not None
        self._decode_many = None if row_by_row else decode.decode_many
        self._native_ctx = EventContext()
        if self._decode_many is not None:
            fill(self._native_ctx, marker)
            self._native_ctx.where = where
            self._native_ctx.tail = source_texts.marked_tail
        self._dead_letters = (
            DeadLetterReporter(cfg, target.writer, target.sink.produce, counts)
            if DeadLetterReporter.enabled(cfg)
            else None
        )
        self.left_out = 0
        self.nulled: list[NulledValue] = []

    def emit_block(self, block: RowBlock, rows_before: int, edge_markers: Mapping[int, str]) -> None:
        """Produce rows.

        Args:
            block: The rows.
            rows_before: Number of rows of the table before it.
            edge_markers: ``source.snapshot`` of rows by their number, from 1, that differ from the others.

        Raises:
            ValueDecodeError: As for ``emit_row``.
        """
        number, end, offset = rows_before, rows_before + block.rows, 0
        if self._decode_many is None or block.large:
            for number, packet in enumerate(block, rows_before + 1):
                self.emit_row(packet, edge_markers.get(number, self._default_marker))
            return
        while number < end:
            run_end = min((edge - 1 for edge in edge_markers if edge > number), default=end)
            emitted, offset = self._emit_native(self._decode_many, block, offset, min(run_end, end) - number)
            number += emitted
            if number < end:
                packet, offset = block.row_at(offset)
                number += 1
                self.emit_row(packet, edge_markers.get(number, self._default_marker))

    def _emit_native(self, decode_many: DecodeTextRows, block: RowBlock, offset: int, limit: int) -> tuple[int, int]:
        """Produce rows that the kernel decodes in one call; return their number and the offset after them."""
        target, ctx, records = self._target, self._native_ctx, list[RowRecord]()
        emitted, offset = decode_many(block.data, offset, limit, ctx, records) if limit else (0, offset)
        self._rows += emitted
        if self._unwrapped:
            target.sink.produce_plain(self.topic, records, target.headers, 0, byte_count(records))
        elif target.partitions == 1:
            target.sink.produce_all(self.topic, records, target.headers)
        else:
            for key, value, *_ in records:
                target.sink.produce(self.topic, key, value, partition_of(key, target.partitions), target.headers)
        return emitted, offset

    def emit_row(self, packet: bytes, marker: str) -> None:
        """Produce one row.

        Args:
            packet: The row's packet in MySQL's text protocol.
            marker: ``source.snapshot`` of this row.

        Raises:
            ValueDecodeError: A value cannot be decoded, and event.processing.failure.handling.mode is fail.
        """
        ctx, records, target = self._ctx, self._out, self._target
        self._rows += 1
        if marker != self._current_marker:
            self._fill(ctx, marker)
            ctx.where = self.where
            self._current_marker = marker
        ctx.tail = self._op_tail(time.time_ns())
        records.clear()
        serialized: list[tuple[bytes | None, bytes | None, int]] = []
        try:
            self._decode(packet, 0, ctx, records)
            if target.record_format is not None:
                serialized = [self._serialize(target.record_format, key, value) for key, value, *_ in records]
        except ValueDecodeError as error:
            if self._dead_letters is None:
                raise
            self.left_out += 1
            context = ctx.as_json()
            bad_row = self._partial_rows.describe(self._rows - 1, error, packet, context)
            self._dead_letters.report(self.topic, bad_row, context, target.headers)
            NULLED.values.clear()
            return
        if NULLED.values:
            self.nulled += NULLED.take()
        if self._unwrapped:
            target.sink.produce_plain(self.topic, records, target.headers, 0, byte_count(records))
            return
        for number, (key, value, *_) in enumerate(records):
            headers: Headers = target.headers
            if self._id_prefix is not None:
                # Rows of a table without a key may be equal, and message.key.columns need not be unique; such rows are
                # distinguished by key range and row number.
                row_id = (
                    key if key is not None and self._key_is_unique else f"{self._row_id_prefix}/{self._rows}".encode()
                )
                headers = [*headers, ("cdc-id", f"{self._id_prefix}/{self._own_topic}/".encode() + row_id)]
            if target.record_format is None:
                key_bytes, value_bytes, partition = key, value, partition_of(key, target.partitions)
            else:
                key_bytes, value_bytes, partition = serialized[number]
            if target.id_headers is not None:
                headers = target.id_headers.append_to(headers, key_bytes, value_bytes)
            target.sink.produce(self.topic, key_bytes, value_bytes, partition, headers)

    def _serialize(self, record_format: RecordFormat, key: Any, value: Any) -> tuple[bytes | None, bytes | None, int]:
        """Return key, value and partition of a record in its format."""
        try:
            key_bytes = record_format.key_bytes(key)
            return (
                key_bytes,
                record_format.value_bytes(value),
                record_format.partition(key_bytes, key, value, self._target.partitions),
            )
        except ValueDecodeError as error:
            raise error_with_row(error, self.where, None, key) from error
