"""XA statements of the binlog, and what is remembered between prepare and commit."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, parse_xa
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa

XID = "X'6f6e65',X'62',7"
HERE = BinlogOffset("binlog.000002", 198)


def prepare_event(one_phase: bool) -> Event:
    body = bytes([one_phase]) + bytes(12)
    return Event(38, 0, 1, 0, HERE.file, 560, 600, body, 0, len(body))


@pytest.mark.parametrize(
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
    assert PreparedXa.from_json(mine.to_json()) == mine
    assert xa.decide(XID) == mine and xa.decide(XID) is None
    assert xa.prepared == (known,)


def test_a_commit_in_one_phase_leaves_nothing_behind() -> None:
    xa = XaTransactions()
    xa.start(XID, HERE)
    assert xa.end(prepare_event(one_phase=True)) == PreparedXa(XID, "binlog.000002", 198, 600)
    assert xa.prepared == () and not xa.open
