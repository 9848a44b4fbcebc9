"""Parse CREATE TABLE.

Source: MySQL 9.7 manual, "CREATE TABLE Statement".
"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.ddl.columns import parse_column
from airflow_provider_mysql_cdc.cdc.ddl.cursor import Cursor, NameParts
from airflow_provider_mysql_cdc.cdc.ddl.keys import inline_keys, parse_key, parse_table_option, starts_key
from airflow_provider_mysql_cdc.cdc.ddl.statements import ColumnSpec, CreateTable, KeySpec, TableOptions
from airflow_provider_mysql_cdc.cdc.errors import RowsAsTextError

_QUERY_KEYWORDS = ("AS", "SELECT", "REPLACE", "IGNORE", "WITH", "TABLE", "VALUES", "(")


def parse_create_table(cur: Cursor) -> CreateTable:
    """Parse what follows CREATE TABLE.

    Args:
        cur: Cursor after the word TABLE.

    Raises:
        RowsAsTextError: Its rows come from a SELECT: with row-based logging the server writes the finished column list
            instead. With IF NOT EXISTS the statement is returned: where the table exists, it did nothing.
        DdlParseError: The statement is malformed.
    """
    if_not_exists = cur.accept("IF", "NOT", "EXISTS")
    name = cur.table_name()
    like = _like(cur)
    if like is not None:
        return CreateTable(name, if_not_exists, like)
    columns: list[ColumnSpec] = []
    keys: list[KeySpec] = []
    if cur.matches("(") and cur.peek(1).upper not in _QUERY_KEYWORDS:
        _parse_elements(cur, columns, keys)
    options = TableOptions()
    while parse_table_option(cur, options):
        cur.accept(",")
    if cur.accept("PARTITION", "BY"):
        _skip_partitioning(cur)
    selects = cur.matches_one_of(*_QUERY_KEYWORDS)
    if selects and not if_not_exists:
        raise rows_as_text()
    while selects and not cur.at_end():
        cur.next()
    if not cur.at_end():
        cur.fail("an unknown table option")
    if not (columns or if_not_exists):
        cur.fail("a table without columns")
    return CreateTable(name, if_not_exists, None, tuple(columns), tuple(keys), options, selects)


def rows_as_text() -> RowsAsTextError:
    """Return the error of a table that was created with the rows of a SELECT."""
    return RowsAsTextError("the rows of a new table come from a SELECT", why="the statement was logged as text")


def _like(cur: Cursor) -> NameParts | None:
    if cur.accept("LIKE"):
        return cur.table_name()
    if cur.accept("(", "LIKE"):
        source = cur.table_name()
        cur.expect(")")
        return source
    return None


def _parse_elements(cur: Cursor, columns: list[ColumnSpec], keys: list[KeySpec]) -> None:
    cur.expect("(")
    while True:
        if starts_key(cur):
            key = parse_key(cur)
            if key is not None:
                keys.append(key)
        else:
            spec = parse_column(cur, cur.column_name())
            columns.append(spec)
            keys.extend(inline_keys(spec))
        if not cur.accept(","):
            break
    cur.expect(")")


def _skip_partitioning(cur: Cursor) -> None:
    """Step over a partition clause; a SELECT after it is left to the caller."""
    while not cur.at_end() and not cur.matches_one_of("AS", "SELECT", "REPLACE", "IGNORE", "WITH"):
        if cur.matches("("):
            cur.skip_parentheses()
        else:
            cur.next()
