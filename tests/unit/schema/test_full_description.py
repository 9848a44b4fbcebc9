"""A full description that a drain writes says the same as all records before it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import ScanValidity
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema import history, history_owner
from airflow_provider_mysql_cdc.cdc.schema.full_description import (
    complete_descriptions,
    describe_all,
    description_size,
    replays_to,
    starts_complete_description,
)
from airflow_provider_mysql_cdc.cdc.schema.history import covers_offset
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import replay
from airflow_provider_mysql_cdc.cdc.sink import topic_reader
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

CFG = config()


def place(pos: int, server: str = "s1") -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos, None, server)


def record(pos: int, ddl: str, epoch: int = 1, **more: Any) -> HistoryRecord:
    return HistoryRecord("p", place(pos), epoch, 0, "d", ddl, DdlContext(default_db="d"), **more)


def in_e(found: HistoryRecord) -> HistoryRecord:
    return replace(found, db="e", context=DdlContext(default_db="e"))


STATEMENTS = [
    record(10, "CREATE DATABASE d CHARSET latin1"),
    record(20, "CREATE DATABASE e CHARSET utf8"),
    record(
        30, "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9) COMMENT 'ü', e ENUM('x','y'), INDEX (a), UNIQUE (a, id))"
    ),
    record(40, "CREATE TABLE e.u (id BIGINT UNSIGNED, p POINT SRID 4326, g INT AS (id + 1)) COMMENT 'x'"),
    record(50, "CREATE TABLE gone (id INT)"),
    record(60, "ALTER TABLE t ADD b DECIMAL(7,2) DEFAULT 1.5, ADD INDEX (b)"),
    record(70, "RENAME TABLE gone TO moved"),
    record(80, "CREATE TABLE e.v LIKE t"),
]


def state_of(records: list[HistoryRecord], pos: int = 1000, epoch: int = 99) -> SchemaState:
    return replay(records, until=place(pos), epoch=epoch, captures=CFG.needs_schema)


def content(state: SchemaState) -> Any:
    indexes = {table: found for table, found in state.non_unique_indexes.items() if found}
    return list(state.tables.items()), list(state.unparsed.items()), dict(state.database_defaults), indexes


def description(records: list[HistoryRecord], pos: int, epoch: int) -> list[HistoryRecord]:
    made = describe_all(CFG, state_of(records, pos), place(pos), epoch)
    return [HistoryRecord.from_bytes(each.to_bytes()) for each in made]


@pytest.mark.req("SCH-03")
def test_a_description_replays_to_the_structures_that_it_describes() -> None:
    state = state_of(STATEMENTS)
    assert len(state.tables) == 4
    state = state.with_database("f", DefaultCharset("utf8mb3", "utf8mb3_general_ci", "utf8", True))
    state = state.with_server_defaults(DefaultCharset("latin1", "latin1_bin"))
    described = describe_all(CFG, state, place(100), 2)
    assert [each.to_bytes() for each in described] == [
        HistoryRecord.from_bytes(each.to_bytes()).to_bytes() for each in described
    ]
    assert len(described) == description_size(state) == described[0].part.records  # type: ignore[union-attr]
    read_back = replay(described, until=place(100), epoch=3)
    assert content(read_back) == content(state)
    assert read_back.server_defaults == state.server_defaults
    assert replays_to(CFG, [each.to_bytes() for each in described], state, place(100))
    other = state.without_tables(TableId("d", "t"))
    assert not replays_to(CFG, [each.to_bytes() for each in described], other, place(100))


def test_the_statement_of_a_table_that_is_not_captured_stays_unread() -> None:
    cfg = config(table__include__list="d.t")
    created = {"type": "CREATE", "id": '"e"."w"', "table": None}
    snapshot = [
        record(5, "SET character_set_server=latin1, collation_server=latin1_swedish_ci", snapshot=True),
        in_e(record(5, "CREATE TABLE w (a INT)", snapshot=True, table_changes=(created,))),
        replace(record(5, "CREATE TABLE t (a INT)", snapshot=True)),
    ]
    state = replay(snapshot, until=place(9), epoch=2, captures=cfg.needs_schema)
    assert list(state.unparsed) == [TableId("e", "w")]
    described = describe_all(cfg, state, place(9), 2)
    assert replays_to(cfg, [each.to_bytes() for each in described], state, place(9))
    later = [*snapshot, *described, in_e(record(20, "ALTER TABLE w ADD b INT", 3))]
    widened = replay(later, until=place(30), epoch=4, captures=lambda _: True)
    assert [c.name for c in widened.tables[TableId("e", "w")].columns] == ["a", "b"]


def test_statements_after_a_description_continue_it() -> None:
    whole = [*STATEMENTS, record(120, "ALTER TABLE t DROP INDEX a, ADD c INT", 3), record(130, "DROP TABLE moved", 3)]
    cut = [*description(STATEMENTS, 100, 2), *whole[len(STATEMENTS) :]]
    assert content(state_of(cut)) == content(state_of(whole))
    assert content(state_of([*STATEMENTS, *cut])) == content(state_of(whole))
    before = [*STATEMENTS, *cut]
    assert content(state_of(before, 65)) == content(state_of(STATEMENTS, 65))


def any_statements(rng: random.Random) -> dict[int, str]:
    """Return statements of a binlog by position; each depends on those before it."""
    statements, columns = {1: "CREATE TABLE t (id INT PRIMARY KEY)"}, ["id"]
    for pos in range(10, 300, 10):
        kind, at = rng.choice(("add", "drop", "rename", "index")), rng.randrange(len(columns))
        if kind == "add" or not at:
            columns.append(f"c{pos}")
            statements[pos] = f"ALTER TABLE t ADD c{pos} INT"
        elif kind == "drop":
            statements[pos] = f"ALTER TABLE t DROP {columns.pop(at)}"
        elif kind == "rename":
            statements[pos] = f"ALTER TABLE t RENAME COLUMN {columns[at]} TO r{pos}"
            columns[at] = f"r{pos}"
        else:
            statements[pos] = f"ALTER TABLE t ADD INDEX ({columns[at]})"
    return statements


def any_history(rng: random.Random) -> list[tuple[list[HistoryRecord], int]]:
    """Return the batches of a stream with fenced attempts and resets to earlier positions: their records and ends."""
    statements, batches, ends, position, epoch = any_statements(rng), [], [0], 0, 1
    while position < 300 and epoch < 16:
        epoch += 1
        if rng.random() < 0.15:
            # A move forward writes a description of its own.
            position = rng.choice([end for end in ends if end <= position])
            continue
        end = min(300, position + rng.randrange(0, 60))
        reached = [rng.randrange(position, end + 1), end]  # a first attempt that is fenced, and one that is not
        found = [record(pos, ddl, epoch) for to in reached for pos, ddl in statements.items() if position < pos <= to]
        batches.append((found, end))
        position = end
        ends.append(end)
    return batches


@for_each("seed", range(40))
def test_a_history_with_descriptions_gives_the_same_structures_as_one_without(seed: int) -> None:
    rng = random.Random(seed)
    plain: list[HistoryRecord] = []
    described: list[HistoryRecord] = []
    batches = any_history(rng)
    for epoch, (written, end) in enumerate(batches, 2):
        plain += (batch := [replace(each, epoch=epoch) for each in written])
        described += batch
        if rng.random() < 0.5:
            described += describe_all(CFG, state_of(described, end, epoch + 1), place(end), epoch)
    values = [each.to_bytes() for each in described]
    reached = [end for _, end in batches if end <= batches[-1][1]]
    for end in rng.sample(reached, min(3, len(reached))):
        expected = content(state_of(plain, end))
        assert content(state_of(described, end)) == expected
        starts = [n for n in range(len(values)) if starts_complete_description(values[n:], [place(end)], "p")]
        tail = map(HistoryRecord.from_bytes, values[starts[-1] if starts else 0 :])
        assert content(state_of(list(complete_descriptions(tail)), end)) == expected


def test_what_is_set_between_two_batches_after_a_description_counts() -> None:
    """A signal has the position of the last batch's end and its epoch, as the description has."""
    described = description(STATEMENTS, 100, 2)
    table = state_of(STATEMENTS).tables[TableId("d", "t")]
    corrected = replace(table, columns=table.columns[:2], primary_key=("id",), unique_keys=())
    correction = replace(record(100, "", 2), structure=corrected)
    later = state_of([*STATEMENTS, *described, correction], 100)
    assert len(later.tables[TableId("d", "t")].columns) == 2
    # A statement at this position is part of the description, whichever batch has recorded it.
    again = record(100, "ALTER TABLE t ADD z INT", 3)
    assert content(state_of([*STATEMENTS, *described, again], 100)) == content(state_of(STATEMENTS, 100))


