"""``Cast`` and ``MaskField`` of Kafka Connect: fields in another type, or with another value."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    DECIMAL,
    INTEGER_BITS,
    NESTED,
    RecordSchema,
    SchemaField,
    TransformFault,
    inferred,
    java_class,
    java_map,
    require_map,
    require_struct,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    NULL_DEFAULT,
    ChainRecord,
    Option,
    PartTransform,
    SchemaCache,
    required_names,
    required_text,
)
from airflow_provider_mysql_cdc.cdc.transforms.value_text import (
    NUMBER,
    date_text,
    decimal_bytes,
    decimal_of,
    float32,
    java_decimal,
    java_number,
    milliseconds_of,
    unscaled_of,
)

_TARGETS = {
    **{name: name for name in (*INTEGER_BITS, "boolean", "string")},
    "float32": "float",
    "float64": "double",
}
_LOGICAL_VALUES = {DECIMAL: "BigDecimal", **dict.fromkeys((CONNECT_DATE, CONNECT_TIME, CONNECT_TIMESTAMP), "Date")}
"""What converters expect of values with these names; a cast value keeps the name and is something else."""
_SUPPORTED = "supported types are [INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES]"
_INTEGER = re.compile(r"[+-]?\d+")  # digits of any script, as Java's
_REAL = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:NaN|Infinity))[fFdD]?\s*", re.ASCII)


def _casts(text: str) -> dict[str, str]:
    casts: dict[str, str] = {}
    for entry in required_names(text):
        name, colon, kind = entry.rpartition(":")
        if ":" in name:
            raise ValueError(f"has the entry {entry}; write field:type")
        target = _TARGETS.get(kind.strip().lower())
        if target is None:
            raise ValueError(f"has the type {kind}; there is {', '.join(_TARGETS)}")
        casts[name.strip() if colon else ""] = target
    if "" in casts and len(casts) > 1:
        raise ValueError("has a type for the whole value, which must stand alone")
    return casts


class Cast(PartTransform):
    """Convert fields to other types."""

    DOC = "converts fields, or a whole key or value, to another type"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "spec": Option(_casts, "`field:type,field:type`, or one type for the whole", required=True),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._casts: dict[str, str] = options["spec"]
        self._whole = self._casts.get("")
        self._default: bool = options["replace.null.with.default"]
        self._schemas = SchemaCache(self._schema)

    def _schema(self, schema: RecordSchema) -> RecordSchema:
        if self._whole is not None:
            return _cast_schema(schema, self._whole, named=True)
        fields = [
            SchemaField(m.name, _cast_schema(m.schema, t) if (t := self._casts.get(m.name)) else m.schema)
            for m in schema.fields
        ]
        return schema.basics(fields, optional=schema.optional)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if value is None:
            return record
        if self._whole is not None and schema is not None:
            made = self._schemas(schema)
            cast = cast_value(schema, value, self._whole)
            if (name := schema.name) in _LOGICAL_VALUES:
                found, expected = java_class(RecordSchema(made.type), cast), _LOGICAL_VALUES[name]
                kind = name.rpartition(".")[2]
                raise TransformFault(f"Invalid type for {kind}, expected {expected} but was class {found}")
            return self.write(record, made, cast)
        if (plain := require_map(schema, value, "cast types")) is not None:
            if self._whole is not None:
                raise TransformFault(f"Cast transformation does not support casting from MAP; {_SUPPORTED}")
            cast = {name: self._plain(plain.get(name), target) for name, target in self._casts.items()}
            return self.write(record, None, java_map(plain, cast))
        schema, value = require_struct(schema, value, "cast types")
        made, updated = self._schemas(schema), {}
        for member in schema.fields:
            found, target = member.read(value, default=self._default), self._casts.get(member.name)
            updated[member.name] = found if target is None else cast_value(member.schema, found, target)
        return self.write(record, made, updated)

    def _plain(self, value: Any, target: str) -> Any:
        return None if value is None else cast_value(inferred(value), value, target)


def _cast_schema(schema: RecordSchema, target: str, *, named: bool = False) -> RecordSchema:
    default = cast_value(schema, schema.default, target)
    if named and default is not None and schema.name in _LOGICAL_VALUES:
        raise TransformFault("Invalid default value")
    if not named:
        return RecordSchema(target, schema.optional, default)
    return RecordSchema(
        target, schema.optional, default, schema.name, schema.version, schema.doc, schema.parameters
    )  # fmt: skip


def cast_value(schema: RecordSchema, value: Any, target: str) -> Any:
    """Return a value in another type.

    Args:
        schema: The schema of the value.
        value: The value, or None.
        target: The type, as JsonConverter names it.

    Raises:
        TransformFault: It cannot be converted.
    """
    if value is None:
        return None
    if schema.type in NESTED or schema.type == "array":
        raise TransformFault(f"Cast transformation does not support casting from {schema.type.upper()}; {_SUPPORTED}")
    if schema.name == DECIMAL:
        value = decimal_of(schema, value)
    elif schema.type == "float":
        value = float32(value)
    if target == "string":
        return _text(schema, value)
    if isinstance(value, bytes):
        raise TransformFault(f"Unexpected type in Cast transformation: class {java_class(schema, value)}")
    if isinstance(value, str):
        return _from_text(value, target)
    if target == "boolean":
        return value if isinstance(value, bool) else int(value) != 0
    if target in INTEGER_BITS:
        return _integer(value, INTEGER_BITS[target])
    return float32(float(value)) if target == "float" else float(value)


def _text(schema: RecordSchema, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and (ms := milliseconds_of(schema, value)) is not None:
        return date_text(ms)
    if isinstance(value, float):
        return java_number(schema.type, value)
    if isinstance(value, Decimal):
        return java_decimal(value)
    return b2a_base64(value, newline=False).decode() if isinstance(value, bytes) else str(value)


def _integer(value: float | Decimal, bits: int) -> int:
    """Return a number as Java narrows it: floating point ends at the limits of 32 or 64 bits, the rest wraps."""
    if isinstance(value, float):
        limit = 1 << (63 if bits == 64 else 31)
        number = 0 if value != value else int(min(max(value, -limit), limit - 1))  # noqa: PLR0124 (NaN)
    else:
        number = int(value)
    return ((number + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)


def _from_text(text: str, target: str) -> Any:
    if target == "boolean":
        return text.lower() == "true"
    fault = TransformFault(f"Value ({text}) was out of range for requested data type")
    if target in INTEGER_BITS:
        limit = 1 << INTEGER_BITS[target] - 1
        if _INTEGER.fullmatch(text) is None or not -limit <= int(text) < limit:
            raise fault
        return int(text)
    match = _REAL.fullmatch(text)
    if match is None:
        raise fault
    number = float(match[1])
    return float32(number) if target == "float" else number


class MaskField(PartTransform):
    """Replace the values of fields."""

    DOC = "replaces the values of fields by 0, an empty text, or a fixed value"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "fields": Option(required_names, "the fields", required=True),
        "replacement": Option(required_text, "the value that replaces numbers and texts"),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = frozenset(options["fields"])
        self._replacement: str | None = options["replacement"]
        self._default: bool = options["replace.null.with.default"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if (plain := require_map(schema, value, "mask fields")) is not None:
            found = {name: plain.get(name) for name in self._names}
            masked = {n: None if v is None else self._masked(inferred(v), v) for n, v in found.items()}
            return self.write(record, None, java_map(plain, masked))
        schema, value = require_struct(schema, value, "mask fields")
        updated = {}
        for member in schema.fields:
            found = member.read(value, default=self._default)
            is_masked = found is not None and member.name in self._names
            updated[member.name] = self._masked(member.schema, found) if is_masked else found
        return self.write(record, schema, updated)

    def _masked(self, schema: RecordSchema, value: Any) -> Any:
        if self._replacement is not None:
            return _replaced(schema, value, self._replacement)
        if schema.name == DECIMAL:
            return _scaled(schema, Decimal(0))
        if schema.type in ("struct", "bytes"):
            raise TransformFault(f"Cannot mask value of type: class {java_class(schema, value)}")
        if schema.type == "array":
            return []
        return type(value)()


def _replaced(schema: RecordSchema, value: Any, text: str) -> Any:
    if schema.type == "string":
        return text
    is_date = isinstance(value, int) and milliseconds_of(schema, value) is not None
    if schema.name != DECIMAL and (is_date or schema.type not in (*INTEGER_BITS, "float", "double")):
        found = java_class(schema, value)
        raise TransformFault(f"Cannot mask value of type class {found} with custom replacement.")
    if NUMBER.fullmatch(text) is None:
        article = "" if schema.name == DECIMAL else "a "
        raise TransformFault(f"Unable to convert {text} (class java.lang.String) to {article}number")
    number = Decimal(text)
    if schema.name == DECIMAL:
        return _scaled(schema, number)
    if schema.type in INTEGER_BITS:
        bits = INTEGER_BITS[schema.type]
        return ((int(number) + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)
    real = float(number) + 0.0  # a BigDecimal has no negative zero
    return float32(real) if schema.type == "float" else real


def _scaled(schema: RecordSchema, number: Decimal) -> bytes:
    """Return a Decimal's bytes; the converter takes one with the schema's scale alone."""
    unscaled, found = unscaled_of(number)
    scale = (schema.parameters or {}).get("scale", "0")
    if str(found) != scale:
        raise TransformFault(
            f"Decimal value has mismatching scale for given Decimal schema. Schema has scale {scale}, value has scale "
            f"{found}."
        )
    return decimal_bytes(unscaled)
