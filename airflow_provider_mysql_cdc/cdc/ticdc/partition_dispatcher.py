"""Partition dispatchers: choose the partition of a row in its topic.

==============  ======================================================================================================
dispatcher      rows that share a partition
==============  ======================================================================================================
default, table  all rows of a table, so that each of its changes stays in order
index-value     those with the same values of the key, or of the named unique index
columns         those with the same values in the named columns
ts              those of one transaction
==============  ======================================================================================================

The hash is TiCDC's: the exclusive or of CRC-32 sums, one of database and table, one of each column's name and value
(``pkg/hash/position_inertia.go``). Only ``table`` and ``index-value`` over the key keep the order of a key's changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import PartitionRule
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs

# Values of the columns as for ``value_text``, the transaction, number of partitions -> partition
Dispatch = Callable[[Mapping[str, object], CommitTs, int], int]


class AbsentValueError(ValueError):
    """Report that a row lacks a value that determines its partition."""


def value_text(value: object) -> str:
    """Return a value as the hash takes it.

    Args:
        value: None, a bool, an int, a float, or text.

    Raises:
        AbsentValueError: The row image leaves the column out.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return _plain_float(value)
    if value == {}:  # ABSENT_BEFORE_IMAGE of decode.codegen.unavailable
        raise AbsentValueError
    return str(value)


def _plain_float(value: float) -> str:
    """Return the shortest decimal text of a float without an exponent."""
    text = repr(value)
    if "e" in text:
        digits, _, power = text.partition("e")
        sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
        integer, _, fraction = digits.partition(".")
        point = len(integer) + int(power)
        digits = integer + fraction.rstrip("0")
        padded = digits.rjust(len(digits) + 1 - point, "0") if point < 1 else digits.ljust(point, "0")
        point = max(point, 1)
        text = sign + padded[:point] + ("." + padded[point:] if padded[point:] else "")
    return text.removesuffix(".0")


def dispatcher(table: Table, key: Sequence[str], rule: PartitionRule, where: str) -> Dispatch:
    """Return the function that returns a row's partition.

    Args:
        table: The table.
        key: Names of its key columns.
        rule: The rule that chooses the partition.
        where: The property, for errors.

    Raises:
        ConfigError: The rule names a column or an index that the table does not have.
    """
    if rule.name == "ts":
        return lambda row, at, count: at.value % count
    columns = dispatch_columns(table, key, rule, where)
    base_checksum = table_checksum(table)
    name_checksums = [(name, crc32(name.encode())) for name in columns]

    def dispatch(row: Mapping[str, object], commit_ts: CommitTs, count: int) -> int:
        """Return a row's partition; raise ``AbsentValueError`` where its image lacks a value."""
        checksum = base_checksum
        for name, name_checksum in name_checksums:
            checksum ^= crc32(value_text(row[name]).encode("utf-8", "replace"), name_checksum)
        return checksum % count

    return dispatch


def table_checksum(table: Table) -> int:
    """Return the checksum of a table's names, which is combined with those of its values.

    Args:
        table: The table.
    """
    return crc32(table.id.table.encode(), crc32(table.id.db.encode()))


def dispatch_columns(table: Table, key: Sequence[str], rule: PartitionRule, where: str) -> tuple[str, ...]:
    """Return the names of the columns whose values determine a row's partition; empty for ``ts``.

    Args:
        table: The table.
        key: Names of its key columns.
        rule: The rule that chooses the partition.
        where: The property, for errors.

    Raises:
        ConfigError: As for ``dispatcher``.
    """
    if rule.name in ("default", "table", "ts"):
        return ()
    if rule.name == "index-value":
        return _index_columns(table, key, rule.index, where)
    columns = [table.column(name) for name in rule.columns]
    missing = [name for name, column in zip(rule.columns, columns, strict=True) if column is None]
    if missing or not rule.columns:
        named = f"columns that the table does not have: {', '.join(missing)}" if missing else "no column"
        raise ConfigError(
            f"the dispatcher 'columns' names {named}",
            where=f"{where}, table {table.id}",
            why=f"the table's columns, without excluded ones, are {', '.join(column.name for column in table.columns)}",
            remedy="correct the columns of the dispatcher, or give the table a rule of its own before this one",
        )
    return tuple(column.name for column in columns if column is not None)


def _index_columns(table: Table, key: Sequence[str], index: str, where: str) -> tuple[str, ...]:
    if not index:
        # Columns count in the table's order.
        return tuple(column.name for column in table.columns if column.name in set(key))
    indexes = {i.name.lower(): i.columns for i in table.unique_keys}
    if table.primary_key:
        indexes["primary"] = table.primary_key
    columns = indexes.get(index.lower())
    missing = [name for name in columns or () if table.column(name) is None]
    if columns is None or missing:
        no_index = f"the table has no unique index of that name; its unique indexes are {', '.join(indexes) or 'none'}"
        raise ConfigError(
            f"the dispatcher 'index-value' names an index that cannot be used: {index}",
            where=f"{where}, table {table.id}",
            why=no_index if columns is None else f"columns of it are missing or excluded: {', '.join(missing)}",
            remedy="correct the index of the dispatcher, or give the table a rule of its own before this one",
        )
    return tuple(columns)
