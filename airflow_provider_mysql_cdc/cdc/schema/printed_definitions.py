"""What a server prints in CREATE TABLE otherwise than it stores it: ENUM members, defaults, the character set.

Members of ENUM and SET columns that the server shows as ``?``, or as too few hexadecimal digits.

A server prints members in utf8mb3 (SHOW CREATE TABLE, information_schema, and the statements that it writes into the
binlog itself), so of a character beyond U+FFFF only ``?`` is left (MySQL 8.0.15, 9.7.4). A member of the character set
binary that is no such text is a hexadecimal literal without zeros before a digit: ``x'ff1'`` for FF01 and for 0FF1. The
server has them unharmed, and a recursive query whose column has the type of the table's column turns numbers into
members (9.7.4; to 8.0.15 it is a column of text, and 5.7 has no recursive queries).

Defaults that a server prints otherwise than it stores them.

Of a FLOAT it prints six digits, without zeros at the end: ``1.5`` for 1.5000001 (MySQL 9.7.4). Before 8.0.16 it prints
``?`` for characters beyond U+FFFF, and for bytes that are no text. The stored value is DEFAULT(column), where there is
a row: one of the table, the one that an outer join makes up for columns that may be NULL, or that of COUNT(*) without
rows (8.0.15, 9.7.4; not 5.7.22). What the server does not tell is unknown to ``ddl.stored_defaults``.

The default character set that MySQL leaves out of a CREATE TABLE statement that it writes itself.

It does so for ``LIKE`` of a temporary table, and with sql_mode ANSI. TABLE_MAP events of MySQL 5.7 do not tell the
character sets of columns, so the server is asked for the table's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.statement_text import with_null
from airflow_provider_mysql_cdc.cdc.ddl.collations import collation_by_name
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name

_STRING = r"x?'(?:[^'\\]|''|\\.)*+'"
_NAME = r"`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\"|\S++"
_COLUMN = re.compile(rf"^  (?P<name>{_NAME}) (?P<type>enum|set)\((?P<members>{_STRING}(?:,{_STRING})*)\)", re.MULTILINE)
# No such table, database or column; a number without a member. In MySQL 5.7: a syntax error and an unknown variable.
_CHANGED = (1146, 1049, 1054, 1265, 1064, 1193)
_DEFAULT_DEPTH = 1_000  # cte_max_recursion_depth
_SQL = (
    "WITH RECURSIVE members (number, member) AS ("
    "SELECT 0, t.{column} FROM (SELECT 1) AS one LEFT JOIN {table} AS t ON FALSE "
    "UNION ALL SELECT number + 1, {value} FROM members WHERE number < {count}) "
    "SELECT CHARSET(member), HEX(IF(CHARSET(member) = 'binary', member, CONVERT(member USING utf8mb4))) "
    "FROM members WHERE number > 0 ORDER BY number"
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


def with_members(conn: MySqlConnection, table: TableId, statement: str) -> str | None:
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
        if members is None or list(map(_shown, members)) != column.members:
            return None
        parts += [statement[last:start], ",".join(map(_literal, members))]
        last = end
    return "".join([*parts, statement[last:]])


def unshown_members_warning(table: Table, server_version: str) -> str | None:
    """Return a warning about members in the schema history that may be others than the server shows; None without any.

    Args:
        table: The table.
        server_version: Version of the server; only MySQL 5.7 and 8.0 may have no query that tells them.
    """
    columns = [column.name for column in table.columns if any("?" in member for member in column.enum_values)]
    if not columns or not server_version.startswith(tuple(_REMEDIES)):
        return None
    release = server_version[:3]
    return (
        f"WARNING: {table.id} has members of ENUM or SET with a question mark (column {', '.join(columns)}). MySQL "
        f"{release} shows characters beyond U+FFFF like this, so its events may have ? in their place. "
        f"{_REMEDIES[release]}"
    )


_REMEDIES = {
    "8.0": "With binlog_row_metadata=FULL on the server, the members are taken from the binlog",
    "5.7": "Its binlog does not have the members; statements of the stream (ALTER TABLE ... MODIFY) have them",
}


def _hidden_columns(statement: str) -> list[_HiddenMembers]:
    if "?" not in statement and "x'" not in statement:
        return []
    columns = []
    for match in _COLUMN.finditer(statement):
        name, members = match["name"], re.findall(_STRING, match["members"])
        if any("?" in member or member[0] == "x" for member in members):
            if name[0] in '`"':
                name = name[1:-1].replace(name[0] * 2, name[0])
            columns.append(_HiddenMembers(name, match["type"], [_text(m) for m in members], match.span("members")))
    return columns


def _read_members(conn: MySqlConnection, table: TableId, column: _HiddenMembers) -> list[str | bytes] | None:
    """Return the members, those of the character set binary as bytes; None if one is no text in its character set."""
    count, names = len(column.members), {"column": quote_name(column.name), "table": table.quoted()}
    with conn.cursor() as cursor:
        if count >= _DEFAULT_DEPTH:
            cursor.execute(f"SET SESSION cte_max_recursion_depth = {count + 1}")
        cursor.execute(_SQL.format(value=_VALUES[column.type], count=count, **names))
        rows = cursor.fetchall()
    # For bytes that are no text the client library would raise an error in the middle of the answer, and the
    # conversion gives NULL. A server stores such bytes of literals in another character set (9.7.4).
    if any(digits is None for _, digits in rows):
        return None
    values = [(charset, bytes.fromhex(digits)) for charset, digits in rows]
    try:
        return [data if charset == "binary" else data.decode() for charset, data in values]
    except UnicodeDecodeError:
        return None  # utf8mb4 is not converted, so the server does not look at its bytes


_ESCAPES = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)
_UNESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


def _text(literal: str) -> str:
    """Return the member that a literal of the server's shows; of a hexadecimal one it is the literal."""
    if literal[0] == "x":
        return literal
    return _ESCAPED.sub(lambda m: "'" if m[1] is None else _UNESCAPES.get(m[1], m[1]), literal[1:-1])


