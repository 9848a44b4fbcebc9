"""XA statements of the binlog, and what is remembered between prepare and commit."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog import scan
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.purged_files import ServerState
from airflow_provider_mysql_cdc.cdc.drain import xa_transactions
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, find_prepared, parse_xa, read_rows
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa

XID = "X'6f6e65',X'62',7"
HERE = BinlogOffset("binlog.000002", 198)


def prepare_event(one_phase: bool) -> Event:
    body = bytes([one_phase]) + bytes(12)
    return Event(38, 0, 1, 0, HERE.file, 560, 600, body, 0, len(body))


@for_each(
    ("sql", "expected"),
    [
        (f"XA START {XID}", ("START", XID)),
        (f"xa  commit  {XID.replace(',', ', ')}", ("COMMIT", XID)),
        (f"XA ROLLBACK {XID}", ("ROLLBACK", XID)),
        (f"XA END {XID}", ("END", XID)),
        ("XAVIER", None),
        ("ALTER TABLE xa ADD a INT", None),
    ],
)
def test_a_statement_gives_verb_and_xid_however_it_is_spaced(sql: str, expected: tuple[str, str] | None) -> None:
    assert parse_xa(sql) == expected


def test_a_prepared_transaction_is_kept_until_it_is_decided() -> None:
    known = PreparedXa("X'01',X'',1", "binlog.000001", 4, 99)
    xa = XaTransactions([known])
    xa.start(XID, HERE)
    assert xa.open
    assert xa.end(prepare_event(one_phase=False)) is None
    assert not xa.open
    mine = PreparedXa(XID, "binlog.000002", 198, 600)
    assert xa.prepared == (known, mine)
    assert xa.take_prepared(XID) == mine and xa.take_prepared(XID) is None
    assert xa.prepared == (known,)


def test_a_commit_in_one_phase_leaves_nothing_behind() -> None:
    xa = XaTransactions()
    xa.start(XID, HERE)
    assert xa.end(prepare_event(one_phase=True)) == PreparedXa(XID, "binlog.000002", 198, 600)
    assert xa.prepared == () and not xa.open


@for_each(
    ("first", "previous", "purged", "state", "lost"),
    [
        ("binlog.000001", "", "", ServerState(100, 0), False),
        ("binlog.000002", "", "", ServerState(100, 0), True),
        ("binlog.000001", "u:1-9", "", ServerState(100, 0), True),
        ("binlog.000001", "", "u:1-9", ServerState(100, 0), True),
        ("binlog.000001", "", "", ServerState(100, 1), True),
        ("binlog.000001", "", "", ServerState(101, 0), True),
        ("binlog.000001", "", "", None, True),
    ],
    ids=[
        "from the beginning", "a file is gone", "a restored backup", "a copy of another server", "a reset",
        "started since, maybe after a reset", "MySQL 5.7 does not tell",
    ],
)  # fmt: skip
def test_rows_that_were_never_seen_are_lost_unless_the_binlog_is_complete(
    monkeypatch: pytest.MonkeyPatch, first: str, previous: str, purged: str, state: ServerState | None, lost: bool
) -> None:
    """In a complete binlog a transaction that is not found had no rows."""
    monkeypatch.setattr(xa_transactions, "connect", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(xa_transactions, "binary_logs", lambda _: [(first, 9000)])
    monkeypatch.setattr(xa_transactions, "fetch_all", lambda *_: [(purged,)])
    monkeypatch.setattr(ServerState, "read", lambda _: state)
    monkeypatch.setattr(ev, "parse_previous_gtids", lambda e: e.set)
    monkeypatch.setattr(ev, "parse_query", lambda e: e)

    def at(kind: int, pos: int, **more: Any) -> Any:
        return SimpleNamespace(type=kind, file=first, start_pos=pos, end_pos=pos + 9, buf=b"\0", body=0, **more)

    events = [
        at(c.PREVIOUS_GTIDS_LOG_EVENT, 120, set=previous, timestamp=100),
        at(c.GTID_LOG_EVENT, 150),
        at(c.QUERY_EVENT, 160, sql=f"XA START {XID}"),
        at(c.XA_PREPARE_LOG_EVENT, 190),
    ]
    monkeypatch.setattr(xa_transactions, "BinlogScan", lambda *_, **__: iter(events))
    before, lines = BinlogOffset(first, 900), list[str]()
    assert find_prepared(config(), XID, before, lines.append) == PreparedXa(XID, first, 150, 199)
    if lost:
        with pytest.raises(BinlogPurgedError, match="no longer in the binlog"):
            find_prepared(config(), "X'02',X'',1", before, lines.append)
    else:
        assert find_prepared(config(), "X'02',X'',1", before, lines.append) is None


def test_rows_of_a_transaction_are_read_on_the_server_that_has_prepared_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server, promoted meanwhile, has other events at the same file and position."""
    starts = list[BinlogOffset]()

    def open_stream(settings: Any, start: BinlogOffset, **_: Any) -> Any:
        starts.append(start)
        return SimpleNamespace(events=lambda end, **_: iter(()), close=lambda: None)

    monkeypatch.setattr(scan, "open_stream", open_stream)
    monkeypatch.setattr(xa_transactions, "connect", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(xa_transactions, "binary_logs", lambda _: [("binlog.000002", 9000)])
    monkeypatch.setattr(xa_transactions, "fetch_all", lambda *_: [("",)])
    monkeypatch.setattr(ServerState, "read", lambda _: None)
    assert list(read_rows(config(), PreparedXa(XID, "binlog.000002", 198, 600), "one")) == []
    with pytest.raises(BinlogPurgedError):
        find_prepared(config(), XID, BinlogOffset("binlog.000002", 900, None, "two"), lambda line: None)
    assert [start.server_uuid for start in starts] == ["one", "two"]
