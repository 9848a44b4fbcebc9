"""With ``binlog_row_metadata=FULL`` no fault of the DDL parser damages rows or stops a drain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.broken_parser import Damage, break_parser, placed
from kit.records import compacted, duplicates, payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "snapshot.locking.mode": "none",
}


@contextmanager
def full_metadata(root: Any) -> Iterator[None]:
    execute(root, "SET GLOBAL binlog_row_metadata = FULL")
    try:
        yield
    finally:
        execute(root, "SET GLOBAL binlog_row_metadata = MINIMAL")  # as the other tests have it


COLUMNS = (
    "(id INT PRIMARY KEY, credit INT, debit INT DEFAULT 7, mood ENUM('ok','no'), note VARCHAR(20) CHARACTER SET latin1)"
)


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    tables = [f"CREATE TABLE `{database}`.{name} {COLUMNS}" for name in ("t", *DAMAGES)]
    execute(root, *tables, f"CREATE TABLE `{database}`.big (id INT PRIMARY KEY, pad VARCHAR(2000))")
    made = Pipeline(properties | FLAT)
    made.snapshot()
    return made


def last_first(table: Table) -> Table:
    return placed(table, table.columns[-1], *table.columns[:-1])


def swap(table: Table) -> Table:
    first, credit, debit, *others = table.columns
    return placed(table, first, replace(credit, name="debit"), replace(debit, name="credit"), *others)


def change_columns(table: Table, **changes: dict[str, Any]) -> Table:
    return placed(table, *(replace(column, **changes.get(column.name, {})) for column in table.columns))


DAMAGES: dict[str, Damage] = {
    "column_order": last_first,
    "swapped_names": swap,
    "less": lambda table: placed(table, *table.columns[:-1]),
    "more": lambda table: placed(table, replace(table.columns[1], name="ghost"), *table.columns),
    "name": lambda table: change_columns(table, more={"name": "mehr"}),
    "type": lambda table: change_columns(table, more={"type_name": "INT", "declared_type": "INT"}),
    "signedness": lambda table: change_columns(table, more={"unsigned": False}),
    "members": lambda table: change_columns(table, mood={"enum_values": ("?", "??")}),
    "character_set": lambda table: change_columns(table, note={"charset": "gbk", "collation": "gbk_chinese_ci"}),
    "primary_key": lambda table: replace(table, primary_key=("credit",)),
}
ALTER = "ALTER TABLE `{}`.{} ADD more BIGINT UNSIGNED NOT NULL DEFAULT 5 FIRST, MODIFY mood ENUM('😀','😡')"
INSERTS = (
    "INSERT INTO `{}`.{} (id, credit, debit, mood, note, more) VALUES (1, 2, 3, '😡', 'é', 18446744073709551615)",
    "INSERT INTO `{}`.{} (id) VALUES (2)",
)


def schema_changes(pipeline: Pipeline, table: str = "t") -> list[Any]:
    """Return the structures of a table in the schema change topic."""
    values = [payload(record.value) for record in pipeline.read(pipeline.properties["topic.prefix"])]
    name = TableId(pipeline.properties["database.include.list"], table).debezium_id()
    changes = [change for value in values for change in value["tableChanges"] if change["id"] == name]
    return [change["table"] for change in changes if change["table"]]


def warnings(pipeline: Pipeline) -> list[str]:
    return [line for line in pipeline.lines if "in the schema history differs" in line]


def statements(db: str, table: str) -> list[str]:
    return [sql.format(db, table) for sql in (ALTER, *INSERTS)]


@pytest.mark.req("SCH-03")
def test_faults_of_the_parser_are_corrected_by_the_rows(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damages = {TableId(database, name): damage for name, damage in DAMAGES.items()}
    break_parser(monkeypatch, "ALTER TABLE", damages)
    with full_metadata(root):
        for name in DAMAGES:
            execute(root, *statements(database, name))
    pipeline.drain()
    truth = {
        '{"id": 1}': {"more": -1, "id": 1, "credit": 2, "debit": 3, "mood": "😡", "note": "é"},
        '{"id": 2}': {"more": 5, "id": 2, "credit": None, "debit": 7, "mood": None, "note": None},
    }
    for name in DAMAGES:
        assert compacted(pipeline.records(name)) == truth, name
        (line,) = [line for line in warnings(pipeline) if f" {database}.{name} in" in line]
        assert "binlog.0" in line
        before, after = schema_changes(pipeline, name)[-2:]
        assert [column["name"] for column in after["columns"]] == ["more", "id", "credit", "debit", "mood", "note"]
        assert after["primaryKeyColumnNames"] == ["id"]
        assert before != after
    # The schema history has the corrected structures, and needs no metadata from then on.
    execute(root, *(f"INSERT INTO `{database}`.{name} (id, credit, debit) VALUES (3, 4, 5)" for name in DAMAGES))
    pipeline.drain()
    for name in DAMAGES:
        last = compacted(pipeline.records(name))['{"id": 3}']
        assert last == truth['{"id": 2}'] | {"id": 3, "credit": 4, "debit": 5}, name
        assert duplicates(pipeline.records(name)) == []
    assert len(warnings(pipeline)) == len(DAMAGES)


@pytest.mark.req("SCH-03")
def test_a_unique_index_is_no_primary_key(properties: dict[str, str], root: Any, database: str) -> None:
    """MySQL's TABLE_MAP events have the first unique index without nullable columns as the primary key."""
    execute(
        root,
        f"CREATE TABLE `{database}`.t (u INT NOT NULL, v INT, UNIQUE KEY (u))",
        f"CREATE TABLE `{database}`.s (id SERIAL, p INT)",
        f"CREATE TABLE `{database}`.e (n INT NOT NULL, UNIQUE KEY ((n + 1)))",
        f"ALTER TABLE `{database}`.s ALTER p DROP DEFAULT",
    )
    pipeline = Pipeline(properties | FLAT)
    pipeline.snapshot()
    with full_metadata(root):
        execute(
            root,
            f"INSERT INTO `{database}`.t VALUES (1, 1)",
            f"INSERT INTO `{database}`.s (p) VALUES (1)",
            f"INSERT INTO `{database}`.e VALUES (1)",
        )
        pipeline.drain()
    assert warnings(pipeline) == []
    execute(
        root,
        f"ALTER TABLE `{database}`.t MODIFY u INT NULL",
        f"INSERT INTO `{database}`.t VALUES (NULL, 2)",
    )
    pipeline.drain()
    assert [record.key and payload(record.key) for record in pipeline.records("t")] == [{"u": 1}, None]
    assert [payload(record.key) for record in pipeline.records("s")] == [{"id": 1}]
    assert [payload(record.value)["after"] for record in pipeline.records("e")] == [{"n": 1}]


