"""Rows that cannot be represented: the run stops at them, or they go to the dead-letter topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.incremental_rig import ask_for
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED_SUFFIX
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import SKIPPED_SUFFIX

# TIME beyond one day has no form in Connect's Time.
TABLE = "CREATE TABLE `{db}`.clock (id INT PRIMARY KEY, t TIME NOT NULL, note VARCHAR(20))"
FILLED = "INSERT INTO `{db}`.clock VALUES (1, '01:00:00', 'a'), (2, '100:00:00', 'b'), (3, '03:00:00', 'c')"
CHURN = (
    "INSERT INTO `{db}`.clock VALUES (4, '04:00:00', 'd'), (5, '-05:00:00', 'e'), (6, '06:00:00', 'f')",
    "UPDATE `{db}`.clock SET note = CONCAT(note, '!')",
    "DELETE FROM `{db}`.clock WHERE id IN (5, 6)",
)


@pytest.fixture
def pipeline(properties: dict[str, str], unique: str) -> Pipeline:
    return Pipeline(
        properties
        | {
            "time.precision.mode": "connect",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "event.processing.failure.handling.mode": "warn",
            "errors.deadletterqueue.topic.name": f"dead.{unique}",
        }
    )


@pytest.mark.req("TYPE-46", "TYPE-47")
@pytest.mark.parametrize("metadata", ["false", "true"], ids=["own rows", "all rows"])
@pytest.mark.parametrize("mode", ["connect", "nanoseconds"])
@pytest.mark.exhaustive(but="connect-all")
def test_values_that_no_type_can_hold_are_null_counted_and_logged_once(
    pipeline: Pipeline, root: Any, database: str, mode: str, metadata: str
) -> None:
    pipeline.properties |= {
        "time.precision.mode": mode,
        "event.processing.failure.handling.mode": "fail",
        "provide.transaction.metadata": metadata,
        "topic.creation.default.partitions": "3",
        "drain.writers": "2",
        "drain.small.batch.bytes": "0",
        "incremental.snapshot.chunk.size": "100",
    }
    kind, values = {
        "connect": ("TIME", ("100:00:00", "03:00:00", "-00:00:01")),
        "nanoseconds": ("DATETIME", ("9000-01-01 00:00:00", "2024-01-01 00:00:00", "1500-01-01 00:00:00")),
    }[mode]
    table, counted = f"`{database}`.clock", pipeline.table_topic("clock") + NULLED_SUFFIX
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, t {kind}, note VARCHAR(9))")
    rows = [f"({n}, '{values[n % 3]}', 'a'), ({n + 100}, NULL, 'b')" for n in range(30)]
    execute(root, f"INSERT INTO {table} VALUES {', '.join(rows)}")

    def said() -> list[str]:
        lines = [line for line in pipeline.lines if "cannot represent it" in line]
        pipeline.lines.clear()
        return lines

    assert pipeline.snapshot().counts[counted] == 20
    (line,) = said()
    assert f"column t of table {database}.clock" in line and "snapshot of" in line and "time.precision.mode" in line
    assert any(value in line for value in values)
    execute(root, f"UPDATE {table} SET note = 'c' WHERE id < 6", f"DELETE FROM {table} WHERE id IN (6, 7, 101)")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.counts[counted] == 9, "four updates with two images, and a delete"
    lines = said()
    assert 1 <= len(lines) <= 2 and all("binlog" in line and values[0] in line for line in lines), "one of each writer"
    ask_for(pipeline, ["clock"])
    outcome = pipeline.drain()
    assert outcome is not None and outcome.counts[counted] == 19 and len(said()) == 1
    after = [v["after"] for r in pipeline.records("clock") if (v := payload(r.value)) and v["after"]]
    assert {row["t"] is None for row in after if row["id"] < 100 and row["id"] % 3 != 1} == {True}
    assert {row["t"] is None for row in after if row["id"] < 100 and row["id"] % 3 == 1} == {False}


def script(root: Any, database: str, *statements: str) -> None:
    execute(root, *(s.format(db=database) for s in statements))


def keyed(records: list[Any]) -> list[tuple[Any, Any]]:
    return [(json.loads(r.key), (payload(r.value) or {"op": ""})["op"]) for r in records]


@pytest.mark.req("STRM-23", "CFG-28", "FAULT-13")
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.exhaustive(but="3")
def test_bad_rows_of_snapshot_and_drain_go_to_the_topic_and_the_others_stay(
    pipeline: Pipeline, root: Any, database: str, partitions: int
) -> None:
    pipeline.properties |= {
        "topic.creation.default.partitions": str(partitions),
        "drain.writers": str(partitions),
        "drain.small.batch.bytes": "0",
    }
    script(root, database, TABLE, FILLED)
    dead, topic = pipeline.properties["errors.deadletterqueue.topic.name"], pipeline.table_topic("clock")
    first = pipeline.snapshot()
    assert first.complete and sorted(first.counts.values()) == [1, 2]
    assert [n for name, n in first.counts.items() if name.endswith(SKIPPED_SUFFIX)] == [1]
    (letter,) = [json.loads(r.value or b"") for r in pipeline.read(dead)]
    assert letter["op"] == "r" and letter["topic"] == topic
    assert letter["error"]["where"].endswith(f"table {database}.clock, key id=2")
    assert (letter["key"], letter["before"], letter["after"]) == ({"id": 2}, None, {"id": 2, "note": "b"})
    assert [f["column"] for f in letter["failed"]] == ["t"] and letter["source"]["table"] == "clock"
    assert [json.loads(r.key or b"") for r in pipeline.read(dead)] == [{"id": 2}]
    script(root, database, *CHURN)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    per_key: dict[int, list[str]] = {}
    for key, op in keyed(pipeline.records("clock")):
        per_key.setdefault(key["id"], []).append(op)
    assert per_key == {1: ["r", "u"], 3: ["r", "u"], 4: ["c", "u"], 6: ["c", "u", "d", ""]}
    records = pipeline.read(dead)[1:]
    letters = {(json.loads(r.key or b"")["id"], json.loads(r.value or b"")["op"]): r for r in records}
    assert sorted(letters) == [(2, "u"), (5, "c"), (5, "d"), (5, "u")] and len(records) == 4
    assert outcome.counts[topic + SKIPPED_SUFFIX] == outcome.counts[dead] == 4
    update = json.loads(letters[5, "u"].value or b"")
    assert update["before"] == {"id": 5, "note": "e"} and update["after"] == {"id": 5, "note": "e!"}
    assert {f["column"] for f in update["failed"]} == {"t"}
    assert update["source"]["table"] == "clock" and update["source"]["row"] == 4
    headers = dict(letters[5, "u"].headers)
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.exception.class.name"] == b"ValueDecodeError"


@pytest.mark.req("STRM-23")
def test_without_a_mode_the_run_stops_and_shows_nothing_of_the_event(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    del pipeline.properties["event.processing.failure.handling.mode"]
    script(root, database, TABLE)
    pipeline.snapshot()
    script(root, database, *CHURN)
    with pytest.raises(ValueDecodeError, match="column t ") as caught:
        pipeline.drain()
    assert f"table {database}.clock, row 1, key id=5" in caught.value.where
    assert pipeline.records("clock") == []


@pytest.mark.req("SETUP-17")
def test_partial_json_and_minimal_images_pass_through_the_pipeline(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    script(root, database, "CREATE TABLE `{db}`.doc (id INT PRIMARY KEY, n INT NOT NULL, j JSON, v TEXT)")
    script(root, database, "INSERT INTO `{db}`.doc VALUES (1, 1, '{{\"a\": 1, \"b\": [1, 2]}}', 'x')")
    pipeline.snapshot()
    try:
        script(
            root,
            database,
            "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
            "UPDATE `{db}`.doc SET j = JSON_SET(j, '$.b[1]', 'new')",
            "SET SESSION binlog_transaction_compression = ON",
            "UPDATE `{db}`.doc SET j = JSON_REMOVE(j, '$.b[0]')",
            "SET SESSION binlog_transaction_compression = OFF",
            "SET SESSION binlog_row_value_options = '', SESSION binlog_row_image = 'MINIMAL'",
            "UPDATE `{db}`.doc SET n = 2",
            "UPDATE `{db}`.doc SET v = 'y'",
        )
    finally:
        execute(root, "SET SESSION binlog_row_image = DEFAULT")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    values = [payload(r.value)["after"] for r in pipeline.records("doc")][1:]
    held = "__debezium_unavailable_value"
    assert values == [
        {"id": 1, "n": 1, "j": '{"a":1,"b":[1,"new"]}', "v": "x"},
        {"id": 1, "n": 1, "j": '{"a":1,"b":["new"]}', "v": "x"},
        {"id": 1, "n": 2, "j": held, "v": held},
    ]
    (letter,) = pipeline.read(pipeline.properties["errors.deadletterqueue.topic.name"])
    assert json.loads(letter.value or b"")["error"]["what"].startswith("A value of column n ")
    assert letter.key == b'{"id":1}'
