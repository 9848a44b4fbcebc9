"""Rows whose values or keys ALTER TABLE changes without row events.

The server converts what is stored in a column, gives a name to another column, or lets other columns be the key; a row
that does not change afterwards keeps its last event. Source: MySQL manual, "ALTER TABLE Statement", "Server SQL Modes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.table_options import schema_text, table_options
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, type_names
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, folded_name
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import column_origins
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import UnloggedChange

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
