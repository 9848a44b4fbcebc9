"""Plain transactions in one loop: whatever a server sends becomes the same as through the stream's events."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.binlog_bytes import SERVER_ID, UUID, Dump
from kit.cases import for_each
from kit.plain_drain import KINDS, MAP, OTHER_MAPS, comparable, drained, noted_calls, plain_dump
from kit.transaction_bytes import COMMIT_US, begin_body, gtid_body, map_body, rows_body

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import ENV_VARIABLE
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer
from airflow_provider_mysql_cdc.cdc.drain.event_handlers import EventHandlers
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
    tables, kind = draw.sample(range(1, 4), draw.choice([1, 1, 1, 2])), draw.choice(KINDS)
    if draw.random() < 0.2:
        dump.add(c.ROWS_QUERY_LOG_EVENT, b"\1INSERT", listed=False)
    for table in tables:
        dump.add(c.TABLE_MAP_EVENT, map_body(table, (MAP, *OTHER_MAPS)[table - 1]))
    for table in draw.choices(tables, k=draw.randint(1, 2 * len(tables))):
        dump.add(kind, rows_body(table, kind, 2, rows(draw, kind)))


def add_gtid(draw: random.Random, dump: Dump, number: int) -> None:
    more: dict[str, Any] = {}
    if draw.random() < 0.1:
        more = draw.choice([{"original": COMMIT_US - 5}, {"clock": 0}, {"us": 0}])
    number += draw.choice([0, 0, 0, 5])
    kind, cut = (c.ANONYMOUS_GTID_LOG_EVENT, None) if draw.random() < 0.2 else (c.GTID_LOG_EVENT, None)
    if kind == c.GTID_LOG_EVENT and draw.random() < 0.05:
        cut = 42  # as MySQL 5.7 writes it
    if draw.random() < 0.15:
        more["uuid"] = UUID[::-1]
    server_id = draw.choice([SERVER_ID] * 6 + [8, 9])
    dump.add(kind, gtid_body(number if kind == c.GTID_LOG_EVENT else 0, **more)[:cut], server_id=server_id)


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


def drawn(seed: int) -> tuple[Dump, list[bytes], ResumePosition | None]:
    """Return what a server sends, in pieces, and where an earlier attempt has stopped."""
    draw = random.Random(seed)
    dump = sent(draw, crc=seed % 4 > 0)
    data = bytearray(dump.data)
    if seed % 3 == 0:
        data[draw.randrange(200, len(data))] ^= 1 << draw.randrange(8)
    pieces = list(cut(draw, bytes(data)))
    resume = None
    if seed % 5 == 0 and dump.events:
        _, file, _, pos, _ = dump.events[len(dump.events) // 3]
        resume = ResumePosition(BinlogOffset(file, pos), 0, 0)
    return dump, pieces, resume


@for_each("seed", range(60))
def test_a_plain_loop_does_what_the_events_handlers_do(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    dump, pieces, resume = drawn(seed)
    form, calls, made = FORMS[seed % len(FORMS)], noted_calls(monkeypatch), []
    counted = seed % 2 == 0  # otherwise the loop counts as long as it can
    for plainly in (True, False):
        noted, end, _ = drained(monkeypatch, dump, pieces, plainly=plainly, resume=resume, counted=counted, **form)
        made.append((end, comparable(noted), list(calls)))
        calls.clear()
    assert made[0] == made[1]


def by_end(calls: list[Any]) -> dict[Any, list[Any]]:
    """Return the calls of each transaction by its end, those of its rows left out."""
    found, last = dict[Any, list[Any]](), list[Any]()
    for name, given, state in calls:
        if name == "begin" or last:
            last = [] if name == "begin" else last
            last.append((name, given, state) if name == "end" else (name, given))
        if name == "end":
            found[given], last = [call for call in last if call[0] not in ("add_rows", "note_query")], []
    return found


@pytest.mark.native
def test_the_kernels_loop_makes_the_calls_of_its_last_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_VARIABLE)
    whole, calls = 0, noted_calls(monkeypatch)
    for seed in range(60):
        (dump, pieces, resume), made = drawn(seed), []
        for kernel in (True, False):
            drained(monkeypatch, dump, pieces, plainly=False, whole=kernel, resume=resume, counted=False)
            whole += sum(name == "add_executed" for name, *_ in calls)
            made.append(by_end(calls))
            calls.clear()
        of_kernel, of_handlers = made
        assert of_kernel == {end: of_handlers[end] for end in of_kernel}, seed
    assert whole > 100


def test_no_event_of_a_plain_transaction_is_yielded(monkeypatch: pytest.MonkeyPatch) -> None:
    dump, handled = plain_dump(100), list[int]()
    gtid = EventHandlers._gtid
    monkeypatch.setattr(EventHandlers, "_gtid", lambda self, event: (handled.append(event.type), gtid(self, event)))
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
