"""Spatial values and vectors."""

from __future__ import annotations

from struct import Struct, unpack

from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import base64_text
from airflow_provider_mysql_cdc.cdc.model.java_numbers import java_double, java_float

_POINTS = {1: Struct("<xIdd"), 0: Struct(">xIdd")}
_WKB_POINT = 1


def _parts(data: bytes) -> tuple[str, str, bytes]:
    """Split MySQL's format: 4 bytes SRID (little-endian), then well-known binary."""
    srid = int.from_bytes(data[:4], "little")
    wkb = data[4:]
    if len(wkb) < 5:
        raise ValueError(f"a spatial value of {len(data)} bytes is too short")
    # SRID 0 is written as null (captured/types, geoms).
    return base64_text(wkb), str(srid) if srid else "null", wkb


def geometry_text(data: bytes) -> str:
    """Return a spatial value as the JSON of ``io.debezium.data.geometry.Geometry``.

    Raises:
        ValueError: When the value is too short.
    """
    wkb, srid, _ = _parts(data)
    return f'{{"wkb":"{wkb}","srid":{srid}}}'


def point_text(data: bytes) -> str:
    """Return a POINT value as the JSON of ``io.debezium.data.geometry.Point``.

    Raises:
        ValueError: When the value is not a point.
    """
    text, srid, wkb = _parts(data)
    layout = _POINTS.get(wkb[0])
    if layout is None or len(wkb) != layout.size:
        raise ValueError("a POINT column holds a value that is not a point")
    kind, x, y = layout.unpack(wkb)
    if kind != _WKB_POINT:
        raise ValueError(f"a POINT column holds geometry type {kind}")
    return f'{{"x":{java_double(x)},"y":{java_double(y)},"wkb":"{text}","srid":{srid}}}'


def vector_text(data: bytes) -> str:
    """Return a VECTOR value (little-endian floats) as a JSON array.

    Raises:
        ValueError: When the value is not a whole number of floats.
    """
    if len(data) % 4:
        raise ValueError(f"a VECTOR value has {len(data)} bytes, which is not a multiple of 4")
    return "[" + ",".join(map(java_float, unpack(f"<{len(data) // 4}f", data))) + "]"
