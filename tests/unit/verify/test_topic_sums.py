"""Sums over whole topics are equal to those over tables only where a fold of the topic by key finds no difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from kit.cases import for_each
from kit.create_statement import parse_create
from kit.table_records import TICDC, config
from test_checksum_records import DAMAGES, PARTITIONS, ROWS, TABLE, Message, Side, text

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.verify import topic_sums
from airflow_provider_mysql_cdc.cdc.verify.checksum_fold import ChecksumResult, take_equal_tables
from airflow_provider_mysql_cdc.cdc.verify.checksum_function import checksum_of
from airflow_provider_mysql_cdc.cdc.verify.part_queue import PartQueue
from airflow_provider_mysql_cdc.cdc.verify.record_sums import RecordSums
from airflow_provider_mysql_cdc.cdc.verify.topic_sums import TopicSums, has_distinct_keys
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import NextPart, PartSum, TopicRange

pytestmark = pytest.mark.quick

Records = dict[int, list[tuple[bytes | None, bytes | None]]]
_SAME_WITHOUT_CHANGES = "an earlier event is last"


def row_sum(row: dict[str, Any]) -> int:
    return int.from_bytes(checksum_of(text({"id": row["id"]}).encode() + text(row).encode()), "big")


def are_equal(side: Side, records: Records, rows: list[dict[str, Any]], part: int) -> bool:
    """Return whether sums over all records, part by part, are those of the rows."""
    ranges = [
        (partition, of_partition[start : start + part])
        for partition, of_partition in records.items()
        for start in range(0, len(of_partition), part)
    ]
    sums = TopicSums({5: len(ranges) + 2}, {TABLE: 5}, {"t": 5})
    reader = RecordSums(side.keys, side.event_slicers, PARTITIONS, checksum_of)
    for half in (rows[::2], rows[1::2]):
        sums.add(PartSum(5, True, len(half), sum(map(row_sum, half)), whole=True))
    for partition, some in ranges:
        found = reader.sum_of([Message(*record) for record in some], partition)
        sums.add(PartSum(5, False, len(some), found or 0, whole=found is not None))
    return 5 in sums.equal_tables()


@for_each("part", [1, 7, 1000])
@for_each("schemas", [False, True])
def test_a_topic_with_one_event_for_each_row_equals_its_table(schemas: bool, part: int) -> None:
    side = Side(schemas)
    assert are_equal(side, side.created(), list(ROWS.values()), part)


@for_each("part", [1, 1000])
@for_each("schemas", [False, True])
def test_characters_that_the_server_writes_otherwise_are_added_up_as_it_does(schemas: bool, part: int) -> None:
    side = Side(schemas)
    records, rows = side.created(), {**ROWS, 999: {"id": 999, "name": "\x1f\\", "note": "ä"}}
    records[side.partition(999)].append((side.key(999), side.value("c", None, rows[999])))
    assert are_equal(side, records, list(rows.values()), part)


@for_each("part", [1, 1000])
@for_each("damage", [name for name in DAMAGES if name != _SAME_WITHOUT_CHANGES])
@for_each("schemas", [False, True])
def test_each_damage_ends_the_sums(schemas: bool, damage: str, part: int) -> None:
    side = Side(schemas)
    records, rows = side.created(), {id_: dict(row) for id_, row in ROWS.items()}
    DAMAGES[damage](side, records, rows)
    assert not are_equal(side, records, list(rows.values()), part)


@for_each("schemas", [False, True])
def test_one_event_twice_does_not_stand_for_another_row(schemas: bool) -> None:
    side = Side(schemas)
    records = side.created()
    mine = records[side.partition(1)]
    mine[mine.index(next(r for r in mine if r[0] == side.key(1)))] = (side.key(2), side.value("c", None, ROWS[2]))
    assert not are_equal(side, records, list(ROWS.values()), 7)


@for_each("schemas", [False, True])
def test_an_event_that_comes_alone_to_another_partition_ends_the_sums(schemas: bool) -> None:
    """Its sum is that of the row wherever it is."""
    side = Side(schemas)
    records = side.created()
    moved = records[side.partition(1)].pop(0)
    records[(side.partition(1) + 1) % PARTITIONS].append(moved)
    assert not are_equal(side, records, list(ROWS.values()), 1000)


@for_each("schemas", [False, True])
def test_changes_end_the_sums_at_the_first_of_them(schemas: bool) -> None:
    side = Side(schemas)
    last = Message(side.key(3), side.value("u", {**ROWS[3], "name": "x"}, ROWS[3]))
    reader = RecordSums(side.keys, side.event_slicers, PARTITIONS, checksum_of)
    assert reader.sum_of([last], side.partition(3)) is None, "though it says the row"


# -- the driver's side -----------------------------------------------------------------------------------------------

RANGES = [TopicRange("t", 0, 0, 50), TopicRange("t", 1, 0, 40), TopicRange("u", 0, 0, 30)]
CHUNK = SnapshotChunk(TABLE, 0, rows=60)


def queue() -> PartQueue:
    return PartQueue([CHUNK], RANGES, TopicSums({5: 3}, {TABLE: 5}, {"t": 5}), lambda line: None)


def take_all(parts: PartQueue) -> list[NextPart]:
    return [parts.next(0, EMPTY) for _ in range(4)]


def test_parts_of_other_tables_are_read_for_their_keys() -> None:
    assert [(part.records, part.summed) for part in take_all(queue())] == [
        (None, 5),
        (RANGES[0], 5),
        (RANGES[1], 5),
        (RANGES[2], None),
    ]


def test_a_task_waits_until_sums_are_compared_and_then_is_done() -> None:
    parts = queue()
    take_all(parts)
    assert parts.next(0, EMPTY) == NextPart(wait=True)
    parts.add_sum(0, PartSum(5, True, 3, 7, whole=True))
    parts.add_sum(0, PartSum(5, False, 2, 5, whole=True))
    assert parts.next(0, EMPTY) == NextPart(wait=True)
    parts.add_sum(1, PartSum(5, False, 1, 2, whole=True))
    assert parts.next(0, EMPTY) == NextPart()
    assert parts.sums.equal_tables() == {5: 3}


@for_each(
    "last",
    [
        PartSum(5, False, 1, 3, whole=True),
        PartSum(5, False, 2, 2, whole=True),
        PartSum(5, False, 1, 2, whole=False),
        PartSum(5, True, 1, 2, whole=True),
    ],
)
def test_a_topic_is_read_again_where_sums_differ(last: PartSum) -> None:
    parts = queue()
    take_all(parts)
    parts.add_sum(0, PartSum(5, True, 3, 7, whole=True))
    parts.add_sum(0, PartSum(5, False, 2, 5, whole=True))
    parts.add_sum(1, last)
    assert [parts.next(0, EMPTY) for _ in range(3)] == [
        NextPart(records=RANGES[0]),
        NextPart(records=RANGES[1]),
        NextPart(),
    ]
    assert parts.sums.equal_tables() == {}


def test_a_topic_is_read_again_once_and_what_no_task_has_taken_is_read_for_its_keys_at_once() -> None:
    parts = queue()
    assert [parts.next(task, EMPTY).summed for task in (0, 1)] == [5, 5]
    parts.add_sum(1, PartSum(5, False))
    assert parts.next(1, EMPTY) == NextPart(records=RANGES[1])
    parts.add_sum(0, PartSum(5, True, 3, 7, whole=True))  # comes too late
    assert [parts.next(1, EMPTY).records for _ in range(3)] == [RANGES[2], RANGES[0], None]
    assert parts.sums.equal_tables() == {}


def test_sums_wrap_as_those_of_the_fold_do() -> None:
    sums = TopicSums({5: 3}, {TABLE: 5}, {"t": 5})
    sums.add(PartSum(5, True, 2, 1, whole=True))
    for checksum in (2**64 - 1, 2):
        sums.add(PartSum(5, False, 1, checksum, whole=True))
    assert sums.equal_tables() == {5: 2}


def test_a_table_that_equals_its_topic_has_no_states_that_differ() -> None:
    result = ChecksumResult({5: 2, 6: 2}, {6: 1}, {5: {0, 1}, 6: {1}}, {6})
    take_equal_tables(result, {5: 2})
    assert result == ChecksumResult({5: 2, 6: 2}, {5: 2, 6: 1}, {6: {1}}, {6})


def test_messages_have_all_their_members() -> None:
    for part in (NextPart(CHUNK, None, 3), NextPart(None, RANGES[0], 0), NextPart(wait=True), NextPart()):
        assert NextPart.from_json(part.to_json()) == part
    for report in (PartSum(1, True, 2, 2**64 - 1, whole=True), PartSum(0, of_rows=False)):
        assert PartSum.from_json(report.to_json()) == report


@for_each(
    ("columns", "properties", "distinct"),
    [
        ("id BIGINT UNSIGNED PRIMARY KEY", {}, True),
        ("id BIGINT UNSIGNED PRIMARY KEY", {"bigint.unsigned.handling.mode": "precise"}, True),
        ("a INT, b VARCHAR(9) CHARACTER SET utf8mb4, PRIMARY KEY (b, a)", {}, True),
        ("a VARCHAR(9) CHARACTER SET gbk PRIMARY KEY", {}, False),
        ("a BOOLEAN PRIMARY KEY", {}, False),
        ("a DECIMAL(9,2) PRIMARY KEY", {"decimal.handling.mode": "double"}, False),
        ("a DATETIME(6) PRIMARY KEY", {"time.precision.mode": "connect"}, False),
        ("a INT, b DATETIME(6), PRIMARY KEY (a, b)", {"time.precision.mode": "connect"}, False),
        ("a INT", {}, False),
    ],
)
def test_keys_are_distinct_where_the_types_of_their_columns_say_so(
    columns: str, properties: dict[str, str], distinct: bool
) -> None:
    table = parse_create(f"CREATE TABLE t ({columns}, n INT)", DdlContext("shop"))
    assert has_distinct_keys(config(properties), table) is distinct


def test_only_topics_that_may_have_one_event_for_each_row_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sums, "LEAST_RECORDS", 100)
    table = parse_create("CREATE TABLE t (id INT PRIMARY KEY)", DdlContext("shop"))
    compared: Any = Mock(number=3, table=table, topic="t")

    def tried(rows: int, records: int, properties: dict[str, str] | None = None) -> bool:
        ranges = [TopicRange("t", 0, 0, records), TopicRange("u", 0, 0, 5)]
        sums = topic_sums.topic_sums(config(properties or {}), [compared], {3: rows}, [table.id, table.id], ranges)
        return sums.mark(NextPart(records=ranges[0])).summed == 3

    assert tried(1000, 1000) and tried(1000, 1250) and tried(1000, 100)
    assert not tried(1000, 1251) and not tried(1000, 99) and not tried(0, 1000)
    assert not tried(1000, 1000, TICDC), "the server cannot write its records"


def test_each_part_of_a_table_and_its_topic_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sums, "LEAST_RECORDS", 0)
    table = parse_create("CREATE TABLE t (id INT PRIMARY KEY)", DdlContext("shop"))
    compared: Any = Mock(number=3, table=table, topic="t")
    ranges = [*RANGES, replace(RANGES[0], start=50, end=60)]
    sums = topic_sums.topic_sums(config({}), [compared], {3: 200}, [table.id, table.id, TABLE], ranges)
    for _ in range(4):
        sums.add(PartSum(3, True, 0, 0, whole=True))
        assert sums.are_open and sums.equal_tables() == {}
    sums.add(PartSum(3, True, 0, 0, whole=True))
    assert not sums.are_open and sums.equal_tables() == {3: 0}
