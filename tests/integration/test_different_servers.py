"""The server at which a stream goes on differs from the former one in more than its binlog."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from kit.failover_rig import assert_exact, carry_out, follow, insert, refused
from kit.private_mysql import PrivateServer, running_server
from kit.records import payload
from kit.replication import Pair, start_replica, wait_for_gtids
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    CdcError,
    SchemaError,
    SchemaMismatchError,
    ServerChangedError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.small.batch.bytes": "0",
    "drain.writers": "2",
    "topic.creation.default.partitions": "4",
    "commit.bytes": "20000",
}


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with an empty table, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200), a INT, b INT)",
    )


@pytest.fixture
def pipeline(pair: Pair, properties: dict[str, str]) -> Pipeline:
    """Return a stream of one row."""
    made = Pipeline(properties | pair.primary.server.properties() | PROPERTIES)
    made.snapshot()
    insert(pair.primary.root, properties["database.include.list"], -1)
    made.drain()
    return made


def crash(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str, **fault: Any) -> None:
    """Let a drain die at a point."""
    fired = tmp_path / "fired"
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": point, "fired": str(fired), **fault}))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")


def ids(pipeline: Pipeline) -> list[int]:
    return sorted(payload(record.value)["after"]["id"] for record in pipeline.records("t") if record.value)


@pytest.mark.exhaustive
def test_a_batch_is_not_moved_to_a_server_that_does_not_log_the_tables(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    insert(pair.primary.root, database, 1)
    crash(pipeline, monkeypatch, tmp_path, "plan.after_store")
    silent = pair.replica
    silent.root.close()
    silent.server.stop()
    silent.restart(server_id="12", binlog_ignore_db=database)
    insert(pair.primary.root, database, 2)
    pair.switch()
    try:
        follow(pipeline, pair)
        with pytest.raises(SourceSettingError, match="binlog"):
            pipeline.drain()
        assert ids(pipeline) == [-1]
        pair.switch()
        follow(pipeline, pair)
        pipeline.drain()
        pipeline.drain()
        assert_exact(pipeline, pair.primary.root, database)
    finally:
        silent.root.close()
        silent.server.stop()
        silent.restart(server_id="12")


@pytest.mark.exhaustive
def test_a_table_with_another_structure_is_told(pipeline: Pipeline, pair: Pair, database: str) -> None:
    """Replication goes by the order of columns; a statement with sql_log_bin=0 has changed it."""
    execute(
        pair.replica.root,
        "SET GLOBAL super_read_only=OFF",
        "SET SESSION sql_log_bin=0",
        f"ALTER TABLE `{database}`.t MODIFY a INT AFTER b",
        "SET SESSION sql_log_bin=1",
    )
    pair.switch()
    execute(pair.primary.root, f"INSERT INTO `{database}`.t (id, v, a, b) VALUES (1, 'x', 10, 20)")
    follow(pipeline, pair)
    with pytest.raises(SchemaMismatchError, match="t"):
        pipeline.drain()
    execute(pair.primary.root, f"INSERT INTO `{database}`.t (id, v, a, b) VALUES (2, 'x', 30, 40)")
    pipeline.drain()
    last = [e["after"] for r in pipeline.records("t") if r.value and (e := payload(r.value))["after"]["id"] == 2]
    assert [(row["a"], row["b"]) for row in last] == [(30, 40)]
    pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert pipeline.verify().equal


def test_a_batch_is_moved_to_a_server_without_checksums(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(pair.replica.root, "SET GLOBAL binlog_checksum='NONE'")
    try:
        for first in (1000, 2000):
            values = ",".join(f"({i}, '{str(i) * 40:.150}')" for i in range(first, first + 400))
            execute(pair.primary.root, f"INSERT INTO `{database}`.t (id, v) VALUES {values}")
        crash(pipeline, monkeypatch, tmp_path, "writer.after_commit", nth=2)
        with kafka_clients.ledger(pipeline.cfg) as ledger:
            state = ledger.read()
        assert state is not None and any(not m.reached.is_boundary for m in state.markers.values())
        pair.switch()
        follow(pipeline, pair)
        pipeline.drain()
        assert_exact(pipeline, pair.primary.root, database)
    finally:
        execute(pair.primary.root, "SET GLOBAL binlog_checksum='CRC32'")


def recover(pipeline: Pipeline) -> None:
    """Run the snapshot task with snapshot.mode=recovery, as the error of a lost history advises."""
    pipeline.properties["snapshot.mode"] = "recovery"
    try:
        if prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log) is not None:
            pipeline.snapshot()
    finally:
        del pipeline.properties["snapshot.mode"]


def test_a_lost_history_is_rebuilt_on_another_server(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between two batches recovery is the way out; a batch that is not finished is given up as the error advises."""

    def lose_history(number: int) -> None:
        delete_topics(pipeline.cfg.kafka_settings(), pipeline.cfg.history_topic)
        pair.switch()
        insert(pair.primary.root, database, number)
        follow(pipeline, pair)

    for number in (1, 2):
        insert(pair.primary.root, database, 10 * number)
        if number == 2:  # a plan of the former server that was never begun
            pipeline.properties["snapshot.mode"] = "recovery"
            pipeline.prepare("snapshot")
            del pipeline.properties["snapshot.mode"]
        lose_history(number)
        with pytest.raises(CdcError, match="recovery" if number == 1 else "is not finished"):
            pipeline.drain()
        recover(pipeline)
        pipeline.drain()
        assert_exact(pipeline, pair.primary.root, database)
    assert sum("goes on at server" in line for line in pipeline.lines) == 2

    insert(pair.primary.root, database, 30)
    crash(pipeline, monkeypatch, tmp_path, "writer.before_commit")
    lose_history(3)
    with pytest.raises(SchemaError, match="recovery"):
        pipeline.drain()
    with pytest.raises(ServerChangedError, match="cannot go on at the one that answers") as caught:
        recover(pipeline)
    assert not caught.value.can_retry and "needs the schema history" in caught.value.why
    carry_out(caught.value, pipeline)
    insert(pair.primary.root, database, 40)
    pipeline.drain()
    assert ids(pipeline)[-1] == 40


