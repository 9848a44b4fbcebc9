"""What is said of a signal table, and of what watermarks rest on, before a run."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals import signal_table
from airflow_provider_mysql_cdc.cdc.signals.signal_table import (
    SignalTableColumn,
    SignalTableFacts,
    signal_table_problems,
)

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
TABLE = {"signal.data.collection": "ops.signals"}
READ_ONLY = {"read.only": "true"}
COLUMNS = (
    SignalTableColumn("id", "varchar", 42),
    SignalTableColumn("type", "varchar", 32),
    SignalTableColumn("data", "varchar", 2048),
)
SOUND = {
    "binlog_order_commits": "ON",
    "gtid_mode": "ON",
    "replica_parallel_workers": "4",
    "replica_preserve_commit_order": "ON",
    "super_read_only": "OFF",
}


def found(given: dict[str, str], facts: SignalTableFacts) -> list[ConfigError]:
    return list(signal_table_problems(facts, ConnectorConfig.from_properties(BASE | given)))


def facts(columns: Any = COLUMNS, **more: Any) -> SignalTableFacts:
    variables = {name: more.pop(name, value) for name, value in SOUND.items()}
    return SignalTableFacts({n: v for n, v in variables.items() if v is not None}, columns, **more)


def only(given: dict[str, str], given_facts: SignalTableFacts) -> ConfigError:
    (problem,) = found(given, given_facts)
    assert problem.where and problem.why and problem.remedy and not problem.can_retry
    return problem


def test_a_sound_table_on_a_sound_server_needs_nothing() -> None:
    assert found(TABLE, facts()) == []
    assert found(READ_ONLY, facts(())) == []
    assert found(TABLE | READ_ONLY, facts(())) == [], "signals may come from elsewhere"
    assert found({}, facts((), gtid_mode="OFF")) == []
    wide = (*COLUMNS[:2], SignalTableColumn("data", "json", None), SignalTableColumn("at", "timestamp", None))
    assert found(TABLE, facts(wide)) == []


def test_a_missing_table_is_named_with_what_to_do() -> None:
    problem = only(TABLE, facts(()))
    assert problem.where == "signal.data.collection=ops.signals"
    assert "CREATE TABLE `ops`.`signals` (id VARCHAR(42)" in problem.remedy
    assert "signal.data.collection.create=true" in problem.remedy


@for_each(
    "columns, what",
    [
        (COLUMNS[:2], "has 2 columns, fewer than three"),
        (
            (SignalTableColumn("id", "bigint", None), *COLUMNS[1:]),
            "column id of the signal table is not a character column",
        ),
        (
            (*COLUMNS[:2], SignalTableColumn("data", "blob", 65535)),
            "column data of the signal table is not a character column",
        ),
        ((SignalTableColumn("i", "varchar", 41), *COLUMNS[1:]), "column i of the signal table is too narrow"),
        (
            (COLUMNS[0], SignalTableColumn("kind", "char", 20), COLUMNS[2]),
            "column kind of the signal table is too narrow",
        ),
        ((*COLUMNS[:2], SignalTableColumn("data", "varchar", 100)), "column data of the signal table is too narrow"),
        (
            (*COLUMNS, SignalTableColumn("who", "varchar", 9, required=True)),
            "column who of the signal table has no default",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused(columns: Any, what: str) -> None:
    assert what in only(TABLE, facts(columns)).what


@pytest.mark.req("INC-34")
def test_the_account_must_be_able_to_write_what_the_strategy_writes() -> None:
    deleting = TABLE | {"incremental.snapshot.watermarking.strategy": "insert_delete"}
    refused = facts(denied_statements={"INSERT": "INSERT command denied", "DELETE": "DELETE command denied"})
    assert [p.what for p in found(TABLE, refused)] == ["the account may not INSERT in the signal table"]
    assert len(found(deleting, refused)) == 2
    problem = only(deleting, facts(denied_statements={"DELETE": "DELETE command denied"}))
    assert problem.remedy.startswith("GRANT INSERT, DELETE, SELECT ON `ops`.`signals` TO the account; or use")
    assert "DELETE command denied" in problem.why
    assert found(TABLE, facts(denied_statements={"DELETE": "denied"})) == []


@pytest.mark.req("INC-34")
@for_each(
    "texts, logged, what",
    [
        ({"ignore_db": "ops"}, False, "is not written"),
        ({"do_db": "shop"}, False, "is not written"),
        ({"do_db": "shop,ops"}, False, "it cannot be told"),
        ({"ignore_db": "shop,ops"}, False, "it cannot be told"),
        ({"do_db": "shop,ops"}, True, ""),
        ({"ignore_db": "shop", "do_db": "ops"}, False, ""),
    ],
)
def test_the_table_must_be_written_to_the_binlog(texts: dict[str, str], logged: bool, what: str) -> None:
    problems = found(TABLE, facts(binlog_lists=FilterLists(texts), is_logged=logged))
    assert len(problems) == bool(what) and all(what in problem.what for problem in problems)
    assert all(f"binlog_{name}={text}" in problem.why for problem in problems for name, text in texts.items())


def test_commits_must_come_in_the_binlogs_order() -> None:
    assert only(TABLE, facts(binlog_order_commits="OFF")).what == "ad-hoc snapshots need binlog_order_commits=ON"
    assert found(READ_ONLY, facts(binlog_order_commits="OFF")) == []
    assert "super_read_only is ON" in only(TABLE, facts(super_read_only="ON")).why


@pytest.mark.req("INC-38")
def test_without_writing_the_server_must_have_gtids() -> None:
    for mode in ("OFF", "ON_PERMISSIVE", "OFF_PERMISSIVE"):
        problem = only(READ_ONLY, facts(gtid_mode=mode))
        assert problem.what == "GTIDs are off" and mode in problem.why


@pytest.mark.req("INC-39", "CFG-120", "CFG-121", "CFG-122")
def test_the_name_is_that_of_the_server_letter_by_letter() -> None:
    """With lower_case_table_names the server finds OPS.Signals, and the binlog has ops.signals."""
    written = {"signal.data.collection": "OPS.Signals"}
    for given in (written, written | READ_ONLY):
        problem = only(given, facts(name=TableId("ops", "signals")))
        assert "another letter case" in problem.what and problem.remedy == "set signal.data.collection=ops.signals"
    assert found(TABLE, facts(name=TableId("ops", "signals"))) == []


@for_each("name", ["replica", "slave"])
@for_each(
    "workers, order, refused", [("4", "OFF", True), ("1", "0", True), ("4", "ON", False), ("4", "1", False),
                                ("0", "OFF", False)]
)  # fmt: skip
def test_without_writing_a_multi_threaded_replica_must_keep_the_order(
    name: str, workers: str, order: str, refused: bool
) -> None:
    given = SignalTableFacts(
        {"gtid_mode": "ON", f"{name}_parallel_workers": workers, f"{name}_preserve_commit_order": order}
    )
    problems_found = found(READ_ONLY, given)
    assert bool(problems_found) is refused
    if refused:
        assert problems_found[0].what == f"{name}_preserve_commit_order is OFF"
        assert f"{name}_parallel_workers is {workers}" in problems_found[0].why
    assert found(TABLE, facts(replica_preserve_commit_order="OFF")) == [], "rows of the table need no such order"


def test_a_refused_snapshot_signal_is_answered_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(given: dict[str, str], found_facts: SignalTableFacts) -> str | None:
        monkeypatch.setattr(signal_table, "read_table_facts", lambda conn, cfg: found_facts)
        return signal_table.watermark_obstacle(None, ConnectorConfig.from_properties(BASE | given))

    assert reason(TABLE, facts()) is reason({}, facts(())) is None
    assert (reason(TABLE, facts(())) or "").startswith("the signal table does not exist: ")
    assert (reason(READ_ONLY, facts(gtid_mode="OFF")) or "").startswith("GTIDs are off: ")
    assert (reason({}, facts(gtid_mode="OFF")) or "").startswith("no signal table is configured, and GTIDs are off: ")
    assert "replica_preserve_commit_order" in (reason({}, facts(replica_preserve_commit_order="OFF")) or "")