def test_a_statement_of_a_fenced_writer_after_the_description_does_not_count() -> None:
    described = description(STATEMENTS, 100, 5)
    fenced = record(110, "ALTER TABLE t ADD z INT", 4)
    assert content(state_of([*described, fenced])) == content(state_of(STATEMENTS))


@pytest.mark.parametrize("missing", ["first", "middle", "last"])
def test_a_description_with_a_missing_record_does_not_count(missing: str) -> None:
    described = description(STATEMENTS, 100, 2)
    at = {"first": 0, "middle": 3, "last": -1}[missing]
    if missing != "first":  # nor does one in its place that is of another description of the batch
        other = [*described[:at], replace(described[at], position=place(90))]
        assert list(complete_descriptions([*STATEMENTS, *other])) == STATEMENTS
    del described[at]
    after = record(120, "ALTER TABLE t ADD z INT", 3)
    damaged = [*STATEMENTS, *described, after]
    assert list(complete_descriptions(damaged)) == [*STATEMENTS, after]
    for found in (described, [*described, after]):
        values = [each.to_bytes() for each in found]
        assert not any(starts_complete_description(values[n:], [place(100)], "p") for n in range(len(values)))
    whole = [*STATEMENTS, *description(STATEMENTS, 100, 2), after]
    assert list(complete_descriptions(whole)) == whole


