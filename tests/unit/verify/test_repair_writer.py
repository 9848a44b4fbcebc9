"""Repairs as Kafka transactions: rows, deletes and the ledger record that counts them, over the in-memory twins."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import packet
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.store_contract import END, plan
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import ViewPosition
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import make_snapshot_route
from airflow_provider_mysql_cdc.cdc.verify import repair_writer
from airflow_provider_mysql_cdc.cdc.verify.repair_records import RepairRecord, read_repairs
from airflow_provider_mysql_cdc.cdc.verify.repair_writer import (
    DeleteRepair,
    RepairIdentity,
    RepairWriter,
    RowRepair,
    TableRepair,
)
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

pytestmark = pytest.mark.quick

CREATE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20), at TIME)"
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
TOPIC = "p.shop.t"
HEADERS = [("cdc-repair", b"run 1")]
MISSING, DIFFERING, GHOST = DifferenceKind.MISSING, DifferenceKind.DIFFERING, DifferenceKind.GHOST


class Sink(MemoryWriter):
    """A writer that asks for a commit after some records, and whose topic may refuse batches."""

    open_s = 0.0
    refusals = 0
    commit_after = 1_000
    pending = 0

    @property
    def should_commit(self) -> bool:
        return self.pending >= self.commit_after

    def produce(self, topic: str, *given: Any, **more: Any) -> None:
        self.pending += topic == TOPIC
        super().produce(topic, *given, **more)

    def commit(self, records: Any = ()) -> None:
        self.pending = 0
        if self.refusals:
            self.refusals -= 1
            self.abort()
            raise RecordTooLargeError("a batch is larger than Kafka takes")
        super().commit(records)


class Rig:
    """Hold a repair and what it writes."""

    def __init__(self, properties: dict[str, str] | None = None, earlier: RepairRecord | None = None) -> None:
        self.records = TableRecords(CREATE, PLAIN | (properties or {}))
        self.kafka, self.lines = MemoryKafka(), list[str]()
        self.sink: Any = Sink(self.kafka, "p.0")
        self.sink.init()
        self.writer = RepairWriter(
            self.records.cfg,
            replace(plan(writers=1), attempt="a1"),
            0,
            self.sink,
            ViewPosition(END, 7, (5, None)),
            [*HEADERS],
            RepairIdentity("run 1", "dag/run/task/-1", {} if earlier is None else {earlier.table: earlier}),
            self.records.schemas.lookup,
            self.lines.append,
        )
        self.route = make_snapshot_route(self.records.cfg, self.records.formats, self.records.table, 1)

    def ghost(self, id_: int, value: bytes | None = None) -> TopicRecord:
        key, row, _ = self.records.row(str(id_), "gone", None)
        return TopicRecord(0, id_, key, value or row)

    def repair(self, ghosts: Any = (), rows: Any = ()) -> TableRepair:
        repairs = [RowRepair({kind: 1}, packet(str(id_).encode(), b"here", None)) for kind, id_ in rows]
        deletes = [DeleteRepair({GHOST: 1}, ghost) for ghost in ghosts]
        return TableRepair(self.records.table, self.route, deletes, repairs)

    def written(self) -> list[tuple[Any, Any, Any]]:
        """Return key, op and row of what consumers see."""
        events = []
        for record in self.kafka.committed(TOPIC):
            value = None if record.value is None else json.loads(record.value)
            row = None if value is None else value["after"] or value["before"]
            events.append((json.loads(record.key or b"")["id"], value and value["op"], row and row["name"]))
        return events

    @property
    def ledger(self) -> LedgerState:
        topic = self.records.cfg.ledger_topic
        return build_ledger_state({(r.key or b"").decode(): r.value for r in self.kafka.committed(topic)})


def test_ghosts_are_deleted_and_rows_written_in_one_transaction_with_their_counts() -> None:
    rig = Rig()
    repaired = rig.writer.write(rig.repair([rig.ghost(1)], [(MISSING, 2), (DIFFERING, 3), (DIFFERING, 4)]))
    assert repaired == {GHOST: 1, MISSING: 1, DIFFERING: 2}
    assert rig.written() == [(1, "d", "gone"), (1, None, None), (2, "r", "here"), (3, "r", "here"), (4, "r", "here")]
    assert {r.headers for r in rig.kafka.committed(TOPIC)} == {tuple(HEADERS)}
    assert rig.writer.counts == {TOPIC: 5}
    (record,) = read_repairs(rig.ledger)
    expected = RepairRecord("run 1", "shop.t", TOPIC, "dag/run/task/-1", END, record.ts_ms, repaired)
    assert record == expected and record.ts_ms > 0
    assert len({id(transaction) for transaction, _ in rig.kafka.logs[TOPIC, 0]}) == 1


def test_rows_say_that_a_repair_has_read_them_as_an_incremental_snapshot_does() -> None:
    rig = Rig()
    rig.writer.write(rig.repair([rig.ghost(1)], [(MISSING, 2)]))
    values = [json.loads(r.value) for r in rig.kafka.committed(TOPIC) if r.value]
    assert [(v["op"], v["source"]["snapshot"], v["source"]["pos"], v["source"]["server_id"]) for v in values] == [
        ("d", "incremental", END.pos, 5),
        ("r", "incremental", END.pos, 5),
    ]
    assert list(values[0]) == list(values[1]) and list(values[0]["source"]) == list(values[1]["source"])
    assert values[0]["source"] == values[1]["source"]


def test_transactions_are_bounded_and_each_counts_what_all_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.sink.commit_after = 2
    rig.writer.write(rig.repair([rig.ghost(1), rig.ghost(2)], [(MISSING, n) for n in range(3, 6)]))
    assert [id_ for id_, _, _ in rig.written()] == [1, 1, 2, 2, 3, 4, 5]
    totals = [json.loads(r.value or b"")["repaired"] for r in rig.kafka.committed(rig.records.cfg.ledger_topic)]
    assert totals == [{"ghost": 1}, {"ghost": 2}, {"ghost": 2, "missing": 2}, {"ghost": 2, "missing": 3}]
    monkeypatch.setattr(repair_writer, "MAX_TRANSACTION_REPAIRS", 2)
    rig.sink.commit_after = 1_000
    rig.writer.write(rig.repair([], [(MISSING, n) for n in range(3)]))
    assert len(rig.kafka.committed(rig.records.cfg.ledger_topic)) == 6


def test_a_transaction_that_is_too_old_is_committed() -> None:
    rig = Rig({"transaction.timeout.ms": "20000"})
    rig.sink.open_s = 18.5
    rig.writer.write(rig.repair([], [(MISSING, 1), (MISSING, 2)]))
    assert len(rig.kafka.committed(rig.records.cfg.ledger_topic)) == 2


@pytest.mark.parametrize("point", ["repair.rows_read", "repair.before_commit", "repair.after_commit"])
def test_an_attempt_that_ends_leaves_whole_transactions_and_their_counts(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    rig = Rig()
    rig.sink.commit_after = 1
    passed: list[str] = []

    def die(name: str, writer: int | None = None) -> None:
        passed.append(name)
        if passed.count(point) == (1 if point == "repair.rows_read" else 2):
            raise faults.FaultRaised(point)

    monkeypatch.setattr(faults, "fault_point", die)
    with pytest.raises(faults.FaultRaised):
        rig.writer.write(rig.repair([], [(MISSING, n) for n in range(4)]))
    rig.kafka.expire("p.0")
    committed = {"repair.rows_read": 0, "repair.before_commit": 1, "repair.after_commit": 2}[point]
    assert [id_ for id_, _, _ in rig.written()] == list(range(committed))
    assert [r.repaired for r in read_repairs(rig.ledger)] == [{MISSING: committed}] * bool(committed)


def test_a_retry_adds_to_what_earlier_attempts_have_repaired() -> None:
    earlier = RepairRecord("run 1", "shop.t", TOPIC, "dag/run/task/-1", END, 1, {MISSING: 5, GHOST: 1})
    rig = Rig(earlier=earlier)
    assert rig.writer.write(rig.repair([], [(MISSING, 1), (DIFFERING, 2)])) == {MISSING: 1, DIFFERING: 1}
    assert [r.repaired for r in read_repairs(rig.ledger)] == [{MISSING: 6, GHOST: 1, DIFFERING: 1}]
    assert read_repairs(rig.ledger, "another") == []


def test_a_batch_that_is_refused_is_written_again_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_writer, "reduce_and_rejoin", lambda *given: str(given[-1]))
    rig = Rig()
    rig.sink.refusals = 2
    assert rig.writer.write(rig.repair([rig.ghost(1)], [(MISSING, 2)])) == {GHOST: 1, MISSING: 1}
    assert len(rig.written()) == 3 and len(rig.lines) == 2 and rig.writer.counts == {TOPIC: 3}
    assert [r.repaired for r in read_repairs(rig.ledger)] == [{GHOST: 1, MISSING: 1}]


def test_what_cannot_be_deleted_is_named_and_not_counted() -> None:
    rig = Rig()
    assert rig.writer.write(rig.repair([rig.ghost(7, b"damaged"), rig.ghost(1)])) == {GHOST: 1}
    assert rig.lines == [f"the row of shop.t at {TOPIC}[0]@7 cannot be deleted: it is no JSON object"]
    assert [id_ for id_, _, _ in rig.written()] == [1, 1]


def test_a_row_that_is_left_out_is_not_counted() -> None:
    rig = Rig({"event.processing.failure.handling.mode": "skip"})
    rows = [
        RowRepair({MISSING: 1}, packet(b"1", b"x", b"unreadable")),
        RowRepair({MISSING: 1}, packet(b"2", b"x", None)),
    ]
    assert rig.writer.write(replace(rig.repair(), rows=rows)) == {MISSING: 1}
    assert rig.writer.counts == {TOPIC: 1, f"{TOPIC} (rows left out)": 1}
    assert [id_ for id_, _, _ in rig.written()] == [2]


def test_values_that_are_null_in_records_are_reported_once_for_each_column() -> None:
    rig = Rig({"time.precision.mode": "isostring"})
    rows = [RowRepair({MISSING: 1}, packet(str(n).encode(), b"x", b"99:00:00")) for n in range(3)]
    assert rig.writer.write(replace(rig.repair(), rows=rows)) == {MISSING: 3}
    assert len(rig.lines) == 1 and "99:00:00" in rig.lines[0] and "repair of shop.t" in rig.lines[0]


def test_ids_tell_all_records_of_a_repair_apart() -> None:
    rig = Rig({"cdc.id.header": "true"})
    rig.sink.commit_after = 2
    rig.writer.write(rig.repair([rig.ghost(1), rig.ghost(2)], [(MISSING, 3), (DIFFERING, 4)]))
    ids = [dict(r.headers)["cdc-id"] for r in rig.kafka.committed(TOPIC)]
    assert len(set(ids)) == len(ids) == 6 and all(i.startswith(b"repair/") for i in ids if i)


def test_keys_are_forgotten_where_they_must_not_be_before_their_row_is_written() -> None:
    rig = Rig({"cdc.id.header": "true"})
    misplaced, damaged = replace(rig.ghost(2), partition=4), TopicRecord(3, 9, b"damaged", b"x")
    wrong, unreadable = DifferenceKind.WRONG_PARTITION, DifferenceKind.UNREADABLE
    repair = replace(
        rig.repair(),
        deletes=[DeleteRepair({unreadable: 2}, None, [damaged])],
        rows=[RowRepair({wrong: 1, unreadable: 1}, packet(b"2", b"here", None), [misplaced])],
    )
    assert repair.kinds() == rig.writer.write(repair) == {unreadable: 3, wrong: 1}
    assert rig.writer.counts == {TOPIC: 3}
    records = rig.kafka.committed(TOPIC)
    places = [(r.partition, r.key, r.value is None) for r in records]
    assert places == [(0, records[0].key, False), (3, b"damaged", True), (4, misplaced.key, True)]
    assert len({dict(record.headers)["cdc-id"] for record in records}) == 3
