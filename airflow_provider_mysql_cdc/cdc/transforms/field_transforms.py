"""Kafka Connect's transforms of the fields of a key or value.

Source: ``connect/transforms`` of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_TIMESTAMP,
    RecordSchema,
    SchemaField,
    TransformFault,
    java_class,
    java_map,
    java_map_of,
    require_map,
    require_struct,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    NULL_DEFAULT,
    ChainRecord,
    Option,
    OptionError,
    PartTransform,
    SchemaCache,
    Transform,
    names,
    one_of,
    pairs,
    required_names,
    required_text,
    whole_number,
)


class ExtractField(PartTransform):
    """Replace a struct by one of its fields."""

    DOC = "replaces a struct by one of its fields"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "field": Option(str.strip, "the field's name, with `field.syntax.version=V2` its path", required=True),
        "field.syntax.version": Option(one_of("V1", "V2", any_case=True), "`V1` or `V2`; default `V1`", "V1"),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name: str = options["field"]
        self._path = field_path(self._name) if options["field.syntax.version"] == "V2" else (self._name,)
        self._default: bool = options["replace.null.with.default"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if schema is None:
            for name in self._path if value is not None else ():
                plain = require_map(schema, value, "field extraction")
                value = None if plain is None else plain.get(name)
                if value is None:
                    break
            return self.write(record, None, value)
        if value is not None:
            require_struct(schema, value, "field extraction")
        for name in self._path:
            if schema.type != "struct":
                raise TransformFault("Cannot look up fields on non-struct type")
            member = schema.member(name)
            if member is None:
                raise TransformFault(f"Unknown field: {self._name}")
            schema, value = member.schema, None if value is None else member.read(value, default=self._default)
        return self.write(record, schema, value)


def field_path(text: str) -> tuple[str, ...]:
    """Return the names of a path: dots separate them, backticks quote a name with dots.

    Args:
        text: The path.

    Raises:
        OptionError: A backtick is not closed.
    """
    parts, at = [], 0
    while at <= len(text):
        if text.startswith("`", at):
            end = text.find("`", at + 1)
            while end != -1 and end + 1 < len(text) and text[end + 1] != ".":
                end = text.find("`", end + 1)
            if end == -1:
                raise OptionError("field", "has a backtick that does not end a name")
            parts.append(text[at + 1 : end])
            at = end + 2
        else:
            end = text.find(".", at)
            end = len(text) if end == -1 else end
            parts.append(text[at:end])
            at = end + 1
    return tuple(parts)


class HoistField(PartTransform):
    """Put a key or value into a struct, as its only field."""

    DOC = "puts a key or value into a struct, as its only field"
    OPTIONS: ClassVar[Mapping[str, Option]] = {"field": Option(required_text, "the field's name", required=True)}

    def __init__(self, options: Mapping[str, Any]) -> None:
        name: str = options["field"]
        self._name = name
        self._hoisted: SchemaCache[RecordSchema, RecordSchema] = SchemaCache(lambda schema: struct_of((name, schema)))

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        made = None if schema is None else self._hoisted(schema)
        return self.write(record, made, {self._name: value})


class ReplaceField(PartTransform):
    """Leave out and rename fields."""

    DOC = "leaves out and renames fields"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "exclude": Option(names, "fields to leave out", ()),
        "include": Option(names, "fields to keep; without it all", ()),
        "renames": Option(pairs, "`old:new`", ()),
        **NULL_DEFAULT,
    }
    FORMER: ClassVar[Mapping[str, str]] = {"blacklist": "exclude", "whitelist": "include"}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._exclude, self._include = frozenset(options["exclude"]), frozenset(options["include"])
        self._renames: dict[str, str] = dict(options["renames"])
        counts = Counter(self._renames.values())
        self._origins = {new: old for old, new in self._renames.items() if counts[new] == 1}
        self._default: bool = options["replace.null.with.default"]
        self._schemas = SchemaCache(self._schema)

    def _kept(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _schema(self, schema: RecordSchema) -> RecordSchema:
        kept = (member for member in schema.fields if self._kept(member.name))
        return schema.basics(SchemaField(self._renames.get(m.name, m.name), m.schema) for m in kept)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if value is None:
            return record
        if (plain := require_map(schema, value, "field replacement")) is not None:
            left = {self._renames.get(n, n): v for n, v in plain.items() if self._kept(n)}
            return self.write(record, None, java_map_of(left, len(plain)))
        schema, value = require_struct(schema, value, "field replacement")
        made, kept = self._schemas(schema), {}
        for old, member in zip((m for m in schema.fields if self._kept(m.name)), made.fields, strict=True):
            # A name that is the new one of a field that is not there, or not kept, means that field in Connect.
            origin = schema.member(self._origins.get(member.name, old.name))
            if origin is None:
                raise TransformFault(f"{self._origins[member.name]} is not a valid field name")
            kept[member.name] = found = origin.read(value, default=self._default)
            if found is not None and origin.schema.type != member.schema.type:
                raise TransformFault(
                    f"Invalid Java object for schema with type {member.schema.java_type()}: class "
                    f'{java_class(origin.schema, found)} for field: "{member.name}"'
                )
        return self.write(record, made, kept)


class ValueToKey(Transform):
    """Make the key of fields of the value."""

    DOC = "makes the key of fields of the value"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "fields": Option(required_names, "the fields", required=True),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = tuple(dict.fromkeys(options["fields"]))
        self._default: bool = options["replace.null.with.default"]
        self._schemas = SchemaCache(self._schema)

    def _schema(self, schema: RecordSchema) -> RecordSchema:
        for name in self._names:
            if schema.member(name) is None:
                raise TransformFault(f"Field does not exist: {name}")
        return struct_of(*(schema.by_name[name] for name in self._names))

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        purpose = "copying fields from value to key"
        if (plain := require_map(record.value_schema, record.value, purpose)) is not None:
            key = {name: plain.get(name) for name in self._names}
            return record.set_key(None, java_map_of(key, len(key)))
        schema, value = require_struct(record.value_schema, record.value, purpose)
        key_schema = self._schemas(schema)
        return record.set_key(
            key_schema, {name: schema.by_name[name].read(value, default=self._default) for name in self._names}
        )


class InsertField(PartTransform):
    """Add fields with the record's topic, partition and timestamp, and one with a fixed text."""

    DOC = "adds fields: topic, partition, timestamp, a fixed text"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "topic.field": Option(str.strip, "field for the topic; `!` behind a name makes it required"),
        "partition.field": Option(str.strip, "field for the partition, which only some records have"),
        "offset.field": Option(str.strip, "only for sinks"),
        "timestamp.field": Option(str.strip, "field for the timestamp, which only `EventRouter` gives to records"),
        "static.field": Option(str.strip, "field for a fixed text"),
        "static.value": Option(str, "that text"),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options["offset.field"]:
            raise OptionError("offset.field", "has an effect in sink connectors only", "Remove it")
        if options["static.field"] and options["static.value"] is None:
            raise OptionError("static.value", "is missing; static.field is set", "Set it")
        kinds = (("topic", "string"), ("partition", "int32"), ("timestamp", "int64"), ("static", "string"))
        self._fields = [
            (what, SchemaField(spec[:-1] if spec[-1] in "!?" else spec, _inserted(kind, what, spec)))
            for what, kind in kinds
            if (spec := options[f"{what}.field"])
        ]
        if empty := [what for what, field in self._fields if not field.name]:
            raise OptionError(f"{empty[0]}.field", "must have a name before ! or ?")
        if not self._fields:
            raise OptionError("static.field", "is missing, and so are the other fields", "Set one of them")
        self._static: str | None = options["static.value"]
        self._default: bool = options["replace.null.with.default"]
        self._schemas: SchemaCache[RecordSchema, RecordSchema] = SchemaCache(
            lambda schema: schema.basics([*schema.fields, *(f for _, f in self._fields)])
        )

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if value is None:
            return record
        inserted = {
            "topic": record.topic,
            "partition": record.partition,
            "timestamp": record.timestamp,
            "static": self._static,
        }
        if (plain := require_map(schema, value, "field insertion")) is not None:
            added = {f.name: inserted[what] for what, f in self._fields if inserted[what] is not None}
            return self.write(record, None, java_map(plain, added))
        schema, value = require_struct(schema, value, "field insertion")
        updated = {member.name: member.read(value, default=self._default) for member in schema.fields}
        updated |= {field.name: inserted[what] for what, field in self._fields}
        return self.write(record, self._schemas(schema), updated)


