"""Event contracts as tables: source block, envelope, schema changes, and the names of their schemas.

Event contracts as tables: the source block, the envelope and the names of their schemas.

``mysql``/``3.x`` is what Debezium 3.6.1 writes, ``mysql``/``1.9`` what Debezium 1.9.7 does (EVT-12 to EVT-19, EVT-35,
SCH-33 to SCH-41); the samples of the seeds are older in some members (docs/debezium-differences.md). ``db2``/``1.9`` is
that of the seeds' samples (DB2-01 to DB2-08, DB2-17). ``mysql``/``1.9`` with source struct ``v1`` is the format before
Debezium 0.10 (EVT-39, SCH-28 to SCH-31).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

SNAPSHOT_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_ENUM: dict[str, Any] = {"name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": SNAPSHOT_MARKERS}}
_MARKERS_1_9 = dict.fromkeys(("first", "first_in_data_collection", "last_in_data_collection"), "true")
CONNECT_ORDER = ("type", "fields", "optional", "name", "version")


@dataclass(frozen=True, slots=True)
class Member:
    """Describe one member of a struct.

    Args:
        name: Member name.
        type: Connect literal type.
        optional: Whether it may be null.
        semantic: ``name``, ``version`` and ``parameters`` of a semantic type, or None.
        default: Default value or None.
        schema: The full schema of a nested struct or array; then ``type`` is not used.
    """

    name: str
    type: str = "string"
    optional: bool = False
    semantic: tuple[tuple[str, Any], ...] = ()
    default: Any = None
    schema: tuple[tuple[str, Any], ...] = ()

    def to_schema(self) -> ConnectSchema:
        """Return the member's schema in JsonConverter's order."""
        if self.schema:
            return {**dict(self.schema), "field": self.name}
        out: ConnectSchema = {"type": self.type, "optional": self.optional, **dict(self.semantic)}
        if self.default is not None:
            out["default"] = self.default
        out["field"] = self.name
        return out


def struct(
    members: list[ConnectSchema], name: str | None, *, optional: bool = False, version: int | None = None,
    order: tuple[str, ...] = CONNECT_ORDER,
) -> ConnectSchema:  # fmt: skip
    """Return a struct schema.

    Args:
        members: Schemas of its members, each with ``field``.
        name: Schema name or None.
        optional: Whether the struct may be null.
        version: Schema version or None.
        order: Order of the schema's own members.
    """
    out: ConnectSchema = {"type": "struct", "fields": members, "optional": optional, "name": name, "version": version}
    return {k: out[k] for k in order if out[k] is not None}


def _transaction_block(*, recent: bool) -> Member:
    """Return the member ``transaction`` of row events; Debezium 1.9 gave its schema neither name nor version."""
    members = [Member("id"), Member("total_order", "int64"), Member("data_collection_order", "int64")]
    fields = [m.to_schema() for m in members]
    block = struct(fields, "event.block" if recent else None, optional=True, version=1 if recent else None)
    return Member("transaction", schema=tuple(block.items()))


TRANSACTION_BLOCK = _transaction_block(recent=True)


@dataclass(frozen=True, slots=True)
class Contract:
    """Describe one version of the events of one connector.

    Args:
        connector: Value of ``source.connector``.
        version: ``3.x`` or ``1.9``.
        product_version: Value of ``source.version``.
        source_name: Schema name of the source block.
        source_version: Its schema version or None.
        source: Members of the source block of row events.
        change_source: Members of the source block of schema changes.
        envelope_version: Schema version of the envelope or None.
        tail: Members of the envelope after ``source``, in order.
        key_order: Order of the members of a key schema.
        key_field_order: Order of the members of a key field's schema; others follow.
        boolean_snapshot: Whether ``source.snapshot`` is a boolean and not a marker text.
        recent: Whether the format is that of Debezium 3: schema changes have ``ts_ms`` and newer column members, and
            schemas of Debezium's own structs have names and versions.
        struct: ``source.struct.version``; ``v1`` also has the oldest format of schema changes.
        transaction: The transaction block of row events.
    """

    connector: str
    version: str
    product_version: str
    source_name: str
    source: tuple[Member, ...]
    change_source: tuple[Member, ...]
    tail: tuple[Member, ...]
    source_version: int | None = None
    envelope_version: int | None = None
    key_order: tuple[str, ...] = CONNECT_ORDER
    key_field_order: tuple[str, ...] = ()
    boolean_snapshot: bool = False
    recent: bool = True
    struct: str = "v2"
    transaction: Member = TRANSACTION_BLOCK

    def source_schema(self, members: tuple[Member, ...] | None = None) -> ConnectSchema:
        """Return the schema of the source block as a field."""
        fields = [m.to_schema() for m in (members or self.source)]
        return {**struct(fields, self.source_name, version=self.source_version), "field": "source"}

    @property
    def flat_changes(self) -> bool:
        """Return whether schema changes have the oldest format, without ``tableChanges`` (SCH-28, SCH-29)."""
        return self.struct == "v1"

    def snapshot_value(self, marker: str, *, typed: bool = True) -> bool | str:
        """Return ``source.snapshot`` for a marker (one of ``SNAPSHOT_MARKERS``).

        Args:
            marker: The marker.
            typed: Whether the value is written with its schema. The seeds have a boolean schema and yet the text
                ``incremental`` (SNAP-44, SNAP-47), which is only valid in a value without a schema.
        """
        if not self.recent and not self.boolean_snapshot:
            return _MARKERS_1_9.get(marker, marker)
        if not self.boolean_snapshot or (marker == "incremental" and not typed and not self.flat_changes):
            return marker
        return marker != "false"


_SOURCE_START = (Member("version"), Member("connector"), Member("name"), Member("ts_ms", "int64"))
_SNAPSHOT_TEXT = Member("snapshot", optional=True, semantic=tuple(_ENUM.items()), default="false")
_SNAPSHOT_TEXT_1 = replace(
    _SNAPSHOT_TEXT, semantic=tuple((_ENUM | {"parameters": {"allowed": "true,last,false,incremental"}}).items())
)
_SNAPSHOT_FLAG = Member("snapshot", "boolean", optional=True, default=False)
_DB, _SEQUENCE, _TABLE = Member("db"), Member("sequence", optional=True), Member("table", optional=True)
_FINE_TIMES = (Member("ts_us", "int64", optional=True), Member("ts_ns", "int64", optional=True))
_SOURCE_POSITION = (
    Member("server_id", "int64"),
    Member("gtid", optional=True),
    Member("file"),
    Member("pos", "int64"),
    Member("row", "int32"),
    Member("thread", "int64", optional=True),
    Member("query", optional=True),
)
_SOURCE_3 = (*_SOURCE_START, _SNAPSHOT_TEXT, _DB, _SEQUENCE, *_FINE_TIMES, _TABLE, *_SOURCE_POSITION)
_OP, _TS_MS = Member("op"), Member("ts_ms", "int64", optional=True)

MYSQL_3 = Contract(
    connector="mysql",
    version="3.x",
    product_version="3.6.1.Final",
    source_name="io.debezium.connector.mysql.Source",
    source_version=1,
    source=_SOURCE_3,
    change_source=_SOURCE_3,
    envelope_version=2,
    tail=(TRANSACTION_BLOCK, _OP, _TS_MS, *_FINE_TIMES),
)
_SOURCE_1 = (*_SOURCE_START, _SNAPSHOT_TEXT_1, _DB, _SEQUENCE, _TABLE, *_SOURCE_POSITION)
_TRANSACTION_1 = _transaction_block(recent=False)
MYSQL_1_9 = Contract(
    connector="mysql",
    version="1.9",
    product_version="1.9.7.Final",
    source_name="io.debezium.connector.mysql.Source",
    source=_SOURCE_1,
    change_source=_SOURCE_1,
    tail=(_OP, _TS_MS, _TRANSACTION_1),
    recent=False,
    transaction=_TRANSACTION_1,
)
_OLDEST = replace(
    MYSQL_1_9,
    tail=(_OP, _TS_MS),
    key_order=("type", "name", "optional", "fields"),
    key_field_order=("field", "type", "optional"),
    boolean_snapshot=True,
)
"""What the formats have in common that follow the seeds alone: before Debezium 0.10, and of Db2."""
# The sample of this format (EX-02) is from Debezium 0.10.0.Beta4.
_SOURCE_V1 = (
    *(Member("version", optional=True), Member("name"), Member("server_id", "int64"), Member("ts_sec", "int64")),
    *(Member("gtid", optional=True), Member("file"), Member("pos", "int64"), Member("row", "int32"), _SNAPSHOT_FLAG),
    *(Member("thread", "int64", optional=True), *(Member(n, optional=True) for n in ("db", "table", "query"))),
)
MYSQL_1_9_V1 = replace(
    _OLDEST, product_version="0.10.0.Beta4", source=_SOURCE_V1, change_source=_SOURCE_V1, struct="v1"
)
DB2_1_9 = replace(
    _OLDEST,
    connector="db2",
    product_version="2.3.4.Final",
    source_name="io.debezium.connector.db2.Source",
    source=(
        *(*_SOURCE_START, _SNAPSHOT_FLAG, _DB, Member("schema"), Member("table")),
        *(Member("change_lsn", optional=True), Member("commit_lsn", optional=True)),
    ),
    key_order=CONNECT_ORDER,
    key_field_order=(),
)
CONTRACTS = {(c.connector, c.version, c.struct): c for c in (MYSQL_3, MYSQL_1_9, DB2_1_9, MYSQL_1_9_V1)}


def contract(version: str, connector: str = "mysql", source_struct: str = "v2") -> Contract:
    """Return the contract of a connector and version.

    Args:
        version: ``event.contract``.
        connector: ``mysql`` or ``db2``.
        source_struct: ``source.struct.version``.

    Raises:
        ConfigError: There is no such contract.
    """
    layout = CONTRACTS.get((connector, version, source_struct))
    if layout is None:
        supported = ", ".join(f"{c} {v}" + (f" with source struct {s}" if s != "v2" else "") for c, v, s in CONTRACTS)
        requested = f"{version} for {connector}" + (
            "" if source_struct == "v2" else f" with source struct {source_struct}"
        )
        raise ConfigError(f"no event contract {requested}", remedy=f"use one of: {supported}")
    return layout


RECENT_COLUMN_MEMBERS = ("comment", "defaultValueExpression", "enumValues")
"""Members of a column that came after the seeds' samples."""
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


