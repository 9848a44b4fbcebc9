"""Convert the records of rows to their format, choose their partitions, and skip rows that cannot be converted.

Records whose partition is chosen have their final format already (``create_ticdc_decoder``), and stay as they are.

All records of a row are written, or none: an UPDATE that changes the key has up to three records, which may go to
partitions of several writers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeGuard

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_format import RecordFormat, error_with_row
from airflow_provider_mysql_cdc.cdc.model.records import NEW_KEY, PARTITION, PartitionedRecord, RowRecord

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
