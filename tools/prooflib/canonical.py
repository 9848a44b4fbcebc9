"""Keys and structures of records in a form that two captures share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any

from prooflib.records import Record, lack_schemas, schema_text, show

_ZEROS = re.compile(r"(?:\.0+|(\.\d*[1-9])0+)(?=Z$)")
_MOMENT = "io.debezium.time.ZonedTimestamp"


def key_text(record: Record, zone: tzinfo | None) -> str:
    """Return a record's key as text, with a TIMESTAMP as the server stores it, without zeros at its end.

    Args:
        record: The record.
        zone: The zone in which the snapshots of its capture read TIMESTAMP, None for UTC.
    """
    key = record.key_payload
    schema = record.at("key", "schema")
    if isinstance(key, dict) and isinstance(schema, dict):
        moments = {f.get("field") for f in schema.get("fields") or () if f.get("name") == _MOMENT}
        stored = zone if record.snapshot else None
        key = {n: _stored(v, stored) if n in moments and isinstance(v, str) else v for n, v in key.items()}
    return show(key, 10_000)


def _stored(text: str, zone: tzinfo | None) -> str:
    if zone is not None:
        moment = datetime.fromisoformat(text).astimezone(zone)
        text = moment.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
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
    """Know which structures of a table two captures have.

    Args:
        ours: Our records.
        theirs: The recorded ones.
    """

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
