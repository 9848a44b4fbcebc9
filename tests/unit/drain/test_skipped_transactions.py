"""Empty transactions under other servers' GTIDs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.local_gtids import LocalGtids
from airflow_provider_mysql_cdc.cdc.drain import skipped_transactions
from airflow_provider_mysql_cdc.cdc.drain.skipped_transactions import SkippedTransactions

pytestmark = pytest.mark.quick

OWN, OTHER = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
GROUP = "dddddddd-0000-0000-0000-000000000004"
BEGIN, COMMIT = (c.QUERY_EVENT, "BEGIN"), (c.QUERY_EVENT, "COMMIT")


def watched(former: str = OTHER) -> SkippedTransactions:
    """Return the watcher of a server whose id is 2, where statements with a table are about captured ones."""
    own = LocalGtids(2, OWN, frozenset({GROUP}))
    return SkippedTransactions(own, former, lambda event: "TABLE" in skipped_transactions.parse_query(event).sql)


@for_each(
    ("gtid", "server_id", "between", "found"),
    [
        (f"{OTHER}:5", 2, [BEGIN, COMMIT], True),
        (f"{OTHER}:tag:5", 2, [BEGIN, COMMIT, (c.ROTATE_EVENT, ""), (c.PREVIOUS_GTIDS_LOG_EVENT, "")], True),
        (f"{OTHER}:5", 1, [BEGIN, COMMIT], False),  # replicated, and empty: a filter
        (f"{OWN}:5", 2, [BEGIN, COMMIT], False),
        (None, 2, [BEGIN, COMMIT], False),
        (f"{OTHER}:5", 2, [BEGIN, (c.TABLE_MAP_EVENT, ""), (c.XID_EVENT, "")], False),
        (f"{OTHER}:5", 2, [(c.QUERY_EVENT, "CREATE TABLE t (id INT)")], False),
        (f"{OTHER}:5", 2, [(c.QUERY_EVENT, "FLUSH PRIVILEGES")], True),
        (f"{OTHER}:5", 1, [(c.QUERY_EVENT, "FLUSH PRIVILEGES")], False),
        (f"{OWN}:5", 2, [(c.QUERY_EVENT, "FLUSH PRIVILEGES")], False),
        (f"{GROUP}:5", 2, [(c.QUERY_EVENT, "FLUSH PRIVILEGES")], False),
        (f"{GROUP}:5", 2, [BEGIN, COMMIT], True),
        (f"{OTHER}:5", 2, [BEGIN, (c.QUERY_EVENT, "UPDATE t SET v = 1"), COMMIT], False),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_an_empty_transaction_of_another_server_with_the_own_id_was_skipped(
    monkeypatch: pytest.MonkeyPatch,
    gtid: str | None,
    server_id: int,
    between: list[tuple[int, str]],
    found: bool,
    last: bool,
) -> None:
    texts = {1: gtid, 9: f"{OWN}:9"} | {2 + number: text for number, (_, text) in enumerate(between)}
    monkeypatch.setattr(skipped_transactions, "parse_gtid", lambda e: SimpleNamespace(gtid=texts[e.start_pos]))
    monkeypatch.setattr(skipped_transactions, "parse_query", lambda e: SimpleNamespace(sql=texts[e.start_pos]))
    skipped = watched()
    kinds = [c.GTID_LOG_EVENT, *(kind for kind, _ in between)]
    for number, kind in enumerate(kinds, 1):
        skipped.take(Event(kind, 0, server_id, 0, "binlog.000001", number, number, b"", 0, 0))
    if not last:
        skipped.take(Event(c.GTID_LOG_EVENT, 0, 2, 0, "binlog.000001", 9, 9, b"", 0, 0))
    assert str(skipped.found()) == (gtid if found else "")


THIRD = "cccccccc-0000-0000-0000-000000000003"


@for_each(
    ("transactions", "found", "emptied"),
    [
        ([(f"{OTHER}:1", 1, False), (f"{OTHER}:2", 3, True), (f"{OTHER}:3", 1, False)], f"{OTHER}:2", ""),
        ([(f"{OTHER}:2", 3, True), (f"{OTHER}:3", 1, False)], f"{OTHER}:2", ""),
        ([(f"{OTHER}:1", 1, False), (f"{OTHER}:2", 1, True)], "", f"{OTHER}:2"),  # a filter
        ([(f"{OTHER}:2", 3, True)], "", f"{OTHER}:2"),  # nothing tells the former server's id
        # server_id was changed
        ([(f"{OTHER}:1", 1, False), (f"{OTHER}:2", 3, False), (f"{OTHER}:3", 3, True)], "", f"{OTHER}:3"),
        ([(f"{THIRD}:1", 3, False), (f"{OTHER}:1", 1, False), (f"{THIRD}:2", 1, True)], "", ""),  # made on a primary
        ([(f"{OWN}:1", 2, False), (f"{OWN}:2", 1, True)], "", ""),
    ],
)
def test_an_empty_transaction_of_the_former_server_with_another_id_was_skipped_in_between(
    monkeypatch: pytest.MonkeyPatch, transactions: list[tuple[str, int, bool]], found: str, emptied: str
) -> None:
    monkeypatch.setattr(skipped_transactions, "parse_gtid", lambda e: SimpleNamespace(gtid=transactions[e.end_pos][0]))
    monkeypatch.setattr(skipped_transactions, "parse_query", lambda e: SimpleNamespace(sql="BEGIN"))
    skipped = watched()
    for number, (_, server_id, empty) in enumerate(transactions):
        for kind in (c.GTID_LOG_EVENT, c.QUERY_EVENT, *(() if empty else (c.TABLE_MAP_EVENT,))):
            skipped.take(Event(kind, 0, server_id, 0, "binlog.000001", number, number, b"", 0, 0))
    assert (str(skipped.found()), str(skipped.emptied())) == (found, emptied)


def test_statements_of_replayed_binlog_files_are_not_skipped_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows under GTIDs of their server show it; an empty one, and statements of another server, are skipped ones."""
    gtids = [f"{OTHER}:1", f"{OTHER}:2", f"{OTHER}:3", f"{THIRD}:1"]
    between = [(c.QUERY_EVENT, "FLUSH TABLES"), (c.TABLE_MAP_EVENT, ""), BEGIN, (c.QUERY_EVENT, "FLUSH LOGS")]
    monkeypatch.setattr(skipped_transactions, "parse_gtid", lambda e: SimpleNamespace(gtid=gtids[e.end_pos]))
    monkeypatch.setattr(skipped_transactions, "parse_query", lambda e: SimpleNamespace(sql=between[e.end_pos][1]))
    skipped = watched()
    for number, (kind, _) in enumerate(between):
        for event_kind in (c.GTID_LOG_EVENT, kind):
            skipped.take(Event(event_kind, 0, 2, 0, "binlog.000001", number, number, b"", 0, 0))
    assert str(skipped.found()) == f"{OTHER}:3,{THIRD}:1"
