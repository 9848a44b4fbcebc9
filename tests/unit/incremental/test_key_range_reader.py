"""A round's task behind the batch's end, over the in-memory twins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from kit.cases import for_each
from kit.decode_builder import column, packet, table
from kit.memory_job import config
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.row_blocks import block_of, each_alone
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.structure_check import difference_in_view
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaMismatchError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.incremental import key_range_reader
from airflow_provider_mysql_cdc.cdc.incremental.key_range_reader import KeyRangeReader
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import KeyRange
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    NEXT_RANGE,
    AssignedKeyRange,
    NextKeyRange,
    RangeReadOptions,
)
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot import range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

CFG = config(transaction__timeout__ms="10000", commit__interval__ms="5000")
TABLE = table(column("id", "INT", nullable=False), key=("id",))
TOPIC = "p.db.t"
STRETCH = KeyRange(TABLE.id, 0, 0, ("id",), ("SIGNED",))


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> dict[TableId, str]:
    """Return how tables of the server differ from those of the schema history: not at all."""
    differences: dict[TableId, str] = {}
    monkeypatch.setattr(key_range_reader, "difference_in_view", lambda _, table: differences.get(table.id, ""))
    return differences


class Sink(MemoryWriter):
    """A writer whose transaction is as old as a test says."""

    open_s = 0.0


class Channel:
    """A driver with one stretch."""

    def __init__(self, kind: str, condition: str | None = None) -> None:
        options = RangeReadOptions(kind, condition, first_table=False, last_table=False)
        self._waiting = [AssignedKeyRange(STRETCH, options)]
        self.said: list[tuple[str, dict[str, Any]]] = []

    def call(self, operation: Any, request: Any) -> Any:
        if operation is NEXT_RANGE:
            return NextKeyRange(self._waiting.pop() if self._waiting else None)
        self.said.append((operation.name, request.to_json()))
        return EMPTY


def read(
    monkeypatch: pytest.MonkeyPatch,
    open_s: float,
    of: Table = TABLE,
    keys: dict[TableId, set[bytes]] | None = None,
    cfg: ConnectorConfig = CFG,
    blocks: list[RowBlock] | None = None,
    kind: str = "incremental",
    conn: Any = None,
) -> tuple[MemoryKafka, Channel, dict[str, int]]:
    """Let a task read five rows while its transaction is so old, and events have touched some keys."""

    packets = [packet(*(str(n).encode() for _ in of.columns)) for n in range(5)]
    monkeypatch.setattr(range_writer, "stream_blocks", lambda *_: blocks or each_alone(packets))
    kafka, channel = MemoryKafka(), Channel(kind)
    sink: Any = Sink(kafka, "p.0")
    sink.init()
    sink.open_s = open_s
    batch = replace(
        plan(writers=1), partitions={TOPIC: 1}, assignment={TOPIC: (0,)}, attempt="a1", created_ms=1_790_000_000_000
    )
    state: Any = SchemaState(tables={of.id: of})
    to: Any = channel
    touched = WindowKeys({of.id}, keys={name: dict.fromkeys(known, 1) for name, known in (keys or {}).items()})
    return kafka, channel, KeyRangeReader(cfg, batch, 0, conn, sink, to, state, touched, "run").run()


def test_rows_and_the_record_that_they_are_done_are_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, channel, counts = read(monkeypatch, 8.9)
    assert counts == {TOPIC: 5}
    assert [json.loads(r.value or b"")["after"]["id"] for r in kafka.committed(TOPIC)] == [0, 1, 2, 3, 4]
    ((rows_in, _), *_), ((record_in, _),) = kafka.logs[TOPIC, 0], kafka.logs[CFG.ledger_topic, 0]
    assert rows_in is record_in and [op for op, _ in channel.said] == ["done"]


@pytest.mark.req("INC-20")
def test_rows_that_an_event_touched_are_left_out_by_their_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key stands behind another column, and is another one than that of the events."""
    behind = table(
        column("v", "VARCHAR", length=9, charset="utf8mb4"), column("id", "INT", nullable=False), key=("id",)
    )
    kafka, channel, counts = read(monkeypatch, 0, behind, {behind.id: {b'{"id":1}', b'{"id":4}', b'{"id":9}'}})
    assert counts == {TOPIC: 3}
    assert [json.loads(r.value or b"")["after"]["id"] for r in kafka.committed(TOPIC)] == [0, 2, 3]
    ((op, said),) = channel.said
    assert op == "done" and (said["done_range"]["rows"], said["done_range"]["left_out"]) == (3, 2)


