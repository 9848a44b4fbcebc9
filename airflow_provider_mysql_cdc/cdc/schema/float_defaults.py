"""Defaults of FLOAT columns, of which a server prints six digits: ``1.5`` for 1.5000001 (MySQL 9.7.4).

The stored number is DEFAULT(column), where there is a row: one of the table or, for a column that may be NULL, the one
that an outer join makes up. So of a NOT NULL column of an empty table the statement keeps what the server printed.
"""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_NAME = r"`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\""
_COLUMN = re.compile(rf"^  (?P<name>{_NAME}) float\b[^(',\n]*? DEFAULT '(?P<number>[^']*[1-9][^']*)'", re.MULTILINE)
_SQL = "SELECT {} FROM (SELECT 1) AS one LEFT JOIN {} AS t ON TRUE LIMIT 1"


def with_floats(conn: Any, table: TableId, statement: str) -> str:
    """Return a statement with nine digits of the defaults of its FLOAT columns, as far as the server can be asked.

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.

    Raises:
        pymysql.MySQLError: The table may not be read, or the connection broke.
    """
    columns = list(_COLUMN.finditer(statement))
    if not columns:
        return statement
    names = ", ".join(f"DEFAULT(t.{column['name']}) * 1e0" for column in columns)
    (values,) = fetch_all(conn, _SQL.format(names, table.quoted()))
    for column, value in reversed(list(zip(columns, values, strict=True))):
        start, end = column.span("number")
        if value is not None:
            statement = statement[:start] + _digits(column["number"], value) + statement[end:]
    return statement


def _digits(shown: str, value: float) -> str:
    """Return the text of a stored number: the server's own where it says the same number in fewer than six digits."""
    text = f"{value:#.9g}"
    return shown if float(text) == float(f"{float(shown):#.9g}") and len(re.findall("[0-9]", shown)) < 6 else text
