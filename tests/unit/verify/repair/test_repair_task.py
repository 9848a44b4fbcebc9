"""What the window of a repair writes of listed keys: rows of a view, deletes, tombstones; over the in-memory twins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import packet
from kit.memory_kafka import MemoryKafka, RefusingWriter
from kit.store_contract import END, plan
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.incremental.key_range_reader import FAULT_POINTS, CompiledTable, RangeUnreadable
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import CommittedEnds
from airflow_provider_mysql_cdc.cdc.snapshot import range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import RangeWriter, RowCounts, ViewPosition
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import make_snapshot_route
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import raw_identity
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import Suspect, TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.read import row_records
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import row_bytes
from airflow_provider_mysql_cdc.cdc.verify.repair import listed_keys, repair_task
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import (
    RepairInputs,
    RepairRecord,
    RepairTask,
    TableOutcome,
    read_repairs,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
KEYED = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20), at TIME)"
KEYLESS = "CREATE TABLE t (id INT, name VARCHAR(20), at TIME)"


class World:
    """Hold a table as the view shows it, its topic, and the task."""

    def __init__(self, patch: pytest.MonkeyPatch, create: str = KEYED, **properties: str) -> None:
        self.table = TableRecords(create, PLAIN | {k.replace("_", "."): v for k, v in properties.items()})
        self.cfg, self.topic = self.table.cfg, self.table.topic
        self.events = event_reader(self.cfg, self.topic, self.table.schemas.lookup)
        self.rows: list[tuple[int | None, str | None]] = []
        self.damaged: list[int] = []
        self.records: list[TopicRecord] = []
        self.statements: list[str] = []
        self.kafka = MemoryKafka()
        self.sink: Any = RefusingWriter(self.kafka, "p.0")
        self.sink.init()
        self.reason = ""
        patch.setattr(range_writer, "stream_blocks", self._blocks)
        patch.setattr(range_writer, "reduce_and_rejoin", lambda *given: str(given[-1]))
        patch.setattr(row_records, "read_between", self._read_between)
        patch.setattr(repair_task, "ask_driver_for_texts", lambda channel: self.table.schemas.lookup)
        patch.setattr(listed_keys, "make_admin", lambda settings: None)
        ends = lambda admin, topics: CommittedEnds({t: {0: (0, len(self.records))} for t in topics})  # noqa: E731
        patch.setattr(listed_keys, "committed_ends", ends)

    def _blocks(self, conn: Any, sql: str, where: str) -> Iterator[RowBlock]:
        self.statements.append(sql)
        ids = {int(id_) for id_ in re.findall(r"`id` = (-?\d+)", sql)}
        for id_, name in self.rows:
            if id_ in ids or sql.endswith("WHERE TRUE"):
                at = b"damaged" if id_ in self.damaged else None
                cells = None if id_ is None else str(id_).encode(), None if name is None else name.encode(), at
                yield RowBlock(1, packet(*cells), large=True)

    def _read_between(self, settings: Any, topic: str, bounds: Any, timeout_s: float) -> Iterator[TopicRecord]:
        for record in self.records:
            start, end = bounds.get(record.partition, (0, 0))
            if start <= record.offset < end:
                yield record

    def say(self, op: str, id_: int | None, name: str | None = "x", **more: Any) -> TopicRecord:
        """Add an event to the topic."""
        row = {"id": id_, "name": name, "at": None}
        key = None if self.table.table.primary_key == () else {"id": id_}
        images = {"before": row} if op == "d" else {"after": row}
        key_bytes, value, _ = self.table.event(key, op=op, **images)
        return self.add(key_bytes, value, **more)

    def add(self, key: bytes | None, value: bytes | None, **more: Any) -> TopicRecord:
        record = TopicRecord(more.pop("partition", 0), len(self.records), key, value, **more)
        self.records.append(record)
        return record

    def repair(
        self, *suspects: Suspect, earlier: Any = None, counted: Any = None, structure: Any = None
    ) -> TableOutcome:
        """Run the task."""
        cfg, table, of_plan = self.cfg, self.table.table, replace(plan(writers=1), partitions={self.topic: 1})

        def compiled(name: Any) -> CompiledTable:
            if self.reason:
                raise RangeUnreadable(self.reason)
            route = make_snapshot_route(cfg, self.table.formats, table, 1)
            return CompiledTable(table, table.columns, route, None)

        reader: Any = SimpleNamespace(
            cfg=cfg,
            plan=of_plan,
            sink=self.sink,
            channel=None,
            state=SimpleNamespace(tables={table.id: table}),
            avro_formats=self.table.formats,
            writer=RangeWriter(cfg, of_plan, 0, None, self.sink, [], FAULT_POINTS, lambda _: None, lambda _: None),
            compiled_table=compiled,
            position=lambda: ViewPosition(END, 7, (5, None)),
        )
        inputs: Any = RepairInputs(
            SimpleNamespace(run_id="r"),  # type: ignore[arg-type]
            (TableSuspects(structure or table, self.topic, suspects),),
            "run 1",
            "dag/run/task/-1",
            earlier or {},
            counted or {},
        )
        report = RepairTask(reader, inputs).run()
        self.counts = report.counts
        return report.tables[table.id]

    @property
    def written(self) -> list[tuple[int, Any, Any, Any]]:
        """Return partition, key, op and name of what consumers see."""
        found = []
        for record in self.kafka.committed(self.topic):
            value = {} if record.value is None else json.loads(record.value)
            key = record.key and (json.loads(record.key)["id"] if record.key[:1] == b"{" else record.key)
            row = value.get("after") or value.get("before") or {}
            found.append((record.partition, key, value.get("op"), row.get("name")))
        return found

    @property
    def repairs(self) -> list[RepairRecord]:
        records = self.kafka.committed(self.cfg.ledger_topic)
        return read_repairs(build_ledger_state({(r.key or b"").decode(): r.value for r in records}))


def suspect(kind: Kind, id_: int | None, record: TopicRecord | None = None, *places: TopicRecord) -> Suspect:
    place = None if record is None else (record.partition, record.offset)
    says = None if kind is Kind.MISSING else row_bytes({"name": "says"})
    return Suspect({kind: 1}, row_bytes({"id": id_}), says, place, tuple((p.partition, p.offset) for p in places))


def equal(kind: Kind, id_: int | None, name: str | None = "x") -> Suspect:
    return Suspect({kind: 1}, row_bytes({"id": id_, "name": name, "at": None}))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_each_key_is_written_as_the_view_shows_it_in_one_transaction_with_its_count(world: World) -> None:
    """Deletes first: with message.key.columns a row may have the key of a ghost."""
    world.rows = [(2, "two"), (3, "three"), (9, "other")]
    ghost = world.say("c", 1, "gone")
    outcome = world.repair(
        suspect(Kind.MISSING, 2), suspect(Kind.GHOST, 1, ghost), suspect(Kind.DIFFERING, 3), suspect(Kind.MISSING, 4)
    )
    assert outcome.repaired == {Kind.GHOST: 1, Kind.MISSING: 1, Kind.DIFFERING: 1}
    assert outcome.reasons == ("1 no longer differ: the table in the source is as the topic says",)
    assert world.written == [(0, 1, "d", "gone"), (0, 1, None, None), (0, 2, "r", "two"), (0, 3, "r", "three")]
    records = world.kafka.committed(world.topic)
    assert all(("cdc-repair", b"run 1") in record.headers for record in records)
    values = [json.loads(r.value) for r in records if r.value]
    assert values[0]["source"] == values[1]["source"] and values[0]["source"]["snapshot"] == "incremental"
    (record,) = world.repairs
    assert record == RepairRecord(
        "run 1", "shop.t", world.topic, "dag/run/task/-1", END, record.ts_ms, outcome.repaired
    )
    assert len({id(transaction) for transaction, _ in world.kafka.logs[world.topic, 0]}) == 1
    assert world.counts == {world.topic: 4} and len(world.statements) == 1


def test_a_key_that_the_stream_mended_meanwhile_gets_its_row_once_more(world: World) -> None:
    world.rows = [(1, "again")]
    ghost = world.say("c", 1, "gone")
    world.say("d", 1)
    world.say("c", 1, "again")
    assert world.repair(suspect(Kind.GHOST, 1, ghost)).repaired == {Kind.GHOST: 1}
    assert world.written == [(0, 1, "r", "again")]


def test_what_the_view_shows_as_the_topic_says_is_not_written(world: World) -> None:
    """A replica was compared that has other rows, or the table has changed back without an event."""
    world.rows = [(1, "one"), (2, "two")]
    says = row_bytes({"id": 1, "name": "one", "at": None}), row_bytes({"id": 2, "name": "two", "at": None})
    keys = [row_bytes({"id": id_}) for id_ in (1, 2, 3)]
    outcome = world.repair(
        Suspect({Kind.DIFFERING: 1}, keys[0], says[0]),
        Suspect({Kind.GHOST: 1, Kind.DUPLICATE: 2}, keys[1], says[1]),
        Suspect({Kind.MISSING: 1}, keys[2], None, (0, world.say("d", 3).offset)),
    )
    assert outcome.repaired == {Kind.DUPLICATE: 2} and [w[1:] for w in world.written] == [(2, "r", "two")]
    assert outcome.reasons == ("2 no longer differ: the table in the source is as the topic says",)


def test_other_keys_and_partitions_are_forgotten_before_the_row(world: World) -> None:
    world.rows = [(1, "one")]
    wrong, without, foreign = world.say("c", 1, partition=2), world.say("c", 1), b'{"id": 1}'
    without = world.records[-1] = replace(without, key=None)
    again = world.add(foreign, wrong.value)
    last, own = world.say("c", 3), world.say("c", 1)
    keyless = world.records[-1] = replace(world.say("c", 3), key=None)
    outcome = world.repair(
        suspect(Kind.WRONG_PARTITION, 1, own, wrong, without, own),
        Suspect({Kind.GHOST: 1}, raw_identity(foreign), None, (again.partition, again.offset)),
        suspect(Kind.NO_TOMBSTONE, 3, last, keyless),
    )
    assert outcome.repaired == {Kind.GHOST: 1, Kind.NO_TOMBSTONE: 1, Kind.WRONG_PARTITION: 1}
    # The key in other bytes reads as that of row 1, which is written behind its tombstone; so is the one with a header.
    assert world.written == [
        (0, 1, None, None), (0, 3, "d", "x"), (0, 3, None, None), (0, 1, "r", "one"), (0, 1, "r", "one"),
        (2, 1, None, None),
    ]  # fmt: skip
    settled = [dict(r.headers).get("cdc-repair-settles") for r in world.kafka.committed(world.topic)]
    assert settled == [None, b"0@5", b"0@5", None, b"0@1", None] and len(world.repairs) == 1


def test_what_cannot_be_repaired_is_named_and_the_rest_is_written(world: World) -> None:
    world.rows = [(1, "one"), (1, "uno"), (2, "two")]
    damaged = world.add(b'{"id":7}', b"damaged")
    outcome = world.repair(
        suspect(Kind.MISSING, 1), suspect(Kind.MISSING, 2), suspect(Kind.GHOST, 7, damaged),
        Suspect({Kind.GAP: 1}, b'{"name":"x"}'),
    )  # fmt: skip
    assert outcome.repaired == {Kind.MISSING: 1} and [w[1] for w in world.written] == [2]
    assert outcome.reasons[0].startswith('2 rows have the same key in records: {"id": 1}; choose ')
    assert outcome.reasons[1].startswith(f"the row of shop.t at {world.topic}[0]@0 cannot be deleted: it is no JSON")
    gone = ("1 have records with an earlier key of the table, or none any longer",)
    assert outcome.reasons[2:] == gone and len(world.kafka.committed(world.cfg.ledger_topic)) == 1
    assert world.repair(Suspect({Kind.GAP: 1}, b'{"name":"x"}')).reasons == gone
    assert len(world.kafka.committed(world.cfg.ledger_topic)) == 1, "nothing is counted"


def test_no_row_is_deleted_that_may_be_one_that_cannot_be_read(world: World) -> None:
    world.rows, world.damaged = [(1, "one"), (2, "two")], [1]
    ghost = world.say("c", 1)
    outcome = world.repair(suspect(Kind.GHOST, 1, ghost), suspect(Kind.MISSING, 2))
    assert outcome.repaired == {Kind.MISSING: 1} and [w[1:3] for w in world.written] == [(2, "r")]
    assert outcome.reasons[0].startswith("1 rows cannot be read: ")
    assert outcome.reasons[1] == 'its row may be one that cannot be read: {"id": 1}'


def test_a_ghost_is_deleted_before_a_row_with_its_key_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, message_key_columns="shop.t:name")
    monkeypatch.setattr(repair_task, "MAX_KEYS", 1)
    world.rows = [(2, "x")]
    key, value, _ = world.table.event({"name": "x"}, op="c", after={"id": 1, "name": "x", "at": None})
    ghost = world.add(key, value)
    assert world.repair(suspect(Kind.MISSING, 2), suspect(Kind.GHOST, 1, ghost)).repaired
    ops = [r.value and json.loads(r.value)["op"] for r in world.kafka.committed(world.topic) if r.key == key]
    assert ops == ["d", None, "r"]


def test_a_row_with_the_record_key_of_what_is_deleted_is_written_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ghost has the key of a row that is right, and a row that differs has another key than its event."""
    world = World(monkeypatch, message_key_columns="shop.t:name")

    def say(id_: int, name: str) -> TopicRecord:
        key, value, _ = world.table.event({"name": name}, op="c", after={"id": id_, "name": name, "at": None})
        return world.add(key, value)

    ghost, moved = say(1, "x"), say(3, "old")
    world.rows = [(2, "x"), (3, "new"), (4, "other")]
    assert world.repair(suspect(Kind.GHOST, 1, ghost), suspect(Kind.DIFFERING, 3, moved)).repaired
    left = {record.key: record.value for record in world.kafka.committed(world.topic)}
    assert left[ghost.key] is not None and json.loads(left[ghost.key] or b"")["after"]["id"] == 2
    assert left[moved.key] is None and [key for key in left if b"new" in (key or b"")], left
    assert len(world.kafka.committed(world.topic)) == 6


