"""Records of the schema change topic.

The 3.x form is what Debezium 3.6.1 writes; the 1.9 form is that of the seeds (SCH-33 to SCH-43). A record describes one
statement: Debezium splits DROP and RENAME of several tables, and so does ``ddl.apply``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.convert.defaults import default_literal
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.convert.type_names import (
    charset_name,
    declared_length,
    declared_scale,
    jdbc_type,
    type_expression,
)
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member, Schema, contract, struct
from airflow_provider_mysql_cdc.cdc.emit.java_order import hash_set_order
from airflow_provider_mysql_cdc.cdc.emit.source import RowEvent, Transaction, source_dict
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, quote_name


class Change(Protocol):
    """What a record says of one table (``ddl.apply.TableChange`` fits)."""

    @property
    def kind(self) -> str:
        """What happened, see ``ddl.apply.ChangeKind``."""

    @property
    def id(self) -> TableId | None:
        """The table after the change; None for a database."""

    @property
    def previous_id(self) -> TableId | None:
        """The table's name before, when it was renamed."""

    @property
    def table(self) -> Table | None:
        """The structure after the change, None for a table that is gone."""

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
class ChangeRecord:
    """Hold key and value of one record."""

    key: bytes
    value: bytes


_TYPES = {"CREATE": "CREATE", "ALTER": "ALTER", "RENAME": "ALTER", "DROP": "DROP"}
_RECENT_COLUMN_MEMBERS = ("comment", "defaultValueExpression", "enumValues")


