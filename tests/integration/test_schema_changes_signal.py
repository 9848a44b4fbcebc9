"""The signal schema-changes on real servers: rows are read with the structures that it tells, from its place on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.records import payload
from kit.signals import send
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.send_signal import send_signal
from airflow_provider_mysql_cdc.cdc.signals.signal import build_signal

SIGNALS = "CREATE TABLE `{}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT NULL)"
FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false", "cdc.id.header": "true"}


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | FLAT
        | {
            "table.include.list": f"{database}.t,{database}.u",
            "schema.history.internal.store.only.captured.tables.ddl": "true",
            "signal.data.collection": f"{database}.signals",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"{properties['topic.prefix']}.notes",
            "drain.writers": "2",
            "drain.small.batch.bytes": "0",
        }
    )
    assert rows(root, "SELECT @@GLOBAL.binlog_row_metadata")[0][0] == "MINIMAL"
    tables = [f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, a INT, b INT)" for t in ("t", "u")]
    execute(root, SIGNALS.format(database), *tables)
    made.snapshot()
    return made


def changes(db: str, *columns: str, tables: tuple[str, ...] = ("t", "u"), type_: str = "INT") -> str:
    """Return a signal's data that gives the columns of tables other names."""
    told = [
        {"name": name, "typeName": type_, "optional": name != "id", "position": number, "jdbcType": 4}
        for number, name in enumerate(columns, 1)
    ]
    table = {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": told}
    found = [{"type": "ALTER", "id": f'"{db}"."{t}"', "table": table} for t in tables]
    return json.dumps({"database": db, "changes": found})


def tell(root: Any, db: str, id_: str, data: str) -> None:
    with root.cursor() as cursor:
        cursor.execute(f"INSERT INTO `{db}`.signals VALUES (%s, 'schema-changes', %s)", (id_, data))


def insert(root: Any, db: str, *ids: int, columns: str = "id, a, b") -> None:
    execute(root, *(f"INSERT INTO `{db}`.{t} ({columns}) VALUES ({i}, {i}, {i})" for i in ids for t in ("t", "u")))


def rename_unlogged(root: Any, db: str) -> None:
    """Give the columns of the tables other names by statements that are not in the binlog."""
    renames = (f"ALTER TABLE `{db}`.{t} RENAME COLUMN a TO p, RENAME COLUMN b TO q" for t in ("t", "u"))
    execute(root, "SET SESSION sql_log_bin = 0", *renames, "SET SESSION sql_log_bin = 1")


def names(pipeline: Pipeline, table: str = "t") -> list[tuple[int, str]]:
    found = [payload(r.value)["after"] for r in pipeline.records(table)]
    return [(row["id"], "".join(name for name in row if name != "id")) for row in found]


def told(pipeline: Pipeline) -> list[tuple[str, str]]:
    values = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.notes")]
    return [(v["id"], v["type"]) for v in values if v["aggregate_type"] != "Initial Snapshot"]


def described(pipeline: Pipeline) -> list[tuple[str, list[str]]]:
    """Return what the schema change topic says without a statement: tables and their columns."""
    values = [payload(r.value) for r in pipeline.read(pipeline.properties["topic.prefix"])]
    found = [v["tableChanges"] for v in values if v["ddl"] is None]
    assert all(len(tables) == 1 for tables in found)
    return [(c["id"], [column["name"] for column in c["table"]["columns"]]) for (c,) in found]


def test_structures_hold_from_the_signals_place_on_and_are_written_once(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both writers take them, a writer dies, a statement follows in the same batch, and the place is passed again."""
    start = pipeline.store.load()
    assert start is not None
    insert(root, database, 1)
    rename_unlogged(root, database)
    tell(root, database, "other-names", changes(database, "id", "p", "q"))
    insert(root, database, 2, columns="id, p, q")
    execute(root, f"ALTER TABLE `{database}`.t ADD c INT")
    insert(root, database, 3, columns="id, p, q")
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "writer.after_commit", "action": "raise", "writer": 0, "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        pipeline.drain()
    assert (tmp_path / "fired").exists()
    pipeline.drain()
    insert(root, database, 4, columns="id, p, q")
    pipeline.drain()
    expected = [(1, "ab"), (2, "pq"), (3, "pqc"), (4, "pqc")]
    assert names(pipeline) == expected
    assert names(pipeline, "u") == [(1, "ab"), (2, "pq"), (3, "pq"), (4, "pq")]
    written = [(f'"{database}"."{t}"', ["id", "p", "q"]) for t in ("t", "u")]
    assert described(pipeline) == written
    assert told(pipeline) == [("other-names", "COMPLETED")]

    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=str(start.committed))
    pipeline.drain()
    insert(root, database, 5, columns="id, p, q")
    pipeline.drain()
    assert names(pipeline)[4:] == [*expected, (5, "pqc")], "behind an earlier place it holds from the same place on"
    assert told(pipeline) == [("other-names", "COMPLETED")]


@pytest.mark.exhaustive
def test_structures_without_a_position_in_the_binlog_apply_after_the_last_batch(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = pipeline.store.load()
    assert start is not None
    insert(root, database, 1)
    send(pipeline.cfg, "schema-changes", changes(database, "id", "p", "q"), "over-airflow")
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "signals.before_commit", "action": "raise", "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        pipeline.drain()
    assert told(pipeline) == [] and described(pipeline) == []
    pipeline.drain()
    insert(root, database, 2)
    pipeline.drain()
    assert names(pipeline) == names(pipeline, "u") == [(1, "ab"), (2, "pq")]
    headers = {tuple(name for name, _ in r.headers) for r in pipeline.read(pipeline.properties["topic.prefix"])}
    assert len(headers) == 1 and headers != {()}, "as those of a statement"
    assert len(described(pipeline)) == 2 and told(pipeline) == [("over-airflow", "COMPLETED")]
    with pytest.raises(SchemaError, match="cannot move back before structures that a schema-changes signal set"):
        reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=str(start.committed))


def test_malformed_structures_are_refused_by_name_and_the_drain_goes_on(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    tell(root, database, "type", changes(database, "id", "p", "q", type_="NOTHING"))
    tell(root, database, "other", changes(database, "id", "p", "q", tables=("signals_of_others",)))
    unchecked = build_signal("twice", "schema-changes", changes(database, "id", "id"), "airflow")
    send_signal(pipeline.cfg, unchecked)
    insert(root, database, 1)
    pipeline.drain()
    notes = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.notes")]
    notes = [note for note in notes if note["aggregate_type"] != "Initial Snapshot"]
    found = {n["id"]: n["additional_data"]["reason"] for n in notes}
    assert {n["type"] for n in notes} == {"ABORTED"} and len(notes) == 3
    assert "changes[0]" in found["type"] and "typeName must be a type of MySQL" in found["type"]
    assert f"{database}.signals_of_others, which is not captured" in found["other"]
    assert "names that differ" in found["twice"]
    assert names(pipeline) == [(1, "ab")] and described(pipeline) == []


def test_the_way_out_of_structures_that_rows_do_not_fit(pipeline: Pipeline, root: Any, database: str) -> None:
    """Of the signal table the retry would meet them again, so its rows must not count until they are passed."""
    tell(root, database, "wrong", changes(database, "id", "p"))
    insert(root, database, 1)
    with pytest.raises(SchemaMismatchError):
        pipeline.drain()
    channels = pipeline.properties.pop("signal.enabled.channels", None)
    assert channels is None
    pipeline.properties["signal.enabled.channels"] = ""
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="stored")
    pipeline.drain()
    del pipeline.properties["signal.enabled.channels"]
    insert(root, database, 2)
    pipeline.drain()
    assert names(pipeline) == names(pipeline, "u") == [(1, "ab"), (2, "ab")]

    send(pipeline.cfg, "schema-changes", changes(database, "id", "p"), "wrong-again")
    insert(root, database, 3)
    pipeline.drain()
    insert(root, database, 4)
    with pytest.raises(SchemaMismatchError):
        pipeline.drain()
    pipeline.properties["snapshot.mode"] = "recovery"
    assert pipeline.snapshot_is_refused()
    del pipeline.properties["snapshot.mode"]
    pipeline.drain()
    insert(root, database, 5)
    pipeline.drain()
    assert names(pipeline)[2:] == [(3, "ab"), (4, "ab"), (5, "ab")]
