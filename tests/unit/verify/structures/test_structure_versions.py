"""The structures that a table has had, and events that were written under them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.table_records import TICDC, TableRecords

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import Replay
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DECIMAL,
    UNKNOWN_STRUCTURE,
    UNTOLD,
    UNWRITTEN,
    EventRecord,
    UnreadableRecord,
    ValueForm,
    position_order,
    source_order,
    time_order,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.added_columns import UNKNOWN_FORM
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import (
    KnownViews,
    TableVersions,
    find_versions,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.written_structures import WrittenStructures

pytestmark = pytest.mark.quick

T = TableId("db", "t")
ONE, OTHER = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
CREATE = "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10,2), w INT)"
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}


def statement(pos: int, ddl: str, *, server: str = ONE, file: int = 1, snapshot: bool = False) -> HistoryRecord:
    position, context = BinlogOffset(f"b.{file:06}", pos, None, server), DdlContext(default_db="db")
    return HistoryRecord("s", position, 1, 0, "db", ddl, context, snapshot=snapshot)


def versions(
    *records: HistoryRecord, until: BinlogOffset | None = None, view: BinlogOffset | None = None
) -> TableVersions:
    found = find_versions(records, [T], Replay(until or BinlogOffset("b.000009", 9999, None, ONE), 2), view)[T]
    assert TableVersions.from_json(found.to_json()) == found
    return found


def begins(found: TableVersions) -> list[tuple[int, int]]:
    return [(version.position.pos, version.generation) for version in found.versions]


def test_each_structure_begins_behind_its_statement() -> None:
    found = versions(
        statement(100, "SET character_set_server=utf8mb4", snapshot=True),
        statement(100, CREATE, snapshot=True),
        statement(200, "ALTER TABLE t MODIFY v DECIMAL(10,4)"),
        statement(250, "ALTER TABLE t ADD INDEX (w)"),
        statement(300, "ALTER TABLE t DROP v"),
        statement(400, "ALTER TABLE t ADD v DECIMAL(10,4)"),
        statement(500, "ALTER TABLE t DROP v, ADD v DECIMAL(10,4) AFTER w"),
        statement(600, "ALTER TABLE t DROP v, ADD v DECIMAL(10,4) AFTER w"),
    )
    assert begins(found) == [(100, 0), (200, 0), (300, 1), (400, 2), (500, 3), (600, 4)]
    assert found.one_binlog


def test_a_statement_that_an_abandoned_attempt_has_recorded_counts_once() -> None:
    alter = statement(200, "ALTER TABLE t ADD x INT")
    found = versions(statement(100, CREATE), alter, statement(300, "ALTER TABLE t DROP x"), alter)
    assert begins(found) == [(100, 0), (200, 1), (300, 2)] and found.one_binlog


def test_positions_of_several_binlogs_are_not_compared() -> None:
    assert not versions(statement(200, CREATE), until=BinlogOffset("b.000009", 9999, None, OTHER)).one_binlog
    described = statement(300, CREATE, server=OTHER, snapshot=True)
    later = BinlogOffset("b.000009", 9999, None, OTHER)
    assert versions(described, until=later).one_binlog
    assert not versions(statement(200, CREATE), described, until=later).one_binlog, "the server that was left"
    begun_anew = statement(100, "ALTER TABLE t ADD x INT")
    assert not versions(statement(200, CREATE), begun_anew).one_binlog


def written(found: TableVersions, create: str = CREATE, properties: dict[str, str] = PLAIN) -> WrittenStructures:
    now = TableRecords(create, properties)
    return WrittenStructures(now.cfg, now.table, found)


def event(pos: int, file: str = "b.000001", **source: Any) -> EventRecord:
    row = {"id": 1, "v": "AJY=", "w": 1}
    return EventRecord("u", {"id": 1}, None, row, {"file": file, "pos": pos, **source})


MODIFIED = (statement(100, CREATE), statement(200, "ALTER TABLE t MODIFY v DECIMAL(10,4)"))
NEW = CREATE.replace("10,2", "10,4")


def test_an_event_has_the_forms_of_the_structure_at_its_place() -> None:
    structures = written(versions(*MODIFIED), NEW)
    scales = [structures.complete(event(pos)).forms["v"].scale for pos in (150, 199, 200, 300)]  # type: ignore[index]
    assert scales == [2, 2, 4, 4]
    assert [structures.is_older(source_order(event(pos).source)) for pos in (199, 200)] == [True, False]
    assert [structures.complete(event(pos)).structure for pos in (199, 200)] == [0, 1]
    again = written(versions(*MODIFIED, statement(300, "ALTER TABLE t DROP w, ADD w INT")), NEW)
    assert [again.has_other_columns(event(pos)) for pos in (150, 250, 350)] == [True, True, False]


def test_behind_a_failover_the_forms_of_changed_columns_are_not_known() -> None:
    until = BinlogOffset("b.000001", 9999, None, OTHER)
    structures = written(versions(*MODIFIED, until=until), NEW)
    forms = structures.complete(event(300)).forms
    scales = [] if forms is None else [form.scale for form in (forms["v"], *forms["v"].others)]
    assert forms is not None and scales == [4, 2] and forms["w"] == ValueForm("int32")
    assert structures.complete(event(300)).structure == UNKNOWN_STRUCTURE
    assert structures.is_older(source_order(event(300).source)) and not structures.has_other_columns(event(300))
    other = statement(300, "ALTER TABLE t DROP w")
    assert written(versions(*MODIFIED, other, until=until)).has_other_columns(event(1))


def test_forms_that_a_record_says_are_kept() -> None:
    structures = written(versions(*MODIFIED), NEW)
    own = {"v": ValueForm("bytes", DECIMAL, 3)}
    record = replace(event(150), forms=own)
    assert structures.complete(record).forms is own


def test_times_order_events_of_several_binlogs() -> None:
    old = {"file": "b.000050", "pos": 900, "ts_ms": 1_790_000_000_000}
    new = {"file": "b.000002", "pos": 100, "ts_ms": 1_790_000_005_000}
    assert source_order(old) > source_order(new) and time_order(old) < time_order(new)
    later = new | {"pos": 200}
    assert time_order(new) < time_order(later) < 1 << 64
    assert time_order({"file": "b.000002", "pos": 5}) == position_order(2, 5) and time_order({}) == 0


def test_a_description_at_an_earlier_place_says_that_the_stream_was_moved_back() -> None:
    first, again = statement(500, CREATE, snapshot=True), statement(200, CREATE, snapshot=True)
    here, there = (BinlogOffset("b.000001", 900, None, server) for server in (ONE, OTHER))
    views = [None, *(BinlogOffset("b.000001", pos, None, ONE) for pos in (200, 500))]
    assert [versions(first, again, until=here, view=view).moved_back for view in views] == [False, False, True]
    other = "CREATE TABLE o (id INT)"
    created = statement(500, other, snapshot=True), statement(200, other, snapshot=True), statement(600, CREATE)
    others = (first,), created
    assert not any(versions(*records, until=here, view=views[2]).moved_back for records in others)
    assert not versions(first, again, until=there, view=views[2]).moved_back


def test_a_view_that_the_ledger_would_know_is_of_other_hands_if_it_does_not() -> None:
    """It knows the last snapshot's and those of ad-hoc ones, and none of earlier snapshots."""
    known = KnownViews("b.000001", 500, 7_000, 7_000, ((9_001, 9_005),))
    found = replace(versions(statement(100, CREATE)), views=known)
    assert TableVersions.from_json(found.to_json()) == found
    views = found.views

    def told(pos: int, ts_ms: Any, order: Any = source_order) -> tuple[bool, bool]:
        assert views is not None
        source = {"file": "b.000001", "pos": pos, "ts_ms": ts_ms}
        return views.has(source), views.is_later(source, order)

    assert [told(500, 7_000), told(800, 9_003)] == [(True, True)] * 2
    for order in (source_order, time_order):
        earlier = [told(400, 6_000, order), told(500, 6_000, order), told(500, 0, order), told(500, None, order)]
        assert earlier == [(False, False)] * 4, order
        assert [told(500, 8_000, order), told(700, 9_006, order)] == [(False, True)] * 2, order


