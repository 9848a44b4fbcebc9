"""Slow, pausing, breaking and silent networks: a bad one fails no writer, a dead one is named in bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.records import compacted, duplicates
from kit.sql import execute, rows
from kit.tcp_proxy import TcpProxy, tcp_proxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog import connect as connect_module
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.drain import reconnects
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError

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


@pytest.fixture
def proxy(stack: Any) -> Iterator[TcpProxy]:
    with tcp_proxy(stack.mysql_host, stack.mysql_port) as made:
        yield made


@pytest.fixture
def pipeline(
    properties: dict[str, str], root: Any, database: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    monkeypatch.setattr(reconnects, "FIRST_DELAY_S", 0.05)
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


def require_exact(pipeline: Pipeline, root: Any) -> None:
    records = pipeline.records("t")
    assert duplicates(records) == []
    stored = {row[0]: row for row in rows(root, "SELECT * FROM t")}
    found = {row["id"]: (*row.values(), 7)[: len(stored[row["id"]])] for row in compacted(records).values()}
    assert found == stored


def all_jobs(pipeline: Pipeline, root: Any) -> None:
    """Snapshot, drain and verify without a single failure."""
    assert pipeline.snapshot().complete
    change(root)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    result = pipeline.verify()
    assert result.clean, result
    require_exact(pipeline, root)


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
