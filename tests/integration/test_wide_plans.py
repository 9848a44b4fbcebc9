"""Plans in parts on a real ledger: dealt out again, interrupted, carried on, replaced by smaller ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates, payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit import plan_parts
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain

TABLES = tuple("abcd")


def plan_keys(pipeline: Pipeline) -> dict[str, int]:
    """Return the sizes of the records of the plan in the ledger."""
    last = {(r.key or b"").decode(): r.value for r in pipeline.read(pipeline.cfg.ledger_topic)}
    return {k: len(v) for k, v in last.items() if v is not None and (k == PLAN_KEY or k.startswith("plan/"))}


def test_a_plan_in_parts_is_stored_interrupted_and_carried_on(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "drain.writers": "2",
            "drain.small.batch.bytes": "0",
        }
    )
    execute(root, f"USE `{database}`", *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)" for t in TABLES))
    assert pipeline.snapshot().complete
    monkeypatch.setattr(plan_parts, "PART_BYTES", 100)
    execute(root, *(f"INSERT INTO {t} VALUES (1, 1), (2, 2)" for t in TABLES))
    pipeline.prepare("drain")  # and its job never starts
    state = pipeline.store.load()
    assert (
        state is not None
        and state.pending is not None
        and state.pending.omitted_topics
        and not state.pending.partitions
    )
    job = pipeline.prepare("drain")
    assert len(job.plan.assignment) >= len(TABLES) and job.plan.omitted_topics is None
    fired = tmp_path / "fired"
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "writer.before_commit", "action": "raise", "writer": 1, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        run_drain(job.spec, ThreadRunner(2), pipeline.log)
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert fired.exists() and len(plan_keys(pipeline)) > 2
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    monkeypatch.undo()
    execute(root, *(f"UPDATE {t} SET v = v + 10" for t in TABLES))
    assert pipeline.drain() is not None
    assert list(plan_keys(pipeline)) == [PLAN_KEY], "the parts of the plan before are gone"
    for table in TABLES:
        records = pipeline.records(table)
        assert duplicates(records) == []
        assert sorted((p["op"], p["after"]["v"]) for p in (payload(r.value) for r in records)) == [
            ("c", 1),
            ("c", 2),
            ("u", 11),
            ("u", 12),
        ]
