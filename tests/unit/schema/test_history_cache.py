"""A job's later batches read only what came to the schema history since, and find what a whole reading finds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import HistoryCache, Replay, TopicEnd, replay


def place(pos: int, server: str = "s1") -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos, None, server)


def record(pos: int, ddl: str, epoch: int = 1, *, snapshot: bool = False, server: str = "s1") -> HistoryRecord:
    context = DdlContext(default_db="d")
    return HistoryRecord("p", place(pos, server), epoch, 0, "d", ddl, context, snapshot=snapshot)


def create(n: int, epoch: int = 1) -> HistoryRecord:
    return record(100 * n, f"CREATE TABLE t{n} (id INT PRIMARY KEY)", epoch)


def uncaptured(table: str) -> HistoryRecord:
    change = {"type": "CREATE", "id": f'"d"."{table}"'}
    return replace(record(50, f"CREATE TABLE `{table}` (id INT)", snapshot=True), table_changes=(change,))


class Topic:
    """A history of which it is noted which records were read."""

    def __init__(self, records: Sequence[HistoryRecord] = (), topic_id: str | None = "first") -> None:
        self.records, self.id, self.read = list(records), topic_id, 0

    def since(self, first: int) -> Iterator[HistoryRecord]:
        for found in self.records[first:]:
            self.read += 1
            yield found

    def at(self, kept: HistoryCache, pos: int, epoch: int = 2, server: str = "s1") -> SchemaState:
        self.read = 0
        end = TopicEnd(self.id, len(self.records))
        return kept.structures(end, self.since, Replay(place(pos, server), epoch))

    def whole(self, pos: int, epoch: int = 2, server: str = "s1") -> SchemaState:
        return replay(self.records, until=place(pos, server), epoch=epoch)


def same(one: SchemaState, other: SchemaState) -> bool:
    return dict(one.tables) == dict(other.tables) and dict(one.unparsed) == dict(other.unparsed)


def test_a_later_batch_reads_only_what_came_since() -> None:
    kept, topic = HistoryCache(), Topic(create(n) for n in range(1, 1001))
    assert len(topic.at(kept, 100_000).tables) == 1000
    assert topic.read == 1000
    assert len(topic.at(kept, 100_050, 3).tables) == 1000
    assert topic.read == 0
    topic.records += [create(1001, 3), create(1002, 3)]
    assert len(topic.at(kept, 100_200, 4).tables) == 1002
    assert topic.read == 2


def test_records_after_the_offset_wait_for_their_batch() -> None:
    kept, topic = HistoryCache(), Topic([create(1), create(3), create(2)])
    assert [t.table for t in topic.at(kept, 250).tables] == ["t1", "t2"]
    assert [t.table for t in topic.at(kept, 250, 3).tables] == ["t1", "t2"]
    assert [t.table for t in topic.at(kept, 300, 4).tables] == ["t1", "t3", "t2"]
    assert topic.read == 0


@for_each("change", ["made anew", "without an id", "shorter", "back", "an earlier epoch", "another server"])
def test_cached_records_are_read_again_where_they_may_be_invalid(change: str) -> None:
    kept, topic = HistoryCache(), Topic([create(1), create(2), create(3)])
    topic.id = None if change == "without an id" else topic.id
    assert len(topic.at(kept, 300, 5).tables) == 3
    pos, epoch, server = 300, 5, "s1"
    if change == "made anew":
        topic.id, topic.records = "second", [create(4), create(5), create(6)]
        pos = 600
    elif change == "shorter":
        topic.records = topic.records[:2]
    elif change == "back":
        pos = 200
    elif change == "an earlier epoch":
        epoch = 4
    elif change == "another server":
        server = "s2"
    assert same(topic.at(kept, pos, epoch, server), topic.whole(pos, epoch, server))
    assert topic.read == len(topic.records)


def test_after_a_statement_that_is_not_understood_all_is_read_again() -> None:
    kept, topic = HistoryCache(), Topic([create(1)])
    topic.at(kept, 100)
    topic.records.append(record(200, "ALTER TABLE t1 GIBBERISH"))
    with pytest.raises(DdlParseError):
        topic.at(kept, 200, 3)
    topic.records[1] = create(2)
    assert len(topic.at(kept, 200, 4).tables) == 2
    assert topic.read == 2


@pytest.mark.parametrize("waiting", [False, True], ids=["nothing waits", "a record waits"])
def test_unchanged_structures_are_the_same_object_behind_tables_that_are_not_captured(*, waiting: bool) -> None:
    """Writers live from batch to batch as long as they are; most servers have tables that a stream does not capture."""
    kept, topic = HistoryCache(), Topic([uncaptured("other"), create(1), uncaptured("last"), *[create(9)] * waiting])

    def at(pos: int, epoch: int) -> SchemaState:
        end, captures = TopicEnd(topic.id, len(topic.records)), lambda table: table.table.startswith("t")
        return kept.structures(end, topic.since, Replay(place(pos), epoch, captures=captures))

    first = at(100, 2)
    assert [*map(str, first.tables)] == ["d.t1"] and {str(t) for t in first.unparsed} == {"d.other", "d.last"}
    assert all(at(100 + n, 2 + n) is first for n in range(1, 4))
    topic.records.append(create(2, 5))
    changed = at(200, 6)
    assert {str(t) for t in changed.tables} == {"d.t1", "d.t2"}
    assert [str(t) for t in first.tables] == ["d.t1"] and at(210, 7).unparsed == first.unparsed


def any_record(rng: random.Random, epoch: int, near: int) -> HistoryRecord:
    pos, table = max(1, near + rng.randrange(-300, 300)), rng.randrange(4)
    kind = rng.randrange(8)
    server = "s2" if rng.random() < 0.03 else "s1"
    if kind == 0:
        return record(pos, "SET character_set_server=utf8mb4", epoch, snapshot=True, server=server)
    if kind == 1:
        return record(pos, f"CREATE TABLE t{table} (id INT)", epoch, snapshot=True, server=server)
    if kind == 2:
        return record(pos, f"DROP TABLE IF EXISTS t{table}", epoch, server=server)
    column = f"c{rng.randrange(3)}"
    ddl = rng.choice([f"CREATE TABLE IF NOT EXISTS t{table} (id INT)", f"CREATE TABLE t{table} ({column} INT)"])
    return record(pos, ddl, epoch, server=server)


@for_each("seed", range(60))
def test_it_finds_what_a_whole_reading_finds(seed: int) -> None:
    rng = random.Random(seed)
    kept, topic, pos, epoch = HistoryCache(), Topic(), 500, 2
    for _ in range(12):
        for _ in range(rng.randrange(5)):
            again = topic.records and rng.random() < 0.2
            topic.records.append(rng.choice(topic.records) if again else any_record(rng, epoch, pos))
        assert same(topic.at(kept, pos, epoch), topic.whole(pos, epoch)), seed
        pos, epoch = max(1, pos + rng.choice([0, 0, 100, 250, -100])), epoch + rng.choice([0, 1])
