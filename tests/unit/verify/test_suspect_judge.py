"""Suspects that are read once more: which of them are repaired, and as what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kit.decode_builder import packet
from kit.store_contract import plan
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.sink.committed_ends import CommittedEnds
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify import record_range, suspect_judge
from airflow_provider_mysql_cdc.cdc.verify.compared_table import compared_table, tables_by_topic
from airflow_provider_mysql_cdc.cdc.verify.event_entries import event_entries, raw_identity
from airflow_provider_mysql_cdc.cdc.verify.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import REPAIR_HEADER
from airflow_provider_mysql_cdc.cdc.verify.suspect_judge import JudgedTable, SuspectJudge
from airflow_provider_mysql_cdc.cdc.verify.suspects import Suspect, TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

pytestmark = pytest.mark.quick

MISSING, DIFFERING, GHOST = DifferenceKind.MISSING, DifferenceKind.DIFFERING, DifferenceKind.GHOST
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
KEYED = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20))"
KEYLESS = "CREATE TABLE t (id INT, name VARCHAR(20))"


@dataclass
class World:
    """Hold a table and its topic, and what a judge reads of them."""

    monkeypatch: pytest.MonkeyPatch
    create: str = KEYED
    properties: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[int | None, str | None]] = field(default_factory=list)
    records: list[TopicRecord] = field(default_factory=list)
    read_bounds: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = TableRecords(self.create, PLAIN | self.properties)
        self.cfg = self.table.cfg
        self.compared = compared_table(self.cfg, 0, self.table.table)
        self.reader = event_reader(self.cfg, self.table.topic, self.table.schemas.lookup)
        self.monkeypatch.setattr(suspect_judge, "stream_rows", self._stream_rows)
        self.monkeypatch.setattr(record_range, "read_between", self._read_between)
        self.monkeypatch.setattr(suspect_judge, "make_admin", lambda settings: None)
        self.monkeypatch.setattr(
            suspect_judge,
            "committed_ends",
            lambda admin, topics: CommittedEnds({topic: {0: (0, len(self.records))} for topic in topics}),
        )

    def _stream_rows(self, conn: Any, sql: str, where: str) -> Iterator[bytes]:
        ids = {int(id_) for id_ in re.findall(r"`id` = (-?\d+)", sql)}
        for id_, name in self.rows:
            if id_ in ids or sql.endswith("WHERE TRUE"):
                yield packet(None if id_ is None else str(id_).encode(), None if name is None else name.encode())

    def _read_between(self, settings: Any, topic: str, bounds: Any, timeout_s: float) -> Iterator[TopicRecord]:
        self.read_bounds.append(bounds)
        start, end = bounds.get(0, (0, 0))
        yield from (record for record in self.records if start <= record.offset < end)

    def say(self, op: str, id_: int | None, name: str | None = "x") -> int:
        """Add an event to the topic; return its offset."""
        row = {"id": id_, "name": name}
        images = {"before": row} if op == "d" else {"after": row}
        key, value, _ = self.table.event(None if self.compared.keyless else {"id": id_}, op=op, **images)
        return self.add(key, None if op == "tombstone" else value)

    def add(self, key: bytes | None, value: bytes | None) -> int:
        self.records.append(TopicRecord(0, len(self.records), key, value))
        return len(self.records) - 1

    def suspect(self, kind: DifferenceKind, id_: int | None, name: str | None = "x", offset: int | None = 0) -> Suspect:
        """Return a suspect of which the topic says this name."""
        row = {"id": id_, "name": name}
        event = self.reader.read(*self.table.event(None if self.compared.keyless else {"id": id_}, op="c", after=row))
        (entry,) = event_entries(self.compared, event, (0, 0))
        if self.compared.keyless:
            return Suspect({kind: 1}, entry.key)
        value = None if kind is MISSING else entry.value
        return Suspect({kind: 1}, entry.key, value, None if offset is None else (0, offset))

    def judge(self, *suspects: Suspect, compared: int | None = None) -> JudgedTable:
        """Judge suspects of a comparison that has read so many records."""
        judge = SuspectJudge(self.cfg, replace(plan(writers=1), partitions={self.table.topic: 1}), _Conn(), None,
                             lambda topic: self.reader)  # fmt: skip
        bounds = {0: (0, len(self.records) if compared is None else compared)}
        of_table = TableSuspects(self.compared.table, self.compared.topic, suspects, bounds)
        return judge.judge(self.compared, of_table, tables_by_topic([self.compared])[self.compared.topic])

    def repairs(self, judged: JudgedTable) -> tuple[list[int], list[tuple[DifferenceKind, bytes]]]:
        """Return offsets of ghosts' records, and kind and packet of rows."""
        deleted = [delete.last.offset for delete in judged.repair.deletes if delete.last is not None]
        return deleted, [(next(iter(row.kinds)), row.packet) for row in judged.repair.rows]


