"""kill -9 of a repair at each of its fault points: the retry repairs what is left, and nothing twice."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.repairs import REPAIR, damage, fill, repairs, verdict
from kit.sql import execute, rows
from kit.topic_damage import TopicDamage, damage_every_kind
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner
from pipelinelib.submit import start_process

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify

pytestmark = pytest.mark.fault

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "60000",
    "cdc.id.header": "true",
}
# Point, passage (views are opened for two comparisons before), and how many of the two tables are repaired by then.
POINTS = [
    ("writer.before_commit", 3, 0),
    ("incremental.view_open", 3, 0),
    ("incremental.before_commit", 1, 0),
    ("incremental.after_commit", 1, 1),
    ("incremental.stretch_read", 2, 1),
    ("incremental.before_books", 1, 2),
]


@pytest.fixture(params=["json", pytest.param("avro", marks=pytest.mark.exhaustive)])
def registry_url(request: pytest.FixtureRequest, pipeline: Pipeline) -> str | None:
    """Make the stream one of JSON or of Avro; return the schema registry of the latter."""
    if request.param == "json":
        return None
    url: str = request.getfixturevalue("registry")
    pipeline.properties |= avro(url)
    return url


@pytest.mark.halves
@pytest.mark.parametrize(("point", "nth", "done"), POINTS, ids=[f"{p}-{n}" for p, n, _ in POINTS])
def test_a_repair_that_is_killed_is_finished_by_the_retry(
    pipeline: Pipeline,
    root: Any,
    database: str,
    tmp_path: Path,
    registry_url: str | None,
    point: str,
    nth: int,
    done: int,
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
    run_verify(replace(pipeline.verify_spec(REPAIR), run=spec.run), ThreadRunner(1), pipeline.log)
    result = pipeline.verify_result(spec.run)
    ledger = {record.table.partition(".")[2]: record for record in repairs(pipeline)}
    kinds = {DifferenceKind.MISSING: 2, DifferenceKind.GHOST: 2}
    assert ledger["orders"].repaired == kinds | {DifferenceKind.DIFFERING: 2}
    assert ledger["log"].repaired == {DifferenceKind.MISSING: 2, DifferenceKind.GHOST: 1}
    assert verdict(result, "orders").repaired == ledger["orders"].repaired
    assert verdict(result, "orders").findings == ledger["orders"].repaired
    topic = TopicDamage(pipeline, "orders", registry_url)
    written = Counter(
        (r.value is None, topic.decode(r.key, key=True)["id"]) for r in repaired_records(pipeline, "orders")
    )
    assert set(written.values()) == {1} and len(written) == 8
    assert len(repaired_records(pipeline, "log")) == 3
    again = pipeline.verify()
    assert again.equal, again


def repaired_records(pipeline: Pipeline, table: str) -> list[TopicRecord]:
    return [record for record in pipeline.records(table) if "cdc-repair" in dict(record.headers)]


@pytest.mark.halves
@pytest.mark.parametrize("form", ["json", pytest.param("avro", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("point", "done"), [("incremental.before_commit", 0), ("incremental.after_commit", 10)], ids=["before", "after"]
)
def test_a_repair_that_settles_keys_and_is_killed_is_finished_by_the_retry(
    pipeline: Pipeline,
    root: Any,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    form: str,
    point: str,
    done: int,
) -> None:
    url: str | None = None if form == "json" else request.getfixturevalue("registry")
    schemas = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    pipeline.properties |= (schemas if url is None else avro(url)) | {"cdc.id.header": "false"}
    kill_and_retry(pipeline, root, database, tmp_path, (point, 1, done), url)


def kill_and_retry(
    pipeline: Pipeline,
    root: Any,
    database: str,
    tmp_path: Path,
    fault_place: tuple[str, int, int],
    registry_url: str | None = None,
) -> None:
    """Damage a key for each kind of difference, kill the repair, and let the retry finish it."""
    point, nth, done = fault_place
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.orders SET name = 'u' WHERE id IN (1, 2)",
        f"DELETE FROM `{database}`.orders WHERE id = 4",
    )
    pipeline.drain()
    damage = TopicDamage(pipeline, "orders", registry_url)
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
    run_verify(replace(pipeline.verify_spec(request), run=spec.run), ThreadRunner(1), pipeline.log)
    (record,) = repairs(pipeline)
    assert record.repaired == {
        DifferenceKind.MISSING: 1, DifferenceKind.DIFFERING: 1, DifferenceKind.UNREADABLE: 3,
        DifferenceKind.WRONG_PARTITION: 1, DifferenceKind.DUPLICATE: 1, DifferenceKind.REORDERED: 1,
        DifferenceKind.GAP: 1, DifferenceKind.NO_TOMBSTONE: 1,
    }  # fmt: skip
    written = repaired_records(pipeline, "orders")
    # A row or a tombstone for each of ten keys, a delete, and the tombstone of the misplaced record.
    assert len(written) == 12 and len({(r.partition, r.key, r.value is None) for r in written}) == 12
    assert pipeline.verify(replace(request, repair=RepairMode.NO)).verdict == "equal"
    assert damage.compacted_rows(("id", "name")) == sorted(
        rows(root, f"SELECT id, name FROM `{database}`.orders"), key=repr
    )
