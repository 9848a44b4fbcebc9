"""Rows are taken out of many events at once only where they would be taken out of each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.emit.contracts import MYSQL_3, Member
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.checksum_records import EventSlicers, event_slicers
from airflow_provider_mysql_cdc.cdc.verify.event_layout import layout_of

pytestmark = pytest.mark.quick

TABLE = TableId("shop", "orders")
MEMBERS = tuple(Member(name) for name in ("version", "connector", "db", "table", "file", "pos"))
LAYOUT = replace(MYSQL_3, source=MEMBERS, tail=(Member("op"), Member("ts_ms")))

ROWS = [b'{"id":1,"name":"a","note":null}', b'{"id":20,"name":"}","note":"b"}', b'{"id":3,"name":"","note":"c"}']
OPENING = b'{"before":null,"after":'
TIMES = (b"1795791281307,", b"1795791281408,", b"1795791281509,")
PREFIXES = [b"", b'{"schema":{"version":10},"payload":']


def value(row: bytes, ms: bytes = TIMES[0], op: bytes = b"r", prefix: bytes = b"", pos: bytes = b"4") -> bytes:
    source = b'"version":"3","connector":"mysql","db":"shop","table":"orders","file":"b.1","pos":' + pos
    times = b',"op":"' + op + b'","ts_ms":' + ms[:-1]
    return prefix + OPENING + row + b',"source":{' + source + b"}" + times + (b"}}" if prefix else b"}")


def slicer(prefix: bytes = b"", op: bytes = b"r") -> EventSlicers:
    """Return what has read an event."""
    rows = event_slicers(prefix, layout_of(("id", "name", "note"), TABLE, LAYOUT, has_schema=bool(prefix)))
    assert rows.of_event(value(ROWS[0], op=op, prefix=prefix)) == ROWS[0]
    return rows


def run(prefix: bytes = b"") -> list[bytes]:
    return [value(row, ms, prefix=prefix) for row, ms in zip(ROWS, TIMES, strict=True)]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_rows_of_a_run_are_those_of_its_events(prefix: bytes) -> None:
    rows = slicer(prefix)
    assert rows.of_run(run(prefix)) == ROWS
    assert rows.of_run([]) is None


@for_each("prefix", PREFIXES)
@for_each("place", range(3))
def test_a_byte_that_differs_is_seen_in_a_run_as_in_an_event(prefix: bytes, place: int) -> None:
    rows, accepted = slicer(prefix), 0
    for changed in _changed(run(prefix)[place]):
        values = run(prefix)
        values[place] = changed
        found = rows.of_run(values)
        if found is not None:
            accepted += 1
            assert found == [rows.of_event(each) for each in values], changed
            closing = b"}" * (1 + bool(prefix))
            head, tail = changed.partition(OPENING)[0], changed[changed.rindex(b',"source"') :]
            assert json.loads(head + OPENING + b"{}" + tail) and tail.endswith(closing), changed
    assert accepted  # other letters in the row, and other times


def _changed(sound: bytes) -> Sequence[bytes]:
    """Return a value with a byte that was exchanged, left out or added, at each place."""
    ways = [(cut, byte) for cut in (0, 1) for byte in (b"0", b"}", b"")]
    return [sound[:at] + byte + sound[at + cut :] for at in range(len(sound)) for cut, byte in ways] + [b"", b"}"]


@for_each(
    "other",
    [
        value(ROWS[1], b"0795791281307,"),
        value(ROWS[1], b"179579128130,"),
        value(ROWS[1], b"179579128x307,"),
        value(ROWS[1], pos=b"5"),
        value(ROWS[1], op=b"c"),
        value(ROWS[1][:-1]),
        value(b"null"),
        value(ROWS[1]).replace(OPENING, b'{"before":{},"after":'),
    ],
)
@for_each("place", range(3))
def test_events_that_do_not_end_as_the_last_one_are_looked_at_one_by_one(other: bytes, place: int) -> None:
    values = run()
    values[place] = other
    assert slicer().of_run(values) is None


def test_deletes_and_updates_have_no_run() -> None:
    rows = event_slicers(b"", layout_of(("id", "name", "note"), TABLE, LAYOUT, has_schema=False))
    deleted = value(b"null", op=b"d")
    assert rows.of_event(deleted) == b"" and rows.of_run([value(ROWS[0], op=b"d")]) is None