class _Conn:
    def cursor(self) -> Any:
        raise AssertionError("there are no dates to compare with")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_each_kind_is_confirmed_by_the_view(world: World) -> None:
    world.rows = [(1, "one"), (2, "two"), (9, "other")]
    ghost = world.say("c", 3)
    judged = world.judge(
        world.suspect(MISSING, 1), world.suspect(DIFFERING, 2, "old"), world.suspect(GHOST, 3, offset=ghost)
    )
    assert world.repairs(judged) == ([0], [(MISSING, packet(b"1", b"one")), (DIFFERING, packet(b"2", b"two"))])
    assert judged.dropped == 0 and judged.reasons == ()


def test_what_the_view_shows_otherwise_is_dropped(world: World) -> None:
    world.rows = [(2, "x"), (3, "here")]
    world.say("c", 3)
    judged = world.judge(world.suspect(MISSING, 1), world.suspect(DIFFERING, 2), world.suspect(GHOST, 3))
    assert world.repairs(judged) == ([], []) and judged.dropped == 3


def test_rows_that_later_events_are_about_are_left_alone(world: World) -> None:
    world.rows = [(1, "one"), (2, "two")]
    world.say("c", 3)
    compared = len(world.records)
    for op, id_ in (("c", 1), ("u", 2), ("d", 3)):
        world.say(op, id_)
    world.rows = [(1, "one"), (2, "two")]
    judged = world.judge(
        world.suspect(MISSING, 1), world.suspect(DIFFERING, 2, "old"), world.suspect(GHOST, 3), compared=compared
    )
    assert world.repairs(judged) == ([], []) and judged.dropped == 3
    assert world.read_bounds[0] == {0: (1, 4)}


def test_a_later_truncate_leaves_nothing_to_repair(world: World) -> None:
    world.say("c", 3)
    world.add(*world.table.event(None, op="t")[:2])
    judged = world.judge(world.suspect(GHOST, 3), compared=1)
    assert world.repairs(judged) == ([], []) and judged.dropped == 1


def test_records_that_are_no_events_or_gone_are_named_or_left_out(world: World) -> None:
    world.add(b"{}", b"damaged")
    judged = world.judge(world.suspect(GHOST, 3, offset=77), compared=0)
    assert world.repairs(judged) == ([], [])
    assert judged.reasons == ("1 have records with an earlier key of the table, or none any longer",)


def test_rows_with_the_same_key_in_records_are_named(world: World) -> None:
    world.rows = [(1, "one"), (1, "uno")]
    judged = world.judge(world.suspect(MISSING, 1))
    assert world.repairs(judged) == ([], [])
    assert judged.reasons == ('2 rows have the same key in records: {"id": 1}',)


def test_a_row_that_several_statements_read_is_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.rows = [(1, "one")]
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.verify.suspect_rows.MAX_SUSPECTS_PER_SELECT", 1)
    monkeypatch.setattr(world, "_stream_rows", None)
    monkeypatch.setattr(suspect_judge, "stream_rows", lambda *_: iter([packet(b"1", b"one")]))
    judged = world.judge(world.suspect(MISSING, 1), world.suspect(MISSING, 2))
    assert world.repairs(judged) == ([], [(MISSING, packet(b"1", b"one"))])


def test_equal_rows_without_a_key_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, KEYLESS)
    world.rows = [(1, "x"), (1, "x"), (1, "x"), (None, None)]
    for op, id_ in (("c", 1), ("c", 2), ("c", 2), ("c", 2), ("d", 2), ("c", 5)):
        world.say(op, id_)
    judged = world.judge(
        world.suspect(MISSING, 1),
        world.suspect(GHOST, 2),
        world.suspect(MISSING, None, None),
        world.suspect(MISSING, 5),
    )
    ghosts, rows = world.repairs(judged)
    assert ghosts == [2, 3]
    assert rows == [(MISSING, packet(b"1", b"x"))] * 2 + [(MISSING, packet(None, None))]


