"""Maps without a schema, which ``HoistField`` makes of null keys and values; their members are in Java's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.java_order import hash_map_order
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema, TransformFault, java_class

_TYPES = {bool: "boolean", str: "string", int: "int64", float: "double", bytes: "bytes", list: "array", dict: "map"}


def require_map(schema: RecordSchema | None, value: Any, purpose: str) -> dict[str, Any] | None:
    """Return a map without a schema; None for what has a schema.

    Args:
        schema: The schema.
        value: The value.
        purpose: What it is needed for.

    Raises:
        TransformFault: It has no schema and is no map.
    """
    if schema is not None:
        return None
    if not isinstance(value, dict):
        found = java_class(None if value is None else inferred(value), value)
        raise TransformFault(f"Only Map objects supported in absence of schema for [{purpose}], found: {found}")
    return value


def inferred(value: Any) -> RecordSchema:
    """Return the schema that Connect assumes of a value without one."""
    return RecordSchema(_TYPES[type(value)], optional=True)


def java_map(members: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with members put into it, in the order of Java's ``HashMap``.

    Args:
        members: The map that is copied.
        added: What is put into it.
    """
    found = {**members, **added}
    return {name: found[name] for name in hash_map_order(members, added)}


def java_map_of(members: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return members in the order of Java's ``HashMap`` that was made for a number of them.

    Args:
        members: The members.
        room: The number.
    """
    return {name: members[name] for name in hash_map_order((), members, room)}
