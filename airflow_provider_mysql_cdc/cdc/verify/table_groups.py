"""Groups of tables that a verification compares at one position each: a retry goes on behind the last group.

A view that is held for a shorter time also keeps less of the server's undo history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_NAMES_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class SizedTable:
    """Describe a table to compare.

    Args:
        table: Its name.
        topic: Its topic.
        rows: Its rows, as the server estimates them.
    """

    table: TableId
    topic: str
    rows: int


def plan_groups(tables: Iterable[SizedTable], most_rows: int) -> list[tuple[TableId, ...]]:
    """Return the groups, small tables first; a larger table is a group of its own.

    Tables that share a topic are in one group: a tombstone does not name its table, and the topic is read once.

    Args:
        tables: The tables.
        most_rows: Rows of a group; 0 for one group of all tables.
    """
    by_topic: dict[str, list[SizedTable]] = {}
    for sized in tables:
        by_topic.setdefault(sized.topic, []).append(sized)
    groups: list[list[SizedTable]] = []
    rows = 0
    for sharing in sorted(by_topic.values(), key=lambda each: (_rows(each), each[0].table)):
        if not groups or (most_rows and rows + _rows(sharing) > most_rows):
            groups.append([])
            rows = 0
        groups[-1] += sharing
        rows += _rows(sharing)
    return [tuple(sorted(sized.table for sized in group)) for group in groups]


def sized_tables(conn: Any, topics: Mapping[TableId, str]) -> list[SizedTable]:
    """Return tables with their sizes; a table that is gone counts as empty.

    Args:
        conn: An open connection to the source.
        topics: Topic by table.
    """
    rows, names = dict[TableId, int](), list(topics)
    for start in range(0, len(names), _NAMES_PER_QUERY):
        part = names[start : start + _NAMES_PER_QUERY]
        sql = (
            "SELECT table_schema, table_name, table_rows FROM information_schema.tables "
            f"WHERE (table_schema, table_name) IN ({', '.join(['(%s, %s)'] * len(part))})"
        )
        found = fetch_all(conn, sql, tuple(text for name in part for text in (name.db, name.table)))
        rows |= {TableId(str(db), str(table)): int(number or 0) for db, table, number in found}
    return [SizedTable(name, topic, rows.get(name, 0)) for name, topic in topics.items()]


def _rows(tables: Iterable[SizedTable]) -> int:
    return sum(sized.rows for sized in tables)
