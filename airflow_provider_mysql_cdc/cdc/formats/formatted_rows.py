"""The records of rows in their form, each on its partition; rows that cannot be written left out where that is allowed.

Records that a decoder has written at once say their partition in place of a header (``flat_decoder``), and stay as they
are.

A row is written whole or left out whole: an UPDATE that changes the key is up to three records, which may go to
partitions of several writers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import payload_of
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.partition_share import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_format import Bytes, TableForm, at_row
from airflow_provider_mysql_cdc.cdc.sink.record_writer import Row

# What stands for columns that are absent (decode.unavailable.ABSENT).
ABSENT: dict[str, Any] = {}
_ROW, _LEG = itemgetter(2), itemgetter(3)
_OF_NEW_KEY = 2


class Formed(NamedTuple):
    """Hold a record.

    Args:
        key: Its key.
        value: Its value.
        partition: Its partition.
        row: Number of its row.
        leg: Which of the row's records it is.
        header: Its header, or None.
    """

    key: Bytes
    value: Bytes
    partition: int
    row: int
    leg: int
    header: Any


def formed_rows(
    form: TableForm, records: Sequence[Row], share: TopicShare, where: str, *, tolerant: bool
) -> tuple[list[Formed], list[BadRow]]:
    """Return a writer's records of an event, and the rows to be left out that this writer has to tell of.

    Args:
        form: The form of the table's records.
        records: What the decoder made.
        share: What the writer owns of the topic.
        where: Place of the event.
        tolerant: Whether rows that cannot be written are left out.

    Raises:
        ValueDecodeError: A row cannot be written, and none is left out.
    """
    # All records of a row have to be looked at before the first one is written.
    if not tolerant or _OF_NEW_KEY not in map(_LEG, records):
        try:
            return list(_each(form, records, share, where)), []
        except ValueDecodeError:
            if not tolerant:
                raise
    found: list[Formed] = []
    bad: list[BadRow] = []
    for _, legs in groupby(records, _ROW):
        _whole(form, list(legs), share, where, found, bad)
    return found, bad


def placed(records: Sequence[Row]) -> bool:
    """Return whether all records of an event know their partition.

    Args:
        records: What a decoder made; it writes all rows of an event in one way, unless it leaves rows out.
    """
    return bool(records) and type(records[0][4]) is int and all(type(record[4]) is int for record in records)


def _each(form: TableForm, records: Sequence[Row], share: TopicShare, where: str) -> Iterator[Formed]:
    count, mine, part = share.partitions, share.mine, 0
    for key, value, row, leg, header in records:
        if type(header) is int:
            if header in mine:
                yield Formed(key, value, header, row, leg, None)
            continue
        try:
            name = form.key_bytes(key)
            if count > 1:
                part = form.partition(name, key, value, count)
            if part in mine:
                yield Formed(name, form.value_bytes(value), part, row, leg, header)
        except ValueDecodeError as error:
            raise at_row(error, where, row, key) from error


def _whole(
    form: TableForm, legs: list[Row], share: TopicShare, where: str, found: list[Formed], bad: list[BadRow]
) -> None:
    """Add the records of one row, or what is known of it."""
    count, mine = share.partitions, share.mine
    if type(legs[0][4]) is int:
        found.extend(_each(form, legs, share, where))
        return
    # Every writer meets an error of keys; of one of values those know that own a record of the row.
    teller = partition_of(legs[0][0], count)
    try:
        names = [form.key_bytes(key) for key, *_ in legs]
        parts = [form.partition(n, leg[0], leg[1], count) for n, leg in zip(names, legs, strict=True)]
        if mine.isdisjoint(parts):
            return
        teller = parts[0]
        values = [form.value_bytes(value) for _, value, *_ in legs]
    except ValueDecodeError as error:
        if teller in mine:
            bad.append(_bad_row(legs, at_row(error, where, legs[0][2], legs[0][0])))
        return
    for name, value, part, (_, _, row, leg, header) in zip(names, values, parts, legs, strict=True):
        if part in mine:
            found.append(Formed(name, value, part, row, leg, header))


def _bad_row(legs: list[Row], error: ValueDecodeError) -> BadRow:
    key = legs[0][0]
    events = [payload_of(value) for _, value, *_ in legs if value is not None]
    before, after = events[0].get("before"), events[-1].get("after")
    return BadRow(
        row=legs[0][2],
        op="u" if len(events) > 1 else events[0]["op"],
        error=error,
        key=key,
        key_json=None if key is None else _text(payload_of(key)),
        before=None if before is None else _text(before),
        after=None if after is None else _text(after),
    )


def _text(row: Mapping[str, Any]) -> str:
    """Return JSON text of what is known of a row."""
    value = {name: member for name, member in row.items() if member != ABSENT}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
