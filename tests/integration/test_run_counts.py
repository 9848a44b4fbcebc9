"""What a run says it has written, by topic and by table, and the stored offset that follows batch after batch."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.sql import execute
from kit.table_rig import FLAT, filled
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_interrupted
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import may_have_work
from airflow_provider_mysql_cdc.cdc.operate.settle import settle_offset
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import (
    follow_ledger,
    mark_reported,
    tally_of,
    tally_of_ended_run,
)
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot
from airflow_provider_mysql_cdc.spark.jobs import run_job

ROUTED = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.r.regex": r"(.*)\.(a|b\.c|b_c)",
}


def until(look: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until a function returns something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.mark.exhaustive
def test_counts_by_topic_and_table_over_snapshot_and_batches_whose_ends_the_offset_follows(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """Two tables share a topic, so only the count by table tells which of them changed."""
    pipeline = Pipeline(properties | ROUTED | {"transforms.r.replacement": "$1.all"})
    for name in ("a", "b.c", "quiet"):
        execute(root, f"CREATE TABLE `{database}`.`{name}` (id INT PRIMARY KEY)")
    execute(root, f"INSERT INTO `{database}`.a VALUES (1), (2)", f"INSERT INTO `{database}`.`b.c` VALUES (1)")
    prefix = f"{properties['topic.prefix']}.{database}"
    first = pipeline.snapshot()
    assert first.counts == {f"{prefix}.all": 3}
    assert first.tally is not None and first.tally.tables == {f"{database}.a": 2, f"{database}.b%2Ec": 1}

    execute(root, f"INSERT INTO `{database}`.a VALUES (3)")
    assert may_have_work(pipeline.cfg, pipeline.store, pipeline.owner)
    job = pipeline.prepare("drain")
    spec = replace(job.spec, run_for_s=4.0, run="this")
    thread = threading.Thread(target=run_drain, args=(spec, ThreadRunner(1), pipeline.log))
    thread.start()
    try:
        moved = [until(lambda: follow_ledger(pipeline.cfg, pipeline.store, pipeline.log))]
        execute(root, f"INSERT INTO `{database}`.`b.c` VALUES (4), (5)")
        moved.append(until(lambda: follow_ledger(pipeline.cfg, pipeline.store, pipeline.log)))
    finally:
        thread.join()
    assert moved[0].pos != moved[1].pos
    outcome = pipeline.settle()
    tally = outcome.tally
    assert outcome.complete and tally is not None and tally == tally_of(pipeline.cfg, "this")
    assert tally.batches >= 2 and tally.start == job.plan.start
    assert tally.tables == {f"{database}.a": 1, f"{database}.b%2Ec": 2}
    assert outcome.counts[f"{prefix}.all"] == 3


def test_a_snapshot_whose_driver_dies_after_its_records_is_counted(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who waits for an event of the table's asset would wait for ever."""
    execute(root, f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.a VALUES (1), (2)")
    pipeline = Pipeline(properties)
    fault = {"point": "driver.before_outcome", "action": "raise", "fired": str(tmp_path / "fired")}
    spec = replace(pipeline.prepare("snapshot").spec, run="this")
    with monkeypatch.context() as patch:
        patch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
        with pytest.raises(FaultRaised):
            run_snapshot(spec, ThreadRunner(1), pipeline.log)
    assert os.path.exists(tmp_path / "fired"), "the fault never fired"
    outcome = pipeline.settle()
    assert outcome.complete and outcome.tally is not None and outcome.tally.run == "this"
    assert (outcome.tally.batches, outcome.tally.tables) == (1, {f"{database}.a": 2})
    assert outcome.counts == {pipeline.table_topic("a"): 2}
    # A try that finds nothing to do any more tells it as well.
    assert pipeline.snapshot_is_refused() and tally_of(pipeline.cfg, "this") == outcome.tally
    # A run that finds nothing to do tells what a run that was ended has not; then it is told, and by nobody again.
    assert tally_of_ended_run(pipeline.cfg, pipeline.owner) == outcome.tally
    mark_reported(pipeline.cfg, outcome.tally, "idle", pipeline.log)
    assert tally_of_ended_run(pipeline.cfg, pipeline.owner) is None and tally_of(pipeline.cfg, "this") is None
    execute(root, f"INSERT INTO `{database}`.a VALUES (3)")
    spec = replace(pipeline.prepare("drain").spec, run="next")
    late = settle_offset(pipeline.cfg, pipeline.store, pipeline.log, replace(spec, run="this"))
    assert (late.tally, late.counts) == (None, outcome.counts)
    run_drain(spec, ThreadRunner(1), pipeline.log)
    told = settle_offset(pipeline.cfg, pipeline.store, pipeline.log, spec)
    assert told.tally is not None and told.tally.tables == {f"{database}.a": 1}
    nobody = settle_offset(pipeline.cfg, pipeline.store, pipeline.log, replace(spec, run="this"))
    assert nobody.complete and (nobody.tally, nobody.counts) == (None, {}), "what others have written is theirs"


BEFORE_STATE = ("incremental.before_books", 1)


@pytest.mark.parametrize(
    "deaths",
    [
        (),
        (("incremental.stretch_read", 2), BEFORE_STATE),
        (("incremental.after_commit", 1), BEFORE_STATE),
        (BEFORE_STATE, BEFORE_STATE),
    ],
    ids=["none", "read", "committed", "before state"],
)
@pytest.mark.exhaustive(but="committed")
def test_rows_of_windows_that_died_are_counted(
    properties: dict[str, str],
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    deaths: tuple[tuple[str, int], ...],
) -> None:
    """Tries of one run: a snapshot that dies, windows that die, and one that reads the rest; each row counts once."""
    execute(root, f"USE `{database}`", *filled(database, "a", "b", count=70))
    pipeline = Pipeline(properties | FLAT | {"incremental.snapshot.chunk.size": "1"}, slots=1)
    spec = replace(pipeline.prepare("snapshot").spec, run="this")
    for fault in (("snapshot.after_chunk", 2), *deaths):
        fired = tmp_path / "fired"
        fired.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(faults, "_passed", {})
            text = {"point": fault[0], "action": "raise", "nth": fault[1], "fired": str(fired)}
            patch.setenv("MYSQL_CDC_FAULT", json.dumps(text))
            with contextlib.suppress(FaultRaised, CdcError):
                run_job(spec, ThreadRunner(1), pipeline.log)
        assert fired.exists() or deaths[0] == BEFORE_STATE
        finish_interrupted(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, "this")
        execute(root, "UPDATE a SET v = v + 1 WHERE id = 1")
        spec = replace(pipeline.prepare("drain").spec, run="this")
    run_job(spec, ThreadRunner(1), pipeline.log)
    outcome = settle_offset(pipeline.cfg, pipeline.store, pipeline.log, spec)
    assert outcome.complete and outcome.tally is not None and outcome.tally.run == "this"
    found = {f"{database}.{table}": len(pipeline.records(table)) for table in ("a", "b")}
    assert outcome.tally.tables == found
    topics = {pipeline.table_topic(table): len(pipeline.records(table)) for table in ("a", "b")}
    assert {name: outcome.tally.counts[name] for name in topics} == topics
