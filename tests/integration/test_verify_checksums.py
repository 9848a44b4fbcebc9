"""The first pass by checksums on real servers: clean tables need no more, and damage is found as without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.avro_rig import avro
from kit.repairs import LOGGED, REPAIR, UNLOGGED, verdict
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.verify import checksum_reader, verify_round
from airflow_provider_mysql_cdc.cdc.verify.read.entries import is_sampled
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import RowRecords
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    TableVerdict,
    VerifyRequest,
    VerifyResult,
)

ROWS = 3000
PROPERTIES = {
    "snapshot.chunk.rows": "1000",
    "snapshot.lock.timeout.ms": "60000",
    "topic.creation.default.partitions": "2",
}
BY_ROWS = VerifyRequest(checksums=False)


@pytest.fixture(params=["false", pytest.param("true", marks=pytest.mark.exhaustive)], ids=["plain", "schemas"])
def pipeline(properties: dict[str, str], root: Any, database: str, request: pytest.FixtureRequest) -> Pipeline:
    schemas = {"key.converter.schemas.enable": request.param, "value.converter.schemas.enable": request.param}
    return snapshot_of(root, database, properties | schemas)


@pytest.fixture
def avro_pipeline(properties: dict[str, str], root: Any, database: str, registry: str) -> Pipeline:
    return snapshot_of(root, database, properties | avro(registry))


def snapshot_of(root: Any, database: str, properties: dict[str, str]) -> Pipeline:
    execute(
        root,
        f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2), at DATETIME(3))",
        f"CREATE TABLE `{database}`.encoded (k VARCHAR(20), n INT, j JSON, f FLOAT, PRIMARY KEY (k, n))",
        f"CREATE TABLE `{database}`.log (line VARCHAR(20))",
        f"INSERT INTO `{database}`.log VALUES ('a'), ('a')",
    )
    rows = [f"({i}, 'n{i} \\n\\t ä \U0001f600', {i}.5, '2020-01-01 00:00:00.{i % 1000:03}')" for i in range(ROWS)]
    execute(root, f"INSERT INTO `{database}`.orders VALUES {','.join(rows)}")
    rows = [f"('k{i}', {i}, '{{\"a\": {i}}}', {i}.25)" for i in range(50)]
    execute(root, f"INSERT INTO `{database}`.encoded VALUES {','.join(rows)}", f"ANALYZE TABLE `{database}`.orders")
    found = Pipeline(properties | PROPERTIES)
    found.snapshot()
    return found


def change(root: Any, db: str) -> None:
    execute(
        root,
        f"UPDATE `{db}`.orders SET name = 'changed' WHERE id < 500",
        f"DELETE FROM `{db}`.orders WHERE id BETWEEN 600 AND 700",
        f"INSERT INTO `{db}`.orders SELECT id + 9000, name, price, at FROM `{db}`.orders WHERE id < 50",
        f"UPDATE `{db}`.encoded SET n = n + 1000, f = NULL WHERE n < 5",
    )


def described(result: VerifyResult) -> list[TableVerdict]:
    """Return the verdicts without where and how they were found."""
    verdicts = [replace(each, offset=None, by_checksums=False) for each in result.tables]
    return [replace(each, examples=tuple(sorted(each.examples, key=str))) for each in verdicts]


def read_all(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> VerifyResult:
    """Compare the texts of all rows and events, without a checksum."""
    with monkeypatch.context() as patch:
        patch.setattr(verify_round, "has_checksums", lambda *_: False)
        return pipeline.verify(BY_ROWS)


def lines_about_parts(pipeline: Pipeline) -> list[str]:
    return [line for line in pipeline.lines if line.startswith("verification at")]


def test_equal_tables_are_compared_by_checksums_alone(pipeline: Pipeline, root: Any, database: str) -> None:
    change(root, database)
    result = pipeline.verify()
    assert result.verdict == "equal", result
    assert {v.table.rpartition(".")[2]: v.by_checksums for v in result.tables} == {
        "orders": True,
        "encoded": True,
        "log": False,
    }
    assert len(lines_about_parts(pipeline)) == 1
    assert described(pipeline.verify(BY_ROWS)) == described(result), "rows and records are counted alike"


def produce(pipeline: Pipeline, *records: tuple[bytes, bytes | None, int]) -> None:
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    for key, value, partition in records:
        producer.produce(pipeline.table_topic("orders"), key=key, value=value, partition=partition)
    assert producer.flush(10) == 0


def damage_rows(root: Any, db: str) -> None:
    execute(
        root,
        UNLOGGED,
        f"INSERT INTO `{db}`.orders VALUES (50000, 'missing', 1, NULL)",
        f"DELETE FROM `{db}`.orders WHERE id = 1000",
        f"UPDATE `{db}`.orders SET price = 7 WHERE id IN (1, 1001)",
        # The values of two rows change places.
        f"UPDATE `{db}`.orders SET name = IF(id = 2001, 'n2002', 'n2001') WHERE id IN (2001, 2002)",
        f"UPDATE `{db}`.encoded SET f = 0.5 WHERE n = 7",
        LOGGED,
    )


def test_rows_that_move_to_a_table_of_the_same_form_do_not_make_up_for_each_other(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """One task compares both tables: their numbers and sums together are those of both topics."""
    pipeline = Pipeline(properties, slots=1)
    for table in ("now", "past"):
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO `{database}`.now VALUES (1, 1), (2, 2)", f"INSERT INTO `{database}`.past VALUES (7, 7)")
    pipeline.snapshot()
    moved = f"INSERT INTO `{database}`.past SELECT * FROM `{database}`.now WHERE id = 2"
    execute(root, UNLOGGED, moved, f"DELETE FROM `{database}`.now WHERE id = 2", LOGGED)
    result = pipeline.verify()
    assert verdict(result, "now").findings == {DifferenceKind.GHOST: 1}
    assert verdict(result, "past").findings == {DifferenceKind.MISSING: 1}


@pytest.mark.exhaustive(but="plain")
@pytest.mark.parametrize("pipeline", ["false", "true"], indirect=True, ids=["plain", "schemas"])
@pytest.mark.days("odd")
def test_damage_is_found_as_by_a_comparison_of_all_rows(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(root, database)
    assert pipeline.verify().verdict == "equal"
    damage_rows(root, database)
    events = {json.loads(r.key).get("payload", json.loads(r.key))["id"]: r for r in pipeline.records("orders")[::-1]}
    event, misplaced, doubled = events[1500], events[1501], events[1502]
    assert event.value is not None
    produce(
        pipeline,
        (events[1503].key or b"", None, events[1503].partition),
        (misplaced.key or b"", misplaced.value, 1 - misplaced.partition),
        (doubled.key or b"", doubled.value, doubled.partition),
        (event.key or b"", b"\xff no json", event.partition),
        (event.key or b"", event.value.replace(b'"table":"orders"', b'"table":"other"'), event.partition),
    )
    pipeline.lines.clear()
    result = pipeline.verify()
    assert verdict(result, "orders").findings == {
        DifferenceKind.MISSING: 2,
        DifferenceKind.GHOST: 1,
        DifferenceKind.DIFFERING: 4,
        DifferenceKind.WRONG_PARTITION: 1,
        DifferenceKind.UNREADABLE: 2,
    }
    assert verdict(result, "encoded").findings == {DifferenceKind.DIFFERING: 1}
    assert len(lines_about_parts(pipeline)) == 2, "a second round has compared rows"
    assert described(pipeline.verify(BY_ROWS)) == described(result) == described(read_all(pipeline, monkeypatch))
    repaired = verdict(pipeline.verify(REPAIR), "orders")
    assert repaired.repaired == repaired.findings
    again = pipeline.verify()
    assert again.verdict == "equal" and verdict(again, "encoded").by_checksums


@pytest.mark.days("even")
def test_a_sample_is_compared_by_checksums_and_its_keys_are_the_same_everywhere(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    """The server, the encoding tasks and both passes choose the same keys: each row that differs is found or none."""
    name, sample = f"`{database}`.orders", VerifyRequest((rf"{database}\.orders",), sample_percent=30.0)
    sampled = {id_ for id_ in range(ROWS) if is_sampled(b'{"id":%d}' % id_, 30.0)}
    assert len(sampled) < ROWS / 2
    for request in (sample, replace(sample, checksums=False)):
        found = verdict(pipeline.verify(request), "orders")
        assert found.verdict == "equal" and found.rows == found.records == len(sampled), (request, found)
        assert found.by_checksums is request.checksums
    for share, rows in (("some", 40), ("all", ROWS)):
        execute(root, UNLOGGED, f"UPDATE {name} SET price = price + 1 WHERE id < {rows}", LOGGED)
        for request in (sample, replace(sample, checksums=False)):
            found = verdict(pipeline.verify(request), "orders")
            differing = len([id_ for id_ in sampled if id_ < rows])
            assert found.findings == {DifferenceKind.DIFFERING: differing}, (share, request, found)
            assert found.rows == found.records == len(sampled), (share, request, found)


def test_avro_is_compared_by_checksums_of_its_bytes(
    avro_pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are encoded here; no text of theirs is read, so an escape in it is none."""
    pipeline = avro_pipeline
    change(root, database)
    execute(root, rf"UPDATE `{database}`.orders SET name = '\\u001F' WHERE id = 2500")
    result = pipeline.verify()
    assert result.verdict == "equal", result
    assert verdict(result, "orders").by_checksums and verdict(result, "encoded").by_checksums
    assert described(pipeline.verify(BY_ROWS)) == described(result), "rows and records are counted alike"
    execute(root, UNLOGGED, rf"UPDATE `{database}`.orders SET name = '\\u001f' WHERE id = 2500", LOGGED)
    assert verdict(pipeline.verify(), "orders").findings == {DifferenceKind.DIFFERING: 1}
    damage_rows(root, database)
    events = {r.key[5:]: r for r in pipeline.records("orders")[::-1] if r.key}
    event, misplaced, hidden = (events[zigzag(number)] for number in (1500, 1501, 1503))
    assert event.value is not None and event.key is not None and event.value.count(b"\x0corders") == 1
    produce(
        pipeline,
        (hidden.key or b"", None, hidden.partition),
        (misplaced.key or b"", misplaced.value, 1 - misplaced.partition),
        (event.key, event.value + b"\0", event.partition),
        (event.key, event.value.replace(b"\x0corders", b"\x0cordxrs"), event.partition),
    )
    pipeline.lines.clear()
    result = pipeline.verify()
    assert verdict(result, "orders").findings == {
        DifferenceKind.MISSING: 2,
        DifferenceKind.GHOST: 1,
        DifferenceKind.DIFFERING: 5,
        DifferenceKind.WRONG_PARTITION: 1,
        DifferenceKind.UNREADABLE: 2,
    }
    assert len(lines_about_parts(pipeline)) == 2, "a second round has compared rows"
    assert described(pipeline.verify(BY_ROWS)) == described(result) == described(read_all(pipeline, monkeypatch))
    pipeline.verify(REPAIR)
    assert verdict(pipeline.verify(), "orders").equal


