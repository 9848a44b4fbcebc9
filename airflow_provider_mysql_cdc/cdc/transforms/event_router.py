"""``EventRouter`` of Debezium 3.6.1: the rows of an outbox table as events of their own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from airflow_provider_mysql_cdc.cdc.transforms.outbox_json import JsonExpansion, expand_json
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    is_envelope,
)
from airflow_provider_mysql_cdc.cdc.transforms.topic_routers import rewrite_of
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    ChainHeader,
    ChainRecord,
    Option,
    Transform,
    expression,
    flag,
    names,
    one_of,
)

log = logging.getLogger(__name__)
_PER_MS = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}
_PLACES = ("header", "envelope", "partition")
_MAX_SCHEMAS = 10_000
_BLANKS = "".join(map(chr, range(33)))
"""What ``String.trim`` cuts off."""


class AddedColumn(NamedTuple):
    """A column that an event gets beside its payload, where, and under which name."""

    column: str
    place: str
    alias: str


def _columns(text: str) -> tuple[AddedColumn, ...]:
    columns = []
    for entry in names(text):
        parts = [part.strip() for part in entry.split(":")]
        if len(parts) not in (2, 3):
            raise ValueError("must be a list of column:place or column:place:name")
        if parts[1].lower() not in _PLACES:
            raise ValueError(f"has the place {parts[1]}; there is {', '.join(_PLACES)}")
        columns.append(AddedColumn(parts[0], parts[1].lower(), parts[-1] if len(parts) == 3 else parts[0]))
    return tuple(columns)


def _name(text: str) -> str | None:
    return text.strip() or None


class EventRouter(Transform):
    """Write each inserted row of an outbox table to the topic that it names, with its payload as value."""

    DOC = "writes the rows of an outbox table as events of their own"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "table.field.event.id": Option(_name, "column of the event's id; default `id`", "id"),
        "table.field.event.key": Option(_name, "column of its key; default `aggregateid`", "aggregateid"),
        "table.field.event.payload": Option(_name, "column of its payload; default `payload`", "payload"),
        "table.field.event.timestamp": Option(_name, "column of the record's timestamp; without it `ts_ms`"),
        "table.field.event.schema.version": Option(_name, "column of the version of the value's schema"),
        "table.fields.additional.placement": Option(_columns, "further columns: `type:header:eventType`", ()),
        "table.field.additional.missing": Option(
            one_of("error", "ignore", any_case=True), "what a missing one of these is; default `error`", "error"
        ),
        "table.op.invalid.behavior": Option(
            one_of("warn", "error", "fatal", any_case=True), "what an update is; default `warn`", "warn"
        ),
        "table.expand.json.payload": Option(flag, "whether JSON text becomes a struct; default `false`", False),
        "table.json.payload.null.behavior": Option(
            one_of("ignore", "optional_bytes", any_case=True), "what null in it becomes; default `ignore`", "ignore"
        ),
        "field.name.adjustment.mode": Option(
            one_of("none", "avro", "avro_unicode", any_case=True),
            "how names in it are adjusted; default `none`",
            "none",
        ),
        "route.by.field": Option(_name, "column that names the topic; default `aggregatetype`", "aggregatetype"),
        "route.topic.regex": Option(expression, "matches its value", expression("(?<routedByValue>.*)")),
        "route.topic.replacement": Option(
            str, "the topic; default `outbox.event.${routedByValue}`", "outbox.event.${routedByValue}"
        ),
        "route.tombstone.on.empty.payload": Option(
            flag, "whether an empty payload becomes a tombstone; default `false`", False
        ),
    }
    NO_EFFECT: ClassVar[Mapping[str, str]] = {
        "table.field.event.type": "Debezium 3.6 does not use it either; see table.fields.additional.placement",
        "tracing.span.context.field": "no trace is written here",
        "tracing.operation.name": "no trace is written here",
        "tracing.with.context.field.only": "no trace is written here",
    }
    FORMER: ClassVar[Mapping[str, str]] = {
        "table.fields.additional.error.on.missing": "table.field.additional.missing=error or ignore",
        "table.field.schema.version": "table.field.event.schema.version",
        "table.field.payload": "table.field.event.payload",
        "table.field.payload.id": "table.field.event.key",
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._id, self._key, self._payload, self._timestamp, self._version = (
            options[f"table.field.event.{what}"] for what in ("id", "key", "payload", "timestamp", "schema.version")
        )
        self._route_by: str | None = options["route.by.field"]
        self._rewrite = rewrite_of(options, "route.topic.regex", "route.topic.replacement")
        self._columns: tuple[AddedColumn, ...] = options["table.fields.additional.placement"]
        self._ignore_missing = options["table.field.additional.missing"] == "ignore"
        self._fatal = options["table.op.invalid.behavior"] == "fatal"
        self._tombstones: bool = options["route.tombstone.on.empty.payload"]
        self._expansion = (
            JsonExpansion(
                options["table.json.payload.null.behavior"] == "optional_bytes", options["field.name.adjustment.mode"]
            )
            if options["table.expand.json.payload"]
            else None
        )
        self._has_envelope = any(column.place == "envelope" for column in self._columns)
        self._schemas: dict[Any, RecordSchema] = {}

    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Apply the transform; see ``Transform``."""
        if record.value is None:
            return None
        if record.value_schema is None or not is_envelope(record.value_schema):
            return record
        op = record.value.get("op")
        if op == "d":
            return None
        if op == "u":
            self._on_update(record)
            return None
        row_schema = record.value_schema.by_name["after"].schema
        row = record.value.get("after")
        if row is None:
            raise TransformFault("Only Struct objects supported for [Read Outbox Event], found: null")
        return self._event(record, row_schema, row, record.value.get("ts_ms"))

    def _on_update(self, record: ChainRecord) -> None:
        if self._fatal:
            raise TransformFault(f"Unexpected update message received {record.key}, fail.")
        log.warning("an update of a row of the outbox is not an event: topic %s, key %s", record.topic, record.key)

    def _event(self, record: ChainRecord, schema: RecordSchema, row: dict[str, Any], ts_ms: int | None) -> ChainRecord:
        payload_schema: RecordSchema | None = _member(schema, self._payload, "payload field").schema
        payload = _read(schema, row, self._payload)
        timestamp = self._event_timestamp(schema, row, ts_ms)
        id_schema = _member(schema, self._id, "event-id field").schema
        record.headers.append(ChainHeader("id", id_schema, _read(schema, row, self._id)))
        if self._expansion is not None and isinstance(payload, str):
            payload_schema, payload = self._expanded(payload_schema, payload)
        routed = _raw(schema, row, self._route_by, "string")
        if routed is None:
            raise TransformFault(f"{self._route_by} is NULL, so that the event has no topic")
        value_schema, value = payload_schema, payload
        if self._has_envelope:
            if payload_schema is None:
                raise TransformFault("an empty array has no schema; it cannot be expanded in an envelope")
            value_schema = self._envelope(schema, row, payload_schema, routed)
            value = {"payload": payload}
        partition = self._place_columns(record, schema, row, value)
        empty = payload is None or not _java_text(payload).strip(_BLANKS)
        if empty and self._tombstones:
            record.set_value(None, None)
        else:
            record.set_value(value_schema, value)
        key_member = schema.member(self._key) if self._key is not None else None
        if self._key is not None and key_member is None:
            raise TransformFault(f"{self._key} is not a valid field name")
        record.set_key(STRING if key_member is None else key_member.schema, key_member and key_member.read(row))
        record.topic, record.partition, record.timestamp = routed, partition, timestamp
        if (topic := self._rewrite(record.topic)) is not None:
            record.topic = topic
        return record

    def _expanded(self, schema: RecordSchema | None, payload: str) -> tuple[RecordSchema | None, Any]:
        assert self._expansion is not None
        try:
            return expand_json(self._payload, payload, self._expansion)
        except ValueError as error:
            log.warning("JSON expansion failed: %s", error)
            return schema, payload

    def _event_timestamp(self, schema: RecordSchema, row: Mapping[str, Any], ts_ms: int | None) -> int | None:
        if self._timestamp is None:
            return ts_ms
        member = _member(schema, self._timestamp, "timestamp field")
        value = _raw(schema, row, self._timestamp, "int64")
        if value is None:
            return ts_ms
        per_ms = _PER_MS.get(member.schema.name or "")
        if per_ms is None:
            raise TransformFault(f"Unsupported field type {member.schema.name or 'int64'} for event timestamp")
        return -(-value // per_ms) if value < 0 else int(value // per_ms)

    def _envelope(
        self, schema: RecordSchema, row: Mapping[str, Any], payload: RecordSchema, routed: str
    ) -> RecordSchema:
        version = None if self._version is None else _raw(schema, row, self._version, "int32")
        # Debezium keeps name and fields of the first event with this payload or version since its start.
        key = schema, payload.identity(), version, routed
        made = self._schemas.get(key)
        if made is None:
            if len(self._schemas) >= _MAX_SCHEMAS:
                self._schemas.clear()
            fields = [SchemaField("payload", payload)]
            for column in self._columns:
                if column.place == "envelope" and (member := self._column(schema, column)) is not None:
                    fields.append(SchemaField(column.alias, member.schema))
            prefix, dot, last = (schema.name or "").rpartition(".")
            name = f"{prefix}{dot}{routed}.{last}" if schema.name else routed
            made = RecordSchema("struct", name=name, version=version, fields=tuple(fields))
            self._schemas[key] = made
        return made

    def _column(self, schema: RecordSchema, column: AddedColumn) -> SchemaField | None:
        member = schema.member(column.column)
        if member is None and not self._ignore_missing:
            raise TransformFault(f"{column.column} is not a valid field name")
        return member

    def _place_columns(
        self, record: ChainRecord, schema: RecordSchema, row: Mapping[str, Any], envelope: Any
    ) -> int | None:
        """Put the further columns where they belong; return the partition if one of them is it."""
        partition = None
        for column in self._columns:
            member = self._column(schema, column)
            if member is None:
                continue
            if column.place == "envelope":
                envelope[column.alias] = member.read(row)
            elif column.place == "header":
                record.headers.append(ChainHeader(column.alias, member.schema, member.read(row)))
            else:
                partition = _raw(schema, row, column.column, "int32")
        return partition


def _member(schema: RecordSchema, name: str | None, what: str) -> SchemaField:
    member = None if name is None else schema.member(name)
    if member is None:
        raise TransformFault(f"Unable to find {what} {name} in event")
    return member


def _read(schema: RecordSchema, row: Mapping[str, Any], name: str) -> Any:
    return schema.by_name[name].read(row)


def _raw(schema: RecordSchema, row: Mapping[str, Any], name: str | None, kind: str) -> Any:
    """Return a column's value as it is: ``Struct.getString`` and its like put no default in place of null."""
    member = None if name is None else schema.member(name)
    if member is None:
        raise TransformFault(f"{name} is not a valid field name")
    if member.schema.type != kind:
        raise TransformFault(f"Field '{name}' is not of type {kind.upper()}")
    return member.read(row, default=False)


def _java_text(payload: Any) -> str:
    """Return what tells an empty payload from others; only text can be empty, as ``toString`` of bytes is not."""
    return payload if isinstance(payload, str) else "x"
