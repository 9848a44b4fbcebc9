"""What decides a batch's records must not change between a crash and the retry."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

ROWS = 300
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.small.batch.bytes": "0",
    "drain.writers": "3",
    "topic.creation.default.partitions": "6",
}


def set_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **fault: Any) -> Path:
    fired = tmp_path / f"fired-{fault['point']}"
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({**fault, "fired": str(fired)}))
    return fired


def crash_inside_a_split_topic(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Leave a batch behind of which writers 0 and 2 are done and writer 1 has committed nothing."""
    execute(root, f"CREATE TABLE `{database}`.hot (id INT PRIMARY KEY, a INT NOT NULL, b INT)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.hot VALUES " + ",".join(f"({-i}, {i}, 0)" for i in range(1, 9)))
    pipeline.drain()
    execute(root, f"INSERT INTO `{database}`.hot VALUES " + ",".join(f"({i}, {i * 7}, 1)" for i in range(ROWS)))
    owners = pipeline.prepare("drain").plan.assignment[pipeline.table_topic("hot")]
    assert set(owners) == {0, 1, 2}
    fired = set_fault(monkeypatch, tmp_path, point="writer.before_commit", writer=1)
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")


def seen(pipeline: Pipeline) -> Counter[int]:
    """Return how often each row of the second batch stands in the topic."""
    values = [payload(r.value)["after"] for r in pipeline.records("hot")]
    return Counter(v["id"] for v in values if v["b"] == 1)


DECIDES: dict[str, dict[str, str]] = {
    "key.converter.schemas.enable": {"key.converter.schemas.enable": "true"},
    "message.key.columns": {"message.key.columns": "(.*).hot:a"},
    "topic.creation.default.partitions": {"topic.creation.default.partitions": "2"},
    "transforms.r.regex": {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "(.*)\\.nothing",
        "transforms.r.replacement": "$1",
    },
}


def test_what_decides_is_refused_inside_a_batch_and_the_way_back_is_exact(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash_inside_a_split_topic(pipeline, root, database, monkeypatch, tmp_path)
    before = dict(pipeline.properties)
    committed = seen(pipeline)
    assert 0 < len(committed) < ROWS
    for name, changed in DECIDES.items():
        pipeline.properties = before | changed
        with pytest.raises(ConfigError) as caught:
            pipeline.drain()
        assert name in str(caught.value) and not caught.value.can_retry
        outcome = pipeline.settle()
        assert not outcome.complete and isinstance(outcome.error, ConfigError), name
        assert seen(pipeline) == committed, name
    pipeline.properties = before
    done = pipeline.drain() or pipeline.settle()
    assert done.complete
    assert seen(pipeline) == Counter(range(ROWS))


def test_what_decides_nothing_may_change_inside_a_batch(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash_inside_a_split_topic(pipeline, root, database, monkeypatch, tmp_path)
    pipeline.properties |= {"commit.bytes": "5000", "drain.writers": "1", "kafka.linger.ms": "3"}
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert seen(pipeline) == Counter(range(ROWS))


def test_a_batch_that_nobody_began_takes_the_new_settings(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"CREATE TABLE `{database}`.hot (id INT PRIMARY KEY, a INT NOT NULL, b INT)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.hot VALUES " + ",".join(f"({i}, {i * 7}, 1)" for i in range(ROWS)))
    fired = set_fault(monkeypatch, tmp_path, point="plan.after_store")
    owner = pipeline.prepare("drain").plan.assignment[pipeline.table_topic("hot")][0]
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    pipeline.properties["message.key.columns"] = "(.*).hot:a"
    fired = set_fault(monkeypatch, tmp_path, point="writer.before_commit", writer=(owner + 1) % 3)
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert {frozenset(payload(r.key)) for r in pipeline.records("hot")} == {frozenset({"a"})}
    pipeline.properties["message.key.columns"] = "(.*).hot:b"
    with pytest.raises(ConfigError, match=r"message\.key\.columns"):
        pipeline.drain()
    pipeline.properties["message.key.columns"] = "(.*).hot:a"
    outcome = pipeline.drain() or pipeline.settle()
    assert outcome.complete and seen(pipeline) == Counter(range(ROWS))


def test_an_interrupted_snapshot_pins_as_well(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties |= {"snapshot.chunk.rows": "100"}
    pipeline.slots = 1
    execute(
        root,
        f"CREATE TABLE `{database}`.hot (id INT PRIMARY KEY, a INT NOT NULL, b INT)",
        f"INSERT INTO `{database}`.hot VALUES " + ",".join(f"({i}, {i * 7}, 1)" for i in range(ROWS)),
        f"ANALYZE TABLE `{database}`.hot",
    )
    fired = set_fault(monkeypatch, tmp_path, point="snapshot.after_chunk")
    with pytest.raises(FaultRaised):
        pipeline.snapshot()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    decides = {"message.key.columns": "(.*).hot:a", "snapshot.include.collection.list": ".*\\.other"}
    for name, value in decides.items():
        pipeline.properties[name] = value
        with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
            pipeline.snapshot()
        del pipeline.properties[name]
    assert pipeline.snapshot().complete
    assert seen(pipeline) == Counter(range(ROWS))


def test_a_planned_snapshot_is_not_finished_as_another_kind_of_work(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    """Nothing of it is committed; all the same it would end without a row, and be called complete."""
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1), (2)")
    pipeline.prepare("snapshot")
    for mode in ("never", "recovery"):
        pipeline.properties["snapshot.mode"] = mode
        with pytest.raises(ConfigError, match=f"snapshot.mode .was the default, is '{mode}'.*reset_offset"):
            pipeline.snapshot()
    del pipeline.properties["snapshot.mode"]
    assert pipeline.snapshot().complete
    assert len(pipeline.records("t")) == 2