def test_a_row_that_no_first_view_has_shown_may_have_been_in_the_topic() -> None:
    first = [statement(100, "SET character_set_server=utf8mb4", snapshot=True), statement(100, CREATE, snapshot=True)]
    again = [replace(record, epoch=3) for record in first]
    once, twice = versions(*first), versions(*first, *again)
    reads = [replace(event(pos), op=op) for pos, op in ((100, "r"), (100, "c"), (150, "r"))]
    assert [written(once).reads_again(each) for each in reads] == [False, False, True]
    assert [written(twice).reads_again(each) for each in reads] == [True, False, True]
    ad_hoc = replace(once, views=KnownViews("b.000001", 100, 1, 1, ((5, 5),)))
    of_ad_hoc = replace(reads[0], source=reads[0].source | {"ts_ms": 5})
    assert [written(ad_hoc).reads_again(each) for each in (of_ad_hoc, reads[0])] == [True, False]
    until = BinlogOffset("b.000001", 9999, None, OTHER)
    assert written(versions(*first, until=until)).reads_again(reads[0])


def test_an_event_has_the_columns_and_the_key_of_a_structure_that_its_table_had() -> None:
    found = versions(
        statement(100, CREATE.replace("PRIMARY KEY", "NOT NULL").replace("w INT", "w INT, old INT"), snapshot=True),
        statement(200, "ALTER TABLE t ADD PRIMARY KEY (id)"),
        statement(300, "ALTER TABLE t DROP old"),
    )
    of, other = written(found), {"id": 1, "v": "AJY=", "w": 1, "other": 2}
    former = {"id": 1, "old": 2}
    of.require_own(replace(event(250), after=former, before=former), has_key=True)
    of.require_own(replace(event(150), key=None), has_key=True)
    of.require_own(replace(event(350), key=None), has_key=False)
    for wrong in (
        replace(event(350), key=None),
        replace(event(250), key=None),
        replace(event(350), after=other),
        replace(event(350), before=other, after=None, op="d"),
    ):
        with pytest.raises(UnreadableRecord):
            of.require_own(wrong, has_key=True)
    of.require_own(replace(event(50), key=None, after=other), has_key=True)
    of.require_own(replace(event(350), op="", after=None, key=None), has_key=True)


