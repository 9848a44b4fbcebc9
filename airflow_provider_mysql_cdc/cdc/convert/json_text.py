"""JSON text of schemas and schema changes, as Kafka Connect's JsonConverter prints it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float


class Float32(float):
    """A number that Java holds as ``float``: printed with the fewest digits that distinguish it from its neighbours."""

    __slots__ = ()


class RawJson(str):
    """JSON text that is written into a value unchanged."""

    __slots__ = ()


# Names of members: some hundred of them, and now and then a name from a user.
_label = lru_cache(maxsize=1024)(quote)


def quote_or_null(text: str | None) -> str:
    """Return a JSON string literal, or ``null`` for None."""
    return "null" if text is None else quote(text)


def number(value: float) -> str:
    """Return a floating point number as Jackson prints it (``1.0E10``, ``0.001``, ``"NaN"``).

    Args:
        value: A double, or a ``Float32``.
    """
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')
    return java_float(value) if isinstance(value, Float32) else java_double(value)


def dumps(value: Any) -> str:
    """Return compact JSON in member order.

    Args:
        value: dict, list, tuple, str, bool, int, float (``Float32`` for Java floats), None, or ``RawJson``.
    """
    kind = type(value)
    if kind is str:
        return quote(value)
    if value is None:
        return "null"
    if kind is dict:
        return "{" + ",".join([f"{_label(k)}:{dumps(v)}" for k, v in value.items()]) + "}"
    if kind is RawJson:
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return dumps(dict(value))
    return "[" + ",".join(map(dumps, value)) + "]"
