"""Transforms of topic names, ``Filter``, and Kafka Connect's predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.model import avro_names
from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import Rewrite, parse_replacement
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    is_envelope,
    require_struct,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    ChainRecord,
    Option,
    OptionError,
    Predicate,
    Transform,
    expression,
    flag,
    one_of,
    required_expression,
    required_text,
)
from airflow_provider_mysql_cdc.cdc.transforms.value_text import JavaDateFormat

KEY_FIELD = "__dbz__physicalTableIdentifier"


def rewrite_of(options: Mapping[str, Any], regex: str, replacement: str) -> Rewrite:
    """Return what rewrites names, by an expression and a replacement.

    Args:
        options: The options of a transform.
        regex: The option with the expression.
        replacement: The option with the replacement.
    """
    try:
        return Rewrite(options[regex], parse_replacement(options[replacement], options[regex]))
    except ValueError as error:
        raise OptionError(replacement, str(error)) from None


class ByLogicalTableRouter(Transform):
    """Rename topics so that several tables share one, and name the schemas after it."""

    DOC = "renames topics so that several tables share one; the schemas are named after the new topic"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "topic.regex": Option(required_expression, "matches the whole topic name", required=True),
        "topic.replacement": Option(required_text, "the new name; `$1` is the first group", required=True),
        "key.enforce.uniqueness": Option(flag, "whether keys get a field that names the table; default `true`", True),
        "key.field.name": Option(required_text, f"that field's name; default `{KEY_FIELD}`", KEY_FIELD),
        "key.field.regex": Option(
            lambda text: expression(text) if text.strip() else None,
            "matches the old topic name; without it the field holds that name",
        ),
        "key.field.replacement": Option(str, "makes the field's value of the match", ""),
        "schema.name.adjustment.mode": Option(
            one_of("none", "avro", "avro_unicode", any_case=True),
            "how schema names are adjusted; default `none`, with contract 1.9 `avro`",
        ),
    }
    NO_EFFECT: ClassVar[Mapping[str, str]] = {"logical.table.cache.size": "names are made once for each table version"}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.topic = rewrite_of(options, "topic.regex", "topic.replacement")
        self.key_field = options["key.field.name"] if options["key.enforce.uniqueness"] else None
        self.identifier = None
        if options["key.field.regex"] is not None:
            if not options["key.field.replacement"].strip():
                what = "must not be empty when key.field.regex is set"
                raise OptionError("key.field.replacement", what, "Set it, or remove key.field.regex")
            self.identifier = rewrite_of(options, "key.field.regex", "key.field.replacement")
        self._mode: str = options["schema.name.adjustment.mode"] or "none"
        self._made: dict[tuple[RecordSchema, str], RecordSchema] = {}

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        old_topic, new_topic = record.topic, self.topic(record.topic)
        if not new_topic:
            return record
        record.topic = new_topic
        if record.key is not None:
            schema, key = require_struct(record.key_schema, record.key, "Updating schema")
            record.set_key(self._renamed(schema, new_topic, "Key"), self._key(key, old_topic))
        else:
            record.set_key(None, None)
        if record.value is not None and record.value_schema is not None and is_envelope(record.value_schema):
            schema = record.value_schema
            event = {m.name: m.read(record.value) for m in schema.fields}
            record.set_value(self._renamed(schema, new_topic, "Envelope"), event)
        return record

    def _key(self, key: dict[str, Any], old_topic: str) -> dict[str, Any]:
        if self.key_field is None:
            return key
        identifier = None if self.identifier is None else self.identifier(old_topic)
        return {**key, self.key_field: old_topic if identifier is None else identifier}

    def _renamed(self, schema: RecordSchema, topic: str, part: str) -> RecordSchema:
        made = self._made.get((schema, topic))
        if made is None:
            made = self._made[schema, topic] = (self._key_schema if part == "Key" else self._envelope)(schema, topic)
        return made

    def _name(self, topic: str, part: str) -> str:
        return avro_names.schema_name(f"{topic}.{part}", self._mode)

    def _key_schema(self, schema: RecordSchema, topic: str) -> RecordSchema:
        fields = list(schema.fields)
        if self.key_field is not None:
            fields.append(SchemaField(self.key_field, STRING))
        return schema.basics(fields, optional=schema.optional).renamed(self._name(topic, "Key"))

    def _envelope(self, schema: RecordSchema, topic: str) -> RecordSchema:
        old = schema.by_name["before"].schema
        row = old.basics(old.fields, optional=old.optional).renamed(self._name(topic, "Value"))
        fields = [SchemaField(m.name, row if m.name in ("before", "after") else m.schema) for m in schema.fields]
        return schema.basics(fields, optional=schema.optional).renamed(self._name(topic, "Envelope"))


class RegexRouter(Transform):
    """Rename topics; schemas and keys stay."""

    DOC = "renames topics; schemas and keys stay"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "regex": Option(expression, "matches the whole topic name", required=True),
        "replacement": Option(str, "the new name; `$1` is the first group", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.rewrite = rewrite_of(options, "regex", "replacement")

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        topic = self.rewrite(record.topic)
        if topic is not None:
            record.topic = topic
        return record


class TimestampRouter(Transform):
    """Name topics after the record's timestamp, which only ``EventRouter`` gives to records."""

    DOC = "names topics after the record's timestamp, which only `EventRouter` gives to records"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "topic.format": Option(str, "the name; default `${topic}-${timestamp}`", "${topic}-${timestamp}"),
        "timestamp.format": Option(
            JavaDateFormat, "format of the timestamp; default `yyyyMMdd`", JavaDateFormat("yyyyMMdd")
        ),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._topic: str = options["topic.format"]
        self._format: JavaDateFormat = options["timestamp.format"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.timestamp is None:
            raise TransformFault("Timestamp missing on record")
        named = self._topic.replace("${topic}", record.topic)
        record.topic = named.replace("${timestamp}", self._format.format(record.timestamp))
        return record


class Filter(Transform):
    """Drop the records that its predicate selects."""

    DOC = "drops the records that its predicate selects"

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def apply(self, record: ChainRecord) -> None:
        """Apply the transform; see ``Transform``."""
        return None


class TopicNameMatches(Predicate):
    """Select records by the whole name of their topic."""

    DOC = "selects records by the name of their topic"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "pattern": Option(required_expression, "matches the whole topic name", required=True)
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.pattern: Expression = options["pattern"]
        self._known: dict[str, bool] = {}

    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""
        known = self._known.get(record.topic)
        if known is None:
            if len(self._known) > 10_000:
                self._known.clear()
            known = self._known[record.topic] = self.pattern.fullmatch(record.topic) is not None
        return known


class RecordIsTombstone(Predicate):
    """Select records without a value."""

    DOC = "selects tombstones"

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""
        return record.value is None


class HasHeaderKey(Predicate):
    """Select records that have a header."""

    DOC = "selects records that have a header"
    OPTIONS: ClassVar[Mapping[str, Option]] = {"name": Option(required_text, "the header's name", required=True)}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name: str = options["name"]

    def test(self, record: ChainRecord) -> bool:
        """Return whether a record is selected."""
        return record.header(self._name) is not None
