"""Types of columns in captures that have no schemas: from the recorded schema changes, if these agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prooflib.records import Record, lack_schemas

Types = Mapping[tuple[Any, Any], Mapping[str, dict[str, str]]]
# Types that have one form in every mode; those of all other columns depend on the connector's properties.
_SCHEMAS = {
    "TIMESTAMP": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "JSON": {"type": "string", "name": "io.debezium.data.Json"},
    "ENUM": {"type": "string", "name": "io.debezium.data.Enum"},
    "SET": {"type": "string", "name": "io.debezium.data.EnumSet"},
    "DOUBLE": {"type": "double"},
}
_FLOAT = {"type": "float"}


def with_types(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """Return two captures; one without schemas has the types that recorded schema changes tell.

    Args:
        ours: Our records.
        theirs: The recorded ones.
    """
    sides = [(side, [part for part in ("key", "value") if lack_schemas(side, part)]) for side in (ours, theirs)]
    types = _recorded_types(theirs) if any(parts for _, parts in sides) else {}
    mine, other = ([_typed(r, parts, types) for r in side] if parts else side for side, parts in sides)
    return mine, other


def _recorded_types(records: Sequence[Record]) -> Types:
    """Return the schemas of columns whose type is the same in all schema changes of their table."""
    found: dict[tuple[Any, Any], dict[str, dict[str, str]]] = {}
    for record in records:
        payload = record.payload
        if not isinstance(payload, dict) or "ddl" not in payload:
            continue
        for table in (change["table"] for change in payload.get("tableChanges") or () if change.get("table")):
            columns = found.setdefault((payload["source"].get("db"), payload["source"].get("table")), {})
            for column in table["columns"]:
                schema = _schema_of(column)
                columns[column["name"]] = schema if columns.get(column["name"], schema) == schema else {}
    return found


def _schema_of(column: Mapping[str, Any]) -> dict[str, str]:
    # FLOAT(m,d) is a double, and FLOAT(p) may be one.
    if column["typeName"] == "FLOAT" and column.get("length") is None:
        return _FLOAT
    return _SCHEMAS.get(column["typeName"], {})


def _typed(record: Record, parts: Sequence[str], types: Types) -> Record:
    payload = record.payload
    source = payload.get("source") if isinstance(payload, dict) else None
    columns = types.get((source.get("db"), source.get("table"))) if isinstance(source, dict) else None
    if not columns or "ddl" in payload:
        return record
    fields = [{**schema, "field": name} for name, schema in columns.items() if schema]
    images = {"fields": [{"field": image, "fields": fields} for image in ("before", "after")]}
    key, value = record.key, record.value
    if "key" in parts and record.has("key"):
        key = {**key, "schema": {"fields": fields}}
    if "value" in parts and record.has("value"):
        value = {**value, "schema": images}
    return replace(record, key=key, value=value)