def test_rows_that_a_snapshot_has_read_again_are_counted_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, KEYLESS)
    world.rows = [(1, "x"), (3, "x"), (3, "x")]
    for op, id_ in (("c", 1), ("c", 1), ("r", 1), ("c", 1), ("c", 3)):
        world.say(op, id_)
    key, value, _ = world.table.event(None, op="r", after={"id": 3, "name": "x"})
    world.records.append(TopicRecord(0, 5, key, value, headers=((REPAIR_HEADER, b"run"),)))
    judged = world.judge(world.suspect(GHOST, 1), world.suspect(MISSING, 3))
    assert world.repairs(judged) == ([3], [])


def test_a_truncate_of_a_table_without_a_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, KEYLESS)
    world.add(*world.table.event(None, op="t")[:2])
    judged = world.judge(world.suspect(MISSING, 1))
    assert judged.repair.size == 0 and "TRUNCATE" in judged.reasons[0]


def test_records_are_read_in_ranges_without_long_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspect_judge, "MAX_GAP_RECORDS", 10)
    places = [(0, 5), (0, 1), (0, 40), (1, 7), (0, 45), (0, 90)]
    assert list(suspect_judge._rounds(places)) == [{0: (1, 6), 1: (7, 8)}, {0: (40, 46)}, {0: (90, 91)}]
    assert list(suspect_judge._rounds([])) == []


def test_what_records_of_the_past_are_is_repaired_whatever_came_later(world: World) -> None:
    world.rows = [(1, "one")]
    for id_ in (1, 2):
        world.say("c", id_)
    compared = len(world.records)
    world.say("u", 1, "one")
    deleted = world.say("d", 2)
    suspects = [
        replace(world.suspect(kind, id_, offset=offset), kinds={kind: 1, DifferenceKind.DUPLICATE: 2})
        for kind, id_, offset in ((DIFFERING, 1, 0), (GHOST, 2, 1))
    ]
    judged = world.judge(*suspects, compared=compared)
    assert [row.kinds for row in judged.repair.rows] == [{DifferenceKind.DUPLICATE: 2}]
    (delete,) = judged.repair.deletes
    assert delete.kinds == {DifferenceKind.DUPLICATE: 2}
    assert delete.last is not None and delete.last.offset == deleted, "behind its last event"
    world.add(*world.table.event(None, op="t")[:2])
    assert world.judge(*suspects, compared=compared).repair.size == 2


def test_a_misplaced_record_is_forgotten_where_it_is(world: World) -> None:
    world.rows = [(1, "one")]
    for id_ in (1, 2):
        world.say("c", id_)
    places = ((0, 0), (0, 1))
    key_1, key_2 = (record.key for record in world.records)
    suspects = [
        replace(
            world.suspect(MISSING, id_),
            kinds={DifferenceKind.WRONG_PARTITION: 1},
            record=(0, offset),
            places=places,
        )
        for id_, offset in ((1, 0), (2, 1))
    ]
    judged = world.judge(*suspects)
    assert [[r.key for r in row.forgotten] for row in judged.repair.rows] == [[key_2]]
    assert [[r.key for r in delete.forgotten] for delete in judged.repair.deletes] == [[key_1]]


def test_a_key_that_names_no_row_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for create in (KEYED, KEYLESS):
        each = World(monkeypatch, create)
        each.add(b"damaged", b"x")
        each.add(None, b"x")
        suspect = Suspect({DifferenceKind.UNREADABLE: 1}, raw_identity(b"damaged"), places=((0, 0),))
        (delete,) = each.judge(suspect, compared=0).repair.deletes
        assert delete.last is None and [record.key for record in delete.forgotten] == [b"damaged"]


def test_an_earlier_key_of_the_table_is_not_repaired(world: World) -> None:
    suspect = Suspect({DifferenceKind.GAP: 1}, b'{"name":"x"}')
    judged = world.judge(suspect)
    assert judged.repair.size == 0
    assert judged.reasons == ("1 have records with an earlier key of the table, or none any longer",)
