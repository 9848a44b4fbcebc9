"""An unfinished batch is moved to another server, with what its writers have committed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.failover_rig import assert_exact, carry_out, follow, insert, refused
from kit.records import compacted, payload
from kit.replication import Pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ServerChangedError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest

BULK = 400
PROPERTIES = {
    "cdc.id.header": "true",
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
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))",
    )


@pytest.fixture
def pipeline(pair: Pair, properties: dict[str, str]) -> Pipeline:
    """Return a stream whose writers commit every few row events."""
    made = Pipeline(properties | pair.primary.server.properties() | PROPERTIES)
    made.snapshot()
    insert(pair.primary.root, properties["database.include.list"], -1)
    made.drain()
    return made


def bulk(db: str, first: int, count: int = BULK) -> str:
    """Return a statement whose rows fill many row events."""
    values = ",".join(f"({i}, '{str(i) * 40:.150}')" for i in range(first, first + count))
    return f"INSERT INTO `{db}`.t (id, v) VALUES {values}"


def crash(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str, **fault: Any
) -> list[Marker]:
    """Let a drain die at a point; return the markers of its unfinished batch."""
    fired = tmp_path / f"fired-{point}-{len(pipeline.lines)}"
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": point, "fired": str(fired), **fault}))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    with kafka_clients.ledger(pipeline.cfg) as ledger:
        state = ledger.read()
    assert state is not None and state.plan is not None
    return [m for m in state.markers.values() if m.epoch == state.plan.epoch]


def assert_each_event_once(pipeline: Pipeline, root: Any, db: str) -> None:
    assert_exact(pipeline, root, db)
    ids = Counter(dict(r.headers or ()).get("cdc-id") for r in pipeline.records("t") if r.value)
    assert None not in ids
    created = {payload(r.value)["after"]["id"] for r in pipeline.records("t") if payload(r.value)["op"] == "c"}
    assert created == {i for (i,) in rows(root, f"SELECT id FROM `{db}`.t")}
    assert [i for i, n in ids.items() if n > 1] == []


@pytest.mark.parametrize("nth", [1, 4, 9])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.exhaustive(but="True-9")
def test_a_batch_whose_writers_stand_at_different_places_is_moved(
    pipeline: Pipeline,
    pair: Pair,
    database: str,
    nth: int,
    compressed: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    old = pair.primary.root
    execute(old, f"SET SESSION binlog_transaction_compression={'ON' if compressed else 'OFF'}")
    insert(old, database, 1, 2)
    execute(old, f"ALTER TABLE `{database}`.t ADD w INT DEFAULT 5", bulk(database, 1000))
    execute(old, "FLUSH BINARY LOGS", f"ALTER TABLE `{database}`.t ADD x INT DEFAULT 6")
    execute(old, bulk(database, 2000), bulk(database, 3000))
    execute(old, "SET SESSION binlog_transaction_compression=OFF")
    markers = crash(pipeline, monkeypatch, tmp_path, "writer.after_commit", nth=nth)
    assert any(not m.reached.is_boundary for m in markers) or nth == 9, markers
    pair.switch()
    new = pair.primary.root
    insert(new, database, 5000)
    follow(pipeline, pair)
    pipeline.drain()
    insert(new, database, 5001)
    pipeline.drain()
    assert_each_event_once(pipeline, new, database)
    last = next(e for r in pipeline.records("t") if r.value and (e := payload(r.value)["after"])["id"] == 5001)
    assert list(last) == ["id", "v", "w", "x"]
    assert any("is moved there" in line for line in pipeline.lines)


@pytest.mark.parametrize("point", ["plan.after_store", "failover.before_commit"])
@pytest.mark.exhaustive(but="failover")
def test_a_batch_of_which_nothing_is_committed_is_moved(
    pipeline: Pipeline, pair: Pair, database: str, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(pair.primary.root, bulk(database, 1000))
    assert crash(pipeline, monkeypatch, tmp_path, "plan.after_store") == []
    pair.switch()
    follow(pipeline, pair)
    if point != "plan.after_store":
        crash(pipeline, monkeypatch, tmp_path, point)
    pipeline.drain()
    pipeline.drain()
    assert_each_event_once(pipeline, pair.primary.root, database)


@pytest.mark.exhaustive
def test_a_batch_is_moved_there_and_back(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(pair.primary.root, bulk(database, 1000), bulk(database, 2000))
    crash(pipeline, monkeypatch, tmp_path, "writer.after_commit", nth=2)
    for round_ in range(3):
        pair.switch()
        insert(pair.primary.root, database, round_)
        follow(pipeline, pair)
        if round_ < 2:
            crash(pipeline, monkeypatch, tmp_path, "writer.after_commit", nth=2)
    pipeline.drain()
    pipeline.drain()
    assert_each_event_once(pipeline, pair.primary.root, database)


@pytest.mark.exhaustive
def test_a_verification_behind_a_moved_batch_misses_no_records_and_sees_no_other_order(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Records of one batch have places of two binlogs, and those of the second server are lower."""
    pipeline.properties["skipped.operations"] = "none"
    old = pair.primary.root
    execute(old, *["FLUSH LOCAL BINARY LOGS"] * 5, bulk(database, 1000), bulk(database, 2000))
    crash(pipeline, monkeypatch, tmp_path, "writer.after_commit", nth=3)
    pair.switch()
    new = pair.primary.root
    follow(pipeline, pair)
    execute(new, f"TRUNCATE TABLE `{database}`.t", bulk(database, 1000))
    pipeline.drain()
    pipeline.drain()
    result = pipeline.verify(VerifyRequest(history=True))
    assert result.equal and [dict(table.findings) for table in result.tables] == [{}]


