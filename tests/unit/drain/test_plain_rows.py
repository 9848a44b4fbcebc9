"""Inserted rows of plain transactions: counted late, and left to the handler where they need more than decoding."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit import plain_drain
from kit.binlog_bytes import Dump
from kit.cases import for_each
from kit.drain_rig import GIVEN
from kit.plain_drain import MAP, OTHER_MAPS, NotingWriter, T, comparable, drained, plain_dump
from kit.transaction_bytes import COMMIT_US, begin_body, gtid_body, map_body, rows_body

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED_SUFFIX
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS
from airflow_provider_mysql_cdc.cdc.drain.plain_transactions import PlainInserts, PlainRows
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings, make_route
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernel's rows go another way."""
    monkeypatch.setenv("MYSQL_CDC_NATIVE", "off")


def committed_counts(sink: NotingWriter) -> list[tuple[int, int, int]]:
    """Return of each marker the records that it counts, the rows that were created, and the records before it."""
    counted, records = [], 0
    for (topic, _, value, *_), _ in sink.noted:
        if topic == "ledger.p":
            marker = Marker.from_json(json.loads(value))
            counted.append((sum(marker.counts.values()), marker.metrics.counts.created, records))
        else:
            records += 1
    return counted


@pytest.mark.parametrize("mixed", [False, True])
def test_a_marker_counts_all_records_before_it(monkeypatch: pytest.MonkeyPatch, mixed: bool) -> None:
    dump, kinds = Dump().begin(), (c.WRITE_ROWS_EVENT_V2, c.DELETE_ROWS_EVENT_V2)[: 1 + mixed]
    for number in range(1, 301):
        dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(c.QUERY_EVENT, begin_body())
        table = 1 + number % 2
        dump.add(c.TABLE_MAP_EVENT, map_body(table, MAP if table == 1 else OTHER_MAPS[1]))
        for kind in kinds:
            dump.add(kind, rows_body(table, kind, 2, b"\0" + struct.pack("<ii", number, 5)))
        dump.add(c.XID_EVENT, bytes(8))
    given = {"commit.bytes": "40000", "tombstones.on.delete": "false"}
    _, _, writer = drained(monkeypatch, dump, [bytes(dump.data)], plainly=True, counted=False, **given)
    counts = committed_counts(writer.output.sink)  # type: ignore[arg-type]
    assert len(counts) > 5 and counts[-1][0] == 300 * len(kinds)
    assert writer.output.counts.by_topic == {"p.d.t": 150 * len(kinds), "p.d._": 150 * len(kinds)}
    assert all(count == records for count, _, records in counts)
    assert all(created == (records + 1) // 2 if mixed else created == records for _, created, records in counts)


def test_records_show_a_time_that_is_as_late_as_the_last_check(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(COMMIT_US, COMMIT_US + 10_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks) * 1000)
    dump = plain_dump(100)
    half = dump.data.index(struct.pack("<IB", 1_700_000_000, c.GTID_LOG_EVENT), len(dump.data) // 2) - 5
    pieces = [bytes(dump.data[:half]), bytes(dump.data[half:])]
    noted, _, _ = drained(monkeypatch, dump, pieces, plainly=True, counted=False)
    times = [json.loads(value)["payload"]["ts_us"] for (topic, _, value, *_), _ in noted if topic == "p.d.t"]
    assert len(times) == 100 and times == sorted(times) and len(set(times)) >= 100 * 5 // CHECK_EVENTS


def row(number: int, rest: bytes = struct.pack("<i", 5)) -> bytes:
    return b"\0" + struct.pack("<i", number) + rest


def transaction(dump: Dump, number: int, *rows: bytes, tables: int = 1, text: bytes = MAP) -> None:
    """Send inserts of one statement into as many tables."""
    dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(c.QUERY_EVENT, begin_body())
    for table in range(1, tables + 1):
        dump.add(c.TABLE_MAP_EVENT, map_body(table, text if table == 1 else OTHER_MAPS[1]))
    for table, inserted in enumerate(rows):
        dump.add(c.WRITE_ROWS_EVENT_V2, rows_body(1 + table % tables, c.WRITE_ROWS_EVENT_V2, 2, inserted))
    dump.add(c.XID_EVENT, bytes(8))


def assert_as_handled(monkeypatch: pytest.MonkeyPatch, dump: Dump, **given: str) -> str:
    """Compare records, counts and the end with those of the handlers; return the end."""
    monkeypatch.setattr(time, "time_ns", lambda: COMMIT_US * 1000)
    plain, handled = (
        drained(monkeypatch, dump, [bytes(dump.data)], plainly=plainly, counted=False, **given)[:2]
        for plainly in (True, False)
    )
    assert plain[1] == handled[1]
    assert comparable(plain[0]) == comparable(handled[0])
    return plain[1]


@for_each("damage", [row(3)[:-1], row(3) + b"\0\1", row(3) + row(4)[:-2], b""])
def test_a_row_event_that_is_damaged_is_refused(monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    dump = Dump().begin()
    for number in range(1, 4):
        transaction(dump, number, row(number))
    transaction(dump, 4, row(4), damage)
    transaction(dump, 5, row(5))
    end = assert_as_handled(monkeypatch, dump)
    assert "ValueDecodeError" in end or "BinlogCorruptError" in end or not damage


def test_values_that_no_type_can_hold_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(T.id, (T.columns[0], Column("n", 2, "TIME")), ("id",))
    monkeypatch.setattr(plain_drain, "T", table)
    dump = Dump().begin()
    for number in range(1, 4):
        hours = row(number, (0x800000 | 100 << 12).to_bytes(3, "big"))
        transaction(dump, number, hours, text=b"\1\0\1d\0\1t\0\2\3\x13\1\0\2")
    end = assert_as_handled(monkeypatch, dump, **{"time.precision.mode": "connect"})
    assert f"'p.d.t{NULLED_SUFFIX}': 3" in end


@pytest.mark.parametrize("tables", [1, 2])
def test_commits_inside_a_transaction_are_those_of_the_handlers(monkeypatch: pytest.MonkeyPatch, tables: int) -> None:
    dump = Dump().begin()
    for number in range(1, 30):
        transaction(dump, number, *(row(number + more) for more in range(0, 500, 100)), tables=tables)
    markers = []
    for plainly in (True, False):
        monkeypatch.setattr(time, "time_ns", lambda: COMMIT_US * 1000)
        given = {"commit.bytes": "5000"}
        noted, *_ = drained(monkeypatch, dump, [bytes(dump.data)], plainly=plainly, counted=False, **given)
        markers.append([Marker.from_json(json.loads(r[2])) for r, _ in noted if r[0] == "ledger.p"])
    said = [[(m.reached, m.counts, m.tables, m.done, m.metrics.counts) for m in each] for each in markers]
    assert said[0] == said[1]
    assert len(said[0]) > 10 and any(not reached.is_boundary for reached, *_ in said[0])


def test_enough_bytes_are_committed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, writer = drained(
        monkeypatch, dump := plain_dump(30), [bytes(dump.data)], plainly=True, counted=False, **{"commit.bytes": "1024"}
    )
    assert len(committed_counts(writer.output.sink)) >= 30 // 2  # type: ignore[arg-type]


def inserts(handler: Any = None, route: Any = None, size: int = 100) -> PlainInserts | None:
    """Return what the rows of a table need, with a handler and a route that are as plain as can be but for some."""
    body = b"\1" + bytes(5) + MAP
    table_map = parse_table_map(Event(c.TABLE_MAP_EVENT, 1, 1, 0, "b.000001", 4, 99, body, 0, len(body)))
    settings = RouteSettings.for_writer(ConnectorConfig.from_properties(GIVEN))
    made = make_route(settings, T, table_map, TopicShare("p.d.t", 1, frozenset({0}), True))
    plain = SimpleNamespace(
        output=SimpleNamespace(has_id_header=False),
        needs_gtid_events=False,
        metadata=None,
        window_keys=None,
        xa=SimpleNamespace(open=False),
        routes=SimpleNamespace(by_id={1: replace(made, **(route or {}))}),
    )
    for name, value in (handler or {}).items():
        setattr(plain, name, value)
    return PlainRows(plain).table(body, bytes(size))  # type: ignore[arg-type]


def test_rows_of_a_plain_table_need_no_handler() -> None:
    table = inserts()
    assert table is not None and table.rows_at == 12


def test_a_large_chunk_does_not_become_text() -> None:
    assert inserts(size=3 << 20) is None


@for_each(
    "handler",
    [
        {"output": SimpleNamespace(has_id_header=True)},
        {"needs_gtid_events": True},
        {"metadata": object()},
        {"window_keys": object()},
        {"xa": SimpleNamespace(open=True)},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_looks_at_each_row_event_takes_rows_to_the_handler(handler: dict[str, Any]) -> None:
    assert inserts(handler=handler) is None


@for_each(
    "route",
    [
        {"source": None},
        {"decoder": None},
        {"headers": {}},
        {"record_format": object()},
        {"id_headers": object()},
        {"write_source_block": source_block.fill_time},
        {"decode": (lambda *_: 0,) * 4},
        {"share": TopicShare("p.d.t", 2, frozenset({0, 1}), True)},
        {"share": TopicShare("p.d.t", 1, frozenset(), False)},
    ],
    ids=lambda given: next(iter(given)),
)
def test_rows_that_need_more_than_decoding_go_to_the_handler(route: dict[str, Any]) -> None:
    assert inserts(route=route) is None


def test_an_event_that_leaves_columns_out_goes_to_the_handler() -> None:
    table, called = inserts(), list[int]()
    assert table is not None
    rows = PlainRows(SimpleNamespace(position=SimpleNamespace(thread=1)))  # type: ignore[arg-type]
    table.functions = SimpleNamespace(__getitem__=called.append)  # type: ignore[assignment]
    present, absent = (b"\1\0\0\0\0\0\1\0\2\0\2" + bitmap + b"\0\1\0\0\0" for bitmap in (b"\xff", b"\xfd"))
    other = b"\2" + present[1:]
    for body in (absent, other):
        assert not rows.insert(table, body, 0, len(body), "b.000001", 4, 1, 1)
    with pytest.raises(AttributeError):  # this one would be read
        rows.insert(table, present, 0, len(present), "b.000001", 4, 1, 1)
