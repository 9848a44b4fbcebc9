"""Statements that change the rows of captured tables, or their values and keys, without row events.

Rows whose values or keys ALTER TABLE changes without row events.

The server converts what is stored in a column, gives a name to another column, or lets other columns be the key; a row
that does not change afterwards keeps its last event. Source: MySQL manual, "ALTER TABLE Statement", "Server SQL Modes".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.table_options import schema_text, table_options
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, type_names
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, folded_name
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import EffectKind, column_origins, statement_effects

# Every statement with such an effect contains one of these words; others are not parsed a second time.
_KEYWORDS = re.compile("RENAME|PARTITION|TABLESPACE|ADD", re.IGNORECASE)
# A table without its tablespace cannot be read.
_DISCARD = re.compile(r"\bDISCARD\b[^;]*\bTABLESPACE\b", re.IGNORECASE)
_ROW_EFFECTS: dict[EffectKind, str] = {
    "rows": "EXCHANGE PARTITION, DISCARD TABLESPACE or IMPORT TABLESPACE removed or added rows",
    "partition rows": "the rows of partitions were removed",
}
_NO_ROWS_ENGINES = ("BLACKHOLE", "MERGE", "MRG_MYISAM")
"""Engines that keep none of the rows that a table has when it gets them; MERGE has those of other tables."""


class UnloggedChange(NamedTuple):
    """Say what happened to the rows of a table.

    Args:
        table: The table, by its name after the statement.
        what: What happened, as a clause.
        adds_rows: Whether the table may have rows that are in no event.
    """

    table: TableId
    what: str
    adds_rows: bool


def unlogged_changes(
    sql: str,
    context: DdlContext,
    captures: Callable[[TableId], bool],
    known: Callable[[TableId], bool],
    includes_column: Callable[[TableId, str], bool],
) -> list[UnloggedChange]:
    """Return the changes of rows of captured tables that a statement made without row events.

    Args:
        sql: Statement text.
        context: Its session settings.
        captures: Whether a table is captured.
        known: Whether a name is, or may be, that of a table before the statement; RENAME TABLE renames views as well.
        includes_column: Whether events have a column of a table.

    Raises:
        DdlParseError: The statement is DDL and cannot be parsed.
    """
    if _KEYWORDS.search(sql) is None:
        return []
    effects = statement_effects(sql, context)
    former = former_names((e.table, e.new_name) for e in effects if e.new_name is not None)
    names = {old: new for new, old in former.items()}
    discards = _DISCARD.search(sql) is not None
    changes = [
        UnloggedChange(e.table, _ROW_EFFECTS[e.kind], adds_rows=e.kind == "rows" and not discards)
        for e in effects
        if e.kind in _ROW_EFFECTS
    ]
    changes += (
        UnloggedChange(
            table, f"{', '.join(columns)} was added, and its values in the rows that were there are in no event", True
        )
        for e in effects
        for table in (names.get(e.table, e.table),)
        if (columns := [column for column in e.columns if includes_column(table, column)])
    )
    changes += (
        UnloggedChange(name, f"it was {former_name} before, and its rows are in no event under its new name", True)
        for name, former_name in former.items()
        if known(former_name)
    )
    return [change for change in dict.fromkeys(changes) if captures(change.table)]


def former_names(renames: Iterable[tuple[TableId, TableId]]) -> dict[TableId, TableId]:
    """Return the former name of each table that has another one after renames.

    Args:
        renames: Old and new name of each, in their order.
    """
    former: dict[TableId, TableId] = {}
    for old, new in renames:
        former[new] = former.pop(old, old)
    return {name: before for name, before in former.items() if name != before}


def removed_tables(
    applied: DdlResult, before: SchemaState, captures: Callable[[TableId], bool], *, publishes_truncates: bool
) -> list[UnloggedChange]:
    """Return the captured tables all of whose rows a statement removed, or took to another name.

    The binlog does not say whether a table had rows.

    Args:
        applied: What the statement did.
        before: Structures before it.
        captures: Whether a table is captured.
        publishes_truncates: Whether TRUNCATE TABLE of a table with a known structure has an event of its own.
    """
    removed = [
        UnloggedChange(table, what, adds_rows=False)
        for change in applied.changes
        for table, what in _removed_rows(change, before, applied.state)
        if captures(table) and not (publishes_truncates and change.kind == "TRUNCATE" and change.table is not None)
    ]
    return list(dict.fromkeys(removed))


def _removed_rows(change: TableChange, before: SchemaState, after: SchemaState) -> Iterator[tuple[TableId, str]]:
    """Yield the tables whose rows are gone after a change, with what happened."""
    table, former = change.id, change.previous_id
    if table is None:
        gone = [each for each in before.tables_of(change.db) if not after.has_table(each)]
        yield from ((each, "its database was dropped, with all its rows") for each in gone)
    elif former is not None:
        if before.has_table(former) and not after.has_table(former):
            yield former, f"it was renamed to {table}, with all its rows"
    elif change.kind == "TRUNCATE":
        yield table, "TRUNCATE TABLE removed all its rows"
    elif change.kind == "DROP":
        if before.has_table(table) or not change.ddl.startswith("DROP TABLE IF EXISTS"):
            yield table, "it was dropped, with all its rows"
    elif change.kind == "CREATE":
        if before.has_table(table):
            yield table, "it was created, and the DROP TABLE of an earlier table of this name is not in the binlog"
    elif (engine := _engine(change.table)) in _NO_ROWS_ENGINES and _engine(before.tables.get(table)) != engine:
        yield table, f"ENGINE={engine} removed all its rows"


def _engine(table: Table | None) -> str:
    return "" if table is None else (table.engine or "").upper()


_STRICT = 1 << 21 | 1 << 22
"""Bits of ``sql_mode``: STRICT_TRANS_TABLES and STRICT_ALL_TABLES, with which a value that does not fit is an error."""
_KINDS = ("ALTER", "RENAME", "INDEX")
_UNICODE = ("utf8mb4", "utf16", "utf16le", "utf32")
_LESS_THAN_SOME_VARCHAR = ("TINYTEXT", "TINYBLOB", "BINARY")
_SIZES = tuple(name for name in type_names(Family.TEXT, Family.BYTES) if name not in _LESS_THAN_SOME_VARCHAR)
"""Types in the order of what they hold."""


def altered_values(
    cfg: ConnectorConfig, applied: DdlResult, before: SchemaState, sql: str, context: DdlContext
) -> list[UnloggedChange]:
    """Return the captured tables whose rows a statement may have given other values or another key.

    Args:
        cfg: The connector's configuration.
        applied: What the statement did.
        before: Structures before it.
        sql: Its text.
        context: Its session.

    Raises:
        DdlParseError: The statement cannot be parsed.
    """
    altered = []
    for change in applied.changes:
        table, new = change.id, change.table
        old = before.tables.get(change.previous_id or table) if table is not None else None
        if table is None or new is None or old is None or not cfg.captures(table) or change.kind not in _KINDS:
            continue
        origins = column_origins(sql, context, table)
        whats = [*_altered_columns(cfg, old, new, origins, context), *_altered_key(cfg, old.with_id(table), new)]
        if whats:
            altered.append(UnloggedChange(table, "; ".join(whats), adds_rows=True))
    return altered


def _altered_key(cfg: ConnectorConfig, old: Table, new: Table) -> Iterator[str]:
    try:
        (names, schema), (new_names, new_schema) = (_key_form(cfg, table) for table in (old, new))
    except CdcError:  # a column that message.key.columns names is gone: the next row says so
        return
    if names != new_names:
        former, present = (f"({', '.join(each)})" if each else "none" for each in (names, new_names))
        yield f"the key of its records is {present}, it was {former}: those of earlier rows stay under their former key"
    elif schema != new_schema:
        yield "the schema in the key of its records changed: records of earlier rows stay under their former key"


def _key_form(cfg: ConnectorConfig, table: Table) -> tuple[tuple[str, ...], str | None]:
    options = table_options(cfg, table)
    names = tuple(column.name for column in key_columns(table, options))
    return names, None if cfg.is_ticdc else schema_text(cfg, table, options).key_schema


def _altered_columns(
    cfg: ConnectorConfig, old: Table, new: Table, origins: Mapping[str, str | None], context: DdlContext
) -> Iterator[str]:
    others, converted = [], []
    for column in new.columns:
        if not cfg.includes_column(new.id, column.name):
            continue
        folded = folded_name(column.name)
        origin = origins.get(folded, column.name)
        former = None if origin is None else old.column(origin)
        if origin is None or folded_name(origin) != folded:
            others += [column.name] if old.column(column.name) is not None else []
        if former is not None:
            is_computed = folded in origins and (former.generated or column.generated)
            converted += [column.name] if is_computed or not _keeps_values(former, column, context) else []
    if others:
        yield (
            f"{', '.join(others)} is another column than the one that had this name, and its values in the rows that "
            "were there are in no event"
        )
    if converted:
        yield f"{', '.join(converted)} was converted, and its values in the rows that were there may be others now"


def _keeps_values(old: Column, new: Column, context: DdlContext) -> bool:
    """Return whether each value that a column may have is the same after a conversion, or else refused."""
    is_strict = bool(context.sql_mode & _STRICT)
    if old.nullable and not new.nullable:
        fills_now = new.family is Family.TIMESTAMP and not context.explicit_defaults_for_timestamp
        if new.auto_increment or fills_now or not is_strict:
            return False
    if new.unsigned and not old.unsigned and not is_strict:
        return False
    keeps = _KEEPS.get(new.family)
    return old.family is new.family and (keeps is None or keeps(old, new, is_strict))


def _integer(old: Column, new: Column, is_strict: bool) -> bool:
    bits = 8 * new.mysql_type.width - (not new.unsigned)
    return is_strict or bits >= 8 * old.mysql_type.width - (not old.unsigned)


def _decimal(old: Column, new: Column, is_strict: bool) -> bool:
    (old_scale, old_digits), (scale, digits) = ((c.scale or 0, (c.length or 10) - (c.scale or 0)) for c in (old, new))
    return scale >= old_scale and (is_strict or digits >= old_digits)


def _real(old: Column, new: Column, is_strict: bool) -> bool:
    return new.scale is None or (new.length, new.scale) == (old.length, old.scale)


def _longer(old: Column, new: Column, is_strict: bool) -> bool:
    """Compare sizes: spaces at the end that do not fit are cut off in every mode, other text in a lax one."""
    if new.type_name == old.type_name:
        return (new.length or 0) >= (old.length or 0)
    if new.type_name in ("CHAR", "BINARY"):  # without spaces at the end, or with more bytes
        return False
    sizes = [_SIZES.index(c.type_name) if c.type_name in _SIZES else len(_SIZES) for c in (old, new)]
    return is_strict or sizes[0] < sizes[1] < len(_SIZES)


def _text(old: Column, new: Column, is_strict: bool) -> bool:
    return (is_strict or new.charset in (*_UNICODE, old.charset)) and _longer(old, new, is_strict)


def _bytes(old: Column, new: Column, is_strict: bool) -> bool:
    if new.type_name == old.type_name == "BINARY":
        return new.length == old.length
    return _longer(old, new, is_strict)


def _members(old: Column, new: Column, is_strict: bool) -> bool:
    """Return whether the members are there as they were; those of a SET are shown in their order."""
    kept = tuple(member for member in new.enum_values if member in old.enum_values)
    return kept == old.enum_values if new.family is Family.SET else set(kept) == set(old.enum_values)


def _digits(old: Column, new: Column, is_strict: bool) -> bool:
    return (new.length or 0) >= (old.length or 0)


_KEEPS: dict[Family, Callable[[Column, Column, bool], Any]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _real,
    Family.DOUBLE: _real,
    Family.BIT: lambda old, new, is_strict: is_strict or (new.length or 1) >= (old.length or 1),
    Family.TEXT: _text,
    Family.BYTES: _bytes,
    Family.ENUM: _members,
    Family.SET: _members,
    Family.TIME: _digits,
    Family.DATETIME: _digits,
    Family.TIMESTAMP: _digits,
}
