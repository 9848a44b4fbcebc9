"""Connections whose other end is gone without a word: found out in bounded time, and a slow server is let work."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from kit.sql import execute
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings

SILENCE_S = 1.0
SOON_S = 15.0
"""Far above the limits set here, far below the ten minutes that a statement may take."""


@pytest.fixture(params=["disabled", "required"])
def settings(request: pytest.FixtureRequest, properties: dict[str, str], proxy: TcpProxy) -> ConnectionSettings:
    cfg = ConnectorConfig.from_properties(
        properties | {"database.hostname": "127.0.0.1", "database.port": str(proxy.port)}
    )
    return replace(
        cfg.connection_settings(), ssl_mode=request.param, silence_timeout_s=SILENCE_S, connect_timeout_s=3 * SILENCE_S
    )


@pytest.mark.exhaustive(but="disabled")
def test_a_slow_statement_is_waited_for(settings: ConnectionSettings) -> None:
    with connect(settings) as conn:
        assert fetch_all(conn, "SELECT SLEEP(3.5), REPEAT('x', 300000)")[0][0] == 0
        assert fetch_all(conn, "SELECT 7") == [(7,)]


@pytest.mark.exhaustive(but="disabled")
def test_the_limit_for_a_statement_holds(settings: ConnectionSettings) -> None:
    with (
        connect(replace(settings, query_timeout_s=2 * SILENCE_S)) as conn,
        pytest.raises(SourceConnectionError, match=r"database\.query\.timeout\.ms"),
    ):
        fetch_all(conn, "SELECT SLEEP(20)")


@pytest.mark.exhaustive(but="disabled")
def test_a_run_that_ends_does_not_wait_for_a_silent_server(settings: ConnectionSettings, proxy: TcpProxy) -> None:
    """Its connection waits half a minute for an answer: a read and a login, each as long as it may take."""
    limits = replace(settings, silence_timeout_s=SOON_S, connect_timeout_s=SOON_S)
    with run_lock.hold_run_lock(limits, "p", "o/r/t/-1"):
        proxy.freeze()
        began = time.monotonic()
    assert proxy.held.is_set() and time.monotonic() - began < SOON_S
    proxy.thaw()


@pytest.mark.parametrize("replication", [False, True])
@pytest.mark.parametrize("only_open", [False, True])
@pytest.mark.exhaustive(but="disabled-True-False|disabled-False-True|required-True-True")
def test_a_half_open_connection_is_found_out(
    settings: ConnectionSettings, proxy: TcpProxy, only_open: bool, replication: bool
) -> None:
    with connect(settings, replication=replication) as conn:
        fetch_all(conn, "SELECT 1")
        proxy.freeze(only_open=only_open)
        began = time.monotonic()
        with pytest.raises(SourceConnectionError) as caught:
            fetch_all(conn, "SELECT 2")
        assert proxy.held.is_set() and time.monotonic() - began < SOON_S
        assert ("has answered" in str(caught.value)) or ("either" in str(caught.value))
        assert caught.value.can_retry
        proxy.thaw()


@pytest.mark.exhaustive(but="disabled")
def test_a_connection_that_the_server_has_ended_unheard_is_found_out(
    settings: ConnectionSettings, proxy: TcpProxy, root: Any
) -> None:
    with connect(settings) as conn:
        thread = conn.thread_id()
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                fetch_all(conn, "SELECT SLEEP(100)")
            except SourceConnectionError as error:
                failed.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        deadline = time.monotonic() + SOON_S
        while not any(row[0] == thread and row[4] == "Query" for row in _processes(root)):
            assert time.monotonic() < deadline
        proxy.freeze(only_open=True)
        execute(root, f"KILL {thread}")
        waiter.join(SOON_S)
        assert not waiter.is_alive() and "has ended the connection" in str(failed[0])
        proxy.thaw()


def _processes(root: Any) -> list[tuple[Any, ...]]:
    with root.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        return list(cursor.fetchall())


@pytest.mark.exhaustive(but="disabled")
def test_a_holder_whose_host_vanished_loses_the_lock_and_learns_it(
    settings: ConnectionSettings, proxy: TcpProxy, stack: Any, unique: str
) -> None:
    direct = replace(settings, host=stack.mysql_host, port=stack.mysql_port)
    with run_lock.hold_run_lock(settings, unique, "dag/one") as lock:
        time.sleep(2 * SILENCE_S)  # signs of life keep it beyond the lease
        lock.require()
        with pytest.raises(RunInProgressError), run_lock.hold_run_lock(direct, unique, "dag/two"):
            pass
        proxy.freeze()
        began = time.monotonic()
        while True:
            try:
                with run_lock.hold_run_lock(direct, unique, "dag/two"):
                    break
            except RunInProgressError:
                assert time.monotonic() - began < SOON_S
                time.sleep(0.1)
        while time.monotonic() - began < SOON_S:
            try:
                lock.require()
            except RunInProgressError as error:
                assert "lost its lock" in str(error) and error.can_retry
                break
            time.sleep(0.1)
        else:
            pytest.fail("the holder did not learn that it lost the lock")
        proxy.thaw()


def test_a_drain_that_lost_its_lock_begins_no_further_batch(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(properties | {"source.silence.timeout.ms": "1000"})
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (1)")
    acquire = run_lock.acquire

    def acquire_and_lose(conn: Any, *arguments: Any) -> None:
        acquire(conn, *arguments)
        execute(root, f"KILL {conn.thread_id()}")

    monkeypatch.setattr(run_lock, "acquire", acquire_and_lose)
    plain = run_lock.RunLock.require

    def require_after_a_sign(lock: run_lock.RunLock) -> None:
        lock._thread.join(SOON_S)
        plain(lock)

    monkeypatch.setattr(run_lock.RunLock, "require", require_after_a_sign)
    with pytest.raises(RunInProgressError, match="lost its lock"):
        pipeline.drain()
    assert [r for r in pipeline.records("t") if r.value] == []
    monkeypatch.undo()
    pipeline.drain()
    assert len(pipeline.records("t")) == 1


def test_prefixes_that_differ_in_case_alone_are_two(properties: dict[str, str], unique: str) -> None:
    """MySQL compares the names of locks without case."""
    settings, prefix = ConnectorConfig.from_properties(properties).connection_settings(), unique
    with (
        run_lock.hold_run_lock(settings, prefix, "a/b/c/-1"),
        run_lock.hold_run_lock(settings, prefix.upper(), "d/e/f/-1"),
    ):
        pass
    with (
        run_lock.hold_run_lock(settings, prefix.upper(), "a/b/c/-1"),
        pytest.raises(RunInProgressError),
        run_lock.hold_run_lock(settings, prefix.upper(), "d/e/f/-1"),
    ):
        pass
