"""What a snapshot must not do: outlive a Kafka transaction, move a stream past changes, promise a view it has not."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.snapshot import consistent_view as view
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
}


@pytest.fixture
def two(root: Any, database: str, pipeline: Pipeline) -> Pipeline:
    """Return a stream of two tables that stands at the end."""
    execute(root, f"USE `{database}`", *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)" for t in ("a", "b")))
    execute(root, *(f"INSERT INTO {t} VALUES (1, 1), (2, 2), (3, 3)" for t in ("a", "b")))
    assert pipeline.snapshot().complete
    return pipeline


def test_a_slow_table_without_a_key_does_not_outlive_the_transaction(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    """Rows come one by one for 30 s; Kafka aborts a transaction of 10 s within 10 s more."""
    pipeline.properties |= {
        "transaction.timeout.ms": "10000",
        "commit.interval.ms": "5000",
        "snapshot.select.statement.overrides": f"{database}.slow",
        f"snapshot.select.statement.overrides.{database}.slow": f"SELECT a, b, SLEEP(0.6) AS s FROM `{database}`.slow",
    }
    values = ",".join(f"({i}, REPEAT('x', 20000))" for i in range(50))
    execute(
        root, f"CREATE TABLE `{database}`.slow (a INT, b MEDIUMTEXT)", f"INSERT INTO `{database}`.slow VALUES {values}"
    )
    assert pipeline.snapshot().complete
    records = pipeline.records("slow")
    assert sorted(payload(r.value)["after"]["a"] for r in records) == list(range(50))
    assert duplicates(records) == []


# -- snapshot again ----------------------------------------------------------------------------------------------------

UNDRAINED = {
    "deleted": "DELETE FROM a WHERE id = 2",
    "of another table": "INSERT INTO b VALUES (4, 4)",
    "altered": "ALTER TABLE b ADD COLUMN w INT",
    "truncated": "TRUNCATE TABLE b",
}


@pytest.mark.parametrize("what", UNDRAINED)
@pytest.mark.exhaustive(but="altered")
def test_a_new_snapshot_does_not_move_the_stream_past_what_is_not_drained(
    what: str, two: Pipeline, root: Any, database: str
) -> None:
    """Also when only some tables are chosen for it."""
    execute(root, UNDRAINED[what])
    before, counts = two.store.load(), {t: len(two.read(t)) for t in two.topics()}
    two.properties["table.include.list"] = rf"{database}\.a"
    with pytest.raises(StateError, match="not drained") as caught:
        two.snapshot(again=True)
    assert not caught.value.can_retry and "mysql_cdc_reset_offset" in caught.value.remedy
    after = two.store.load()
    assert before is not None and after is not None and after.committed == before.committed and after.pending is None
    assert counts == {t: len(two.read(t)) for t in two.topics()}
    del two.properties["table.include.list"]
    assert two.drain() is not None
    assert two.snapshot(again=True).complete
    execute(root, "UPDATE a SET v = 9")
    two.drain()
    assert [(r["id"], r["v"]) for r in compacted(two.records("a")).values()] == [*rows(root, "SELECT id, v FROM a")]


def test_a_change_between_plan_and_view_is_found_and_the_drain_takes_over(
    two: Pipeline, root: Any, database: str
) -> None:
    job = prepare_snapshot(two.cfg, two.store, two.owner, two.log, again=True)
    assert job is not None and job.plan.gapless
    execute(root, "DELETE FROM b WHERE id = 1")
    with pytest.raises(StateError, match="not drained"):
        snapshot_driver.run_snapshot(job.spec, ThreadRunner(2), two.log)
    two.settle()
    assert two.drain() is not None
    assert any("is discarded" in line for line in two.lines)
    assert [payload(r.value) and payload(r.value)["op"] for r in two.records("b")] == ["r", "r", "r", "d", None]
    assert two.snapshot(again=True).complete


@pytest.mark.parametrize("by", ["the drain", "a person"])
@pytest.mark.exhaustive(but="drain")
def test_a_reset_that_keeps_the_offset_leaves_nothing_out(two: Pipeline, root: Any, database: str, by: str) -> None:
    if by == "the drain":
        job = prepare_snapshot(two.cfg, two.store, two.owner, two.log, again=True)
        assert job is not None and job.plan.gapless, "its driver dies before it does anything"
        assert two.drain() is None and any("is discarded" in line for line in two.lines)
    else:
        reset_offset(two.cfg, two.store, "someone/else/0/-1", two.log, to="stored")
    execute(root, "DELETE FROM b WHERE id = 1")
    with pytest.raises(StateError, match="not drained"):
        two.snapshot(again=True)
    assert two.drain() is not None
    assert [payload(r.value) and payload(r.value)["op"] for r in two.records("b")] == ["r", "r", "r", "d", None]
    assert two.snapshot(again=True).complete
    assert [(r["id"], r["v"]) for r in compacted(two.records("b")).values()] == [*rows(root, "SELECT id, v FROM b")]


def test_a_person_may_decide_to_leave_changes_out(two: Pipeline, root: Any) -> None:
    execute(root, "DELETE FROM a WHERE id = 1")
    reset_offset(two.cfg, two.store, "someone/else/0/-1", two.log, to="current")
    execute(root, "INSERT INTO a VALUES (4, 4)")
    assert two.snapshot(again=True).complete
    assert any("set by hand" in line for line in two.lines)


def test_an_interrupted_snapshot_of_a_running_stream_keeps_no_row_that_is_gone(
    two: Pipeline, root: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were told of before, and that went between the two views of the new snapshot."""
    execute(root, "INSERT INTO a SELECT id + 10, v FROM a", "INSERT INTO b SELECT id + 10, v FROM b")
    two.drain()
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.after_chunk", "action": "raise", "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = prepare_snapshot(two.cfg, two.store, two.owner, two.log, again=True)
    assert job is not None
    with pytest.raises(faults.FaultRaised):
        snapshot_driver.run_snapshot(job.spec, ThreadRunner(1), two.log)
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    for table in "ab":
        execute(root, f"DELETE FROM {table} WHERE id = 1", f"UPDATE {table} SET v = 5 WHERE id = 2")
    assert two.snapshot().complete
    two.drain()
    for table in "ab":
        found = sorted((r["id"], r["v"]) for r in compacted(two.records(table)).values())
        assert found == sorted(rows(root, f"SELECT id, v FROM {table}"))


