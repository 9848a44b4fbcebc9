"""GTIDs that were used again after a reset, and signals around a promotion."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from kit.failover_rig import assert_exact, committed, follow, insert, refused
from kit.records import payload
from kit.replication import Pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with a table of two rows and a signal table, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"CREATE TABLE `{database}`.sig (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        f"INSERT INTO `{database}`.t VALUES (1, 'a'), (2, 'a')",
    )


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.exhaustive(but="True")
def test_a_server_whose_gtids_are_those_of_other_transactions_is_refused(
    pair: Pair, properties: dict[str, str], database: str, flushed: bool
) -> None:
    pipeline = Pipeline(properties | pair.primary.server.properties() | FLAT)
    pipeline.snapshot()
    insert(pair.primary.root, database, 10, 11)
    pipeline.drain()
    last, _, time = str(committed(pipeline).last_commit).partition("@")
    assert last in str(committed(pipeline).gtids) or last.rpartition(":")[0] in str(committed(pipeline).gtids)
    assert int(time) > 1_700_000_000_000_000
    count = int(last.rpartition(":")[2])
    other = pair.replica
    pair.catch_up()
    other.promote()
    execute(other.root, "RESET BINARY LOGS AND GTIDS")
    for number in range(1, count + 3):
        execute(other.root, f"SET gtid_next='{pair.primary.uuid}:{number}'")
        insert(other.root, database, 1000 + number)
        if flushed and number == count:
            execute(other.root, "SET gtid_next='AUTOMATIC'", "FLUSH BINARY LOGS")
    execute(other.root, "SET gtid_next='AUTOMATIC'")
    pipeline.properties.update(other.server.properties())
    error = refused(pipeline)
    assert f"its transaction {last} is another one" in error.why and not error.can_retry
    assert "again=true" in error.remedy


def test_the_same_transactions_that_a_backup_has_replayed_are_known_again(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    """mysqlbinlog and replication keep the time of the first commit."""
    pipeline = Pipeline(properties | pair.primary.server.properties() | FLAT)
    pipeline.snapshot()
    insert(pair.primary.root, database, 10, 11)
    pipeline.drain()
    before = committed(pipeline).last_commit
    pair.switch()
    execute(pair.primary.root, "FLUSH BINARY LOGS")
    follow(pipeline, pair)
    pipeline.drain()
    assert committed(pipeline).last_commit == before, "nothing came since"
    insert(pair.primary.root, database, 12)
    pipeline.drain()
    assert committed(pipeline).last_commit != before
    assert_exact(pipeline, pair.primary.root, database)


def lines_about(pipeline: Pipeline) -> list[str]:
    return [line for line in pipeline.lines if "signal" in line or "ask-1" in line or "ad-hoc" in line]


@pytest.mark.parametrize("drained", ["before", "half", "after"])
@pytest.mark.exhaustive(but="half")
def test_a_signal_around_a_promotion_is_carried_out_once(
    pair: Pair, properties: dict[str, str], database: str, drained: str
) -> None:
    """The stream has executed the signal, has only seen it, or has not read it when the other server takes over."""
    execute(pair.primary.root, f"GRANT INSERT ON `{database}`.sig TO 'cdc'@'%'")
    pair.catch_up()
    more = {"signal.data.collection": f"{database}.sig", "table.include.list": rf"{database}\.t"}
    pipeline = Pipeline(properties | pair.primary.server.properties() | FLAT | more)
    pipeline.snapshot()
    data = json.dumps({"data-collections": [rf"{database}\.t"], "type": "incremental"})
    with pair.primary.root.cursor() as cursor:
        cursor.execute(f"INSERT INTO `{database}`.sig VALUES ('ask-1', 'execute-snapshot', %s)", (data,))
    if drained != "after":
        pipeline.drain()
    if drained == "before":
        pipeline.drain()
    pair.switch()
    insert(pair.primary.root, database, 20)
    follow(pipeline, pair)
    for _ in range(4):
        pipeline.drain()
    pair.switch()
    insert(pair.primary.root, database, 21)
    follow(pipeline, pair)
    for _ in range(2):
        pipeline.drain()
    events = [payload(record.value) for record in pipeline.records("t") if record.value]
    reads = Counter(e["after"]["id"] for e in events if e["op"] == "r" and e["source"]["snapshot"] == "incremental")
    assert set(reads.values()) == {1} and {1, 2} <= set(reads), (reads, lines_about(pipeline))
    stored = {i for (i,) in rows(pair.primary.root, f"SELECT id FROM `{database}`.t")}
    assert stored == {e["after"]["id"] for e in events}


def test_a_signal_that_was_carried_out_before_the_stream_was_moved_back_is_not_repeated_on_another_server(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    execute(pair.primary.root, f"GRANT INSERT ON `{database}`.sig TO 'cdc'@'%'")
    pair.catch_up()
    more = {"signal.data.collection": f"{database}.sig", "table.include.list": rf"{database}\.t"}
    pipeline = Pipeline(properties | pair.primary.server.properties() | FLAT | more)
    pipeline.snapshot()
    insert(pair.primary.root, database, 10)
    pipeline.drain()
    before = str(committed(pipeline).gtids)
    with pair.primary.root.cursor() as cursor:
        cursor.execute(f"INSERT INTO `{database}`.sig VALUES ('ask-1', 'log', %s)", ('{"message": "said-it"}',))
    for _ in range(3):
        pipeline.drain()
    pair.catch_up()
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=before)
    pair.switch()
    insert(pair.primary.root, database, 11)
    follow(pipeline, pair)
    for _ in range(3):
        pipeline.drain()
    assert len([line for line in pipeline.lines if "said-it" in line]) == 1, "its id is not stored, as a snapshot's is"
    assert any("goes on at server" in line for line in pipeline.lines)
