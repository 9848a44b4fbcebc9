"""*Snapshot again* beside a stream, on real servers: the operator as it is, its jobs with tasks as threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import AssetAlias
from kit.incremental_rig import FLAT, Writer, check_exact, reads
from kit.records import compacted, payload
from kit.sql import execute, rows
from kit.table_rig import filled, interrupt
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, CdcError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.job.job_error import write_job_error
from airflow_provider_mysql_cdc.cdc.operate import snapshot_again
from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_interrupted
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import capturing_only
from airflow_provider_mysql_cdc.operators import adhoc_snapshot as asking
from airflow_provider_mysql_cdc.operators.asset_events import DEFAULT_ALIAS
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator
from airflow_provider_mysql_cdc.spark.jobs import run_job

pytestmark = [pytest.mark.stack]


class Killed(BaseException):
    """Ends the task's process: nobody can catch it."""


class Again(MySqlCdcSnapshotOperator):
    """The operator with a driver in this process, whose tasks are threads."""

    pipeline: Pipeline
    fired: Path | None = None
    modes: list[str]
    before: Callable[[str], None]

    @classmethod
    def of(cls, pipeline: Pipeline, fired: Path | None = None, **kwargs: Any) -> Again:
        """Return a task for a pipeline; ``fired`` tells that a fault has ended its process."""
        task = cls(**{"task_id": "snapshot", "again": True} | kwargs)
        task.pipeline, task.fired, task.modes, task.before = pipeline, fired, [], lambda mode: None
        return task

    def _config_and_store(self, context: Any) -> Any:
        return self.pipeline.cfg, self.pipeline.store

    def _check_spark(self) -> None:
        pass

    def _submit(self, spec: Any, context: Any) -> AirflowException | None:
        self.modes.append(spec.mode)
        self.before(spec.mode)
        try:
            run_job(spec, ThreadRunner(2), self.pipeline.log)
        except (CdcError, faults.FaultRaised) as error:
            if self.fired is not None and self.fired.exists():
                raise Killed from error
            if isinstance(error, CdcError):
                write_job_error(spec, error, self.pipeline.log)
            return AirflowException(f"{type(error).__name__}: {error}")
        return None

    def go(self) -> dict[str, Any]:
        """Carry the task out, or a further try of it."""
        ti = SimpleNamespace(
            dag_id="mysql_cdc_snapshot", run_id="r", task_id="snapshot", map_index=-1, max_tries=0, task=self
        )
        events = SimpleNamespace(asset_alias_events=[], add=lambda *_, **__: None)
        return self.execute({"ti": ti, "outlet_events": {AssetAlias(DEFAULT_ALIAS): events}})


