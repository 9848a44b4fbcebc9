"""CREATE TABLE ... SELECT: structure and rows in one source transaction, and a crash at a commit inside it."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

ROWS = 900


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "provide.transaction.metadata": "true",
            "drain.small.batch.bytes": "0",
            "commit.bytes": "10000",
        }
    )
    values = ",".join(f"({i}, REPEAT('x', 60))" for i in range(ROWS))
    execute(
        root,
        f"CREATE TABLE `{database}`.origin (id INT PRIMARY KEY, v VARCHAR(80))",
        f"INSERT INTO `{database}`.origin VALUES {values}",
    )
    return made


def creates_copy(ddl: str | None) -> bool:
    return (ddl or "").startswith("CREATE TABLE") and "`copy`" in (ddl or "")


def inside(pipeline: Pipeline) -> bool:
    """Return whether a marker of the batch in force stands between two row events."""
    state = kafka_clients.ledger(pipeline.cfg).read()
    assert state is not None and state.plan is not None
    return any(m.epoch == state.plan.epoch and m.reached.events for m in state.markers.values())


@pytest.mark.parametrize("compression", ["OFF", "ON"])
@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.exhaustive(but="3-4-OFF")
def test_a_crash_inside_repeats_neither_rows_nor_structure(
    pipeline: Pipeline,
    root: Any,
    database: str,
    writers: int,
    nth: int,
    compression: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline.properties |= {"drain.writers": str(writers), "topic.creation.default.partitions": str(writers)}
    pipeline.snapshot()
    execute(
        root,
        f"SET SESSION binlog_transaction_compression = {compression}",
        f"CREATE TABLE `{database}`.copy (PRIMARY KEY (id)) SELECT * FROM `{database}`.origin",
        f"UPDATE `{database}`.copy SET v = 'after' WHERE id = 7",
    )
    fired = tmp_path / "fired"
    # The writer that owns the new topic; the other ones have few commits or none before their last.
    owner = zlib.crc32(pipeline.table_topic("copy").encode()) % writers
    fault = {"point": "writer.after_commit", "nth": nth, "writer": owner, "fired": str(fired)}
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists() and inside(pipeline)
    pipeline.drain()

    found = pipeline.records("copy")
    assert duplicates(found) == []
    per_key = Counter((payload(r.value)["op"], payload(r.key)["id"]) for r in found)
    assert per_key == Counter([*(("c", i) for i in range(ROWS)), ("u", 7)])
    changes = [payload(r.value) for r in pipeline.read(pipeline.properties["topic.prefix"])]
    assert sum(creates_copy(c["ddl"]) for c in changes) == 1
    history = [json.loads(r.value or b"{}") for r in pipeline.read(pipeline.cfg.history_topic)]
    assert sum(creates_copy(h.get("ddl")) for h in history) == 1
    statuses = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.transaction")]
    assert Counter((s["id"], s["status"]) for s in statuses).most_common(1)[0][1] == 1
    orders = [payload(r.value)["transaction"]["total_order"] for r in found if payload(r.value)["op"] == "c"]
    assert sorted(orders) == list(range(1, ROWS + 1))
    assert rows(root, f"SELECT COUNT(*) FROM `{database}`.copy")[0][0] == ROWS
