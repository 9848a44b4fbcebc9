"""Records of the schema change topic.

The 3.x format is what Debezium 3.6.1 writes; the 1.9 format is that of the seeds (SCH-33 to SCH-43), with source struct
``v1`` the oldest one (SCH-28 to SCH-31). A record describes one statement: Debezium splits DROP and RENAME of several
tables, and so does ``ddl.apply_ddl``; the oldest format has one record for all tables of one database (SCH-23).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import default_literal
from airflow_provider_mysql_cdc.cdc.convert.connect_types import (
    charset_name,
    declared_length,
    declared_scale,
    jdbc_type,
    type_expression,
)
from airflow_provider_mysql_cdc.cdc.convert.json_text import RawJson, dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import (
    RECENT_COLUMN_MEMBERS,
    Contract,
    change_key_schema,
    change_value_schema,
    contract,
)
from airflow_provider_mysql_cdc.cdc.emit.source_block import RowEvent, SourceTransaction, source_dict
from airflow_provider_mysql_cdc.cdc.model.java import hash_set_order
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, quote_name


class SchemaChangeEntry(Protocol):
    """The change of one table in a record (``ddl.apply.TableChange`` fits)."""

    @property
    def kind(self) -> str:
        """What happened, see ``ddl.apply_ddl.ChangeKind``."""

    @property
    def id(self) -> TableId | None:
        """The table after the change; None for a database."""

    @property
    def previous_id(self) -> TableId | None:
        """The table's name before, when it was renamed."""

    @property
    def table(self) -> Table | None:
        """The structure after the change, None for a dropped table."""

    @property
    def ddl(self) -> str:
        """The statement."""

    @property
    def db(self) -> str:
        """The database the statement belongs to."""

    @property
    def listed(self) -> bool:
        """Whether ``tableChanges`` has an entry for it."""


@dataclass(frozen=True, slots=True)
class SchemaChangeRecord:
    """Hold key and value of one record."""

    key: bytes
    value: bytes


_MAX_SHAPES = 256  # tables that differ in more than their names, of which is remembered how they are described
_UNNAMED_TABLE = TableId("", "")
_CHANGE_TYPES = {"CREATE": "CREATE", "ALTER": "ALTER", "RENAME": "ALTER", "DROP": "DROP"}


def column_dict(column: Column, *, recent: bool = True, comments: bool = False) -> dict[str, Any]:
    """Return a column as schema changes describe it (SCH-41, SCH-42).

    Args:
        column: The column.
        recent: Whether to write the members that came after 1.9.
        comments: ``include.schema.comments``.
    """
    # ON UPDATE CURRENT_TIMESTAMP counts as generated, a GENERATED ALWAYS column does not (read from Debezium 3.6.1).
    automatic = column.auto_increment or column.on_update
    out = {
        "name": column.name,
        "jdbcType": jdbc_type(column),
        "nativeType": None,
        "typeName": type_expression(column),
        "typeExpression": type_expression(column),
        "charsetName": charset_name(column),
        "length": declared_length(column),
        "scale": declared_scale(column),
        "position": column.position,
        "optional": column.nullable,
        "autoIncremented": automatic,
        "generated": automatic,
    }
    if recent:
        quoted = ["'{}'".format(v.replace("'", "''")) for v in column.enum_values]
        values = (column.comment if comments else None, default_literal(column), quoted or None)
        out |= dict(zip(RECENT_COLUMN_MEMBERS, values, strict=True))
    else:
        out["comment"] = column.comment if comments else None
    return out


def table_dict(table: Table, *, recent: bool = True, comments: bool = False) -> dict[str, Any]:
    """Return a table as schema changes describe it (SCH-40); tables of one structure share it, so it is only read.

    Args:
        table: The table; the result does not contain its name.
        recent: Whether to write the members that came after 1.9.
        comments: ``include.schema.comments``.
    """
    return _table_description(table.with_id(_UNNAMED_TABLE), recent, comments)[0]


