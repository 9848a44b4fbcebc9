"""A server is promoted that cannot have all changes of the captured tables, or has them under other names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.failover_rig import assert_exact, carry_out, committed, follow, insert, refused
from kit.private_mysql import Pool, running_server
from kit.replication import Node, Pair, start_replica, wait_for_gtids
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.drain.failover.replication_filters import ReplicationFilters
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.model.table import TableId

PROPERTIES = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
NONE = (
    "CHANGE REPLICATION FILTER REPLICATE_DO_DB=(), REPLICATE_IGNORE_DB=(), REPLICATE_DO_TABLE=(), "
    "REPLICATE_IGNORE_TABLE=(), REPLICATE_WILD_DO_TABLE=(), REPLICATE_WILD_IGNORE_TABLE=(), REPLICATE_REWRITE_DB=()"
)


@pytest.fixture
def pair(servers: Pair, database: str) -> Iterator[Pair]:
    """Yield a primary with an empty table, and its replica; without filters afterwards."""
    yield servers.begin(
        f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))"
    )
    for node in (servers.primary, servers.replica):
        node.detach()
        execute(node.root, NONE)


@pytest.fixture
def pipeline(pair: Pair, properties: dict[str, str]) -> Pipeline:
    """Return a stream of one row."""
    made = Pipeline(properties | pair.primary.server.properties() | PROPERTIES)
    made.snapshot()
    insert(pair.primary.root, properties["database.include.list"], -1)
    made.drain()
    return made


def filter_on_replica(pair: Pair, rule: str) -> None:
    pair.catch_up()
    execute(pair.replica.root, "STOP REPLICA", f"CHANGE REPLICATION FILTER {rule}", "START REPLICA")


RULES = (
    "REPLICATE_DO_DB=(`a,b`)",
    "REPLICATE_DO_DB=(a, b)",
    "REPLICATE_DO_DB=(A)",
    "REPLICATE_IGNORE_DB=(b)",
    "REPLICATE_IGNORE_DB=(`a,b`)",
    "REPLICATE_DO_DB=(a), REPLICATE_IGNORE_DB=(a)",
    "REPLICATE_DO_TABLE=(a.t), REPLICATE_IGNORE_TABLE=(a.t)",
    "REPLICATE_DO_TABLE=(`a,b`.t)",
    "REPLICATE_IGNORE_TABLE=(a.`ä`, a.`T`)",
    "REPLICATE_IGNORE_TABLE=(b.t), REPLICATE_WILD_DO_TABLE=('b.%', 'a.x%')",
    "REPLICATE_WILD_IGNORE_TABLE=('a.__')",
    "REPLICATE_WILD_IGNORE_TABLE=('%.T')",
    "REPLICATE_WILD_IGNORE_TABLE=('a.x\\_%')",
    "REPLICATE_WILD_DO_TABLE=('_.t', 'a,b.%')",
)
TABLES = tuple(TableId(*name) for name in (("a", "t"), ("a", "ä"), ("a", "x_1"), ("a", "xy"), ("b", "t"), ("a,b", "t")))


@pytest.mark.parametrize("case", ["0", "1"])
@pytest.mark.exhaustive(but="0")
def test_filters_are_judged_as_the_replica_does(pool: Pool, case: str) -> None:
    """Where a comma in a rule leaves it open, because one of the databases has one in its name, it is refused."""
    with (
        pool.lent(lower_case_table_names=case, server_id="11") as source,
        pool.lent(lower_case_table_names=case, server_id="12") as replica,
        source.connect() as primary,
        replica.connect() as root,
    ):
        for table in TABLES:
            execute(primary, f"CREATE DATABASE IF NOT EXISTS `{table.db}`")
            execute(primary, f"CREATE TABLE {table.quoted()} (id INT PRIMARY KEY)")
        start_replica(root, source)
        for number, rule in enumerate(RULES):
            wait_for_gtids(root, str(rows(primary, "SELECT @@GLOBAL.gtid_executed")[0][0]))
            execute(root, "STOP REPLICA", NONE, f"CHANGE REPLICATION FILTER {rule}", "START REPLICA")
            execute(primary, *(f"INSERT INTO {table.quoted()} VALUES ({number})" for table in TABLES))
            wait_for_gtids(root, str(rows(primary, "SELECT @@GLOBAL.gtid_executed")[0][0]))
            filters = ReplicationFilters.read(root, None)
            for table in TABLES:
                arrived = bool(rows(root, f"SELECT 1 FROM {table.quoted()} WHERE id = {number}"))
                left_out, is_certain = filters.leave_out(table), "," not in rule.partition("=")[2]
                assert left_out if not arrived else not left_out or not is_certain, (rule, str(table), str(filters))
        execute(root, "STOP REPLICA", NONE, "RESET REPLICA ALL")


@pytest.mark.parametrize(
    "rule",
    ["REPLICATE_DO_DB=(elsewhere)", "REPLICATE_DO_DB=({db}, `x,y`)", "REPLICATE_WILD_IGNORE_TABLE=('{db}.%')"],
)
@pytest.mark.exhaustive(but="x,y")
def test_a_promoted_replica_whose_filters_leave_captured_rows_out_is_refused(
    pipeline: Pipeline, pair: Pair, database: str, rule: str
) -> None:
    """It has executed the GTIDs of the rows that it does not have; what the error advises is carried out."""
    execute(pair.primary.root, "CREATE DATABASE `x,y`")
    filter_on_replica(pair, rule.format(db=database))
    insert(pair.primary.root, database, 50)
    pipeline.drain()
    insert(pair.primary.root, database, 51)
    pair.switch()
    insert(pair.primary.root, database, 52)
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and "replication filters" in error.why and f"{database}.t" in error.why
    carry_out(error, pipeline)
    pipeline.drain()
    assert committed(pipeline).server_uuid == pair.primary.uuid


@pytest.mark.exhaustive
def test_an_option_that_is_given_twice_is_two_entries_once_rows_came_through(
    pipeline: Pipeline, pair: Pair, database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server shows it as one name with a comma; the one table that came shows what the other entry is, too."""
    options = {"server_id": "13", "replicate_wild_do_table": f"{database}.%\nreplicate_wild_do_table=mysql.%"}
    with running_server(tmp_path_factory, "9.7", options) as server:
        third = Node(server)
        third.follow(pair.primary)
        third.catch_up(pair.primary.gtids)
        insert(pair.primary.root, database, 90)
        third.catch_up(pair.primary.gtids)
        third.promote()
        pipeline.properties.update(server.properties())
        insert(third.root, database, 91)
        pipeline.drain()
        assert_exact(pipeline, third.root, database)