def test_a_former_key_is_known_by_its_fields_up_to_where_the_key_was_changed() -> None:
    found = versions(
        statement(100, CREATE, snapshot=True),
        statement(200, "ALTER TABLE t DROP PRIMARY KEY, ADD uid INT NOT NULL PRIMARY KEY"),
        statement(300, "ALTER TABLE t DROP w"),
    )
    of = written(found, "CREATE TABLE t (id INT NOT NULL, v DECIMAL(10,2), uid INT NOT NULL PRIMARY KEY)")
    assert of.key_begin == position_order(1, 200)
    events = [replace(event(150), key=key) for key in ({"id": 1}, {"uid": 1}, {"other": 1}, None)]
    assert [of.has_former_key(each) for each in events] == [True, False, False, False]
    same = written(versions(statement(100, CREATE, snapshot=True)))
    assert not any(same.has_former_key(each) for each in (*events, event(150)))


def lacking(of: WrittenStructures, row: dict[str, Any], pos: int = 150) -> set[str]:
    forms = of.complete(replace(event(pos), after=row)).forms or {}
    return {name for name, form in forms.items() if form == UNWRITTEN}


def test_a_column_that_a_record_lacks_although_its_table_had_it_is_unwritten() -> None:
    """Only a statement excuses it: a column that was added later, or is not configured any more."""
    wider, row = CREATE.replace("w INT", "w INT, x INT"), {"id": 1, "v": "AJY=", "w": 1}
    added = (statement(100, CREATE), statement(200, "ALTER TABLE t ADD x INT"))
    until = BinlogOffset("b.000001", 9999, None, OTHER)
    for properties in (PLAIN, {}):
        assert lacking(written(versions(statement(100, CREATE)), CREATE, properties), {"id": 1, "w": 1}) == {"v"}
        of = written(versions(*added), wider, properties)
        assert [lacking(of, row), lacking(of, row, 250), lacking(of, {"id": 1, "v": "AJY="})] == [set(), {"x"}, {"w"}]
        behind_failover = written(versions(*added, until=until), wider, properties)
        assert lacking(behind_failover, row, 250) == set() and lacking(behind_failover, {"id": 1}) == {"v", "w", "x"}
        excluded = properties | {"column.exclude.list": "shop.t.x"}
        assert lacking(written(versions(*added), wider, excluded), row, 250) == set()


def test_without_places_a_record_has_the_columns_of_one_of_the_structures() -> None:
    found = versions(statement(100, CREATE), statement(200, "ALTER TABLE t ADD x INT")).without_places(7)
    assert TableVersions.from_json(found.to_json()) == found and found.view_ts == 7
    of = written(found, CREATE.replace("w INT", "w INT, x INT"), TICDC)
    assert lacking(of, {"id": 1, "v": "1", "w": 1}) == set() and lacking(of, {"id": 1}) == {"v", "w", "x"}
    with pytest.raises(UnreadableRecord):
        of.require_own(replace(event(1), after={"id": 1, "other": 2}), has_key=True)
    bare = written(found, CREATE.replace(" PRIMARY KEY", ""), TICDC)
    told = [bare.changes_by_key(replace(event(1), key=key)) for key in ({"id": 1}, None)]
    assert told == [True, False] and not written(versions(statement(100, CREATE))).changes_by_key(event(1))


LATER = "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10,2), x INT, y INT DEFAULT 5, z INT NOT NULL)"
ADDED = "ALTER TABLE t CHANGE W x INT, ADD y INT DEFAULT 5, ADD z INT NOT NULL"
FILLED = {"id": 1, "v": "AJY=", "w": 1, "x": 1, "y": 5}
ROW = {"id": 1, "v": "AJY=", "w": 1}


