"""Streams of all types verify clean with every setting that changes how records look: modes, filters, keys, routes."""

from __future__ import annotations

from typing import Any

import pytest
from kit.avro_rig import avro
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from test_avro_jobs import COLUMNS, of_all_types
from test_decode_types import LAX

from airflow_provider_mysql_cdc.cdc.verify.row_history import NO_TIMES_REASON
from airflow_provider_mysql_cdc.cdc.verify.verify_request import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
NUMBERED = {"snapshot.chunk.rows": "4", "topic.creation.default.partitions": "3"}
FORMS: dict[str, dict[str, str]] = {
    "plain": PLAIN,
    "schemas": {},
    "key-schema-only": {"value.converter.schemas.enable": "false"},
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
    "no-tombstones": {**PLAIN, "tombstones.on.delete": "false", "provide.transaction.metadata": "true"},
    "ids": {**PLAIN, "cdc.id.header": "true"},
    "null-defaults": {**PLAIN, "value.converter.replace.null.with.default": "false"},
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


def other_table(root: Any, db: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{db}`.other (a INT, b VARCHAR(10), name VARCHAR(20), text VARCHAR(50), mail VARCHAR(50), "
        "secret INT, PRIMARY KEY (a, b))",
        f"INSERT INTO `{db}`.other VALUES "
        + ",".join(f"({i % 5}, 'k{i}', 'name {i}', 'some text {i}', 'm{i}@x', {i})" for i in range(25)),
    )


def change_other(root: Any, db: str) -> None:
    execute(
        root,
        f"UPDATE `{db}`.other SET name = 'new', text = 'changed' WHERE a = 2",
        f"UPDATE `{db}`.other SET secret = 7 WHERE a = 1",
        f"UPDATE `{db}`.other SET b = CONCAT(b, 'x') WHERE a = 3",
        f"DELETE FROM `{db}`.other WHERE a = 4",
    )


def require_clean(pipeline: Pipeline, *, rows: int, unknown: tuple[str, ...] = ()) -> None:
    result = pipeline.verify(VerifyRequest(history=True))
    others = [
        (v.table, v.findings, v.unknown, v.examples[:3]) for v in result.tables if v.findings or v.unknown != unknown
    ]
    assert others == [] and result.clean
    assert sum(v.rows for v in result.tables) == rows
    assert sum(v.partial_rows for v in result.tables) == 0


def require_found(pipeline: Pipeline, root: Any, table: str, where: str) -> None:
    """A row that is deleted without an event is found in the same form, so a clean verdict means something."""
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM {table} WHERE {where} LIMIT 1", "SET sql_log_bin = 1")
    result = pipeline.verify()
    assert sum(v.findings.get(DifferenceKind.GHOST, 0) for v in result.tables) == 1
    assert sum(sum(v.findings.values()) for v in result.tables) == 1


def rows_of(root: Any, table: str) -> int:
    with root.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("form", list(FORMS))
def test_all_types_verify_clean(form: str, properties: dict[str, str], root: Any, database: str) -> None:
    pipeline = Pipeline(properties | NUMBERED | FORMS[form])
    types_table(root, database)
    pipeline.snapshot()
    change_types(root, database)
    require_clean(pipeline, rows=rows_of(root, f"`{database}`.t"))
    require_found(pipeline, root, f"`{database}`.t", "id = 1002")


@pytest.mark.parametrize("parts", [("key", "value"), ("value",)], ids=["avro", "avro-values"])
def test_avro_verifies_clean(
    parts: tuple[str, ...], properties: dict[str, str], registry: str, root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | NUMBERED | avro(registry, *parts))
    types_table(root, database)
    pipeline.snapshot()
    change_types(root, database)
    require_clean(pipeline, rows=rows_of(root, f"`{database}`.t"))
    require_found(pipeline, root, f"`{database}`.t", "id = 1002")


def test_ticdc_verifies_clean(properties: dict[str, str], registry: str, root: Any, database: str) -> None:
    rules = '[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"}]'
    ticdc = {"value.format": "ticdc-avro", "schema-registry": registry, "dispatchers": rules}
    pipeline = Pipeline(properties | NUMBERED | ticdc)
    other_table(root, database)
    pipeline.snapshot()
    change_other(root, database)
    require_clean(pipeline, rows=20, unknown=(NO_TIMES_REASON,))
    require_found(pipeline, root, f"`{database}`.other", "a = 2")


@pytest.mark.parametrize(
    "more",
    [
        PLAIN | COLUMN_RULES,
        PLAIN | {"message.key.columns": "(.*)\\.other:name,a"},
        PLAIN | {"message.key.columns": "(.*)\\.other:a"},
        PLAIN | {"skipped.operations": "none"},
        {"field.name.adjustment.mode": "avro", "schema.name.adjustment.mode": "avro"},
        PLAIN
        | {
            "transforms": "route",
            "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
            "transforms.route.topic.regex": "(.*)\\.[^.]*",
            "transforms.route.topic.replacement": "$1.all",
        },
    ],
    ids=["column-rules", "key-of-two-columns", "key-of-one-column", "truncates", "names", "routed"],
)
def test_keys_filters_and_routes_verify_clean(
    more: dict[str, str], properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | NUMBERED | more)
    other_table(root, database)
    execute(root, f"CREATE TABLE `{database}`.second (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO `{database}`.second VALUES (1, 1), (2, 2), (3, 3)")
    pipeline.snapshot()
    change_other(root, database)
    execute(root, f"TRUNCATE TABLE `{database}`.second") if "skipped.operations" in more else None
    execute(root, f"INSERT INTO `{database}`.second VALUES (9, 1)")
    require_clean(pipeline, rows=21 if "skipped.operations" in more else 24)
    require_found(pipeline, root, f"`{database}`.other", "a = 2")


ALTERS = (
    "ADD COLUMN more INT NOT NULL DEFAULT 7",
    "DROP COLUMN secret",
    "MODIFY COLUMN text VARCHAR(99) FIRST",
    "MODIFY COLUMN secret BIGINT",
    "CHANGE COLUMN mail email VARCHAR(50)",
    "ADD COLUMN at DATETIME(3) DEFAULT '2020-01-01 00:00:00.5', ADD COLUMN d DECIMAL(9,2) DEFAULT 1.5",
)


@pytest.mark.parametrize("alter", ALTERS)
@pytest.mark.parametrize("form", ["plain", "schemas", "avro"])
def test_rows_of_an_earlier_structure_are_no_false_alarm(
    form: str, alter: str, properties: dict[str, str], registry: str, root: Any, database: str
) -> None:
    more = avro(registry, "key", "value") if form == "avro" else FORMS[form]
    pipeline = Pipeline(properties | NUMBERED | more)
    other_table(root, database)
    pipeline.snapshot()
    execute(root, f"ALTER TABLE `{database}`.other {alter}")
    change = f"UPDATE `{database}`.other SET name = 'after' WHERE a = 2"
    execute(root, change)
    result = pipeline.verify(VerifyRequest(history=True))
    assert [(v.findings, v.examples[:3]) for v in result.tables if not v.clean] == []
    require_found(pipeline, root, f"`{database}`.other", "a = 2")
