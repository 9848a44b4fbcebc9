"""Indexes: which columns they cover, and whether whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.ddl.statements import KeyPart, KeySpec
from airflow_provider_mysql_cdc.cdc.model.mysql_types import BLOB_BY_SIZE, TEXT_BY_SIZE, Metadata
from airflow_provider_mysql_cdc.cdc.model.table import Column, UniqueIndex, folded_name

_TYPES_WITHOUT_WHOLE_INDEX = frozenset((*TEXT_BY_SIZE, *BLOB_BY_SIZE))


def unique_index(name: str, parts: Sequence[KeyPart], columns: Sequence[str | None]) -> UniqueIndex:
    """Return a unique index.

    Args:
        name: Its name.
        parts: Its parts as the statement has them.
        columns: Their columns; None for an expression.
    """
    names = tuple(column for column in columns if column is not None)
    if len(names) < len(parts):
        return UniqueIndex(name, names, prefixed=True)
    return _with_prefixes(UniqueIndex(name, names), [part.prefix or 0 for part in parts])


def renamed_index(index: UniqueIndex, names: Sequence[str | None]) -> UniqueIndex:
    """Return a unique index with other names of its columns.

    Args:
        index: The index.
        names: A name for each of its columns; None for those that are dropped.
    """
    renamed = replace(index, columns=tuple(name for name in names if name is not None))
    if not index.prefixes:
        return renamed
    return _with_prefixes(renamed, [p for p, name in zip(index.prefixes, names, strict=True) if name is not None])


def with_whole_columns(index: UniqueIndex, column: Callable[[str], Column]) -> UniqueIndex:
    """Return a unique index that covers a column whole where its prefix reaches to the end of its present type.

    Such a column stays whole when it grows later (MySQL 9.7.4).

    Args:
        index: The index.
        column: Returns a column by name.
    """
    if not index.prefixes:
        return index
    pairs = zip(index.columns, index.prefixes, strict=True)
    return _with_prefixes(index, [0 if _is_whole(column(name), prefix) else prefix for name, prefix in pairs])


def _with_prefixes(index: UniqueIndex, prefixes: Sequence[int]) -> UniqueIndex:
    return replace(index, prefixed=any(prefixes), prefixes=tuple(prefixes) if any(prefixes) else ())


def _is_whole(column: Column, prefix: int) -> bool:
    """Return whether an index that covers so many characters or bytes of a column covers it whole (0 says so)."""
    if not prefix or column.type_name in _TYPES_WITHOUT_WHOLE_INDEX:
        return not prefix
    length = column.mysql_type.default_length if column.length is None else column.length
    has_length = any(form.metadata is Metadata.LENGTH for form in column.mysql_type.formats)
    return not has_length or prefix >= (length or 0)


def covers(columns: Sequence[str | None], required: Sequence[str | None]) -> bool:
    """Return whether an index begins with some columns.

    Args:
        columns: Its columns; None for an expression or a prefix.
        required: The columns.
    """
    first = columns[: len(required)]
    return [n and folded_name(n) for n in first] == [n and folded_name(n) for n in required]


def unprefixed_columns(key: KeySpec) -> tuple[str | None, ...]:
    """Return the columns of a key; None for an expression or a prefix.

    Args:
        key: The key.
    """
    return tuple(p.column if p.prefix is None else None for p in key.parts)
