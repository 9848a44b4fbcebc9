"""The server restarts while a drain works: its writers, its lock and its connection go on without a failure."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, duplicates
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.drain import drain_writer
from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock

OTHER = "dag/another/task/-1"
PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
    "topic.creation.default.partitions": "3",
    "drain.small.batch.bytes": "0",
    "commit.bytes": "20000",
    # Heartbeats of the lock: every two seconds.
    "source.silence.timeout.ms": "8000",
}


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent() as made:
        yield made


@pytest.fixture
def pipeline(server: PrivateServer, properties: dict[str, str], database: str) -> Pipeline:
    """Return a stream with a batch of many row events to drain."""
    with server.connect() as conn:
        execute(
            conn, f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))"
        )
        made = Pipeline(properties | PROPERTIES | server.properties())
        made.snapshot()
        values = [",".join(f"({n}, REPEAT('x', 150))" for n in range(k * 400, k * 400 + 400)) for k in range(5)]
        execute(conn, *(f"INSERT INTO `{database}`.t VALUES {each}" for each in values))
    return made


class Held:
    """A writer that waits at a fault point until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, point: str = "writer.after_commit") -> None:
        self._fired, self._until = folder / "fired", folder / "until"
        fault = {"point": point, "action": "wait", "writer": 0, "fired": str(self._fired), "until": str(self._until)}
        monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
        monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))

    def wait(self) -> None:
        deadline = time.monotonic() + 120
        while not self._fired.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def release(self) -> None:
        self._until.touch()


def opened_streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets each dump connection that a writer has opened."""
    opened, plain = list[Any](), drain_writer.open_stream

    def open_stream(*arguments: Any, **more: Any) -> Any:
        opened.append(plain(*arguments, **more))
        return opened[-1]

    monkeypatch.setattr(drain_writer, "open_stream", open_stream)
    return opened


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start work in a thread; what it returns or raises is in the list afterwards."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except CdcError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def drained(pipeline: Pipeline) -> int:
    """Return how many batches are complete, but the snapshot."""
    return sum(line.startswith("batch ") and " done: " in line for line in pipeline.lines)


def require_all(pipeline: Pipeline, server: PrivateServer, db: str) -> None:
    records = pipeline.records("t")
    assert duplicates(records) == []
    with server.connect() as conn:
        assert {row["id"]: row["v"] for row in compacted(records).values()} == dict(
            rows(conn, f"SELECT * FROM `{db}`.t")
        )


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("writers", ["1", "3"])
@pytest.mark.exhaustive(but="3-True")
def test_a_restart_inside_a_batch_does_not_fail_the_task(
    pipeline: Pipeline,
    server: PrivateServer,
    database: str,
    writers: str,
    kill: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pipeline.properties["drain.writers"] = writers
    held, opened = Held(monkeypatch, tmp_path), opened_streams(monkeypatch)
    thread, results = in_thread(pipeline.drain)
    held.wait()
    while len(opened) < int(writers):  # one that begins while the server is down ends the task, which a retry continues
        assert thread.is_alive()
        time.sleep(0.02)
    server.crash() if kill else server.stop()
    server.start()
    held.release()
    thread.join(180)
    assert not thread.is_alive() and not isinstance(results[0], CdcError), results
    assert any("to go on behind what was read" in line for line in pipeline.lines)
    require_all(pipeline, server, database)


def test_the_lock_is_held_again_after_a_restart(pipeline: Pipeline, server: PrivateServer) -> None:
    cfg = pipeline.cfg
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, pipeline.owner, 8) as lock:
        server.stop()
        server.start()
        with connect(cfg.connection_settings()) as conn:
            deadline = time.monotonic() + 60
            while run_lock.lock_connection(conn, cfg.topic_prefix, pipeline.owner) is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with pytest.raises(RunInProgressError):
                run_lock.require_no_other_run(conn, cfg.topic_prefix, OTHER)
        lock.require()
    with connect(cfg.connection_settings()) as conn:
        assert run_lock.lock_connection(conn, cfg.topic_prefix, pipeline.owner) is None


def test_a_lock_that_was_killed_on_a_running_server_is_lost(pipeline: Pipeline, server: PrivateServer) -> None:
    """So a newer attempt, and a person, end a run."""
    cfg = pipeline.cfg
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, pipeline.owner, 8) as lock:
        with server.connect() as conn:
            holder = run_lock.lock_connection(conn, cfg.topic_prefix, pipeline.owner)
            execute(conn, f"KILL {holder}")
        lock._thread.join(60)
        with pytest.raises(RunInProgressError, match="lost its lock"):
            lock.require()


@pytest.mark.exhaustive
def test_another_run_that_has_begun_after_the_restart_goes_on_and_this_one_does_not(
    pipeline: Pipeline, server: PrivateServer, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Its lock's thread looks when the other run is at work.
    monkeypatch.setattr(run_lock, "HEARTBEATS_PER_LEASE", 0.01)
    held = Held(monkeypatch, tmp_path)
    thread, results = in_thread(pipeline.drain)
    held.wait()
    server.stop()
    server.start()
    other = Pipeline(dict(pipeline.properties), store=pipeline.store, owner=OTHER)
    assert other.drain() is not None
    held.release()
    thread.join(180)
    assert not thread.is_alive() and isinstance(results[0], FencedError | RunInProgressError), results
    require_all(pipeline, server, database)


@pytest.mark.exhaustive
def test_a_drain_that_waits_for_events_survives_a_restart(
    pipeline: Pipeline, server: PrivateServer, database: str
) -> None:
    spec = replace(pipeline.prepare("drain").spec, run_for_s=60)
    thread, results = in_thread(lambda: run_drain(spec, ThreadRunner(pipeline.slots), pipeline.log))
    deadline = time.monotonic() + 60
    while not drained(pipeline):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    server.stop()
    server.start()
    with server.connect() as conn:
        execute(conn, f"INSERT INTO `{database}`.t VALUES (100000, 'behind the restart')")
    while drained(pipeline) < 2:
        assert time.monotonic() < deadline + 60 and thread.is_alive(), results
        time.sleep(0.05)
    thread.join(180)
    assert not isinstance(results[0], CdcError), results
    pipeline.settle()
    require_all(pipeline, server, database)
