"""Connect schemas of the records that pass a chain of transforms, and maps without one.

Connect schemas of the records that pass a chain of transforms.

The value of a struct is a dict, of an array a list, of bytes ``bytes``; logical types have the value that JsonConverter
writes (a Decimal its unscaled bytes, a Timestamp its milliseconds).

Source: ``ConnectSchema``, ``SchemaBuilder`` and ``transforms.util.SchemaUtil`` of Kafka Connect 4.3.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.java import hash_map_order

DECIMAL = "org.apache.kafka.connect.data.Decimal"
CONNECT_DATE = "org.apache.kafka.connect.data.Date"
CONNECT_TIME = "org.apache.kafka.connect.data.Time"
CONNECT_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NESTED = frozenset({"struct", "map"})
_LOGICAL_CLASSES = {
    DECIMAL: "java.math.BigDecimal",
    **dict.fromkeys((CONNECT_DATE, CONNECT_TIME, CONNECT_TIMESTAMP), "java.util.Date"),
}
_CLASSES = {
    "int8": "java.lang.Byte",
    "int16": "java.lang.Short",
    "int32": "java.lang.Integer",
    "int64": "java.lang.Long",
    "float": "java.lang.Float",
    "double": "java.lang.Double",
    "boolean": "java.lang.Boolean",
    "string": "java.lang.String",
    "bytes": "java.nio.HeapByteBuffer",
    "array": "java.util.ArrayList",
    "map": "java.util.HashMap",
    "struct": "org.apache.kafka.connect.data.Struct",
}


class TransformFault(Exception):
    """A transform or a converter cannot take a record, as Connect's would not.

    Args:
        text: Connect's own text.
        hint: What that does not say.
    """

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class SchemaField(NamedTuple):
    """One field of a struct."""

    name: str
    schema: RecordSchema

    def read(self, struct: Mapping[str, Any], *, default: bool = True) -> Any:
        """Return the field's value; for null its default (``Struct.get``), unless that is not wanted.

        Args:
            struct: The struct's value.
            default: Whether null becomes the default.
        """
        value = struct.get(self.name)
        return self.schema.default if value is None and default else value


@dataclass(frozen=True, slots=True, eq=False)
class RecordSchema:
    """A Connect schema; two of them are compared with ``same``.

    Args:
        type: Its type, as JsonConverter names it.
        optional: Whether a value may be null.
        default: The value in place of null; None for none.
        name: Its name.
        version: Its version.
        doc: Its documentation.
        parameters: Its parameters; None where it has none.
        fields: The fields of a struct.
        items: The schema of an array's members and of a map's values.
        keys: The schema of a map's keys.
    """

    type: str
    optional: bool = False
    default: Any = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = None
    fields: tuple[SchemaField, ...] = ()
    items: RecordSchema | None = None
    keys: RecordSchema | None = None
    by_name: dict[str, SchemaField] = field(init=False)

    def __post_init__(self) -> None:
        names: dict[str, SchemaField] = {}
        for member in self.fields:
            if member.name in names:
                raise TransformFault(f"Cannot create field because of field name duplication {member.name}")
            names[member.name] = member
        object.__setattr__(self, "by_name", names)

    def java_type(self) -> str:
        """Return the type as Java's ``Schema.Type`` names it."""
        return {"float": "FLOAT32", "double": "FLOAT64"}.get(self.type, self.type.upper())

    def member(self, name: str) -> SchemaField | None:
        """Return a field of a struct, or None."""
        return self.by_name.get(name)

    def basics(self, fields: Iterable[SchemaField] = (), *, optional: bool = False) -> RecordSchema:
        """Return a schema with this one's name, version, doc and parameters, and neither optional nor with a default.

        Args:
            fields: The fields of the new one.
            optional: Whether it is optional.
        """
        return RecordSchema(
            self.type, optional, None, self.name, self.version, self.doc, self.parameters, tuple(fields), self.items,
            self.keys,
        )  # fmt: skip

    def renamed(self, name: str | None, version: int | None = None) -> RecordSchema:
        """Return this schema with another name, and another version unless that is None."""
        return RecordSchema(
            self.type, self.optional, self.default, name, self.version if version is None else version, self.doc,
            self.parameters, self.fields, self.items, self.keys,
        )  # fmt: skip

    def same(self, other: RecordSchema | None) -> bool:
        """Return whether another schema equals this one in everything.

        Args:
            other: The other schema.
        """
        return self is other or (other is not None and self.identity() == other.identity())

    def identity(self) -> tuple[Any, ...]:
        """Return what equal schemas have in common; it can be a key of a dict."""
        return (
            self.type,
            self.optional,
            repr(self.default),
            self.name,
            self.version,
            self.doc,
            None if self.parameters is None else tuple(sorted(self.parameters.items())),
            tuple((member.name, member.schema.identity()) for member in self.fields),
            None if self.items is None else self.items.identity(),
            None if self.keys is None else self.keys.identity(),
        )