def test_a_value_that_cannot_be_read_leaves_its_row_out_also_when_an_event_touched_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = table(column("v", "TIME", nullable=False), column("id", "INT", nullable=False), key=("id",))
    cfg = config(event__processing__failure__handling__mode="skip")
    kafka, channel, _ = read(monkeypatch, 0, bad, {bad.id: {b'{"id":1}'}}, cfg)
    ((op, said),) = channel.said
    assert op == "done" and (said["done_range"]["rows"], said["done_range"]["left_out"]) == (0, 1)
    assert kafka.committed(TOPIC) == []


def test_a_key_range_that_does_not_fit_into_a_transaction_is_abandoned_and_the_drain_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, channel, counts = read(monkeypatch, 9.1)
    assert counts == {} and kafka.committed(TOPIC) == [] and kafka.producers["p.0"].current is None
    ((op, said),) = channel.said
    assert op == "back" and said["permanent"] and "transaction.timeout.ms" in said["reason"]


REBUILT, UNKNOWN_COLUMN, KILLED, LOST = 1412, 1054, 1317, 2013


@for_each(
    ("error", "number", "condition", "permanent"),
    [
        (SchemaMismatchError, REBUILT, None, False),
        (SchemaMismatchError, REBUILT, "v > 1", False),
        (SchemaMismatchError, UNKNOWN_COLUMN, None, False),
        (SchemaMismatchError, UNKNOWN_COLUMN, "v > 1", True),
        (SourceError, KILLED, None, False),
        (SourceError, 1064, "v >", True),
        (SourceConnectionError, KILLED, None, False),
    ],
)
def test_an_error_of_the_source_returns_the_range_and_says_whether_a_later_window_may_read_it(
    monkeypatch: pytest.MonkeyPatch, error: type[CdcError], number: int, condition: str | None, permanent: bool
) -> None:
    kafka, channel = failing(monkeypatch, error, number, condition)
    ((op, said),) = channel.said
    assert op == "back" and said["permanent"] is permanent and "the server says so" in said["reason"]
    assert kafka.committed(TOPIC) == kafka.committed(CFG.ledger_topic) == []


def test_a_broken_connection_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceConnectionError, match="the server says so"):
        failing(monkeypatch, SourceConnectionError, LOST, None)


def failing(
    monkeypatch: pytest.MonkeyPatch, error: type[CdcError], number: int, condition: str | None
) -> tuple[MemoryKafka, Channel]:
    """Let a task read a key range whose query fails."""

    def stream_blocks(_: Any, sql: str, __: str) -> Iterator[RowBlock]:
        where = "TRUE" if condition is None else f"({condition}\n)"
        hint = "/*+ MAX_EXECUTION_TIME(540000) */ " if condition else ""
        assert sql == f"SELECT {hint}`id` FROM `db`.`t` WHERE {where} ORDER BY `id`"
        raise error("a query failed", why="the server says so") from pymysql.MySQLError(number, "the server says so")
        yield

    monkeypatch.setattr(range_writer, "stream_blocks", stream_blocks)
    kafka, channel = MemoryKafka(), Channel("incremental", condition)
    sink: Any = Sink(kafka, "p.0")
    sink.init()
    batch = replace(
        plan(writers=1), partitions={TOPIC: 1}, assignment={TOPIC: (0,)}, attempt="a1", created_ms=1_790_000_000_000
    )
    to: Any = channel
    state = SchemaState(tables={TABLE.id: TABLE})
    KeyRangeReader(CFG, batch, 0, None, sink, to, state, WindowKeys({TABLE.id}), "run").run()
    return kafka, channel


