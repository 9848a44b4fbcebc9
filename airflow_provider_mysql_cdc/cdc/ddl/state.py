"""Table structures of a server as of one binlog position, and the session context of a statement.

A mapping of thousands of entries of which each change makes a new version, without a copy of them all.

A server may have 10,000 tables, and the structures behind each statement are a value of their own: a copy of all names
for each CREATE TABLE is 10,000 times 10,000 entries. What changed since the last whole copy stands beside it, in two
small dicts; they are folded into a new whole copy when they have grown to the square root of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from math import isqrt
from typing import Any, TypeVar

from airflow_provider_mysql_cdc.cdc.ddl.collations import charset_by_id, collation_by_id, default_collation
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

K = TypeVar("K")
V = TypeVar("V")
_MIN_LAYER_CAPACITY = 32
_DELETED: Any = object()  # never leaves this process: a version is pickled as one dict


class LayeredMapping(Mapping[K, V]):
    """Hold a version of a mapping; its order is that of a dict with the same history.

    Args:
        entries: What it holds; not to be changed any more.
    """

    __slots__ = ("_added", "_base", "_changed", "_size")

    def __init__(self, entries: Mapping[K, V]) -> None:
        self._base: dict[K, V] = entries if type(entries) is dict else dict(entries)
        # Entries of the base that have another value, or none; entries behind those of the base.
        self._changed: dict[K, V] = {}
        self._added: dict[K, V] = {}
        self._size = len(entries)

    def __getitem__(self, key: K) -> V:
        value: V = self._added.get(key, _DELETED)
        if value is _DELETED:
            value = self._changed[key] if key in self._changed else self._base[key]
        if value is _DELETED:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        if key in self._added:
            return True
        changed: Mapping[Any, V] = self._changed
        return changed[key] is not _DELETED if key in changed else key in self._base

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        changed = self._changed
        base = (k for k in self._base if changed.get(k) is not _DELETED) if changed else iter(self._base)
        return chain(base, self._added)

    def __reduce__(self) -> tuple[Any, ...]:
        return LayeredMapping, (dict(self),)

    def __repr__(self) -> str:
        return f"LayeredMapping({dict(self)!r})"

    def with_entry(self, key: K, value: V) -> LayeredMapping[K, V]:
        """Return the mapping with an entry added, at its end, or replaced in its place."""
        updated = self._copy()
        if key in self and key not in self._added:
            updated._changed[key] = value
        else:
            updated._size += key not in self._added
            updated._added[key] = value
        return updated._compacted()

    def without(self, keys: Collection[K]) -> LayeredMapping[K, V]:
        """Return the mapping without some entries; those that are not there are passed over."""
        reduced = self._copy()
        for key in keys:
            if key not in reduced:
                continue
            reduced._size -= 1
            if key in reduced._added:
                del reduced._added[key]
            else:
                reduced._changed[key] = _DELETED
        return reduced._compacted()

    def _copy(self) -> LayeredMapping[K, V]:
        copy = LayeredMapping[K, V](self._base)
        copy._changed, copy._added, copy._size = self._changed.copy(), self._added.copy(), self._size
        return copy

    def _compacted(self) -> LayeredMapping[K, V]:
        if len(self._changed) + len(self._added) <= _MIN_LAYER_CAPACITY + 2 * isqrt(len(self._base)):
            return self
        merged = self._base.copy()
        for key, value in self._changed.items():
            if value is _DELETED:
                del merged[key]
            else:
                merged[key] = value
        merged.update(self._added)
        return LayeredMapping(merged)


def layered(entries: Mapping[K, V]) -> LayeredMapping[K, V]:
    """Return a mapping as one whose versions share their entries.

    Args:
        entries: The mapping; not to be changed any more.
    """
    return entries if isinstance(entries, LayeredMapping) else LayeredMapping(entries)


@dataclass(frozen=True, slots=True)
class DefaultCharset:
    """Hold a character set and collation, by default those of a database or the server.

    Args:
        charset: The character set's present-day name.
        collation: The collation's name.
        declared: The character set's name as the statement wrote it; empty when it equals ``charset``.
        assumed: Whether it may be another one (``Table.charset_assumed``).
    """

    charset: str
    collation: str
    declared: str = ""
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class NonUniqueIndex:
    """Describe an index that is not unique.

    Args:
        name: Its name.
        columns: Its columns; None stands for an expression.
        generated: Whether the server made it for a foreign key; an index that covers it replaces it.
    """

    name: str
    columns: tuple[str | None, ...]
    generated: bool = False


SERVER_DEFAULTS = DefaultCharset("utf8mb4", "utf8mb4_0900_ai_ci")


@dataclass(frozen=True, slots=True)
class DdlContext:
    """Hold what the session that ran a statement had set, as the binlog records it.

    Args:
        default_db: The session's database; empty when none.
        sql_mode: Bits of sql_mode.
        client_collation: Collation id of character_set_client, or None when not known.
        connection_collation: Collation id of collation_connection where its character set is another one, else None.
        server_collation: Collation id of collation_server, or None to use the state's.
        lower_case_table_names: The server's setting: 0 as written, 1 stored in lower case, 2 compared without case.
        default_collation_for_utf8mb4: Collation id that ``CHARSET utf8mb4`` without COLLATE means, or None.
        explicit_defaults_for_timestamp: OFF gives TIMESTAMP columns NOT NULL and defaults of their own.
        temporary: Whether the binlog marks the statement as one that used a temporary table (``ddl.classify``).
        atomic: Whether the server logged the statement as an atomic change of its dictionary.
        marks_atomic: Whether the server marks all statements that create InnoDB tables so; tables without ENGINE are.
        server_layout: Whether it has the layout in which the server writes out tables.
        utf8mb4_after_collate: Collation id that CHARSET utf8mb4 behind a COLLATE clause means: MySQL 5.7.22 and 8.0.15
            take the last clause of a table or database. None where COLLATE always counts (9.7.4).
        keeps_written_sizes: Whether a TEXT or BLOB type that is defined beside CONVERT TO stays as written (5.7.22).
    """

    default_db: str = ""
    sql_mode: int = 0
    client_collation: int | None = None
    server_collation: int | None = None
    lower_case_table_names: int = 0
    default_collation_for_utf8mb4: int | None = None
    explicit_defaults_for_timestamp: bool = True
    temporary: bool = False
    atomic: bool = False
    connection_collation: int | None = None
    server_layout: bool = False
    utf8mb4_after_collate: int | None = None
    keeps_written_sizes: bool = False
    marks_atomic: bool = False

    @classmethod
    def from_query(
        cls,
        query: Any,
        *,
        lower_case_table_names: int = 0,
        explicit_defaults_for_timestamp: bool = True,
        default_collation_for_utf8mb4: int | None = None,
        utf8mb4_after_collate: int | None = None,
        keeps_written_sizes: bool = False,
        marks_atomic: bool = False,
    ) -> DdlContext:
        """Take the context from a parsed QUERY event.

        Args:
            query: A ``binlog.event_parsers.QueryEvent``; what it does not carry keeps its default.
            lower_case_table_names: The server's setting.
            explicit_defaults_for_timestamp: What holds when the event does not say. MySQL 8.0 and later log it with
                statements that a client wrote with a TIMESTAMP column; 5.7 never does, so pass its global setting.
            default_collation_for_utf8mb4: The same; 5.7 has no such setting.
            utf8mb4_after_collate: What the server's version does.
            keeps_written_sizes: What the server's version does.
            marks_atomic: What the server does.
        """
        explicit = getattr(query, "explicit_defaults_for_timestamp", None)
        temporary = getattr(query, "temporary", False)
        client, connection = getattr(query, "client_charset", None), getattr(query, "collation_connection", None)
        is_other = None not in (client, connection) and charset_by_id(client or 0) != charset_by_id(connection or 0)
        return cls(
            default_db=query.db or "",
            sql_mode=getattr(query, "sql_mode", 0) or 0,
            client_collation=client,
            server_collation=getattr(query, "collation_server", None),
            lower_case_table_names=lower_case_table_names,
            default_collation_for_utf8mb4=getattr(query, "default_collation_for_utf8mb4", None)
            or default_collation_for_utf8mb4,
            explicit_defaults_for_timestamp=explicit_defaults_for_timestamp if explicit is None else explicit,
            temporary=temporary,
            atomic=getattr(query, "ddl_xid", None) is not None,
            connection_collation=connection if is_other else None,
            server_layout=getattr(query, "server_layout", False),
            utf8mb4_after_collate=utf8mb4_after_collate,
            keeps_written_sizes=keeps_written_sizes,
            marks_atomic=marks_atomic,
        )

    @property
    def client_charset(self) -> str:
        """The character set of the session's statements; utf8mb4 when it is not known."""
        return (None if self.client_collation is None else charset_by_id(self.client_collation)) or "utf8mb4"

    @property
    def literal_charset(self) -> str:
        """The character set to which the session converts string literals."""
        other = None if self.connection_collation is None else charset_by_id(self.connection_collation)
        return other or self.client_charset

    def collation_of(self, charset: str) -> str:
        """Return the default collation of a charset in this session."""
        if charset == "utf8mb4" and self.default_collation_for_utf8mb4 is not None:
            collation = collation_by_id(self.default_collation_for_utf8mb4)
            if collation is not None and collation.charset == charset:
                return collation.name
        return default_collation(charset)

    def server_defaults(self, fallback: DefaultCharset) -> DefaultCharset:
        """Return charset and collation of collation_server, or ``fallback`` when it is not known."""
        collation = None if self.server_collation is None else collation_by_id(self.server_collation)
        return fallback if collation is None else DefaultCharset(collation.charset, collation.name)


