"""Literals as values of their columns: from the session's character set to the column's."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import Column

LATIN1, UTF8MB4, BINARY = 8, 255, 63


def column(definition: str, client: int, connection: int | None = None) -> Column:
    context = DdlContext("d", client_collation=client, connection_collation=connection)
    state = apply_ddl(SchemaState(), f"CREATE TABLE t (c {definition})", context).state
    return next(iter(state.tables.values())).columns[0]


@pytest.mark.parametrize(
    ("definition", "client", "connection", "members"),
    [
        ("ENUM('ä','語','😀')", UTF8MB4, None, ("ä", "語", "😀")),
        ("ENUM('ä','語b')", UTF8MB4, LATIN1, ("ä", "?b")),
        ("ENUM('ä','語b') CHARACTER SET latin1", UTF8MB4, None, ("ä", "?b")),
        ("ENUM('ä') CHARACTER SET latin1", BINARY, None, ("Ã¤",)),
        ("ENUM(X'E4') CHARACTER SET latin1", BINARY, None, ("ä",)),
        ("ENUM('ä') CHARACTER SET latin1", UTF8MB4, BINARY, ("Ã¤",)),
        ("ENUM('ä') CHARACTER SET utf8mb4", LATIN1, None, ("ä",)),
        ("ENUM(X'C3A4') CHARACTER SET utf8mb4", LATIN1, None, ("ä",)),
        ("SET('😀','x') CHARACTER SET utf16", UTF8MB4, None, ("😀", "x")),
        ("ENUM('😀') CHARACTER SET utf8mb3", UTF8MB4, None, ("?",)),
    ],
)
def test_members(definition: str, client: int, connection: int | None, members: tuple[str, ...]) -> None:
    assert column(definition, client, connection).enum_values == members


@pytest.mark.parametrize(
    ("definition", "client", "default"),
    [
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _latin1'ä'", UTF8MB4, "Ã¤"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _latin1 X'E4'", UTF8MB4, "ä"),
        ("VARCHAR(9) CHARACTER SET latin1 DEFAULT _utf8mb4'ä'", UTF8MB4, "ä"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _utf8mb4'Ã¤'", LATIN1, "ä"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT N'Ã¤'", LATIN1, "ä"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _cp1251 b'11100100'", LATIN1, "д"),
        ("VARBINARY(9) DEFAULT 'ä'", LATIN1, "0xE4"),
        ("VARBINARY(9) DEFAULT 'ä'", UTF8MB4, "ä"),
        ("VARBINARY(9) DEFAULT _binary'ab'", LATIN1, "ab"),
    ],
)
def test_defaults(definition: str, client: int, default: str) -> None:
    assert column(definition, client).default == default


def test_names_and_comments_are_in_the_basic_plane() -> None:
    context, body = DdlContext("d", client_collation=UTF8MB4), "(`a😀` INT COMMENT 'b😀') COMMENT 'c😀'"
    for sql in (f"CREATE TABLE `t😀` {body}", f"CREATE TABLE IF NOT EXISTS t😀 {body}"):
        (table,) = apply_ddl(SchemaState(), sql, context).state.tables.values()
        column = table.columns[0]
        assert (table.id.table, column.name, table.comment, column.comment) == ("t?", "a?", "c?", "b?")