def struct_of(*members: tuple[str, RecordSchema], name: str | None = None, optional: bool = False) -> RecordSchema:
    """Return the schema of a struct.

    Args:
        members: Names and schemas of its fields.
        name: Its name.
        optional: Whether it is optional.
    """
    return RecordSchema("struct", optional, name=name, fields=tuple(SchemaField(*member) for member in members))


STRING, OPTIONAL_STRING = RecordSchema("string"), RecordSchema("string", True)
INT32, OPTIONAL_INT32 = RecordSchema("int32"), RecordSchema("int32", True)
INT64, OPTIONAL_INT64 = RecordSchema("int64"), RecordSchema("int64", True)
OPTIONAL_BOOLEAN, OPTIONAL_DOUBLE = RecordSchema("boolean", True), RecordSchema("double", True)
OPTIONAL_BYTES = RecordSchema("bytes", True)


def parse_schema(document: Mapping[str, Any]) -> RecordSchema:
    """Return the schema that JsonConverter wrote.

    Args:
        document: The schema as JSON.
    """
    items = document.get("items", document.get("values"))
    schema = RecordSchema(
        document["type"],
        document.get("optional", False),
        None,
        document.get("name"),
        document.get("version"),
        document.get("doc"),
        document.get("parameters"),
        tuple(SchemaField(member["field"], parse_schema(member)) for member in document.get("fields", ())),
        None if items is None else parse_schema(items),
        parse_schema(document["keys"]) if "keys" in document else None,
    )
    default = document.get("default")
    if default is not None:
        object.__setattr__(schema, "default", a2b_base64(default) if schema.type == "bytes" else default)
    return schema


def is_envelope(schema: RecordSchema | None) -> bool:
    """Return whether a value with this schema is a change event.

    Args:
        schema: The schema of a record's value.
    """
    return schema is not None and schema.name is not None and schema.name.endswith(".Envelope")


def require_struct(schema: RecordSchema | None, value: Any, purpose: str) -> tuple[RecordSchema, dict[str, Any]]:
    """Return a struct's schema and value.

    Args:
        schema: The schema.
        value: The value.
        purpose: What it is needed for.

    Raises:
        TransformFault: It is none.
    """
    if schema is None or value is None or schema.type != "struct":
        wanted = "Map objects supported in absence of schema" if schema is None else "Struct objects supported"
        raise TransformFault(f"Only {wanted} for [{purpose}], found: {java_class(schema, value)}")
    return schema, value


def java_class(schema: RecordSchema | None, value: Any) -> str:
    """Return the name of the Java class that Debezium has for a value.

    Args:
        schema: Its schema.
        value: The value.
    """
    if value is None:
        return "null"
    if schema is None:
        return "java.util.HashMap"
    known = _LOGICAL_CLASSES.get(schema.name or "") or _CLASSES[schema.type]
    return "[B" if schema.type == "bytes" and schema.name and known.endswith("ByteBuffer") else known


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
