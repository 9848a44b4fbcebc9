"""Debezium's transforms of geometries and vectors: swapped coordinates, EWKB, and vectors as JSON.

Source: ``SwapGeometryCoordinates``, ``GeometryFormatTransformer`` and ``VectorToJsonConverter`` of Debezium 3.6.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    RecordSchema,
    SchemaField,
    TransformFault,
    require_struct,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    ChainRecord,
    Option,
    SchemaCache,
    Transform,
    names,
    one_of,
)

_GEOMETRY = "io.debezium.data.geometry.Geometry"
_SRID_FLAG = 0x20000000
_DIMENSION_FLAGS = (0x80000000, 0x40000000)
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_DEFAULT_SRIDS = (4326, 3857, 4269)
_VECTORS: dict[str | None, Callable[[float], str]] = {
    "io.debezium.data.DoubleVector": java_double,
    "io.debezium.data.FloatVector": java_float,
}


def _srids(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, names(text)))
    except ValueError:
        raise ValueError("must be a list of numbers") from None


def _change_geometries(schema: RecordSchema, value: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> None:
    """Change the geometries of a struct in place, those of nested structs too; null becomes a field's default."""
    for member in schema.fields:
        found = value[member.name] = member.read(value)
        if found is None or member.schema.type != "struct":
            continue
        if member.schema.name == _GEOMETRY:
            change(found)
        else:
            _change_geometries(member.schema, found, change)


class SwapGeometryCoordinates(Transform):
    """Swap the first two coordinates of geometries of some reference systems."""

    DOC = "swaps the coordinates of `io.debezium.data.geometry.Geometry`"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "srids": Option(_srids, "reference systems; default `4326,3857,4269`", _DEFAULT_SRIDS)
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._srids: tuple[int, ...] = options["srids"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema = record.value_schema
        if schema is not None and schema.type == "struct" and record.value is not None:
            _change_geometries(schema, record.value, self._swap)
        return record

    def _swap(self, geometry: dict[str, Any]) -> None:
        if geometry.get("srid") in self._srids and geometry.get("wkb") is not None:
            try:
                swapped = bytearray(geometry["wkb"])
                _swap_geometry(swapped, 0)
            except (struct.error, IndexError):
                raise TransformFault("Failed to swap EWKB/WKB coordinates") from None
            geometry["wkb"] = bytes(swapped)


def _swap_geometry(data: bytearray, at: int) -> int:
    """Swap the coordinates of the geometry at an offset; return the offset behind it."""
    order = "<" if data[at] else ">"
    (kind,) = struct.unpack_from(f"{order}I", data, at + 1)
    at += 9 if kind & _SRID_FLAG else 5
    iso = (kind & 0xFFFF) // 1000
    size = 2 + sum(bool(kind & flag) for flag in _DIMENSION_FLAGS) + (0, 1, 1, 2)[iso]
    kind = (kind & 0xFFFF) % 1000

    def points(count: int, at: int) -> int:
        for _ in range(count):
            x, y = struct.unpack_from(f"{order}dd", data, at)
            struct.pack_into(f"{order}dd", data, at, y, x)
            at += 8 * size
        return at

    if kind == _POINT:
        return points(1, at)
    (count,) = struct.unpack_from(f"{order}I", data, at)
    at += 4
    if kind == _LINE:
        return points(count, at)
    for _ in range(count):
        if kind == _POLYGON:
            (ring,) = struct.unpack_from(f"{order}I", data, at)
            at = points(ring, at + 4)
        elif kind <= _COLLECTION:
            at = _swap_geometry(data, at)
        else:
            raise IndexError(kind)
    return at


class GeometryFormatTransformer(Transform):
    """Write geometries as EWKB, or those in EWKB as WKB.

    With ``format=wkb``, which is the default, Debezium 3.6.1 writes EWKB, and with ``ewkb`` WKB.
    """

    DOC = "`format=wkb` (the default) writes geometries as EWKB and `ewkb` as WKB, as Debezium 3.6.1 does"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "format": Option(one_of("wkb", "ewkb", any_case=True), "`wkb` or `ewkb`", "wkb")
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._format: str = options["format"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema = record.value_schema
        if schema is not None and schema.type == "struct" and record.value is not None:
            _change_geometries(schema, record.value, self._convert)
        return record

    def _convert(self, geometry: dict[str, Any]) -> None:
        wkb, srid = geometry.get("wkb"), geometry.get("srid")
        if wkb is None:
            return
        order = "<" if wkb[0] else ">"
        (kind,) = struct.unpack_from(f"{order}I", wkb, 1)
        extended = bool(kind & _SRID_FLAG)
        if extended:
            geometry["wkb"] = wkb[:1] + struct.pack(f"{order}I", kind & ~_SRID_FLAG) + wkb[9:]
        elif self._format == "wkb":
            if srid is None:
                raise TransformFault("Cannot convert to EWKB when SRID is null")
            geometry["wkb"] = wkb[:1] + struct.pack(f"{order}Ii", kind | _SRID_FLAG, srid) + wkb[5:]


class VectorToJsonConverter(Transform):
    """Write vectors as JSON text."""

    DOC = "writes vectors as JSON text"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._schemas = SchemaCache(_vector_schema)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.value is None:
            return record
        schema, value = require_struct(record.value_schema, record.value, "Value should be a struct")
        return record.set_value(self._schemas(schema), _vector_value(schema, value))


def _vector_schema(schema: RecordSchema) -> RecordSchema:
    fields = []
    for member in schema.fields:
        made = member.schema
        if made.name in _VECTORS:
            made = RecordSchema("string", made.optional, name="io.debezium.data.Json", version=1)
        elif made.type == "struct":
            made = _vector_schema(made)
        fields.append(SchemaField(member.name, made))
    return schema.basics(fields, optional=schema.optional)


def _vector_value(schema: RecordSchema, value: Mapping[str, Any]) -> dict[str, Any]:
    changed = {}
    for member in schema.fields:
        found = member.read(value)
        if found is not None and (number := _VECTORS.get(member.schema.name)) is not None:
            found = f'{{ "values": [{", ".join(map(number, found))}] }}'
        elif found is not None and member.schema.type == "struct":
            found = _vector_value(member.schema, found)
        changed[member.name] = found
    return changed
