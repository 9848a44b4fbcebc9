"""CREATE TABLE statements that differ in nothing but the table's name: their structure is worked out once.

A server with thousands of tenants has thousands of tables of a few shapes. Reading a statement of seven columns takes
0.8 ms, and the schema history of them all is read at the beginning of each batch.
"""

from __future__ import annotations

import re
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.ddl.alteration import Structure
from airflow_provider_mysql_cdc.cdc.ddl.cursor import NameParts
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_NAME = r"(?:`(?:[^`]|``)+`|[A-Za-z_][0-9A-Za-z_$]*)"
# Only names that read alike in every sql_mode; behind one, the rest has the same words whatever the name is.
_HEAD = re.compile(rf"CREATE\s+TABLE\s+({_NAME})(?:\.({_NAME}))?\s*(?=\()", re.IGNORECASE)
_SHAPES = 256
"""Shapes that are remembered; a statement that does not come again costs its text until they are full."""
_LONGEST = 65_536
"""Characters of a statement that is remembered: all of them together take some megabytes."""

_Key = tuple[str, DdlContext, DbDefaults]


class Structures:
    """Remember the structures that statements make, by everything that decides about them but the name."""

    def __init__(self) -> None:
        self._made: dict[_Key, Structure] = {}

    def find(self, rest: str, context: DdlContext, defaults: DbDefaults, table_id: TableId) -> Structure | None:
        """Return the structure that a statement makes, under another name; None when it has not been read before.

        Args:
            rest: The statement behind the name (``behind_name``).
            context: Its session.
            defaults: Character set of the database.
            table_id: The table's full name.
        """
        found = self._made.get((rest, _without_database(context), defaults))
        return None if found is None else (replace(found[0], id=table_id), found[1])

    def remember(self, text: str, context: DdlContext, defaults: DbDefaults, made: Structure) -> None:
        """Remember what a statement made.

        Args:
            text: The statement, without comments around it.
            context: Its session.
            defaults: Character set of the database.
            made: The structure.
        """
        found = behind_name(text)
        if found is None or len(text) > _LONGEST:
            return
        if len(self._made) >= _SHAPES:
            self._made.clear()
        self._made[found[1], _without_database(context), defaults] = made


def behind_name(text: str) -> tuple[NameParts, str] | None:
    """Return the name in a CREATE TABLE statement and what stands behind it; None for any other statement.

    Args:
        text: The statement; one with comments in front or IF NOT EXISTS counts as another.
    """
    match = _HEAD.match(text)
    if match is None:
        return None
    parts = tuple(_plain(part) for part in match.groups() if part is not None)
    return (parts[0], parts[1]) if len(parts) == 2 else (parts[0],), text[match.end() :]


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[0] == "`" else name


def _without_database(context: DdlContext) -> DdlContext:
    # The database gives the table its name and ``defaults``, and nothing else.
    return replace(context, default_db="") if context.default_db else context
