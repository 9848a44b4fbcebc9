"""Which table stands behind a name, and what is left of a snapshot whose tables moved."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.resume import GoneChunk, Left, PlacedChunk, place
from airflow_provider_mysql_cdc.cdc.snapshot.table_life import START, TableLives, effects


def name(text: str) -> TableId:
    return TableId("d", text)


def left_after(*statements: str, tables: str = "a b") -> Left:
    lives = TableLives.of(map(name, tables.split()))
    for i, sql in enumerate(statements, 1):
        for effect in effects(sql, DdlContext("d")):
            lives.apply(effect, (1, i), sql)
    return place([SnapshotChunk(name("a"), 3)], lives, lambda t: not t.table.startswith("_"))


# Statements, the table to read, the name of its rows, and the names whose events the rows contain.
FOLLOWED = [
    ([], "a", "a", [("a", START, None)]),
    (["ALTER TABLE a ADD x INT"], "a", "a", [("a", START, None)]),
    (["RENAME TABLE a TO c"], "c", "c", [("a", START, (1, 1)), ("c", (1, 1), None)]),
    (["ALTER TABLE a RENAME TO c"], "c", "c", [("a", START, (1, 1)), ("c", (1, 1), None)]),
    (["RENAME TABLE a TO _x"], "_x", "a", [("a", START, (1, 1))]),
    (["RENAME TABLE a TO _x, b TO a, _x TO b"], "b", "b", [("a", START, (1, 1)), ("b", (1, 1), None)]),
    (["RENAME TABLE a TO c", "RENAME TABLE c TO a"], "a", "a",
     [("a", START, (1, 1)), ("c", (1, 1), (1, 2)), ("a", (1, 2), None)]),
    (["RENAME TABLE a TO _old, _new TO a"], "_old", "a", [("a", START, (1, 1))]),
    (["RENAME TABLE a TO _old, _new TO a", "DROP TABLE _old"], "a", "a", [("a", START, None)]),
    (["CREATE TABLE fresh (i INT)", "DROP TABLE a", "RENAME TABLE fresh TO a"], "a", "a", [("a", START, None)]),
    (["CREATE TABLE IF NOT EXISTS a (i INT)"], "a", "a", [("a", START, None)]),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "source", "table", "spans"), FOLLOWED)
def test_a_table_is_followed(
    statements: list[str], source: str, table: str, spans: list[tuple[str, object, object]]
) -> None:
    (found,) = left_after(*statements).placed
    assert (found.source, found.table) == (name(source), name(table))
    assert found.spans == tuple((name(n), since, until) for n, since, until in spans)
    assert PlacedChunk.from_json(found.to_json()) == found


GHOST = ["CREATE TABLE fresh (i INT)", "RENAME TABLE a TO old, fresh TO a"]


@pytest.mark.parametrize("swap", [GHOST, GHOST[1:]])
def test_a_table_that_takes_the_name_of_one_that_is_still_captured_is_read_as_well(swap: list[str]) -> None:
    """The topic of the name would end without the rows that are not read yet."""
    place = (1, len(swap))
    (found,) = left_after(*swap).placed
    assert found.reads == [(name("old"), name("old")), (name("a"), name("a"))]
    assert found.spans == ((name("a"), START, place), (name("old"), place, None), (name("a"), place, None))
    assert PlacedChunk.from_json(found.to_json()) == found
    (alone,) = left_after(*swap, "DROP TABLE old").placed
    assert alone.reads == [(name("a"), name("a"))]
    assert alone.spans == ((name("a"), START, None),)


def test_a_view_that_takes_the_name_has_no_rows_of_its_own() -> None:
    lives = TableLives.of([name("a")])
    for effect in effects("RENAME TABLE a TO base, v TO a", DdlContext("d")):
        lives.apply(effect, (1, 1))
    chunk = SnapshotChunk(name("a"), 3)
    (found,) = place([chunk], lives, lambda t: True, {name("base")}).placed
    assert found.reads == [(name("base"), name("base"))]
    for effect in effects("DROP TABLE base", DdlContext("d")):
        lives.apply(effect, (1, 2))
    assert place([chunk], lives, lambda t: True, set()).over == (
        GoneChunk(chunk, ((name("a"), START, (1, 1)), (name("base"), (1, 1), (1, 2)))),
    )


def test_a_table_created_under_the_name_is_told_by_its_events() -> None:
    (found,) = left_after("RENAME TABLE a TO old", "CREATE TABLE a (i INT)").placed
    assert found.reads == [(name("old"), name("old"))]


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE a"],
        ["DROP DATABASE d"],
        ["TRUNCATE a"],
        ["DROP TABLE a", "CREATE TABLE a (i INT)"],
        ["RENAME TABLE a TO c", "DROP TABLE c"],
        ["DROP TABLE a", "RENAME TABLE b TO a"],
        ["RENAME TABLE a TO c", "TRUNCATE c"],
    ],
)
def test_chunks_of_rows_that_are_gone_are_passed_over(statements: list[str]) -> None:
    found = left_after(*statements)
    assert not found.placed and len(found.over) == 1 and found.reasons


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE a EXCHANGE PARTITION p WITH TABLE z", "ALTER TABLE z EXCHANGE PARTITION p WITH TABLE a",
            "ALTER TABLE a DISCARD TABLESPACE", "ALTER TABLE a IMPORT PARTITION p TABLESPACE"],
)  # fmt: skip
def test_rows_that_moved_without_events_are_refused(sql: str) -> None:
    with pytest.raises(SchemaError, match="moved"):
        left_after(sql)
    assert left_after(sql.replace(" a", " b")).placed


def test_what_is_about_a_table_and_not_understood_is_not_taken_for_nothing() -> None:
    assert effects("GRANT SELECT ON d.a TO x", DdlContext("d")) == ()
    with pytest.raises(DdlParseError):
        effects("RENAME TABLE a AS", DdlContext("d"))
