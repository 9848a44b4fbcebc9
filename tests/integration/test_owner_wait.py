"""A driver that waits between two attempts: what ends it, and what does not, although it looks alike."""

from __future__ import annotations

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from kit.sql import execute
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run, lock_connection

WAIT_S = 600.0
"""More than what happens meanwhile takes; a driver that is not ended waits so long."""


@pytest.fixture
def direct(properties: dict[str, str]) -> Pipeline:
    return Pipeline(properties)


def waiting(direct: Pipeline, proxy: TcpProxy, seconds: float) -> Future[None]:
    """Wait over the proxy, and return when the owner's lock is held."""
    cfg = Pipeline(direct.properties | {"database.port": str(proxy.port)}).cfg
    pool = ThreadPoolExecutor(1)
    result = pool.submit(
        owner_wait.wait_as_owner, cfg.connection_settings(), cfg.topic_prefix, direct.owner, seconds, even_if_free=True
    )
    pool.shutdown(wait=False)
    next_holder(direct, result, None)
    return result


def next_holder(direct: Pipeline, result: Future[None], before: int | None) -> int:
    """Return the connection that holds the owner's lock, another one than before."""
    while (holder := lock_connection(direct.cfg, direct.owner)) in (None, before):
        assert not result.done(), result.exception()
        time.sleep(0.05)
    assert holder is not None
    return holder


@pytest.mark.req("FAULT-03")
@pytest.mark.parametrize("while_taken", [False, True])
def test_a_connection_that_breaks_is_opened_again(
    direct: Pipeline, root: Any, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch, while_taken: bool
) -> None:
    """Killed, or cut so that the server knows nothing of it and keeps the lock; the time that is left is waited."""
    passed, cut, fetch_all = [0.0], list[int](), owner_wait.fetch_all
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep)
    monkeypatch.setattr(owner_wait, "time", clock)
    result = waiting(direct, proxy, WAIT_S)
    first = next_holder(direct, result, None)

    def cut_open_one(connection_id: int) -> None:
        proxy.freeze(only_open=True)  # the end of a connection is not told either
        proxy._open[-2].shutdown(socket.SHUT_RDWR)
        cut.append(connection_id)

    def lose_answer(conn: Any, query: str, *parameters: Any) -> Any:
        found = fetch_all(conn, query, *parameters)
        if query.startswith("SELECT GET_LOCK") and not cut:
            cut_open_one(conn.thread_id())
            return fetch_all(conn, "SELECT 1")
        return found

    if while_taken:
        monkeypatch.setattr(owner_wait, "fetch_all", lose_answer)
    execute(root, f"KILL {first}")
    if not while_taken:
        cut_open_one(next_holder(direct, result, first))
    while not cut:
        assert not result.done(), result.exception()
        time.sleep(0.05)
    assert next_holder(direct, result, cut[0]) != first
    passed[0] = WAIT_S
    assert result.exception(120) is None
    proxy.thaw()


def test_whoever_ends_the_run_ends_the_driver_that_waits(direct: Pipeline, proxy: TcpProxy) -> None:
    result = waiting(direct, proxy, WAIT_S)
    assert end_run(direct.cfg, direct.owner, direct.log)
    with pytest.raises(RunInProgressError, match="KILL QUERY"):
        result.result(30)


def test_a_later_try_of_the_task_ends_the_driver_that_waits(direct: Pipeline, proxy: TcpProxy) -> None:
    result = waiting(direct, proxy, WAIT_S)
    with run_lock.hold_run_lock(direct.cfg.connection_settings(), direct.cfg.topic_prefix, direct.owner) as lock:
        with pytest.raises(RunInProgressError, match="another driver of this run"):
            result.result(30)
        lock.require()
