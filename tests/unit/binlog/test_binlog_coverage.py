"""What a server leaves out of its binlog: options, and changes that a replica does not log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import binlog_coverage, position
from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import (
    BinlogCoverage,
    ReplicaChannel,
    read_coverage,
)
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.binlog.grants import Grants
from airflow_provider_mysql_cdc.cdc.binlog.preflight import find_problems
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import RunRequirements, ServerFacts
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.finding import Finding
from airflow_provider_mysql_cdc.cdc.model.table import TableId

GRANT = "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `cdc`@`%`"
SOUND = {"log_bin": "ON", "binlog_row_metadata": "FULL", "gtid_mode": "ON", "version": "9.7.4"}
CHANNEL = ReplicaChannel("", "primary:3306", applies=True)
DRAIN = RunRequirements(snapshot=False)


def found(coverage: BinlogCoverage, **variables: str) -> list[Finding]:
    facts = ServerFacts("db:3306", SOUND | variables, Grants.parse([GRANT]), coverage=coverage)
    return find_problems(facts, DRAIN)


def test_a_server_that_logs_everything_has_no_problem() -> None:
    assert found(BinlogCoverage()) == []
    assert found(BinlogCoverage(channels=(CHANNEL,)), log_replica_updates="ON") == []
    assert found(BinlogCoverage(), log_replica_updates="OFF") == []  # it is no replica


def test_captured_tables_whose_database_is_not_logged_are_refused() -> None:
    tables = tuple(TableId("shop", f"t{number:02}") for number in range(12))
    (finding,) = found(BinlogCoverage(FilterLists({"ignore_db": "b,shop"}), left_out=tables))
    assert isinstance(finding.error, SourceSettingError)
    assert "shop.t00, shop.t01" in finding.what and "shop.t11" not in finding.what and "and 2 more" in finding.what
    assert "binlog_ignore_db=b,shop" in finding.why and "database.exclude.list" in finding.fix


def test_an_option_that_leaves_out_other_databases_may_still_lose_statements() -> None:
    (finding,) = found(BinlogCoverage(FilterLists({"do_db": "shop"})))
    assert finding.error is None and "binlog_do_db=shop" in finding.what and "ALTER TABLE" in finding.why


@pytest.mark.parametrize("name", ["log_replica_updates", "log_slave_updates"])
def test_a_replica_that_does_not_log_what_it_applies_is_refused(name: str) -> None:
    (finding,) = found(BinlogCoverage(channels=(CHANNEL,)), **{name: "OFF"})
    assert isinstance(finding.error, SourceSettingError) and "primary:3306" in finding.why
    assert "mysql_cdc_verify" in finding.fix


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"lists": FilterLists({"do_db": "shop"})}, "replicate_do_db=shop"),
        ({"applies": False}, "does not apply changes"),
        ({"delay_s": 30}, "30 s behind it on purpose"),
    ],
)
def test_what_keeps_changes_from_a_replica_is_said(change: dict[str, Any], part: str) -> None:
    (finding,) = found(BinlogCoverage(channels=(replace(CHANNEL, name="east", **change),)))
    assert finding.error is None and part in finding.what and "channel 'east'" in finding.what


@pytest.mark.req("SETUP-34")
def test_mariadb_behind_a_proxy_is_named_before_all_else() -> None:
    first = found(BinlogCoverage(), version="10.11.19-MariaDB-log", log_bin="OFF")[0]
    assert isinstance(first.error, SourceSettingError) and "MariaDB" in first.what


def test_tables_of_which_it_cannot_be_told_are_refused_with_what_shows_it() -> None:
    coverage = BinlogCoverage(FilterLists({"do_db": "kept,lost"}), doubtful=(TableId("kept", "t"),))
    (finding,) = found(coverage)
    assert (
        isinstance(finding.error, SourceSettingError) and "cannot be told" in finding.what and "kept.t" in finding.what
    )
    assert "binlog_do_db=kept,lost" in finding.why and "comma" in finding.why and "change a row" in finding.fix


@for_each(
    ("options", "ignores_case", "logged", "left_out", "doubtful"),
    [
        ({}, 0, "", "", ""),
        ({"Binlog_Ignore_DB": "b"}, 0, "", "b", ""),
        ({"Binlog_Ignore_DB": "B"}, 0, "", "", ""),
        ({"Binlog_Ignore_DB": "B"}, 1, "", "b", ""),
        ({"Binlog_Do_DB": "A"}, 2, "", "bc", ""),
        ({"Binlog_Do_DB": "A"}, 0, "", "abc", ""),
        ({"Binlog_Do_DB": "a", "Binlog_Ignore_DB": "a"}, 0, "", "bc", ""),  # the second is not looked at then
        ({"Binlog_Do_DB": "a,b"}, 0, "", "c", "ab"),
        ({"Binlog_Do_DB": "a,b"}, 0, "a", "c", ""),  # two entries, as one of them is
        ({"Binlog_Do_DB": "A,b"}, 1, "a", "c", ""),
        ({"Binlog_Do_DB": "a,b"}, 0, "x", "c", "ab"),
        ({"Binlog_Do_DB": "a,x,b"}, 0, "x", "c", ""),
        ({"Binlog_Do_DB": "x,a,b"}, 0, "x", "c", "ab"),
        ({"Binlog_Ignore_DB": "a,b"}, 0, "a", "", "b"),
        ({"Binlog_Ignore_DB": "a,b"}, 0, "ab", "", ""),
    ],
)
def test_which_captured_tables_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    ignores_case: int,
    logged: str,
    left_out: str,
    doubtful: str,
) -> None:
    """Letters are databases; rows of those in ``logged`` stand in the binlog."""

    def fetch_all(_: Any, sql: str) -> list[tuple[Any, ...]]:
        return [(ignores_case,)] if "@@" in sql else [(name, "t") for name in "abcx"]

    monkeypatch.setattr(binlog_coverage, "fetch_all", fetch_all)
    monkeypatch.setattr(binlog_coverage, "binlog_status", lambda _: [options])
    monkeypatch.setattr(binlog_coverage, "replica_channels", lambda _: iter(()))
    monkeypatch.setattr(
        binlog_coverage,
        "read_logged_tables",
        lambda conn, settings, is_enough: [is_enough(TableId(db, "t")) for db in logged],
    )
    settings: Any = None
    read = read_coverage(None, settings, lambda table: table.db != "x")
    assert "".join(table.db for table in read.left_out) == left_out
    assert "".join(table.db for table in read.doubtful) == doubtful


def test_the_old_statement_is_tried_only_where_the_new_one_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    old: dict[str, Any] = {"Slave_IO_Running": "Yes"}
    old |= {"Master_Host": "p", "Master_Port": 1, "Slave_SQL_Running": "Yes", "SQL_Delay": 0, "Channel_Name": ""}

    def answer(conn: Any, sql: str) -> list[dict[str, Any]]:
        asked.append(sql)
        if sql == "SHOW REPLICA STATUS":
            raise SourceSettingError("refused", why=conn)
        return [old]

    settings: Any = None
    monkeypatch.setattr(binlog_coverage, "ignores_case", lambda _: False)
    monkeypatch.setattr(position, "fetch_dicts", answer)
    monkeypatch.setattr(binlog_coverage, "binlog_status", lambda conn: [])
    read = read_coverage("MySQL error 1064: syntax", settings, lambda table: True)
    assert read.channels == (ReplicaChannel("", "p:1", applies=True),) and len(asked) == 2
    with pytest.raises(SourceSettingError):
        read_coverage("MySQL error 1227: denied", settings, lambda table: True)
    assert len(asked) == 3


def test_an_unreachable_server_is_no_server_without_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(conn: Any) -> list[dict[str, Any]]:
        raise SourceConnectionError("gone")

    settings: Any = None
    monkeypatch.setattr(binlog_coverage, "binlog_status", lost)
    with pytest.raises(SourceConnectionError):
        read_coverage(None, settings, lambda table: True)