def _string_array(optional: bool) -> ConnectSchema:
    return {"type": "array", "items": {"type": "string", "optional": False}, "optional": optional}


def _struct_array(item: ConnectSchema) -> ConnectSchema:
    return {"type": "array", "items": item, "optional": False}


_FLAT_ORDER = ("field", "type", "name", "optional", "fields")


def _flat_struct(name: str, members: list[ConnectSchema]) -> ConnectSchema:
    fields = [{k: m[k] for k in _FLAT_ORDER if k in m} for m in members]
    return struct(fields, name, order=_FLAT_ORDER[1:])


def change_key_schema(layout: Contract) -> ConnectSchema:
    """Return the key schema of schema changes."""
    name = f"io.debezium.connector.{layout.connector}.SchemaChangeKey"
    if layout.flat_changes:
        return _flat_struct(name, [Member("databaseName").to_schema()])
    return struct([Member("databaseName").to_schema()], name, version=1 if layout.recent else None)


def change_value_schema(layout: Contract) -> ConnectSchema:
    """Return the value schema of schema changes.

    Args:
        layout: The event contract.
    """
    name = f"io.debezium.connector.{layout.connector}.SchemaChangeValue"
    if layout.flat_changes:
        texts = [Member(n).to_schema() for n in ("databaseName", "ddl")]
        return _flat_struct(name, [*texts, layout.source_schema(layout.change_source)])
    members = [layout.source_schema(layout.change_source)]
    if layout.recent:
        members.append(Member("ts_ms", "int64").to_schema())
    members += [Member(n, optional=True).to_schema() for n in ("databaseName", "schemaName", "ddl")]
    members.append({**_struct_array(_change_schema(layout)), "field": "tableChanges"})
    return struct(members, name, version=1 if layout.recent else None)


def _change_schema(layout: Contract) -> ConnectSchema:
    version = 1 if layout.recent else None
    comment = [Member("comment", optional=True).to_schema()]
    column = [*(m.to_schema() for m in _COLUMN), *comment]
    if layout.recent:
        column.append(Member(RECENT_COLUMN_MEMBERS[1], optional=True).to_schema())
        column.append({**_string_array(True), "field": RECENT_COLUMN_MEMBERS[2]})
    columns = _struct_array(struct(column, "io.debezium.connector.schema.Column", version=version))
    table = [
        Member("defaultCharsetName", optional=True).to_schema(),
        {**_string_array(True), "field": "primaryKeyColumnNames"},
        {**columns, "field": "columns"},
        *comment,
    ]
    change = [
        Member("type").to_schema(),
        Member("id").to_schema(),
        {
            **struct(table, "io.debezium.connector.schema.Table", optional=layout.recent, version=version),
            "field": "table",
        },
    ]
    return struct(change, "io.debezium.connector.schema.Change", version=version)
