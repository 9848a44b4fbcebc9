"""The native kernel under kill -9, with several writers and compressed transactions: the topics that Python writes.

Each test drains the same changes twice: with the kernel, killed at a fault point and taken up again, and in one go
with ``MYSQL_CDC_NATIVE=off``; JSON once so that each event is looked at in Python and once so that whole transactions
are walked, and TiCDC's flat rows, which Python writes by way of JSON. Keys, values, headers (``cdc-id`` among them),
partitions and the order within them are the same, but for the time of processing and the stream's name.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.operate.settle import JobOutcome
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

pytestmark = [pytest.mark.fault, pytest.mark.native]

ROWS = 2000
TABLES = ("hot", "kinds", "left")
NOW = re.compile(rb'"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+}+$')
HEADERS = ("cdc-id", "__debezium.newkey", "__debezium.oldkey")
KERNEL, PYTHON = "on", "off"
Run = tuple[Any, str]
Kill = tuple[str, dict[str, Any], Run, Run]
# Who is killed where, and who takes the batch up: on Spark or in a process, with the kernel or without.
ON_SPARK: Kill = ("writer.mid_batch", {"writer": 0}, (Pipeline.on_spark, KERNEL), (Pipeline.on_spark, KERNEL))
KILLS: list[Kill] = [
    ("writer.before_commit", {"nth": 2}, (Pipeline.in_process, KERNEL), (Pipeline.in_process, KERNEL)),
    ("writer.after_commit", {"nth": 2}, (Pipeline.in_process, KERNEL), (Pipeline.in_process, PYTHON)),
    ("writer.after_commit", {"nth": 2}, (Pipeline.in_process, PYTHON), (Pipeline.in_process, KERNEL)),
]
# Properties with which each event is looked at in Python, and without which whole transactions are walked.
HOW = {"events": {"provide.transaction.metadata": "true"}, "walked": {"provide.transaction.metadata": "false"}}
CASES = [("events", ON_SPARK), *((how, kill) for kill in KILLS for how in HOW)]
COMMON = {
    "cdc.id.header": "true",
    "drain.writers": "3",
    "drain.small.batch.bytes": "0",
    "topic.creation.default.partitions": "3",
    "commit.bytes": "65536",
}


def name_of(kill: Kill) -> str:
    point, _, first, second = kill
    return f"{point}-{first[1]}-{second[1]}"


def make(root: Any, database: str, streams: tuple[Pipeline, Pipeline], more_kinds: str = "") -> None:
    """Create the tables and read them with both streams."""
    execute(
        root,
        f"USE `{database}`",
        "CREATE TABLE hot (id INT PRIMARY KEY, v VARCHAR(100))",
        "CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, n DECIMAL(20,4), d DOUBLE, f FLOAT, t DATETIME(6), "
        "s TIMESTAMP(3) NULL, c TIME(2), j JSON, e ENUM('a','é'), m SET('x','y','z'), b BLOB, l VARCHAR(40) "
        f"CHARACTER SET latin1, u TEXT, y YEAR, bits BIT(12), o TINYINT(1){more_kinds})",
        "CREATE TABLE `left` (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET gbk)",
    )
    for stream in streams:
        stream.snapshot()


def change(root: Any, *last: str, more_values: str = "") -> None:
    """Make a batch: plain and compressed transactions, key changes, DDL in between."""
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
            f"'Müller {i}', '語{i}', 1970 + {i % 99}, {i}, {i % 2}{more_values})",
        )
    execute(
        root,
        "UPDATE hot SET v = CONCAT(v, '!') WHERE id % 3 = 0",
        "ALTER TABLE hot ADD COLUMN extra INT DEFAULT 7",
        "UPDATE kinds SET n = -n, t = NULL, u = NULL",
        "INSERT INTO `left` VALUES (1, '中'), (2, NULL)",
        "UPDATE hot SET id = id + 100000 WHERE id < 50",
        "DELETE FROM hot WHERE id % 5 = 0 AND id < 100000",
        *last,
    )


def by_partition(records: list[TopicRecord], plain: Any) -> dict[int, list[Any]]:
    """Return keys, values and headers of records by partition, with what may differ taken out of their bytes."""
    assert duplicates(records) == []
    parts = defaultdict[int, list[Any]](list)
    for record in records:
        headers = [(name, text) for name, text in record.headers if name in HEADERS]
        key, value = (data and plain(data) for data in (record.key, record.value))
        parts[record.partition].append((key, value, headers))
    return dict(parts)


def run(stream: Pipeline, how: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **more: Any) -> Any:
    monkeypatch.setenv("MYSQL_CDC_NATIVE", how[1])
    return how[0](stream, "drain", tmp_path, **more)


def killed_and_finished(native: Pipeline, kill: Kill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> JobOutcome:
    """Kill a drain, let the next attempt finish it, and return what that settles."""
    point, more, first, second = kill
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-driver", "fired": str(fired), **more}
    ended = run(native, first, monkeypatch, tmp_path, fault=fault)
    assert fired.exists(), f"the fault never fired, exit code {ended.returncode}:\n{ended.stdout}"
    assert ended.returncode != 0 and not native.settle().complete
    again = run(native, second, monkeypatch, tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr[-3000:]
    said = f"{ended.stdout}{again.stdout}"
    assert said.count("rows are decoded by native kernel") == (first[1], second[1]).count(KERNEL), said
    outcome = native.settle()
    assert outcome.complete and outcome.tally is not None
    counts = outcome.tally.native
    # What a writer that was killed had decoded behind its last commit is not told.
    assert counts.rows or second[1] == PYTHON
    assert counts.rows >= ROWS or (first[1], second[1]) != (KERNEL, KERNEL), counts
    return outcome


@pytest.mark.exhaustive(but="on-on-events|off-on-walked|on-off-events")
@pytest.mark.halves
@pytest.mark.parametrize(("how", "kill"), CASES, ids=[f"{name_of(kill)}-{how}" for how, kill in CASES])
def test_a_batch_that_was_killed_shows_what_python_shows(
    how: str,
    kill: Kill,
    properties: dict[str, str],
    root: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Schemas of keys hold the stream's name, and keys choose partitions.
    more = COMMON | HOW[how] | {"key.converter.schemas.enable": "false", "unavailable.value.as.null": "true"}
    # A prefix apart from the database's name, which stands in the records too.
    native, python = streams = tuple(
        Pipeline(properties | more | {"topic.prefix": f"{which}_{properties['topic.prefix']}"})
        for which in ("native", "python")
    )
    make(root, database, streams, ", p POINT")
    change(
        root,
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE kinds SET d = d * 2 WHERE o = 1",
        "SET SESSION binlog_row_image = FULL",
        more_values=", POINT(1, 1)",
    )
    outcome = killed_and_finished(native, kill, monkeypatch, tmp_path)
    declined = set(outcome.tally.native.declined) if outcome.tally else set()
    assert declined <= {"incomplete_image", "table"}
    if kill[2][1] == kill[3][1] == KERNEL:
        assert declined == {"incomplete_image", "table"}
    assert run(python, (Pipeline.in_process, PYTHON), monkeypatch, tmp_path).returncode == 0
    other = python.settle()
    assert other.complete and other.tally is not None and other.tally.native.rows == 0

    def shown(stream: Pipeline) -> dict[str, dict[int, list[Any]]]:
        prefix = stream.properties["topic.prefix"].encode()

        def plain(data: bytes) -> bytes:
            return NOW.sub(b"", data).replace(b'"%b"' % prefix, b'"name"').replace(b'"%b.' % prefix, b'"name.')

        return {table: by_partition(stream.records(table), plain) for table in TABLES}

    found = shown(native)
    assert found == shown(python)
    assert sum(len(part) for part in found["hot"].values()) > ROWS


def ticdc(properties: dict[str, str], registry: str, which: str) -> Pipeline:
    """Return a stream of TiCDC's flat rows whose topics begin with a name."""
    rules = [
        {"matcher": ["*.hot"], "partition": "index-value"},
        {"matcher": ["*.kinds"], "partition": "columns", "columns": ["y", "e", "n"]},
        {"matcher": ["*.*"], "partition": "ts"},
    ]
    rules = [rule | {"topic": f"{which}_{{schema}}_{{table}}"} for rule in rules]
    more = {"topic.prefix": f"{which}_{properties['topic.prefix']}", "dispatchers": json.dumps(rules)}
    flat = {"value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": "true"}
    return Pipeline(properties | COMMON | flat | more)