def test_a_description_is_no_start_for_an_earlier_offset_another_server_or_another_stream() -> None:
    values = [each.to_bytes() for each in description(STATEMENTS, 100, 2)]
    assert starts_complete_description(values, [place(100), place(200)], "p")
    assert not starts_complete_description(values, [place(200), place(99)], "p")
    assert not starts_complete_description(values, [place(200, "s2")], "p")
    assert not starts_complete_description(values, [place(200)], "q")
    assert not starts_complete_description([b'{"ddl":"SET ","snapshot":true'], [place(200)], "p")


def test_offsets_before_a_description_are_still_covered() -> None:
    first = [record(5, "SET character_set_server=latin1, collation_server=latin1_swedish_ci", snapshot=True)]
    described = description(STATEMENTS, 100, 2)
    log = [*first, *STATEMENTS, *described]
    assert covers_offset(log, place(50))
    assert covers_offset(log, place(150))
    assert not covers_offset(log, place(4))
    skipped = replace(first[0], position=place(200), epoch=3)
    assert not covers_offset([*log, skipped], place(150))
    assert not covers_offset(
        [*log, skipped, *(replace(each, position=place(300), epoch=4) for each in described)], place(150)
    )


def test_scans_continue_after_a_description() -> None:
    scan: Any = SimpleNamespace(
        number=1, state="running", initial=False, format_digest="", start_offset=place(50), table=TableId("d", "t")
    )
    validity = ScanValidity(place(500), "", [scan])
    for each in description(STATEMENTS, 100, 2):
        validity.check_record(each)
    assert validity.invalid_reasons == {}
    validity.check_record(replace(STATEMENTS[-1], position=place(110), ddl="ALTER TABLE t DROP a"))
    assert list(validity.invalid_reasons) == [1]


# -- reading the topic ----------------------------------------------------------------------------------------------