def test_a_row_that_is_left_out_is_not_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.rows = [(1, "one")]
    left_out = lambda self, row_range, counts: RowCounts(len(list(row_range.first_records())), 1)  # noqa: E731
    monkeypatch.setattr(RangeWriter, "write_rows", left_out)
    outcome = world.repair(suspect(Kind.MISSING, 1))
    assert outcome == TableOutcome(reasons=("1 of 1 rows cannot be written",)) and world.repairs == []


def test_tables_that_cannot_be_read_are_named(world: World) -> None:
    earlier = replace(world.table.table, primary_key=())
    said = world.repair(suspect(Kind.MISSING, 1), structure=earlier)
    assert said == TableOutcome(reasons=("its structure has changed since it was compared; verify again",))
    world.reason = "it is locked"
    assert world.repair(suspect(Kind.MISSING, 1)) == TableOutcome(reasons=("it is locked",))
    assert world.written == [] and world.repairs == []


def test_stretches_are_bounded_and_each_counts_what_the_run_has_repaired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_task, "MAX_KEYS", 2)
    world.rows = [(n, "n") for n in range(5)]
    world.sink.refusals = 1
    outcome = world.repair(*(suspect(Kind.MISSING, n) for n in range(5)), earlier={"shop.t": {Kind.GHOST: 2}})
    assert outcome.repaired == {Kind.MISSING: 5} and [w[1] for w in world.written] == list(range(5))
    totals = [json.loads(r.value or b"")["repaired"] for r in world.kafka.committed(world.cfg.ledger_topic)]
    assert totals == [{"ghost": 2, "missing": n} for n in (2, 4, 5)]
    assert world.counts == {world.topic: 5}
    # What an attempt had repaired that broke since the comparison is repaired once more, and counted once.
    kinds = {Kind.MISSING: 3, Kind.GHOST: 1}
    world.repair(suspect(Kind.MISSING, 1), earlier={"shop.t": {Kind.MISSING: 1}}, counted={"shop.t": kinds})
    assert world.repairs[0].repaired == kinds