@pytest.fixture
def stream(properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Return a stream of three tables, one of them without a key, which stands behind its first snapshot."""
    monkeypatch.setattr(asking, "LEDGER_POLL_S", 0.05)
    pipeline = Pipeline(properties | FLAT)
    keyless = [f"CREATE TABLE `{database}`.c (a INT)", f"INSERT INTO `{database}`.c VALUES (1), (1), (2)"]
    execute(root, *filled(database, "a", "b", count=60), *keyless)
    pipeline.snapshot()
    return pipeline


def undrained(root: Any, database: str) -> None:
    """Change what nobody has drained: three rows of ``b``, and a row of ``a`` that goes."""
    execute(
        root,
        f"UPDATE `{database}`.b SET v = 7 WHERE id < 3",
        f"DELETE FROM `{database}`.a WHERE id = 3",
        f"INSERT INTO `{database}`.a VALUES (1000, 0)",
    )


def told(pipeline: Pipeline, table: str, op: str) -> list[Any]:
    """Return the rows of the events of one kind."""
    values = [payload(record.value) for record in pipeline.records(table)]
    return [value["after"] or value["before"] for value in values if value and value["op"] == op]


@pytest.mark.parametrize("tables", [("a",), ()], ids=["some", "all"])
@pytest.mark.req("SNAP-47")
@pytest.mark.halves
def test_the_stream_passes_nothing_over_while_a_writer_goes_on(
    stream: Pipeline, root: Any, database: str, stack: Any, tables: Sequence[str]
) -> None:
    undrained(root, database)
    writer = Writer(stack, database, ["a", "b"], 70, seed=11)
    task = Again.of(stream, tables=[rf"{database}\.{table}" for table in tables])
    writer.start()
    try:
        result = task.go()
    finally:
        writer.stop()
    assert writer.changes > 0 and set(task.modes) == {"drain"}
    wanted = {f"{database}.{table}" for table in tables or "abc"}
    assert (result["state"], set(result["rows"]), result["complete"]) == ("done", wanted, True)
    stored = stream.store.load()
    assert stored is not None and stored.committed is not None and result["offset"] == stored.committed.to_json()
    # Before anything else is drained: changes of the other table, and the row that went in the gap.
    assert [row for row in told(stream, "b", "u") if row["v"] == 7][:3] == [{"id": i, "v": 7} for i in range(3)]
    assert {"id": 3, "v": 0} in told(stream, "a", "d")
    stream.drain()
    for table in ("a", "b"):
        check_exact(stream, root, table)
        again = reads(stream, table, "true")  # the first snapshot read sixty
        assert (again.total() > 60) == (f"{database}.{table}" in wanted)
    assert len(told(stream, "c", "r")) == 3 + 3 * ("c" in (tables or "abc"))


PARTS = [
    ("writer.before_commit", 1),  # in the drain that brings the stream to its end
    ("incremental.view_open", 1),  # between the drain and the tables
    ("incremental.after_commit", 2),  # in the middle of the tables
    ("airflow.before_commit", 1),  # all is in Kafka, nobody has said so
]


@pytest.mark.parametrize(("point", "nth"), PARTS, ids=[point for point, _ in PARTS])
@pytest.mark.halves
def test_a_task_that_is_killed_between_the_parts_goes_on_with_them(
    stream: Pipeline,
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    point: str,
    nth: int,
) -> None:
    undrained(root, database)
    fired = tmp_path / "fired"
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": point, "action": "raise", "nth": nth, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises((Killed, faults.FaultRaised)):
        Again.of(stream, fired, tables=[f"{database}.a"]).go()
    assert fired.exists()
    execute(root, f"DELETE FROM `{database}`.a WHERE id = 5", f"UPDATE `{database}`.b SET v = 8 WHERE id = 9")
    assert Again.of(stream, tables=[f"{database}.a"]).go()["state"] == "done"
    assert {"id": 9, "v": 8} in told(stream, "b", "u") or stream.drain() is not None
    assert [row for row in told(stream, "b", "u") if row["v"] == 7] == [{"id": i, "v": 7} for i in range(3)]
    stream.drain()
    for table in ("a", "b"):
        check_exact(stream, root, table)
    # Its first and last row have other marks; row 5 was there when it was read, or not.
    assert max(reads(stream, "a", "true").values()) == 2 and reads(stream, "a", "true").total() in (115, 116)


def test_a_scheduled_drain_gives_way_meanwhile(
    stream: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    seen: list[Any] = []

    def drain_beside(name: str, writer: int | None = None) -> None:
        if name == "incremental.stretch_read":
            seen.append(prepare_drain(stream.cfg, stream.store, "drain/r/drain/-1", lines.append, give_way=True))

    undrained(root, database)
    monkeypatch.setattr(faults, "fault_point", drain_beside)
    assert Again.of(stream).go()["state"] == "done"
    assert seen and set(seen) == {None}
    assert len(lines) == len(seen) and all(line.startswith("this drain gives way: ") for line in lines)


def test_it_waits_while_another_run_is_at_work(stream: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, real = [RunInProgressError("another run is at work")], snapshot_again.reconcile_store

    def synchronise(*arguments: Any) -> Any:
        if busy:
            raise busy.pop()
        return real(*arguments)

    monkeypatch.setattr(snapshot_again, "reconcile_store", synchronise)
    assert Again.of(stream).go()["state"] == "done"


def test_lists_that_leave_out_tables_of_the_stream_are_refused(stream: Pipeline, root: Any, database: str) -> None:
    """As properties of the task they would decide what the drain before the snapshot passes over."""
    undrained(root, database)
    before = stream.store.load()
    stream.properties["table.include.list"] = rf"{database}\.a"
    task = Again.of(stream)
    with pytest.raises(AirflowFailException, match=f"table.include.list.*changes of {database}.b, {database}.c would"):
        task.go()
    assert task.modes == [] and stream.store.load() == before
    stream.drain()  # a person decides that they leave the stream
    assert Again.of(stream).go()["rows"].keys() == {f"{database}.a"}


def test_tables_that_the_stream_does_not_capture_are_refused(stream: Pipeline, database: str) -> None:
    task = Again.of(stream, tables=[f"{database}.other"])
    with pytest.raises(AirflowFailException, match=rf"no captured table is chosen \[tables: {database}.other\]"):
        task.go()
    assert task.modes == []


def test_without_watermarks_the_drain_comes_first_and_changes_after_it_are_not_skipped(
    stream: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without GTIDs and without a signal table."""
    monkeypatch.setattr(snapshot_again, "watermark_obstacle", lambda conn, cfg: "there is no signal table")
    undrained(root, database)
    task = Again.of(stream, tables=[f"{database}.a"])
    task.before = lambda mode: execute(root, f"DELETE FROM `{database}`.b WHERE id = 9") if mode == "snapshot" else None
    with pytest.raises(AirflowFailException, match="skip changes that are not drained"):
        task.go()
    assert task.modes == ["drain", "snapshot"]
    quiet = Again.of(stream, tables=[f"{database}.a"])
    assert quiet.go()["complete"] is True and quiet.modes == ["drain", "snapshot"]
    execute(root, f"UPDATE `{database}`.a SET v = v + 1")
    stream.drain()
    for table in ("a", "b"):
        found = {v["id"]: v["v"] for v in compacted(stream.records(table)).values()}
        assert found == dict(rows(root, f"SELECT id, v FROM `{database}`.{table}"))


def test_where_changes_are_lost_all_tables_are_read(
    stream: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The binlog behind the offset was purged: changes of all tables are gone, so a part of them is not enough."""

    def gone(conn: Any, settings: Any, offset: Any) -> Any:
        raise BinlogPurgedError("the binlog no longer holds the start position", where=str(offset))

    undrained(root, database)
    monkeypatch.setattr(snapshot_again, "check_available", gone)
    with pytest.raises(AirflowFailException, match=rf"not chosen: {database}.b, {database}.c"):
        Again.of(stream, tables=[f"{database}.a"]).go()
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot.check_available", gone)
    task = Again.of(stream)
    assert task.go()["complete"] is True and task.modes == ["snapshot"]
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot.check_available", check_available)


def test_a_mode_that_takes_a_snapshot_each_time_keeps_the_stream_as_well(
    stream: Pipeline, root: Any, database: str
) -> None:
    undrained(root, database)
    stream.properties["snapshot.mode"] = "always"
    task = Again.of(stream, again=False)
    assert task.go()["state"] == "done" and task.modes == ["drain"]
    check_exact(stream, root, "a")
    check_exact(stream, root, "b")


@pytest.mark.parametrize("first", [(), ("a",)], ids=["all tables first", "some tables first"])
@pytest.mark.req("SNAP-14", "SNAP-47")
def test_the_drains_that_finish_an_interrupted_snapshot_capture_all_tables(
    properties: dict[str, str],
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    first: Sequence[str],
) -> None:
    monkeypatch.setattr(asking, "LEDGER_POLL_S", 0.05)
    pipeline = Pipeline(properties | FLAT | {"snapshot.chunk.rows": "10"})
    execute(root, *filled(database, "a", "b", count=60), f"CREATE TABLE `{database}`.c (id INT PRIMARY KEY, v INT)")
    tables = [f"{database}.{table}" for table in first]
    chosen = capturing_only(pipeline.cfg, tables).properties()
    interrupt(Pipeline(chosen, pipeline.store, owner=pipeline.owner), monkeypatch, tmp_path / "fired")
    execute(root, f"INSERT INTO `{database}`.c VALUES (1, 1)", f"UPDATE `{database}`.a SET v = 7 WHERE id = 3")
    if not first:  # the stream takes it over, and another task of the DAG names other tables
        handed_over = finish_interrupted(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
        assert handed_over == "snapshot-1"
        tables = [f"{database}.b"]
    assert Again.of(pipeline, again=False, tables=tables).go()["state"] == "done"
    assert Again.of(pipeline, again=False, tables=tables).go()["complete"]
    pipeline.drain()
    check_exact(pipeline, root, "a")
    assert told(pipeline, "c", "c") == [{"id": 1, "v": 1}]
    if not first:
        check_exact(pipeline, root, "b")
