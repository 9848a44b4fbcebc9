"""Write the rows of a table as records, in memory, as a snapshot writes them to Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.nulled_values import NULLED
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns
from airflow_provider_mysql_cdc.cdc.drain.row_keys import row_key_options
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import snapshot_source
from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import Headers, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import DEFAULT_MARKER, make_snapshot_route
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

WrittenRow = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, partition and headers of a row's record."""


class RowRecords:
    """Write the rows of one table as records.

    Args:
        partitions: Partitions of its topic.
        formats: The formats of records; None when all of them are JSON.
        position: What the records say they were read at.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        table: Table,
        partitions: int,
        formats: RecordFormats | None,
        position: BinlogOffset,
    ) -> None:
        self.columns = read_columns(cfg, table)
        route = make_snapshot_route(cfg, formats, table, partitions, self.columns)
        self._rows, self._partitions = route.text_rows, partitions
        source_texts = snapshot_source(cfg, table.id, writes_avro=self._rows.writes_avro)
        now_ns = time.time_ns()
        self._context = self._new_context(cfg, source_texts, position, now_ns)
        self._context.tail = source_texts.op_tail(now_ns)
        self._native_context = self._new_context(cfg, source_texts, position, now_ns)
        self._native_context.tail = source_texts.marked_tail
        self.errors: list[ValueDecodeError] = []

    @staticmethod
    def _new_context(cfg: ConnectorConfig, source_texts: Any, position: BinlogOffset, now_ns: int) -> EventContext:
        context = EventContext()
        source_texts.fill(context, position, now_ns // 1_000_000, DEFAULT_MARKER, (0, None))
        if cfg.is_ticdc:
            context.transaction = "0"
        return context

    def of_block(self, block: RowBlock) -> Iterator[WrittenRow]:
        """Yield the records of rows; rows that cannot be written are added to ``errors``."""
        decode_many = self._rows.decode.decode_many
        if block.large or decode_many is None or self._rows.record_format is not None:
            yield from self._of_packets(block)
            return
        number, offset = 0, 0
        while number < block.rows:
            records = list[RowRecord]()
            decoded, offset = decode_many(block.data, offset, block.rows - number, self._native_context, records)
            yield from self._written(records)
            number += decoded
            if number < block.rows:  # a row that the kernel leaves to Python
                packet, offset = block.row_at(offset)
                yield from self._of_packets((packet,))
                number += 1

    def _of_packets(self, packets: Iterable[bytes]) -> Iterator[WrittenRow]:
        records, decode, context = list[RowRecord](), self._rows.decode, self._context
        for packet in packets:
            count = len(records)
            try:
                decode(packet, 0, context, records)
            except ValueDecodeError as error:
                self.errors.append(error)
                del records[count:]
        NULLED.values.clear()
        yield from self._written(records)

    def _written(self, records: list[RowRecord]) -> Iterable[WrittenRow]:
        if self._rows.record_format is None and self._rows.id_headers is None and self._partitions == 1:
            return [(record[0], record[1], 0, ()) for record in records]
        return self._written_one_by_one(records)

    def _written_one_by_one(self, records: list[RowRecord]) -> Iterator[WrittenRow]:
        record_format, id_headers, count = self._rows.record_format, self._rows.id_headers, self._partitions
        for key, value, *_ in records:
            key_bytes, value_bytes, partition = key, value, 0
            if record_format is not None:
                key_bytes, value_bytes = record_format.key_bytes(key), record_format.value_bytes(value)
                partition = record_format.partition(key_bytes, key, value, count) if count > 1 else 0
            elif count > 1:
                partition = partition_of(key, count)
            headers = () if id_headers is None else id_headers.append_to((), key_bytes, value_bytes)
            yield key_bytes, value_bytes, partition, headers


def read_columns(cfg: ConnectorConfig, table: Table) -> tuple[Column, ...]:
    """Return the columns of the SELECT that ``RowRecords`` reads: those of the events, and of the table's own key."""
    required = {
        *selected_columns(table, table_options.table_options(cfg, table)),
        *key_columns(table, row_key_options(table)),
    }
    return tuple(column for column in table.columns if column in required)