def test_a_promoted_replica_that_passes_over_errors_is_refused(pipeline: Pipeline, pair: Pair, database: str) -> None:
    """The rest of the transaction is there, so its GTID and its rows tell nothing."""
    root = pair.replica.root
    pair.catch_up()
    insert(pair.primary.root, database, 60)
    pair.catch_up()
    execute(root, "STOP REPLICA", "SET GLOBAL super_read_only=OFF", "SET sql_log_bin=0")
    execute(root, f"DELETE FROM `{database}`.t WHERE id = 60", "SET sql_log_bin=1")
    execute(root, "SET GLOBAL replica_exec_mode='IDEMPOTENT'", "START REPLICA")
    change = f"UPDATE `{database}`.t SET v = 'new' WHERE id = 60"
    execute(pair.primary.root, "BEGIN", change, f"INSERT INTO `{database}`.t VALUES (61, 'row 61')", "COMMIT")
    pipeline.drain()
    pair.switch()
    follow(pipeline, pair)
    try:
        error = refused(pipeline)
        assert not error.can_retry and "replica_exec_mode=IDEMPOTENT" in error.why
        carry_out(error, pipeline)
        assert committed(pipeline).server_uuid == pair.primary.uuid
    finally:
        execute(pair.primary.root, "SET GLOBAL replica_exec_mode='STRICT'")


def test_filters_of_other_tables_do_not_matter(pipeline: Pipeline, pair: Pair, database: str) -> None:
    filter_on_replica(
        pair, f"REPLICATE_IGNORE_DB=(elsewhere), REPLICATE_WILD_IGNORE_TABLE=('mysql.rds%','{database}.x%')"
    )
    insert(pair.primary.root, database, 60)
    pair.switch()
    follow(pipeline, pair)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)


def test_an_unfinished_batch_is_not_moved_to_a_server_with_such_filters(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    filter_on_replica(pair, f"REPLICATE_IGNORE_TABLE=({database}.t)")
    insert(pair.primary.root, database, 70)
    fired = tmp_path / "fired"
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    with monkeypatch.context() as patch:
        patch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": "plan.after_store", "fired": str(fired)}))
        with pytest.raises(FaultRaised):
            pipeline.drain()
    assert fired.exists()
    pair.switch()
    follow(pipeline, pair)
    assert "replication filters" in refused(pipeline).why


@pytest.mark.exhaustive
def test_a_server_with_another_case_of_names_is_refused(
    pipeline: Pipeline, pair: Pair, database: str, pool: Pool
) -> None:
    with pool.lent(server_id="13", lower_case_table_names="1") as third:
        root: Any = third.connect()
        start_replica(root, pair.primary.server)
        wait_for_gtids(root, pair.primary.gtids)
        execute(root, "STOP REPLICA", "RESET REPLICA ALL")
        pipeline.properties.update(third.properties())
        error = refused(pipeline)
        assert not error.can_retry
        assert "its lower_case_table_names is 1, and that of the former server is 0" in error.why
        root.close()
    follow(pipeline, pair)
    insert(pair.primary.root, database, 80)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)