@pytest.mark.exhaustive
def test_a_transaction_that_is_committed_in_part_and_lost_by_the_source_is_refused(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its rows are ghosts: no other server has the transaction."""
    pipeline.properties["drain.writers"] = "1"
    pair.catch_up()
    execute(pair.replica.root, "STOP REPLICA IO_THREAD")
    execute(pair.primary.root, bulk(database, 1000))
    markers = crash(pipeline, monkeypatch, tmp_path, "writer.after_commit")
    assert [m.reached.is_boundary for m in markers] == [False]
    pair.replica.promote()
    pair.primary.detach()
    root = pair.replica.root
    insert(root, database, 1, 2)
    pipeline.properties.update(pair.replica.server.properties())
    error = refused(pipeline)
    assert not error.can_retry and "is committed in part" in error.why
    carry_out(error, pipeline)
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(root, f"SELECT id, v FROM `{database}`.t"))


@pytest.mark.exhaustive
def test_rows_that_the_new_server_divides_differently_are_refused(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The count of row events says nothing there: more rows are in each of them."""
    pair.catch_up()
    replica = pair.replica
    server_id = str(rows(replica.root, "SELECT @@server_id")[0][0])
    replica.root.close()
    replica.server.stop()
    replica.restart(server_id=server_id, binlog_row_event_max_size="65536")
    try:
        execute(pair.primary.root, bulk(database, 1000))
        crash(pipeline, monkeypatch, tmp_path, "writer.after_commit", nth=2)
        pair.switch()
        insert(pair.primary.root, database, 1)
        follow(pipeline, pair)
        with pytest.raises(CdcError, match="has other row events on this server") as caught:
            pipeline.drain()
        assert isinstance(caught.value, ServerChangedError) and "offset=stored" in caught.value.remedy
        reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="stored")
        pipeline.drain()
        have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
        assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.t"))
    finally:
        replica.root.close()
        replica.server.stop()
        replica.restart(server_id=server_id)


def test_the_first_transaction_of_a_file_is_not_passed_over(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A reader comes to it from the file before, at the file's beginning."""
    pipeline.properties["drain.writers"] = "1"
    insert(pair.primary.root, database, 1)
    pair.catch_up()
    execute(pair.replica.root, "FLUSH LOCAL BINARY LOGS")
    execute(pair.primary.root, bulk(database, 1000, 10 * BULK))
    [marker] = crash(pipeline, monkeypatch, tmp_path, "writer.after_commit")
    assert not marker.reached.is_boundary
    pair.switch()
    follow(pipeline, pair)
    pipeline.drain()
    assert_each_event_once(pipeline, pair.primary.root, database)


def test_a_batch_with_a_writer_that_is_done_ends_there(
    pipeline: Pipeline, pair: Pair, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties["commit.bytes"] = "20000000"
    execute(pair.primary.root, bulk(database, 1000))
    markers = crash(pipeline, monkeypatch, tmp_path, "writer.before_commit", writer=1)
    assert [(m.writer, m.done) for m in markers] == [(0, True)]
    pair.switch()
    execute(pair.primary.root, bulk(database, 2000))
    follow(pipeline, pair)
    pipeline.drain()
    pipeline.drain()
    assert_each_event_once(pipeline, pair.primary.root, database)
