"""A writer whose connection breaks inside a batch goes on behind what it has read, without a failed task."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog import broken_connections
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
    "drain.writers": "2",
    "topic.creation.default.partitions": "3",
    "snapshot.locking.mode": "none",
}
ROWS = 6_000


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str, proxy: TcpProxy) -> Pipeline:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))")
    execute(root, f"CREATE TABLE `{database}`.n (id INT PRIMARY KEY)")
    execute(root, f"INSERT INTO `{database}`.n VALUES " + ", ".join(f"({number})" for number in range(ROWS)))
    made = Pipeline(properties | FLAT | {"database.port": str(proxy.port)})
    made.snapshot()
    return made


def change(root: Any, db: str) -> None:
    """Change rows in a large transaction, in many small ones, with DDL between and inside, and by XA."""
    execute(
        root,
        f"INSERT INTO `{db}`.t SELECT id, REPEAT('a', 150) FROM `{db}`.n",
        f"UPDATE `{db}`.t SET v = REPEAT('b', 150) WHERE id % 2",
        f"ALTER TABLE `{db}`.t ADD w INT DEFAULT 7",
        f"DELETE FROM `{db}`.t WHERE id % 3 = 0",
        f"CREATE TABLE `{db}`.copied (PRIMARY KEY (id)) AS SELECT id, v FROM `{db}`.t",
        "XA START 'x'",
        f"UPDATE `{db}`.t SET v = REPEAT('c', 150) WHERE id % 5 = 0",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        f"INSERT INTO `{db}`.t VALUES (1000000, 'last', 8)",
        *(f"UPDATE `{db}`.t SET w = w + 1 WHERE id = {number}" for number in range(1, 200)),
    )


def require_all(pipeline: Pipeline, root: Any, db: str) -> None:
    for table in ("t", "copied"):
        records = pipeline.records(table)
        assert duplicates(records) == []
        stored = {row[0]: row for row in rows(root, f"SELECT * FROM `{db}`.{table}")}
        # Rows that did not change since the ALTER TABLE have no event with its column.
        found = {row["id"]: (*row.values(), 7)[: len(stored[row["id"]])] for row in compacted(records).values()}
        assert found == stored


def reconnected(pipeline: Pipeline) -> list[str]:
    return [line for line in pipeline.lines if "to go on behind what was read" in line]


@pytest.mark.req("FAULT-03")
@pytest.mark.parametrize("more", [{}, {"provide.transaction.metadata": "true", "include.query": "true"}])
@pytest.mark.parametrize("after", [100_000, 500_000, 1_200_000])
@pytest.mark.exhaustive(but="500000-more1")
def test_a_connection_that_is_cut_is_taken_up_again(
    after: int,
    more: dict[str, str],
    pipeline: Pipeline,
    root: Any,
    database: str,
    proxy: TcpProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broken_connections, "FIRST_DELAY_S", 0.01)
    pipeline.properties |= more
    change(root, database)
    proxy.cut_after(after, 8)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete and reconnected(pipeline)
    require_all(pipeline, root, database)
    if more:
        topic = f"{pipeline.properties['topic.prefix']}.transaction"
        ends = [payload(record.value) for record in pipeline.read(topic)]
        begun = [record["id"] for record in ends if record["status"] == "BEGIN"]
        assert len(begun) == len(set(begun)) == sum(record["status"] == "END" for record in ends)
        counts = {record["id"]: record["event_count"] for record in ends if record["status"] == "END"}
        assert ROWS in counts.values()


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-03")
def test_attempts_without_an_event_in_between_are_limited(
    pipeline: Pipeline, root: Any, database: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broken_connections, "FIRST_DELAY_S", 0.01)
    pipeline.properties |= {"connect.max.attempts": "3", "drain.writers": "1"}
    change(root, database)
    proxy.cut_after(100_000, 10_000)
    with pytest.raises(SourceConnectionError):
        pipeline.drain()
    assert len(reconnected(pipeline)) >= 3
    proxy.cut_after(0, 0)
    pipeline.drain()
    require_all(pipeline, root, database)


@pytest.mark.req("FAULT-03")
def test_without_attempts_the_error_stands(pipeline: Pipeline, root: Any, database: str, proxy: TcpProxy) -> None:
    pipeline.properties["connect.max.attempts"] = "0"
    change(root, database)
    proxy.cut_after(200_000, 10_000)
    began = time.monotonic()
    with pytest.raises(SourceConnectionError):
        pipeline.drain()
    proxy.cut_after(0, 0)
    assert time.monotonic() - began < 60 and reconnected(pipeline) == []
    pipeline.drain()
    require_all(pipeline, root, database)
