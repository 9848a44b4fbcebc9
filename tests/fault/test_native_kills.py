"""The native kernel under kill -9, with several writers and compressed transactions: the topics that Python writes.

Each test drains the same changes twice: with the kernel, killed at a fault point and taken up again, and in one go
with ``MYSQL_CDC_NATIVE=off``; once so that each event is looked at in Python, and once so that whole transactions are
walked. Keys, values, headers (``cdc-id`` among them), partitions and the order within them are
the same, but for the time of processing and the stream's name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

pytestmark = [pytest.mark.fault, pytest.mark.native]

ROWS = 2000
TABLES = ("hot", "kinds", "left")
NOW = re.compile(rb'"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+}+$')
KERNEL, PYTHON = "on", "off"
Run = tuple[Any, str]
# Who is killed where, and who takes the batch up: on Spark or in a process, with the kernel or without.
FAULTS: list[tuple[str, dict[str, Any], Run, Run]] = [
    ("writer.mid_batch", {"writer": 0}, (Pipeline.on_spark, KERNEL), (Pipeline.on_spark, KERNEL)),
    ("writer.before_commit", {"nth": 2}, (Pipeline.in_process, KERNEL), (Pipeline.in_process, KERNEL)),
    ("writer.after_commit", {"nth": 2}, (Pipeline.in_process, KERNEL), (Pipeline.in_process, PYTHON)),
    ("writer.after_commit", {"nth": 2}, (Pipeline.in_process, PYTHON), (Pipeline.in_process, KERNEL)),
]


# Properties with which each event is looked at in Python, and without which whole transactions are walked.
EVENTS, TRANSACTIONS = {"provide.transaction.metadata": "true"}, {"provide.transaction.metadata": "false"}
CASES = [(*fault, EVENTS) for fault in FAULTS] + [(*fault, TRANSACTIONS) for fault in FAULTS[1:]]
NAMES = [f"{point}-{second[1]}-{'walked' if how is TRANSACTIONS else 'events'}" for point, _, _, second, how in CASES]


@pytest.fixture
def streams(properties: dict[str, str], how: dict[str, str]) -> tuple[Pipeline, Pipeline]:
    """Return two streams of the same tables."""
    properties |= how | {
        "cdc.id.header": "true",
        "drain.writers": "3",
        "drain.small.batch.bytes": "0",
        "topic.creation.default.partitions": "3",
        "commit.bytes": "65536",
        # Schemas of keys hold the stream's name, and keys choose partitions.
        "key.converter.schemas.enable": "false",
        "unavailable.value.as.null": "true",
    }
    # A prefix apart from the database's name, which stands in the records too.
    native, python = ({"topic.prefix": f"{which}_{properties['topic.prefix']}"} for which in ("native", "python"))
    return Pipeline(properties | native), Pipeline(properties | python)


def make(root: Any, database: str) -> None:
    execute(
        root,
        f"USE `{database}`",
        "CREATE TABLE hot (id INT PRIMARY KEY, v VARCHAR(100))",
        "CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, n DECIMAL(20,4), d DOUBLE, f FLOAT, t DATETIME(6), "
        "s TIMESTAMP(3) NULL, c TIME(2), j JSON, e ENUM('a','é'), m SET('x','y','z'), b BLOB, l VARCHAR(40) "
        "CHARACTER SET latin1, u TEXT, y YEAR, bits BIT(12), o TINYINT(1), p POINT)",
        "CREATE TABLE `left` (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET gbk)",
    )


def change(root: Any) -> None:
    """Make a batch: plain and compressed transactions, key changes, images that leave columns out, DDL in between."""
    for start in range(0, ROWS, 500):
        values = ",".join(f"({i}, 'value of row {i}')" for i in range(start, start + 500))
        execute(root, f"SET SESSION binlog_transaction_compression = {int(start > ROWS / 2)}")
        execute(root, f"INSERT INTO hot VALUES {values}")
    for i in range(300):
        execute(root, f"SET SESSION binlog_transaction_compression = {i % 2}")
        execute(
            root,
            f"INSERT INTO kinds VALUES ({2**63 + i}, {i}/7, {i}/3, {i}/9, NOW(6), NOW(3), '-1:02:03.5', "
            f"JSON_OBJECT('k', {i}, 'é', JSON_ARRAY({i}/3, NULL, 'x')), 'é', 'x,z', UNHEX('00FF{i:04X}'), "
            f"'Müller {i}', '語{i}', 1970 + {i % 99}, {i}, {i % 2}, POINT({i}, 1))",
        )
    execute(
        root,
        "UPDATE hot SET v = CONCAT(v, '!') WHERE id % 3 = 0",
        "ALTER TABLE hot ADD COLUMN extra INT DEFAULT 7",
        "UPDATE kinds SET n = -n, t = NULL, u = NULL",
        "INSERT INTO `left` VALUES (1, '中'), (2, NULL)",
        "UPDATE hot SET id = id + 100000 WHERE id < 50",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE kinds SET d = d * 2 WHERE o = 1",
        "SET SESSION binlog_row_image = FULL",
        "DELETE FROM hot WHERE id % 5 = 0 AND id < 100000",
    )


def shown(stream: Pipeline) -> dict[str, dict[int, list[Any]]]:
    """Return what a stream's topics show of changes, by table and partition."""
    prefix, found = stream.properties["topic.prefix"].encode(), dict[str, dict[int, list[Any]]]()
    for table in TABLES:
        records, parts = stream.records(table), defaultdict[int, list[Any]](list)
        assert duplicates(records) == []
        for record in records:
            value = record.value and NOW.sub(b"", record.value).replace(b'"' + prefix + b'"', b'"name"')
            value = value and value.replace(b'"' + prefix + b".", b'"name.')
            headers = [(name, text) for name, text in record.headers if name == "cdc-id"]
            parts[record.partition].append((record.key, value, headers))
        found[table] = dict(parts)
    return found


def run(stream: Pipeline, how: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **more: Any) -> Any:
    monkeypatch.setenv("MYSQL_CDC_NATIVE", how[1])
    return how[0](stream, "drain", tmp_path, **more)


@pytest.mark.parametrize(("point", "more", "first", "second", "how"), CASES, ids=NAMES)
def test_a_batch_that_was_killed_shows_what_python_shows(
    point: str,
    more: dict[str, Any],
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
    fault = {"point": point, "action": "kill-driver", "fired": str(fired), **more}
    ended = run(native, first, monkeypatch, tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired:\n{ended.stdout}\n{ended.stderr[-2000:]}"
    assert ended.returncode != 0 and not native.settle().complete
    again = run(native, second, monkeypatch, tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr[-3000:]
    assert run(python, (Pipeline.in_process, PYTHON), monkeypatch, tmp_path).returncode == 0

    outcome = native.settle()
    assert outcome.complete and outcome.tally is not None
    counts = outcome.tally.native
    # What a writer that was killed had decoded behind its last commit is not told.
    assert set(counts.declined) <= {"key_change", "incomplete_image", "table"} and (counts.rows or second[1] == PYTHON)
    if (first[1], second[1]) == (KERNEL, KERNEL):
        assert counts.rows >= ROWS and set(counts.declined) == {"key_change", "incomplete_image", "table"}, counts
    said = f"{ended.stdout}{again.stdout}"
    assert said.count("rows are decoded by native kernel") == (first[1], second[1]).count(KERNEL), said
    other = python.settle()
    assert other.complete and other.tally is not None and other.tally.native.rows == 0
    assert shown(native) == shown(python)
    assert sum(len(part) for part in shown(native)["hot"].values()) > ROWS
