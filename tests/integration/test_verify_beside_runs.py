"""A verification that compares while other runs of its stream drain: who sees its driver, who ends it, how it ends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from kit.sql import execute
from kit.verify_reads import before_reading
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import CdcError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate.end_run import driver_running, end_run
from airflow_provider_mysql_cdc.cdc.operate.settle import settle_verification, verification_of_run
from airflow_provider_mysql_cdc.cdc.verify import part_readers
from airflow_provider_mysql_cdc.cdc.verify.report.report_text import report_text
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify

HEARTBEAT_S = 0.5


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    silence = {"source.silence.timeout.ms": str(int(HEARTBEAT_S * 4000)), "snapshot.lock.timeout.ms": "60000"}
    found = Pipeline(properties | silence)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1), (2)")
    found.snapshot()
    return found


def while_comparing(monkeypatch: pytest.MonkeyPatch, then: Any) -> None:
    """Call a function once, when the driver of a verification has begun to compare."""
    calls: list[str] = []

    def call_once(topic: str) -> None:
        calls.append(topic)
        if len(calls) == 1:
            then()

    before_reading(monkeypatch, call_once)


def test_its_driver_is_known_to_run_while_another_run_drains_and_its_verdict_counts(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, seen = replace(pipeline, owner="test/other/task/-1"), list[Any]()

    def drain_and_plan() -> None:
        execute(root, f"INSERT INTO `{database}`.t VALUES (3)")
        seen.append(driver_running(pipeline.cfg, pipeline.owner))
        drained = other.drain()
        seen.append(drained is not None and drained.complete)
        execute(root, f"INSERT INTO `{database}`.t VALUES (4)")
        other.prepare("drain")
        seen.append(driver_running(pipeline.cfg, pipeline.owner))

    while_comparing(monkeypatch, drain_and_plan)
    spec = pipeline.verify_spec()
    run_verify(spec, ThreadRunner(pipeline.slots), pipeline.log)
    assert seen == [True, True, True] and not driver_running(pipeline.cfg, pipeline.owner)
    state = pipeline.store.load()
    assert state is not None and state.pending is not None and state.pending.owner == other.owner
    assert settle_verification(pipeline.cfg, pipeline.store, pipeline.log, spec).complete
    result = verification_of_run(pipeline.cfg, pipeline.owner, spec.run)
    assert result.verdict == "equal" and [verdict.rows for verdict in result.tables] == [2]


def add_larger_table(pipeline: Pipeline, root: Any, database: str) -> None:
    """Add a table of three rows, which is compared behind the one of two."""
    execute(
        root,
        f"CREATE TABLE `{database}`.u (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.u VALUES (1), (2), (3)",
        f"ANALYZE TABLE `{database}`.t, `{database}`.u",
    )
    pipeline.drain()


class Gate(ThreadRunner):
    """Holds the tasks of a batch back until it is opened."""

    def __init__(self) -> None:
        super().__init__(1)
        self.reached, self.open = threading.Event(), threading.Event()

    def run(self, *args: Any, **kwargs: Any) -> list[Any]:
        self.reached.set()
        assert self.open.wait(60)
        return super().run(*args, **kwargs)


@pytest.mark.exhaustive
def test_it_is_ended_from_elsewhere_without_fencing_the_run_that_drains(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, gate, ended = replace(pipeline, owner="test/other/task/-1"), Gate(), list[Any]()

    def drive(spec: JobSpec) -> None:
        try:
            ended.append(run_drain(spec, gate, other.log))
        except CdcError as error:
            ended.append(error)

    def end_it() -> None:
        execute(root, f"INSERT INTO `{database}`.t VALUES (3)")
        thread = threading.Thread(target=drive, args=(other.prepare("drain").spec,))
        thread.start()
        assert gate.reached.wait(60)
        assert end_run(pipeline.cfg, pipeline.owner, pipeline.log)
        gate.open.set()
        thread.join(60)
        time.sleep(3 * HEARTBEAT_S)

    while_comparing(monkeypatch, end_it)
    spec = pipeline.verify_spec()
    with pytest.raises(RunInProgressError, match="lost its lock"):
        run_verify(spec, ThreadRunner(pipeline.slots), pipeline.log)
    assert ended[0][other.table_topic("t")] == 1, ended
    assert len(other.records("t")) == 3
    assert not settle_verification(pipeline.cfg, pipeline.store, pipeline.log, spec).complete, "it wrote no verdict"


@pytest.mark.exhaustive
def test_it_is_ended_from_elsewhere_also_in_its_second_group_and_goes_on_when_it_is_tried_again(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.properties |= {"verify.group.rows": "1"}
    add_larger_table(pipeline, root, database)
    topics: list[str] = []

    def end_in_second_group(topic: str) -> None:
        if topic not in topics:
            topics.append(topic)
            if len(topics) == 2:
                assert end_run(pipeline.cfg, pipeline.owner, pipeline.log)
                time.sleep(3 * HEARTBEAT_S)

    before_reading(monkeypatch, end_in_second_group)
    spec = pipeline.verify_spec()
    with pytest.raises(RunInProgressError, match="lost its lock"):
        run_verify(spec, ThreadRunner(pipeline.slots), pipeline.log)
    assert topics == [pipeline.table_topic("t"), pipeline.table_topic("u")]
    retry = replace(pipeline.verify_spec(), run=spec.run)
    run_verify(retry, ThreadRunner(pipeline.slots), pipeline.log)
    assert "verification: 1 of 2 table(s) were compared by an earlier try" in pipeline.lines
    assert pipeline.verify_result(spec.run).verdict == "equal"


def test_other_runs_drain_between_its_groups(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.properties |= {"verify.group.rows": "1"}
    add_larger_table(pipeline, root, database)
    other = replace(pipeline, owner="test/other/task/-1")

    def change_both() -> None:
        execute(root, f"INSERT INTO `{database}`.t VALUES (8)", f"DELETE FROM `{database}`.u WHERE id = 2")
        assert other.drain() is not None
        execute(root, f"INSERT INTO `{database}`.u VALUES (9)")

    while_comparing(monkeypatch, change_both)
    spec = pipeline.verify_spec()
    run_verify(spec, ThreadRunner(pipeline.slots), pipeline.log)
    assert settle_verification(pipeline.cfg, pipeline.store, pipeline.log, spec).complete
    result = verification_of_run(pipeline.cfg, pipeline.owner, spec.run)
    assert result.verdict == "equal" and {v.table.rpartition(".")[2]: v.rows for v in result.tables} == {"t": 2, "u": 3}
    places = {v.table.rpartition(".")[2]: v.offset for v in result.tables}
    assert places["t"] != places["u"] and result.offset == places["u"]
    report = report_text(result)
    assert "compared at 2 positions from" in report


class Clock:
    """The time, of which no test waits for any."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_it_reads_no_more_rows_per_second_than_it_may(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(properties | {"snapshot.chunk.rows": "40"}, slots=2)
    ids = ", ".join(f"({n})" for n in range(80))
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES {ids}")
    pipeline.snapshot()
    for limit in ("0", "1"):
        clock = Clock()
        monkeypatch.setattr(part_readers, "time", clock)
        pipeline.properties["verify.rows.per.second"] = limit
        assert pipeline.verify().verdict == "equal"
        assert (sum(clock.slept) > 60) is (limit == "1"), f"80 rows in two tasks, at most {limit} a second"


