"""Records that hands have written: what a consumer would read wrongly is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode, VerifyRequest

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


def produce(pipeline: Pipeline, table: str, key: bytes | None, value: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    producer.produce(pipeline.table_topic(table), key=key, value=value)
    assert producer.flush(10) == 0


def findings(pipeline: Pipeline, table: str, request: VerifyRequest | None = None) -> dict[DifferenceKind, int]:
    (found,) = [v for v in pipeline.verify(request).tables if v.table.endswith("." + table)]
    return dict(found.findings)


@pytest.mark.exhaustive
def test_a_record_of_another_table_is_reported_and_repaired(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN)
    for table in ("t", "o"):
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES (1, 1), (2, 2)")
    pipeline.snapshot()
    (record, *_) = pipeline.records("o")
    assert record.value is not None
    produce(pipeline, "t", record.key, record.value)
    for history in (True, False):
        assert findings(pipeline, "t", VerifyRequest(history=history)) == {DifferenceKind.UNREADABLE: 1}, history
    assert findings(pipeline, "t", VerifyRequest(history=True, repair=RepairMode.YES))
    for history in (True, False):
        assert findings(pipeline, "t", VerifyRequest(history=history)) == {}, history


def test_a_table_of_a_former_name_has_its_events_in_its_own_topic(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN)
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 1)"
    )
    pipeline.snapshot()
    execute(root, f"RENAME TABLE `{database}`.t TO `{database}`.u", f"UPDATE `{database}`.u SET v = 2")
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 9)"
    )
    assert findings(pipeline, "t") == {} == findings(pipeline, "u")


def test_values_that_python_takes_for_equal_differ(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline, name = Pipeline(properties | PLAIN), f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, d DOUBLE, f FLOAT, j JSON, n INT)")
    rest = "'[1, {\"a\": 1.0}, 1e300, 1.5e-20]', 7"
    execute(root, f"INSERT INTO {name} VALUES " + ", ".join(f"({n}, 0, 0, {rest})" for n in range(1, 8)))
    pipeline.snapshot()
    documents = ('[1.0, {"a": 1.0}, 1e300, 1.5e-20]', '[1, {"a": 1}, 1e300, 1.5e-20]')
    # The server does not store a document in place of one that compares as equal.
    others = [f"DELETE FROM {name} WHERE id IN (3, 4)"]
    others += [f"INSERT INTO {name} VALUES ({id_}, 0, 0, '{j}', 7)" for id_, j in zip((3, 4), documents, strict=True)]
    zeros = [f"UPDATE {name} SET {c} = -0e0 WHERE id = {id_}" for id_, c in ((1, "d"), (2, "f"))]
    execute(root, "SET sql_log_bin = 0", *others, *zeros, "SET sql_log_bin = 1")
    execute(root, f"UPDATE {name} SET d = -0e0, f = -0e0, j = '[1.0]' WHERE id = 6")
    event = next(json.loads(r.value or b"") for r in pipeline.records("t") if json.loads(r.key or b"") == {"id": 5})
    event["after"]["n"] = 7.0
    produce(pipeline, "t", b'{"id":5}', json.dumps(event).encode())
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    (found,) = result.tables
    assert found.findings == found.repaired == {DifferenceKind.DIFFERING: 5}, found
    assert {e.key["id"]: e.columns for e in found.examples} == {1: ("d",), 2: ("f",), 3: ("j",), 4: ("j",), 5: ("n",)}
    assert pipeline.verify(VerifyRequest(history=True)).verdict == "equal"


def compacted_by_bytes(pipeline: Pipeline, table: str) -> list[bytes]:
    """Return the keys that compaction leaves with a row."""
    last = {record.key: record.value for record in pipeline.records(table)}
    return sorted(key or b"" for key, value in last.items() if value is not None)


@pytest.mark.days("even")
def test_what_no_statement_explains_is_not_excused(properties: dict[str, str], root: Any, database: str) -> None:
    """Values a thousand times others, a column left out, keys in other bytes, all in tables that were never altered."""
    pipeline, (units, wider, lacking, twins, strange) = (
        Pipeline(properties | PLAIN),
        (f"`{database}`.{table}" for table in ("units", "wider", "lacking", "twins", "strange")),
    )
    execute(
        root,
        f"CREATE TABLE {units} (id INT PRIMARY KEY, t TIME(3), d DATETIME(3), e DATETIME(6))",
        f"INSERT INTO {units} VALUES (1, '00:00:01', NULL, NULL), (2, NULL, '1970-01-01 00:00:02', NULL), "
        "(3, NULL, NULL, '1970-01-01 00:00:00.005'), (4, '00:00:01', NULL, NULL)",
        f"CREATE TABLE {wider} (id INT PRIMARY KEY, price DECIMAL(10,2))",
        f"INSERT INTO {wider} VALUES (1, 1.50), (2, 2.50)",
        f"CREATE TABLE {lacking} (id INT PRIMARY KEY, v INT, w INT)",
        f"INSERT INTO {lacking} VALUES (1, 1, NULL), (2, 2, 2)",
        f"CREATE TABLE {twins} (b INT, a VARCHAR(9), v INT, PRIMARY KEY (b, a))",
        f"INSERT INTO {twins} VALUES (1, 'x', 1), (2, 'y', 2)",
        f"CREATE TABLE {strange} (id INT PRIMARY KEY, v INT, old INT)",
        f"INSERT INTO {strange} VALUES (1, 1, 1), (2, 2, 2)",
    )
    pipeline.snapshot()
    execute(
        root, f"ALTER TABLE {wider} ADD n INT", f"ALTER TABLE {strange} DROP old", f"UPDATE {strange} SET v = id + 2"
    )
    pipeline.drain()
    changes = (
        f"UPDATE {units} SET t = '00:16:40' WHERE id = 1",
        f"UPDATE {units} SET d = '1970-01-01 00:33:20' WHERE id = 2",
        f"UPDATE {units} SET e = '1970-01-01 01:23:20' WHERE id = 3",
        f"UPDATE {wider} SET price = 15 WHERE id = 1",
    )
    execute(root, "SET sql_log_bin = 0", *changes, "SET sql_log_bin = 1")
    for record in pipeline.records("lacking"):
        event = json.loads(record.value or b"")
        del event["after"]["w"]
        produce(pipeline, "lacking", record.key, json.dumps(event).encode())
    (*_, one, two) = pipeline.records("strange")
    for record, part, members in ((one, "source", {"table": None}), (two, "after", {"old": 2})):
        event = json.loads(record.value or b"")
        event[part] |= members
        produce(pipeline, "strange", record.key, json.dumps(event).encode())
    for key, value in ((b'{"serverName":"p"}', b'{"ts_ms":1700000000000}'), (b"null", None)):
        produce(pipeline, "strange", key, value)
    (first,) = [record for record in pipeline.records("twins") if record.key == b'{"b":1,"a":"x"}']
    others = (
        b"{}",
        b'{"c":1}',
        b'{"b": 1,"a":"x"}',
        b'{"a":"x","b":1}',
        b'{"b":1,"b":1,"a":"x"}',
        b'{"b":1,"a":"\\u0078"}',
        b'{"b": 9,"a":"x"}',
    )
    for key in others:
        produce(pipeline, "twins", key, first.value or b"")
    expected = {
        "units": {DifferenceKind.DIFFERING: 3},
        "wider": {DifferenceKind.DIFFERING: 1},
        "lacking": {DifferenceKind.DIFFERING: 2},
        "twins": {DifferenceKind.GHOST: len(others)},
        "strange": {DifferenceKind.UNREADABLE: 4},
    }
    checks = VerifyRequest(), VerifyRequest(checksums=False), VerifyRequest(history=True)
    for request in checks:
        found = {v.table.partition(".")[2]: v for v in pipeline.verify(request).tables}
        assert {table: verdict.findings for table, verdict in found.items()} == expected, (request, found)
        assert found["lacking"].columns == {"w": 2}, request
        assert "not in the bytes that the stream writes" in found["twins"].examples[0].record, request
    assert pipeline.verify(VerifyRequest(repair=RepairMode.YES)).tables
    for request in (checks[0], checks[2]):
        assert pipeline.verify(request).verdict == "equal", request
    assert compacted_by_bytes(pipeline, "twins") == [b'{"b":1,"a":"x"}', b'{"b":2,"a":"y"}']
    assert [r.value is None for r in pipeline.records("twins")][-2:] == [True, False], "the row behind the tombstone"


@pytest.mark.days("odd")
def test_a_schema_that_the_stream_does_not_write_is_reported(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """A consumer that reads by the schema gets another row, or none, of a payload that is right."""
    pipeline, name = Pipeline(properties | dict.fromkeys(PLAIN, "true")), f"`{database}`.t"
    execute(
        root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)"
    )
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} MODIFY v BIGINT", f"UPDATE {name} SET v = 4 WHERE id = 3")
    pipeline.drain()
    assert pipeline.verify(VerifyRequest(history=True)).verdict == "equal"
    (record, other) = pipeline.records("t")[:2]
    edits = (
        (b'"field":"after"', b'"field":"After"'),
        (b'"field":"v"', b'"field":"w"'),
        (b'{"type":"int32","optional":true,"field":"v"}', b'{"type":"string","optional":true,"field":"v"}'),
        (b'"type":"int64","optional":false,"field":"ts_ms"', b'"type":"string","optional":false,"field":"ts_ms"'),
    )
    for old, new in edits:
        assert old in (record.value or b"")
        produce(pipeline, "t", record.key, (record.value or b"").replace(old, new))
    produce(pipeline, "t", (other.key or b"").replace(b'"int32"', b'"int64"'), other.value or b"")
    expected = {DifferenceKind.UNREADABLE: len(edits), DifferenceKind.GHOST: 1}
    checks = VerifyRequest(), VerifyRequest(checksums=False), VerifyRequest(history=True)
    for request in checks:
        assert findings(pipeline, "t", request) == expected, request
    assert findings(pipeline, "t", VerifyRequest(repair=RepairMode.YES)) == expected
    for request in (checks[0], checks[2]):
        assert pipeline.verify(request).verdict == "equal", request
    keys = compacted_by_bytes(pipeline, "t")
    assert len(keys) == 3 and other.key in keys
