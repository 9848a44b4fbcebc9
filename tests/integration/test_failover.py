"""The stream goes on at another server whose GTIDs continue the stored set."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from kit.failover_rig import assert_exact, carry_out, committed, follow, insert, refused
from kit.private_mysql import Pool
from kit.records import compacted, payload
from kit.replication import Node, Pair
from kit.sql import execute, purge, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError, StateError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.schema.history import read_history
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with a table of five rows, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO `{database}`.t VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a'), (5, 'a')",
    )


@pytest.fixture
def pipeline(pair: Pair, properties: dict[str, str]) -> Pipeline:
    """Return a stream with a snapshot of the primary, and a batch behind it."""
    made = Pipeline(properties | pair.primary.server.properties() | FLAT)
    made.snapshot()
    insert(pair.primary.root, properties["database.include.list"], 10)
    made.drain()
    return made


@pytest.mark.req("STRM-05", "FAULT-07", "SETUP-29")
def test_a_planned_switchover_back_and_forth_loses_and_repeats_nothing(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    for round_ in range(3):
        insert(pair.primary.root, database, *range(100 * round_ + 100, 100 * round_ + 110))
        pair.switch()
        insert(pair.primary.root, database, *range(100 * round_ + 120, 100 * round_ + 130))
        follow(pipeline, pair)
        pipeline.drain()
        assert committed(pipeline).server_uuid == pair.primary.uuid
    lines = [line for line in pipeline.lines if "goes on at server" in line]
    assert len(lines) == 3, pipeline.lines
    assert_exact(pipeline, pair.primary.root, database)


def test_schema_changes_around_the_change_of_servers_are_followed(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    before = pair.primary.root
    execute(before, f"ALTER TABLE `{database}`.t ADD w INT DEFAULT 7 AFTER id")
    insert(before, database, 20)
    pipeline.drain()
    insert(before, database, 21)
    execute(before, f"ALTER TABLE `{database}`.t ADD x VARCHAR(9) DEFAULT 'y' FIRST")
    insert(before, database, 22)
    pair.switch()
    after = pair.primary.root
    insert(after, database, 23)
    execute(after, f"ALTER TABLE `{database}`.t DROP w")
    insert(after, database, 24)
    follow(pipeline, pair)
    pipeline.drain()
    images = {payload(r.value)["after"]["id"]: list(payload(r.value)["after"]) for r in pipeline.records("t")}
    assert images[21] == ["id", "w", "v"] and images[22] == images[23] == ["x", "id", "w", "v"]
    assert images[24] == ["x", "id", "v"]
    insert(after, database, 25)
    pipeline.drain()
    assert list(payload(pipeline.records("t")[-1].value)["after"]) == ["x", "id", "v"]
    pair.switch()
    insert(pair.primary.root, database, 26)
    follow(pipeline, pair)
    pipeline.drain()
    assert payload(pipeline.records("t")[-1].value)["after"] == {"x": "y", "id": 26, "v": "row 26"}


@pytest.mark.req("SETUP-31")
@pytest.mark.days("even")
def test_transactions_that_the_new_server_lost_are_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    pair.catch_up()
    execute(pair.replica.root, "STOP REPLICA IO_THREAD")
    insert(pair.primary.root, database, 30, 31)
    execute(pair.primary.root, f"UPDATE `{database}`.t SET v = 'lost' WHERE id = 1")
    pipeline.drain()
    pipeline.properties.update(pair.replica.server.properties())
    behind = refused(pipeline)
    assert behind.can_retry and "gtid_executed lacks" in behind.why and "executed them" in behind.remedy
    pair.replica.promote()
    pair.primary.detach()
    insert(pair.replica.root, database, 40)
    lost = refused(pipeline)
    assert not lost.can_retry and f"{pair.primary.uuid}:" in lost.why
    carry_out(lost, pipeline)
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(pair.replica.root, f"SELECT id, v FROM `{database}`.t"))
    assert 30 not in have and have[1] == "a" and have[40] == "row 40"


def test_a_replica_that_catches_up_in_time_is_no_refusal(pipeline: Pipeline, pair: Pair, database: str) -> None:
    execute(pair.replica.root, "STOP REPLICA SQL_THREAD")
    insert(pair.primary.root, database, 50)
    pipeline.drain()
    pipeline.properties.update(pair.replica.server.properties())
    with pair.replica.server.connect() as other:
        starting = threading.Timer(1.5, lambda: execute(other, "START REPLICA SQL_THREAD"))
        starting.start()
        pipeline.drain()
        starting.join()
    assert_exact(pipeline, pair.replica.root, database)


@pytest.mark.days("odd")
def test_purged_transactions_that_were_not_read_are_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    insert(pair.primary.root, database, 60, 61)
    pair.catch_up()
    pair.switch()
    root = pair.primary.root
    purge(root)
    insert(root, database, 62)
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and "has purged" in error.why
    carry_out(error, pipeline)
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(root, f"SELECT id, v FROM `{database}`.t"))


@pytest.mark.days("even")
def test_errant_transactions_before_drained_ones_are_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    pair.catch_up()
    execute(pair.replica.root, "SET GLOBAL super_read_only=OFF")
    insert(pair.replica.root, database, 70, 71)
    execute(pair.replica.root, "FLUSH BINARY LOGS")
    insert(pair.primary.root, database, 72)
    pair.catch_up()
    pipeline.drain()
    pair.switch()
    insert(pair.primary.root, database, 73)
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and f"{pair.primary.uuid}:1-2" in error.why
    carry_out(error, pipeline)
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.t"))
    assert {70, 71, 72, 73} <= set(have)


def test_errant_transactions_that_change_no_captured_table_do_not_matter(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    root = pair.replica.root
    execute(pair.primary.root, "CREATE DATABASE aside", "CREATE TABLE aside.t (id INT)")
    pair.catch_up()
    execute(root, "SET GLOBAL super_read_only=OFF", "INSERT INTO aside.t VALUES (1)", "FLUSH STATUS")
    insert(pair.primary.root, database, 68)
    pair.catch_up()
    execute(root, "ANALYZE TABLE aside.t", "FLUSH BINARY LOGS")
    insert(pair.primary.root, database, 69)
    pipeline.drain()
    pair.switch()
    insert(pair.primary.root, database, 70)
    follow(pipeline, pair)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)
    assert [line for line in pipeline.lines if f"{pair.primary.uuid}:1-3, which change no captured table" in line]
    assert f"{pair.primary.uuid}:1-4" in str(committed(pipeline).gtids)


def lend(root: Any, gtid: str, *statements: str) -> None:
    """Execute a transaction under a GTID of another server."""
    execute(root, f"SET gtid_next='{gtid}'", *statements, "SET gtid_next='AUTOMATIC'")


SKIPPED = (71, 73, 74, 75)


def skip_on_replica(pipeline: Pipeline, pair: Pair, database: str, *, purged: bool) -> str:
    """Skip INSERTs of four rows on the replica, drain them and a later one, and return their GTIDs."""
    root = pair.replica.root
    execute(pair.primary.root, "CREATE DATABASE elsewhere", "CREATE TABLE elsewhere.t (id INT)")
    pair.catch_up()
    execute(root, "STOP REPLICA", "SET GLOBAL super_read_only=OFF")
    insert(pair.primary.root, database, *SKIPPED)
    last = int(pair.primary.gtids.rpartition("-")[2])
    in_their_place = (("BEGIN", "COMMIT"), ("FLUSH PRIVILEGES",), ("INSERT INTO elsewhere.t VALUES (1)",))
    for number, statements in enumerate(in_their_place, last - 3):
        lend(root, f"{pair.primary.uuid}:{number}", *statements)
    if purged:
        execute(root, f"SET GLOBAL gtid_purged='+{pair.primary.uuid}:{last}'")
    else:
        lend(root, f"{pair.primary.uuid}:{last}", "FLUSH STATUS")
    execute(root, "FLUSH BINARY LOGS", "START REPLICA")
    skipped = f"{pair.primary.uuid}:{last - 3}-{last}"
    insert(pair.primary.root, database, 76)
    pipeline.drain()
    return skipped


@pytest.mark.days("odd")
def test_a_transaction_that_was_skipped_on_the_replica_is_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    """By one under its GTID without its changes, in an earlier file; the one that was read last is there."""
    skipped = skip_on_replica(pipeline, pair, database, purged=True)
    pair.switch()
    insert(pair.primary.root, database, 77)
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and skipped in error.why and "empty" in error.why
    carry_out(error, pipeline)
    pipeline.drain()
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.t")) and {76, 77} <= set(have)
    assert not {*SKIPPED} & set(have)


@pytest.mark.days("even")
def test_transactions_that_a_former_filter_has_left_out_on_the_replica_are_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    pair.catch_up()
    for listed, row in ((f"`{database}`.t", 75), ("", 76)):
        execute(pair.replica.root, "STOP REPLICA", f"CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE=({listed})")
        execute(pair.replica.root, "START REPLICA")
        insert(pair.primary.root, database, row)
        pair.catch_up()
    left_out = f"{pair.primary.uuid}:{int(pair.primary.gtids.rpartition('-')[2]) - 1}"
    pipeline.drain()
    pair.switch()
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and f"has replicated {left_out} as empty" in error.why
    carry_out(error, pipeline)
    ids = {r["id"] for r in compacted(pipeline.records("t")).values() if r}
    assert 76 in ids and 75 not in ids


def test_statements_of_other_tables_that_a_replica_has_as_empty_transactions_do_not_matter(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    root = pair.primary.root
    execute(root, "CREATE DATABASE aside", "CREATE TABLE aside.t (id INT)")
    for binlog_format in ("STATEMENT", "MIXED"):
        execute(root, f"SET SESSION binlog_format='{binlog_format}'", "UPDATE aside.t SET id = 5 WHERE id = 99")
        execute(root, "CREATE TEMPORARY TABLE aside.x (id INT)", "INSERT INTO aside.x VALUES (1)")
        execute(root, "DROP TEMPORARY TABLE aside.x", "BEGIN", "DELETE FROM aside.t WHERE id = 98", "COMMIT")
    execute(root, "SET SESSION binlog_format='ROW'")
    insert(root, database, 65)
    pipeline.drain()
    assert committed(pipeline).read_as_text is not None
    pair.switch()
    follow(pipeline, pair)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)


@pytest.mark.exhaustive
def test_a_transaction_that_was_skipped_on_a_server_in_between_is_refused(
    pipeline: Pipeline, pair: Pair, pool: Pool, database: str
) -> None:
    """The server to which the stream moves has the empty one from the server on which it was made."""
    skipped = skip_on_replica(pipeline, pair, database, purged=False)
    pair.catch_up()
    with pool.lent(server_id="13") as server:
        last = Node(server)
        last.follow(pair.replica)
        last.catch_up(pair.primary.gtids)
        last.promote()
        pipeline.properties.update(server.properties())
        error = refused(pipeline)
        assert skipped in error.why and "empty" in error.why
        carry_out(error, pipeline)
        assert 74 not in {r["id"] for r in compacted(pipeline.records("t")).values() if r}


@pytest.mark.days("even")
def test_an_errant_transaction_that_was_read_as_an_empty_one_is_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    """It was settled by an empty one on the primary, a statement, a row, or in gtid_purged; the replica is promoted."""
    replica, primary = pair.replica, pair.primary
    execute(primary.root, "CREATE DATABASE aside", "CREATE TABLE aside.t (id INT)", "INSERT INTO aside.t VALUES (0)")
    pair.catch_up()
    execute(replica.root, "SET GLOBAL super_read_only=OFF")
    insert(replica.root, database, 78)
    errant = f"{replica.uuid}:1:3-7"
    execute(replica.root, "CREATE DATABASE elsewhere")
    insert(replica.root, database, 82, 83, 84, 85, 86)
    for number, *statements in (
        (1, "BEGIN", "COMMIT"),
        (2, "BEGIN", "COMMIT"),
        (4, "FLUSH PRIVILEGES"),
        (5, f"DROP TABLE IF EXISTS `{database}`.nothing"),
        (6, "CREATE DATABASE IF NOT EXISTS elsewhere"),
        (7, "INSERT INTO aside.t VALUES (1)"),
    ):
        lend(primary.root, f"{replica.uuid}:{number}", *statements)
    execute(primary.root, f"SET GLOBAL gtid_purged='+{replica.uuid}:3'")
    insert(primary.root, database, 79)
    pipeline.drain()
    insert(primary.root, database, 80)
    pipeline.drain()
    for node in (replica, primary):
        execute(node.root, "FLUSH BINARY LOGS")
    pair.switch()
    insert(pair.primary.root, database, 81)
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and errant in error.why and "empty" in error.why and f"{database}.t" in error.why
    carry_out(error, pipeline)
    pipeline.drain()
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.t")) and {78, 79, 80, 81} <= set(have)


@pytest.mark.days("odd")
def test_an_errant_transaction_that_was_read_as_an_empty_one_and_is_purged_is_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    """Those of other servers are looked up where the stream goes on next; the former primary lacks the row."""
    replica, primary, third = pair.replica, pair.primary, "33333333-3333-3333-3333-333333333333"
    pair.catch_up()
    execute(replica.root, "SET GLOBAL super_read_only=OFF")
    insert(replica.root, database, 78)
    lend(primary.root, f"{replica.uuid}:1", "FLUSH PRIVILEGES")
    lend(primary.root, f"{third}:1", "BEGIN", "COMMIT")
    pipeline.drain()
    pair.switch()
    purge(replica.root)
    follow(pipeline, pair)
    error = refused(pipeline)
    assert not error.can_retry and f"has executed {replica.uuid}:1 itself and purged" in error.why
    carry_out(error, pipeline)
    assert committed(pipeline).read_empty == f"{third}:1"
    assert 78 in {r["id"] for r in compacted(pipeline.records("t")).values() if r}
    pair.switch()
    follow(pipeline, pair)
    error = refused(pipeline)
    assert f"has executed {replica.uuid}:1 as" in error.why
    carry_out(error, pipeline)
    assert 78 not in {r["id"] for r in compacted(pipeline.records("t")).values() if r}


def test_what_is_added_to_gtid_purged_during_a_run_is_remembered(pipeline: Pipeline, pair: Pair, database: str) -> None:
    root, added = pair.primary.root, "33333333-3333-3333-3333-333333333333:7"
    insert(root, database, 86)
    job = prepare_drain(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, run_for_s=2)
    assert job is not None

    def change() -> None:
        execute(root, f"SET GLOBAL gtid_purged='+{added}'")
        insert(root, database, 87)

    timer = threading.Timer(1, change)
    timer.start()
    run_drain(job.spec, ThreadRunner(pipeline.slots), pipeline.log)
    timer.join()
    pipeline.settle()
    reached = committed(pipeline)
    assert reached.gtids is not None and added in reached.gtids and reached.read_empty == added
    assert len([line for line in pipeline.lines if f"WARNING: {added} was added to gtid_purged" in line]) == 1


def test_a_server_without_gtids_is_refused(pipeline: Pipeline, pair: Pair, database: str) -> None:
    pair.catch_up()
    pair.replica.promote()
    root = pair.replica.root
    execute(root, *(f"SET GLOBAL gtid_mode={mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")))
    try:
        pipeline.properties.update(pair.replica.server.properties())
        error = refused(pipeline)
        assert "gtid_mode is OFF" in error.why
        insert(root, database, 80)
        pipeline.snapshot(again=True)
        pipeline.verify(VerifyRequest(repair=RepairMode.YES))
        assert pipeline.verify().equal
    finally:
        execute(root, *(f"SET GLOBAL gtid_mode={mode}" for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")))


def test_a_snapshot_again_behind_another_server_skips_nothing(pipeline: Pipeline, pair: Pair, database: str) -> None:
    insert(pair.primary.root, database, 90)
    pair.switch()
    insert(pair.primary.root, database, 91)
    follow(pipeline, pair)
    with pytest.raises(StateError, match="would skip changes"):
        pipeline.snapshot(again=True)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)
    pipeline.snapshot(again=True)
    insert(pair.primary.root, database, 92)
    pipeline.drain()
    assert pipeline.verify().equal


def test_a_server_that_changes_between_the_plan_and_its_driver_is_a_retry(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    insert(pair.primary.root, database, 95)
    job = pipeline.prepare("drain")
    pair.switch()
    follow(pipeline, pair)
    moved = replace(job.spec, properties=pipeline.cfg.properties())
    with pytest.raises(ServerChangedError) as caught:
        run_drain(moved, ThreadRunner(3), pipeline.log)
    assert caught.value.can_retry


@pytest.mark.parametrize("to", ["earliest", "file:position", "current"])
@pytest.mark.exhaustive(but="file")
def test_an_offset_that_a_person_has_set_survives_a_change_of_servers(
    pipeline: Pipeline, pair: Pair, database: str, to: str
) -> None:
    root = pair.primary.root
    insert(root, database, 200)
    if to == "file:position":
        status = rows(root, "SHOW BINARY LOG STATUS")[0]
        to = f"{status[0]}:{status[1]}"
    if to == "earliest":
        purge(root)
    before = len(pipeline.records("t"))
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)
    insert(root, database, 201)
    pair.switch()
    insert(pair.primary.root, database, 202)
    follow(pipeline, pair)
    pipeline.drain()
    assert [payload(r.value)["after"]["id"] for r in pipeline.records("t")[before:]] == [201, 202]


@pytest.mark.exhaustive
def test_a_second_attempt_copies_the_history_once(pipeline: Pipeline, pair: Pair, database: str) -> None:
    """A copy behind a statement of the batch would hide it."""
    pair.switch()
    root = pair.primary.root
    follow(pipeline, pair)
    insert(root, database, 97)
    execute(root, f"ALTER TABLE `{database}`.t ADD z INT DEFAULT 3")
    insert(root, database, 98)
    job = pipeline.prepare("drain")
    run_drain(job.spec, ThreadRunner(3), pipeline.log)
    run_drain(job.spec, ThreadRunner(3), pipeline.log)
    pipeline.settle()
    insert(root, database, 99)
    pipeline.drain()
    assert payload(pipeline.records("t")[-1].value)["after"] == {"id": 99, "v": "row 99", "z": 3}
    firsts = [r for r in read_history(pipeline.cfg) if r.carried_from and r.starts_description]
    assert len(firsts) == 1
