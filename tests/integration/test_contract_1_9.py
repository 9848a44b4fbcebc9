"""Contract 1.9 with the source block before Debezium 0.10, on real servers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden.golden_data import sample
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

OLD_SOURCE = [f["field"] for f in sample("EX-02")["schema"]["fields"][2]["fields"]]
PROPERTIES = {"event.contract": "1.9", "source.struct.version": "v1", "include.query": "true"}


def values(records: list[Any]) -> list[Any]:
    return [json.loads(r.value) for r in records]


@pytest.mark.req("EVT-39", "SCH-30", "TYPE-11", "TYPE-12", "TYPE-13")
def test_snapshot_and_drain_write_the_oldest_form(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, f FLOAT, g FLOAT(7,2), r REAL, d DOUBLE)",
        f"INSERT INTO `{database}`.t VALUES (1, 1.1, 2.2, 3.141592653589793, 4.4)",
    )
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.t SET id = 2",
        f"CREATE TABLE `{database}`.u (id INT PRIMARY KEY, f FLOAT, r REAL)",
        f"INSERT INTO `{database}`.u VALUES (1, 1.1, 3.141592653589793)",
    )
    pipeline.drain()
    read, gone, _, created = (None if r.value is None else json.loads(r.value) for r in pipeline.records("t"))
    assert [v["payload"]["op"] for v in (read, gone, created)] == ["r", "d", "c"]
    for value in (read, gone, created):
        assert [f["field"] for f in value["schema"]["fields"][2]["fields"]] == OLD_SOURCE
        assert list(value["payload"]["source"]) == OLD_SOURCE
    first, last = read["payload"]["source"], created["payload"]["source"]
    assert (first["snapshot"], first["ts_sec"], first["thread"]) == (True, 0, None)
    assert last["snapshot"] is False and last["ts_sec"] > 1_700_000_000 and last["thread"]
    assert (last["db"], last["table"], last["version"]) == (database, "t", "0.10.0.Beta4")
    # A snapshot reads REAL as the double it is; the row is the same in the stream but for its key.
    assert read["payload"]["after"] == gone["payload"]["before"] == {**created["payload"]["after"], "id": 1}
    assert read["payload"]["after"] | {"g": None} == {
        "id": 1, "f": 1.100000023841858, "g": None, "r": 3.141592653589793, "d": 4.4,
    }  # fmt: skip
    (other,) = values(pipeline.records("u"))
    assert {f["field"]: f["type"] for f in other["schema"]["fields"][1]["fields"]} == {
        "id": "int32", "f": "double", "r": "float",
    }  # fmt: skip
    assert other["payload"]["after"] == {"id": 1, "f": 1.100000023841858, "r": 3.1415927}


@pytest.mark.req("EX-01", "EX-02", "SCH-28", "SCH-29")
def test_the_schema_change_topic_has_the_oldest_form(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE `{database}`.t ADD COLUMN v INT")
    pipeline.drain()
    records = pipeline.read(pipeline.properties["topic.prefix"])
    found = values(records)
    assert all(json.loads(r.key or b"")["schema"] == sample("EX-01")["schema"] for r in records)
    assert all(v["schema"] == sample("EX-02")["schema"] for v in found)
    payloads = [v["payload"] for v in found]
    assert all(list(p) == ["databaseName", "ddl", "source"] for p in payloads)
    assert [p["source"]["snapshot"] for p in payloads] == [True] * (len(payloads) - 1) + [False]
    assert payloads[-1]["ddl"].startswith("ALTER TABLE") and payloads[-1]["databaseName"] == database
    assert payloads[-2]["ddl"].startswith("CREATE TABLE") and payloads[-2]["source"]["ts_sec"] == 0
    assert payloads[-1]["source"]["ts_sec"] > 1_700_000_000
