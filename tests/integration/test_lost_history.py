"""A schema history that is deleted, or created again and empty, between two batches or inside one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "drain.small.batch.bytes": "0",
            "drain.writers": "2",
        }
    )
    for table in "ab":
        execute(
            root,
            f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO `{database}`.{table} VALUES (1, 0), (2, 0)",
        )
    made.snapshot()
    return made


def make(pipeline: Pipeline, topic: str) -> None:
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(1, 1, KEPT)})


def lose_history(pipeline: Pipeline, how: str) -> None:
    topic = pipeline.cfg.history_topic
    if how == "another name":
        pipeline.properties["schema.history.internal.kafka.topic"] = f"{topic}.new"
        make(pipeline, f"{topic}.new")
        return
    delete_topics(pipeline.cfg.kafka_settings(), topic)
    if how == "made anew":
        make(pipeline, topic)


def recover(pipeline: Pipeline) -> None:
    pipeline.properties["snapshot.mode"] = "recovery"
    job = prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    if job is not None:
        pipeline.snapshot()
    del pipeline.properties["snapshot.mode"]


def check(pipeline: Pipeline, root: Any, database: str) -> None:
    for table in "ab":
        records = pipeline.records(table)
        assert duplicates(records) == []
        found = sorted((r["id"], r["v"]) for r in compacted(records).values())
        assert found == sorted(rows(root, f"SELECT id, v FROM `{database}`.{table}"))


@pytest.mark.parametrize("how", ["made anew", "another name"])
@pytest.mark.exhaustive(but="made anew")
def test_an_empty_history_passes_over_no_row(pipeline: Pipeline, root: Any, database: str, how: str) -> None:
    pipeline.properties["inconsistent.schema.handling.mode"] = "skip"
    lose_history(pipeline, how)
    execute(root, f"UPDATE `{database}`.a SET v = 1", f"UPDATE `{database}`.b SET v = 1")
    with pytest.raises(SchemaError, match="recovery") as caught:
        pipeline.drain()
    assert pipeline.cfg.history_topic in caught.value.where and not caught.value.can_retry
    recover(pipeline)
    assert pipeline.drain() is not None
    check(pipeline, root, database)
    execute(root, f"DELETE FROM `{database}`.a")
    assert pipeline.drain() is not None
    check(pipeline, root, database)


def crash_inside(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave a batch behind of which writer 1 is done and writer 0 has committed nothing."""
    fired = tmp_path / "fired"
    fault = {"point": "writer.before_commit", "writer": 0, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")


@pytest.mark.parametrize("how", ["deleted", "made anew"])
@pytest.mark.exhaustive(but="deleted")
def test_a_history_lost_inside_a_batch_is_rebuilt_and_the_batch_goes_on(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    execute(root, f"INSERT INTO `{database}`.a VALUES (3, 3)", f"INSERT INTO `{database}`.b VALUES (3, 3)")
    crash_inside(pipeline, monkeypatch, tmp_path)
    ahead = [len(pipeline.records(t)) for t in "ab"]
    assert sorted(ahead) == [2, 3], "one writer has gone on further than the other"
    lose_history(pipeline, how)
    with pytest.raises(SchemaError, match="recovery"):
        pipeline.drain()
    recover(pipeline)
    assert any("is rebuilt" in line for line in pipeline.lines)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    check(pipeline, root, database)
    execute(root, f"ALTER TABLE `{database}`.a ADD COLUMN w INT", f"UPDATE `{database}`.a SET v = 9")
    assert pipeline.drain() is not None
    check(pipeline, root, database)
    ddl = [payload(r.value)["ddl"] for r in pipeline.read(pipeline.properties["topic.prefix"])]
    assert sum("ADD COLUMN w" in text for text in ddl) == 1


@pytest.mark.exhaustive
def test_a_history_lost_inside_a_batch_that_changed_a_table_is_not_rebuilt(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(
        root,
        f"INSERT INTO `{database}`.a VALUES (3, 3)",
        f"INSERT INTO `{database}`.b VALUES (3, 3)",
        f"ALTER TABLE `{database}`.a ADD COLUMN w INT",
    )
    crash_inside(pipeline, monkeypatch, tmp_path)
    lose_history(pipeline, "made anew")
    pipeline.properties["snapshot.mode"] = "recovery"
    with pytest.raises(SchemaError, match="mysql_cdc_reset_offset with current"):
        prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    del pipeline.properties["snapshot.mode"]
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert pipeline.snapshot(again=True).complete
    execute(root, f"UPDATE `{database}`.a SET v = 9")
    assert pipeline.drain() is not None
    check(pipeline, root, database)


def test_current_after_an_empty_history_writes_the_structures(pipeline: Pipeline, root: Any, database: str) -> None:
    lose_history(pipeline, "made anew")
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    assert pipeline.drain() is not None
    check(pipeline, root, database)


def test_a_snapshot_is_not_finished_over_a_history_created_again(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.slots = 1
    fired = tmp_path / "fired"
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": "snapshot.after_chunk", "fired": str(fired)}))
    with pytest.raises(FaultRaised):
        pipeline.snapshot(again=True)
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    lose_history(pipeline, "made anew")
    with pytest.raises(SchemaError, match="again=true"):
        pipeline.snapshot()
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert pipeline.snapshot(again=True).complete
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    assert pipeline.drain() is not None
    check(pipeline, root, database)
