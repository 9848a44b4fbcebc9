"""TiCDC's flat rows by the native kernel under kill -9, with several writers: what Python writes by way of JSON.

As ``test_native_kills``: the same changes are drained twice, with the kernel, killed and taken up again, and in one go
by way of JSON. Keys, values, headers, partitions and the order within them are the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from test_native_kills import KERNEL, PYTHON, ROWS, Run, run

pytestmark = [pytest.mark.fault, pytest.mark.native]

TABLES = ("hot", "kinds", "left")
FAULTS: list[tuple[str, Run, Run]] = [
    ("writer.before_commit", (Pipeline.in_process, KERNEL), (Pipeline.in_process, KERNEL)),
    ("writer.after_commit", (Pipeline.in_process, KERNEL), (Pipeline.in_process, PYTHON)),
    ("writer.after_commit", (Pipeline.in_process, PYTHON), (Pipeline.in_process, KERNEL)),
]


def stream_of(properties: dict[str, str], which: str) -> Pipeline:
    """Return a stream of the tables whose topics begin with a name."""
    rules = [
        {"matcher": ["*.hot"], "partition": "index-value"},
        {"matcher": ["*.kinds"], "partition": "columns", "columns": ["y", "e", "n"]},
        {"matcher": ["*.*"], "partition": "ts"},
    ]
    rules = [rule | {"topic": f"{which}_{{schema}}_{{table}}"} for rule in rules]
    more = {"topic.prefix": f"{which}_{properties['topic.prefix']}", "dispatchers": json.dumps(rules)}
    return Pipeline(properties | more)


@pytest.fixture
def streams(properties: dict[str, str], registry: str) -> tuple[Pipeline, Pipeline]:
    """Return two streams of the same tables."""
    properties |= {
        "value.format": "ticdc-avro",
        "schema-registry": registry,
        "enable-tidb-extension": "true",
        "cdc.id.header": "true",
        "drain.writers": "3",
        "drain.small.batch.bytes": "0",
        "topic.creation.default.partitions": "3",
        "commit.bytes": "65536",
    }
    return stream_of(properties, "native"), stream_of(properties, "python")


def make(root: Any, database: str) -> None:
    execute(
        root,
        f"USE `{database}`",
        "CREATE TABLE hot (id INT PRIMARY KEY, v VARCHAR(100))",
        "CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, n DECIMAL(20,4), d DOUBLE, f FLOAT, t DATETIME(6), "
        "s TIMESTAMP(3) NULL, c TIME(2), j JSON, e ENUM('a','é'), m SET('x','y','z'), b BLOB, l VARCHAR(40) "
        "CHARACTER SET latin1, u TEXT, y YEAR, bits BIT(12), o TINYINT(1))",
        "CREATE TABLE `left` (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET gbk)",
    )


def change(root: Any) -> None:
    """Make a batch: plain and compressed transactions, key changes, DDL in between."""
    for start in range(0, ROWS, 500):
        values = ",".join(f"({i}, 'value of row {i}')" for i in range(start, start + 500))
        execute(root, f"SET SESSION binlog_transaction_compression = {int(start > ROWS / 2)}")
        execute(root, f"INSERT INTO hot VALUES {values}")
    for i in range(300):
        execute(root, f"SET SESSION binlog_transaction_compression = {int(i % 5 == 0)}")
        execute(
            root,
            f"INSERT INTO kinds VALUES ({2**63 + i}, {i}/7, {i}/3, {i}/9, NOW(6), NOW(3), '-1:02:03.5', "
            f"JSON_OBJECT('k', {i}, 'é', JSON_ARRAY({i}/3, NULL, 'x')), 'é', 'x,z', UNHEX('00FF{i:04X}'), "
            f"'Müller {i}', '語{i}', 1970 + {i % 99}, {i}, {i % 2})",
        )
    execute(
        root,
        "UPDATE hot SET v = CONCAT(v, '!') WHERE id % 3 = 0",
        "ALTER TABLE hot ADD COLUMN extra INT DEFAULT 7",
        "UPDATE kinds SET n = -n, t = NULL, u = NULL",
        "INSERT INTO `left` VALUES (1, '中'), (2, NULL)",
        "UPDATE hot SET id = id + 100000 WHERE id < 50",
        "DELETE FROM hot WHERE id % 5 = 0 AND id < 100000",
        "DELETE FROM kinds WHERE o = 1",
    )


def shown(stream: Pipeline, which: str, database: str) -> dict[str, dict[int, list[Any]]]:
    """Return what a stream's topics show of changes, by table and partition."""
    found = dict[str, dict[int, list[Any]]]()
    for table in TABLES:
        records, parts = stream.read(f"{which}_{database}_{table}"), defaultdict[int, list[Any]](list)
        assert duplicates(records) == []
        for record in records:
            headers = [(name, text) for name, text in record.headers if name == "cdc-id"]
            # Each topic has schemas of its own, whose ids stand in four bytes.
            key, value = (data and data[:1] + data[5:] for data in (record.key, record.value))
            parts[record.partition].append((key, value, headers))
        found[table] = dict(parts)
    return found


def by_way_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no flat row be written at once in this process."""
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.drain.table_route.create_ticdc_rows", lambda *_: None)


@pytest.mark.parametrize(("point", "first", "second"), FAULTS, ids=[f"{p}-{a[1]}-{b[1]}" for p, a, b in FAULTS])
def test_a_batch_that_was_killed_shows_what_python_shows(
    point: str,
    first: Run,
    second: Run,
    streams: tuple[Pipeline, Pipeline],
    root: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native, python = streams
    make(root, database)
    for stream in streams:
        stream.snapshot()
    change(root)
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-driver", "fired": str(fired), "nth": 2}
    ended = run(native, first, monkeypatch, tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired:\n{ended.stdout}\n{ended.stderr[-2000:]}"
    assert ended.returncode != 0 and not native.settle().complete
    again = run(native, second, monkeypatch, tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr[-3000:]
    by_way_of_json(monkeypatch)
    monkeypatch.setenv("MYSQL_CDC_NATIVE", PYTHON)
    other = python.drain()
    outcome = native.settle()
    assert outcome.complete and outcome.tally is not None
    counts = outcome.tally.native
    assert set(counts.declined) <= {"key_change", "format"} and (counts.rows or second[1] == PYTHON)
    if (first[1], second[1]) == (KERNEL, KERNEL):
        assert counts.rows >= ROWS and "key_change" in counts.declined, counts
    found = shown(native, "native", database)
    assert found == shown(python, "python", database), other
    assert len(found["hot"]) == len(found["kinds"]) == 3
    assert sum(len(part) for part in found["hot"].values()) > ROWS