def column_dict(column: Column, *, recent: bool = True, comments: bool = False) -> dict[str, Any]:
    """Return a column as schema changes describe it (SCH-41, SCH-42).

    Args:
        column: The column.
        recent: Whether the members that came after 1.9 are wanted.
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
        out |= dict(zip(_RECENT_COLUMN_MEMBERS, values, strict=True))
    return out


def table_dict(table: Table, *, recent: bool = True, comments: bool = False) -> dict[str, Any]:
    """Return a table as schema changes describe it (SCH-40).

    Args:
        table: The table.
        recent: Whether the members that came after 1.9 are wanted.
        comments: ``include.schema.comments``.
    """
    out: dict[str, Any] = {
        "defaultCharsetName": table.charset,
        "primaryKeyColumnNames": list(table.key_columns()),
        "columns": [column_dict(c, recent=recent, comments=comments) for c in table.columns],
    }
    if recent:
        out["comment"] = table.comment if comments else None
    return out


@dataclass(frozen=True)
class ChangeFormat:
    """Write schema change records of one connector.

    Args:
        prefix: ``topic.prefix``, the value of ``source.name``.
        version: Contract version.
        key_schema: ``key.converter.schemas.enable``.
        value_schema: ``value.converter.schemas.enable``.
        comments: ``include.schema.comments``.
        clock_ns: Current time in nanoseconds since the epoch.
    """

    prefix: str
    version: str = "3.x"
    key_schema: bool = True
    value_schema: bool = True
    comments: bool = False
    clock_ns: Callable[[], int] = field(default=time.time_ns)

    @cached_property
    def layout(self) -> Contract:
        """The event contract."""
        return contract(self.version)

    @cached_property
    def _schemas(self) -> tuple[str, str]:
        return dumps(key_schema_of(self.layout)), dumps(value_schema_of(self.layout))

    def streamed(
        self, changes: Sequence[Change], event: RowEvent, at: Transaction, *, in_transaction: bool = False, row: int = 0
    ) -> list[ChangeRecord]:
        """Return the records of one statement of the stream, one per change.

        Args:
            changes: What ``ddl.apply`` made of the statement; truncations give no record.
            event: The statement's QUERY event.
            at: The transaction around it.
            in_transaction: Whether the statement stands between BEGIN and COMMIT (CREATE TABLE ... SELECT); only then
                the thread is given.
            row: Value of ``source.row``; Debezium leaves the row number of the last row event there.
        """
        known = [c for c in changes if c.kind != "TRUNCATE"]
        names = _table_names(c.id for c in known if c.id is not None)
        ms = at.commit_us // 1000 or event.timestamp * 1000
        more: dict[str, Any] = {
            "ts_ns": ms * 1_000_000,
            "file": event.file,
            "pos": event.start_pos,
            "row": row,
            "server_id": event.server_id,
            "gtid": at.gtid,
            "thread": at.thread or None if in_transaction else None,
        }
        records = []
        for change in known:
            source = self._source(change.db, _source_table(change, names), "false", **more)
            records.append(self.record(change.db, change.ddl, (change,) if change.listed else (), source))
        return records

    def snapshot(
        self, statements: Iterable[SnapshotStatement], tables: Mapping[TableId, Table], offset: BinlogOffset
    ) -> list[ChangeRecord]:
        """Return the records of a snapshot's statements (SNAP-15, SCH-26).

        Args:
            statements: What ``snapshot_statements`` returned.
            tables: Structures of the tables they create.
            offset: The position of the snapshot's view.
        """
        records = []
        for s in statements:
            place: dict[str, Any] = {"file": offset.file, "pos": offset.pos, "ts_ns": self.clock_ns()}
            source = self._source(s.db, s.table.table if s.table else None, "true", **place)
            records.append(self.record(s.db, s.ddl, s.changes(tables), source))
        return records

    def _source(self, db: str, table: str | None, marker: str, *, ts_ns: int, **more: Any) -> dict[str, Any]:
        # Schema changes write the marker's text in both contracts (SNAP-45).
        values = {
            "name": self.prefix,
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
        return source_dict(self.layout, values, change=True)

    def record(self, db: str, ddl: str, changes: Sequence[Change], source: dict[str, Any]) -> ChangeRecord:
        """Return one record.

        Args:
            db: The database the statement belongs to, empty for none.
            ddl: The statement.
            changes: The tables it changed.
            source: The source block.
        """
        recent = self.layout.recent
        payload: dict[str, Any] = {"source": source}
        if recent:
            payload["ts_ms"] = self.clock_ns() // 1_000_000
        payload |= {"databaseName": db, "schemaName": None, "ddl": ddl}
        payload["tableChanges"] = [change_dict(c, recent=recent, comments=self.comments) for c in changes]
        key, value = dumps({"databaseName": db}), dumps(payload)
        if self.key_schema:
            key = f'{{"schema":{self._schemas[0]},"payload":{key}}}'
        if self.value_schema:
            value = f'{{"schema":{self._schemas[1]},"payload":{value}}}'
        return ChangeRecord(key.encode(), value.encode())


def change_dict(change: Change, *, recent: bool = True, comments: bool = False) -> dict[str, Any]:
    """Return an entry of ``tableChanges`` (SCH-37 to SCH-40).

    Args:
        change: A listed change.
        recent: Whether the form that came after 1.9 is wanted; 1.9 names a renamed table twice, old and new (SCH-39).
        comments: ``include.schema.comments``.
    """
    name = change.id.debezium_id() if change.id else ""
    if change.previous_id and not recent:
        name = f"{change.previous_id.debezium_id()},{name}"
    described = None if change.table is None else table_dict(change.table, recent=recent, comments=comments)
    return {"type": _TYPES[change.kind], "id": name, "table": described}


def _table_names(ids: Iterable[TableId]) -> str:
    """Return the tables of a statement in the order of Debezium's set of table ids."""
    tables = {f"{i.db}.{i.table}": i.table for i in ids}
    return ",".join(tables[i] for i in hash_set_order(tables))


def _source_table(change: Change, names: str) -> str | None:
    """Return ``source.table``: all tables of the statement; null for CREATE and DROP DATABASE, else empty."""
    if change.kind in _TYPES:
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

    def changes(self, tables: Mapping[TableId, Table]) -> tuple[Change, ...]:
        """Return the changes the statement makes."""
        if self.table is None:
            return ()
        kind = "CREATE" if self.creates else "DROP"
        return (_SnapshotChange(kind, self.table, tables[self.table] if self.creates else None, self.ddl, self.db),)


