"""The rows of a transaction have one TiCDC timestamp, whatever comes between them; and timestamps never go back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.avro_rig import Readers
from kit.failover_rig import follow, insert
from kit.replication import Pair
from kit.sql import execute
from kit.tcp_proxy import TcpProxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog import broken_connections
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

FLAT = {
    "value.format": "ticdc-avro",
    "enable-tidb-extension": "true",
    "cdc.id.header": "true",
    "topic.creation.default.partitions": "4",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "commit.bytes": "20000",
    "dispatchers": json.dumps([{"matcher": ["*.*"], "topic": "{schema}.{table}", "partition": "index-value"}]),
}
TABLE = "CREATE TABLE `{0}`.t (id INT PRIMARY KEY, v VARCHAR(200))"


def bulk(db: str, first: int, count: int = 400) -> str:
    """Return a statement whose rows fill many row events."""
    values = ",".join(f"({i}, '{str(i) * 40:.150}')" for i in range(first, first + count))
    return f"INSERT INTO `{db}`.t (id, v) VALUES {values}"


def changed(db: str, first: int, count: int = 400) -> str:
    """Return a statement that changes these rows in one transaction."""
    return f"UPDATE `{db}`.t SET v = CONCAT('x', v) WHERE id >= {first} AND id < {first + count}"


def crash(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, folder: Path, nth: int) -> None:
    """Let a drain die behind a commit of one of its writers."""
    fired = folder / "fired"
    fault = {"point": "writer.after_commit", "nth": nth, "fired": str(fired)}
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    with monkeypatch.context() as patch:
        patch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
        with pytest.raises(FaultRaised):
            pipeline.drain()
    assert fired.exists()


def require_timestamps(pipeline: Pipeline, registry: str, db: str) -> dict[str, int]:
    """Compare the topic with the binlog's transactions; return the timestamp of each one."""
    readers, topic = Readers(registry), f"{db}.t"
    found: dict[str, set[int]] = {}
    last: dict[int, int] = {}
    for record in pipeline.read(topic):
        gtid = bytes(dict(record.headers)["cdc-id"]).decode().split("/")[0]
        assert record.value is not None
        stamp = readers.read(topic, record.value)["_tidb_commit_ts"]
        # Keys stay in their partition: a reader that keeps the highest timestamp of a key drops nothing.
        assert stamp >= last.get(record.partition, 0), (record.partition, record.offset, gtid)
        last[record.partition] = stamp
        if gtid != "snapshot":
            found.setdefault(gtid, set()).add(stamp)
    assert {gtid: stamps for gtid, stamps in found.items() if len(stamps) > 1} == {}
    assert len({stamp for stamps in found.values() for stamp in stamps}) == len(found)
    return {gtid: stamps.pop() for gtid, stamps in found.items()}


@pytest.fixture
def moved(servers: Pair, database: str, properties: dict[str, str], registry: str) -> Pipeline:
    """Return a stream of a pair whose servers count the transactions of their binlog files otherwise."""
    servers.begin(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4", TABLE.format(database))
    pipeline = Pipeline(properties | FLAT | {"schema-registry": registry} | servers.primary.server.properties())
    pipeline.snapshot()
    insert(servers.primary.root, database, -1, -2)
    pipeline.drain()
    servers.catch_up()
    execute(servers.replica.root, "FLUSH LOCAL BINARY LOGS")
    return pipeline


@pytest.mark.halves
@pytest.mark.parametrize("nth", [1, 4, 9])
def test_a_transaction_that_two_servers_have_sent_has_one_timestamp(
    moved: Pipeline,
    servers: Pair,
    database: str,
    registry: str,
    nth: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    root = servers.primary.root
    insert(root, database, 1, 2)
    # Of one microsecond, and one that another server has committed earlier.
    execute(root, f"SET SESSION original_commit_timestamp = {1_700_000_000_000_000}")
    execute(root, bulk(database, 1000), changed(database, 1000), bulk(database, 2000))
    execute(
        root, "SET SESSION original_commit_timestamp = DEFAULT", bulk(database, 3000), changed(database, 1000, 3000)
    )
    crash(moved, monkeypatch, tmp_path, nth)
    servers.switch()
    follow(moved, servers)
    insert(servers.primary.root, database, 5000)
    moved.drain()
    execute(servers.primary.root, changed(database, 1000, 5000))
    moved.drain()
    assert any("is moved there" in line for line in moved.lines)
    assert len(require_timestamps(moved, registry, database)) == 2 + 8 + 1


@pytest.mark.req("FAULT-03")
@pytest.mark.halves
@pytest.mark.parametrize("after", [100_000, 300_000, 600_000])
def test_a_writer_whose_connection_breaks_inside_a_transaction_goes_on_with_its_timestamp(
    after: int,
    root: Any,
    database: str,
    proxy: TcpProxy,
    properties: dict[str, str],
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broken_connections, "FIRST_DELAY_S", 0.01)
    execute(root, TABLE.format(database))
    more = {"schema-registry": registry, "database.port": str(proxy.port), "snapshot.locking.mode": "none"}
    pipeline = Pipeline(properties | FLAT | more)
    pipeline.snapshot()
    execute(root, bulk(database, 1000, 1500), changed(database, 1000, 1500), bulk(database, 5000))
    proxy.cut_after(after, 6)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete and proxy.cuts_left < 6
    assert any("to go on behind what was read" in line for line in pipeline.lines)
    assert len(require_timestamps(pipeline, registry, database)) == 3
