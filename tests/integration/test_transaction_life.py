"""A Kafka transaction never outlives its timeout, however slow, long or silent the source is."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import duplicates, payload
from kit.sql import execute, rows
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import start_process

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json

TIMEOUT_S = 10
"""The smallest transaction.timeout.ms; the test's broker looks for what is older every second."""
LONGER_S = 15.0


@pytest.fixture
def pipeline(properties: dict[str, str], proxy: TcpProxy, root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | {
            "database.hostname": "127.0.0.1",
            "database.port": str(proxy.port),
            "database.ssl.mode": "disabled",
            "table.include.list": f"{database}.t",
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "drain.small.batch.bytes": "0",
            "transaction.timeout.ms": str(TIMEOUT_S * 1000),
            "commit.interval.ms": "1000",
        }
    )
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(250))",
    )
    return made


def captured_then_others(root: Any, database: str, count: int = 4000) -> int:
    """Run one transaction whose rows, but for a few at both ends, are not captured; return its size in bytes."""
    before = rows(root, "SHOW BINARY LOG STATUS")[0][1]
    values = ",".join("(REPEAT('x', 240))" for _ in range(500))
    execute(
        root,
        "BEGIN",
        f"INSERT INTO `{database}`.t VALUES (1, 1), (2, 2)",
        *(f"INSERT INTO `{database}`.other (v) VALUES {values}" for _ in range(count // 500)),
        f"INSERT INTO `{database}`.t VALUES (3, 3)",
        "COMMIT",
    )
    size: int = rows(root, "SHOW BINARY LOG STATUS")[0][1] - before
    return size


def ids(pipeline: Pipeline) -> list[int]:
    found = pipeline.records("t")
    assert duplicates(found) == []
    return [payload(r.value)["after"]["id"] for r in found]


@pytest.mark.exhaustive
def test_captured_rows_and_then_a_long_run_of_others(
    pipeline: Pipeline, proxy: TcpProxy, root: Any, database: str
) -> None:
    pipeline.snapshot()
    size = captured_then_others(root, database)
    proxy.throttle(size / LONGER_S)
    began = time.monotonic()
    pipeline.drain()
    assert time.monotonic() - began > LONGER_S * 0.8, "the source was not slow"
    assert ids(pipeline) == [1, 2, 3]


def test_a_source_that_falls_silent_inside_a_transaction(
    pipeline: Pipeline, proxy: TcpProxy, root: Any, database: str
) -> None:
    pipeline.snapshot()
    size = captured_then_others(root, database)
    proxy.throttle(size / 4)
    proxy.freeze_after(size // 2)

    def thaw() -> None:
        if proxy.held.wait(60):
            time.sleep(LONGER_S)
            proxy.throttle(None)
            proxy.thaw()

    threading.Thread(target=thaw, daemon=True).start()
    began = time.monotonic()
    pipeline.drain()
    assert proxy.held.is_set() and time.monotonic() - began > LONGER_S
    assert ids(pipeline) == [1, 2, 3]


@pytest.mark.exhaustive
def test_a_search_for_a_prepared_transaction(
    pipeline: Pipeline, proxy: TcpProxy, root: Any, stack: Any, database: str
) -> None:
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, 1)")
    name = f"'{database}-slow','b',7"
    with pymysql.connect(
        host=stack.mysql_host, port=stack.mysql_port, user=stack.root_user, password=stack.root_password,
        database=database, autocommit=True,
        ssl_disabled=True,
    ) as session:  # fmt: skip
        execute(session, f"XA START {name}", "INSERT INTO t VALUES (9, 9)", f"XA END {name}", f"XA PREPARE {name}")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (2, 2)", f"XA COMMIT {name}")
    execute(root, f"INSERT INTO `{database}`.t VALUES (3, 3)")
    proxy.throttle(sum(row[1] for row in rows(root, "SHOW BINARY LOGS")) / LONGER_S)
    began = time.monotonic()
    pipeline.drain()
    assert time.monotonic() - began > LONGER_S * 0.8, "the search was not slow"
    assert any("searching the binlog" in line for line in pipeline.lines)
    assert ids(pipeline) == [1, 2, 9, 3]


@pytest.mark.exhaustive
@pytest.mark.fault
def test_a_writer_that_was_stopped_for_longer_is_refused_by_name_and_the_retry_is_exact(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    pipeline.snapshot()
    captured_then_others(root, database)
    fired = tmp_path / "fired"
    fault = {"point": "writer.before_commit", "action": "stop-self", "fired": str(fired)}
    child = start_process(pipeline.prepare("drain").spec, tmp_path, fault=fault)
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and fired.exists()
        time.sleep(TIMEOUT_S + 3)  # the broker's clock has to pass; nothing shows that it has
    finally:
        os.kill(child.pid, signal.SIGCONT)
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 1, output[-2000:]
    state = kafka_clients.ledger(pipeline.cfg).read()
    assert state is not None and state.outcome is not None
    error = from_json(state.outcome["error"])
    assert isinstance(error, CdcError) and error.can_retry
    assert "transaction.timeout.ms" in str(error)
    assert ids(pipeline) == []
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3]