@pytest.mark.exhaustive(but="after_commit")
@pytest.mark.halves
@pytest.mark.parametrize("kill", KILLS, ids=name_of)
def test_flat_rows_of_a_batch_that_was_killed_show_what_python_shows(
    kill: Kill,
    properties: dict[str, str],
    registry: str,
    root: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native, python = streams = ticdc(properties, registry, "native"), ticdc(properties, registry, "python")
    make(root, database, streams)
    change(root, "DELETE FROM kinds WHERE o = 1")
    outcome = killed_and_finished(native, kill, monkeypatch, tmp_path)
    declined = set(outcome.tally.native.declined) if outcome.tally else set()
    assert declined <= {"format"}
    # No flat row is written at once in this process.
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.drain.table_route.create_ticdc_rows", lambda *_: None)
    monkeypatch.setenv("MYSQL_CDC_NATIVE", PYTHON)
    other = python.drain()

    def shown(stream: Pipeline, which: str) -> dict[str, dict[int, list[Any]]]:
        # Each topic has schemas of its own, whose ids stand in four bytes.
        return {
            table: by_partition(stream.read(f"{which}_{database}_{table}"), lambda data: data[:1] + data[5:])
            for table in TABLES
        }

    found = shown(native, "native")
    assert found == shown(python, "python"), other
    assert len(found["hot"]) == len(found["kinds"]) == 3
    assert sum(len(part) for part in found["hot"].values()) > ROWS
