"""Slow, pausing, breaking and silent networks: a bad one fails no writer, a dead one is named in bounded time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.incremental_rig import ask_for, books
from kit.records import compacted, duplicates
from kit.sql import execute, rows
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.binlog import broken_connections
from airflow_provider_mysql_cdc.cdc.binlog import connect as connect_module
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.drain import drain_writer
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.verify.repair import repair_window
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode, VerifyRequest

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "topic.creation.default.partitions": "2",
    "snapshot.locking.mode": "none",
    "snapshot.chunk.rows": "500",
}
ROWS = 3_000
LATENCY_S = float(os.environ.get("MYSQL_CDC_LATENCY_S", "0.05"))
"""Latency of each direction in seconds; a snapshot needs a hundred round trips one after the other, a drain eighty."""
MOST_ROUND_TRIPS = 110
"""Of a drain with two writers, on all its connections, with its plan; measured: 99."""
HEARTBEATS = 4
"""More than the run lock sends in a few seconds."""
LOST = 0.3
BOUND_S = 40.0
"""Far above the silence that is allowed in these tests, with the tries that follow; far below ten minutes."""


@pytest.fixture
def pipeline(
    properties: dict[str, str], root: Any, database: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    monkeypatch.setattr(broken_connections, "FIRST_DELAY_S", 0.05)
    execute(root, f"USE `{database}`", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    execute(root, "INSERT INTO t VALUES " + ", ".join(f"({n}, REPEAT('a', 100))" for n in range(ROWS)))
    return Pipeline(properties | FLAT | {"database.port": str(proxy.port)})


def change(root: Any) -> None:
    execute(
        root,
        "UPDATE t SET v = REPEAT('b', 120) WHERE id % 2",
        "ALTER TABLE t ADD w INT NOT NULL DEFAULT 7",
        "UPDATE t SET w = 8, v = REPEAT('c', 120) WHERE id % 3",
        "DELETE FROM t WHERE id % 7 = 0",
        *(f"UPDATE t SET w = w + 1 WHERE id = {number}" for number in range(1, 60)),
    )


def more_tables(root: Any) -> None:
    """Create two tables besides."""
    for name in ("u", "w"):
        execute(root, f"CREATE TABLE {name} LIKE t", f"INSERT INTO {name} SELECT * FROM t")


def require_exact(pipeline: Pipeline, root: Any, table: str = "t", *, again: bool = False) -> None:
    """Compare the topic's rows with the table's, which may have been read once more."""
    records = pipeline.records(table)
    assert again or duplicates(records) == []
    stored = {row[0]: row for row in rows(root, f"SELECT * FROM {table}")}
    found = {row["id"]: (*row.values(), 7)[: len(stored[row["id"]])] for row in compacted(records).values()}
    assert found == stored


def tries(work: Callable[[], Any], most: int = 80) -> tuple[Any, list[CdcError]]:
    """Run something as Airflow does: again after each error of which a retry helps."""
    errors: list[CdcError] = []
    while True:
        try:
            return work(), errors
        except CdcError as error:
            errors.append(error)
            assert error.can_retry and len(errors) < most, errors


def all_jobs(pipeline: Pipeline, root: Any) -> None:
    """Snapshot, drain and verify without a single failure."""
    assert pipeline.snapshot().complete
    change(root)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    result = pipeline.verify()
    assert result.verdict == "equal", result
    require_exact(pipeline, root)


@pytest.mark.exhaustive
@pytest.mark.timeout(600 + 1_200 * LATENCY_S)
def test_latency_each_way(pipeline: Pipeline, root: Any, proxy: TcpProxy) -> None:
    proxy.delay(LATENCY_S)
    began = time.monotonic()
    with connect(pipeline.cfg.connection_settings()) as conn:
        fetch_all(conn, "SELECT 1")
    assert time.monotonic() - began > 6 * LATENCY_S
    all_jobs(pipeline, root)


def test_a_drain_needs_as_many_round_trips_for_many_transactions_as_for_few(
    pipeline: Pipeline, root: Any, proxy: TcpProxy
) -> None:
    assert pipeline.snapshot().complete
    counts = []
    for transactions in (3, 90):
        execute(root, *(f"UPDATE t SET v = CONCAT('{transactions}', v) WHERE id = {n}" for n in range(transactions)))
        before = proxy.round_trips
        assert pipeline.drain() is not None
        counts.append(proxy.round_trips - before)
    few, many = counts
    assert few <= MOST_ROUND_TRIPS and many <= few + HEARTBEATS, counts
    require_exact(pipeline, root)


@pytest.mark.req("FAULT-06")
@pytest.mark.exhaustive
def test_pauses_of_a_third_of_all_pieces(pipeline: Pipeline, root: Any, proxy: TcpProxy) -> None:
    proxy.stall(LOST, 0.1)
    all_jobs(pipeline, root)
    assert proxy.stalls > 50


@pytest.mark.exhaustive
def test_a_trickle(pipeline: Pipeline, root: Any, proxy: TcpProxy) -> None:
    proxy.throttle(200_000)
    all_jobs(pipeline, root)


@pytest.mark.req("FAULT-03")
def test_a_login_that_breaks_is_tried_again(
    pipeline: Pipeline, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In clear and in the middle of TLS; where each login breaks, the error comes at once behind the last try."""
    monkeypatch.setattr(connect_module, "LOGIN_DELAYS_S", (0.01, 0.02, 0.03))
    for mode in ("disabled", "required"):
        settings = replace(pipeline.cfg.connection_settings(), ssl_mode=mode)
        for after in (1, 90, 2_000 if mode == "required" else 91):
            proxy.cut_after(after, 2)
            with connect(settings) as conn:
                assert fetch_all(conn, "SELECT 7") == [(7,)]
            assert proxy.cuts_left == 0
    proxy.cut_after(1, 1_000)
    with pytest.raises(SourceConnectionError) as caught, connect(settings):
        pass
    assert caught.value.can_retry and proxy.cuts_left == 1_000 - 4


