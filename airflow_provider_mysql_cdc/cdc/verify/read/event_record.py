"""What a verification reads of a record: canonical bytes of its values, and its place in the binlog.

What a verification reads of a record, in whatever format it is written, and how its values are written.

An event that was written before an ALTER TABLE has the forms of the earlier structure; with them its values can be
compared with those of the table (``value_meaning``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
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


_COMMIT_TS = "_tidb_commit_ts"
_POSITION_BITS = 44
"""Bits of an order for the position in a file; MySQL's files may grow beyond 4 GiB with a large transaction."""
_EPOCH_S = 1_577_836_800
_SECONDS, _FILES, _PLACES = 29, 3, 32
"""Bits of an order by time: seconds since 2020, the last bits of the file's number, and of the position."""


def source_order(source: Row) -> int:
    """Return where an event is in the binlog, as a number; 0 where its source block does not say."""
    commit_ts = commit_ts_of(source)
    if commit_ts is not None:
        return commit_ts
    file, pos = source.get("file"), source.get("pos")
    if not isinstance(file, str) or not isinstance(pos, int):
        return 0
    try:
        return position_order(file_number(file), pos)
    except ValueError:
        return 0


def commit_ts_of(source: Row) -> int | None:
    """Return TiCDC's timestamp of an event; None where it has none."""
    commit_ts = source.get(_COMMIT_TS)
    return commit_ts if isinstance(commit_ts, int) else None


def position_order(file: int, pos: int) -> int:
    """Return a place in the binlog as a number of 64 bits."""
    return (file << _POSITION_BITS | pos) & 0xFFFF_FFFF_FFFF_FFFF


def place_order(offset: BinlogOffset) -> int:
    """Return a transaction boundary as such a number."""
    return position_order(file_number(offset.file), offset.pos)


def time_of(source: Row) -> int:
    """Return when an event was committed, as a number that is the same for events of one millisecond; 0 if unknown."""
    commit_ts, at_ms = commit_ts_of(source), source.get("ts_ms")
    if commit_ts is not None:
        return commit_ts
    return at_ms if isinstance(at_ms, int) else 0


def time_order(source: Row) -> int:
    """Return when an event was logged, as such a number; within one second, where it is in the binlog.

    Positions begin anew on another server, but the binlog of a replica keeps the time of the source.
    """
    order, at_ms = source_order(source), source.get("ts_ms")
    if not order or not isinstance(at_ms, int) or _COMMIT_TS in source:
        return order
    seconds = max(0, min(at_ms // 1000 - _EPOCH_S, (1 << _SECONDS) - 1))
    file, pos = order >> _POSITION_BITS, order & ((1 << _POSITION_BITS) - 1)
    place = (file & ((1 << _FILES) - 1)) << _PLACES | min(pos, (1 << _PLACES) - 1)
    return seconds << (_FILES + _PLACES) | place


MAX_VALUE_CHARACTERS = 1024
"""Longest text, or JSON of another value, that a comparison carries; of longer ones it carries a digest."""
DIGEST_MARK = "blake2b:"
"""What a digest begins with; a text that does is written as one."""
_DIGEST = b'"' + DIGEST_MARK.encode()
FORMS_MEMBER = "\0forms"
"""Member with the forms of values (``row_comparison``); no column has such a name."""


def row_bytes(row: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a row: JSON with sorted columns, in which long values are digests."""
    text = _dumps(row)
    if len(text) <= MAX_VALUE_CHARACTERS and _DIGEST not in text:
        return text
    return _dumps({name: value if name == FORMS_MEMBER else _shortened(value) for name, value in row.items()})


def stored_row(text: bytes) -> dict[str, Any]:
    """Return the row that ``row_bytes`` wrote; long values as digests."""
    row: dict[str, Any] = json.loads(text)
    return row


def row_values(text: bytes) -> dict[str, Any]:
    """Return the values of the row that ``row_bytes`` wrote, without its forms; long ones as digests."""
    return {name: value for name, value in stored_row(text).items() if name != FORMS_MEMBER}


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values are written alike.

    In Python, true equals 1, 1 equals 1.0, and -0.0 equals 0.0; their texts differ.
    """
    return _dumps(one) == _dumps(other)


def _shortened(value: Any) -> Any:
    if isinstance(value, (int, float)) or value is None:
        return value
    text = value if isinstance(value, str) else _dumps(value).decode()
    if len(text) <= MAX_VALUE_CHARACTERS and not text.startswith(DIGEST_MARK):
        return value
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{DIGEST_MARK}{digest}:{len(text)}"


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Whole numbers beyond 64 bits, and halves of surrogate pairs.
        return json.dumps(value, default=_plain, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