@pytest.mark.req("INC-25")
@pytest.mark.parametrize(
    "now",
    [
        table(column("w", "INT", nullable=False), column("id", "INT", nullable=False), key=("w", "id")),
        table(column("id", "VARCHAR", length=9, charset="utf8mb4", nullable=False), key=("id",)),
    ],
    ids=["other columns", "another type"],
)
def test_a_table_whose_key_is_another_one_is_handed_back(monkeypatch: pytest.MonkeyPatch, now: Table) -> None:
    """A range of the old key says nothing of the rows under the new one."""
    kafka, channel, counts = read(monkeypatch, 0, now)
    assert counts == {} and not kafka.committed(TOPIC)
    ((op, given),) = channel.said
    assert op == "back" and given["reason"] == "its key has changed since the snapshot began"


@pytest.mark.req("INC-20")
def test_a_table_that_differs_from_the_schema_history_is_handed_back(
    monkeypatch: pytest.MonkeyPatch, server: dict[TableId, str]
) -> None:
    server[TABLE.id] = "(id INT) in the schema history, (id BIGINT) on the server"
    kafka, channel, counts = read(monkeypatch, 0)
    assert counts == {} and not kafka.committed(TOPIC)
    ((op, given),) = channel.said
    assert op == "back" and not given["permanent"]
    assert given["reason"] == f"its structure differs from the server's: {server[TABLE.id]}"


class Refusing:
    """A connection whose statements fail."""

    def __init__(self, number: int) -> None:
        self._number = number

    def cursor(self) -> Refusing:
        return self

    def __enter__(self) -> Refusing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, *_: object) -> None:
        raise pymysql.MySQLError(self._number, "the server says so")


NO_PRIVILEGE, TABLE_FULL, LOCKED = 1142, 1114, 1205


@pytest.mark.req("INC-20")
@pytest.mark.parametrize(("number", "permanent"), [(NO_PRIVILEGE, True), (TABLE_FULL, True), (LOCKED, False)])
def test_a_table_whose_structure_the_server_does_not_show_is_handed_back(
    monkeypatch: pytest.MonkeyPatch, number: int, permanent: bool
) -> None:
    """As one whose rows it does not show."""
    monkeypatch.setattr(key_range_reader, "difference_in_view", difference_in_view)
    kafka, channel, counts = read(monkeypatch, 0, conn=Refusing(number))
    assert counts == {} and not kafka.committed(TOPIC)
    ((op, said),) = channel.said
    assert op == "back" and said["permanent"] is permanent
    assert "structure of table db.t" in said["reason"] and "the server says so" in said["reason"]


def test_a_connection_that_breaks_before_the_structure_is_read_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_range_reader, "difference_in_view", difference_in_view)
    with pytest.raises(SourceConnectionError, match="the server says so"):
        read(monkeypatch, 0, conn=Refusing(LOST))


@for_each("sizes", [[5], [1, 4], [2, 3], [4, 1], [1, 1, 1, 1, 1]])
@for_each("touched", [(), (0,), (4,), (0, 4), (1, 2, 3, 4)])
@for_each(
    ("kind", "markers"),
    [
        ("incremental", ("incremental",) * 3),
        ("blocking", ("first_in_data_collection", "true", "last_in_data_collection")),
    ],
)
def test_rows_in_blocks_have_their_markers_and_touched_ones_none(
    monkeypatch: pytest.MonkeyPatch, kind: str, markers: tuple[str, ...], touched: tuple[int, ...], sizes: list[int]
) -> None:
    """The first and the last row are those that are left."""
    numbers = iter(range(5))
    blocks = [block_of(packet(str(next(numbers)).encode()) for _ in range(size)) for size in sizes]
    given = {TABLE.id: {b'{"id":%d}' % n for n in touched}}
    kafka, _, counts = read(monkeypatch, 0, TABLE, given, blocks=blocks, kind=kind)
    left = [n for n in range(5) if n not in touched]
    events = [json.loads(r.value or b"") for r in kafka.committed(TOPIC)]
    assert [event["after"]["id"] for event in events] == left and counts == {TOPIC: len(left)}
    first, middle, last = markers
    wanted = [first, *[middle] * (len(left) - 2), last] if len(left) > 1 else [last]
    assert [event["source"]["snapshot"] for event in events] == wanted
