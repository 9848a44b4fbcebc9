"""The schema history is copied to the place at which the stream goes on in another server's binlog.

The checks of the history topic before it is read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import table_dict
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SinkError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema import history, history_owner
from airflow_provider_mysql_cdc.cdc.schema.full_description import complete_descriptions, describe_all
from airflow_provider_mysql_cdc.cdc.schema.history import covers_offset
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import (
    HistoryCache,
    TopicEnd,
    carried_batch_records,
    carried_records,
    replay,
)
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

T = TableId("d", "t")
PLACE = BinlogOffset("binlog.000001", 500, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", "s2", "12.ab")


def place(pos: int, server: str = "s1") -> BinlogOffset:
    return BinlogOffset("binlog.000007", pos, None, server)


def record(pos: int, ddl: str, epoch: int = 2, **more: bool) -> HistoryRecord:
    return HistoryRecord("p", place(pos), epoch, 0, "d", ddl, DdlContext(default_db="d"), **more)


DESCRIPTION = [
    record(100, "SET character_set_server=latin1, collation_server=latin1_swedish_ci", 1, snapshot=True),
    record(100, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3))", 1, snapshot=True),
]
STATEMENTS = [
    record(200, "ALTER TABLE t ADD a INT"),
    record(300, "ALTER TABLE t DROP a"),
    record(400, "ALTER TABLE t ADD a INT"),
    record(450, "ALTER TABLE t ADD INDEX v (v)"),
    record(600, "ALTER TABLE t ADD not_drained INT"),
]


def columns(state: SchemaState) -> list[str]:
    return [c.name for c in state.tables[T].columns]


@pytest.mark.req("STRM-05")
@pytest.mark.parametrize("described", [True, False])
def test_the_structures_at_the_new_place_are_those_at_the_offset(described: bool) -> None:
    """Equal statements, each at its own position, are each copied."""
    create = DESCRIPTION if described else [record(100, DESCRIPTION[1].ddl, 1)]
    log = [*create, *STATEMENTS]
    copies = carried_records(log, "p", place(500), PLACE, 3)
    log += [HistoryRecord.from_bytes(copy.to_bytes()) for copy in copies]
    before = replay(log, until=place(500), epoch=3)
    assert columns(before) == ["id", "v", "a"]
    assert replay(log, until=PLACE, epoch=3) == before
    # What the stream reads there comes after them, and the earlier server's later statements do not count.
    here = HistoryRecord(
        "p", replace(PLACE, pos=800, gtids=None), 3, 0, "d", "ALTER TABLE t DROP a", STATEMENTS[0].context
    )
    assert columns(replay([*log, here], until=replace(PLACE, pos=900), epoch=4)) == ["id", "v"]
    assert columns(replay([*log, here], until=PLACE, epoch=4)) == ["id", "v", "a"]


@pytest.mark.parametrize("reached", [450, 700])
def test_what_an_unfinished_batch_has_committed_stands_behind_its_start_elsewhere(reached: int) -> None:
    """Its writer may stand inside a transaction: statements of that are not behind the boundary before it."""
    log, new = [*DESCRIPTION, *STATEMENTS], replace(PLACE, pos=800, gtids=None)
    old = [ResumePosition(place(reached), 3), ResumePosition(new, 3)]
    copies = carried_batch_records(log, place(300), PLACE, *old, 2)
    assert [(copy.ddl, copy.position.pos) for copy in copies] == [
        (STATEMENTS[2].ddl, 800),
        (STATEMENTS[3].ddl, 800),
        (STATEMENTS[4].ddl, 801 if reached == 450 else 800),
    ]
    log += [*carried_records(log, "p", place(300), PLACE, 2), *copies]
    assert columns(replay(log, until=new, epoch=3)) == ["id", "v", "a"] + ["not_drained"] * (reached == 700)
    assert carried_batch_records(log, place(300), PLACE, *old, 3) == []


def test_a_copy_of_copies_holds_what_they_hold() -> None:
    log = [*DESCRIPTION, *STATEMENTS]
    log += carried_records(log, "p", place(500), PLACE, 3)
    back = place(2000)
    log += carried_records(log, "p", PLACE, back, 4)
    assert columns(replay(log, until=back, epoch=4)) == ["id", "v", "a"]
    assert len(log) == 7 + 6 + 6
    assert log[-1].carried_from == "s1/binlog.000007:450"


def test_a_structure_that_a_signal_set_is_part_of_the_description() -> None:
    told = apply_ddl(SchemaState(), "CREATE TABLE t (id INT PRIMARY KEY)", DdlContext(default_db="d")).state
    change = {"type": "ALTER", "id": '"d"."t"', "table": table_dict(told.tables[T], comments=True)}
    signaled = HistoryRecord("p", place(300), 2, 0, "d", "", table_changes=(change,), between=True)
    log = [*DESCRIPTION, STATEMENTS[0], signaled]
    copies = carried_records(log, "p", place(500), PLACE, 3)
    assert not any(copy.between for copy in copies)
    assert columns(replay(copies, until=PLACE, epoch=3)) == ["id"]


def test_the_copy_of_a_full_description_continues_nothing_and_is_whole() -> None:
    log = [*DESCRIPTION, *STATEMENTS[:2]]
    state = replay(log, until=place(300), epoch=3)
    log += [*describe_all(config(), state, place(300), 2), STATEMENTS[3]]
    copies = [HistoryRecord.from_bytes(r.to_bytes()) for r in carried_records(log, "p", place(500), PLACE, 3)]
    assert len(copies) == 3  # the server's character set, the table, and the statement after them
    assert not any(copy.continues_history for copy in copies)
    assert list(complete_descriptions(copies)) == copies
    assert replay(copies, until=PLACE, epoch=3) == replay(log, until=place(500), epoch=3)
    earlier = [HistoryRecord("p", place(1, "s2"), 1, 0, "", DESCRIPTION[0].ddl, snapshot=True)]
    assert covers_offset(earlier, place(50, "s2"))
    assert not covers_offset([*earlier, *log, *copies], replace(PLACE, pos=400))


OWN = HistoryRecord("p", BinlogOffset("binlog.000001", 4), 1, 1, "d", "CREATE TABLE t (a INT)").to_bytes()
LONG = 5000


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """Return records of a long topic by offset; all others are this stream's."""
    records: dict[int, bytes] = {}

    def read(settings: Any, name: str, bounds: Mapping[int, tuple[int, int]], **_: Any) -> Iterator[TopicRecord]:
        for first, end in bounds.values():
            yield from (TopicRecord(0, offset, None, records.get(offset, OWN)) for offset in range(first, end))

    monkeypatch.setattr(history_owner, "end_offsets", lambda *_, **__: {0: (10, LONG)})
    monkeypatch.setattr(history_owner, "read_between", read)
    monkeypatch.setattr(history, "make_admin", lambda _: None)
    monkeypatch.setattr(history, "require_settings", lambda *_, **__: None)
    monkeypatch.setattr(history, "first_offsets", lambda *_: {0: 0})
    monkeypatch.setattr(history, "existing_topics", lambda _, names: dict.fromkeys(names, TopicInfo(1, "id", 1)))
    return records


