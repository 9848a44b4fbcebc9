"""A driver that waits between two attempts: what ends it, and what does not, although it looks alike."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from kit.sql import execute
from kit.tcp_proxy import TcpProxy, tcp_proxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run, lock_connection

WAIT_S = 8.0
"""Enough for what happens meanwhile; a driver that is not ended waits so long."""


@pytest.fixture
def proxy(stack: Any) -> Iterator[TcpProxy]:
    with tcp_proxy(stack.mysql_host, stack.mysql_port) as made:
        yield made


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
def test_a_connection_that_breaks_is_opened_again(direct: Pipeline, root: Any, proxy: TcpProxy) -> None:
    """Killed, or cut so that the server knows nothing of it and keeps the lock; the time that is left is waited."""
    result = waiting(direct, proxy, WAIT_S)
    first = next_holder(direct, result, None)
    execute(root, f"KILL {first}")
    second = next_holder(direct, result, first)
    proxy.freeze(only_open=True)  # the end of a connection is not told either
    proxy._open[-2].shutdown(socket.SHUT_RDWR)
    assert next_holder(direct, result, second) != first
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