@for_each(
    ("statements", "create", "filled"),
    [
        ([ADDED], LATER, FILLED),
        ([ADDED, "ALTER TABLE t ALTER y SET DEFAULT 6"], LATER.replace("5", "6"), FILLED),
        ([ADDED, "ALTER TABLE t MODIFY y DECIMAL(4,1)"], LATER.replace("y INT", "y DECIMAL(4,1)"), FILLED),
        (
            [ADDED, "ALTER TABLE t RENAME COLUMN y TO q, RENAME COLUMN x TO y"],
            "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10,2), y INT, q INT DEFAULT 5, z INT NOT NULL)",
            ROW | {"y": 1, "q": 5},
        ),
        ([ADDED, "ALTER TABLE t DROP y, DROP x", "ALTER TABLE t ADD x INT, ADD y INT DEFAULT 8"],
         "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10,2), z INT NOT NULL, x INT, y INT DEFAULT 8)",
         ROW | {"x": None, "y": 8}),
        (["ALTER TABLE t RENAME COLUMN w TO x, ADD w INT DEFAULT 7"],
         "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10,2), x INT, w INT DEFAULT 7)", ROW | {"x": 1}),
        (["ALTER TABLE t ADD a INT AUTO_INCREMENT UNIQUE, ADD d DATETIME DEFAULT NOW(), ADD g INT AS (w) STORED"],
         "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10,2), w INT, a INT AUTO_INCREMENT UNIQUE, "
         "d DATETIME DEFAULT NOW(), g INT AS (w) STORED)", ROW),
    ],
)  # fmt: skip
def test_an_event_gets_the_columns_that_statements_tell(
    statements: list[str], create: str, filled: dict[str, Any]
) -> None:
    records = [statement(100, CREATE), *(statement(200 + n, ddl) for n, ddl in enumerate(statements))]
    there = BinlogOffset("b.000001", 9999, None, OTHER)
    for properties in (PLAIN, SCHEMAS):
        for until in (None, there):  # of several servers' events the structure is not known
            structures = written(versions(*records, until=until), create, properties)
            found = structures.with_added_columns(structures.complete(event(150)))
            assert found.after == filled, (properties, until)
            assert "y" not in filled or found.forms is None or found.forms["y"] == ValueForm("int32"), found.forms
            if until is None:
                later = structures.complete(event(900))
                assert structures.with_added_columns(later).after == ROW, "it lacks columns that it should have"


def test_columns_that_are_told_and_cannot_be_compared_have_an_unknown_form() -> None:
    create = CREATE.replace("w INT", "w INT, d TIMESTAMP NULL DEFAULT '2020-01-01', m VARCHAR(9) DEFAULT 'a'")
    alter = "ALTER TABLE t ADD d TIMESTAMP NULL DEFAULT '2020-01-01', ADD m VARCHAR(9) DEFAULT 'a'"
    masked = PLAIN | {"column.mask.with.5.chars": r"(db|shop)\.t\.m"}
    structures = written(versions(statement(100, CREATE), statement(200, alter)), create, masked)
    found = structures.with_added_columns(structures.complete(event(150)))
    assert found.forms is not None and {found.forms[name] for name in "dm"} == {UNKNOWN_FORM}
    begun_anew = written(versions(statement(200, LATER)), LATER)
    found = begun_anew.with_added_columns(begun_anew.complete(event(150)))
    assert found.after == ROW | {"x": None, "y": None} and found.forms is not None
    assert {found.forms[name] for name in "xy"} == {UNTOLD}
    flat = written(TableVersions(()), LATER, TICDC)
    found = flat.with_added_columns(event(150))
    assert found.after == ROW | {"x": None, "y": ""} and found.forms is not None and found.forms["y"] == UNKNOWN_FORM


@for_each(
    ("statements", "columns", "told"),
    [
        (["CHANGE w x BIGINT"], "x BIGINT", {"x": 1}),
        (["CHANGE w W INT"], "W INT", {"W": 1}),
        (["ADD y INT DEFAULT 5", "MODIFY y BIGINT"], "w INT, y BIGINT", {"y": ""}),
        (["ADD y INT", "ALTER y SET DEFAULT 5"], "w INT, y INT DEFAULT 5", {"y": None}),
        (["RENAME COLUMN w TO x", "ADD y INT, RENAME COLUMN x TO z"], "z INT, y INT", {"z": 1, "y": None}),
    ],
)
def test_without_places_the_columns_of_an_event_say_which_statements_came_later(
    statements: list[str], columns: str, told: dict[str, Any]
) -> None:
    alters = [statement(200 + n, f"ALTER TABLE t {action}") for n, action in enumerate(statements)]
    found = versions(statement(100, CREATE), *alters).without_places(7)
    of = written(found, CREATE.replace("w INT", columns), TICDC)
    assert of.with_added_columns(of.complete(event(150))).after == ROW | told
    lacking_all = of.complete(replace(event(150), after={"id": 1}))
    assert of.with_added_columns(lacking_all).after == {"id": 1}, "no statement tells of them"
