"""Small transforms of Debezium 3.6.1 that look at whole events."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    DECIMAL,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    is_envelope,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    ChainHeader,
    ChainRecord,
    Option,
    SchemaCache,
    Transform,
    one_of,
    positive_number,
    required_names,
)
from airflow_provider_mysql_cdc.cdc.transforms.value_text import milliseconds_of

_CHANGE_TYPES = ("CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE")


class ReadToInsertEvent(Transform):
    """Give the rows of a snapshot op ``c`` in place of ``r``."""

    DOC = "snapshot rows have `op` `c` in place of `r`"

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.value is not None and is_envelope(record.value_schema) and record.value.get("op") == "r":
            record.value["op"] = "c"
        return record


def _change_types(text: str) -> frozenset[str]:
    types = required_names(text)
    if unknown := [name for name in types if name not in _CHANGE_TYPES]:
        raise ValueError(f"has {', '.join(unknown)}; there is {', '.join(_CHANGE_TYPES)}")
    return frozenset(types)


class SchemaChangeEventFilter(Transform):
    """Drop schema changes of some types."""

    DOC = "drops schema changes of some types"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "schema.change.event.exclude.list": Option(
            _change_types, f"types of those to drop: {', '.join(_CHANGE_TYPES)}", required=True
        )
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._excluded: frozenset[str] = options["schema.change.event.exclude.list"]

    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Apply the transform; see ``Transform``."""
        schema, value = record.value_schema, record.value
        if value is None or schema is None or not (schema.name or "").endswith(".SchemaChangeValue"):
            return record
        changes = value.get("tableChanges")
        if changes is None:
            return None
        kind = changes[0]["type"] if changes else "DATABASE"
        return None if kind in self._excluded else record


class ExtractChangedRecordState(Transform):
    """Add headers with the names of the columns that an update changed, and of those that it did not."""

    DOC = "adds headers with the columns that a change touched and did not touch"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "header.changed.name": Option(str.strip, "header of the changed columns; without it there is none", ""),
        "header.unchanged.name": Option(str.strip, "header of the other columns", ""),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._headers = [
            (name, RecordSchema("array", True, name=name, items=OPTIONAL_STRING), changed)
            for option, changed in (("header.changed.name", True), ("header.unchanged.name", False))
            if (name := options[option])
        ]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None or schema is None or not is_envelope(schema):
            return record
        before, after = event.get("before"), event.get("after")
        names: dict[bool, list[str]] = {True: [], False: []}
        if before is not None and after is not None:
            for member in schema.by_name["after"].schema.fields:
                old, new = before.get(member.name), after.get(member.name)
                # Debezium has the bits of BIT(n) as byte[], of which no two are equal for Java.
                changed = old != new or (new is not None and member.schema.name == "io.debezium.data.Bits")
                names[changed].append(member.name)
        record.headers += [ChainHeader(name, header, names[changed]) for name, header, changed in self._headers]
        return record


_FIELD = "sourceSchema"
_PARAMETER = "__debezium.source.column."
_COLUMN = struct_of(
    ("name", STRING),
    ("typeName", STRING),
    ("length", OPTIONAL_INT32),
    ("scale", OPTIONAL_INT32),
    ("comment", OPTIONAL_STRING),
).renamed("io.debezium.connector.source.schema.Column", 1)
_TABLE = struct_of(("columns", RecordSchema("array", items=_COLUMN))).renamed(
    "io.debezium.connector.source.schema.Table", 1
)
_SOURCE_SCHEMA = struct_of(("id", STRING), ("table", _TABLE)).renamed("io.debezium.connector.source.Schema", 1)