@pytest.mark.parametrize("offset", [10, 509, LONG - 500, LONG - 1])
def test_a_sample_reads_the_beginning_and_the_end(topic: dict[int, bytes], offset: int) -> None:
    history.require_own_history(config(), sample=True)
    topic[offset] = b"other"
    with pytest.raises(SchemaError, match=f"not this stream's.*offset {offset}"):
        history.require_own_history(config(), sample=True)


def test_what_a_transaction_hides_is_left_to_the_batch(
    topic: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any, **__: Any) -> Iterator[TopicRecord]:
        yield TopicRecord(0, 10, None, OWN)
        raise HiddenByTransaction

    monkeypatch.setattr(history_owner, "read_between", read)
    history.require_own_history(config(), sample=True)


@pytest.mark.req("SCH-06")
def test_a_history_without_its_first_records_is_named_before_a_snapshot(
    topic: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot would succeed, and the first drain after it could not read the topic."""
    monkeypatch.setattr(history, "first_offsets", lambda *_: {0: 3})
    for check in (history.require_history, partial(history.require_own_history, sample=True)):
        with pytest.raises(SchemaError, match="first records of the schema history were deleted"):
            check(config())
    history.require_own_history(config(snapshot__mode="recovery"), sample=True)
    topic[10] = b"other"
    with pytest.raises(SchemaError, match="not this stream's"):
        history.require_own_history(config(), sample=True)


@pytest.mark.req("SCH-05")
def test_several_partitions_are_refused_unless_the_topic_is_recreated(
    topic: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "existing_topics", lambda _, names: dict.fromkeys(names, TopicInfo(2, "id", 1)))
    for check in (history.require_history, partial(history.require_own_history, sample=True)):
        with pytest.raises(SchemaError, match="no single order"):
            check(config())
    history.require_own_history(config(snapshot__mode="recovery"), sample=True)


@pytest.mark.parametrize("prefix", ["", "p"])
def test_a_damaged_record_of_its_own_is_damaged_and_no_other_programs(prefix: str) -> None:
    damaged = OWN.replace(b'"server":"p"', f'"server":"{prefix}"'.encode()).replace(b'"pos":4', b'"pos":"four"')
    assert b"four" in damaged
    history_owner.require_own_record(config(), TopicRecord(0, 1, None, damaged))


@for_each(
    ("end", "offset", "found"),
    [
        (TopicEnd("id", 7), 7, TopicEnd("id", 7)),
        (TopicEnd("id", 7), 8, None),
        (TopicEnd("id", 7), 3, None),
        (TopicEnd("id", 7), None, None),
        (TopicEnd(None, 0), 0, None),
    ],
)
def test_a_history_that_ends_where_a_job_has_read_to_is_not_described_again(
    monkeypatch: pytest.MonkeyPatch, end: TopicEnd, offset: int | None, found: TopicEnd | None
) -> None:
    def last_offsets(*_: Any) -> dict[int, int]:
        if offset is None:
            raise SinkError("the topic does not exist")
        return {0: offset}

    monkeypatch.setattr(history, "make_admin", lambda _: None)
    monkeypatch.setattr(history, "last_offsets", last_offsets)
    assert history.unmoved_end(config(), HistoryCache(end)) == found
