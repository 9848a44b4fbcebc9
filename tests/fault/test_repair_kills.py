"""kill -9 of a repair at each of its fault points: the retry repairs what is left, and nothing twice."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.repairs import REPAIR, damage, fill, repair_records, repairs, verdict
from kit.sql import execute, rows
from kit.topic_damage import TopicDamage, damage_every_kind
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import start_process

from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode
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


SETTLED_POINTS = [
    ("repair.rows_read", 1, 0),
    ("repair.before_commit", 1, 0),
    ("repair.after_commit", 1, 2),
    ("repair.before_commit", 4, 4),
    ("repair.after_commit", 9, 10),
]


@pytest.mark.parametrize(("point", "nth", "done"), SETTLED_POINTS, ids=[f"{p}-{n}" for p, n, _ in SETTLED_POINTS])
def test_a_repair_that_settles_keys_and_is_killed_is_finished_by_the_retry(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, point: str, nth: int, done: int
) -> None:
    """A transaction has two deletes, and each other one the row of one key, with the tombstones that belong to it."""
    schemas = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    pipeline.properties |= schemas | {"commit.bytes": "1024", "cdc.id.header": "false"}
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.orders SET name = 'u' WHERE id IN (1, 2)",
        f"DELETE FROM `{database}`.orders WHERE id = 4",
    )
    pipeline.drain()
    damage = TopicDamage(pipeline, "orders")
    damage_every_kind(damage)
    pipeline.slots = 1
    request = replace(REPAIR, history=True)
    spec = pipeline.verify_spec(request)
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-self", "nth": nth, "fired": str(fired)}
    process = start_process(spec, tmp_path, fault=fault)
    output, _ = process.communicate(timeout=300)
    assert fired.exists() and process.returncode == -signal.SIGKILL, output
    repaired = repairs(pipeline)[0].repaired if done else {}
    assert sum(repaired.values()) == done
    process = start_process(replace(pipeline.verify_spec(request), run=spec.run), tmp_path)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    (record,) = repairs(pipeline)
    assert record.repaired == {
        DifferenceKind.MISSING: 1, DifferenceKind.DIFFERING: 1, DifferenceKind.UNREADABLE: 3,
        DifferenceKind.WRONG_PARTITION: 1, DifferenceKind.DUPLICATE: 1, DifferenceKind.REORDERED: 1,
        DifferenceKind.GAP: 1, DifferenceKind.NO_TOMBSTONE: 1,
    }  # fmt: skip
    written = [r for r in pipeline.records("orders") if "cdc-repair" in dict(r.headers)]
    # A row or a tombstone for each of ten keys, a delete, and the tombstone of the misplaced record.
    assert len(written) == 12 and len({(r.partition, r.key, r.value is None) for r in written}) == 12
    assert pipeline.verify(replace(request, repair=RepairMode.NO)).clean
    assert damage.compacted_rows(("id", "name")) == sorted(
        rows(root, f"SELECT id, name FROM `{database}`.orders"), key=repr
    )
