"""Avro schemas of Kafka Connect schemas, as Confluent's AvroConverter makes them.

Source: ``io.confluent.connect.avro.AvroData.fromConnectSchema`` (schema-registry 7.x), and the order in which Avro's
Java library prints a schema. What Avro cannot express (a second struct of one name with other fields) is refused
there with "Can't redefine"; here the first one is used, because both are structs of one semantic type.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.convert.connect_types import DECIMAL_NAME
from airflow_provider_mysql_cdc.cdc.errors import SchemaError

AvroSchema = str | dict[str, Any] | list[Any]

# Names of structs without one.
DEFAULT_NAME = "ConnectDefault"
DEFAULT_NAMESPACE = "io.confluent.connect.avro"
# Precision of a Decimal without a precision parameter.
DEFAULT_PRECISION = 64
PRECISION_PARAMETER = "connect.decimal.precision"

_PRIMITIVES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
# Connect types that Avro's own would not bring back.
_NARROW = ("int8", "int16")
_LOGICAL = {
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Date": "date",
}


def avro_schema(schema: ConnectSchema, *, meta: bool = True) -> AvroSchema:
    """Return the Avro schema of a Connect schema.

    Args:
        schema: The schema as JsonConverter writes it; defaults are as JsonConverter writes them too (bytes are Base64).
        meta: ``connect.meta.data``: put in what brings the Connect schema back.

    Raises:
        SchemaError: A name is not allowed in Avro, or a type is not known.
    """
    return _SchemaConversion(meta).convert(schema, "")


def record_name(schema: ConnectSchema) -> str:
    """Return the full name of a schema in Avro, by which subjects may be named.

    Args:
        schema: A struct's schema, as JsonConverter writes it.
    """
    return _full_name(schema)


def null_index(schema: ConnectSchema) -> int | None:
    """Return the branch of null in the union that an optional schema becomes, or None when it is not optional.

    The value's branch comes first when there is a default, because Avro takes a default from the first branch.
    """
    if not schema.get("optional"):
        return None
    return 0 if schema.get("default") is None else 1


class _SchemaConversion:
    """Convert one schema; structs are printed once and named afterwards."""

    def __init__(self, meta: bool) -> None:
        self._meta = meta
        self._defined_records: set[str] = set()
        self._builders: dict[str, Callable[[ConnectSchema, str], dict[str, Any]]] = {
            "struct": self._record,
            "array": self._array,
            "map": self._map,
        }

    def convert(self, schema: ConnectSchema, outer_namespace: str) -> AvroSchema:
        base = self._value_type(schema, outer_namespace)
        null_branch = null_index(schema)
        if null_branch is None:
            return base
        return ["null", base] if null_branch == 0 else [base, "null"]

    def _value_type(self, schema: ConnectSchema, outer_namespace: str) -> AvroSchema:
        kind = schema["type"]
        if kind == "struct" and (full_name := _full_name(schema)) in self._defined_records:
            namespace, _, name = full_name.rpartition(".")
            return name if namespace == outer_namespace else full_name
        build = self._builders.get(kind, _primitive)
        avro_type = build(schema, outer_namespace)
        properties = _metadata(schema)
        avro_type |= {name: v for name, v in properties.items() if self._meta or not name.startswith("connect.")}
        return avro_type["type"] if len(avro_type) == 1 else avro_type

    def _record(self, schema: ConnectSchema, outer_namespace: str) -> dict[str, Any]:
        full_name = _full_name(schema)
        self._defined_records.add(full_name)
        namespace, _, name = full_name.rpartition(".")
        record: dict[str, Any] = {"type": "record", "name": _valid_name(name, full_name)}
        if namespace != outer_namespace:
            record["namespace"] = namespace
        return {**record, "fields": [self._field(field, namespace) for field in schema["fields"]]}

    def _field(self, field: ConnectSchema, outer_namespace: str) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": _valid_name(field["field"], field["field"]),
            "type": self.convert(field, outer_namespace),
        }
        if field.get("default") is not None:
            out["default"] = default_value(field)
        elif field.get("optional"):
            out["default"] = None
        return out

    def _array(self, schema: ConnectSchema, outer_namespace: str) -> dict[str, Any]:
        return {"type": "array", "items": self.convert(schema["items"], outer_namespace)}

    def _map(self, schema: ConnectSchema, outer_namespace: str) -> dict[str, Any]:
        return {"type": "map", "values": self.convert(schema["values"], outer_namespace)}


def _primitive(schema: ConnectSchema, outer_namespace: str) -> dict[str, Any]:
    kind = _PRIMITIVES.get(schema["type"])
    if kind is None:
        raise SchemaError(
            f"Connect type {schema['type']} cannot be written as Avro",
            remedy="use the JSON converter, exclude the column (column.exclude.list), or report the type",
        )
    if schema.get("name") != DECIMAL_NAME:
        return {"type": kind}
    precision, scale = _decimal(schema)
    return {"type": kind, "scale": scale, "precision": precision}


def _decimal(schema: ConnectSchema) -> tuple[int, int]:
    parameters = schema["parameters"]
    return int(parameters.get(PRECISION_PARAMETER, DEFAULT_PRECISION)), int(parameters["scale"])


def _metadata(schema: ConnectSchema) -> dict[str, Any]:
    """Return the properties that bring the Connect schema back, in AvroData's order."""
    name = schema.get("name")
    members = {
        "connect.doc": schema.get("doc"),
        "connect.version": schema.get("version"),
        "connect.parameters": dict(schema["parameters"]) if schema.get("parameters") else None,
        "connect.default": None if schema.get("default") is None else default_value(schema),
        "connect.name": name,
        "connect.type": schema["type"] if schema["type"] in _NARROW else None,
        "logicalType": _LOGICAL.get(name) if name else None,
    }
    if name == DECIMAL_NAME:
        precision, scale = _decimal(schema)
        # The Avro library refuses the logical type when the scale is beyond the precision.
        members["logicalType"] = (
            "decimal" if scale <= precision or PRECISION_PARAMETER in schema["parameters"] else None
        )
    return {key: value for key, value in members.items() if value is not None}


def default_value(schema: ConnectSchema) -> Any:
    """Return a schema's default as Avro writes it: bytes are text of one character a byte."""
    value = schema["default"]
    return b64decode(value).decode("latin-1") if schema["type"] == "bytes" else value


def _full_name(schema: ConnectSchema) -> str:
    """Return the full name of a struct's record; without a dot it has no namespace."""
    name = schema.get("name")
    if name is None:
        return f"{DEFAULT_NAMESPACE}.{DEFAULT_NAME}"
    for part in name.split("."):
        _valid_name(part, name)
    return str(name)


_NAME_REMEDY = (
    "set schema.name.adjustment.mode and field.name.adjustment.mode to avro, or to avro_unicode if a name begins with "
    "a digit that is not ASCII. As in Debezium, they adjust the beginning of the whole name; if a database or table "
    "begins with a digit, name its topic otherwise with the transform ByLogicalTableRouter"
)


def _valid_name(part: str, full_name: str) -> str:
    if part[:1].isdigit() or not part or not all(c == "_" or (c.isascii() and c.isalnum()) for c in part):
        raise SchemaError(
            f"{full_name!r} is not a valid Avro name (letters, digits and underscores, not starting with a digit)",
            remedy=_NAME_REMEDY,
        )
    return part
