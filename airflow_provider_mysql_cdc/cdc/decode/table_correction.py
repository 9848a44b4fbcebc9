"""Correct a table's structure in the schema history by the metadata in its TABLE_MAP event.

With ``binlog_row_metadata=FULL`` a TABLE_MAP has the names, signedness, collations, members, visibility and primary key
that the server had for the rows after it. They replace what the schema history says, which keeps what a TABLE_MAP does
not have: defaults, comments, unique indexes, generated columns, and declared types where they fit, such as BOOL.
Without it, the default character set of a table is corrected, if the server left it out of the table's statement.

Of a table without a primary key, MySQL writes its first unique index without nullable columns as the primary key
(``TABLE_SHARE::primary_key``, MySQL 9.7.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.ddl.collations import collation_by_id
from airflow_provider_mysql_cdc.cdc.decode.table_check import (
    ColumnMetadata,
    check_table_map,
    column_metadata,
    type_fits,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column, Interned, Table, UniqueIndex, folded_name, interned

_MAX_SHOWN = 5
_VALUE_SET = ("type_name", "length", "scale", "unsigned", "enum_values")
"""Attributes that say which values a column can have."""
_SHOWN_ATTRIBUTES = ("nullable", "unsigned", "charset", "collation", "enum_values", "invisible")

_AGREED: set[tuple[Interned[tuple[Column, ...]], tuple[str, ...] | tuple[UniqueIndex, ...], bytes]] = set()
"""Columns and keys that agreed with a TABLE_MAP event; thousands of tables may share both."""
_MAX_AGREED = 1_024


@dataclass(frozen=True, slots=True)
class TableCorrection:
    """Hold a structure that a TABLE_MAP event corrects.

    Args:
        table: The corrected structure.
        previous: The structure in the schema history.
    """

    table: Table
    previous: Table

    def differences(self) -> str:
        """Return what is corrected, as a text."""
        texts = list(_differences(self.previous, self.table))
        more = f"; and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
        return "; ".join(texts[:_MAX_SHOWN]) + more


def find_correction(table: Table, table_map: TableMap) -> TableCorrection | None:
    """Compare a table with the TABLE_MAP event that announces its rows.

    Args:
        table: The table as of this point of the binlog.
        table_map: The event.

    Returns:
        The correction; None where both agree.

    Raises:
        SchemaMismatchError: They differ, and the event does not have the metadata to correct the structure.
    """
    agreed = interned(table.columns), table.primary_key or table.unique_keys, table_map.layout
    if agreed in _AGREED:
        return None
    if table_map.names is None:
        known = _with_default_charset(table, table_map)
        check_table_map(known, table_map)
        return None if known is table else TableCorrection(known, table)
    corrected = corrected_table(table, table_map)
    if corrected is not table:
        return TableCorrection(corrected, table)
    if table_map.layout:
        if len(_AGREED) >= _MAX_AGREED:
            _AGREED.clear()
        _AGREED.add(agreed)
    return None


def corrected_table(table: Table, table_map: TableMap) -> Table:
    """Return a table with what its TABLE_MAP event has; the same object where both agree.

    Args:
        table: The table in the schema history.
        table_map: The event; it has the names of the columns.

    Raises:
        SchemaMismatchError: A column's type is not known.
    """
    names = table_map.names or ()
    known = _known_columns(table.columns, names)
    columns = tuple(
        _corrected_column(table, each, column_metadata(table_map, index)) for index, each in enumerate(known)
    )
    changes: dict[str, Any] = {}
    if columns != table.columns:
        changes["columns"] = columns
        new_names = {old.name: new.name for old, new in zip(known, columns, strict=True) if old is not None}
        changes["unique_keys"] = tuple(_renamed_indexes(table, new_names))
    corrected = replace(table, **changes) if changes else table
    primary_key = _corrected_key(corrected, tuple(names[index] for index in table_map.primary_key or ()))
    return corrected if primary_key == table.primary_key else replace(corrected, primary_key=primary_key)


def _with_default_charset(table: Table, table_map: TableMap) -> Table:
    """Return a table with another default character set, if that makes its columns those of an event without names.

    Only where the statement that made the table leaves it out (``Table.charset_assumed``). Columns without a character
    set of their own then have the database's in the schema history. Members of ENUM and SET are
    told by the statement; their character set is compared with the server's after the batch (``structure_check``).
    """
    if not table.charset_assumed:
        return table
    numbers = table_map.charsets or ()
    told = {
        column.name: collation
        for column, number in zip(table.columns, numbers, strict=False)
        if column.mysql_type.collated and column.charset == table.charset and number is not None
        for collation in [collation_by_id(number)]
        if collation is not None and collation.charset not in (column.charset, "binary")
    }
    if len(numbers) != len(table.columns) or len({collation.charset for collation in told.values()}) != 1:
        return table
    columns = tuple(
        replace(column, charset=told[column.name].charset, collation=told[column.name].name, declared_charset="")
        if column.name in told
        else column
        for column in table.columns
    )
    default = next(iter(told.values()))
    return replace(
        table,
        columns=columns,
        charset=default.charset,
        collation=default.name,
        declared_charset="",
        charset_assumed=False,
    )


def _corrected_key(table: Table, key: tuple[str, ...]) -> tuple[str, ...]:
    """Return the primary key of a table whose event has a key, which may be a unique index without nullable columns."""
    if _same_names(key, table.primary_key):
        return table.primary_key
    return () if any(_same_names(key, index.columns) for index in table.not_null_keys()) else key


def _same_names(names: Sequence[str], others: Sequence[str]) -> bool:
    return list(map(folded_name, names)) == list(map(folded_name, others))


def _known_columns(columns: Sequence[Column], names: Sequence[str]) -> list[Column | None]:
    """Return the history's column for each name, and for a name that it lacks the one at its place if that is left."""
    left = {column.name: column for column in columns}
    known = [left.pop(name, None) for name in names]
    by_folded_name = {folded_name(column.name): column for column in left.values()}
    for index, name in enumerate(names):
        if known[index] is None and (column := by_folded_name.pop(folded_name(name), None)) is not None:
            known[index] = left.pop(column.name)
    if len(columns) == len(names):
        for index, column in enumerate(columns):
            if known[index] is None and column.name in left:
                known[index] = left.pop(column.name)
    return known


