"""What a repeated snapshot must not move a stream past, over a binlog that a test makes up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import scan
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_checks as gap

START, END = BinlogOffset("binlog.000001", 4), BinlogOffset("binlog.000001", 900)
# Today's list names one table of those that the stream has topics of.
CFG = config(table__include__list="d[.]chosen")
TOPICS = {"p.d.chosen": 1, "p.d.other": 1}


def rows(table: str, db: str = "d") -> Any:
    return SimpleNamespace(type=c.TABLE_MAP_EVENT, db=db, table=table)


def statement(sql: str, *dbs: str) -> Any:
    return SimpleNamespace(type=c.QUERY_EVENT, sql=sql, dbs=dbs)


def search(monkeypatch: pytest.MonkeyPatch, *events: Any, end: BinlogOffset = END) -> None:
    """Look for changes in a range that holds these events."""
    closed: list[bool] = []
    stream = SimpleNamespace(events=lambda end, **_: iter(events), close=lambda: closed.append(True))
    for event in events:
        event.where = lambda: "binlog.000001:400"
    monkeypatch.setattr(scan, "open_stream", lambda *_, **__: stream)
    monkeypatch.setattr(gap, "parse_table_map", lambda e: SimpleNamespace(db=e.db, table=e.table))
    monkeypatch.setattr(gap, "parse_query", lambda e: SimpleNamespace(sql=e.sql, db="d", sql_mode=0, updated_dbs=e.dbs))
    monkeypatch.setattr(gap, "make_admin", lambda _: None)
    monkeypatch.setattr(gap, "all_partition_counts", lambda _: TOPICS)
    try:
        gap.require_drained(CFG, START, end)
    finally:
        assert closed or end is START


@for_each(
    ("event", "said"),
    [
        (rows("chosen"), "rows of d.chosen"),
        (rows("other"), "rows of d.other"),
        (statement("TRUNCATE TABLE other"), "TRUNCATE"),
        (statement("ALTER TABLE chosen ADD x INT"), "ALTER"),
        (statement("RENAME TABLE other TO z"), "RENAME"),
        (statement("UPDATE other SET a = 1", "d"), "UPDATE"),
        (statement("  xa commit X'01',X'',1"), "XA COMMIT"),
    ],
)
def test_a_change_that_nobody_has_drained_refuses(monkeypatch: pytest.MonkeyPatch, event: Any, said: str) -> None:
    """Also one of a table that is not chosen for this snapshot."""
    with pytest.raises(StateError, match="not drained") as caught:
        search(monkeypatch, statement("BEGIN"), rows("never captured"), event)
    assert said in caught.value.where and not caught.value.can_retry


def test_what_changes_no_captured_table_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    search(
        monkeypatch,
        rows("never captured"),
        rows("other", "elsewhere"),
        statement("BEGIN"),
        statement("CREATE TABLE elsewhere.x (i INT)"),
        statement("ALTER DATABASE d CHARACTER SET latin1"),
        statement("XA ROLLBACK X'01',X'',1"),
        statement("FLUSH TABLES"),
    )


def test_a_range_of_nothing_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    search(monkeypatch, rows("chosen"), end=START)