@pytest.mark.req("SCH-03")
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
@pytest.mark.exhaustive(but="MINIMAL")
def test_members_that_are_no_text_stop_nothing(
    properties: dict[str, str], root: Any, database: str, metadata: str
) -> None:
    """CONVERT TO leaves the bytes of members as they are, so snapshot and stream have what the server shows of them."""
    body = "(id INT PRIMARY KEY, e ENUM('x','béèb','ü') CHARACTER SET latin1, s SET('é','y') CHARACTER SET latin1)"
    rows, convert = "VALUES (1, 'béèb', 'é,y'), (2, 'ü', 'y')", "CONVERT TO CHARACTER SET utf8mb4"
    execute(root, *(f"CREATE TABLE `{database}`.{name} {body}" for name in ("t", "before")))
    execute(root, f"INSERT INTO `{database}`.before {rows}", f"ALTER TABLE `{database}`.before {convert}")
    pipeline = Pipeline(properties | FLAT)
    pipeline.snapshot()
    with full_metadata(root):
        execute(root, f"SET GLOBAL binlog_row_metadata = {metadata}", f"INSERT INTO `{database}`.t {rows}")
        execute(root, f"ALTER TABLE `{database}`.t {convert}", f"UPDATE `{database}`.t SET id = id + 2")
        execute(root, f"INSERT INTO `{database}`.before VALUES (3, 2, 3), (4, 3, 2)")
        pipeline.drain()
    shown = [{"e": "b?", "s": ",y"}, {"e": "", "s": "y"}]
    after = {f'{{"id": {key}}}': {"id": key} | shown[(key - 1) % 2] for key in range(1, 5)}
    assert compacted(pipeline.records("before")) == after
    assert compacted(pipeline.records("t")) == {key: row for key, row in after.items() if row["id"] > 2}
    assert warnings(pipeline) == []


def test_without_the_metadata_a_fault_that_changes_types_stops_the_drain(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_parser(monkeypatch, "ALTER TABLE", {TableId(database, "t"): last_first})
    execute(root, "SET GLOBAL binlog_row_metadata = MINIMAL")
    execute(root, *statements(database, "t"))
    with pytest.raises(SchemaMismatchError):
        pipeline.drain()


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.exhaustive(but="2")
def test_a_correction_within_a_transaction_is_written_once_whatever_fails(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nth: int
) -> None:
    """Writer 0 commits within the transaction before and after the correction, and fails after one of the commits."""
    pipeline.properties["commit.bytes"] = "20000"
    break_parser(monkeypatch, "ALTER TABLE", {TableId(database, "t"): swap})
    pads = [f"INSERT INTO `{database}`.big VALUES " + ",".join(f"({n}, REPEAT('x', 2000))" for n in block)
            for block in (range(60), range(60, 120))]  # fmt: skip
    with full_metadata(root):
        alter, insert, _ = statements(database, "t")
        execute(root, alter, "BEGIN", pads[0], insert, pads[1], "COMMIT")
    monkeypatch.setattr(faults, "_passed", {})
    fired = tmp_path / "fired"
    fault = {"point": "writer.after_commit", "nth": nth, "writer": 0, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    pipeline.drain()
    (event,) = [payload(record.value)["after"] for record in pipeline.records("t")]
    assert (event["credit"], event["debit"]) == (2, 3)
    assert len(pipeline.records("big")) == 120 and duplicates(pipeline.records("big")) == []
    assert len(schema_changes(pipeline)) == 3, "of the snapshot, the statement and the correction"
