"""Groups of tables that a verification compares at one position each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.group_queue import SizedTable, plan_groups, sized_tables

pytestmark = pytest.mark.quick


def sized(*rows: int, topics: Sequence[str] = ()) -> list[SizedTable]:
    return [SizedTable(TableId("d", f"t{i}"), topics[i] if topics else f"p.d.t{i}", n) for i, n in enumerate(rows)]


def names(groups: list[tuple[TableId, ...]]) -> list[list[str]]:
    return [[table.table for table in group] for group in groups]


@for_each(
    ("rows", "most", "groups"),
    [
        ((3, 1, 4), 0, [["t0", "t1", "t2"]]),
        ((3, 1, 4), 100, [["t0", "t1", "t2"]]),
        ((3, 1, 4), 4, [["t0", "t1"], ["t2"]]),
        ((50, 1, 1, 60), 10, [["t1", "t2"], ["t0"], ["t3"]]),
        ((0, 0), 1, [["t0", "t1"]]),
        ((), 5, []),
    ],
)
def test_small_tables_are_together_and_a_large_one_is_alone(
    rows: tuple[int, ...], most: int, groups: list[list[str]]
) -> None:
    assert names(plan_groups(sized(*rows), most)) == groups


def test_tables_of_one_topic_are_in_one_group() -> None:
    tables = sized(5, 5, 5, topics=["all", "own", "all"])
    assert names(plan_groups(tables, 5)) == [["t1"], ["t0", "t2"]]


class Connection:
    """Answers a query of sizes with those of tables that it has."""

    def __init__(self, rows: dict[tuple[str, str], int | None]) -> None:
        self.rows, self.queries, self.answer = rows, 0, list[tuple[Any, ...]]()

    def cursor(self) -> Connection:
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def execute(self, sql: str, args: tuple[str, ...]) -> None:
        self.queries += 1
        pairs = zip(args[::2], args[1::2], strict=True)
        self.answer = [(db, table, self.rows[db, table]) for db, table in pairs if (db, table) in self.rows]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.answer


def test_sizes_are_the_server_s_estimates_and_a_table_that_is_gone_is_empty() -> None:
    conn = Connection({("d", "a"): 7, ("d", "v"): None})
    topics = {TableId("d", name): f"p.{name}" for name in ("a", "v", "gone")}
    assert [(each.table.table, each.topic, each.rows) for each in sized_tables(conn, topics)] == [
        ("a", "p.a", 7), ("v", "p.v", 0), ("gone", "p.gone", 0),
    ]  # fmt: skip
    many = {TableId("d", f"t{i}"): "p" for i in range(1200)}
    conn = Connection({("d", f"t{i}"): i for i in range(1200)})
    assert [each.rows for each in sized_tables(conn, many)] == list(range(1200)) and conn.queries == 3
