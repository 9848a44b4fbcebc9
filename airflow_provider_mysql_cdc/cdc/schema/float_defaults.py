"""Defaults of FLOAT columns, of which a server prints six digits: ``1.5`` for 1.5000001 (MySQL 9.7.4).

The stored number is DEFAULT(column), where there is a row: one of the table or, for a column that may be NULL, the one
that an outer join makes up. So of a NOT NULL column of an empty table the statement keeps what the server printed.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.model.table import TableId

_NAME = r"`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\""
_COLUMN = re.compile(rf"^  (?P<name>{_NAME}) float\b[^(',\n]*? DEFAULT '(?P<number>[^']*[1-9][^']*)'", re.MULTILINE)
_FLOAT = struct.Struct("<f")
_SHOWN_DIGITS = 6
_UNANSWERED = (1054, 1142, 1143)
"""The column was altered since; or the account, which may see the structure, may not read the table or the column."""
_SQL = "SELECT {} FROM (SELECT 1) AS one LEFT JOIN {} AS t ON TRUE LIMIT 1"


def with_floats(conn: Any, table: TableId, statement: str) -> str:
    """Return a statement with nine digits of the defaults of its FLOAT columns, as far as the server can be asked.

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.

    Raises:
        pymysql.MySQLError: The table is gone, or the connection broke.
    """
    columns = list(_COLUMN.finditer(statement))
    if not columns:
        return statement
    names = ", ".join(f"DEFAULT(t.{column['name']}) * 1e0" for column in columns)
    try:
        with conn.cursor() as cursor:
            cursor.execute(_SQL.format(names, table.quoted()))
            values = cursor.fetchone()
    except pymysql.MySQLError as error:
        if error.args[0] not in _UNANSWERED:
            raise
        return statement
    for column, value in reversed(list(zip(columns, values, strict=True))):
        start, end = column.span("number")
        if value is not None:
            statement = statement[:start] + _digits(column["number"], value) + statement[end:]
    return statement


def _digits(shown: str, value: float) -> str:
    """Return the text of a stored number: the server's own where that is the same number in fewer than six digits."""
    significant = shown.partition("e")[0].lstrip("-0.").replace(".", "")
    is_same = _FLOAT.pack(float(shown)) == _FLOAT.pack(value)
    return shown if is_same and len(significant) < _SHOWN_DIGITS else f"{value:#.9g}"