def test_a_stretch_that_takes_too_long_is_halved(world: World) -> None:
    world.rows, tries = [(n, "n") for n in range(4)], []
    real = range_writer.out_of_time

    def slow(cfg: Any, sink: Any) -> bool:
        tries.append(len(world.statements))
        return (tries.count(1) == 1 and len(world.statements) == 1) or real(cfg, sink)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_writer, "out_of_time", slow)
        assert world.repair(*(suspect(Kind.MISSING, n) for n in range(4))).repaired == {Kind.MISSING: 4}
        assert len(world.statements) == 3 and len(world.written) == 4
        patch.setattr(range_writer, "out_of_time", lambda cfg, sink: True)
        (reason,) = world.repair(suspect(Kind.MISSING, 1)).reasons
        assert "raise transaction.timeout.ms" in reason and len(world.written) == 4


@for_each("point", FAULT_POINTS.__match_args__)
def test_an_attempt_that_ends_leaves_whole_stretches_and_their_counts(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world, passed = World(patch), list[str]()
        world.rows = [(n, "n") for n in range(4)]
        patch.setattr(repair_task, "MAX_KEYS", 1)
        of_point = getattr(FAULT_POINTS, point)

        def die(name: str, writer: int | None = None) -> None:
            passed.append(name)
            if passed.count(of_point) == 2:
                raise faults.FaultRaised(of_point)

        patch.setattr(faults, "fault_point", die)
        with pytest.raises(faults.FaultRaised):
            world.repair(*(suspect(Kind.MISSING, n) for n in range(4)))
        world.kafka.expire("p.0")
        done = 2 if point == "after_commit" else 1
        assert [w[1] for w in world.written] == list(range(done))
        assert [r.repaired for r in world.repairs] == [{Kind.MISSING: done}]


def test_all_records_of_a_repair_have_ids_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, cdc_id_header="true")
    monkeypatch.setattr(repair_task, "MAX_KEYS", 2)
    world.rows = [(3, "x"), (4, "x")]
    ghosts = [world.say("c", n) for n in (1, 2)]
    kinds = [suspect(Kind.GHOST, n, ghost) for n, ghost in enumerate(ghosts, 1)]
    world.repair(*kinds, suspect(Kind.MISSING, 3), suspect(Kind.MISSING, 4))
    ids = [dict(r.headers)["cdc-id"] or b"" for r in world.kafka.committed(world.topic)]
    assert len(set(ids)) == len(ids) == 6 and all(i.startswith(b"repair/") for i in ids)


