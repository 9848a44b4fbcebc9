"""Tagged GTIDs and compressed transactions across servers: between batches, inside one, and in transaction metadata."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.failover_rig import assert_exact, carry_out, committed, follow, insert, refused
from kit.records import payload
from kit.replication import Pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

PROPERTIES = {
    "cdc.id.header": "true",
    "provide.transaction.metadata": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.small.batch.bytes": "0",
    "drain.writers": "2",
    "topic.creation.default.partitions": "4",
    "commit.bytes": "20000",
    "commit.interval.ms": "30000",
}
TAGGED, UNTAGGED = "SET gtid_next='AUTOMATIC:blue'", "SET gtid_next='AUTOMATIC'"


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with a table, which a tagged transaction has created, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}`",
        TAGGED,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))",
        UNTAGGED,
    )


@pytest.fixture
def pipeline(pair: Pair, properties: dict[str, str]) -> Iterator[Pipeline]:
    made = Pipeline(properties | pair.primary.server.properties() | PROPERTIES)
    made.snapshot()
    yield made
    for node in (pair.primary, pair.replica):
        execute(node.root, UNTAGGED, "SET binlog_transaction_compression=OFF")


def bulk(db: str, first: int) -> str:
    """Return a statement whose rows fill many row events."""
    values = ",".join(f"({i}, '{str(i) * 40:.150}')" for i in range(first, first + 400))
    return f"INSERT INTO `{db}`.t (id, v) VALUES {values}"


def assert_each_event_once(pipeline: Pipeline, pair: Pair, db: str) -> None:
    assert_exact(pipeline, pair.primary.root, db)
    ids = Counter(dict(record.headers or ()).get("cdc-id") for record in pipeline.records("t") if record.value)
    assert None not in ids and [name for name, count in ids.items() if count > 1] == []
    metadata = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.transaction")]
    for status in ("BEGIN", "END"):
        assert max(Counter(e["id"] for e in metadata if e["status"] == status).values()) == 1
    events = Counter(payload(r.value)["transaction"]["id"] for r in pipeline.records("t") if r.value)
    ends = {e["id"]: e["event_count"] for e in metadata if e["status"] == "END"}
    assert ends | events == ends, "each transaction's END counts its events, whichever server they were read from"


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
@pytest.mark.exhaustive(but="ON")
def test_a_switchover_between_tagged_transactions(
    pipeline: Pipeline, pair: Pair, database: str, compressed: str
) -> None:
    for round_ in range(3):
        root, first = pair.primary.root, 100 * round_
        execute(root, f"SET binlog_transaction_compression={compressed}", TAGGED)
        insert(root, database, first + 100, first + 101)
        execute(root, f"ALTER TABLE `{database}`.t ADD w{round_} INT DEFAULT {round_}", "SET gtid_next='AUTOMATIC:red'")
        insert(root, database, first + 102)
        execute(root, UNTAGGED)
        insert(root, database, first + 103)
        if round_ == 1:
            pipeline.drain()
        pair.switch()
        follow(pipeline, pair)
        pipeline.drain()
        assert committed(pipeline).server_uuid == pair.primary.uuid
    gtids = committed(pipeline).gtids or ""
    assert gtids.count(":blue:") == 2 == gtids.count(":red:"), gtids
    assert_each_event_once(pipeline, pair, database)
    assert {payload(r.value)["source"]["gtid"].count(":") for r in pipeline.records("t") if r.value} == {1, 2}


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
@pytest.mark.exhaustive(but="ON")
def test_a_batch_that_is_inside_a_tagged_transaction_is_moved(
    pipeline: Pipeline,
    pair: Pair,
    database: str,
    compressed: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    root = pair.primary.root
    execute(root, f"SET binlog_transaction_compression={compressed}", TAGGED)
    execute(
        root, bulk(database, 1000), f"ALTER TABLE `{database}`.t ADD w INT DEFAULT 5", bulk(database, 2000), UNTAGGED
    )
    insert(root, database, 5000)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    fired = tmp_path / "fired"
    fault = {"point": "writer.after_commit", "writer": 0, "nth": 2, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    with kafka_clients.ledger(pipeline.cfg) as ledger:
        state = ledger.read()
    assert state is not None
    inside = [m.reached.gtid for m in state.markers.values() if not m.reached.is_boundary]
    assert inside and all(":blue:" in str(gtid) for gtid in inside), state.markers
    pair.switch()
    insert(pair.primary.root, database, 5001)
    follow(pipeline, pair)
    pipeline.drain()
    pipeline.drain()
    assert_each_event_once(pipeline, pair, database)
    assert any("is moved there" in line for line in pipeline.lines)


@pytest.mark.exhaustive
def test_tagged_transactions_that_a_server_lacks_or_has_besides_are_refused_and_repaired(
    pipeline: Pipeline, pair: Pair, database: str
) -> None:
    pipeline.drain()
    pair.catch_up()
    new = pair.replica.root
    execute(new, "STOP REPLICA", "SET GLOBAL super_read_only=OFF", TAGGED)
    insert(new, database, 60)
    execute(new, UNTAGGED)
    execute(pair.primary.root, TAGGED)
    insert(pair.primary.root, database, 61)
    execute(pair.primary.root, UNTAGGED)
    pipeline.drain()
    pipeline.properties.update(pair.replica.server.properties())
    assert f"lacks {pair.primary.uuid}:blue:" in refused(pipeline).why
    execute(new, "START REPLICA")
    pair.catch_up()
    error = refused(pipeline)
    assert f"has executed {pair.replica.uuid}:blue:1, which" in error.why
    carry_out(error, pipeline)
    stored = {r["id"] for r in (payload(x.value)["after"] for x in pipeline.records("t") if x.value) if r}
    assert stored >= {i for (i,) in rows(new, f"SELECT id FROM `{database}`.t")}
