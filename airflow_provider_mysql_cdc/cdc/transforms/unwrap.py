"""``ExtractNewRecordState`` of Debezium 3.6.1: the row in place of its change event ("unwrap")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    OPTIONAL_STRING,
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    is_envelope,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    ChainHeader,
    ChainRecord,
    Option,
    SchemaCache,
    Transform,
    flag,
    names,
    one_of,
)

DELETED_FIELD = "__deleted"
DROP, TOMBSTONE, REWRITE = "drop", "tombstone", "rewrite"
REWRITE_WITH_TOMBSTONE, DELETE_TO_TOMBSTONE = "rewrite-with-tombstone", "delete-to-tombstone"
_MODES = (DROP, TOMBSTONE, REWRITE, REWRITE_WITH_TOMBSTONE, DELETE_TO_TOMBSTONE)
_REWRITES = frozenset({REWRITE, REWRITE_WITH_TOMBSTONE})
_IN_TRANSACTION = frozenset({"id", "total_order", "data_collection_order"})
_IN_EVENT = frozenset({"op", "ts_ms", "ts_us", "ts_ns"})


@dataclass(frozen=True, slots=True)
class EventField:
    """A member of a change event that becomes a field or a header of the row.

    Args:
        struct: The event's struct that holds it; None for the event itself.
        field: Its name there.
        new_name: The name that it gets.
    """

    struct: str | None
    field: str
    new_name: str

    @classmethod
    def parse(cls, prefix: str, text: str) -> EventField:
        """Read an entry of ``add.fields`` or ``add.headers``: ``op``, ``source.ts_ms``, ``source.ts_ms:at``.

        Args:
            prefix: Prefix of the new name.
            text: The entry.
        """
        path, *alias = text.rstrip(":").split(":")
        parts = path.rstrip(".").split(".")
        if len(alias) > 1:
            raise ValueError(f"{text} has more than one new name")
        field = parts[0] if len(parts) == 1 else parts[1]
        struct = _default_struct(field) if len(parts) == 1 else parts[0]
        return cls(struct, field, prefix + (alias[0] if alias else field if len(parts) == 1 else f"{struct}_{field}"))

    def member(self, event: RecordSchema) -> EventMember | None:
        """Return where events with this schema have it; None if they have no such member."""
        parent = event
        if self.struct is not None:
            member = event.member(self.struct)
            if member is None:
                raise TransformFault(f"the event has no member {self.struct}, which {self.new_name} is taken from")
            if member.schema.type != "struct":
                raise TransformFault(f"{self.struct} is not a struct, so that {self.new_name} cannot be taken from it")
            parent = member.schema
        found = parent.member(self.field) or event.member(self.field)
        if found is None:
            return None
        is_inside = parent.member(self.field) is not None
        schema = found.schema.basics(found.schema.fields, optional=True)
        return EventMember(self.new_name, schema, self.struct, self.field, is_inside)


class EventMember(NamedTuple):
    """A member that the events of one schema have, under the name that it gets in the row.

    Args:
        new_name: That name.
        schema: Its schema, as that of an optional field.
        struct: The event's struct without which it is null; None for the event itself.
        field: Its name in the event.
        is_inside: Whether it is in that struct; else it is in the event itself.
    """

    new_name: str
    schema: RecordSchema
    struct: str | None
    field: str
    is_inside: bool

    def value(self, event: Mapping[str, Any]) -> Any:
        """Return its value in an event."""
        parent = event if self.struct is None else event.get(self.struct)
        if parent is None:
            return None
        return (parent if self.is_inside else event).get(self.field)


def _default_struct(field: str) -> str | None:
    if field in _IN_TRANSACTION:
        return "transaction"
    return None if field in _IN_EVENT else "source"


def _event_fields(text: str) -> tuple[str, ...]:
    for entry in names(text):
        EventField.parse("", entry)
    return names(text)


class ExtractNewRecordState(Transform):
    """Write the row after a change; deletes become tombstones, or rows that say so."""

    DOC = "writes the row in place of the change event"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "delete.tombstone.handling.mode": Option(
            one_of(*_MODES, any_case=True), f"{', '.join(_MODES)}; default `{TOMBSTONE}`", TOMBSTONE
        ),
        "add.fields": Option(_event_fields, "members of the event that become fields: `op,source.ts_ms:at`", ()),
        "add.fields.prefix": Option(str.strip, "prefix of their names; default `__`", "__"),
        "add.headers": Option(_event_fields, "members of the event that become headers", ()),
        "add.headers.prefix": Option(str.strip, "prefix of their names; default `__`", "__"),
        "route.by.field": Option(str.strip, "column whose value becomes the topic", ""),
        "drop.fields.header.name": Option(str.strip, "header that lists fields to leave out", ""),
        "drop.fields.from.key": Option(flag, "whether they are left out of keys too; default `false`", False),
        "drop.fields.keep.schema.compatible": Option(flag, "whether only optional ones are; default `true`", True),
        "replace.null.with.default": Option(
            flag, "whether the rewrite modes write NULL as the column's default; default `true`", True
        ),
    }
    FORMER: ClassVar[Mapping[str, str]] = {
        "drop.tombstones": "delete.tombstone.handling.mode",
        "delete.handling.mode": "delete.tombstone.handling.mode, with drop.tombstones: drop and true are drop, drop "
        "and false tombstone, rewrite and true rewrite, rewrite and false rewrite-with-tombstone",
        "add.source.fields": "add.fields=source.FIELD",
        "operation.header": "add.headers=op",
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._mode: str = options["delete.tombstone.handling.mode"]
        references = {
            what: [EventField.parse(options[f"add.{what}.prefix"], entry) for entry in options[f"add.{what}"]]
            for what in ("fields", "headers")
        }
        self._headers = references["headers"]
        self._members = {what: SchemaCache(partial(_members_of, found)) for what, found in references.items()}
        self._route_by: str = options["route.by.field"]
        self._drop_header: str = options["drop.fields.header.name"]
        self._drop_from_key: bool = options["drop.fields.from.key"]
        self._compatible: bool = options["drop.fields.keep.schema.compatible"]
        self._replace_null: bool = options["replace.null.with.default"]
        self._row_schemas, self._kept = SchemaCache(self._row_schema), SchemaCache(_kept_schema)
        self._deleted_schema, self._defaults = SchemaCache(_with_deleted), SchemaCache(_defaults_of)

    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None:
            record.headers += self.tombstone_headers()
            return record if self._mode == REWRITE_WITH_TOMBSTONE else None
        if schema is None or not is_envelope(schema):
            return record
        for member in self._members["headers"](schema):
            record.headers.append(ChainHeader(member.new_name, member.schema, member.value(event)))
        # A transform before this one may have left them out.
        missing = [part for part in ("after", "before") if schema.member(part) is None]
        before, after = event.get("before"), event.get("after")
        if missing and (after is None or "after" in missing):
            raise TransformFault(f"Unknown field: {missing[0]}")
        if after is None:
            return None if before is None else self._delete(record, schema, event)
        written = self._write_row(record, schema.by_name["after"].schema, after, "false")
        self._route(record, *written)
        self._add_fields(record, schema, event)
        return self._drop_fields(record)

    @property
    def is_usual(self) -> bool:
        """Whether records keep their topics, and rows all their fields, whatever is in them."""
        return not self._route_by and not self._drop_header

    @property
    def has_headers(self) -> bool:
        """Whether records get headers."""
        return bool(self._headers)

    @property
    def mode(self) -> str:
        """What becomes of deletes."""
        return self._mode

    @property
    def replaces_null(self) -> bool:
        """Whether NULL becomes the column's default."""
        return self._mode in _REWRITES and self._replace_null

    def members(self, event: RecordSchema) -> tuple[tuple[EventMember, ...], tuple[EventMember, ...]]:
        """Return the members of the events of one schema that become fields, and those that become headers."""
        return self._members["fields"](event), self._members["headers"](event)

    def tombstone_headers(self) -> list[ChainHeader]:
        """Return the headers that tombstones get."""
        return [ChainHeader(reference.new_name, STRING, "d") for reference in self._headers if reference.field == "op"]

    def _delete(self, record: ChainRecord, schema: RecordSchema, event: Mapping[str, Any]) -> ChainRecord | None:
        if self._mode == DROP:
            return None
        row = event["before"]
        if self._mode in _REWRITES:
            self._write_row(record, schema.by_name["before"].schema, row, "true")
        elif self._mode == TOMBSTONE:
            record.set_value(schema.by_name["after"].schema, None)
        else:
            record.set_value(None, None)
        self._route(record, schema.by_name["before"].schema, row)
        self._drop_fields(record)
        if record.value is not None:
            self._add_fields(record, schema, event)
        return record

    def _write_row(
        self, record: ChainRecord, schema: RecordSchema, row: dict[str, Any], deleted: str
    ) -> tuple[RecordSchema, dict[str, Any]]:
        if self._mode in _REWRITES:
            row = {**row, DELETED_FIELD: deleted}
            if self._replace_null:
                for name, default in self._defaults(schema):
                    if row.get(name) is None:
                        row[name] = default
            schema = self._deleted_schema(schema)
        record.set_value(schema, row)
        return schema, row

    def _route(self, record: ChainRecord, schema: RecordSchema, row: Mapping[str, Any]) -> None:
        if not self._route_by:
            return
        member = schema.member(self._route_by)
        if member is None:
            raise TransformFault(f"{self._route_by} is not a valid field name")
        if member.schema.type != "string":
            raise TransformFault(f"Field '{self._route_by}' is not of type STRING")
        topic = member.read(row, default=False)
        if topic and topic.strip():
            record.topic = topic

    def _add_fields(self, record: ChainRecord, event_schema: RecordSchema, event: Mapping[str, Any]) -> None:
        schema, row = record.value_schema, record.value
        assert schema is not None
        if added := self._members["fields"](event_schema):
            row = {**row, **{m.new_name: _checked(m.schema, m.value(event)) for m in added}}
        record.set_value(self._row_schemas((schema, event_schema)), row)

    def _row_schema(self, schemas: tuple[RecordSchema, RecordSchema]) -> RecordSchema:
        """Return the schema of a row with the added fields, from its own and the event's."""
        schema, event_schema = schemas
        added = self._members["fields"](event_schema)
        return schema.basics(
            [*schema.fields, *(SchemaField(m.new_name, m.schema.basics(optional=True)) for m in added)]
        )

    def _drop_fields(self, record: ChainRecord) -> ChainRecord:
        header = record.header(self._drop_header) if self._drop_header else None
        if header is None or header.value is None or header.value == []:
            return record
        if not isinstance(header.value, list):
            raise TransformFault(f"the header {self._drop_header} is not a list of fields")
        if self._drop_from_key and record.key is not None and record.key_schema is not None:
            without = self._without(record.key_schema, record.key, header.value)
            record.set_key(*without)
        if record.value_schema is not None:
            record.set_value(*self._without(record.value_schema, record.value, header.value))
        elif self._compatible:
            raise TransformFault(
                f"the header {self._drop_header} names fields of a tombstone, which has no schema that could stay "
                "compatible; drop.fields.keep.schema.compatible=false takes it"
            )
        return record

    def _without(self, schema: RecordSchema, row: Any, dropped: list[str]) -> tuple[RecordSchema, Any]:
        """Return schema and value without fields, as ``ReplaceField`` leaves them out."""
        chosen = {f.name for f in schema.fields if f.name in dropped and (f.schema.optional or not self._compatible)}
        if row is None or (self._compatible and not chosen):
            return schema, row
        kept = [member for member in schema.fields if member.name not in chosen]
        made = self._kept((schema, frozenset(chosen)))
        return made, {member.name: member.read(row) for member in kept}


def _kept_schema(dropped: tuple[RecordSchema, frozenset[str]]) -> RecordSchema:
    schema, names = dropped
    return schema.basics([member for member in schema.fields if member.name not in names])


def _members_of(references: Sequence[EventField], event: RecordSchema) -> tuple[EventMember, ...]:
    found = (reference.member(event) for reference in references)
    return tuple(member for member in found if member is not None)


def _checked(schema: RecordSchema, value: Any) -> Any:
    """Return a value that was taken from an event; a struct has lost its fields on the way, and stops Connect too."""
    if value is not None and schema.type == "struct":
        raise TransformFault("Struct schemas do not match.")
    return value


def _defaults_of(schema: RecordSchema) -> list[tuple[str, Any]]:
    return [(member.name, member.schema.default) for member in schema.fields if member.schema.default is not None]


def _with_deleted(schema: RecordSchema) -> RecordSchema:
    return schema.basics([*schema.fields, SchemaField(DELETED_FIELD, OPTIONAL_STRING)])