@pytest.mark.parametrize("checksums", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_repair_waits_for_a_drain_that_goes_on_for_a_while_and_settles_what_differs(
    checksums: bool, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain with run_for begins while tables are compared, and drains changes of rows that differ, and of others."""
    name = f"`{database}`.v"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO {name} VALUES " + ",".join(f"({n}, {n})" for n in range(20)))
    pipeline.drain()
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM {name} WHERE id IN (1, 2)")
    execute(root, f"UPDATE {name} SET v = -1 WHERE id IN (3, 4)", f"INSERT INTO {name} VALUES (50, 1), (51, 1)")
    execute(root, "SET sql_log_bin = 1")
    other, threads, errors = replace(pipeline, owner="test/other/task/-1"), list[threading.Thread](), list[CdcError]()

    def drive(spec: JobSpec) -> None:
        try:
            run_drain(spec, ThreadRunner(1), other.log)
        except CdcError as error:
            errors.append(error)

    def begin() -> None:
        execute(root, f"INSERT INTO {name} VALUES (2, 22), (60, 60)", f"UPDATE {name} SET v = 44 WHERE id = 4")
        execute(root, f"UPDATE {name} SET v = 99 WHERE id IN (7, 51)")
        spec = replace(other.prepare("drain").spec, run_for_s=8.0)
        threads.append(threading.Thread(target=drive, args=(spec,)))
        threads[0].start()
        time.sleep(2)
        execute(root, f"UPDATE {name} SET v = 98 WHERE id = 8")

    execute(root, f"INSERT INTO {name} VALUES (70, 70)")
    while_comparing(monkeypatch, begin)
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES, checksums=checksums))
    threads[0].join(60)
    assert errors == [], errors
    assert any("waits for another run" in line for line in pipeline.lines), pipeline.lines[-14:]
    (found,) = [verdict for verdict in result.tables if verdict.table.endswith(".v")]
    assert set(found.findings) <= {Kind.MISSING, Kind.GHOST, Kind.DIFFERING}
    assert found.repaired == {Kind.MISSING: 1, Kind.GHOST: 1, Kind.DIFFERING: 1}, (found, pipeline.lines)
    again = pipeline.verify(VerifyRequest(history=True))
    assert again.equal, again
