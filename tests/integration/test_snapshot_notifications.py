"""Notifications of initial, blocking and incremental snapshots are those that Debezium 3.6.1 writes, each once.

The expected sequences follow its source: ``AbstractSnapshotChangeEventSource.execute`` (STARTED, then COMPLETED or
ABORTED), ``RelationalSnapshotChangeEventSource.doCreateDataEventsForTable`` (IN_PROGRESS, TABLE_SCAN_COMPLETED), and
``AbstractIncrementalSnapshotChangeEventSource.readChunk``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import unfinished_request
from kit.records import payload
from kit.signals import send
from kit.sql import execute
from kit.table_rig import FLAT, changes, filled, interrupt
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

PROPERTIES = FLAT | {"notification.enabled.channels": "sink"}


@pytest.fixture
def noted(pipeline: Pipeline) -> Pipeline:
    pipeline.properties["notification.sink.topic.name"] = pipeline.properties["topic.prefix"] + ".notes"
    return pipeline


def notes(pipeline: Pipeline) -> list[dict[str, Any]]:
    return [payload(r.value) for r in pipeline.read(pipeline.properties["notification.sink.topic.name"])]


def of_tables(pipeline: Pipeline, aggregate: str = "Initial Snapshot") -> list[tuple[str, ...]]:
    """Return type, table, rows and status of each notification, without the parts of names that differ in each run."""
    prefix, found = pipeline.properties["topic.prefix"], []
    for note in notes(pipeline):
        data = note["additional_data"]
        assert data["connector_name"] == prefix
        if note["aggregate_type"] == aggregate:
            table = data.get("current_collection_in_progress") or data.get("scanned_collection") or ""
            rows = data.get("total_rows_scanned", "")
            found.append((note["type"], table.partition(".")[2], rows, data.get("status", "")))
    return found


def read_completely(table: str, rows: int) -> list[tuple[str, ...]]:
    return [("IN_PROGRESS", table, "", ""), ("TABLE_SCAN_COMPLETED", table, str(rows), "SUCCEEDED")]


STARTED, COMPLETED = ("STARTED", "", "", ""), ("COMPLETED", "", "", "")


def test_an_initial_snapshot_is_reported_as_by_debezium(noted: Pipeline, root: Any, database: str) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", count=30), "CREATE TABLE cc (id INT PRIMARY KEY)")
    noted.slots = 1
    assert noted.snapshot().complete
    told = of_tables(noted)
    assert sorted(told) == sorted(
        [STARTED, *read_completely("aa", 30), *read_completely("bb", 30), *read_completely("cc", 0), COMPLETED]
    )
    assert told[0] == STARTED and told[-1] == COMPLETED
    for table in ("aa", "bb", "cc"):
        assert [note[0] for note in told if note[1] == table] == ["IN_PROGRESS", "TABLE_SCAN_COMPLETED"]
    found = notes(noted)
    assert len({note["id"] for note in found}) == len(found), "each has a random id, as in Debezium"
    members = {note["type"]: set(note["additional_data"]) - {"connector_name"} for note in found}
    assert members == {
        "STARTED": set(),
        "IN_PROGRESS": {"current_collection_in_progress", "data_collections"},
        "TABLE_SCAN_COMPLETED": {"scanned_collection", "data_collections", "total_rows_scanned", "status"},
        "COMPLETED": set(),
    }
    lists = {note["additional_data"].get("data_collections") for note in found} - {None}
    assert lists == {",".join(f"{database}.{table}" for table in ("aa", "bb", "cc"))}
    noted.drain()
    assert len(notes(noted)) == len(found), "a drain reports nothing of it"
    assert noted.snapshot_is_refused()
    assert of_tables(noted)[len(found) :] == [("SKIPPED", "", "", "")]


@pytest.mark.parametrize("nth", [2, 5, 9])
@pytest.mark.parametrize("point", ["", "incremental.after_commit", "incremental.before_books"])
@pytest.mark.exhaustive(but="after_commit-5")
def test_completed_comes_once_when_windows_have_read_the_rest(
    nth: int, point: str, noted: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The snapshot dies, and perhaps a window: after its rows are committed, or before it writes what it has read."""
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", "cc", count=50))
    interrupt(noted, monkeypatch, tmp_path / "fired", nth)
    execute(root, *changes("aa"), *changes("bb"))
    assert COMPLETED not in of_tables(noted)
    if point:
        monkeypatch.setattr(faults, "_passed", {})
        fault = {"point": point, "action": "raise", "nth": 1, "fired": str(tmp_path / point)}
        monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
        with pytest.raises(faults.FaultRaised):
            noted.snapshot()
        monkeypatch.delenv("MYSQL_CDC_FAULT")
        assert (tmp_path / point).exists()
    noted.snapshot()
    for _ in range(5):
        if unfinished_request(noted.cfg) is not None:
            noted.snapshot()
    assert unfinished_request(noted.cfg) is None and of_tables(noted)[-1] == COMPLETED
    noted.drain()
    told = [note for note in of_tables(noted) if note[0] != "SKIPPED"]
    assert told[0] == STARTED and told[-1] == COMPLETED and told.count(COMPLETED) == told.count(STARTED) == 1
    for table in ("aa", "bb", "cc"):
        of_table = [note for note in told if note[1] == table]
        assert [note[0] for note in of_table].count("TABLE_SCAN_COMPLETED") == 1
        assert of_table[0][0] == "IN_PROGRESS" and of_table[-1][3] == "SUCCEEDED"
    assert {note["aggregate_type"] for note in notes(noted)} == {"Initial Snapshot"}


