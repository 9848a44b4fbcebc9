"""Defaults that a server prints otherwise than it stores them.

Of a FLOAT it prints six digits, without zeros at the end: ``1.5`` for 1.5000001 (MySQL 9.7.4). Before 8.0.16 it prints
``?`` for characters beyond U+FFFF, and for bytes that are no text. The stored value is DEFAULT(column), where there is
a row: one of the table, the one that an outer join makes up for columns that may be NULL, or that of COUNT(*) without
rows (8.0.15, 9.7.4; not 5.7.22). What the server does not tell is unknown to ``ddl.stored_defaults``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.model.table import TableId

_STRING = r"'(?:[^'\\]|''|\\.)*+'"
_COLUMN = re.compile(
    r"^  (?P<name>`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\") (?P<type>\w+)"
    rf"(?P<rest>(?:[^'`\",\n(]|\((?:[\d,]+|{_STRING}(?:,{_STRING})*)\))*?) DEFAULT (?P<default>{_STRING})",
    re.MULTILINE | re.DOTALL,
)
_FLOAT = struct.Struct("<f")
_SHOWN_DIGITS = 6
_UNANSWERED = (1054, 1142, 1143)
"""The column was altered since; or the account, which may see the structure, may not read the table or the column."""
_OF_A_ROW = "SELECT {} FROM (SELECT 1) AS one LEFT JOIN {} AS t ON TRUE LIMIT 1"
_WITHOUT_ROWS = "SELECT {}, COUNT(*) FROM {} AS t"
_BYTES = {"char": "HEX(TRIM(TRAILING ' ' FROM {}))", "binary": "HEX(TRIM(TRAILING 0x00 FROM {}))", "float": "{} * 1e0"}


def with_stored_defaults(conn: Any, table: TableId, statement: str) -> str:
    """Return a statement with the stored defaults of its columns, as far as the server can be asked.

    Those are nine digits of a FLOAT's, and the bytes of one with ``?`` in hexadecimal digits.

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.

    Raises:
        pymysql.MySQLError: The table is gone, or the connection broke.
    """
    columns = [match for match in _COLUMN.finditer(statement) if _is_doubtful(match)]
    if not columns:
        return statement
    values = _read_values(conn, table, columns)
    for column, value in reversed(list(zip(columns, values, strict=True))):
        start, end = column.span("default")
        text = _float_text(column["default"], value) if column["type"] == "float" else value and f"0x{value}"
        statement = statement[:start] + (text or column["default"]) + statement[end:]
    return statement


def _is_doubtful(column: re.Match[str]) -> bool:
    if column["type"] != "float":
        return "?" in column["default"]
    return "," not in column["rest"] and re.search("[1-9]", column["default"]) is not None


def _read_values(conn: Any, table: TableId, columns: Sequence[re.Match[str]]) -> Sequence[Any]:
    """Return each column's number or hexadecimal digits; None where the server does not tell."""
    values = [_BYTES.get(c["type"], "HEX({})").format(f"DEFAULT(t.{c['name']})") for c in columns]
    try:
        with conn.cursor() as cursor:
            cursor.execute(_OF_A_ROW.format(", ".join(values), table.quoted()))
            row: Sequence[Any] = cursor.fetchone()
            if None in row:
                groups = ", ".join(f"ANY_VALUE({value})" for value in values)
                cursor.execute(_WITHOUT_ROWS.format(groups, table.quoted()))
                row = cursor.fetchone()[:-1]
    except pymysql.MySQLError as error:
        if error.args[0] not in _UNANSWERED:
            raise
        return [None] * len(columns)
    return row


def _float_text(shown: str, value: float | None) -> str:
    """Return the literal of a stored number: the server's own where that is the same in fewer than six digits.

    Of a number that the server did not tell it has six digits, also where zeros are left out.
    """
    number = shown.strip("'")
    if value is None:
        return f"'{float(number):#.{_SHOWN_DIGITS}g}'"
    significant = number.partition("e")[0].lstrip("-0.").replace(".", "")
    is_same = _FLOAT.pack(float(number)) == _FLOAT.pack(value)
    return shown if is_same and len(significant) < _SHOWN_DIGITS else f"'{value:#.9g}'"
