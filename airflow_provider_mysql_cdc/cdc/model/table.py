"""Tables and columns as immutable values.

What stands for a large value that many tables have in common, in the keys of caches.

A server with thousands of tenants has thousands of tables of a few shapes. Hashing seven columns takes 10 microseconds,
and comparing them as long; so equal values get one object that stands for them all, and is compared by identity.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote

from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, MySqlType, mysql_type
from airflow_provider_mysql_cdc.cdc.model.name_folding import RUNS

_UNRESERVED = re.compile("[A-Za-z0-9_~-]*")


def quote_name(name: str) -> str:
    """Return an identifier as SQL, in backticks."""
    return "`" + name.replace("`", "``") + "`"


def folded_name(name: str) -> str:
    """Return a name in lower case, as MySQL compares names, and with lower_case_table_names=1 stores them.

    Each character by itself, so ``İ`` is ``i`` and ``Σ`` is ``σ`` at the end of a name too; letters that came after
    Unicode 3.1 have one case (``name_folding``). ``str.lower`` does neither.

    Args:
        name: The name.
    """
    return name.lower() if name.isascii() else name.translate(_lower_case())


@cache
def _lower_case() -> dict[int, int]:
    table = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
    for first, last, step, distance in re.findall(r"(\w+)-(\w+)/(\d)([+-]\d+)", RUNS):
        codes = range(int(first, 16), int(last, 16) + 1, int(step))
        table.update((code, code + int(distance)) for code in codes)
    return table


def matching_name(names: Iterable[str], name: str) -> str | None:
    """Return the one of some columns' names that MySQL takes for a name (``folded_name``), or None.

    Args:
        names: The names.
        name: The name as a statement or an event has it.
    """
    folded = folded_name(name)
    return next((each for each in names if folded_name(each) == folded), None)


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """Name a table.

    Args:
        db: Database name as MySQL writes it.
        table: Table name as MySQL writes it.
    """

    db: str
    table: str

    def __str__(self) -> str:
        return f"{self.db}.{self.table}"

    def quoted(self) -> str:
        """Return the name as SQL with backticks."""
        return f"{quote_name(self.db)}.{quote_name(self.table)}"

    def folded(self) -> TableId:
        """Return the name in lower case (``folded_name``)."""
        return TableId(folded_name(self.db), folded_name(self.table))

    def path(self) -> str:
        """Return ``db.table`` percent-encoded: the last part of the table's URI, in which one dot separates both."""
        return f"{_percent_encode(self.db)}.{_percent_encode(self.table)}"

    @classmethod
    def from_path(cls, path: str) -> TableId:
        """Return the table of what ``path`` returned.

        Args:
            path: ``db.table``, percent-encoded.
        """
        db, _, table = path.partition(".")
        return cls(unquote(db), unquote(table))

    def debezium_id(self) -> str:
        """Return ``"db"."table"``, the id of a table change (SCH-39).

        Double quotes within a name are doubled; a name that begins or ends with one stays as it is (read from
        Debezium 3.6.1, ``TableId.quote``), so that the id does not always tell the name.
        """
        return f"{_double_quoted(self.db)}.{_double_quoted(self.table)}"


def _double_quoted(name: str) -> str:
    return name if '"' in (name[:1], name[-1:]) else '"' + name.replace('"', '""') + '"'


