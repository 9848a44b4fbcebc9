"""Kafka Connect's transforms of headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainHeader, ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.header_literals import parse_literal
from airflow_provider_mysql_cdc.cdc.transforms.option_values import NULL_DEFAULT, one_of, required_names, required_text
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema, TransformFault, require_struct
from airflow_provider_mysql_cdc.cdc.transforms.schemaless import java_map, require_map
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    Option,
    OptionError,
    PartTransform,
    SchemaCache,
    Transform,
)

_NO_FIELD = (
    'Cannot invoke "org.apache.kafka.connect.data.Field.schema()" because the return value of '
    '"org.apache.kafka.connect.data.Schema.field(String)" is null'
)


class InsertHeader(Transform):
    """Add a header with a fixed value."""

    DOC = "adds a header with a fixed value"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "header": Option(required_text, "the header's name", required=True),
        "value.literal": Option(parse_literal, "its value", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._header = ChainHeader(options["header"], *options["value.literal"])

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        record.headers.append(self._header)
        return record


class DropHeaders(Transform):
    """Remove headers."""

    DOC = "removes headers"
    OPTIONS: ClassVar[Mapping[str, Option]] = {"headers": Option(required_names, "their names", required=True)}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = frozenset(options["headers"])

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        record.headers = [header for header in record.headers if header.name not in self._names]
        return record


class HeaderFrom(PartTransform):
    """Copy or move fields to headers."""

    DOC = "copies or moves fields to headers"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "fields": Option(required_names, "the fields", required=True),
        "headers": Option(required_names, "names of the headers, in the same order", required=True),
        "operation": Option(one_of("move", "copy"), "`move` or `copy`", required=True),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        if len(options["fields"]) != len(options["headers"]):
            raise OptionError("headers", "must have as many entries as fields")
        self._fields = list(zip(options["fields"], options["headers"], strict=True))
        self._moves = options["operation"] == "move"
        self._default: bool = options["replace.null.with.default"]
        self._without = SchemaCache(self._rest)

    def _rest(self, schema: RecordSchema) -> RecordSchema:
        moved = {name for name, _ in self._fields}
        return schema.basics(member for member in schema.fields if member.name not in moved)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        what = "move" if self._moves else "copy"
        schema, value = self.read(record)
        if (plain := require_map(schema, value, f"header {what}")) is not None:
            record.headers += [ChainHeader(header, None, plain.get(name)) for name, header in self._fields]
            moved = {name for name, _ in self._fields} if self._moves else ()
            return self.write(record, None, {n: v for n, v in java_map(plain, {}).items() if n not in moved})
        schema, value = require_struct(schema, value, f"header {what}")
        for name, header in self._fields:
            member = schema.member(name)
            if member is None:
                raise TransformFault(_NO_FIELD, f"there is no field {name}")
            record.headers.append(ChainHeader(header, member.schema, member.read(value, default=self._default)))
        if self._moves:
            kept = self._without(schema)
            self.write(record, kept, {m.name: m.read(value, default=self._default) for m in kept.fields})
        return record