class Topic:
    """A history topic of which it is noted which offsets were read."""

    def __init__(self, records: list[HistoryRecord], monkeypatch: pytest.MonkeyPatch, first: int = 0) -> None:
        self.values, self.first, self.read = [each.to_bytes() for each in records], first, 0
        for module in (topic_reader, history_owner):
            monkeypatch.setattr(module, "read_between", self.between)
        monkeypatch.setattr(topic_reader, "end_offsets", lambda *_, **__: {0: (self.first, len(self.values))})
        monkeypatch.setattr(history, "first_offsets", lambda *_: {0: self.first})
        monkeypatch.setattr(history, "make_admin", lambda _: None)
        monkeypatch.setattr(history, "require_settings", lambda *_, **__: None)
        monkeypatch.setattr(history, "existing_topics", lambda _, names: dict.fromkeys(names, TopicInfo(1, "id", 1)))
        monkeypatch.setattr(history, "read_topic_committed", lambda *_, since, **__: self.between(None, "", since))

    def between(self, settings: Any, name: str, bounds: Any, **_: Any) -> Iterator[TopicRecord]:
        low, high = bounds[0] if isinstance(bounds[0], tuple) else (max(bounds[0], self.first), len(self.values))
        for offset in range(low, high):
            self.read += 1
            yield TopicRecord(0, offset, None, self.values[offset])


def many(count: int, epoch: int = 1, start: int = 1000) -> list[HistoryRecord]:
    return [record(start + n, f"ALTER TABLE t COMMENT '{n}'", epoch) for n in range(count)]


def test_a_start_reads_and_applies_nothing_before_the_last_description(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [record(900, "CREATE TABLE t (id INT PRIMARY KEY)"), *many(5_000)]
    short = state_of(before[:5])
    described = describe_all(CFG, short, place(30_000), 2)
    topic = Topic([*before, *described, *many(3, 3, 40_000)], monkeypatch)
    applied: list[HistoryRecord] = []
    found = history.load_schema_state(CFG, until=place(50_000), epoch=4, on_record=applied.append)
    assert found.tables[TableId("d", "t")].comment == "2"
    assert len(applied) == len(described) + 3
    assert topic.read <= topic_reader.FIRST_PART
    # A scan that began before it needs the statements since then.
    applied.clear()
    history.load_schema_state(CFG, until=place(50_000), epoch=4, on_record=applied.append, since=[place(29_000)])
    assert len(applied) == len(topic.values)


def test_a_description_further_back_is_found_and_without_one_all_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = [record(900, "CREATE TABLE t (id INT PRIMARY KEY)")]
    described = describe_all(CFG, state_of(begin), place(950), 2)
    for log, read in (([*begin, *described, *many(2000, 3)], 2003), ([*begin, *many(2000, 3)], 2001)):
        topic = Topic(log, monkeypatch)
        found = history.load_schema_state(CFG, until=place(50_000), epoch=4)
        assert content(found) == content(state_of(log, 50_000))
        assert topic.read == read
    monkeypatch.setattr(topic_reader, "MAX_KEPT_BYTES", 1)
    assert content(history.load_schema_state(CFG, until=place(50_000), epoch=4)) == content(found)


def test_a_topic_may_begin_with_a_description_but_offsets_before_it_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = description(STATEMENTS, 100, 2)
    log = [*STATEMENTS, *described, record(120, "ALTER TABLE t ADD z INT", 3)]
    topic = Topic(log, monkeypatch, len(STATEMENTS))
    assert content(history.load_schema_state(CFG, until=place(150), epoch=4)) == content(state_of(log, 150))
    assert not covers_offset(history.read_history(CFG), place(50))
    assert covers_offset(history.read_history(CFG), place(110))
    for offset in (place(50), place(150, "s2")):
        with pytest.raises(SchemaError, match="does not have the structures at this position any more"):
            history.load_schema_state(CFG, until=offset, epoch=4)
    assert not any(each.continues_history for each in history.read_history(CFG))
    topic.first += 1
    with pytest.raises(SchemaError, match="first records of the schema history were deleted"):
        history.load_schema_state(CFG, until=place(150), epoch=4)


def test_a_history_whose_end_is_hidden_is_not_taken_for_a_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic([*description(STATEMENTS, 100, 2)], monkeypatch)

    def hidden(*_: Any, **__: Any) -> Iterator[TopicRecord]:
        yield TopicRecord(0, 0, None, topic.values[0])
        raise HiddenByTransaction("partition 0: 1 of 9")

    monkeypatch.setattr(topic_reader, "read_between", hidden)
    with pytest.raises(SinkConnectionError, match="partition 0: 1 of 9"):
        history.load_schema_state(CFG, until=place(150), epoch=4)