@pytest.mark.req("FAULT-03")
def test_planning_goes_on_where_a_connection_breaks(pipeline: Pipeline, root: Any, proxy: TcpProxy) -> None:
    """Behind the login, which is tried again by itself; with connect.max.attempts=0 the error stands."""
    assert pipeline.snapshot().complete
    execute(root, "UPDATE t SET v = 'z' WHERE id < 50")
    pipeline.properties["connect.max.attempts"] = "0"
    proxy.cut_after(5_000, 3)
    with pytest.raises(SourceConnectionError):
        pipeline.prepare("drain")
    assert proxy.cuts_left == 2
    pipeline.properties["connect.max.attempts"] = "2"
    job = pipeline.prepare("drain")
    assert proxy.cuts_left == 0 and sum("to read again" in line for line in pipeline.lines) == 2, pipeline.lines
    run_drain(job.spec, ThreadRunner(3), pipeline.log)
    assert pipeline.settle().complete
    require_exact(pipeline, root)


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-03")
def test_breaks_of_some_connections(
    pipeline: Pipeline, root: Any, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most tasks do not fail; retries of the others go on where they were, and the topics are exact.

    A job opens some thirty connections. What stays broken is a view or a lock that a connection has taken with it.
    """
    assert pipeline.snapshot().complete
    change(root)
    job = pipeline.prepare("drain")
    proxy.break_some(LOST)
    tries(lambda: run_drain(job.spec, ThreadRunner(3), pipeline.log))
    tries(pipeline.settle)
    assert proxy.breaks
    tries(pipeline.drain)
    failed = 0
    for seed in range(12):
        proxy._random.seed(seed)
        execute(root, "UPDATE t SET w = w + 1 WHERE id % 50 = 0")
        failed += len(tries(pipeline.drain)[1])
    assert proxy.breaks > 30 and failed <= 6, "without further attempts some thirty tasks of these would fail"
    result, _ = tries(pipeline.verify)
    assert result.verdict == "equal", result
    require_exact(pipeline, root)


def kill_view(root: Any, proxy: TcpProxy) -> int:
    """End the youngest transaction that is open through the proxy, and return its connection."""
    ours = {sock.getsockname()[1] for sock in proxy._open if sock.fileno() >= 0}
    found = rows(
        root,
        "SELECT p.ID, p.HOST FROM information_schema.INNODB_TRX t "
        "JOIN performance_schema.processlist p ON p.ID = t.trx_mysql_thread_id",
    )
    view: int = max(number for number, host in found if int(host.rpartition(":")[2]) in ours)
    execute(root, f"KILL {view}")
    return view


@pytest.mark.req("FAULT-03")
@pytest.mark.parametrize("job", ["snapshot", "verify", "window"])
@pytest.mark.exhaustive(but="window")
def test_a_job_goes_on_where_one_of_its_views_breaks(
    pipeline: Pipeline, root: Any, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """A view is one of its position, so what it would have read is read in another one."""
    more_tables(root)
    opened = {"snapshot": "consistent view", "verify": "the stream goes on", "window": ", 3 writer(s)"}[job]

    def log(line: str) -> None:
        pipeline.lines.append(line)
        if opened in line and not any("to do the rest" in each for each in pipeline.lines):
            killed.append(kill_view(root, proxy))

    killed: list[int] = []
    if job != "snapshot":
        assert pipeline.snapshot().complete
        change(root)
        pipeline.drain()
    if job == "window":
        ask_for(pipeline, ["t", "u", "w"])
    by_rows = VerifyRequest(checksums=False)
    work = {"snapshot": pipeline.snapshot, "verify": lambda: pipeline.verify(by_rows), "window": pipeline.drain}[job]
    monkeypatch.setattr(pipeline, "log", log)
    pipeline.properties["connect.max.attempts"] = "1"
    work()
    assert killed, "once, or again where the first view was read to its end before"
    assert sum("attempt 1 to do the rest" in line for line in pipeline.lines) == 1, pipeline.lines
    assert [scan for scan in books(pipeline).scans.values() if scan.state not in ("done", "empty")] == []
    while pipeline.drain() is not None:
        pass
    for table in ("t", "u", "w"):
        require_exact(pipeline, root, table, again=job == "window")


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-03")
def test_a_repair_goes_on_where_its_view_breaks(
    pipeline: Pipeline, root: Any, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists the keys again in a view of another position, and counts what it has repaired once."""
    assert pipeline.snapshot().complete
    execute(root, "SET sql_log_bin = 0", "UPDATE t SET v = 'unlogged' WHERE id < 3", "SET sql_log_bin = 1")
    killed = list[int]()

    class BrokenViews(repair_window.ViewBatch):
        def begin(self, *arguments: Any) -> None:
            super().begin(*arguments)
            if not killed:
                killed.append(kill_view(root, proxy))

    monkeypatch.setattr(repair_window, "ViewBatch", BrokenViews)
    pipeline.properties["connect.max.attempts"] = "1"
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert len(killed) == 1 and sum("to do the rest" in line for line in pipeline.lines) == 1, pipeline.lines
    (table,) = result.tables
    assert table.findings == table.repaired == {DifferenceKind.DIFFERING: 3}
    assert not table.unknown
    require_exact(pipeline, root)
    assert pipeline.verify().equal


@pytest.mark.req("FAULT-03")
@pytest.mark.parametrize("job", ["snapshot", "verify"])
@pytest.mark.exhaustive
def test_a_job_over_connections_of_which_many_break(
    pipeline: Pipeline, root: Any, proxy: TcpProxy, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends a try of its task is the loss of the run's lock alone, which a person may have taken from it."""
    more_tables(root)
    monkeypatch.setattr(broken_connections, "MAX_DELAY_S", 0.2)
    pipeline.properties["connect.max.attempts"] = "60"
    if job == "verify":
        assert pipeline.snapshot().complete
        change(root)
    proxy.break_some(LOST)
    result, errors = tries(pipeline.snapshot if job == "snapshot" else pipeline.verify, 6)
    assert job == "snapshot" or result.verdict == "equal", result
    assert proxy.breaks and {error.what for error in errors} <= {run_lock.LOCK_LOST}, errors
    while tries(pipeline.drain)[0] is not None:
        pass
    require_exact(pipeline, root)


def quick(pipeline: Pipeline) -> None:
    pipeline.properties |= {"source.silence.timeout.ms": "1000", "connect.timeout.ms": "2000"}


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-06")
@pytest.mark.parametrize("count", [30_000, 150_000])
def test_a_half_open_connection_inside_a_batch_is_left(
    pipeline: Pipeline, root: Any, proxy: TcpProxy, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writer's connection stays open and silent; all others work."""
    assert pipeline.snapshot().complete
    quick(pipeline)
    pipeline.properties["source.silence.timeout.ms"] = "3000"  # a busy machine may be silent for a second
    change(root)
    job = pipeline.prepare("drain")
    plain = drain_writer.open_stream

    def open_stream(*arguments: Any, **more: Any) -> Any:
        opened = plain(*arguments, **more)
        if not proxy.held.is_set():
            proxy.freeze_after(count, only_this=True)
        return opened

    monkeypatch.setattr(drain_writer, "open_stream", open_stream)
    began = time.monotonic()
    run_drain(job.spec, ThreadRunner(3), pipeline.log)
    assert proxy.held.is_set() and time.monotonic() - began < BOUND_S
    assert any("to go on behind what was read" in line for line in pipeline.lines), pipeline.lines
    assert pipeline.settle().complete
    require_exact(pipeline, root)


@pytest.mark.req("FAULT-06")
@pytest.mark.parametrize("job", ["snapshot", "drain", "verify"])
@pytest.mark.exhaustive(but="drain")
def test_a_network_that_is_dead_is_named_in_bounded_time(
    pipeline: Pipeline, root: Any, proxy: TcpProxy, job: str
) -> None:
    if job != "snapshot":
        assert pipeline.snapshot().complete
        change(root)
    quick(pipeline)
    pipeline.properties["connect.max.attempts"] = "2"
    proxy.freeze_after(40_000)
    began = time.monotonic()
    with pytest.raises(CdcError) as caught:
        {"snapshot": pipeline.snapshot, "drain": pipeline.drain, "verify": pipeline.verify}[job]()
    assert proxy.held.is_set() and time.monotonic() - began < BOUND_S
    assert caught.value.can_retry and caught.value.remedy, caught.value
    began = time.monotonic()
    with pytest.raises(SourceConnectionError) as caught:  # a drain is told of an unfinished snapshot before it connects
        (pipeline.snapshot if job == "snapshot" else pipeline.drain)()
    assert caught.value.can_retry and time.monotonic() - began < BOUND_S
    proxy.thaw()
    if job == "snapshot":
        tries(pipeline.snapshot)
    while tries(pipeline.drain)[0] is not None:
        pass
    require_exact(pipeline, root)


@pytest.mark.req("FAULT-06")
def test_a_run_that_waits_for_changes_learns_of_a_silent_server(pipeline: Pipeline, root: Any, proxy: TcpProxy) -> None:
    """It asks for new changes while its connection is half open; its attempts to connect again are counted."""
    assert pipeline.snapshot().complete
    quick(pipeline)
    pipeline.properties["connect.max.attempts"] = "2"
    execute(root, "UPDATE t SET v = 'z' WHERE id < 50")
    job = pipeline.prepare("drain")
    began = time.monotonic()

    def log(line: str) -> None:
        pipeline.log(line)
        if " done: " in line:
            proxy.freeze()

    with pytest.raises(CdcError) as caught:
        run_drain(replace(job.spec, run_for_s=600.0), ThreadRunner(3), log)
    assert proxy.held.is_set() and time.monotonic() - began < BOUND_S and caught.value.can_retry
    proxy.thaw()
    tries(pipeline.settle)
    while tries(pipeline.drain)[0] is not None:
        pass
    require_exact(pipeline, root)