@dataclass(frozen=True, slots=True)
class _SnapshotChange:
    kind: str
    id: TableId
    table: Table | None
    ddl: str
    db: str
    previous_id: TableId | None = None
    listed: bool = True


class CharsetDefaults(Protocol):
    """Default character set and collation (``ddl.state.DbDefaults`` fits)."""

    @property
    def charset(self) -> str:
        """Character set name."""

    @property
    def collation(self) -> str:
        """Collation name."""


def snapshot_statements(
    server: CharsetDefaults, databases: Mapping[str, CharsetDefaults], creates: Mapping[TableId, str]
) -> list[SnapshotStatement]:
    """Return the statements that rebuild the captured tables, in Debezium's order.

    SET of the server's character set, DROP TABLE of every table, and then for each database DROP DATABASE, CREATE
    DATABASE, USE and the CREATE TABLE statements.

    Args:
        server: The server's character set and collation.
        databases: Those of each database.
        creates: SHOW CREATE TABLE text by table.
    """
    ordered = sorted(creates)
    charsets = f"SET character_set_server={server.charset}, collation_server={server.collation}"
    out = [SnapshotStatement("", charsets)]
    out += [SnapshotStatement(t.db, f"DROP TABLE IF EXISTS {t.quoted()}", t) for t in ordered]
    for db in sorted(databases):
        quoted, defaults = quote_name(db), databases[db]
        out += [
            SnapshotStatement(db, f"DROP DATABASE IF EXISTS {quoted}"),
            SnapshotStatement(db, f"CREATE DATABASE {quoted} CHARSET {defaults.charset} COLLATE {defaults.collation}"),
            SnapshotStatement(db, f"USE {quoted}"),
        ]
        out += [SnapshotStatement(db, creates[t], t, creates=True) for t in ordered if t.db == db]
    return out


_COLUMN = (
    Member("name"),
    Member("jdbcType", "int32"),
    Member("nativeType", "int32", optional=True),
    Member("typeName"),
    *(Member(n, optional=True) for n in ("typeExpression", "charsetName")),
    *(Member(n, "int32", optional=True) for n in ("length", "scale")),
    Member("position", "int32"),
    *(Member(n, "boolean", optional=True) for n in ("optional", "autoIncremented", "generated")),
)


def _texts(optional: bool) -> Schema:
    return {"type": "array", "items": {"type": "string", "optional": False}, "optional": optional}


def _structs(item: Schema) -> Schema:
    return {"type": "array", "items": item, "optional": False}


def key_schema_of(layout: Contract) -> Schema:
    """Return the key schema of schema changes."""
    name = f"io.debezium.connector.{layout.connector}.SchemaChangeKey"
    return struct([Member("databaseName").to_schema()], name, version=1 if layout.recent else None)


def value_schema_of(layout: Contract) -> Schema:
    """Return the value schema of schema changes."""
    version = 1 if layout.recent else None
    column = [m.to_schema() for m in _COLUMN]
    table = [
        Member("defaultCharsetName", optional=True).to_schema(),
        {**_texts(True), "field": "primaryKeyColumnNames"},
    ]
    if layout.recent:
        column += [Member(n, optional=True).to_schema() for n in _RECENT_COLUMN_MEMBERS[:2]]
        column.append({**_texts(True), "field": "enumValues"})
    table.append(
        {**_structs(struct(column, "io.debezium.connector.schema.Column", version=version)), "field": "columns"}
    )
    if layout.recent:
        table.append(Member("comment", optional=True).to_schema())
    change = [
        Member("type").to_schema(),
        Member("id").to_schema(),
        {**struct(table, "io.debezium.connector.schema.Table", optional=True, version=version), "field": "table"},
    ]
    members = [layout.source_schema(layout.change_source)]
    if layout.recent:
        members.append(Member("ts_ms", "int64").to_schema())
    members += [Member(n, optional=True).to_schema() for n in ("databaseName", "schemaName", "ddl")]
    item = struct(change, "io.debezium.connector.schema.Change", version=version)
    members.append({**_structs(item), "field": "tableChanges"})
    return struct(members, f"io.debezium.connector.{layout.connector}.SchemaChangeValue", version=version)
