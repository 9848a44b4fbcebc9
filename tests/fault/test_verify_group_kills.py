"""kill -9 of a verification between its groups of tables: the retry compares what is left, and knows what was found."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.repairs import verdict
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner
from pipelinelib.submit import start_process

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify

pytestmark = pytest.mark.fault

PROPERTIES = {"value.converter.schemas.enable": "false", "verify.group.rows": "1", "snapshot.lock.timeout.ms": "60000"}
TABLES = ("a", "b", "c")
MISSING = {DifferenceKind.MISSING: 1}
# Point, passage, and how many groups have verdicts by then.
POINTS = [("before", 1, 0), ("after", 1, 1), ("before", 2, 1), ("after", 2, 2), ("before", 3, 2), ("after", 3, 3)]


def fill(root: Any, db: str) -> None:
    """Make three tables that are compared in the order of their sizes."""
    for number, table in enumerate(TABLES, 3):
        values = ", ".join(f"({i})" for i in range(number))
        execute(
            root,
            f"CREATE TABLE `{db}`.{table} (id INT PRIMARY KEY)",
            f"INSERT INTO `{db}`.{table} VALUES {values}",
            f"ANALYZE TABLE `{db}`.{table}",
        )


def insert_unlogged(root: Any, db: str, table: str) -> None:
    """Insert a row that has no event."""
    execute(root, "SET sql_log_bin = 0", f"INSERT INTO `{db}`.{table} VALUES (100)", "SET sql_log_bin = 1")


def done_tables(pipeline: Pipeline) -> int:
    state = kafka_clients.ledger(pipeline.cfg).peek()
    return sum(key.startswith(VERIFY_DONE_PREFIX) for key in state.other_records)


@pytest.mark.exhaustive(but="1-1|3-3-yes")
@pytest.mark.halves
@pytest.mark.parametrize(
    ("point", "nth", "done", "repair"),
    [(*point, RepairMode.NO) for point in POINTS] + [(*point, RepairMode.YES) for point in POINTS[3:6:2]],
)
def test_a_verification_that_is_killed_goes_on_behind_its_last_group(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, point: str, nth: int, done: int, repair: RepairMode
) -> None:
    fill(root, database)
    pipeline.snapshot()
    insert_unlogged(root, database, "b")
    spec, fired = pipeline.verify_spec(VerifyRequest(repair=repair)), tmp_path / "fired"
    fault = {"point": f"verify.{point}_done", "action": "kill-self", "nth": nth, "fired": str(fired)}
    process = start_process(spec, tmp_path, fault=fault)
    output, _ = process.communicate(timeout=300)
    assert fired.exists() and process.returncode == -signal.SIGKILL, output
    assert done_tables(pipeline) == done
    execute(root, *(f"INSERT INTO `{database}`.{table} VALUES (50)" for table in TABLES))
    retry = replace(pipeline.verify_spec(VerifyRequest(repair=repair)), run=spec.run)
    run_verify(retry, ThreadRunner(1), pipeline.log)
    # b differs, so a run that repairs compares it again.
    kept = done - 1 if repair is RepairMode.YES and done >= 2 else done
    said = f"verification: {kept} of 3 table(s) were compared by an earlier try"
    assert (said in pipeline.lines) is (kept > 0), pipeline.lines
    result = pipeline.verify_result(spec.run)
    seen = {table: verdict(result, table) for table in TABLES}
    again = {"a": done < 1, "b": done < 2 or repair is RepairMode.YES, "c": done < 3}
    assert {t: v.rows for t, v in seen.items()} == {
        "a": 3 + again["a"], "b": 5 + again["b"], "c": 5 + again["c"],
    }  # fmt: skip
    assert seen["b"].findings == MISSING and seen["a"].verdict == "equal" and seen["c"].verdict == "equal"
    assert seen["b"].repaired == (MISSING if repair is RepairMode.YES else {})
    assert done_tables(pipeline) == 0
    if repair is RepairMode.YES:
        assert pipeline.verify().verdict == "equal"