def test_a_snapshot_that_begins_again_was_aborted(
    noted: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa"))
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.chunk_read", "action": "raise", "nth": 1, "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        run_snapshot(noted.prepare("snapshot").spec, ThreadRunner(1), noted.log)
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert noted.snapshot().complete
    begun = [STARTED, ("IN_PROGRESS", "aa", "", "")]
    assert of_tables(noted) == [*begun, ("ABORTED", "", "", ""), STARTED, *read_completely("aa", 30), COMPLETED]


def test_a_blocking_snapshot_is_reported_like_an_initial_one(noted: Pipeline, root: Any, database: str) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", count=30))
    noted.snapshot()
    first = len(notes(noted))
    data = {"type": "blocking", "data-collections": [f"{database}.aa", f"{database}.bb"]}
    send(noted.cfg, "execute-snapshot", data, "again")
    noted.drain()
    assert of_tables(noted)[first:] == [
        STARTED,
        *(note for notes in zip(read_completely("aa", 30), read_completely("bb", 30), strict=True) for note in notes),
        COMPLETED,
    ]
    assert {note["additional_data"]["signal_id"] for note in notes(noted)[first:]} == {"again"}


def test_an_incremental_snapshot_lists_the_tables_that_are_left(noted: Pipeline, root: Any, database: str) -> None:
    """An empty table ends when the range of all tables is determined, before the others are read."""
    execute(root, f"USE `{database}`", *filled(database, "aa", count=10), "CREATE TABLE bb (id INT PRIMARY KEY)")
    noted.snapshot()
    first = len(notes(noted))
    send(noted.cfg, "execute-snapshot", {"data-collections": [f"{database}.aa", f"{database}.bb"]}, "ad-hoc")
    noted.drain()
    found = notes(noted)[first:]
    assert {(note["id"], note["aggregate_type"]) for note in found} == {("ad-hoc", "Incremental Snapshot")}
    told = [(note["type"], note["additional_data"]) for note in found]
    for _, data in told:
        assert data.pop("connector_name") == noted.properties["topic.prefix"]
    both, aa = f"{database}.aa,{database}.bb", f"{database}.aa"
    empty = {"scanned_collection": f"{database}.bb", "total_rows_scanned": "0", "status": "EMPTY"}
    read = {"scanned_collection": aa, "total_rows_scanned": "10", "status": "SUCCEEDED"}
    in_progress = {"current_collection_in_progress": aa, "maximum_key": "9", "last_processed_key": "9"}
    assert told == [
        ("STARTED", {"data_collections": both}),
        ("TABLE_SCAN_COMPLETED", {"data_collections": both} | empty),
        ("IN_PROGRESS", {"data_collections": aa} | in_progress),
        ("TABLE_SCAN_COMPLETED", {"data_collections": aa} | read),
        ("COMPLETED", {}),
    ]


def test_stopped_and_paused_snapshots_have_the_id_of_their_signal(noted: Pipeline, root: Any, database: str) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", count=10))
    noted.snapshot()
    first = len(notes(noted))
    both = [f"{database}.aa", f"{database}.bb"]
    for type_, data, id_ in (
        ("execute-snapshot", {"data-collections": both}, "ad-hoc"),
        ("pause-snapshot", {}, "pause"),
        ("stop-snapshot", {"type": "incremental", "data-collections": both[:1]}, "stop"),
        ("resume-snapshot", {}, "go on"),
        ("stop-snapshot", {"type": "incremental"}, "stop all"),
    ):
        send(noted.cfg, type_, data, id_)
    noted.drain()
    told = [(note["type"], note["additional_data"].get("data_collections")) for note in notes(noted)[first:]]
    assert told == [
        ("STARTED", ",".join(both)),
        ("PAUSED", ",".join(both)),
        ("ABORTED", both[0]),
        ("RESUMED", both[1]),
        ("ABORTED", both[1]),
    ]
    assert {note["id"] for note in notes(noted)[first:]} == {"ad-hoc"}


def test_tables_that_are_not_captured_have_an_unknown_schema(noted: Pipeline, root: Any, database: str) -> None:
    """Types, members and order as Debezium 3.6.1 writes them, which also has no ABORTED for such a signal."""
    execute(root, f"USE `{database}`", *filled(database, "aa", count=10))
    noted.snapshot()
    first = len(notes(noted))
    missing, quoted = f"{database}.missing", f'"{database}"."x.y"'
    send(noted.cfg, "execute-snapshot", {"data-collections": [missing, quoted]}, "none of them")
    noted.drain()
    found = notes(noted)[first:]
    assert {(note["id"], note["aggregate_type"]) for note in found} == {("none of them", "Incremental Snapshot")}
    scans = [note["additional_data"] for note in found if note["type"] == "TABLE_SCAN_COMPLETED"]
    assert [note["type"] for note in found] == ["STARTED", *["TABLE_SCAN_COMPLETED"] * 2, "COMPLETED"]
    both = f"{missing},{database}.x.y"
    assert found[0]["additional_data"]["data_collections"] == both
    members = ("data_collections", "scanned_collection", "total_rows_scanned", "status")
    assert [tuple(scan[name] for name in members) for scan in scans] == [
        (both, missing, "0", "UNKNOWN_SCHEMA"),
        (f"{database}.x.y", f"{database}.x.y", "0", "UNKNOWN_SCHEMA"),
    ]
    send(noted.cfg, "execute-snapshot", {"data-collections": [missing, f"{database}.aa"]}, "one of them")
    noted.drain()
    told = [
        (note["type"], note["additional_data"].get("status")) for note in notes(noted) if note["id"] == "one of them"
    ]
    assert told == [
        ("STARTED", None),
        ("TABLE_SCAN_COMPLETED", "UNKNOWN_SCHEMA"),
        ("IN_PROGRESS", None),
        ("TABLE_SCAN_COMPLETED", "SUCCEEDED"),
        ("COMPLETED", None),
    ]
