"""Key and value schemas of the schema change topic."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member, struct

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