@lru_cache(maxsize=_MAX_SHAPES)
def _table_description(table: Table, recent: bool, comments: bool) -> tuple[dict[str, Any], RawJson]:
    """Return a table as schema changes describe it, and the text of that."""
    out: dict[str, Any] = {
        "defaultCharsetName": table.declared_charset or table.charset,
        "primaryKeyColumnNames": list(table.key_columns()),
        "columns": [column_dict(c, recent=recent, comments=comments) for c in table.columns],
    }
    out["comment"] = table.comment if comments else None
    return out, RawJson(dumps(out))


@dataclass(frozen=True)
class SchemaChangeFormat:
    """Write schema change records of one connector.

    Args:
        prefix: ``topic.prefix``, the value of ``source.name``.
        version: Contract version.
        key_schema: ``key.converter.schemas.enable``.
        value_schema: ``value.converter.schemas.enable``.
        comments: ``include.schema.comments``.
        clock_ns: Current time in nanoseconds since the epoch.
        source_struct: ``source.struct.version``.
        describes: Whether ``tableChanges`` lists a table; Debezium 1.9 lists captured tables only.
    """

    prefix: str
    version: str = "3.x"
    key_schema: bool = True
    value_schema: bool = True
    comments: bool = False
    clock_ns: Callable[[], int] = field(default=time.time_ns)
    source_struct: str = "v2"
    describes: Callable[[TableId], bool] = lambda _: True

    @cached_property
    def layout(self) -> Contract:
        """The event contract."""
        return contract(self.version, source_struct=self.source_struct)

    @property
    def records_truncations(self) -> bool:
        """Whether TRUNCATE TABLE has a record, as in Debezium 1.9."""
        return not self.layout.recent and not self.layout.flat_changes

    @cached_property
    def _schemas(self) -> tuple[str, str]:
        return dumps(change_key_schema(self.layout)), dumps(change_value_schema(self.layout))

    def stream_records(
        self,
        changes: Sequence[SchemaChangeEntry],
        event: RowEvent,
        transaction: SourceTransaction,
        *,
        in_transaction: bool = False,
        row: int = 0,
        is_included: Callable[[Any], bool] = lambda _: True,
        session_db: str | None = None,
    ) -> Iterator[SchemaChangeRecord]:
        """Yield the records of one statement of the stream, one per change; each names all tables of the statement.

        Args:
            changes: The statement's changes from ``ddl.apply_ddl``; truncations have a record in contract 1.9 only.
            event: The statement's QUERY event.
            transaction: The transaction around it.
            in_transaction: Whether the statement is between BEGIN and COMMIT (CREATE TABLE ... SELECT); only then
                the record has the thread.
            row: Value of ``source.row``; Debezium leaves the row number of the last row event there.
            is_included: Whether a change gets a record; each record still names all tables of the statement.
            session_db: The session's database, empty for none; None where no session made the changes.
        """
        recorded = [c for c in changes if c.kind != "TRUNCATE" or self.records_truncations]
        ms = transaction.commit_us // 1000 or event.timestamp * 1000
        source_values: dict[str, Any] = {
            "ts_ns": ms * 1_000_000,
            "ts_sec": ms // 1000,
            "file": event.file,
            "pos": event.start_pos,
            "row": row,
            "server_id": event.server_id,
            "gtid": transaction.gtid,
            "thread": transaction.thread or None if in_transaction else None,
        }
        if self.layout.flat_changes:
            source = self._source("", None, "false", **source_values)
            for db, ddl in _ddl_by_database([c for c in recorded if is_included(c)]):
                yield self.record(db, ddl, (), source)
            return
        for db, group in groupby(recorded, lambda c: _database_name(c, session_db)):
            changes = list(group)
            names = _table_names(c.id for c in changes if c.id is not None)
            for change in filter(is_included, changes):
                source = self._source(db, _source_table(change, names), "false", **source_values)
                yield self.record(db, change.ddl, (change,) if change.listed else (), source)

    def snapshot_records(
        self,
        statements: Sequence[SnapshotStatement],
        tables: Mapping[TableId, Table],
        offset: BinlogOffset,
        *,
        final: bool = False,
    ) -> list[SchemaChangeRecord]:
        """Return the records of a snapshot's statements (SNAP-15, SCH-26).

        Args:
            statements: What ``snapshot_statements`` returned.
            tables: Structures of the tables they create.
            offset: The position of the snapshot's view.
            final: Whether no rows follow, so that the last of these records is the snapshot's last.
        """
        records = []
        for number, s in enumerate(statements, 1):
            marker = "last" if final and number == len(statements) else "true"
            position: dict[str, Any] = {"file": offset.file, "pos": offset.pos, "ts_ns": self.clock_ns()}
            source = self._source(s.db, s.table.table if s.table else None, marker, **position)
            records.append(self.record(s.db, s.ddl, s.changes(tables), source))
        return records

    def _source(self, db: str, table: str | None, marker: str, *, ts_ns: int, **more: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "name": self.prefix,
            "ts_sec": 0,
            "ts_ms": ts_ns // 1_000_000,
            "ts_us": ts_ns // 1000,
            "ts_ns": ts_ns,
            "snapshot": marker,
            "db": db,
            "table": table,
            "server_id": 0,
            "row": 0,
            **more,
        }
        if self.layout.flat_changes:
            # The oldest format names neither database nor table here (SCH-30, EX-02).
            values |= {"snapshot": self.layout.snapshot_value(marker), "db": None, "table": None}
        # All others write the marker's text, in contract 1.9 too (SNAP-45).
        return source_dict(self.layout, values, change=True)

    def record(
        self, db: str, ddl: str, changes: Sequence[SchemaChangeEntry], source: dict[str, Any]
    ) -> SchemaChangeRecord:
        """Return one record.

        Args:
            db: The database the statement belongs to, empty for none.
            ddl: The statement.
            changes: The tables it changed.
            source: The source block.
        """
        payload: dict[str, Any]
        if self.layout.flat_changes:
            payload = {"databaseName": db, "ddl": ddl, "source": source}
        else:
            recent = self.layout.recent
            payload = {"source": source}
            if recent:
                payload["ts_ms"] = self.clock_ns() // 1_000_000
            # A change from a signal has no statement.
            payload |= {"databaseName": db, "schemaName": None, "ddl": ddl or None}
            payload["tableChanges"] = [
                _change_entry(c, recent, self.comments, _table_text)
                for c in changes
                if recent or (c.kind != "DROP" and (c.id is None or self.describes(c.id)))
            ]
        key, value = dumps({"databaseName": db}), dumps(payload)
        if self.key_schema:
            key = f'{{"schema":{self._schemas[0]},"payload":{key}}}'
        if self.value_schema:
            value = f'{{"schema":{self._schemas[1]},"payload":{value}}}'
        return SchemaChangeRecord(key.encode(), value.encode())


