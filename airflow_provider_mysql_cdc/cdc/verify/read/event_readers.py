"""Read events in Debezium's envelope or in TiCDC's protocol; their keys and values are in formats of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from types import NoneType
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.emit.contracts import CONTRACTS, TRANSACTION_BLOCK
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import EXTENSION_FIELDS
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import AvroPart, LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    FORMS_MEMBER,
    EventReader,
    EventRecord,
    Forms,
    Row,
    UnreadableRecord,
    row_forms,
    struct_forms,
)
from airflow_provider_mysql_cdc.cdc.verify.read.json_events import JsonWithSchemas, PlainJson

NO_CHANGE = ""
"""``op`` of tombstones and of messages that are no change events."""
_NO_SOURCE: Row = {}
# Whether the row before and the row after are there: always (True), never (False), or perhaps (None).
_ROWS: Mapping[str, tuple[bool | None, bool | None]] = {
    "c": (False, True),
    "r": (False, True),
    "u": (None, True),
    # A before image with unknown values may be null as a whole (binlog_row_image MINIMAL).
    "d": (None, False),
    "t": (False, False),
}
_MESSAGES = ("status", "ddl")
"""Members of messages that are no change events: of transactions, of schema changes. A heartbeat has a time alone."""
_TYPES: Mapping[str, type] = {"string": str, "int32": int, "int64": int, "boolean": bool, "struct": dict}
Types = Mapping[str, Set[type]]
"""Python types that a member may have, by its name."""


def _types_of(schemas: Iterable[ConnectSchema]) -> Types:
    found: dict[str, set[type]] = {}
    for schema in schemas:
        types = {_TYPES[schema["type"]], *([NoneType] if schema["optional"] else [])}
        found.setdefault(schema["field"], set()).update(types)
    return found


# A topic may have events of a contract that was configured before.
_SOURCE_TYPES = _types_of(member.to_schema() for layout in CONTRACTS.values() for member in layout.source)
_EVENT_TYPES: Types = {
    **dict.fromkeys(("before", "after", "source"), frozenset({*_TYPES.values(), float, list, NoneType})),
    **_types_of(member.to_schema() for layout in CONTRACTS.values() for member in layout.tail),
}
_TRANSACTION_TYPES = _types_of(TRANSACTION_BLOCK.to_schema()["fields"])
_EXTENSION_TYPES: Types = {name: {_TYPES[{"long": "int64"}.get(kind, kind)]} for name, kind in EXTENSION_FIELDS}


class PayloadReader(Protocol):
    """Read keys, or values."""

    def read(self, data: bytes, headers: Headers = ()) -> tuple[Any, Forms | None]:
        """Return the payload, and the forms of its values; None where they are not known.

        Raises:
            UnreadableRecord: It has another format.
        """
        ...

    def is_exact(self, data: bytes, fields: Row, headers: Headers = ()) -> bool:
        """Return whether a key is in the bytes that the stream writes for its fields."""
        ...


class EnvelopeEvents:
    """Read the records of a topic of change events, of contract 3.x or 1.9."""

    def __init__(self, keys: PayloadReader, values: PayloadReader) -> None:
        self._keys, self._values = keys, values

    def read(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> EventRecord:
        """Return what a record says; see ``EventReader``."""
        of_key = _key_facts(self._keys, key, headers)
        if value is None:  # of a table without a key, the tombstone has no key either
            return EventRecord(op=NO_CHANGE, before=None, after=None, source=_NO_SOURCE, **of_key)
        event, forms = self._values.read(value, headers)
        if not isinstance(event, dict):
            raise UnreadableRecord("the value is no object")
        op = event.get("op")
        if not isinstance(op, str) or op not in _ROWS:
            _require_message(event)
            return EventRecord(op=NO_CHANGE, before=None, after=None, source=_NO_SOURCE, **of_key)
        rows = _ROWS[op]
        before, after, source = event.get("before"), event.get("after"), event.get("source")
        if not isinstance(source, dict):
            raise UnreadableRecord(f"the event of op {op} has no source")
        _require_types(event, _EVENT_TYPES, "the event")
        _require_types(source, _SOURCE_TYPES, "the event's source")
        _require_types(event.get("transaction") or {}, _TRANSACTION_TYPES, "the event's transaction")
        if not source.get("db") or not source.get("table"):
            raise UnreadableRecord("the event's source names no table")
        if op == "t" and of_key["key"] is not None:
            raise UnreadableRecord("the event of op t has a key, but deletes all rows")
        for name, row, wanted in (("before", before, rows[0]), ("after", after, rows[1])):
            if (
                (row is not None and not isinstance(row, dict))
                or wanted is (row is None)
                or FORMS_MEMBER in (row or ())
            ):
                raise UnreadableRecord(_misfit(op, name, row, wanted))
        return EventRecord(
            op=op,
            before=before,
            after=after,
            source=source,
            forms=forms,
            transaction=event.get("transaction"),
            **of_key,
        )


def _key_facts(keys: PayloadReader, key: bytes | None, headers: Headers) -> dict[str, Any]:
    """Return what an ``EventRecord`` says of a record's key."""
    if key is None:
        return {"key": None}
    fields, forms = keys.read(key, headers)
    if fields is not None and not isinstance(fields, dict):
        raise UnreadableRecord("the key is no object")
    exact = fields is None or keys.is_exact(key, fields, headers)
    return {"key": fields, "key_forms": forms, "key_bytes": key, "key_exact": exact}


