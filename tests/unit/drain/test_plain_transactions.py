"""Plain transactions in one loop: whatever a server sends becomes the same as through the stream's events."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.binlog_bytes import Dump
from kit.cases import for_each
from kit.plain_drain import KINDS, MAP, OTHER_MAPS, comparable, drained, plain_dump
from kit.transaction_bytes import COMMIT_US, begin_body, gtid_body, map_body, rows_body

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.drain import drain_writer as writer_module
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.row_events import RowEventHandler
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalRows

pytestmark = pytest.mark.quick
FORMS = [
    {},
    {"cdc.id.header": "true"},
    {"provide.transaction.metadata": "true"},
    {"signal.data.collection": "d.signals"},
    {"gtid.source.excludes": "00010203-0405-0607-0809-0a0b0c0d0e0f"},
    {"include.query": "true", "table.include.list": "d.o"},
    {"event.contract": "1.9"},
    {"tombstones.on.delete": "false", "skipped.operations": "d"},
    {"skipped.operations": "c"},
    {"event.processing.failure.handling.mode": "warn"},
]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records show when they were made; the native kernel's go another way."""
    monkeypatch.setenv("MYSQL_CDC_NATIVE", "off")
    monkeypatch.setattr(time, "time_ns", lambda: COMMIT_US * 1000)


def statement(sql: bytes) -> bytes:
    """Return the body of a QUERY event of a statement."""
    return struct.pack("<IIBHH", 7, 0, 1, 0, 0) + b"d\0" + sql


def rows(draw: random.Random, kind: int) -> bytes:
    images = 2 if kind == c.UPDATE_ROWS_EVENT_V2 else 1
    image = lambda key: b"\0" + struct.pack("<ii", key, draw.getrandbits(8))  # noqa: E731
    return b"".join(image(key) * images for key in range(draw.randint(1, 3)))


def add_rows(draw: random.Random, dump: Dump) -> None:
    table, kind = draw.randint(1, 3), draw.choice(KINDS)
    if draw.random() < 0.2:
        dump.add(c.ROWS_QUERY_LOG_EVENT, b"\1INSERT", listed=False)
    dump.add(c.TABLE_MAP_EVENT, map_body(table, (MAP, *OTHER_MAPS)[table - 1]))
    for _ in range(draw.randint(1, 2)):
        dump.add(kind, rows_body(table, kind, 2, rows(draw, kind)))


def add_gtid(draw: random.Random, dump: Dump, number: int) -> None:
    more: dict[str, Any] = {}
    if draw.random() < 0.1:
        more = draw.choice([{"original": COMMIT_US - 5}, {"clock": 0}, {"us": 0}])
    number += draw.choice([0, 0, 0, 5])
    if draw.random() < 0.2:
        dump.add(c.ANONYMOUS_GTID_LOG_EVENT, gtid_body(0, **more))
    else:
        dump.add(c.GTID_LOG_EVENT, gtid_body(number, **more))


def add_transaction(draw: random.Random, dump: Dump, number: int) -> None:
    """Send a transaction: most are plain, others have something that the loop does not know."""
    add_gtid(draw, dump, number)
    luck = draw.random()
    if luck < 0.05:
        dump.add(c.QUERY_EVENT, statement(b"CREATE TABLE d.x%d (a INT)" % number))
    elif luck < 0.1:
        dump.add(c.QUERY_EVENT, statement(b"XA START X'61',X'',1"))
        add_rows(draw, dump)
        dump.add(c.QUERY_EVENT, statement(b"XA END X'61',X'',1"))
        dump.add(c.XA_PREPARE_LOG_EVENT, b"\0" + struct.pack("<III", 1, 1, 0) + b"a")
    elif luck < 0.15:
        dump.add(c.QUERY_EVENT, statement(b"ALTER TABLE d.t ALTER COLUMN n SET DEFAULT %d" % number))
    else:
        dump.add(c.QUERY_EVENT, begin_body(draw.randint(5, 7)))
        for _ in range(draw.randint(0, 3)):
            add_rows(draw, dump)
        if luck < 0.2:
            return  # torn: the server died
        if luck < 0.25:
            dump.add(c.QUERY_EVENT, statement(draw.choice([b"COMMIT", b"ROLLBACK TO x", b"COMMIT"])))
        dump.add(c.XID_EVENT, bytes(8))


def sent(draw: random.Random, *, crc: bool) -> Dump:
    dump = Dump(crc=crc).begin()
    for number in range(1, draw.randint(2, 40)):
        add_transaction(draw, dump, number)
        if draw.random() < 0.02:
            dump.pos += 9  # the position of the next event contradicts that of this one
        if draw.random() < 0.05:
            dump.rotate(f"binlog.{number + 1:06d}", real=draw.random() < 0.5)
        if draw.random() < 0.1:
            dump.heartbeat()
    return dump


