"""Read the records of a topic up to an offset, know those of repairs, and write rows of a table as records in
memory.

The header of records that a repair writes: it settles what is before them, of their key and in their partition.

A repair writes the row of a key as it is, or that there is none. So what was wrong with earlier records of the key
leads consumers nowhere any longer, and verifications do not report it again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import Message

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns
from airflow_provider_mysql_cdc.cdc.drain.window_keys import row_key_options
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import snapshot_source
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import Header, Headers, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.message_lists import read_message_lists
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord, read_between
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


READ_TIMEOUT_S = 120.0
"""Seconds without a record after which reading fails."""


def read_records(cfg: ConnectorConfig, topic: str, bounds: Mapping[int, tuple[int, int]]) -> Iterator[TopicRecord]:
    """Yield committed records, in order within each partition.

    Args:
        cfg: The connector's configuration.
        topic: The topic.
        bounds: First offset and the offset after the last record, by partition; no open transaction is before that.

    Raises:
        SinkError: Kafka refuses, or gives nothing for ``READ_TIMEOUT_S``.
    """
    with _naming_silence(cfg, topic):
        yield from read_between(cfg.kafka_settings(), topic, bounds, timeout_s=READ_TIMEOUT_S)


def read_messages(cfg: ConnectorConfig, topic: str, partition: int, bounds: tuple[int, int]) -> Iterator[list[Message]]:
    """Yield committed records of a partition in order, as lists of the client's messages.

    Args:
        cfg: The connector's configuration.
        topic: The topic.
        partition: The partition.
        bounds: First offset and the offset after the last record; no open transaction is before that.

    Raises:
        RecordsDeleted: The first offset is not there any more.
        SinkError: Kafka refuses, or gives nothing for ``READ_TIMEOUT_S``.
    """
    with _naming_silence(cfg, topic):
        yield from read_message_lists(cfg.kafka_settings(), topic, partition, bounds, READ_TIMEOUT_S)


@contextmanager
def _naming_silence(cfg: ConnectorConfig, topic: str) -> Iterator[None]:
    try:
        yield
    except HiddenByTransaction as blocked:
        # No transaction hides what is before the last stable offset: the brokers have stopped answering.
        raise SinkConnectionError(
            "a topic cannot be read on",
            where=f"topic {topic} at {broker_addresses(cfg.kafka_settings())}",
            why=f"the brokers gave nothing for {READ_TIMEOUT_S:.0f} s; reading stopped at {blocked}",
            remedy="look at the brokers, then run the task again",
        ) from None


_PLACE = re.compile(rb"(?<!\d)(\d{1,9})@(\d{1,18})(?!\d)")
REPAIR_HEADER = "cdc-repair"
"""Header of every record that a repair writes: the id of its run."""

SETTLED_HEADER = "cdc-repair-settles"
"""Header of a row that a repair writes, or deletes, with the places of records that have no key to write behind."""


def settled_header(places: Iterable[tuple[int, int]]) -> list[Header]:
    """Return the header that names records without keys as settled; none where there are none."""
    text = ",".join(f"{partition}@{offset}" for partition, offset in sorted(places))
    return [(SETTLED_HEADER, text.encode())] if text else []


def settled_places(headers: Headers) -> Iterator[tuple[int, int]]:
    """Yield partitions and offsets of the records that such a header names."""
    for name, content in headers or ():
        if name == SETTLED_HEADER and content is not None:
            for partition, offset in _PLACE.findall(content):
                yield int(partition), int(offset)


def without_unknown_repair(record: TopicRecord, runs: Mapping[bytes | None, int]) -> TopicRecord:
    """Return a record without the marks of a repair if it is of none of these runs: other hands have written them.

    Args:
        record: The record.
        runs: The runs that have repaired something in the topic, as the ledger says, and when they wrote the last of
            it. What has a later time has copied the marks.
    """
    of_runs = (runs.get(run, -1) for name, run in record.headers or () if name == REPAIR_HEADER)
    if all(record.timestamp_ms <= last_ms for last_ms in of_runs):
        return record
    return replace(record, headers=tuple(h for h in record.headers if h[0] not in (REPAIR_HEADER, SETTLED_HEADER)))


def is_repair(headers: Headers) -> bool:
    """Return whether a repair has written a record."""
    for name, _ in headers or ():  # asked of each record, so no generator  # noqa: SIM110
        if name == REPAIR_HEADER:
            return True
    return False