def _binary_text(member: bytes) -> str | None:
    """Return a member of the character set binary as the server shows it; None if it is no text in utf8mb3."""
    try:
        text = member.decode()
    except UnicodeDecodeError:
        return None
    return text if basic_plane(text) == text else None


def _shown(member: str | bytes) -> str:
    if isinstance(member, str):
        return basic_plane(member)
    text = _binary_text(member)
    return "x'{}'".format("".join(f"{byte:x}" for byte in member)) if text is None else text


def _literal(member: str | bytes) -> str:
    text = member if isinstance(member, str) else _binary_text(member)
    return f"x'{member.hex()}'" if isinstance(member, bytes) and text is None else _quoted(text or "")


def _quoted(member: str) -> str:
    return "'" + "".join(_ESCAPES.get(character, character) for character in member) + "'"


_TEXT = r"'(?:[^'\\]|''|\\.)*+'"
_DEFAULT_COLUMN = re.compile(
    r"^  (?P<name>`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\") (?P<type>\w+)"
    rf"(?P<rest>(?:[^'`\",\n(]|\((?:[\d,]+|{_TEXT}(?:,{_TEXT})*)\))*?) DEFAULT (?P<default>{_TEXT})",
    re.MULTILINE | re.DOTALL,
)
_FLOAT = struct.Struct("<f")
_SHOWN_DIGITS = 6
_UNANSWERED = (1054, 1142, 1143)
"""The column was altered since; or the account, which may see the structure, may not read the table or the column."""
_OF_A_ROW = "SELECT {} FROM (SELECT 1) AS one LEFT JOIN {} AS t ON TRUE LIMIT 1"
_WITHOUT_ROWS = "SELECT {}, COUNT(*) FROM {} AS t"
_BYTES = {"char": "HEX(TRIM(TRAILING ' ' FROM {}))", "binary": "HEX(TRIM(TRAILING 0x00 FROM {}))", "float": "{} * 1e0"}


def with_stored_defaults(conn: MySqlConnection, table: TableId, statement: str) -> str:
    """Return a statement with the stored defaults of its columns, as far as the server can be asked.

    Those are nine digits of a FLOAT's, and the bytes of one with ``?`` in hexadecimal digits.

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.

    Raises:
        pymysql.MySQLError: The table is gone, or the connection broke.
    """
    columns = [match for match in _DEFAULT_COLUMN.finditer(statement) if _is_doubtful(match)]
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


def _read_values(conn: MySqlConnection, table: TableId, columns: Sequence[re.Match[str]]) -> Sequence[Any]:
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


_END_OF_COLUMNS = "\n)"
_NO_SUCH_TABLE = (1146, 1049)


def has_no_charset(statement: str) -> bool:
    """Return whether a CREATE TABLE in the server's layout names no default character set.

    Args:
        statement: The statement.
    """
    options = statement.rpartition(_END_OF_COLUMNS)[2]
    return "CHARSET=" not in options and "COLLATE=" not in options


def with_table_charset(
    conn: MySqlConnection, table: TableId, statement: str, created: range, *, ansi_quotes: bool = False
) -> str | None:
    """Return a statement with the default character set that the table has; None when it may have had another one.

    The table is the one that the statement created if the server created it at that time and shows the same columns:
    each ALTER TABLE changes the time (MySQL 5.7.22).

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.
        created: The seconds since the epoch in which the statement ran.
        ansi_quotes: Whether it quotes names with ``"``.

    Raises:
        pymysql.MySQLError: The table may not be read, or the connection broke.
    """
    with conn.cursor() as cursor:
        cursor.execute(f"SET SESSION sql_mode = '{'ANSI_QUOTES' if ansi_quotes else ''}'")
        try:
            cursor.execute(f"SHOW CREATE TABLE {table.quoted()}")
        except pymysql.MySQLError as error:
            if error.args[0] not in _NO_SUCH_TABLE:
                raise
            return None
        shown = str(cursor.fetchone()[1])
        cursor.execute(
            "SELECT UNIX_TIMESTAMP(CREATE_TIME), TABLE_COLLATION FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (table.db, table.table),
        )
        row = cursor.fetchone()
    if row is None or row[0] not in created or _columns(shown) != _columns(statement):
        return None
    try:
        collation = collation_by_name(str(row[1]))
    except DdlParseError:
        return None
    columns, end, options = statement.rpartition(_END_OF_COLUMNS)
    return f"{columns}{end} DEFAULT CHARSET={collation.charset} COLLATE={collation.name}{options}"


def _columns(statement: str) -> str:
    return with_null(statement).partition("\n")[2].rpartition(_END_OF_COLUMNS)[0]
