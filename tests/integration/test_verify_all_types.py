"""Streams of all types verify clean with every setting that changes how records look: modes, filters, keys, routes."""

from __future__ import annotations

from typing import Any

import pytest
from kit.avro_rig import avro
from kit.repairs import LOGGED, UNLOGGED
from kit.sql import execute
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from test_avro_jobs import COLUMNS, of_all_types
from test_decode_types import LAX

from airflow_provider_mysql_cdc.cdc.verify.history.key_history import NO_TIMES_REASON
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, VerifyRequest

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
NUMBERED = {"snapshot.chunk.rows": "4", "topic.creation.default.partitions": "3"}
FORMS: dict[str, dict[str, str]] = {
    "plain": PLAIN,
    "schemas": {},
    "contract-1.9": {"event.contract": "1.9"},
    "modes": {
        "decimal.handling.mode": "string",
        "bigint.unsigned.handling.mode": "precise",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64",
    },
    "other-modes": {
        **PLAIN,
        "decimal.handling.mode": "double",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "hex",
        "include.schema.comments": "true",
    },
    "other-records": {
        **PLAIN,
        "tombstones.on.delete": "false",
        "provide.transaction.metadata": "true",
        "cdc.id.header": "true",
        "value.converter.replace.null.with.default": "false",
    },
}
COLUMN_RULES = {
    "column.exclude.list": ".*\\.other\\.secret",
    "column.mask.with.12.chars": ".*\\.other\\.name",
    "column.truncate.to.5.chars": ".*\\.other\\.text",
    "column.mask.hash.SHA-256.with.salt.pepper": ".*\\.other\\.mail",
}


def types_table(root: Any, db: str) -> None:
    columns = ", ".join(f"{name} {sql_type}" for name, (sql_type, _) in COLUMNS.items())
    execute(root, LAX, f"CREATE TABLE `{db}`.t (id INT PRIMARY KEY, {columns})", *of_all_types(db, 0))


def change_types(root: Any, db: str) -> None:
    execute(
        root,
        LAX,
        *of_all_types(db, 1000),
        f"UPDATE `{db}`.t SET id = id + 10000 WHERE id BETWEEN 1 AND 2",
        f"UPDATE `{db}`.t a JOIN (SELECT t0 FROM `{db}`.t WHERE id = 1003) b ON a.id = 3 SET a.t0 = b.t0",
        f"DELETE FROM `{db}`.t WHERE id IN (4, 1004)",
    )


def other_table(root: Any, db: str, table: str = "other") -> None:
    execute(
        root,
        f"CREATE TABLE `{db}`.{table} (a INT, b VARCHAR(10), name VARCHAR(20), text VARCHAR(50), mail VARCHAR(50), "
        "secret INT, PRIMARY KEY (a, b))",
        f"INSERT INTO `{db}`.{table} VALUES "
        + ",".join(f"({i % 5}, 'k{i}', 'name {i}', 'some text {i}', 'm{i}@x', {i})" for i in range(25)),
    )


def change_other(root: Any, db: str, table: str = "other") -> None:
    execute(
        root,
        f"UPDATE `{db}`.{table} SET name = 'new', text = 'changed' WHERE a = 2",
        f"UPDATE `{db}`.{table} SET secret = 7 WHERE a = 1",
        f"UPDATE `{db}`.{table} SET b = CONCAT(b, 'x') WHERE a = 3",
        f"DELETE FROM `{db}`.{table} WHERE a = 4",
    )


def require_clean(pipeline: Pipeline, *, rows: int, unknown: tuple[str, ...] = ()) -> None:
    result = pipeline.verify(VerifyRequest(history=True))
    others = [
        (v.table, v.findings, v.unknown, v.examples[:3]) for v in result.tables if v.findings or v.unknown != unknown
    ]
    assert others == [] and result.verdict == "equal"
    assert sum(v.rows for v in result.tables) == rows
    assert sum(v.unjudged for v in result.tables) == 0


def require_found(pipeline: Pipeline, root: Any, *tables: str, where: str) -> None:
    """A row that is deleted without an event is found in the same form, so a clean verdict means something."""
    execute(root, UNLOGGED, *(f"DELETE FROM {table} WHERE {where} LIMIT 1" for table in tables), LOGGED)
    found = {v.table: v.findings for v in pipeline.verify().tables if v.findings}
    assert found == {table.replace("`", ""): {DifferenceKind.GHOST: 1} for table in tables}


def rows_of(root: Any, table: str) -> int:
    with root.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int(cursor.fetchone()[0])


