"""The soak's verifier: an event that is taken away, doubled or swapped is reported, and so is what DDL may hide."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import case
from soaklib import verify as soak
from soaklib.binlog_facts import GtidSet
from soaklib.ddl import DdlStatement, Journal
from soaklib.verify import AuditCheck, Topics, check_schema_changes, final_layout, verify
from topiclib.checks import TableCheck
from topiclib.events import EventReader, Layout
from topiclib.tables import StoredTable
from topiclib.topics import KafkaRecord
from topiclib.wire import RecordError

GTID = "a1730108-e599-11f1-8bb7-02fc00000001"
AFTER = GtidSet.parse(f"{GTID}:1-10")
FIELDS = {"id": "int64", "v": "string", "x1": "int32", "x2": "int32", "tbl": "string", "op": "string", "mark": "string"}


def document(columns: Iterable[str], payload: Any, *, envelope: bool) -> bytes:
    row = {"type": "struct", "fields": [{"field": c, "type": FIELDS[c], "optional": True} for c in columns]}
    if envelope:
        row = {"type": "struct", "fields": [{**row, "field": side} for side in ("before", "after")]}
    return json.dumps({"schema": row, "payload": payload}, separators=(",", ":")).encode()


class Cursor:
    """What the server answers about its binlog, of which one file is older than the stream."""

    def __init__(self, events: list[tuple[Any, ...]]) -> None:
        self._files = {"binlog.000001": [], "binlog.000002": events}
        self._answer: list[tuple[Any, ...]] = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        if sql == "SHOW BINARY LOGS":
            self._answer = [(name,) for name in self._files]
        else:
            assert sql == "SHOW BINLOG EVENTS IN 'binlog.000002'"
            self._answer = self._files["binlog.000002"]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._answer


class World:
    """A database and its topics, as the drain would leave them; each change is noted as the triggers would."""

    def __init__(self) -> None:
        self.topics: dict[str, list[KafkaRecord]] = {"audit": []}
        self.rows: dict[str, list[tuple[Any, ...]]] = {"audit": []}
        self.layouts = {"audit": Layout("audit", ("id", "tbl", "op", "mark"), ("id",), (None,) * 4)}
        self.journal, self.ddl = Journal(), list[str]()
        self.number = 10
        self.binlog = list[tuple[Any, ...]]()

    def table(
        self, name: str, columns: tuple[str, ...] = ("id", "v"), defaults: tuple[Any, ...] = (None, None)
    ) -> None:
        self.layouts[name] = Layout(name, columns, ("id",), defaults)
        self.rows[name], self.topics[name] = [], []

    def _put(self, topic: str, row: int, leg: int, key: Any, op: str, before: Any, after: Any) -> None:
        columns = list((before or after or {"id": 0}).keys())
        source = {"file": "binlog.000001", "pos": 100 + self.number, "ts_ms": 5}
        payload = {"before": before, "after": after, "source": source, "op": op}
        value = None if op == "tombstone" else document(columns, payload, envelope=True)
        data = document(("id",), {"id": key}, envelope=False)
        identity = f"{GTID}:{self.number}/{row}/0/{leg}".encode()
        records = self.topics.setdefault(topic, [])
        records.append(KafkaRecord(key % 2, len(records), data, value, {"cdc-id": identity}, 10))

    def change(self, table: str, before: Any, after: Any, *, label: str | None = None, number: int = 0) -> None:
        """Run a transaction with one change; ``number`` makes it one that was prepared with XA before others."""
        self.number += 1
        last, self.number = self.number, number or self.number
        op = "u" if before and after else "c" if after else "d"
        self._put(table, 1, 0, (after or before)["id"], op, before, after)
        if op == "d":
            self._put(table, 1, 1, before["id"], "tombstone", None, None)
        note = {"id": len(self.rows["audit"]) + 1, "tbl": label or table, "op": op, "mark": None}
        self._put("audit", 2, 0, note["id"], "c", None, note)
        self.rows["audit"].append(tuple(note.values()))
        self.number = last

    def verdict(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the differences that the verifier finds."""

        @contextmanager
        def connection() -> Any:
            yield SimpleNamespace(cursor=lambda: Cursor(self.binlog))

        stored = [StoredTable(lay, ("",) * len(lay.columns)) for lay in self.layouts.values()]
        monkeypatch.setattr(soak, "stored_tables", lambda conn, database: stored)
        monkeypatch.setattr(soak, "read_rows", lambda conn, database, t: iter(self.rows[t.layout.name]))
        monkeypatch.setattr(Topics, "names", lambda _: set(self.topics))
        monkeypatch.setattr(Topics, "read", lambda _, table: iter(self.topics[table]))
        monkeypatch.setattr(Topics, "statements", lambda _: self.ddl)
        monkeypatch.setattr(soak, "closing", lambda conn: conn)
        return verify(connection, Topics("", "p", "d"), self.journal, AFTER, "binlog.000002").differences


