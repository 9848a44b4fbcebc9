"""What the kinds of explained differences ask of a difference: its values' types, the recorded schema, who wrote it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from prooflib.records import Number, Path
from prooflib.volatile import schema_at, schema_of_pair

if TYPE_CHECKING:
    from prooflib.differ import Difference

_MEMBERS = ("io.debezium.data.Enum", "io.debezium.data.EnumSet")


def schema_of(d: Difference) -> dict[str, Any]:
    """Return the recorded schema of the value that differs, or of its list; empty when there is none.

    A recorded part without schemas is read with ours.
    """
    path = value_path(d)
    if path[1:2] != ("payload",):
        return {}
    while path and path[-1].startswith("["):
        path = path[:-1]
    found = schema_of_pair(d.pair, path)
    return found if isinstance(found, dict) else {}


def value_path(d: Difference) -> Path:
    """Return where in a record the value is; one column of a read or of a key's last row is in its row image."""
    return ("value", "payload", "after", d.path[2]) if d.path[0] in ("last", "stale") and len(d.path) == 3 else d.path


def name_of(d: Difference) -> str:
    """Return the name of the recorded schema, empty when it has none."""
    return str(schema_of(d).get("name") or "")


def in_snapshot(d: Difference) -> bool:
    """Return whether the recorded record was written by a snapshot."""
    return d.pair[1] is not None and d.pair[1].snapshot


def in_stream(d: Difference) -> bool:
    """Return whether there is a recorded record, and no snapshot wrote it."""
    return d.pair[1] is not None and not d.pair[1].snapshot


def texts(d: Difference) -> bool:
    """Return whether both values are texts."""
    return all(isinstance(v, str) and not isinstance(v, Number) for v in (d.ours, d.theirs))


def numbers(d: Difference) -> bool:
    """Return whether both values are numbers."""
    return isinstance(d.ours, Number) and isinstance(d.theirs, Number)


def in_row(d: Difference) -> bool:
    """Return whether the value is one of a row."""
    return d.path[:2] == ("value", "payload") and d.path[2:3] in (("before",), ("after",))


def is_default(d: Difference) -> bool:
    """Return whether both values are the defaults of their column's schemas."""
    schemas = [schema_at(r, d.path) if r is not None else None for r in d.pair]
    defaults = [s.get("default") if isinstance(s, dict) else None for s in schemas]
    return None not in defaults and defaults == [d.ours, d.theirs]


def of_members(d: Difference) -> bool:
    """Return whether the value is one of an ENUM or SET."""
    return name_of(d) in _MEMBERS


def of_type(d: Difference, *types: str) -> bool:
    """Return whether the recorded type is one of these, or a list of one of these."""
    schema = schema_of(d)
    return schema.get("type") in types or ("items" in schema and schema["items"].get("type") in types)


def single(value: str) -> bytes:
    """Return a number as a 4-byte float."""
    return struct.pack("<f", float(value))