def change_dict(change: SchemaChangeEntry, *, recent: bool = True, comments: bool = False) -> dict[str, Any]:
    """Return an entry of ``tableChanges`` (SCH-37 to SCH-40).

    Args:
        change: A listed change.
        recent: Whether to write the members that came after 1.9.
        comments: ``include.schema.comments``.
    """
    return _change_entry(change, recent, comments, table_dict)


def _table_text(table: Table, *, recent: bool, comments: bool) -> RawJson:
    return _table_description(table.with_id(_UNNAMED_TABLE), recent, comments)[1]


def _change_entry(
    change: SchemaChangeEntry, recent: bool, comments: bool, describe: Callable[..., Any]
) -> dict[str, Any]:
    name = change.id.debezium_id() if change.id else ""
    description = None if change.table is None else describe(change.table, recent=recent, comments=comments)
    return {"type": _CHANGE_TYPES[change.kind], "id": name, "table": description}


def _ddl_by_database(changes: Sequence[SchemaChangeEntry]) -> list[tuple[str, str]]:
    """Return the databases of a statement in order, each with its statements (SCH-22, SCH-23)."""
    ddl: dict[str, list[str]] = {}
    for change in changes:
        ddl.setdefault(change.db, []).append(change.ddl)
    return [(db, texts[0] if len(texts) == 1 else "; ".join(texts) + ";") for db, texts in ddl.items()]


