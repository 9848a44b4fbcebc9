"""Fold the records of a topic by key as bytes: only the text of the row after an event is taken out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, cast

import orjson

from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import ChecksumBlocks, SumKind
from airflow_provider_mysql_cdc.cdc.verify.event_layout import EventLayout
from airflow_provider_mysql_cdc.cdc.verify.event_runs import EventRuns
from airflow_provider_mysql_cdc.cdc.verify.json_slices import place_in_binlog
from airflow_provider_mysql_cdc.cdc.verify.key_states import KeyStates
from airflow_provider_mysql_cdc.cdc.verify.recent_tails import RecentTails, json_times
from airflow_provider_mysql_cdc.cdc.verify.source_place import position_order

_SOURCE, _AFTER_ROW, _NO_AFTER = b',"source":{"version":', b',"after":{', b',"after":null'
_IN_EVENT = b'{"after":null'
_CLOSING = ord("}")
_NEW_ROW_OPS, _CHANGED_ROW_OPS, _NO_ROW_OPS = frozenset({b"c", b"r", b"u"}), frozenset({b"u"}), frozenset({b"d"})
_MAX_STATES = 10_000
"""States after which the blocks that are full are handed on."""


class KafkaMessage(Protocol):
    """A message as the client returns it."""

    def key(self) -> bytes | None:
        """Return its key."""

    def value(self) -> bytes | None:
        """Return its value."""


class EventSlicers(NamedTuple):
    """Take the rows out of events.

    Args:
        of_event: Returns the text of the row after an event; empty for a delete, None for other texts.
        of_run: Returns those of several events, in which all is plain; None where each has to be looked at.
    """

    of_event: Callable[[bytes], bytes | None]
    of_run: Callable[[Sequence[bytes]], Sequence[bytes] | None]


def event_slicers(prefix: bytes, layout: EventLayout) -> EventSlicers:
    """Return what takes the texts of rows out of events in JSON.

    The text of the row is what checksums compare, so it is not looked into; all else has to be JSON. A quote inside of
    a JSON string is escaped, so the names of members are found only where they are members.

    Args:
        prefix: What values of the table's present structure begin with (``json_slices.value_prefix``).
        layout: How its events are written.
    """
    new_row, old_row = prefix + b'{"before":null,"after":{', prefix + b'{"before":{'
    no_row = prefix + b'{"before":null' + _NO_AFTER + _SOURCE
    begin, before = len(new_row) - 1, len(old_row) - 1
    opening = _IN_EVENT if not prefix else b'{"payload":' + _IN_EVENT
    row_match, tail_match, recent = layout.row.match, layout.tail.fullmatch, RecentTails[bytes](json_times)

    def slice_other(value: bytes) -> bytes | None:
        if value.startswith(new_row):
            source, operations = value.find(_SOURCE, begin), _NEW_ROW_OPS
            after = value[begin:source]
        elif value.startswith(old_row):
            row = row_match(value, before)
            if row is None or not _is_json(row[0]):
                return None
            if value.startswith(_NO_AFTER, row.end()):
                source, after, operations = row.end() + len(_NO_AFTER), b"", _NO_ROW_OPS
            else:
                source, operations = value.find(_SOURCE, row.end()), _CHANGED_ROW_OPS
                if not value.startswith(_AFTER_ROW, row.end()):
                    return None
                after = value[row.end() + len(_AFTER_ROW) - 1 : source]
        elif value.startswith(no_row):
            source, after, operations = len(no_row) - len(_SOURCE), b"", _NO_ROW_OPS
        else:
            return None
        if source < 0 or (after and after[-1] != _CLOSING):
            return None
        operation = recent.read(value, source)
        if operation is None:
            tail = tail_match(value, source)
            if tail is None or not _is_json(opening + tail[0]):
                return None
            operation = recent.learn(value, source, tail[1])
        return after if operation in operations else None

    runs = EventRuns(new_row, recent, _NEW_ROW_OPS)
    of_event = _like_the_last(new_row, recent, slice_other)
    return EventSlicers(of_event, runs.rows_of)


def _like_the_last(
    new_row: bytes, recent: RecentTails[bytes], slice_other: Callable[[bytes], bytes | None]
) -> Callable[[bytes], bytes | None]:
    """Return a function that takes the row out of events that end as the last one, and leaves others to another."""
    begin, read_end = len(new_row) - 1, recent.read_end

    def slice_after(value: bytes) -> bytes | None:
        if value.startswith(new_row) and (end := read_end(value)) is not None and end[1] in _NEW_ROW_OPS:
            after = value[begin : end[0]]
            if after.endswith(b"}"):
                return after
        return slice_other(value)

    return slice_after


def row_slicer(prefix: bytes, slice_other: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
    """Return a function that takes the row out of records of rows, which end alike, and leaves others to another.

    Args:
        prefix: What values of the table's present structure begin with (``json_slices.value_prefix``).
        slice_other: As from ``EventSlicers``.
    """
    new_row, tail = prefix + b'{"before":null,"after":{', b""
    begin = len(new_row) - 1

    def slice_row(value: bytes) -> bytes | None:
        nonlocal tail
        if tail and value.endswith(tail) and value.startswith(new_row):
            return value[begin : -len(tail)]
        row = slice_other(value)
        if row and value.startswith(new_row):
            tail = value[begin + len(row) :]
        return row

    return slice_row


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


class RecordChecksums:
    """Fold the records of one table's topic, part by part.

    Args:
        number: The table's number.
        states: Takes the states of its keys.
        rows: Takes the rows out of its values.
        blocks: Takes the numbers of its records.
        is_older: Says of a place in the binlog whether the table may have had another structure there, which records
            without schemas do not say (``written_structures``); None where it has had one structure alone.
    """

    def __init__(
        self,
        number: int,
        states: KeyStates,
        rows: EventSlicers,
        blocks: ChecksumBlocks,
        is_older: Callable[[int], bool] | None = None,
    ) -> None:
        self._number, self._states, self._rows = number, states, rows
        self._blocks, self._is_older = blocks, is_older
        self._states_since = 0

    def add(self, messages: Sequence[KafkaMessage], partition: int, end: int) -> bool:
        """Add records of one partition, in their order; return whether there may be full blocks.

        Args:
            messages: The records.
            partition: Their partition.
            end: The offset after the last one; states of later calls are later ones.
        """
        keys, values = [message.key() for message in messages], [message.value() for message in messages]
        others = 0
        if self._is_older is not None or not self._add_plain(keys, values, partition, end):
            others = self._add_one_by_one(zip(keys, values, strict=True), partition, end)
        self._blocks.add(SumKind.RECORDS, self._number, number=len(messages) - others)
        self._states_since += len(messages)
        if self._states_since < _MAX_STATES:
            return False
        self._states_since = 0
        return True

    def _add_plain(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], partition: int, end: int
    ) -> bool:
        """Return whether all records are events that need not be read, and were added; otherwise none was."""
        if None in values or None in keys:
            return False
        texts = cast("Sequence[bytes]", values)
        afters: Sequence[bytes | None] | None = self._rows.of_run(texts)
        if afters is None:
            afters = list(map(self._rows.of_event, texts))
        if None in afters:
            return False
        # At once, while the rows are in the processor's cache.
        self._states.add_events(cast("Sequence[bytes]", keys), cast("Sequence[bytes]", afters), partition, end)
        return True

    def _add_one_by_one(self, records: Iterable[tuple[bytes | None, bytes | None]], partition: int, end: int) -> int:
        """Add records; return how many of them are no events."""
        slice_after, is_older, others = self._rows.of_event, self._is_older, 0
        last: dict[bytes, bytes] = {}
        for key, value in records:
            if key is None:
                self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)
                others += 1
                continue
            if value is None:
                last[key] = b""
                others += 1
                continue
            after = slice_after(value)
            if is_older is not None and is_older(position_order(*place_in_binlog(value))):
                # Its key, too, may be written as that of another row now.
                self._blocks.add(SumKind.UNJUDGED_TABLE, self._number)
            if after is None:
                self._states.mark(key)
            else:
                last[key] = after
        self._states.add_events(list(last), list(last.values()), partition, end)
        return others