def test_transactions_without_a_gtid_behind_the_place_are_refused(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    """gtid_mode was off for a while: the transactions stand in a file between two with the same GTIDs before them."""
    replica, both = pair.replica.root, (pair.primary.root, pair.replica.root)
    pair.catch_up()
    set_mode(both, "ON_PERMISSIVE")
    execute(replica, "STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=0", "START REPLICA")
    set_mode(both, "OFF_PERMISSIVE")
    insert(pair.primary.root, database, 3, 4, 5)
    file, pos = rows(pair.primary.root, "SHOW BINARY LOG STATUS")[0][:2]
    assert rows(replica, f"SELECT SOURCE_POS_WAIT('{file}', {pos}, 60)")[0][0] > 0
    set_mode(both, "ON_PERMISSIVE")
    set_mode(both, "ON")
    execute(replica, "STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=1", "START REPLICA")
    pair.switch()
    insert(pair.primary.root, database, 6)
    follow(pipeline, pair)
    assert "has no GTID" in refused(pipeline).why


def set_mode(roots: tuple[Any, ...], mode: str) -> None:
    for root in roots:
        execute(root, f"SET GLOBAL gtid_mode='{mode}'")


@pytest.mark.exhaustive
def test_rows_that_were_prepared_before_a_server_was_copied_are_not_left_out(
    pipeline: Pipeline, pair: Pair, database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A copy has the prepared transaction in its tables, and the binlog from its XA COMMIT on."""
    with pair.primary.server.connect() as session:
        execute(session, f"USE `{database}`", "XA START 'kept'", "INSERT INTO t (id, v) VALUES (1, 'a')")
        execute(session, "XA END 'kept'", "XA PREPARE 'kept'")
    insert(pair.primary.root, database, 5)
    pipeline.drain()
    with running_server(tmp_path_factory, "9.7", {"server_id": "13"}) as copy:
        pair.primary.root.close()
        pair.primary.server.stop()
        copy_data(pair.primary.server, copy)
        pair.primary.restart(server_id=former_id(pair))
        copy.start(server_id="13")
        with copy.connect() as conn:
            assert rows(conn, "XA RECOVER")
            start_replica(conn, pair.primary.server)
            execute(pair.primary.root, "XA COMMIT 'kept'")
            wait_for_gtids(conn, pair.primary.gtids)
            execute(conn, "STOP REPLICA", "RESET REPLICA ALL")
        pipeline.properties.update(copy.properties())
        with pytest.raises(BinlogPurgedError, match="rows of XA transaction"):
            pipeline.drain()
    assert ids(pipeline) == [-1, 5]


def former_id(pair: Pair) -> str:
    """Return a server id that the replica does not have."""
    return str(23 - int(rows(pair.replica.root, "SELECT @@server_id")[0][0]))


def copy_data(source: PrivateServer, target: PrivateServer) -> None:
    """Give a server the tables of another one, as a physical backup has them: without its binlog and its uuid."""
    target.stop()
    (data,), (new_data,) = ([f.parent for f in s.folder.rglob("auto.cnf")] for s in (source, target))
    shutil.rmtree(new_data)
    left_out = shutil.ignore_patterns("binlog*", "auto.cnf", "*.sock", "*.lock", "*.pid")
    shutil.copytree(data, new_data, ignore=left_out)