def cut(draw: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = draw.choice([10, 100, 1000, 10_000])
        yield data[at : at + size]
        at += size


@for_each("seed", range(60))
def test_a_plain_loop_does_what_the_events_handlers_do(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    dump = sent(draw, crc=seed % 4 > 0)
    data = bytearray(dump.data)
    if seed % 3 == 0:
        data[draw.randrange(200, len(data))] ^= 1 << draw.randrange(8)
    pieces = list(cut(draw, bytes(data)))
    form = FORMS[seed % len(FORMS)]
    resume = None
    if seed % 5 == 0 and dump.events:
        _, file, _, pos, _ = dump.events[len(dump.events) // 3]
        resume = ResumePosition(BinlogOffset(file, pos), 0, 0)
    counted = seed % 2 == 0  # otherwise the loop counts as long as it can
    plain, handled = (
        drained(monkeypatch, dump, pieces, plainly=plainly, resume=resume, counted=counted, **form)[:2]
        for plainly in (True, False)
    )
    assert plain[1] == handled[1]
    assert comparable(plain[0]) == comparable(handled[0])


def test_no_event_of_a_plain_transaction_is_yielded(monkeypatch: pytest.MonkeyPatch) -> None:
    dump, handled = plain_dump(100), list[int]()
    gtid = DrainWriter._gtid
    monkeypatch.setattr(DrainWriter, "_gtid", lambda self, event: (handled.append(event.type), gtid(self, event)))
    noted, _, _ = drained(monkeypatch, dump, [bytes(dump.data)], plainly=True)
    assert len(noted) == 101 and handled == []


def test_it_is_time_to_commit_between_plain_events_as_often_as_between_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dump, checks = plain_dump(200), list[int]()
    check = Committer.check
    monkeypatch.setattr(Committer, "check", lambda self: (checks.append(self.sink.bytes_pending), check(self)))
    drained(monkeypatch, dump, [bytes(dump.data)], plainly=True)
    assert len(checks) >= 200 * 5 // CHECK_EVENTS and len(set(checks)) > 10


def test_rows_of_several_writers_and_filters_need_the_gtid_event() -> None:
    given: Any = SimpleNamespace()
    handler = RowEventHandler(given, given, given, given, given, given)
    assert not handler.needs_gtid_events
    handler.counts_source = lambda uuid: True
    assert handler.needs_gtid_events


def test_signals_are_carried_out_at_the_end_of_each_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    dump, ended = plain_dump(20), list[int]()
    monkeypatch.setattr(SignalRows, "end_transaction", lambda *_, **__: ended.append(1))
    drained(monkeypatch, dump, [bytes(dump.data)], plainly=True, **{"signal.data.collection": "d.signals"})
    assert len(ended) == 20


@pytest.mark.parametrize("missing", [1, 5, 40])
def test_an_event_that_is_cut_off_is_left_for_the_stream(monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    dump = plain_dump(3, crc=False)
    _, _, writer = drained(monkeypatch, dump, [bytes(dump.data)], plainly=True)
    assert writer.plain_transactions is not None
    kind, file, pos, _, _ = dump.events[0]
    at = dump.data.index(struct.pack("<IB", 1_700_000_000, kind)) - 5
    writer.position.move_to(file, pos)
    chunk = bytes(dump.data)[:-missing]
    handled = writer.plain_transactions.handle_events(chunk, at, file, pos, 1 << 63, 0)
    assert handled.pos == dump.events[-1 if missing < 40 else -2][2]


@for_each("limit_at", range(1, 6))
def test_an_event_beyond_the_limit_is_left_for_the_stream(monkeypatch: pytest.MonkeyPatch, limit_at: int) -> None:
    dump = plain_dump(3)
    _, _, writer = drained(monkeypatch, dump, [bytes(dump.data)], plainly=True)
    assert writer.plain_transactions is not None
    first = dump.events[0]
    at = dump.data.index(struct.pack("<IB", 1_700_000_000, first[0])) - 5
    writer.position.move_to("binlog.000001", first[2])
    limit = dump.events[limit_at][3] - 1
    handled = writer.plain_transactions.handle_events(bytes(dump.data), at, "binlog.000001", first[2], limit, 4)
    assert (handled.pos, handled.cut) == (dump.events[limit_at][2], False)


def test_the_time_of_a_gtid_event_is_the_one_of_its_parser() -> None:
    for body, kind in (
        (gtid_body(3), c.GTID_LOG_EVENT),
        (gtid_body(0), c.ANONYMOUS_GTID_LOG_EVENT),
        (gtid_body(0), c.GTID_LOG_EVENT),
        (gtid_body(3, clock=0), c.GTID_LOG_EVENT),
        (gtid_body(3, original=9), c.GTID_LOG_EVENT),
        (gtid_body(3)[:42], c.GTID_LOG_EVENT),
    ):
        common = writer_module.ev.parse_common_gtid(kind, body, 0, len(body))
        if common is not None:
            event = Event(kind, 1, 1, 0, "b.000001", 4, 99, body, 0, len(body))
            parsed = parse_gtid(event)
            assert common == (parsed.gtid, parsed.commit_us)
        else:
            assert kind != c.ANONYMOUS_GTID_LOG_EVENT
