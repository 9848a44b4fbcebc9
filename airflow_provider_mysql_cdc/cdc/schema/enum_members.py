"""Members of ENUM and SET columns that the server shows as ``?``.

A server prints members in utf8mb3 (SHOW CREATE TABLE, information_schema, and the statements that it writes into the
binlog itself), so of a character beyond U+FFFF only ``?`` is left (MySQL 8.0.15, 9.7.4). It has them unharmed, and a
recursive query whose column has the type of the table's column turns numbers into members (9.7.4; to
8.0.15 it is a column of text).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pymysql

from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name

_STRING = r"'(?:[^'\\]|''|\\.)*+'"
_NAME = r"`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\"|\S++"
_COLUMN = re.compile(
    rf"^  (?P<name>{_NAME}) (?P<type>enum|set)\((?P<members>{_STRING}(?:,{_STRING})*+)\)", re.MULTILINE
)
# No such table, database or column; a number without a member.
_CHANGED = (1146, 1049, 1054, 1265)
_DEFAULT_DEPTH = 1_000  # cte_max_recursion_depth
_SQL = (
    "WITH RECURSIVE members (number, member) AS ("
    "SELECT 0, t.{column} FROM (SELECT 1) AS one LEFT JOIN {table} AS t ON FALSE "
    "UNION ALL SELECT number + 1, {value} FROM members WHERE number < {count}) "
    "SELECT HEX(CONVERT(member USING utf8mb4)) FROM members WHERE number > 0 ORDER BY number"
)
_VALUES = {"enum": "number + 1", "set": "1 << number"}


class _HiddenMembers(NamedTuple):
    name: str
    type: str
    members: list[str]
    span: tuple[int, int]


def has_hidden_members(statement: str) -> bool:
    """Return whether a statement that the server wrote has members that may be others than it shows.

    Args:
        statement: CREATE TABLE, in the server's layout.
    """
    return bool(_hidden_columns(statement))


def with_members(conn: Any, table: TableId, statement: str) -> str | None:
    """Return a statement with the members that the columns have; None when the server has other ones now, or none.

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.

    Raises:
        pymysql.MySQLError: The table may not be read, or the connection broke.
    """
    parts, last = [], 0
    for column in _hidden_columns(statement):
        start, end = column.span
        try:
            members = _read_members(conn, table, column)
        except pymysql.MySQLError as error:
            if error.args[0] not in _CHANGED:
                raise
            return None
        if members is None or [basic_plane(member) for member in members] != column.members:
            return None
        parts += [statement[last:start], ",".join(map(_quoted, members))]
        last = end
    return "".join([*parts, statement[last:]])


def _hidden_columns(statement: str) -> list[_HiddenMembers]:
    if "?" not in statement:
        return []
    columns = []
    for match in _COLUMN.finditer(statement):
        if "?" in match["members"]:
            name, members = match["name"], re.findall(_STRING, match["members"])
            if name[0] in '`"':
                name = name[1:-1].replace(name[0] * 2, name[0])
            columns.append(_HiddenMembers(name, match["type"], [_text(m) for m in members], match.span("members")))
    return columns


def _read_members(conn: Any, table: TableId, column: _HiddenMembers) -> list[str] | None:
    count, names = len(column.members), {"column": quote_name(column.name), "table": table.quoted()}
    with conn.cursor() as cursor:
        if count >= _DEFAULT_DEPTH:
            cursor.execute(f"SET SESSION cte_max_recursion_depth = {count + 1}")
        cursor.execute(_SQL.format(value=_VALUES[column.type], count=count, **names))
        rows = cursor.fetchall()
    # For bytes that are no text the client library would raise an error in the middle of the answer, and the
    # conversion gives NULL. A server stores such bytes of literals in another character set (9.7.4).
    return None if (None,) in rows else [bytes.fromhex(member).decode() for (member,) in rows]


_ESCAPES = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)
_UNESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


def _text(literal: str) -> str:
    return _ESCAPED.sub(lambda m: "'" if m[1] is None else _UNESCAPES.get(m[1], m[1]), literal[1:-1])


def _quoted(member: str) -> str:
    return "'" + "".join(_ESCAPES.get(character, character) for character in member) + "'"
