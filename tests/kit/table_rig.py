"""What the tests of tables' lives share: tables with rows, an interrupted snapshot, and what must hold in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver
from kit.records import compacted, duplicates, payload
from kit.sql import rows

FLAT = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.chunk.rows": "10",
}


def filled(db: str, *names: str, count: int = 30, value: int = 0) -> list[str]:
    """Return the statements that create and fill tables.

    The server counts a table again in the background, which may miss rows of just then; chunks are cut by its count.
    """
    return [
        statement
        for name in names
        for statement in (
            f"CREATE TABLE `{db}`.{name} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO `{db}`.{name} VALUES " + ",".join(f"({i}, {value})" for i in range(count)),
            f"ANALYZE NO_WRITE_TO_BINLOG TABLE `{db}`.{name}",
        )
    ]


def check_chain(pipeline: Pipeline, root: Any, db: str, table: str) -> None:
    """No row is read twice, events continue what is known of a key, and the end equals the table.

    Of a row that an interrupted snapshot has not read, a window of the drain reads it behind its first events.
    """
    records = pipeline.records(table)
    assert duplicates(records) == []
    last: dict[bytes | None, Any] = {}
    for record in records:
        value = payload(record.value)
        if value is None:
            assert last.get(record.key) is None
            continue
        if record.key in last:
            known = value["after" if value["op"] == "r" else "before"]
            assert last[record.key] == known, (record.key, value["op"])
        last[record.key] = value["after"]
    found = {v["id"]: v["v"] for v in compacted(records).values()}
    assert found == dict(rows(root, f"SELECT id, v FROM `{db}`.{table}"))


def interrupt(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, fired: Path, nth: int = 2) -> None:
    """Run a snapshot that fails after some chunks are committed, at first those of its first table."""
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.after_chunk", "action": "raise", "nth": nth, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = pipeline.prepare("snapshot")
    with pytest.raises(faults.FaultRaised):
        snapshot_driver.run_snapshot(job.spec, ThreadRunner(1), pipeline.log)
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")


def changes(table: str) -> list[str]:
    """Return statements that change, add and take away rows all over a table."""
    return [
        f"UPDATE {table} SET v = v + 1 WHERE id % 2 = 0",
        f"DELETE FROM {table} WHERE id % 10 = 3 LIMIT 2",
        f"INSERT INTO {table} (id, v) SELECT MAX(id) + 1, 8 FROM {table}",
        f"UPDATE {table} SET id = id + 500 WHERE id % 20 = 15",
    ]