@pytest.mark.exhaustive(but="^(plain|modes)$")
@pytest.mark.parametrize("form", many([f for f in FORMS if "schema" not in f], list(FORMS)))
def test_all_types_verify_clean(form: str, properties: dict[str, str], root: Any, database: str) -> None:
    require_all_types(Pipeline(properties | NUMBERED | FORMS[form]), root, database)


@pytest.mark.exhaustive
def test_avro_verifies_clean(properties: dict[str, str], registry: str, root: Any, database: str) -> None:
    require_all_types(Pipeline(properties | NUMBERED | avro(registry)), root, database)


def require_all_types(pipeline: Pipeline, root: Any, database: str) -> None:
    types_table(root, database)
    pipeline.snapshot()
    change_types(root, database)
    require_clean(pipeline, rows=rows_of(root, f"`{database}`.t"))
    require_found(pipeline, root, f"`{database}`.t", where="id = 1002")


def test_ticdc_verifies_clean(properties: dict[str, str], registry: str, root: Any, database: str) -> None:
    rules = '[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"}]'
    ticdc = {"value.format": "ticdc-avro", "schema-registry": registry, "dispatchers": rules}
    pipeline = Pipeline(properties | NUMBERED | ticdc)
    other_table(root, database)
    pipeline.snapshot()
    change_other(root, database)
    require_clean(pipeline, rows=20, unknown=(NO_TIMES_REASON,))
    require_found(pipeline, root, f"`{database}`.other", where="a = 2")


# Tables with rules of their own; those that are routed share a topic.
RULED = {
    **PLAIN,
    **COLUMN_RULES,
    "message.key.columns": "(.*)\\.by_two:name,a;(.*)\\.by_one:a",
    "skipped.operations": "none",
    "transforms": "route",
    "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.route.topic.regex": "(.*)\\.routed_[^.]*",
    "transforms.route.topic.replacement": "$1.all",
}
NAMES = {"field.name.adjustment.mode": "avro", "schema.name.adjustment.mode": "avro"}
TABLES = {"rules": (RULED, ("other", "by_two", "by_one", "routed_a", "routed_b")), "names": (NAMES, ("other",))}


@pytest.mark.exhaustive(but="names")
@pytest.mark.parametrize("case", TABLES)
def test_keys_filters_and_routes_verify_clean(case: str, properties: dict[str, str], root: Any, database: str) -> None:
    more, tables = TABLES[case]
    pipeline = Pipeline(properties | NUMBERED | more)
    for table in tables:
        other_table(root, database, table)
    execute(root, f"CREATE TABLE `{database}`.second (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO `{database}`.second VALUES (1, 1), (2, 2), (3, 3)")
    pipeline.snapshot()
    for table in tables:
        change_other(root, database, table)
    truncates = "skipped.operations" in more
    execute(root, f"TRUNCATE TABLE `{database}`.second") if truncates else None
    execute(root, f"INSERT INTO `{database}`.second VALUES (9, 1)")
    require_clean(pipeline, rows=20 * len(tables) + (1 if truncates else 4))
    require_found(pipeline, root, *(f"`{database}`.{table}" for table in tables), where="a = 2")


ALTERS = (
    "ADD COLUMN more INT NOT NULL DEFAULT 7",
    "DROP COLUMN secret",
    "MODIFY COLUMN text VARCHAR(99) FIRST",
    "MODIFY COLUMN secret BIGINT",
    "CHANGE COLUMN mail email VARCHAR(50)",
    "ADD COLUMN at DATETIME(3) DEFAULT '2020-01-01 00:00:00.5', ADD COLUMN d DECIMAL(9,2) DEFAULT 1.5",
)


@pytest.mark.exhaustive(but="plain")
@pytest.mark.parametrize("form", ["plain", "avro"])
def test_rows_of_an_earlier_structure_are_no_false_alarm(
    form: str, properties: dict[str, str], registry: str, root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | NUMBERED | (avro(registry) if form == "avro" else FORMS[form]))
    tables = {f"t{number}": alter for number, alter in enumerate(ALTERS)}
    for table in tables:
        other_table(root, database, table)
    pipeline.snapshot()
    for table, alter in tables.items():
        name = f"`{database}`.{table}"
        execute(root, f"ALTER TABLE {name} {alter}", f"UPDATE {name} SET name = 'after' WHERE a = 2")
    result = pipeline.verify(VerifyRequest(history=True))
    assert [(v.table, v.findings, v.examples[:3]) for v in result.tables if v.verdict != "equal"] == []
    require_found(pipeline, root, *(f"`{database}`.{table}" for table in tables), where="a = 2")
