"""A row that cannot be written, of a table that an ad-hoc snapshot reads: the error names it and what helps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books
from kit.signals import send
from kit.sql import execute
from kit.window_rig import Places
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import CdcError, RecordTooLargeError, ValueDecodeError

ROWS = 40
BAD = 21
LARGE, UNDECODABLE = f"REPEAT('x', {70_000})", "'100:00:00'"
COMMON = FLAT | {
    "snapshot.mode": "no_data",
    "kafka.message.max.bytes": "60000",
    "time.precision.mode": "connect",
    "commit.bytes": "1024",
}


def failing(properties: dict[str, str], root: Any, database: str, *, large: bool) -> tuple[Pipeline, CdcError]:
    """Return a pipeline whose ad-hoc snapshot stops at a row, and the error."""
    table, type_ = f"`{database}`.t", "MEDIUMTEXT" if large else "TIME"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, v {type_} NOT NULL)")
    execute(root, *(f"INSERT INTO {table} VALUES ({n}, '01:00:00')" for n in range(ROWS) if n != BAD))
    execute(root, f"INSERT INTO {table} VALUES ({BAD}, {LARGE if large else UNDECODABLE})")
    pipeline = Pipeline(properties | COMMON)
    pipeline.snapshot()
    ask_for(pipeline, ["t"])
    execute(root, f"INSERT INTO {table} VALUES ({ROWS}, '02:00:00')")
    with pytest.raises(RecordTooLargeError if large else ValueDecodeError) as caught:
        pipeline.drain()
    with pytest.raises(type(caught.value)):
        pipeline.drain()
    error = caught.value
    assert f"{database}.t" in error.where and not error.can_retry
    assert ('key {"id":21}' if large else "key id=21") in error.where
    return pipeline, error


@pytest.mark.parametrize("other", [False, True])
def test_a_row_that_an_event_without_a_record_has_mended_is_read_again(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    """The window's view shows it as it was; one that is not mended does not keep the table from being read."""
    table = f"`{database}`.t"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, v TIME NOT NULL)")
    execute(root, f"INSERT INTO {table} VALUES (1, '01:00:00'), (2, {UNDECODABLE}), (3, {UNDECODABLE})")
    pipeline = Pipeline(properties | COMMON | {"event.processing.failure.handling.mode": "skip"}, slots=1)
    pipeline.snapshot()
    ask_for(pipeline, ["t"])
    places = Places(monkeypatch)
    statement = f"INSERT INTO {table} VALUES (4, {UNDECODABLE})" if other else f"UPDATE {table} SET v = 0 WHERE id = 2"
    places.at("incremental.view_open", lambda: execute(root, statement))
    pipeline.drain()
    assert not places.left and not books(pipeline).active_scans
    assert events(pipeline) == {(1, "r")} | (set() if other else {(2, "r")})
    waited = [line for line in pipeline.lines if "could not be written either" in line]
    assert len(waited) == (0 if other else 1), waited


def events(pipeline: Pipeline) -> set[tuple[int, str]]:
    values = [json.loads(record.value or b"{}") for record in pipeline.records("t")]
    return {(value["after"]["id"], value["op"]) for value in values}


def ended(pipeline: Pipeline) -> bool:
    """Drain, and return whether the snapshot is over; the first drain may only finish the batch that failed."""
    for _ in range(3):
        outcome = pipeline.drain()
        assert outcome is None or outcome.complete
    return not books(pipeline).active_scans


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.exhaustive(but="True")
def test_the_snapshot_may_be_stopped(properties: dict[str, str], root: Any, database: str, large: bool) -> None:
    pipeline, error = failing(properties, root, database, large=large)
    data = {"data-collections": [f"{database}.t"]}
    assert f"stop-snapshot with {json.dumps(data)}" in error.remedy
    send(pipeline.cfg, "stop-snapshot", data)
    assert ended(pipeline)
    assert (ROWS, "c") in events(pipeline) and (BAD, "r") not in events(pipeline)


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.exhaustive(but="True")
def test_the_column_may_be_excluded(properties: dict[str, str], root: Any, database: str, large: bool) -> None:
    pipeline, error = failing(properties, root, database, large=large)
    assert "column.exclude.list" in error.remedy
    pipeline.properties["column.exclude.list"] = rf"{database}\.t\.v"
    assert ended(pipeline)
    assert {(n, "r") for n in range(ROWS)} <= events(pipeline)


def test_a_row_that_cannot_be_decoded_may_be_left_out(
    properties: dict[str, str], root: Any, database: str, unique: str
) -> None:
    pipeline, error = failing(properties, root, database, large=False)
    assert "event.processing.failure.handling.mode=warn" in error.remedy
    assert "errors.deadletterqueue.topic.name" in error.remedy
    pipeline.properties |= {
        "event.processing.failure.handling.mode": "warn",
        "errors.deadletterqueue.topic.name": f"dead.{unique}",
    }
    assert ended(pipeline)
    assert {n for n in range(ROWS) if n != BAD} == {n for n, op in events(pipeline) if op == "r" and n < ROWS}
    assert len(pipeline.read(f"dead.{unique}")) == 1
