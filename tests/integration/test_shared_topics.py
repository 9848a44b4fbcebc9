"""Ad-hoc snapshots of tables whose topics have partitions, or that share one, while the very keys are changed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from kit.incremental_rig import FLAT, Writer, ask_for, books
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from kit.table_rig import filled
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults

ROUTED = {
    "transforms": "route",
    "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.route.topic.regex": "(.*)[.]part[0-9]",
    "transforms.route.topic.replacement": "$1.all",
    "transforms.route.key.field.name": "part",
}
OWN = {"topic.creation.default.partitions": "3"}


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("given", [OWN, OWN | ROUTED], ids=["own topics", "one topic"])
@pytest.mark.req("INC-20", "INC-27")
@pytest.mark.exhaustive(but="one topic-3")
@pytest.mark.halves
def test_every_topic_ends_with_its_rows(
    properties: dict[str, str],
    root: Any,
    database: str,
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    slots: int,
) -> None:
    pipeline = Pipeline(properties | FLAT | given | {"drain.writers": "3", "drain.small.batch.bytes": "0"}, slots=slots)
    tables = ["part1", "part2"]
    execute(root, *filled(database, *tables, count=200))
    pipeline.snapshot()
    waits = {"incremental.view_open": 0.2, "incremental.stretch_read": 0.02}
    monkeypatch.setattr(faults, "fault_point", lambda name, writer=None: time.sleep(waits.get(name, 0)))
    writer = Writer(stack, database, tables, 220, seed=slots)
    writer.start()
    try:
        for n in range(2):
            ask_for(pipeline, tables, f"s{n}")
            pipeline.drain()
    finally:
        writer.stop()
    pipeline.drain()
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"}
    assert any("left out" in line for line in pipeline.lines), "no event hit a key of an open window"
    shared = "transforms" in given
    for topic in ["all"] if shared else tables:
        records = pipeline.read(pipeline.table_topic(topic))
        assert duplicates(records) == []
        assert len({r.partition for r in records}) == 3 and len(placed(records)) == len({r.key for r in records})
        behind_what_was_told(records)
        found = sorted((v["id"], v["v"]) for v in compacted(records).values())
        wanted = [row for t in (tables if shared else [topic]) for row in rows(root, f"SELECT * FROM `{database}`.{t}")]
        assert found == sorted(wanted)


def placed(records: list[Any]) -> set[tuple[bytes, int]]:
    return {(r.key, r.partition) for r in records}


def behind_what_was_told(records: list[Any]) -> None:
    """Fail unless each event continues what its key's last one left; a row read again is what was told last."""
    last: dict[str, Any] = {}
    for record in records:
        key, value = json.dumps(payload(record.key), sort_keys=True), payload(record.value)
        if value is None:
            continue
        again = value["op"] == "r" and key in last
        assert last.get(key) == (value["after"] if again else value["before"]), (key, value["op"])
        last[key] = value["after"]
