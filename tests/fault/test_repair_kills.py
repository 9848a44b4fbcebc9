"""kill -9 of a repair at each of its fault points: the retry repairs what is left, and nothing twice."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.repairs import REPAIR, damage, fill, repair_records, repairs, verdict
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import start_process

from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

pytestmark = pytest.mark.fault

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "60000",
    "cdc.id.header": "true",
}
# Point, passage, and how many of the two tables are repaired by then.
POINTS = [
    ("plan.after_store", 3, 0),
    ("writer.before_commit", 3, 0),
    ("repair.rows_read", 1, 0),
    ("repair.before_commit", 1, 0),
    ("repair.after_commit", 1, 1),
    ("repair.rows_read", 2, 1),
    ("repair.before_commit", 2, 1),
    ("repair.after_commit", 2, 2),
]


@pytest.mark.parametrize(("point", "nth", "done"), POINTS, ids=[f"{p}-{n}" for p, n, _ in POINTS])
def test_a_repair_that_is_killed_is_finished_by_the_retry(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, point: str, nth: int, done: int
) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage(root, database)
    pipeline.slots = 1
    spec = pipeline.verify_spec(REPAIR)
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-self", "nth": nth, "fired": str(fired)}
    process = start_process(spec, tmp_path, fault=fault)
    output, _ = process.communicate(timeout=300)
    assert fired.exists() and process.returncode == -signal.SIGKILL, output
    assert len(repairs(pipeline)) == done
    retry = replace(pipeline.verify_spec(REPAIR), run=spec.run)
    process = start_process(retry, tmp_path)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    result = pipeline.verify_result(spec.run)
    ledger = {record.table.partition(".")[2]: record for record in repairs(pipeline)}
    kinds = {DifferenceKind.MISSING: 2, DifferenceKind.GHOST: 2}
    assert ledger["orders"].repaired == kinds | {DifferenceKind.DIFFERING: 2}
    assert ledger["log"].repaired == {DifferenceKind.MISSING: 2, DifferenceKind.GHOST: 1}
    assert verdict(result, "orders").repaired == ledger["orders"].repaired
    assert verdict(result, "orders").findings == ledger["orders"].repaired
    written = Counter((op, key["id"]) for op, key, _ in repair_records(pipeline, "orders"))
    assert set(written.values()) == {1} and len(written) == 8
    assert len(repair_records(pipeline, "log")) == 3
    again = pipeline.verify()
    assert again.equal, again
