"""Transactions under other servers' GTIDs that change no captured table."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.drain.failover import server_transactions
from airflow_provider_mysql_cdc.cdc.drain.failover.server_transactions import SkippedTransactions

pytestmark = pytest.mark.quick

OWN, OTHER = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
THIRD, GROUP = "cccccccc-0000-0000-0000-000000000003", "dddddddd-0000-0000-0000-000000000004"
BEGIN, COMMIT, XID = (c.QUERY_EVENT, "BEGIN"), (c.QUERY_EVENT, "COMMIT"), (c.XID_EVENT, "")
CAPTURED, UNCAPTURED, ROWS = (c.TABLE_MAP_EVENT, "captured"), (c.TABLE_MAP_EVENT, ""), (c.WRITE_ROWS_EVENT_V2, "")
FLUSH, CREATE = (c.QUERY_EVENT, "FLUSH PRIVILEGES"), (c.QUERY_EVENT, "CREATE TABLE captured (id INT)")
Transaction = tuple[str | None, int, list[tuple[int, str]]]


def watched(
    monkeypatch: pytest.MonkeyPatch, transactions: list[Transaction], *, replayed: bool = False
) -> tuple[str, str]:
    """Return what a server whose id is 2 has skipped, and what was emptied, of transactions of its binlog."""
    events = [(c.GTID_LOG_EVENT, gtid, server_id, "") for gtid, server_id, _ in transactions]
    flat: list[tuple[int, str | None, int, str]] = []
    for event, (gtid, server_id, between) in zip(events, transactions, strict=True):
        flat += [event, *((kind, gtid, server_id, text) for kind, text in between)]
    times = (1, 2) if replayed else (1, 1)
    monkeypatch.setattr(
        server_transactions,
        "parse_gtid",
        lambda e: SimpleNamespace(gtid=flat[e.end_pos][1], commit_us=times[0], immediate_commit_us=times[1]),
    )
    monkeypatch.setattr(server_transactions, "parse_query", lambda e: SimpleNamespace(sql=flat[e.end_pos][3]))
    own = LocalGtids(2, OWN, frozenset({GROUP}))
    skipped = SkippedTransactions(own, OTHER, lambda event: "captured" in flat[event.end_pos][3])
    for number, (kind, _, server_id, _) in enumerate(flat):
        skipped.take(Event(kind, 0, server_id, 0, "binlog.000001", number, number, b"", 0, 0))
    return str(skipped.found()), str(skipped.emptied())


@for_each(
    ("gtid", "server_id", "between", "found"),
    [
        (f"{OTHER}:5", 2, [BEGIN, COMMIT], True),
        (f"{OTHER}:5", 2, [BEGIN, XID], True),
        (f"{OTHER}:tag:5", 2, [BEGIN, COMMIT, (c.ROTATE_EVENT, ""), (c.PREVIOUS_GTIDS_LOG_EVENT, "")], True),
        (f"{OTHER}:5", 1, [BEGIN, COMMIT], False),  # replicated, and empty: a filter
        (f"{OWN}:5", 2, [BEGIN, COMMIT], False),
        (None, 2, [BEGIN, COMMIT], False),
        (f"{OTHER}:5", 2, [BEGIN, CAPTURED, ROWS, XID], False),
        (f"{OTHER}:5", 2, [BEGIN, UNCAPTURED, ROWS, XID], True),
        (f"{OTHER}:5", 2, [BEGIN, UNCAPTURED, CAPTURED, ROWS, ROWS, XID], False),
        (f"{OTHER}:5", 1, [BEGIN, UNCAPTURED, ROWS, XID], False),
        (f"{OTHER}:5", 2, [CREATE], False),
        (f"{OTHER}:5", 2, [FLUSH], True),
        (f"{OTHER}:5", 1, [FLUSH], False),
        (f"{OWN}:5", 2, [FLUSH], False),
        (f"{GROUP}:5", 2, [FLUSH], False),
        (f"{GROUP}:5", 2, [BEGIN, UNCAPTURED, ROWS, XID], False),
        (f"{GROUP}:5", 2, [BEGIN, (c.VIEW_CHANGE_EVENT, ""), COMMIT], False),
        (f"{GROUP}:5", 2, [BEGIN, COMMIT], True),
        (f"{OTHER}:5", 2, [BEGIN, (c.QUERY_EVENT, "UPDATE captured SET v = 1"), COMMIT], False),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_transaction_of_another_server_with_the_own_id_was_skipped_if_it_changes_no_captured_table(
    monkeypatch: pytest.MonkeyPatch,
    gtid: str | None,
    server_id: int,
    between: list[tuple[int, str]],
    found: bool,
    last: bool,
) -> None:
    more: list[Transaction] = [] if last else [(f"{OWN}:9", 2, [])]
    assert watched(monkeypatch, [(gtid, server_id, between), *more])[0] == (gtid if found else "")


LOGGED, EMPTY, OTHERS = [BEGIN, CAPTURED, ROWS, XID], [BEGIN, COMMIT], [BEGIN, UNCAPTURED, ROWS, XID]


@for_each(
    ("transactions", "found", "emptied"),
    [
        ([(f"{OTHER}:1", 1, LOGGED), (f"{OTHER}:2", 3, EMPTY), (f"{OTHER}:3", 1, LOGGED)], f"{OTHER}:2", ""),
        ([(f"{OTHER}:1", 1, LOGGED), (f"{OTHER}:2", 3, OTHERS), (f"{OTHER}:3", 1, LOGGED)], f"{OTHER}:2", ""),
        ([(f"{OTHER}:1", 1, OTHERS), (f"{OTHER}:2", 3, OTHERS), (f"{OTHER}:3", 1, [FLUSH])], f"{OTHER}:2", ""),
        ([(f"{OTHER}:2", 3, EMPTY), (f"{OTHER}:3", 1, OTHERS)], f"{OTHER}:2", ""),
        ([(f"{OTHER}:1", 1, LOGGED), (f"{OTHER}:2", 1, EMPTY)], "", f"{OTHER}:2"),  # a filter
        ([(f"{OTHER}:2", 3, EMPTY)], "", f"{OTHER}:2"),  # nothing tells the former server's id
        # server_id was changed
        ([(f"{OTHER}:1", 1, LOGGED), (f"{OTHER}:2", 3, LOGGED), (f"{OTHER}:3", 3, EMPTY)], "", f"{OTHER}:3"),
        ([(f"{THIRD}:1", 3, LOGGED), (f"{OTHER}:1", 1, LOGGED), (f"{THIRD}:2", 1, EMPTY)], "", ""),  # on a primary
        ([(f"{THIRD}:1", 3, LOGGED), (f"{OTHER}:1", 1, LOGGED), (f"{THIRD}:2", 3, EMPTY)], "", f"{THIRD}:2"),
        ([(f"{OWN}:1", 2, LOGGED), (f"{OWN}:2", 1, EMPTY)], "", ""),
    ],
)
def test_a_transaction_of_the_former_server_with_another_id_was_skipped_in_between(
    monkeypatch: pytest.MonkeyPatch, transactions: list[Transaction], found: str, emptied: str
) -> None:
    assert watched(monkeypatch, transactions) == (found, emptied)


def test_replayed_binlog_files_have_no_skipped_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the first commit shows it; without one, rows of captured tables under GTIDs of their server."""
    transactions: list[Transaction] = [
        (f"{OTHER}:1", 2, [FLUSH]),
        (f"{OTHER}:2", 2, LOGGED),
        (f"{OTHER}:3", 2, EMPTY),
        (f"{OTHER}:4", 2, OTHERS),
        (f"{THIRD}:1", 2, [FLUSH]),
    ]
    assert watched(monkeypatch, transactions)[0] == f"{OTHER}:3,{THIRD}:1"
    assert watched(monkeypatch, transactions, replayed=True)[0] == ""