@pytest.mark.parametrize(
    "late", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["before", "between the rounds"]
)
@pytest.mark.days("even")
def test_an_avro_key_of_other_bytes_is_none_of_the_row(
    avro_pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """A delete under a longer number takes nothing away by its bytes, and a row for who reads it: it is reported."""
    pipeline = avro_pipeline
    execute(root, f"DELETE FROM `{database}`.orders WHERE id = 1000")
    pipeline.drain()
    events = {r.key[5:]: r for r in pipeline.records("orders") if r.key and r.value}
    deleted = events[zigzag(1000)]
    number, longer, partition = next(
        (number, longer, events[zigzag(number)].partition)
        for number in range(1001, 1100)
        for longer in [(deleted.key or b"")[:5] + longer_zigzag(number)]
        if partition_of(longer, 2) == events[zigzag(number)].partition
    )
    damage = longer, (deleted.value or b"").replace(zigzag(1000), zigzag(number), 1), partition
    execute(root, UNLOGGED, f"UPDATE `{database}`.orders SET price = 7 WHERE id = 6", LOGGED)
    log, damages = pipeline.log, [damage]

    def log_and_produce(line: str) -> None:
        log(line)
        if line.startswith("checksums at") and damages:
            produce(pipeline, damages.pop())

    if late:
        monkeypatch.setattr(pipeline, "log", log_and_produce)
    else:
        produce(pipeline, damages.pop())
    result = pipeline.verify()
    assert not damages
    assert verdict(result, "orders").findings == {DifferenceKind.UNREADABLE: 1, DifferenceKind.DIFFERING: 1}
    assert described(pipeline.verify(BY_ROWS)) == described(result)


def longer_zigzag(number: int) -> bytes:
    """Return the same number in three bytes."""
    low, high = zigzag(number)
    return bytes([low, high | 0x80, 0])


def zigzag(number: int) -> bytes:
    """Return a number of two bytes, of those that are not negative, as Avro writes it."""
    return bytes([number << 1 & 0x7F | 0x80, number >> 6])


@pytest.mark.exhaustive
def test_a_table_that_changes_between_the_rounds_is_compared_as_a_whole(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_rows(root, database)
    read_messages, altered = checksum_reader.read_messages, list[None]()

    def alter_first(*arguments: Any) -> Any:
        yield from read_messages(*arguments)
        if not altered:
            altered.append(None)
            statements: Sequence[str] = (
                f"ALTER TABLE `{database}`.orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, price)",
                f"UPDATE `{database}`.orders SET price = price + 1 WHERE id BETWEEN 2100 AND 2200",
            )
            later.extend(statements)

    later: list[str] = []
    monkeypatch.setattr(checksum_reader, "read_messages", alter_first)
    log = pipeline.log

    def log_and_alter(line: str) -> None:
        log(line)
        if line.startswith("checksums at"):
            execute(root, *later)
            later.clear()

    monkeypatch.setattr(pipeline, "log", log_and_alter)
    result = pipeline.verify()
    assert altered and not later
    assert described(pipeline.verify(BY_ROWS)) == described(result) == described(read_all(pipeline, monkeypatch))


@pytest.mark.exhaustive
def test_few_rows_are_read_again(pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(root, UNLOGGED, f"UPDATE `{database}`.orders SET price = 7 WHERE id = 5", LOGGED)
    of_block, rows = RowRecords.of_block, list[str]()

    def counted(self: RowRecords, block: RowBlock) -> Any:
        rows.extend([self.columns[0].name] * block.rows)
        return of_block(self, block)

    monkeypatch.setattr(RowRecords, "of_block", counted)
    result = pipeline.verify()
    orders = verdict(result, "orders")
    assert orders.findings == {DifferenceKind.DIFFERING: 1} and orders.rows == ROWS
    assert 0 < rows.count("id") < ROWS / 5, "the rows of one bucket of eleven"
    assert described(pipeline.verify(BY_ROWS)) == described(result)


@pytest.mark.exhaustive
def test_an_event_whose_key_the_server_does_not_know_is_read(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, f"DELETE FROM `{database}`.orders WHERE id = 4")
    pipeline.drain()
    (*_, record) = [r for r in pipeline.records("orders") if r.key is not None and b'"id":5}' in r.key]
    (deleted,) = [r for r in pipeline.records("orders") if r.value is not None and b'"op":"d"' in r.value]
    assert record.key is not None and deleted.value is not None
    key, value = record.key.replace(b'"id":5', b'"id": 5'), deleted.value.replace(b'"id":4', b'"id":5')
    execute(root, UNLOGGED, f"UPDATE `{database}`.orders SET price = 7 WHERE id = 6", LOGGED)
    log, places = pipeline.log, [record.partition]

    def log_and_produce(line: str) -> None:
        log(line)
        if line.startswith("checksums at") and places:
            produce(pipeline, (key, value, places.pop()))

    monkeypatch.setattr(pipeline, "log", log_and_produce)
    result = pipeline.verify()
    assert verdict(result, "orders").findings == {DifferenceKind.UNREADABLE: 1, DifferenceKind.DIFFERING: 1}
    assert len(lines_about_parts(pipeline)) == 3
    assert described(pipeline.verify(BY_ROWS)) == described(result)