def require_members(members: Mapping[str, Any], known: Set[str], where: str) -> None:
    """Check that the stream writes all members that a part of an event has.

    Raises:
        UnreadableRecord: It has other members.
    """
    if not members.keys() <= known:
        more = ", ".join(sorted(members.keys() - known))
        raise UnreadableRecord(f"{where} has members that the stream does not write: {more}")


def _misfit(op: str, name: str, row: Any, wanted: bool | None) -> str:
    if row is not None and not isinstance(row, dict):
        return f"{name} of the event of op {op} is no object"
    if row is not None and wanted is not False:
        return f"{name} of the event of op {op} has a member that no table has"
    return f"the event of op {op} has {'no' if wanted else 'a row'} {name}"


def _require_types(struct: Row, types: Types, where: str) -> None:
    """Check that members of a struct are of their types, and numbers not below 0: events are ordered by some.

    Raises:
        UnreadableRecord: One is not, or the stream does not write it.
    """
    require_members(struct, types.keys(), where)
    for name, value in struct.items():
        if type(value) not in types[name] or (type(value) is int and value < 0):
            raise UnreadableRecord(f"{name} of {where} is {value!r:.20}")


def _require_message(event: Mapping[str, Any]) -> None:
    """Check that a value that is no change event is a message, which transforms may lead to a table's topic."""
    if "op" in event:
        raise UnreadableRecord(f"the value is no change event: its op is {event['op']!r:.20}")
    if event.keys() != {"ts_ms"} and event.keys().isdisjoint(_MESSAGES):
        raise UnreadableRecord("the value is no change event: it has no op")


_OPERATION, *_ = _EXTENSION = tuple(name for name, _ in EXTENSION_FIELDS)
_OPERATIONS = ("c", "u")


class TicdcEvents:
    """Read the records of a topic of flat rows.

    Without the extension (``enable-tidb-extension``) a record does not say whether its row was inserted or updated;
    it is then read as an update.
    """

    def __init__(self, lookup_schema: LookupSchema) -> None:
        self._keys, self._values = AvroPart("key", lookup_schema), AvroPart("value", lookup_schema)

    def read(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> EventRecord:
        """Return what a record says; see ``EventReader``."""
        of_key = _key_facts(self._keys, key, headers)
        if value is None:
            return EventRecord(op="d", before=None, after=None, source=_NO_SOURCE, **of_key)
        row, forms = self._values.read(value, headers)
        source, op = _NO_SOURCE, "u"
        if _OPERATION in row:
            source = {name: row.pop(name) for name in _EXTENSION if name in row}
            _require_types(source, _EXTENSION_TYPES, "the row")
            op = source[_OPERATION]
            if op not in _OPERATIONS:
                raise UnreadableRecord(f"{_OPERATION} of the row is {op!r:.20}")
        return EventRecord(op=op, before=None, after=row, source=source, forms=forms, **of_key)


_PartForms = Callable[[Mapping[str, Any]], Forms]
_FORMS: Mapping[F.ConverterPart, _PartForms] = {"key": struct_forms, "value": row_forms}


def event_reader(cfg: ConnectorConfig, topic: str, lookup_schema: LookupSchema) -> EventReader:
    """Return the reader of the records of a topic of tables.

    Args:
        cfg: The connector's configuration.
        topic: The topic; all topics of tables have one format.
        lookup_schema: Returns the text of a schema; not called where nothing is Avro.

    Raises:
        ConfigError: Records are Avro, and fastavro is not installed.
    """
    if cfg.is_ticdc:
        return TicdcEvents(lookup_schema)
    return EnvelopeEvents(*(_part_reader(cfg, part, lookup_schema) for part in F.PARTS))


def boundary_reader(cfg: ConnectorConfig, lookup_schema: LookupSchema) -> PayloadReader:
    """Return the reader of the values of the transaction topic.

    Raises:
        ConfigError: They are Avro, and fastavro is not installed.
    """
    if cfg.registry_settings("value") is None and cfg[F.VALUE_SCHEMAS_ENABLE]:
        return JsonWithSchemas("value", lambda schema: {})
    return _part_reader(cfg, "value", lookup_schema)


def _part_reader(cfg: ConnectorConfig, part: F.ConverterPart, lookup_schema: LookupSchema) -> PayloadReader:
    registry = cfg.registry_settings(part)
    if registry is not None:
        return AvroPart(part, lookup_schema, guids=bool(registry.guids_for))
    schemas = {"key": F.KEY_SCHEMAS_ENABLE, "value": F.VALUE_SCHEMAS_ENABLE}[part]
    return JsonWithSchemas(part, _FORMS[part]) if cfg[schemas] else PlainJson(part)