# -- no lock -----------------------------------------------------------------------------------------------------------


def test_a_view_without_a_lock_says_when_it_is_not_exact_and_loses_nothing(
    two: Pipeline, root: Any, stack: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.properties |= {"topic.prefix": two.properties["topic.prefix"] + "n", "snapshot.locking.mode": "none"}
    two.store = type(two.store)()
    monkeypatch.setattr(view, "OPTIMISTIC_TRIES", 1)
    stop, settled = threading.Event(), view.wait_for_visible_offset

    def connected() -> Any:
        return pymysql.connect(
            host=stack.mysql_host,
            port=stack.mysql_port,
            user=stack.root_user,
            password=stack.root_password,
            ssl_disabled=True,
        )

    def changed_behind(conn: Any, wait_s: float) -> Any:
        found = settled(conn, wait_s)
        with connected() as other:
            execute(other, f"REPLACE INTO `{database}`.a VALUES (51, 1)")
            other.commit()
        return found

    monkeypatch.setattr(view, "wait_for_visible_offset", changed_behind)

    def work() -> None:
        with connected() as conn:
            number = 0
            while not stop.is_set():
                number += 1
                execute(conn, f"REPLACE INTO `{database}`.a VALUES ({number % 50}, {number})")
                conn.commit()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert two.snapshot().complete
    finally:
        stop.set()
        worker.join()
    assert any("keys show older states" in line for line in two.lines)
    two.drain()
    found = {r["id"]: r["v"] for r in compacted(two.records("a")).values()}
    assert found == dict(rows(root, "SELECT id, v FROM a"))
