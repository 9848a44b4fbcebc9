"""``MaskField`` of Kafka Connect: fields with an empty value, or a fixed one."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.option_values import NULL_DEFAULT, required_names, required_text
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    DECIMAL,
    INTEGER_BITS,
    RecordSchema,
    TransformFault,
    java_class,
    require_struct,
)
from airflow_provider_mysql_cdc.cdc.transforms.schemaless import inferred, java_map, require_map
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, PartTransform
from airflow_provider_mysql_cdc.cdc.transforms.value_text import (
    NUMBER,
    decimal_bytes,
    float32,
    milliseconds_of,
    unscaled_of,
)


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
