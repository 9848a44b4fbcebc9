"""Convert records to their format row by row, and count, log and keep apart those that cannot be.

Report rows that are skipped: count them, log them, and write what is known of them to the dead-letter topic.

A dead letter's value is JSON without a schema::

    {"topic": .., "op": "c", "source": {..}, "key": {..}, "before": {..}, "after": {..},
     "failed": [{"column": .., "cause": ..}], "error": {"type", "what", "where", "why", "remedy", "retriable"}}

``source`` is the block that the event would have had; ``before`` and ``after`` contain the values that could be read,
masked as in events; the record's key is the one that the event would have had, if it can be read. Headers have the
names that Kafka Connect uses (``DeadLetterQueueReporter``); ``offset`` is the position in the binlog.

Convert the records of rows to their format, choose their partitions, and skip rows that cannot be converted.

Records whose partition is chosen have their final format already (``create_ticdc_decoder``), and stay as they are.

All records of a row are written, or none: an UPDATE that changes the key has up to three records, which may go to
partitions of several writers.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeGuard

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import RowFailureMode
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.record_format import RecordFormat, error_with_row
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.model.records import NEW_KEY, PARTITION, Header, PartitionedRecord, RowRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

SKIPPED_SUFFIX = " (rows left out)"
LOG_INTERVAL_S, MAX_LOGGED_ROWS = 10.0, 100
_PREFIX = "__connect.errors."
_LOG = logging.getLogger(__name__)

Produce = Callable[[str, bytes | None, bytes | None, int, list[Header]], None]


class DeadLetterReporter:
    """Report rows that are skipped.

    Args:
        cfg: The connector's configuration.
        task: Number of the writer or snapshot task, for the headers.
        produce: Adds a record to the current transaction: topic, key, value, partition, headers.
        counts: Records per topic; skipped rows are counted under the topic's name with ``SKIPPED_SUFFIX``, dead letters
            under the dead-letter topic.
    """

    def __init__(self, cfg: ConnectorConfig, task: int, produce: Produce, counts: dict[str, int]) -> None:
        self._cfg, self._task, self._produce, self._counts = cfg, task, produce, counts
        self._topic: str = cfg[F.DEAD_LETTER_TOPIC]
        self._warn = cfg[F.EVENT_PROCESSING_FAILURE_HANDLING_MODE] is RowFailureMode.WARN
        self._topic_exists = False
        self._logged_rows, self._interval_start = 0, float("-inf")

    @staticmethod
    def enabled(cfg: ConnectorConfig) -> bool:
        """Return whether rows may be skipped (event.processing.failure.handling.mode)."""
        return cfg[F.EVENT_PROCESSING_FAILURE_HANDLING_MODE] is not RowFailureMode.FAIL

    def report(self, topic: str, bad_row: BadRow, ctx: EventContext, headers: list[Header]) -> None:
        """Report one row.

        Args:
            topic: The topic that its event would have gone to.
            bad_row: The row.
            ctx: Text around the rows of its event.
            headers: Headers that its event would have had.

        Raises:
            SinkError: The dead letter cannot be written.
        """
        self._counts[topic + SKIPPED_SUFFIX] = self._counts.get(topic + SKIPPED_SUFFIX, 0) + 1
        self._log_row(bad_row)
        if not self._topic:
            return
        if not self._topic_exists:
            replication, settings = self._cfg[F.TOPIC_CREATION_REPLICATION_FACTOR], self._cfg.topic_creation_settings()
            admin = make_admin(self._cfg.kafka_settings("admin"))
            ensure_topics(admin, {self._topic: TopicSpec(1, replication, settings)})
            self._topic_exists = True
        self._produce(
            self._topic,
            bad_row.key,
            dead_letter_value(topic, bad_row, ctx),
            0,
            [*headers, *dead_letter_headers(self._cfg[F.TOPIC_PREFIX], self._task, topic, bad_row, ctx)],
        )
        self._counts[self._topic] = self._counts.get(self._topic, 0) + 1

    def _log_row(self, bad_row: BadRow) -> None:
        """Log the row, at most ``MAX_LOGGED_ROWS`` in ``LOG_INTERVAL_S`` seconds; the counts include all rows."""
        if not self._warn:
            return
        now = time.monotonic()
        if now - self._interval_start >= LOG_INTERVAL_S:
            self._interval_start, self._logged_rows = now, 0
        self._logged_rows += 1
        if self._logged_rows <= MAX_LOGGED_ROWS:
            _LOG.warning("A row is skipped: %s", bad_row.error.message())


def dead_letter_value(topic: str, bad_row: BadRow, ctx: EventContext) -> bytes:
    """Return a dead letter's value.

    Args:
        topic: The topic that its event would have gone to.
        bad_row: The row.
        ctx: Text around the rows of its event.
    """
    failed = [{"column": column, "cause": cause} for column, cause in bad_row.failed]
    members = (
        ("topic", _json(topic)),
        ("op", _json(bad_row.op)),
        ("source", f"{ctx.src_head}{bad_row.row}{ctx.src_tail}"),
        ("key", bad_row.key_json or "null"),
        ("before", bad_row.before or "null"),
        ("after", bad_row.after or "null"),
        ("failed", _json(failed)),
        ("error", _json(bad_row.error.to_json())),
    )
    body = ",".join(f'"{name}":{text}' for name, text in members)
    return f"{{{body}}}".encode("utf-8", "replace")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dead_letter_headers(prefix: str, task: int, topic: str, bad_row: BadRow, ctx: EventContext) -> list[Header]:
    """Return a dead letter's headers.

    Args:
        prefix: ``topic.prefix``.
        task: Number of the writer or snapshot task.
        topic: The topic that its event would have gone to.
        bad_row: The row.
        ctx: Text around the rows of its event.
    """
    causes: list[BaseException] = []
    error: BaseException | None = bad_row.error
    while error is not None and len(causes) < 10:
        causes.append(error)
        error = error.__cause__
    trace = "\nCaused by: ".join(f"{type(cause).__name__}: {cause}" for cause in causes)
    texts = {
        "topic": topic,
        "offset": f"{ctx.where}/{bad_row.row}",
        "connector.name": prefix,
        "task.id": str(task),
        "stage": "VALUE_CONVERTER",
        "class.name": "RowDecoder",
        "exception.class.name": type(bad_row.error).__name__,
        "exception.message": bad_row.error.message(),
        "exception.stacktrace": trace,
    }
    return [(_PREFIX + name, text.encode("utf-8", "replace")) for name, text in texts.items()]


# The value of columns that the row image lacks (decode.unavailable.ABSENT).
ABSENT: dict[str, Any] = {}
_ROW_NUMBER, _RECORD_NUMBER, _PARTITION = itemgetter(2), itemgetter(3), itemgetter(PARTITION)


def format_rows(
    record_format: RecordFormat, records: Sequence[RowRecord], share: TopicShare, where: str, *, tolerant: bool
) -> tuple[list[PartitionedRecord], list[BadRow]]:
    """Return a writer's records of an event, and the rows to be left out that this writer has to tell of.

    Args:
        record_format: The format of the table's records.
        records: The records from the decoder.
        share: The writer's share of the topic.
        where: Position of the event, for error messages.
        tolerant: Whether rows that cannot be converted are skipped.

    Raises:
        ValueDecodeError: A row cannot be converted, and ``tolerant`` is false.
    """
    # All records of a row have to be looked at before the first one is written.
    if not tolerant or NEW_KEY not in map(_RECORD_NUMBER, records):
        try:
            return list(_format_each(record_format, records, share, where)), []
        except ValueDecodeError:
            if not tolerant:
                raise
    formatted: list[PartitionedRecord] = []
    bad_rows: list[BadRow] = []
    for _, row_records in groupby(records, _ROW_NUMBER):
        _format_row(record_format, list(row_records), share, where, formatted, bad_rows)
    return formatted, bad_rows


def have_partitions(records: Sequence[RowRecord]) -> TypeGuard[Sequence[PartitionedRecord]]:
    """Return whether the partition of every record of an event is chosen.

    Args:
        records: The records from a decoder. It decodes all rows of an event in one way, unless it skips rows.
    """
    return bool(records) and None not in map(_PARTITION, records)


def _format_each(
    record_format: RecordFormat, records: Sequence[RowRecord], share: TopicShare, where: str
) -> Iterator[PartitionedRecord]:
    count, assigned, partition = share.partitions, share.assigned, 0
    for key, value, row, record_number, header, own_partition in records:
        if own_partition is not None:
            if own_partition in assigned:
                yield key, value, row, record_number, header, own_partition
            continue
        try:
            record_key = record_format.key_bytes(key)
            if count > 1:
                partition = record_format.partition(record_key, key, value, count)
            if partition in assigned:
                yield record_key, record_format.value_bytes(value), row, record_number, header, partition
        except ValueDecodeError as error:
            raise error_with_row(error, where, row, key) from error


def _format_row(
    record_format: RecordFormat,
    row_records: list[RowRecord],
    share: TopicShare,
    where: str,
    formatted: list[PartitionedRecord],
    bad_rows: list[BadRow],
) -> None:
    """Add the records of one row, or the row to the skipped ones."""
    count, assigned = share.partitions, share.assigned
    if have_partitions(row_records):
        formatted.extend(_format_each(record_format, row_records, share, where))
        return
    # Every writer converts the keys; only writers with a record of the row convert its values. One writer reports.
    reporter = partition_of(row_records[0][0], count)
    try:
        record_keys = [record_format.key_bytes(key) for key, *_ in row_records]
        partitions = [
            record_format.partition(record_key, key, value, count)
            for record_key, (key, value, *_) in zip(record_keys, row_records, strict=True)
        ]
        if assigned.isdisjoint(partitions):
            return
        reporter = partitions[0]
        values = [record_format.value_bytes(value) for _, value, *_ in row_records]
    except ValueDecodeError as error:
        if reporter in assigned:
            bad_rows.append(_bad_row(row_records, error_with_row(error, where, row_records[0][2], row_records[0][0])))
        return
    for record_key, value, partition, (_, _, row, record_number, header, _) in zip(
        record_keys, values, partitions, row_records, strict=True
    ):
        if partition in assigned:
            formatted.append((record_key, value, row, record_number, header, partition))


def _bad_row(row_records: list[RowRecord], error: ValueDecodeError) -> BadRow:
    key = row_records[0][0]
    events = [parse_payload(value) for _, value, *_ in row_records if value is not None]
    before, after = events[0].get("before"), events[-1].get("after")
    return BadRow(
        row=row_records[0][2],
        op="u" if len(events) > 1 else events[0]["op"],
        error=error,
        key=key,
        key_json=None if key is None else _known_values_json(parse_payload(key)),
        before=None if before is None else _known_values_json(before),
        after=None if after is None else _known_values_json(after),
    )


def _known_values_json(row: Mapping[str, Any]) -> str:
    """Return the values of a row that are known, as JSON text."""
    value = {name: member for name, member in row.items() if member != ABSENT}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
