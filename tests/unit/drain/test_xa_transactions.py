"""XA transactions in a drain writer: when their rows are produced, and what happens meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.drain_rig import START, Rig

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.drain import event_handlers
from airflow_provider_mysql_cdc.cdc.drain import table_routes as routes_module
from airflow_provider_mysql_cdc.cdc.drain.table_route import NO_SHARE
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.offset import PreparedXa, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import TableId

XID = "X'01',X'',1"
PREPARED = PreparedXa(XID, START.file, 300, 400)


def event(kind: int, pos: int, file: str = START.file, **more: Any) -> Any:
    given = {"buf": b"\0", "body": 0, "server_id": 1, **more}
    given = {"buf": b"", "body": 0, "end": 0, **given}
    return SimpleNamespace(type=kind, file=file, inner=False, start_pos=pos - 9, end_pos=pos, **given)


def gtid(pos: int, file: str = START.file) -> Any:
    return event(c.GTID_LOG_EVENT, pos, file)


def statement(pos: int, sql: str, file: str = START.file) -> Any:
    body = struct.pack("<IIBHH", 5, 0, 0, 0, 0) + b"\0" + sql.encode()
    return event(c.QUERY_EVENT, pos, file, buf=body, end=len(body), flags=0)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the row events whose rows were looked at."""
    looked: list[Any] = []

    def header(rows: Any) -> Any:
        looked.append(rows)
        return SimpleNamespace(table_id=1, pos=0)

    monkeypatch.setattr(routes_module, "rows_header", header)
    monkeypatch.setattr(ev, "parse_gtid", lambda e: SimpleNamespace(gtid=None, commit_us=0))
    return looked


def made(monkeypatch: pytest.MonkeyPatch, resume: ResumePosition | None = None) -> Rig:
    rig = Rig(monkeypatch, resume, **{"heartbeat.interval.ms": "0"})
    rig.writer.routes.by_id[1] = SimpleNamespace(source=None, decoder=None, signals=None, hidden=None, share=NO_SHARE)  # type: ignore[assignment]
    return rig


def given(*events: Any) -> Callable[[Any], Iterator[Any]]:
    return lambda _: iter(events)


ROWS = event(c.WRITE_ROWS_EVENT_V2, 350)
PREPARE = [
    gtid(300),
    statement(310, f"XA START {XID}"),
    ROWS,
    statement(360, f"XA END {XID}"),
    event(c.XA_PREPARE_LOG_EVENT, 400),
]


@pytest.mark.parametrize(("verb", "times"), [("COMMIT", 1), ("ROLLBACK", 0)])
def test_rows_are_produced_when_they_commit_and_not_before(
    monkeypatch: pytest.MonkeyPatch, seen: list[Any], verb: str, times: int
) -> None:
    rig = made(monkeypatch)
    read: list[PreparedXa] = []
    monkeypatch.setattr(event_handlers, "read_rows", lambda cfg, xa, *_: read.append(xa) or iter([ROWS]))
    rig.run(given(*PREPARE))
    assert seen == [] and [xa.xid for xa in rig.writer.handlers.xa.prepared] == [XID]
    rig.run(given(gtid(500), statement(520, f"XA {verb} {XID}")))
    assert len(read) == len(seen) == times and rig.writer.handlers.xa.prepared == ()


def test_a_retry_does_not_produce_what_was_committed(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    rig = made(monkeypatch, ResumePosition(START.with_position(START.file, 600), 0))
    rig.writer.handlers.xa._prepared[XID] = PREPARED
    monkeypatch.setattr(event_handlers, "read_rows", lambda *_: iter([ROWS]))
    monkeypatch.setattr(event_handlers, "find_prepared", lambda *_: pytest.fail("its rows are not needed"))
    commits = [statement(520, f"XA COMMIT {XID}"), statement(540, f"XA COMMIT {XID}")]
    rig.run(given(gtid(500), *commits, gtid(700), event(c.XID_EVENT, 720)))
    assert seen == [ROWS] and rig.writer.output.counts.records() == 0


@pytest.mark.parametrize("in_window", [False, True])
def test_rows_that_a_retry_cannot_read_any_more(
    monkeypatch: pytest.MonkeyPatch, seen: list[Any], in_window: bool
) -> None:
    """They were committed, so nothing is lost; but a window does not know which rows of its tables they changed."""

    def purged(*_: Any) -> Iterator[Any]:
        raise BinlogPurgedError("purged")

    rig = made(monkeypatch, ResumePosition(START.with_position(START.file, 600), 0))
    monkeypatch.setattr(event_handlers, "read_rows", purged)
    keys = WindowKeys({TableId("db", "t")}) if in_window else None
    object.__setattr__(rig.writer.context, "window_keys", keys)
    rig.writer.handlers.xa._prepared[XID] = PREPARED
    rig.run(given(gtid(500), statement(520, f"XA COMMIT {XID}")))
    assert keys is None or list(keys.unreadable) == [TableId("db", "t")]
    rig.writer.handlers.xa._prepared[XID] = PREPARED
    with pytest.raises(BinlogPurgedError):
        rig.run(given(gtid(700), statement(720, f"XA COMMIT {XID}")))


def test_the_first_transaction_after_a_crash_is_in_the_new_file(
    monkeypatch: pytest.MonkeyPatch, seen: list[Any]
) -> None:
    """A file that the server's crash ended has no ROTATE event."""
    rig = made(monkeypatch)
    file = "b.000002"
    rig.run(given(gtid(200, file), statement(210, f"XA START {XID}", file), event(c.XA_PREPARE_LOG_EVENT, 400, file)))
    assert rig.writer.handlers.xa.prepared == (PreparedXa(XID, file, 4, 400),)


def test_a_search_for_a_prepared_transaction_stands_in_no_kafka_transaction(
    monkeypatch: pytest.MonkeyPatch, seen: list[Any]
) -> None:
    rig = made(monkeypatch)
    open_bytes: list[int] = []
    monkeypatch.setattr(event_handlers, "find_prepared", lambda *_: open_bytes.append(rig.sink.bytes_pending))

    def events(_: Any) -> Iterator[Any]:
        rig.sink.produce("p.d.t", b"k", b"v", 0)
        yield from (gtid(500), statement(520, f"XA COMMIT {XID}"))

    rig.run(events)
    assert open_bytes == [0]


def test_reading_prepared_rows_does_not_stop_the_clock(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    rig = made(monkeypatch)
    rig.writer.handlers.xa._prepared[XID] = PREPARED
    open_for: list[float] = []

    def read_rows(*_: Any) -> Iterator[Any]:
        rig.sink.produce("p.d.t", b"k", b"v", 0)
        for _ in range(500):
            rig.clock.now += 0.1
            yield ROWS
            if rig.sink.bytes_pending:
                open_for.append(rig.clock.now)

    monkeypatch.setattr(event_handlers, "read_rows", read_rows)
    rig.run(given(gtid(500), statement(520, f"XA COMMIT {XID}")))
    assert len(seen) == 500 and max(open_for) < 10 + 64 * 0.1 + 0.2