def _table_names(ids: Iterable[TableId]) -> str:
    """Return tables in the order of Debezium's set of table ids; a set holds adjacent tables of one database."""
    tables = {f"{i.db}.{i.table}": i.table for i in ids}
    return ",".join(tables[i] for i in hash_set_order(tables))


def _database_name(change: SchemaChangeEntry, session_db: str | None) -> str:
    """Return ``databaseName``.

    Debezium does not look for names in CREATE INDEX and DROP INDEX that change no key, nor in ALTER DATABASE: these
    belong to the session's database (read from Debezium 3.6.1, ``BinlogDatabaseSchema.parseDdl``).
    """
    is_alter = change.kind == "DATABASE" and change.ddl[:5].upper() == "ALTER"
    return change.db if session_db is None or not (is_alter or change.kind == "INDEX") else session_db


def _source_table(change: SchemaChangeEntry, names: str) -> str | None:
    """Return ``source.table``: tables; null for CREATE and DROP DATABASE, else empty."""
    if change.kind in _CHANGE_TYPES or change.kind in ("TRUNCATE", "VIEW"):
        return names
    word = change.ddl.split(maxsplit=1)[0].upper()
    return None if change.kind == "DATABASE" and word in ("CREATE", "DROP") else ""


@dataclass(frozen=True, slots=True)
class SnapshotStatement:
    """Hold one statement that a snapshot writes; it describes itself as a ``Change``.

    Args:
        db: The database it belongs to, empty for SET.
        ddl: The statement.
        table: The table it drops or creates, or None.
        creates: Whether it creates the table.
    """

    db: str
    ddl: str
    table: TableId | None = None
    creates: bool = False

    def changes(self, tables: Mapping[TableId, Table]) -> tuple[SchemaChangeEntry, ...]:
        """Return the changes the statement makes."""
        if self.table is None:
            return ()
        kind = "CREATE" if self.creates else "DROP"
        return (
            _SnapshotChangeEntry(kind, self.table, tables[self.table] if self.creates else None, self.ddl, self.db),
        )


@dataclass(frozen=True, slots=True)
class _SnapshotChangeEntry:
    kind: str
    id: TableId
    table: Table | None
    ddl: str
    db: str
    previous_id: TableId | None = None
    listed: bool = True


class CharsetDefaults(Protocol):
    """Default character set and collation (``ddl.state.DefaultCharset`` fits)."""

    @property
    def charset(self) -> str:
        """Character set name."""

    @property
    def collation(self) -> str:
        """Collation name."""


def snapshot_statements(
    server: CharsetDefaults, databases: Mapping[str, CharsetDefaults], creates: Mapping[TableId, str]
) -> list[SnapshotStatement]:
    """Return the statements that rebuild tables.

    SET of the server's character set, DROP TABLE of every table, and then for each database, those of the tables first,
    DROP DATABASE, CREATE DATABASE, USE and the CREATE TABLE statements.

    Args:
        server: The server's character set and collation.
        databases: Those of each database.
        creates: SHOW CREATE TABLE text by table, in the order wanted.
    """
    charsets = f"SET character_set_server={server.charset}, collation_server={server.collation}"
    out = [SnapshotStatement("", charsets)]
    out += [SnapshotStatement(t.db, f"DROP TABLE IF EXISTS {t.quoted()}", t) for t in creates]
    for db in dict.fromkeys([*(t.db for t in creates), *sorted(databases)]):
        quoted, defaults = quote_name(db), databases[db]
        out += [
            SnapshotStatement(db, f"DROP DATABASE IF EXISTS {quoted}"),
            SnapshotStatement(db, f"CREATE DATABASE {quoted} CHARSET {defaults.charset} COLLATE {defaults.collation}"),
            SnapshotStatement(db, f"USE {quoted}"),
        ]
        out += [SnapshotStatement(db, creates[t], t, creates=True) for t in creates if t.db == db]
    return out