@pytest.fixture
def world() -> World:
    """A table with changes of some keys, one inserted and deleted again, and the renamed table under two names."""
    world = World()
    world.table("a")
    world.table("r1")
    world.journal.names = ["r0", "r1"]
    for key in (1, 2, 3):
        world.change("a", None, {"id": key, "v": "new"})
    world.change("a", {"id": 1, "v": "new"}, {"id": 1, "v": "old"})
    world.change("a", {"id": 2, "v": "new"}, None)
    world.rows["a"] = [(1, "old"), (3, "new")]
    world.change("r0", None, {"id": 7, "v": "x"}, label="r")
    world.change("r1", {"id": 7, "v": "x"}, {"id": 7, "v": "y"}, label="r")
    world.rows["r1"] = [(7, "y")]
    return world


def test_true_topics_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.verdict(monkeypatch) == []


def take(records: list[KafkaRecord], i: int) -> None:
    del records[i]


def double(records: list[KafkaRecord], i: int) -> None:
    records.insert(i, records[i])


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("topic", ["a", "r0", "r1", "audit"])
@pytest.mark.parametrize("damage", [take, double])
def test_every_event_taken_away_or_doubled_is_reported(
    topic: str, damage: Callable[[list[KafkaRecord], int], None], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(len(world.topics[topic])):
        before = list(world.topics[topic])
        damage(world.topics[topic], i)
        assert world.verdict(monkeypatch), (topic, i)
        world.topics[topic] = before


def test_two_events_of_a_partition_swapped_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    records = world.topics["a"]
    odd = [i for i, r in enumerate(records) if r.partition == 1]
    for i, j in pairwise(odd):
        records[i], records[j] = records[j], records[i]
        assert world.verdict(monkeypatch), (i, j)
        records[i], records[j] = records[j], records[i]
    assert world.verdict(monkeypatch) == []


def test_an_insert_and_a_delete_lost_together_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No comparison of rows finds this: the triggers' notes do."""
    world.topics["a"] = [r for r in world.topics["a"] if b'"id":2' not in (r.key or b"")]
    assert any("0 events of op c in a, its triggers noted 1" in line for line in world.verdict(monkeypatch))


def test_rows_of_a_table_that_is_gone_may_not_come_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topics["q5"] = list(world.topics["a"])
    assert any("twice" in line and line.startswith("q5") for line in world.verdict(monkeypatch))


@pytest.mark.parametrize(
    ("end", "fine"),
    [("XA PREPARE X'61',X'',1", True), ("XA COMMIT X'61',X'',1 ONE PHASE", False), (None, False)],
    ids=["prepared", "one phase", "not xa"],
)
def test_rows_of_prepared_transactions_may_come_after_later_ones_and_others_may_not(
    end: str | None, fine: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.change("a", None, {"id": 5, "v": "b"}, number=30)
    world.change("a", None, {"id": 9, "v": "a"}, number=20)
    world.rows["a"] += [(5, "b"), (9, "a")]
    world.binlog.append(("binlog.000002", 4, "Gtid", 1, 99, f"SET @@SESSION.GTID_NEXT= '{GTID}:20'"))
    if end is not None:
        world.binlog.append(("binlog.000002", 99, "XA_prepare", 1, 120, end))
    found = world.verdict(monkeypatch)
    assert found == [] if fine else any("order" in line for line in found)


def test_columns_added_renamed_and_dropped_are_followed() -> None:
    layout = Layout("a", ("id", "v", "x2"), ("id",), (None, None, 7))
    known = final_layout(layout, "a", {("a", "x1"): "x2", ("b", "x1"): "x9"})
    world = World()
    world.topics["a"] = []
    world._put("a", 1, 0, 1, "c", None, {"id": 1, "v": "before"})
    world.number += 1
    world._put("a", 1, 0, 1, "u", {"id": 1, "v": "before", "x1": 7}, {"id": 1, "v": "b", "x1": 8, "x3": 1})
    world.number += 1
    world._put("a", 1, 0, 1, "u", {"id": 1, "v": "b", "x2": 8}, {"id": 1, "v": "c", "x2": 9})
    FIELDS["x3"] = "int32"
    reader = EventReader(known)
    check = TableCheck(known).feed(reader.event(r) for r in world.topics["a"])
    assert check.finish([(1, "c", 9)]).ok
    assert not TableCheck(known).feed(reader.event(r) for r in world.topics["a"][:2]).finish([(1, "b", 7)]).ok


def test_a_truncate_takes_all_rows_away() -> None:
    world, layout = World(), Layout("w", ("id", "v"), ("id",), (None, None))
    world._put("w", 1, 0, 2, "c", None, {"id": 2, "v": "x"})
    value = json.loads(world.topics["w"][0].value or b"")
    value["payload"] |= {"op": "t", "before": None, "after": None}
    truncate = KafkaRecord(0, 1, None, json.dumps(value).encode(), {})
    reader = EventReader(layout)
    events = [reader.event(r) for r in (world.topics["w"][0], truncate)]
    assert TableCheck(layout).feed(events).finish([]).ok
    assert not TableCheck(layout).feed(events[:1]).finish([]).ok
    with pytest.raises(RecordError, match="cdc-id"):
        reader.event(KafkaRecord(0, 1, None, world.topics["w"][0].value, {}))


def test_transactions_before_the_end_of_the_snapshot_and_tables_without_triggers_are_not_counted() -> None:
    layout = Layout("a", ("id", "v"), ("id",), (None, None))
    world = World()
    for number in (9, 11):
        world.number = number
        world._put("a", 1, 0, number, "c", None, {"id": number, "v": ""})
    events = [EventReader(layout).event(r) for r in world.topics["a"]]
    check, without = AuditCheck(AFTER), AuditCheck(AFTER, {"a"})
    for event in events:
        check.change("a", event)
        without.change("a", event)
    counted, wrong = check.finish()
    assert counted == 1 and len(wrong) == 1 and ":11:" in wrong[0]
    assert without.finish() == (0, [])


def test_each_schema_change_comes_once() -> None:
    for times, late, sure, said in [
        (1, True, True, None),
        (2, False, True, "2 times"),
        (0, True, True, "missing"),
        (0, False, True, None),
        (0, True, False, None),
        (2, True, False, "2 times"),
    ]:
        with case(times, late, sure, said):
            journal = Journal([DdlStatement("add column", "ADD COLUMN x1 ", sure, late)])
            found = check_schema_changes(
                ["ALTER TABLE a ADD COLUMN x1 INT"] * times + ["ALTER TABLE a ADD COLUMN x12 INT"], journal
            )
            assert (said is None and found == []) or (said is not None and said in found[0])


def test_a_table_made_from_a_query_comes_once_and_may_be_dropped() -> None:
    journal = Journal([DdlStatement("create table select", "`q1`", True, True)])
    assert check_schema_changes(["CREATE TABLE `q1` (id INT)", "DROP TABLE `q1`"], journal) == []
    assert check_schema_changes(["CREATE TABLE `q1` (id INT)"] * 2, journal)
