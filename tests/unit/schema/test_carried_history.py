"""The schema history is copied to the place at which the stream goes on in another server's binlog."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import table_dict
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.full_description import complete_descriptions, describe_all
from airflow_provider_mysql_cdc.cdc.schema.history import covers_offset
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import carried_batch_records, carried_records, replay

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