def _inserted(kind: str, what: str, spec: str) -> RecordSchema:
    name, version = (CONNECT_TIMESTAMP, 1) if what == "timestamp" else (None, None)
    return RecordSchema(kind, not spec.endswith("!"), name=name, version=version)


class Flatten(PartTransform):
    """Make the fields of nested structs fields of the outer one."""

    DOC = "makes the fields of nested structs fields of the outer one"
    OPTIONS: ClassVar[Mapping[str, Option]] = {"delimiter": Option(str, "stands between their names; default `.`", ".")}

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._delimiter: str = options["delimiter"]
        self._schemas: SchemaCache[RecordSchema, RecordSchema] = SchemaCache(
            lambda schema: schema.basics(self._flat(schema, "", schema.optional, schema.default or {}))
        )

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flat(
        self, schema: RecordSchema, prefix: str, optional: bool, defaults: Mapping[str, Any]
    ) -> list[SchemaField]:
        fields: list[SchemaField] = []
        for member in schema.fields:
            inner, name = member.schema, self._name(prefix, member.name)
            default = inner.default if inner.default is not None else defaults.get(member.name)
            if inner.type == "struct":
                fields += self._flat(inner, name, optional or inner.optional, default or {})
                continue
            if inner.type == "map":
                raise TransformFault(f"Flatten transformation does not support MAP (for field {name}).")
            made = RecordSchema(
                inner.type, optional or inner.optional, default, inner.name, inner.version, inner.doc,
                inner.parameters, (), inner.items,
            )  # fmt: skip
            fields.append(SchemaField(name, made))
        return fields

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if value is None:
            return record
        if (plain := require_map(schema, value, "flattening")) is not None:
            return self.write(record, None, self._flat_map(plain, ""))
        schema, value = require_struct(schema, value, "flattening")
        flat: dict[str, Any] = {}
        self._fill(schema, value, "", flat)
        return self.write(record, self._schemas(schema), flat)

    def _flat_map(self, members: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for member, found in members.items():
            name = self._name(prefix, member)
            flat |= self._flat_map(found, name) if isinstance(found, dict) else {name: found}
        return flat

    def _fill(self, schema: RecordSchema, value: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for member in schema.fields:
            name, found = self._name(prefix, member.name), member.read(value)
            if member.schema.type != "struct":
                flat[name] = found
            elif found is not None:
                self._fill(member.schema, found, name, flat)


class SetSchemaMetadata(PartTransform):
    """Set the name and version of a schema."""

    DOC = "sets name and version of a schema"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "schema.name": Option(str, "the name"),
        "schema.version": Option(whole_number, "the version"),
        **NULL_DEFAULT,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        name, version = options["schema.name"], options["schema.version"]
        if name is None and version is None:
            raise OptionError("schema.name", "is missing, and so is schema.version", "Set one of them")
        self._schemas: SchemaCache[RecordSchema, RecordSchema] = SchemaCache(
            lambda schema: schema.renamed(schema.name if name is None else name, version)
        )
        self._default: bool = options["replace.null.with.default"]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, value = self.read(record)
        if schema is None:
            if value is not None:
                raise TransformFault("Schema required for [updating schema metadata]")
            return record
        if schema.type != "struct":
            raise TransformFault("Cannot list fields on non-struct type")
        if value is not None:
            value = {member.name: member.read(value, default=self._default) for member in schema.fields}
        return self.write(record, self._schemas(schema), value)
