"""Count equal rows of a table without a key in its events.

A snapshot that is taken again, or a blocking one, reads rows that the topic has already, and no key says which. What it
has read of equal rows is all of them, so they are counted from there on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair

_READ = "r"


class EqualRowEvent(NamedTuple):
    """Hold an event of one of several equal rows.

    Args:
        partition: Its partition; the events of equal rows have the same.
        offset: Its offset.
        added: Whether it adds a row; otherwise it takes one away.
        view: The view that a snapshot has read the row in (``view_of``); empty for a change.
    """

    partition: int
    offset: int
    added: bool
    view: bytes


def view_of(record: EventRecord, order: int, headers: Headers) -> bytes:
    """Return which view a snapshot has read a row in; empty for other events.

    All rows of a table that one view has shown have the same position and time. The time is in whole seconds, as
    Debezium writes it, so two views at one position within a second are taken for one. A repair reads one row of
    several.

    Args:
        record: The event.
        order: Where it is in the binlog.
        headers: Its headers.
    """
    if record.op != _READ or is_repair(headers):
        return b""
    return f"{order}/{record.source.get('ts_ms')}".encode()


def events_since_last_view(events: Iterable[EqualRowEvent]) -> list[EqualRowEvent]:
    """Return the events that say how many equal rows there are: from the last view on, all without one.

    Args:
        events: The events of equal rows, in any order.
    """
    ordered = sorted(events)
    last = next((event.view for event in reversed(ordered) if event.view), b"")
    first = next((index for index, event in enumerate(ordered) if last and event.view == last), 0)
    return ordered[first:]


def count_rows(events: Iterable[EqualRowEvent]) -> int:
    """Return how many equal rows there are after all events.

    Args:
        events: The events of equal rows, in any order.
    """
    return sum(1 if event.added else -1 for event in events_since_last_view(events))