@dataclass(frozen=True, slots=True)
class UnparsedTable:
    """Hold the CREATE TABLE statement of a table whose structure nobody has asked for yet.

    Args:
        sql: The statement, as SHOW CREATE TABLE gives it: it names the character set.
        context: Its session.
    """

    sql: str
    context: DdlContext


@dataclass(frozen=True, slots=True)
class SchemaState:
    """Hold the structures of all known tables. Versions share what did not change (``ddl.state``).

    Args:
        tables: Structures by name.
        database_defaults: Default character sets by database name.
        server_defaults: The server's default character set.
        non_unique_indexes: Indexes which are not unique, by table: MySQL derives names of new indexes from the names
            in use.
        unparsed: Tables that are not captured, with the statements to read their structures from: a server may have
            thousands, and a statement takes about a millisecond.
    """

    tables: Mapping[TableId, Table] = field(default_factory=dict)
    database_defaults: Mapping[str, DefaultCharset] = field(default_factory=dict)
    server_defaults: DefaultCharset = SERVER_DEFAULTS
    non_unique_indexes: Mapping[TableId, tuple[NonUniqueIndex, ...]] = field(default_factory=dict)
    unparsed: Mapping[TableId, UnparsedTable] = field(default_factory=dict)

    def has_table(self, table_id: TableId) -> bool:
        """Return whether a table exists, its structure read or not."""
        return table_id in self.tables or table_id in self.unparsed

    def with_unparsed(self, tables: Mapping[TableId, UnparsedTable]) -> SchemaState:
        """Return the state with these tables added or replaced."""
        return replace(self.without_tables(*tables), unparsed={**self.unparsed, **tables}) if tables else self

    def with_table(self, table: Table, non_unique_indexes: tuple[NonUniqueIndex, ...] = ()) -> SchemaState:
        """Return the state with this table added or replaced."""
        indexes = self.non_unique_indexes
        if non_unique_indexes or table.id in indexes:
            indexes = layered(indexes).with_entry(table.id, non_unique_indexes)
        unparsed = layered(self.unparsed).without((table.id,)) if table.id in self.unparsed else self.unparsed
        tables = layered(self.tables).with_entry(table.id, table)
        return SchemaState(tables, self.database_defaults, self.server_defaults, indexes, unparsed)

    def without_tables(self, *ids: TableId) -> SchemaState:
        """Return the state without these tables; ``self`` when none of them is known."""
        if not any(map(self.has_table, ids)):
            return self
        return replace(
            self,
            tables=layered(self.tables).without(ids),
            non_unique_indexes=layered(self.non_unique_indexes).without(ids),
            unparsed=layered(self.unparsed).without(ids),
        )

    def with_database(self, name: str, defaults: DefaultCharset) -> SchemaState:
        """Return the state with a database's defaults set; ``self`` when they are set already."""
        if self.database_defaults.get(name) == defaults:
            return self
        return replace(self, database_defaults={**self.database_defaults, name: defaults})

    def without_database(self, name: str) -> SchemaState:
        """Return the state without a database and its tables."""
        state = self.without_tables(*self.tables_of(name))
        if name not in state.database_defaults:
            return state
        return replace(state, database_defaults={k: v for k, v in state.database_defaults.items() if k != name})

    def with_server_defaults(self, defaults: DefaultCharset) -> SchemaState:
        """Return the state with the server's defaults set."""
        return self if defaults == self.server_defaults else replace(self, server_defaults=defaults)

    def tables_of(self, db: str) -> tuple[TableId, ...]:
        """Return the names of a database's tables, those that were read first, in order of creation."""
        return tuple(i for i in (*self.tables, *self.unparsed) if i.db == db)

    def defaults_of(self, db: str, context: DdlContext) -> DefaultCharset:
        """Return the character set a new table of ``db`` gets without a CHARSET clause."""
        return self.database_defaults.get(db) or context.server_defaults(self.server_defaults)

    def stored_name(self, table_id: TableId, context: DdlContext) -> TableId:
        """Return the name under which the server keeps a table (lower_case_table_names)."""
        if context.lower_case_table_names == 0 or self.has_table(table_id):
            return table_id
        folded = table_id.folded()
        if context.lower_case_table_names == 1:
            return folded
        return next((i for i in (*self.tables, *self.unparsed) if i.folded() == folded), table_id)
