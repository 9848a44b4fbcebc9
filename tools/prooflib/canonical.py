"""Keys, structures and types of records in a form that two captures share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prooflib.clock import SessionZones
from prooflib.records import Record, lack_schemas, schema_text, show

Types = Mapping[tuple[Any, Any], Mapping[str, dict[str, str]]]
# Types that have one form in every mode; those of all other columns depend on the connector's properties.
_SCHEMAS = {
    "TIMESTAMP": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "JSON": {"type": "string", "name": "io.debezium.data.Json"},
    "ENUM": {"type": "string", "name": "io.debezium.data.Enum"},
    "SET": {"type": "string", "name": "io.debezium.data.EnumSet"},
    **{name: {"type": "double"} for name in ("DOUBLE", "DOUBLE PRECISION", "FLOAT8")},
    # Debezium's stream has a 4-byte float for it.
    "REAL": {"type": "float"},
}
_FLOAT = {"type": "float"}
_SIGN = re.compile(r" (?:UNSIGNED|SIGNED|ZEROFILL)\b")


def with_types(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """Return two captures; one without schemas has the types that recorded schema changes tell."""
    sides = [(side, [part for part in ("key", "value") if lack_schemas(side, part)]) for side in (ours, theirs)]
    types = _recorded_types(theirs) if any(parts for _, parts in sides) else {}
    mine, other = ([_typed(r, parts, types) for r in side] if parts else side for side, parts in sides)
    return mine, other


def _recorded_types(records: Sequence[Record]) -> Types:
    """Return the schemas of columns whose type is the same in all schema changes of their table."""
    found: dict[tuple[Any, Any], dict[str, dict[str, str]]] = {}
    for record in records:
        payload = record.payload
        if not isinstance(payload, dict) or not {"ddl", "source"} <= payload.keys():
            continue  # a transform may have made something else of a schema change
        for table in (change["table"] for change in payload.get("tableChanges") or () if change.get("table")):
            columns = found.setdefault((payload["source"].get("db"), payload["source"].get("table")), {})
            for column in table["columns"]:
                schema = _schema_of(column)
                columns[column["name"]] = schema if columns.get(column["name"], schema) == schema else {}
    return found


def _schema_of(column: Mapping[str, Any]) -> dict[str, str]:
    # FLOAT(m,d) is a double, and FLOAT(p) may be one.
    name = _SIGN.sub("", column["typeName"])
    if name == "FLOAT" and column.get("length") is None:
        return _FLOAT
    return _SCHEMAS.get(name, {})


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


_ZEROS = re.compile(r"(?:\.0+|(\.\d*[1-9])0+)(?=Z$)")
_MOMENT = "io.debezium.time.ZonedTimestamp"


def key_text(record: Record, zones: SessionZones | None) -> str:
    """Return a record's key as text, with a TIMESTAMP as the server stores it, without zeros at its end.

    Args:
        record: The record.
        zones: The zones in which the snapshots of its capture read TIMESTAMP, None where they read what is stored.
    """
    key = record.key_payload
    schema = record.at("key", "schema")
    if isinstance(key, dict) and isinstance(schema, dict):
        moments = {f.get("field") for f in schema.get("fields") or () if f.get("name") == _MOMENT}
        stored = zones if record.snapshot else None
        key = {n: _stored(v, stored) if n in moments and isinstance(v, str) else v for n, v in key.items()}
    return show(key, 10_000)


def _stored(text: str, zones: SessionZones | None) -> str:
    if zones is not None and zones.connection is not None:
        moment = datetime.fromisoformat(text).astimezone(zones.connection)
        text = moment.replace(tzinfo=zones.server).astimezone(UTC).isoformat().replace("+00:00", "Z")
    return _ZEROS.sub(lambda m: m[1] or "", text)


def fields_of(record: Record) -> dict[str, Any]:
    """Return the columns of a record's row with their schemas, None for a column of a record without schemas."""
    payload = record.payload if isinstance(record.payload, dict) else {}
    row = payload.get("after") or payload.get("before") or {}
    schema = record.at("value", "schema")
    images = {f.get("field"): f for f in (schema or {}).get("fields") or ()}
    named = {f.get("field"): f for f in images.get("after", {}).get("fields") or ()}
    return {column: named.get(column) for column in row}


def changed_columns(record: Record, other: Record) -> frozenset[str]:
    """Return the columns that two records of a table do not have in common."""
    mine, theirs = fields_of(record), fields_of(other)
    if "value" in record.bare | other.bare:
        return frozenset(mine.keys() ^ theirs.keys())
    return frozenset(c for c in {**mine, **theirs} if (c in mine, mine.get(c)) != (c in theirs, theirs.get(c)))


class Structures:
    """Know which structures of a table two captures have."""

    def __init__(self, ours: Iterable[Record], theirs: Iterable[Record]) -> None:
        sides = list(ours), list(theirs)
        self._names_only = any(lack_schemas(side, "value") for side in sides)
        self._known = tuple(self._by_topic(side) for side in sides)

    def both_known(self, ours: Record | None, theirs: Record | None) -> bool:
        """Return whether two records have different structures, and each capture has the other one's as well."""
        if ours is None or theirs is None:
            return False
        mine, other = self._structure(ours), self._structure(theirs)
        known, recorded = self._known
        return mine != other and mine in recorded[ours.topic] and other in known[ours.topic]

    def _by_topic(self, records: Iterable[Record]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for record in records:
            found[record.topic].add(self._structure(record))
        return found

    def _structure(self, record: Record) -> str:
        head = "" if self._names_only else schema_text(record.value_text)
        return head or show(list(fields_of(record)), 100_000)