class ExtractSchemaToNewRecord(Transform):
    """Add the types of the source's columns, which ``column.propagate.source.type`` puts into the schema."""

    DOC = "adds the member `sourceSchema` with the columns' types; needs `column.propagate.source.type=.*`"
    NO_EFFECT: ClassVar[Mapping[str, str]] = {
        "schema.name.adjustment.mode": "the names of the schemas that are added suit every mode"
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._extended = SchemaCache(_with_source_schema)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None or schema is None or not is_envelope(schema):
            return record
        if event.get("before") is None and event.get("after") is None:
            return record
        columns = [_column(member) for member in schema.by_name["after"].schema.fields]
        read = {member.name: member.read(event) for member in schema.fields}
        source = {"id": event["source"].get("table"), "table": {"columns": columns}}
        return record.set_value(self._extended(schema), {**read, _FIELD: source})


def _with_source_schema(schema: RecordSchema) -> RecordSchema:
    return schema.basics([*schema.fields, SchemaField(_FIELD, _SOURCE_SCHEMA)], optional=schema.optional)


def _column(member: SchemaField) -> dict[str, Any]:
    parameters = member.schema.parameters or {}
    name, type_name = (parameters.get(_PARAMETER + what) for what in ("name", "type"))
    if name is None or type_name is None:
        raise TransformFault('set "column.propagate.source.type" or "datatype.propagate.source.type" to ".*"')
    length, scale = (parameters.get(_PARAMETER + what) for what in ("length", "scale"))
    return {
        "name": name,
        "typeName": type_name,
        "length": None if length is None else int(length),
        "scale": None if scale is None else int(scale),
        "comment": parameters.get(_PARAMETER + "comment"),
    }


_MASK64, _MASK32, _INT_MAX = (1 << 64) - 1, (1 << 32) - 1, (1 << 31) - 1
_SEED = 9001


class PartitionRouting(Transform):
    """Choose the partition of change events by the hash of some of their members; tombstones go by their key."""

    DOC = "chooses the partition of change events by members of the event"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "partition.payload.fields": Option(
            required_names, "members: `source.table,change.id`; `change` is `after`, of deletes `before`", required=True
        ),
        "partition.topic.num": Option(positive_number, "number of partitions", required=True),
        "partition.hash.function": Option(
            one_of("java", "murmur", any_case=True), "`java` or `murmur`; default `java`", "java"
        ),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._paths = [tuple(map(str.strip, name.split("."))) for name in options["partition.payload.fields"]]
        self._partitions: int = options["partition.topic.num"]
        self._hash = _murmur if options["partition.hash.function"] == "murmur" else _java_hash

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None or schema is None or not is_envelope(schema) or event.get("op") in ("t", "m"):
            return record
        found = [v for path in self._paths if (v := _find(schema, event, path)) is not None]
        if found:
            total = sum(self._hash(member, value) for member, value in found) & _INT_MAX
            record.partition = (0 if total == _INT_MAX else total) % self._partitions
        return record


def _find(schema: RecordSchema, event: Mapping[str, Any], path: tuple[str, ...]) -> tuple[RecordSchema, Any] | None:
    """Return the schema and the value of a member, or None where the event has none."""
    for name in path[:-1]:
        step = name if name != "change" else "before" if event.get("op") == "d" else "after"
        member = schema.member(step)
        if member is None or member.schema.type != "struct":
            return None
        schema, event = member.schema, event.get(step)  # type: ignore[assignment]
        if event is None:
            raise TransformFault(f"the event has no {step}, which {'.'.join(path)} is taken from")
    last = schema.member(path[-1])
    value = None if last is None else last.read(event)
    return None if last is None or value is None else (last.schema, value)


def _java_hash(schema: RecordSchema, value: Any) -> int:
    """Return ``hashCode`` of a value as a signed number of 32 bits.

    Raises:
        TransformFault: It is a struct.
    """
    kind = schema.type
    if kind == "string":
        code = 0
        data = value.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(data), 2):
            code = (code * 31 + (data[index] << 8 | data[index + 1])) & _MASK32
        return _signed(code)
    if kind == "boolean":
        return 1231 if value else 1237
    if kind == "bytes":
        return _hash_of_bytes(schema, value)
    if isinstance(value, int) and (ms := milliseconds_of(schema, value)) is not None:
        return _signed((ms ^ (ms >> 32)) & _MASK32)
    if kind in ("int8", "int16", "int32"):
        return int(value)
    if kind == "int64":
        return _signed((value ^ (value >> 32)) & _MASK32)
    if kind == "float":
        return int(struct.unpack(">i", struct.pack(">f", value))[0])
    if kind == "double":
        bits = struct.unpack(">q", struct.pack(">d", value))[0]
        return _signed((bits ^ (bits >> 32)) & _MASK32)
    if kind == "array" and schema.items is not None:
        code = 1
        for item in value:
            code = (code * 31 + (0 if item is None else _java_hash(schema.items, item))) & _MASK32
        return _signed(code)
    raise TransformFault(f"the partition cannot be chosen by a value of type {schema.name or kind}")


def _hash_of_bytes(schema: RecordSchema, value: bytes) -> int:
    """Return ``BigDecimal.hashCode`` of a Decimal, and ``ByteBuffer.hashCode`` of other bytes."""
    code = 0
    if schema.name != DECIMAL:
        code = 1
        for byte in reversed(value):
            code = (code * 31 + (byte - 256 if byte > 127 else byte)) & _MASK32
        return _signed(code)
    number = int.from_bytes(value, "big", signed=True)
    magnitude = abs(number)
    for shift in range((magnitude.bit_length() + 31) // 32 * 32 - 32, -1, -32):
        code = (code * 31 + (magnitude >> shift & _MASK32)) & _MASK32
    scale = int((schema.parameters or {}).get("scale", "0"))
    return _signed((31 * (-code if number < 0 else code) + scale) & _MASK32)


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits > _INT_MAX else bits


def _murmur(schema: RecordSchema, value: Any) -> int:
    data = value.encode() if schema.type == "string" else struct.pack("<i", _java_hash(schema, value))
    return _signed(_murmur_x64(data) >> 32)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK64


def _final(k: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        k = (k ^ k >> 33) * factor & _MASK64
    return k ^ k >> 33


def _murmur_x64(data: bytes) -> int:
    """Return the first half of MurmurHash3's x64 variant, as ``io.debezium.util.MurmurHash3`` computes it."""
    h1, h2 = 0x9368E53C2F6AF274 ^ _SEED, 0x586DCD208F7CD3FD ^ _SEED
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    full = len(data) & ~15
    blocks = [struct.unpack_from("<QQ", data, at) for at in range(0, full, 16)]
    if tail := data[full:]:
        blocks.append((_signed_bytes(tail[:8]), _signed_bytes(tail[8:])))
    for block1, block2 in blocks:
        k1 = _rotated(block1 * c1 & _MASK64, 23) * c2 & _MASK64
        h1 = ((h1 ^ k1) + h2) & _MASK64
        h2 = _rotated(h2, 41)
        k2 = _rotated(block2 * c2 & _MASK64, 23) * c1 & _MASK64
        h2 = ((h2 ^ k2) + h1) & _MASK64
        h1, h2 = (h1 * 3 + 0x52DCE729) & _MASK64, (h2 * 3 + 0x38495AB5) & _MASK64
        c1, c2 = (c1 * 5 + 0x7B7D159C) & _MASK64, (c2 * 5 + 0x6BCE6396) & _MASK64
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    h1, h2 = _final(h1), _final(h2)
    return (h1 + h2) & _MASK64


def _signed_bytes(data: bytes) -> int:
    """Return the last bytes as a number, each with its sign, as Java's ``byte`` has it."""
    number = 0
    for index, byte in enumerate(data):
        number ^= (byte - 256 if byte > 127 else byte) << 8 * index & _MASK64
    return number
