"""Heartbeats of a job: at their interval, whoever writes them.

Places of events in their transaction, and the counts of END.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.side_records import (
    PLACEHOLDER,
    Heartbeats,
    HeartbeatTimer,
    TransactionMetadata,
)
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.model.table import TableId


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_heartbeat_is_due_at_once_and_the_others_after_the_interval() -> None:
    clock = Clock()
    timer = HeartbeatTimer(10, clock)
    taken = []
    for _ in range(25):
        taken.append(timer.take())
        clock.now += 1
    assert [i for i, due in enumerate(taken) if due] == [0, 10, 20]


def test_the_heartbeats_of_a_batch_count() -> None:
    clock = Clock()
    timer = HeartbeatTimer(10, clock)
    assert timer.seconds_left() == 0
    timer.restart()
    clock.now += 4
    assert timer.seconds_left() == 6 and not timer.take()


def test_there_are_none_without_an_interval() -> None:
    timer = HeartbeatTimer(0)
    assert not timer.take() and timer.seconds_left() == 0


@pytest.mark.req("STRM-27", "STRM-30")
def test_a_job_that_waits_writes_heartbeats_and_runs_the_statement() -> None:
    written: list[Any] = []
    statements: list[str] = []
    job: Any = SimpleNamespace(commit=written.extend)
    conn: Any = SimpleNamespace(cursor=lambda: Cursor(statements))
    cfg = config(**{"heartbeat.interval.ms": "600000", "heartbeat.action.query": "INSERT INTO d.beat VALUES (1)"})
    heartbeats = Heartbeats(cfg, lambda: conn, job, lambda: None)
    heartbeats.run_action()
    heartbeats.while_waiting()
    heartbeats.while_waiting()
    assert len(written) == 1 and written[0].topic.startswith("__debezium-heartbeat.")
    assert statements == ["INSERT INTO d.beat VALUES (1)"], "once in an interval"


def test_a_run_without_its_lock_writes_no_heartbeat() -> None:
    def require_lock() -> None:
        raise RunInProgressError("this run has lost its lock")

    job: Any = SimpleNamespace(commit=lambda records: pytest.fail("another run may be at work"))
    with pytest.raises(RunInProgressError):
        Heartbeats(config(**{"heartbeat.interval.ms": "1"}), lambda: None, job, require_lock).while_waiting()


class Cursor:
    def __init__(self, statements: list[str]) -> None:
        self.execute = statements.append

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        pass


CFG = ConnectorConfig.from_properties(
    {
        "topic.prefix": "p",
        "database.hostname": "h",
        "database.user": "u",
        "kafka.bootstrap.servers": "k:1",
        "value.converter.schemas.enable": "false",
    }
)
A, B = TableId("d", "a"), TableId("d", "b")
VALUE = f'{{"transaction":{PLACEHOLDER}}}'.encode()
ROW: Any = (b"k", VALUE, 0, 0, None, None)
TOMBSTONE: Any = (b"k", None, 0, 1, None, None)


def numbered(transactions: TransactionMetadata, table: TableId, *rows: Any) -> list[tuple[int, int] | None]:
    out = []
    for _, value, *_ in transactions.number_records(table, list(rows)):
        block = None if value is None else json.loads(value)["transaction"]
        out.append(None if block is None else (block["total_order"], block["data_collection_order"]))
    return out


def payload(record: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record[2])
    return found


@pytest.mark.req("TXN-03", "TXN-05", "TXN-09")
def test_events_are_counted_in_the_transaction_and_in_their_table() -> None:
    transactions = TransactionMetadata(CFG)
    for gtid in ("u:1", "u:2"):
        transactions.begin(gtid, "b.1", 4)
        assert payload(transactions.begin_record())["status"] == "BEGIN"
        assert numbered(transactions, A, ROW, TOMBSTONE, ROW) == [(1, 1), None, (2, 2)]
        assert numbered(transactions, B, ROW) == [(3, 1)]
        assert numbered(transactions, A, ROW) == [(4, 3)]
        assert numbered(transactions, B) == []
        end = payload(transactions.end_record())
        assert (end["status"], end["id"], end["event_count"]) == ("END", gtid, 4)
        assert {c["data_collection"]: c["event_count"] for c in end["data_collections"]} == {"d.a": 3, "d.b": 1}
        transactions.end()


def test_an_event_outside_a_transaction_has_no_place() -> None:
    """XA transactions have no metadata, as with Debezium."""
    transactions = TransactionMetadata(CFG)
    assert numbered(transactions, A, ROW) == [None]


@pytest.mark.req("TXN-07")
def test_without_a_gtid_the_id_is_the_place_of_begin() -> None:
    transactions = TransactionMetadata(CFG)
    transactions.begin(None, "b.000003", 411)
    assert payload(transactions.begin_record())["id"] == "file=b.000003,pos=411"


@pytest.mark.req("TXN-07", "TXN-09")
@pytest.mark.parametrize(("gtid", "expected"), [("u:7", "u:7"), (None, "file=b.000003,pos=411")])
def test_events_and_boundaries_of_a_transaction_have_one_id(gtid: str | None, expected: str) -> None:
    transactions = TransactionMetadata(CFG)
    transactions.begin(gtid, "b.000003", 411)
    begin = payload(transactions.begin_record())
    ((_, value, *_),) = transactions.number_records(A, [ROW])
    end = payload(transactions.end_record())
    event = json.loads(value or b"")["transaction"]
    assert [begin["id"], event["id"], end["id"]] == [expected] * 3
    assert list(event) == ["id", "total_order", "data_collection_order"]


def test_tables_stand_in_the_order_of_a_java_hash_map() -> None:
    """String.hashCode gives 97623, 97624 and 97625; a HashMap of 16 puts ``h ^ h >>> 16`` into buckets 6, 9 and 8."""
    transactions = TransactionMetadata(CFG)
    transactions.begin("u:1", "b.1", 4)
    for table in (B, A, TableId("d", "c")):
        numbered(transactions, table, ROW)
    listed = payload(transactions.end_record())["data_collections"]
    assert [c["data_collection"] for c in listed] == ["d.a", "d.c", "d.b"]
