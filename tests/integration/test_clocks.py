"""A server whose clock is hours ahead or late, or is set back in the middle: nothing is ordered or timed by it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kit.fake_clock import FakeClock
from kit.private_mysql import PrivateServer
from kit.records import payload
from kit.sql import execute, rows
from kit.table_rig import FLAT, check_chain, filled
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from stacklib import ports

from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Lag, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status

HOUR = 3600
SIGNALS = "CREATE TABLE `{}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT NULL)"


@pytest.fixture(scope="module", params=many(["9.7"], ["9.7", "8.0.15"]))
def clocked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PrivateServer, FakeClock]]:
    folder = tmp_path_factory.mktemp("mysql")
    clock = FakeClock(folder / "clock")
    server = PrivateServer(folder / "server", ports.any_free(), request.param, environment=clock.environment())
    server.start()
    yield server, clock
    server.discard()


@pytest.fixture
def clock(clocked: tuple[PrivateServer, FakeClock]) -> Iterator[FakeClock]:
    yield clocked[1]
    clocked[1].set(0)


@pytest.fixture
def server(clocked: tuple[PrivateServer, FakeClock]) -> PrivateServer:
    return clocked[0]


@pytest.fixture
def source(server: PrivateServer, database: str) -> Iterator[Any]:
    with server.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`", SIGNALS.format(database))
        yield conn
        execute(conn, f"DROP DATABASE `{database}`")


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer, source: Any, database: str) -> Pipeline:
    more = {
        "drain.writers": "2",
        "provide.transaction.metadata": "true",
        "heartbeat.interval.ms": "1000",
        "signal.data.collection": f"{database}.signals",
        "topic.creation.default.partitions": "2",
    }
    return Pipeline(properties | FLAT | more | server.properties())


def change(source: Any, first: int) -> None:
    execute(
        source,
        "UPDATE aa SET v = v + 1 WHERE id % 2",
        f"INSERT INTO aa VALUES ({first}, 0)",
        "BEGIN",
        f"UPDATE aa SET v = v + 1 WHERE id = {first}",
        "DELETE FROM aa WHERE id = 4",
        "INSERT INTO aa VALUES (4, 7)",
        "COMMIT",
    )


def read_again(source: Any, database: str, request: str) -> None:
    data = json.dumps({"data-collections": [f"{database}.aa"]})
    execute(source, f"INSERT INTO signals VALUES ('{request}', 'execute-snapshot', '{data}')")


def beats(pipeline: Pipeline) -> int:
    return len(pipeline.read(f"__debezium-heartbeat.{pipeline.cfg.topic_prefix}"))


def measured(pipeline: Pipeline, seconds: float = 1) -> Lag:
    """Return the lag of the stream, of which it tells the age of the last batch if that has come to its limit."""
    stored = DrainedOffset.from_state(pipeline.store.load())
    return measure_lag(stored, read_binlog_state(pipeline.cfg, stored), Thresholds(seconds=seconds))


@pytest.mark.exhaustive
@pytest.mark.parametrize("offset", [3 * HOUR, -3 * HOUR])
def test_clocks_that_differ_by_hours(
    pipeline: Pipeline, source: Any, clock: FakeClock, server: PrivateServer, database: str, offset: int
) -> None:
    clock.set(offset)
    execute(source, *filled(database, "aa"))
    assert pipeline.snapshot().complete
    for n in range(3):
        change(source, 100 + n)
        before = beats(pipeline)
        read_again(source, database, f"s{n}")
        pipeline.drain()
        assert beats(pipeline) > before
        check_chain(pipeline, source, database, "aa")
    execute(source, "FLUSH BINARY LOGS")
    change(source, 200)
    lag = measured(pipeline, seconds=10_000)
    assert not lag.reached and lag.seconds is not None and 0 <= lag.seconds < HOUR
    result = pipeline.verify()
    assert result.verdict == "equal", result
    check_chain(pipeline, source, database, "aa")
    event = payload(pipeline.records("aa")[-1].value)
    assert abs(event["source"]["ts_ms"] - event["ts_ms"] - offset * 1000) < HOUR * 1000 / 2


@pytest.mark.exhaustive
def test_a_clock_that_is_set_back_and_forth(pipeline: Pipeline, source: Any, clock: FakeClock, database: str) -> None:
    """Inside one batch, with a new binlog file at each place of the clock, while a scan reads the table again."""
    execute(source, *filled(database, "aa"))
    clock.set(HOUR)
    assert pipeline.snapshot().complete
    for n, seconds in enumerate((HOUR, -HOUR, 0, -2 * HOUR)):
        clock.set(seconds)
        change(source, 100 + n)
        execute(source, "FLUSH BINARY LOGS")
        change(source, 200 + n)
        assert (read_status(pipeline.cfg).lag.milliseconds or 0) > 0, (
            "the change is of the future, and waits all the same"
        )
        if n % 2:
            read_again(source, database, f"s{n}")
            pipeline.drain()
            check_chain(pipeline, source, database, "aa")
    times = [payload(r.value)["source"]["ts_ms"] for r in pipeline.records("aa") if r.value is not None]
    assert times != sorted(times), "the clock was not set back"
    result = pipeline.verify()
    assert result.verdict == "equal", result
    topic = f"{pipeline.cfg.topic_prefix}.transaction"
    statuses = [payload(r.value)["status"] for r in pipeline.read(topic)]
    assert statuses.count("BEGIN") == statuses.count("END") > 0


def test_a_run_keeps_its_lock_when_the_clock_is_set(
    pipeline: Pipeline, clock: FakeClock, source: Any, unique: str
) -> None:
    pipeline.properties["source.silence.timeout.ms"] = "2000"
    settings = pipeline.cfg.connection_settings()
    with run_lock.hold_run_lock(settings, unique, "dag/one") as lock:
        for seconds in (2 * HOUR, -2 * HOUR, 0):
            clock.set(seconds)
            time.sleep(1)
            lock.require()
            with pytest.raises(RunInProgressError), run_lock.hold_run_lock(settings, unique, "dag/two"):
                pass


@pytest.mark.exhaustive
def test_a_drain_goes_on_while_the_clock_is_set(
    pipeline: Pipeline, source: Any, clock: FakeClock, server: PrivateServer, database: str
) -> None:
    execute(source, *filled(database, "aa", count=2000))
    pipeline.snapshot()
    stop = threading.Event()

    def jump() -> None:
        seconds = 0
        while not stop.is_set():
            seconds = HOUR - seconds if seconds >= 0 else 0
            clock.set(seconds)

    thread = threading.Thread(target=jump)
    thread.start()
    try:
        for n in range(6):
            change(source, 5000 + n)
            pipeline.drain()
    finally:
        stop.set()
        thread.join()
    check_chain(pipeline, source, database, "aa")
    assert len(rows(source, "SELECT id FROM aa")) == 2006


@pytest.mark.parametrize("jumps", [(2 * HOUR,), (-2 * HOUR,), (HOUR, -HOUR, 0, -2 * HOUR)])
@pytest.mark.exhaustive(but="jumps2")
def test_a_worker_whose_clock_differs_or_is_set(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch, jumps: tuple[int, ...]
) -> None:
    """The clock that Python tells; librdkafka sends nothing in a process with libfaketime."""
    real_s, real_ns, seconds = time.time, time.time_ns, [jumps[0]]
    monkeypatch.setattr(time, "time", lambda: real_s() + seconds[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + seconds[0] * 1_000_000_000)
    pipeline = Pipeline(properties | FLAT | {"heartbeat.interval.ms": "1000", "drain.writers": "2"})
    execute(root, f"USE `{database}`", *filled(database, "aa"))
    assert pipeline.snapshot().complete
    for n in range(4):
        seconds[0] = jumps[n % len(jumps)]
        change(root, 100 + n)
        before = beats(pipeline)
        pipeline.drain()
        assert beats(pipeline) > before
    seconds[0] = -3 * HOUR
    change(root, 200)
    lag = measured(pipeline)
    assert lag.reached and lag.seconds is None, "an age that is not known is no reason to wait"
    result = pipeline.verify()
    assert result.verdict == "equal", result
    check_chain(pipeline, root, database, "aa")