def _corrected_column(table: Table, known: Column | None, actual: ColumnMetadata) -> Column:
    """Return a column with the metadata of the event."""
    if known is None:
        return actual.column(table)
    same_type = type_fits(known, actual)
    if not same_type and folded_name(known.name) != folded_name(actual.name):
        return actual.column(table)  # another column at the place of this one
    values = actual.values(known) if same_type else _values_of_new_type(known, actual.column(table))
    values |= {"name": actual.name, "position": actual.position, "nullable": actual.nullable}
    if actual.visible is not None:
        values["invisible"] = not actual.visible
    values |= _default_values(known, values)
    changes = {name: value for name, value in values.items() if getattr(known, name) != value}
    return replace(known, **changes) if changes else known


_OF_THE_TYPE = (
    *("type_name", "declared_type", "length", "scale", "unsigned"),
    *("charset", "declared_charset", "collation", "enum_values"),
)


def _values_of_new_type(known: Column, column: Column) -> dict[str, Any]:
    """Return the type of another column, without what the earlier type alone can have."""
    new_type = column.mysql_type
    same_family = known.family is new_type.family and not new_type.has_members
    values: dict[str, Any] = {name: getattr(column, name) for name in _OF_THE_TYPE}
    values["zerofill"] = known.zerofill and column.unsigned
    values["auto_increment"] = known.auto_increment and same_family
    values["on_update"] = known.on_update and new_type.updates_itself
    values["srid"] = known.srid if same_family else None
    return values


def _default_values(known: Column, values: dict[str, Any]) -> dict[str, Any]:
    """Return the default of a column: that in the history if the type is the same, else NULL where it may be NULL.

    Also a nullable column may have no default (``ALTER ... DROP DEFAULT``).
    """
    same_values = all(values.get(name, old) == old for name in _VALUE_SET for old in [getattr(known, name)])
    if same_values and (known.default is not None or known.nullable == values["nullable"]):
        return {}
    nothing = {"default": None, "default_is_expression": False, "stored_default": None}
    return {"has_default": values["nullable"], **nothing}


def _renamed_indexes(table: Table, new_names: dict[str, str]) -> Iterator[UniqueIndex]:
    """Yield the indexes of a table without those of columns that are gone, with the new names of columns.

    Args:
        table: The table in the schema history.
        new_names: New names by the names there.
    """
    by_folded_name = {folded_name(column.name): new_names.get(column.name) for column in table.columns}
    for index in table.unique_keys:
        # A part that is an expression has no column.
        columns = [new_names.get(name, by_folded_name.get(folded_name(name), name)) for name in index.columns]
        kept = tuple(name for name in columns if name is not None)
        if len(kept) == len(columns):
            yield index if _same_names(kept, index.columns) else replace(index, columns=kept)


def _differences(previous: Table, table: Table) -> Iterator[str]:
    before, after = (", ".join(column.name for column in each.columns) for each in (previous, table))
    if before != after:
        yield f"the columns are ({before}) in the schema history, ({after}) in the binlog"
    if previous.primary_key != table.primary_key:
        keys = (", ".join(each.primary_key) or "none" for each in (previous, table))
        yield "the primary key is {} in the schema history, {} in the binlog".format(*keys)
    for column in table.columns:
        known = previous.column(column.name)
        if known is None:
            continue
        pairs = [("type", _type_text(known), _type_text(column))]
        pairs += [(name, getattr(known, name), getattr(column, name)) for name in _SHOWN_ATTRIBUTES]
        for name, old, new in pairs:
            if old != new:
                yield f"{name} of column {column.name} is {old} in the schema history, {new} in the binlog"


def _type_text(column: Column) -> str:
    numbers = ",".join(str(n) for n in (column.length, column.scale) if n is not None)
    return f"{column.type_name}({numbers})" if numbers else column.type_name