def test_equal_rows_without_a_key_are_counted_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, KEYLESS)
    world.rows = [(1, "x"), (1, "x"), (1, "x"), (None, None)]
    for op, id_ in (("c", 1), ("c", 2), ("c", 2), ("c", 2), ("d", 2), ("c", 5)):
        world.say(op, id_)
    foreign = world.add(b"damaged", b"x")
    places = ((foreign.partition, foreign.offset),)
    outcome = world.repair(
        equal(Kind.MISSING, 1), equal(Kind.GHOST, 2), equal(Kind.MISSING, None, None), equal(Kind.GHOST, 3),
        Suspect({Kind.UNREADABLE: 1}, raw_identity(b"damaged"), places=places),
    )  # fmt: skip
    assert outcome == TableOutcome({Kind.UNREADABLE: 1, Kind.GHOST: 2, Kind.MISSING: 3})
    assert world.written == [
        (0, b"damaged", None, None), *[(0, None, "d", "x")] * 2, *[(0, None, "r", "x")] * 2, (0, None, "r", None),
    ]  # fmt: skip
    # Another run has written them meanwhile: nothing is left to do.
    world.records += [
        replace(record, partition=0, offset=len(world.records) + number)
        for number, record in enumerate(world.kafka.committed(world.topic))
    ]
    assert world.repair(equal(Kind.MISSING, 1), equal(Kind.GHOST, 2)) == TableOutcome()
    world.add(*world.table.event(None, op="t")[:2])
    assert "TRUNCATE" in world.repair(equal(Kind.MISSING, 1)).reasons[0]
    assert len(world.written) == 6
    chosen = World(monkeypatch, KEYLESS, message_key_columns="shop.t:name")
    chosen.add(*chosen.table.event({"name": "x"}, op="c", after={"id": 1, "name": "x", "at": None})[:2])
    assert chosen.repair(equal(Kind.GHOST, 1)).repaired == {Kind.GHOST: 1}, "its tombstone is no second one"
    assert len(chosen.kafka.committed(chosen.topic)) == 2
