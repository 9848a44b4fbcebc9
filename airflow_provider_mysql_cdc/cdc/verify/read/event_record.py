"""What a verification reads of a record, in whatever format it is written, and how its values are written.

An event that was written before an ALTER TABLE has the forms of the earlier structure; with them its values can be
compared with those of the table (``value_meaning``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from airflow_provider_mysql_cdc.cdc.model.records import Headers


class ValueForm(NamedTuple):
    """Describe how values of a column are written.

    Args:
        type: Literal type of Connect; in TiCDC's protocol ``tidb``.
        name: Semantic type of Connect, or TiDB's type; empty for none.
        scale: Scale of a decimal that is written as unscaled bytes; -1 for all other values.
        others: Other forms that the value may have, where it is not known under which structure it was written.
        altered: Whether the column may have been declared otherwise then, so that a value may have become another one.
    """

    type: str
    name: str = ""
    scale: int = -1
    others: tuple[ValueForm, ...] = ()
    altered: bool = True

    def to_json(self) -> list[Any]:
        """Return plain JSON."""
        return [self.type, self.name, self.scale, [other.to_json() for other in self.others], self.altered]

    @classmethod
    def from_json(cls, form: Sequence[Any]) -> ValueForm:
        """Read what ``to_json`` wrote."""
        type_, name, scale, others, altered = form
        return cls(type_, name, scale, tuple(map(cls.from_json, others)), altered)


Forms = Mapping[str, ValueForm]
"""Forms by field."""
UNTOLD = ValueForm("untold")
"""Stands for the form of a value that a record lacks, perhaps because its table did not have the column yet."""
UNWRITTEN = ValueForm("unwritten")
"""Stands for the form of a value that a record lacks although its table had the column."""


class SchemaForms(dict[str, ValueForm]):
    """Hold the forms of fields with the Connect schema in JSON that says them."""

    def __init__(self, forms: Forms, schema: Mapping[str, Any]) -> None:
        super().__init__(forms)
        self.schema = schema


class NamedForms(dict[str, ValueForm]):
    """Hold the forms of fields with the name of the schema in Avro that says them."""

    def __init__(self, forms: Forms, name: str) -> None:
        super().__init__(forms)
        self.name = name


DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIDB = "tidb"
NUMBER_TEXT = "number"
"""Name of the form of a number that is written as text, which its schema does not say."""


def connect_form(schema: Mapping[str, Any]) -> ValueForm:
    """Return the form of values of a Connect schema.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    name = str(schema.get("name") or "")
    scale = int(schema["parameters"]["scale"]) if name == DECIMAL else -1
    return ValueForm(str(schema["type"]), name, scale)


def struct_forms(schema: Mapping[str, Any]) -> Forms:
    """Return the forms of the fields of a struct, as the key is one."""
    return {str(field["field"]): connect_form(field) for field in schema["fields"]}


def row_forms(schema: Mapping[str, Any]) -> Forms:
    """Return the forms of the columns in an envelope; empty for a schema that is none."""
    for member in schema["fields"]:
        if member["field"] == "after":
            return struct_forms(member)
    return {}


Row = Mapping[str, Any]
"""Values of a row by column, as JsonConverter writes them in whatever format the record is (bytes are Base64)."""


_ID_HEADER = "cdc-id"
UNKNOWN_STRUCTURE = -1
"""Number of the structure of an event that may have been written under several."""


class UnreadableRecord(Exception):
    """Raised with the reason why a record cannot be read as an event.

    Args:
        reason: The reason, perhaps with names that the record has, and so with halves of surrogate pairs.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason.encode(errors="backslashreplace").decode())


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Hold what a record says.

    Args:
        op: ``c``, ``u``, ``d``, ``r`` or ``t`` as in the envelope; empty for a tombstone and for a message that is no
            change event (op ``m``, a heartbeat). In TiCDC's protocol ``d`` for a record without a value.
        key: The fields of the key; None for a record without one.
        before: The row before the event; None if the record does not say.
        after: The row after the event; None if there is none.
        source: The source block; empty where the format has none. In TiCDC's protocol the extension's members.
        forms: How the values of ``before`` and ``after`` are written; None if the record does not say.
        key_forms: How those of the key are written; None if the record does not say.
        structure: Number of the structure that the table had then (``written_structures``).
        transaction: The transaction block; None if there is none.
        key_bytes: The key as it is.
        key_exact: Whether the key is in the bytes that the stream writes for its fields, in their order.
        written_ms: When the record was written, where it does not say its place in the binlog; 0 otherwise.
    """

    op: str
    key: Row | None
    before: Row | None
    after: Row | None
    source: Row
    forms: Forms | None = None
    key_forms: Forms | None = None
    structure: int = 0
    transaction: Row | None = None
    key_bytes: bytes | None = field(default=None, compare=False)
    key_exact: bool = field(default=True, compare=False)
    written_ms: int = field(default=0, compare=False)


class EventReader(Protocol):
    """Read the records of one topic."""

    def read(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> EventRecord:
        """Return what a record says.

        A record of a row that was read from the table and written by this package's encoders reads the same as the
        event of an equal row.

        Args:
            key: The record's key.
            value: Its value.
            headers: Its headers; those with GUIDs of schemas are read, where records have them.

        Raises:
            UnreadableRecord: It is not an event as the stream is configured to write them.
        """
        ...


def event_identity(record: EventRecord, order: int, headers: Headers) -> int:
    """Return 64 bits of what tells an event from others; 0 where nothing does.

    Args:
        record: The event.
        order: Where it is in the binlog; 0 where that is not known.
        headers: Its headers.
    """
    for name, value in headers or ():
        if name == _ID_HEADER and value is not None:
            return hash64(value + record.op.encode())
    if not order or not record.op:
        return 0
    # Another server writes other transactions at the same position.
    gtid = str(record.source.get("gtid") or "")
    return hash64(b"%d/%d/%s/%s" % (order, _row_number(record.source), record.op.encode(), gtid.encode()))


def _row_number(source: Row) -> int:
    row = source.get("row", 0)
    return row if isinstance(row, int) else 0


def hash64(data: bytes) -> int:
    """Return 64 bits, never 0."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1
