"""Which table stands behind a name, and what is left of a snapshot whose tables moved."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import (
    DroppedChunk,
    RemainingChunks,
    ResolvedChunk,
    resolve_chunks,
)
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START, TableLineages, statement_effects


def name(text: str) -> TableId:
    return TableId("d", text)


def left_after(*statements: str, tables: str = "a b") -> RemainingChunks:
    lives = TableLineages.of(map(name, tables.split()))
    for i, sql in enumerate(statements, 1):
        for effect in statement_effects(sql, DdlContext("d")):
            lives.apply(effect, (1, i), sql)
    return resolve_chunks([SnapshotChunk(name("a"), 3)], lives, lambda t: not t.table.startswith("_"))


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
    (found,) = left_after(*statements).to_read
    assert (found.source, found.table) == (name(source), name(table))
    assert found.spans == tuple((name(n), since, until) for n, since, until in spans)
    assert ResolvedChunk.from_json(found.to_json()) == found


GHOST = ["CREATE TABLE fresh (i INT)", "RENAME TABLE a TO old, fresh TO a"]


@pytest.mark.parametrize("swap", [GHOST, GHOST[1:]])
def test_a_table_that_takes_the_name_of_one_that_is_still_captured_is_read_as_well(swap: list[str]) -> None:
    """The topic of the name would end without the rows that are not read yet."""
    place = (1, len(swap))
    (found,) = left_after(*swap).to_read
    assert found.table_reads == [(name("old"), name("old")), (name("a"), name("a"))]
    assert found.spans == ((name("a"), START, place), (name("old"), place, None), (name("a"), place, None))
    assert ResolvedChunk.from_json(found.to_json()) == found
    (alone,) = left_after(*swap, "DROP TABLE old").to_read
    assert alone.table_reads == [(name("a"), name("a"))]
    assert alone.spans == ((name("a"), START, None),)


def test_every_table_that_took_a_name_of_one_that_is_gone_is_read() -> None:
    """Each topic ends with the rows of the table that has its name, of which no event tells."""
    swaps = ["RENAME TABLE a TO m, f TO a", "RENAME TABLE m TO n, g TO m"]
    (found,) = left_after(*swaps, "DROP TABLE n").to_read
    assert found.table_reads == [(name("m"), name("m")), (name("a"), name("a"))]
    assert found.spans == ((name("a"), START, (1, 1)), (name("m"), (1, 1), None), (name("a"), (1, 1), None))
    (standing,) = left_after(*swaps).to_read
    assert standing.table_reads == [(name("n"), name("n")), (name("m"), name("m")), (name("a"), name("a"))]
    assert standing.spans[-2:] == ((name("m"), (1, 2), None), (name("a"), (1, 1), None))
    assert RemainingChunks((found, standing)).sources == [name("m"), name("a"), name("n")]


def test_a_view_that_takes_the_name_has_no_rows_of_its_own() -> None:
    lives = TableLineages.of([name("a")])
    for effect in statement_effects("RENAME TABLE a TO base, v TO a", DdlContext("d")):
        lives.apply(effect, (1, 1))
    chunk = SnapshotChunk(name("a"), 3)
    (found,) = resolve_chunks([chunk], lives, lambda t: True, {name("base")}).to_read
    assert found.table_reads == [(name("base"), name("base"))]
    for effect in statement_effects("DROP TABLE base", DdlContext("d")):
        lives.apply(effect, (1, 2))
    assert resolve_chunks([chunk], lives, lambda t: True, set()).dropped == (
        DroppedChunk(chunk, ((name("a"), START, (1, 1)), (name("base"), (1, 1), (1, 2)))),
    )


def test_a_table_created_under_the_name_comes_from_its_events() -> None:
    (found,) = left_after("RENAME TABLE a TO old", "CREATE TABLE a (i INT)").to_read
    assert found.table_reads == [(name("old"), name("old"))]


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
    assert not found.to_read and len(found.dropped) == 1 and len(found.reasons) == 1


@pytest.mark.parametrize(
    ("statements", "reasons"),
    [
        (["DROP TABLE a"], ["d.a was dropped since the snapshot began"]),
        (["RENAME TABLE a TO c", "DROP TABLE c"], ["d.a was dropped since the snapshot began"]),
        (
            ["DROP TABLE a", "RENAME TABLE b TO a"],
            ["d.a was dropped since the snapshot began; d.a is now another table of the snapshot"],
        ),
        (["TRUNCATE a"], ["d.a was truncated or created again since the snapshot began"]),
        (["DROP TABLE a", "CREATE TABLE a (i INT)"], ["d.a was truncated or created again since the snapshot began"]),
        (["RENAME TABLE a TO _x"], ["d.a is now read from d._x; its rows are written as d.a"]),
        (["RENAME TABLE a TO c"], ["d.a is now read from d.c; its rows are written as d.c"]),
        (
            ["RENAME TABLE a TO old, fresh TO a"],
            [
                "d.a is now read from d.old; its rows are written as d.old",
                "d.a was replaced by another table since the snapshot began, which is read as well",
            ],
        ),
        (["ALTER TABLE a ADD x INT"], []),
    ],
)
def test_the_lineage_of_a_table_is_returned(statements: list[str], reasons: list[str]) -> None:
    assert list(left_after(*statements).reasons) == reasons


def test_a_name_that_a_view_has_now_is_no_table() -> None:
    lives = TableLineages.of([name("a"), name("b")])
    for sql in ("DROP TABLE a", "RENAME TABLE b TO a"):
        for effect in statement_effects(sql, DdlContext("d")):
            lives.apply(effect, (1, 1))
    chunk = SnapshotChunk(name("a"), 3)
    assert resolve_chunks([chunk], lives, lambda t: True, set()).reasons == (
        "d.a was dropped since the snapshot began",
    )
    assert "another table of the snapshot" in resolve_chunks([chunk], lives, lambda t: True, {name("a")}).reasons[0]


def test_of_rows_that_are_gone_only_events_under_captured_names_are_held_back() -> None:
    (gone,) = left_after("RENAME TABLE a TO _x", "RENAME TABLE _x TO c", "DROP TABLE c").dropped
    assert gone.spans == ((name("a"), START, (1, 1)), (name("c"), (1, 2), (1, 3)))


def test_names_that_a_table_had_before_its_heir_took_one_are_contained_too() -> None:
    swaps = ["RENAME TABLE a TO c", "RENAME TABLE c TO _x", "RENAME TABLE _x TO e", "RENAME TABLE e TO _y, f TO e"]
    (found,) = left_after(*swaps, "DROP TABLE _y").to_read
    assert found.table_reads == [(name("e"), name("e"))]
    assert found.spans == ((name("a"), START, (1, 1)), (name("c"), (1, 1), (1, 2)), (name("e"), (1, 3), None))


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE a EXCHANGE PARTITION p WITH TABLE z", "ALTER TABLE z EXCHANGE PARTITION p WITH TABLE a",
            "ALTER TABLE a DISCARD TABLESPACE", "ALTER TABLE a IMPORT PARTITION p TABLESPACE"],
)  # fmt: skip
def test_rows_that_moved_without_events_are_refused(sql: str) -> None:
    with pytest.raises(SchemaError, match="moved") as caught:
        left_after(sql, "ALTER TABLE a IMPORT TABLESPACE")
    assert caught.value.where == f"table d.a; {sql}" and "log no row events" in caught.value.why
    assert "again=true" in caught.value.remedy
    assert left_after(sql.replace(" a", " b")).to_read


def test_what_is_about_a_table_and_not_understood_is_not_taken_for_nothing() -> None:
    assert statement_effects("GRANT SELECT ON d.a TO x", DdlContext("d")) == ()
    with pytest.raises(DdlParseError):
        statement_effects("RENAME TABLE a AS", DdlContext("d"))


def kinds(sql: str, db: str = "d", lower_case_table_names: int = 0) -> list[tuple[str, str]]:
    context = DdlContext(db, lower_case_table_names=lower_case_table_names)
    return [(e.kind, f"{e.table.db}.{e.table.table}") for e in statement_effects(sql, context)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE INDEX i ON a (x)", []),
        ("CREATE DATABASE e", []),
        ("ALTER DATABASE CHARACTER SET latin1", []),
        ("ALTER TABLE a TABLESPACE ts", []),
        ("ALTER TABLE a ADD `discard` INT", []),
        ("ALTER TABLE a DROP `import`", []),
        ("DROP DATABASE E", [("drop database", "E.")]),
        ("USE e; DROP TABLE a", [("drop", "e.a")]),
        ("DROP TABLE x.a, a", [("drop", "x.a"), ("drop", "d.a")]),
    ],
)
def test_what_statements_do_to_tables_as_wholes(sql: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(sql) == expected


def test_a_server_that_lowers_names_drops_the_lower_one() -> None:
    assert kinds("DROP DATABASE E", lower_case_table_names=1) == [("drop database", "e.")]
    assert kinds("DROP DATABASE E", lower_case_table_names=2) == [("drop database", "E.")]


def test_the_lineages_of_names() -> None:
    lives = TableLineages.of([name("a"), name("b"), TableId("e", "a")])
    (a, b, other) = lives.lineages

    def run(sql: str, place: int) -> None:
        for effect in statement_effects(sql, DdlContext("d")):
            lives.apply(effect, (1, place), sql)

    run("CREATE TABLE IF NOT EXISTS a (i INT)", 1)
    run("CREATE TABLE IF NOT EXISTS fresh (i INT)", 2)
    assert lives.by_name[name("a")] is a and lives.by_name[name("fresh")].created
    run("CREATE TABLE b (i INT)", 3)
    assert b.ended_at == (1, 3) and lives.by_name[name("b")].created, "its end was not told"
    run("TRUNCATE a", 4)
    assert a.ended_at == (1, 4) and lives.by_name[name("a")].created and lives.by_name[name("a")] is not a
    assert a.spans((9, 9)) == [(name("a"), START, (1, 4))]
    run("RENAME TABLE fresh TO newer", 5)
    newer = lives.by_name[name("newer")]
    assert newer.spans((9, 9)) == [(name("fresh"), (1, 2), (1, 5)), (name("newer"), (1, 5), (9, 9))]
    run("DROP DATABASE d", 6)
    assert newer.ended_at == (1, 6) and other.ended_at is None and list(lives.by_name) == [TableId("e", "a")]
    assert [life.is_initial for life in lives.lineages] == [True, True, True, False, False, False]
