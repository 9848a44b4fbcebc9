"""A stream that breaks inside a batch: what is waited, what is read again, and when the error stands."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.drain_rig import START, Rig
from kit.memory_job import config
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import batch_run, drain_writer, event_handlers, reconnects
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs
from airflow_provider_mysql_cdc.cdc.drain.reconnects import Reconnects
from airflow_provider_mysql_cdc.cdc.errors import FencedError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

BROKEN = SourceConnectionError("the binlog connection broke", where="db:3306")


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass without waiting."""
    now, total = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        total.append(seconds)

    monkeypatch.setattr(reconnects, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return total


def test_delays_double_and_a_new_place_begins_again(slept: list[float]) -> None:
    checks, lines = list[int](), list[str]()
    attempts = Reconnects(8, lambda: checks.append(1), lines.append)
    for place, seconds in ((1, 0.5), (1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (1, 30), (1, 30), (2, 0.5)):
        slept.clear()
        attempts.wait(BROKEN, place)
        assert sum(slept) == pytest.approx(seconds) and max(slept) <= 0.25
    assert len(lines) == 9 and "attempt 8 of 8" in lines[7] and "attempt 1 of 8" in lines[8] and "broke" in lines[0]
    assert len(checks) > 300


def test_the_error_stands_after_the_last_attempt() -> None:
    attempts = Reconnects(2, lambda: None, lambda _: None)
    attempts.wait(BROKEN, 1)
    attempts.wait(BROKEN, 1)
    with pytest.raises(SourceConnectionError, match="broke"):
        attempts.wait(BROKEN, 1)


def statement(sql: str, pos: int) -> Event:
    body = struct.pack("<IIBHH", 11, 0, 2, 0, 0) + b"db\0" + sql.encode()
    return Event(c.QUERY_EVENT, 0, 1, 0, START.file, pos, pos + 50, body, 0, len(body), False)


def streams(monkeypatch: pytest.MonkeyPatch, rig: Rig, *parts: Any) -> list[BinlogOffset]:
    """Let each connection give one part, and return where they begin."""
    starts = list[BinlogOffset]()

    def open_stream(_: Any, start: BinlogOffset, **__: Any) -> Any:
        part = parts[len(starts)]
        starts.append(start)
        if isinstance(part, Exception):
            raise part
        return SimpleNamespace(
            events=lambda *_: part(),
            close=lambda: None,
            server_version="9.7.4",
            created=(START.file, 77),
            local_gtids=LocalGtids(),
        )

    monkeypatch.setattr(drain_writer, "open_stream", open_stream)
    return starts


def test_what_was_produced_is_not_produced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    position, produced = rig.writer.position, list[int]()

    def rows(*, breaks: bool) -> Iterator[Any]:
        yield statement("BEGIN", START.pos)
        for number in range(4):
            position.add_rows(1)
            if not position.rows_committed():
                rig.sink.produce("p.d.t", b"k", b"%d" % number, 0)
                produced.append(number)
            if breaks and number == 2:
                raise BROKEN
        yield statement("COMMIT", START.pos + 100)

    starts = streams(monkeypatch, rig, lambda: rows(breaks=True), BROKEN, lambda: rows(breaks=False))
    rig.writer.run()
    assert produced == [0, 1, 2, 3] and [r.value for r in rig.kafka.committed("p.d.t")] == [b"0", b"1", b"2", b"3"]
    assert [(start.file, start.pos) for start in starts] == [(START.file, START.pos)] * 3
    assert [m["events"] for m in rig.markers()] == [3, 0]


def test_a_connection_of_a_handler_is_not_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)

    def refuse(event: Event) -> None:
        raise BROKEN

    monkeypatch.setattr(event_handlers.EventHandlers, "_query", lambda self, event: refuse(event))
    starts = streams(monkeypatch, rig, lambda: iter_of(statement("BEGIN", 4)))
    with pytest.raises(SourceConnectionError):
        rig.writer.run()
    assert len(starts) == 1


def iter_of(*events: Event) -> Iterator[Event]:
    yield from events


def test_a_transaction_that_changed_a_structure_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.writer.ddl.ddl_events._server_variables = {"lower_case_table_names": 0, "explicit_defaults_for_timestamp": 1}

    def create() -> Iterator[Any]:
        yield statement("BEGIN", START.pos)
        yield statement("CREATE TABLE d.t (id INT PRIMARY KEY) START TRANSACTION", START.pos + 50)
        raise BROKEN

    starts = streams(monkeypatch, rig, create)
    with pytest.raises(SourceConnectionError):
        rig.writer.run()
    assert len(starts) == 1


def test_another_file_is_told_by_the_time_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    place = rig.writer._place_on_same_server
    later = BinlogOffset("b.000002", 400)
    assert place(later, ("b.000002", 77)).origin == "77"
    assert place(later, ("b.000001", 77)).origin is None  # not read yet


def test_a_newer_attempt_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same client id, the server would end the newer one for it."""
    rig = Rig(monkeypatch)

    def refuse() -> None:
        raise FencedError("this attempt is no longer in force")

    def broken() -> Iterator[Any]:
        yield statement("BEGIN", START.pos)
        raise BROKEN

    rig.writer.context = replace(rig.writer.context, require_in_force=refuse)
    starts = streams(monkeypatch, rig, broken)
    with pytest.raises(FencedError):
        rig.writer.run()
    assert len(starts) == 1


def test_the_ledger_tells_which_attempt_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = plan(writers=1)
    found = LedgerState(plan=mine)
    ledger: Any = SimpleNamespace(peek=lambda: found)
    contexts = list[Any]()

    def run(context: Any) -> Any:
        contexts.append(context)
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr(batch_run, "create_writer", run)
    writer: Any = SimpleNamespace(
        cfg=config(), index=0, sink=None, channel=None, ledger=ledger, formats=None, parts=None, join=lambda _: found
    )
    batch_run._write_once(writer, mine, WriterInputs(SchemaState(), "run", {}), None)
    contexts[0].require_in_force()
    found = LedgerState(plan=replace(mine, attempt="newer"))
    with pytest.raises(FencedError):
        contexts[0].require_in_force()