def _percent_encode(name: str) -> str:
    return name if _UNRESERVED.fullmatch(name) else quote(name, safe="").replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one column as of one point of the binlog.

    Args:
        name: Column name.
        position: 1-based place in the table.
        type_name: Base type in upper case after resolving synonyms: the name of a row in ``mysql_types``.
        declared_type: The type words as the DDL wrote them, upper case without arguments and attributes
            (``INTEGER``, ``BOOL``, ``NUMERIC``, ``REAL``); equals ``type_name`` when no synonym was used.
        length: Display width, precision, character length, fraction digits (temporal) or dimensions, as declared.
        scale: Digits after the point, as declared.
        unsigned: UNSIGNED (ZEROFILL implies it).
        zerofill: ZEROFILL.
        nullable: Whether NULL is allowed.
        charset: MySQL character set name of a character type (also ENUM and SET); None for all other types.
        collation: MySQL collation name, where ``charset`` is set.
        has_default: Whether a default exists (explicit, or the implicit NULL of a nullable column).
        default: Default literal as text without quotes, or the expression's text; None for NULL or no default.
        default_is_expression: Whether ``default`` is an expression (CURRENT_TIMESTAMP, (uuid()), b'1' is not).
        auto_increment: AUTO_INCREMENT.
        generated: GENERATED ALWAYS AS (virtual or stored).
        enum_values: Members of ENUM or SET in order.
        comment: COMMENT text or None.
        srid: SRID attribute of a spatial column or None.
        invisible: INVISIBLE.
        on_update: Whether ON UPDATE CURRENT_TIMESTAMP is set.
        declared_charset: The character set's name as the DDL wrote it (``utf8``); empty when it equals ``charset``.
        stored_default: What the server stores for the literal ``default``, as SELECT prints it (of BIT and binary
            columns a character for each byte); None where it cannot be told.
    """

    name: str
    position: int
    type_name: str
    declared_type: str = ""
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    nullable: bool = True
    charset: str | None = None
    collation: str | None = None
    has_default: bool = False
    default: str | None = None
    default_is_expression: bool = False
    auto_increment: bool = False
    generated: bool = False
    enum_values: tuple[str, ...] = ()
    comment: str | None = None
    srid: int | None = None
    invisible: bool = False
    on_update: bool = False
    declared_charset: str = ""
    stored_default: str | None = None

    @property
    def has_known_default(self) -> bool:
        """Whether its definition says the value of the rows that are there when it is added: a literal, or NULL."""
        computed = self.generated or self.auto_increment or self.default_is_expression
        return not computed and (self.default is not None or self.nullable)

    @property
    def mysql_type(self) -> MySqlType:
        """Return the row of its type."""
        return mysql_type(self.type_name)

    @property
    def family(self) -> Family:
        """Return the family of its type."""
        return mysql_type(self.type_name).family


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """Describe a unique index.

    Args:
        name: Index name.
        columns: Column names in index order.
        prefixed: Whether any part covers only a prefix or an expression (then it cannot serve as a key).
        prefixes: How many characters or bytes of each column it covers, 0 for a whole one; empty where all are whole,
            or where it has an expression.
    """

    name: str
    columns: tuple[str, ...]
    prefixed: bool = False
    prefixes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Describe a table as of one point of the binlog.

    Args:
        id: The table's name.
        columns: All columns in order, invisible and generated ones too.
        primary_key: Column names of the primary key in key order, or empty.
        unique_keys: Unique indexes in the order of definition.
        charset: Default character set name.
        collation: Default collation name.
        comment: Table comment or None.
        engine: Storage engine as declared or None.
        declared_charset: The default character set's name as the DDL wrote it; empty when it equals ``charset``.
        charset_assumed: Whether the default character set is that of the database because a statement that the server
            wrote out names none: it leaves table options out with sql_mode ANSI, and in CREATE TABLE ... LIKE of a
            temporary table (MySQL 9.7.4).
    """

    id: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[UniqueIndex, ...] = ()
    charset: str | None = None
    collation: str | None = None
    comment: str | None = None
    engine: str | None = None
    declared_charset: str = ""
    charset_assumed: bool = False

    def column(self, name: str) -> Column | None:
        """Return the column of that name (MySQL compares column names without case, ``folded_name``), or None."""
        for column in self.columns:
            if column.name == name:
                return column
        folded = folded_name(name)
        return next((c for c in self.columns if folded_name(c.name) == folded), None)

    def with_id(self, table_id: TableId) -> Table:
        """Return the table under another name; ``dataclasses.replace`` takes four times as long.

        Args:
            table_id: The name.
        """
        return Table(
            table_id,
            self.columns,
            self.primary_key,
            self.unique_keys,
            self.charset,
            self.collation,
            self.comment,
            self.engine,
            self.declared_charset,
            self.charset_assumed,
        )

    def key_columns(self) -> tuple[str, ...]:
        """Return the columns of the event key: the primary key, else the first unique index without nullable columns.

        Source: EVT-08, EVT-09.
        """
        if self.primary_key:
            return self.primary_key
        return next((index.columns for index in self.not_null_keys()), ())

    def not_null_keys(self) -> Iterator[UniqueIndex]:
        """Yield the unique indexes of whole columns that are not nullable."""
        for index in self.unique_keys:
            columns = [self.column(c) for c in index.columns]
            if not index.prefixed and all(c is not None and not c.nullable for c in columns):
                yield index


T = TypeVar("T", bound=Hashable)
_MAX_VALUES = 1_024
"""Different values that are remembered."""
_MAX_OBJECTS = 16_384
"""Objects that are remembered to be one of them."""


class Interned(Generic[T]):
    """Stand for all values that are equal to one; made by ``interned`` alone.

    Args:
        value: That value.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


_interned_by_value = lru_cache(maxsize=_MAX_VALUES)(Interned)
# By id: the object, which keeps the id from being another's, and what stands for it.
_interned_by_id: dict[int, tuple[Any, Interned[Any]]] = {}


def interned(value: T) -> Interned[T]:
    """Return what stands for a value: the same object for equal ones, as long as it is remembered.

    Args:
        value: The value; not to be changed any more.

    Raises:
        TypeError: It cannot be hashed.
    """
    cached = _interned_by_id.get(id(value))
    if cached is not None and cached[0] is value:
        return cached[1]
    result: Interned[T] = _interned_by_value(value)
    if len(_interned_by_id) >= _MAX_OBJECTS:
        _interned_by_id.clear()
    _interned_by_id[id(value)] = value, result
    return result
