"""``TimestampConverter`` of Kafka Connect: times as text, numbers or Connect's types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.date_format import JavaDateFormat
from airflow_provider_mysql_cdc.cdc.transforms.option_values import NULL_DEFAULT, one_of
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    RecordSchema,
    SchemaField,
    TransformFault,
    java_class,
    require_struct,
)
from airflow_provider_mysql_cdc.cdc.transforms.schemaless import inferred, java_map, require_map
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, OptionError, PartTransform, SchemaCache
from airflow_provider_mysql_cdc.cdc.transforms.value_text import milliseconds_of

_DAY_MS, _MS_PER_SECOND = 86_400_000, 1_000
_PER_MS = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}
_NO_FORMAT = 'Cannot invoke "java.text.SimpleDateFormat.parse(String)" because "config.format" is null'
_TARGETS = {
    "string": ("string", None),
    "unix": ("int64", None),
    "Date": ("int32", CONNECT_DATE),
    "Time": ("int32", CONNECT_TIME),
    "Timestamp": ("int64", CONNECT_TIMESTAMP),
}


class TimestampConverter(PartTransform):
    """Convert a field, or a whole key or value, from one form of time to another."""

    DOC = "converts times: text, unix time, Connect's `Date`, `Time` and `Timestamp`"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "field": Option(str.strip, "the field; without it the whole key or value", ""),
        "target.type": Option(one_of(*_TARGETS), f"{', '.join(_TARGETS)}", required=True),
        "format": Option(lambda text: JavaDateFormat(text) if text.strip() else None, "format of texts"),
        "unix.precision": Option(one_of("seconds", *_PER_MS), "of unix times; default `milliseconds`", "milliseconds"),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._field: str = options["field"]
        self._target: str = options["target.type"]
        self._format: JavaDateFormat | None = options["format"]
        self._precision: str = options["unix.precision"]
        self._default: bool = options["replace.null.with.default"]
        if self._target == "string" and self._format is None:
            raise OptionError("format", "is missing; target.type=string needs it", "Set it")
        self._schemas = SchemaCache(self._schema)

    def _schema(self, schema: RecordSchema) -> RecordSchema:
        fields = (
            SchemaField(m.name, self._typed(m.schema) if m.name == self._field else m.schema) for m in schema.fields
        )
        return schema.basics(fields, optional=schema.optional)

    def _typed(self, schema: RecordSchema) -> RecordSchema:
        kind, name = _TARGETS[self._target]
        return RecordSchema(kind, schema.optional, name=name, version=None if name is None else 1)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if schema is None and value is None:
            return record
        if schema is None and not self._field:
            return self.write(record, None, self._plain(value))
        if (plain := require_map(schema, value, "converting timestamp formats")) is not None:
            converted = {self._field: self._plain(plain.get(self._field))}
            return self.write(record, None, java_map(plain, converted))
        assert schema is not None
        if not self._field:
            return self.write(record, self._typed(schema), self._converted(schema, value))
        if value is None:
            return self.write(record, self._schemas(schema), None)
        schema, value = require_struct(schema, value, "converting timestamp formats")
        updated = {member.name: member.read(value, default=self._default) for member in schema.fields}
        if (member := schema.member(self._field)) is not None:
            updated[self._field] = self._converted(member.schema, updated[self._field])
        return self.write(record, self._schemas(schema), updated)

    def _plain(self, value: Any) -> Any:
        """Return a value without a schema in the other form."""
        if value is None:
            return None
        schema = inferred(value)
        if schema.type not in ("string", "int64"):
            found = java_class(schema, value)
            raise TransformFault(f"TimestampConverter does not support class {found} objects as timestamps")
        return self._converted(schema, value)

    def _converted(self, schema: RecordSchema, value: Any) -> Any:
        if milliseconds_of(schema, 0) is None and schema.type not in ("string", "int64"):
            text = f"{schema.name}:{schema.java_type()}" if schema.name else schema.java_type()
            raise TransformFault(f"Schema Schema{{{text}}} does not correspond to a known timestamp type format")
        return None if value is None else self._written(self._milliseconds(schema, value))

    def _milliseconds(self, schema: RecordSchema, value: Any) -> int:
        if schema.type == "string":
            try:
                if self._format is None:
                    raise TransformFault(_NO_FORMAT, "format is missing; texts need it")
                return self._format.parse(value)
            except ValueError:
                assert self._format is not None
                pattern = self._format.pattern
                raise TransformFault(
                    f"Could not parse timestamp: value ({value}) does not match pattern ({pattern})"
                ) from None
        known = milliseconds_of(schema, value)
        if known is not None:
            return known
        number: int = value
        if self._precision == "seconds":
            return _saturated(number * _MS_PER_SECOND)
        return _truncated(number, _PER_MS[self._precision])

    def _written(self, ms: int) -> Any:
        if self._target == "string":
            assert self._format is not None
            return self._format.format(ms)
        if self._target == "unix":
            if self._precision == "seconds":
                return _truncated(ms, _MS_PER_SECOND)
            return _saturated(ms * _PER_MS[self._precision])
        return {"Date": (ms // _DAY_MS + 2**31) % 2**32 - 2**31, "Time": ms % _DAY_MS, "Timestamp": ms}[self._target]


def _truncated(number: int, divisor: int) -> int:
    """Return a quotient rounded towards 0, as Java does."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _saturated(number: int) -> int:
    """Return a number within 64 bits, as Java's ``TimeUnit`` does."""
    return max(-(2**63), min(number, 2**63 - 1))
