"""Read change events in Debezium's envelope, whose keys and values are in formats of their own."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.emit.contracts import CONTRACTS
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms

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
_HEARTBEAT = {"ts_ms"}
# A topic may have events of a contract that was configured before.
_MEMBERS = frozenset({"before", "after", "source"}).union(m.name for c in CONTRACTS.values() for m in c.tail)
_SOURCE_MEMBERS = frozenset(member.name for c in CONTRACTS.values() for member in c.source)


class PayloadReader(Protocol):
    """Read keys, or values."""

    def read(self, data: bytes, headers: Headers = ()) -> tuple[Any, Forms | None]:
        """Return the payload, and the forms of its values; None where they are not known.

        Args:
            data: The key or value.
            headers: The record's headers.

        Raises:
            UnreadableRecord: It has another format.
        """
        ...

    def is_exact(self, data: bytes, fields: Row, headers: Headers = ()) -> bool:
        """Return whether a key is in the bytes that the stream writes for its fields.

        Args:
            data: The key.
            fields: What was read.
            headers: The record's headers.
        """
        ...


class EnvelopeEvents:
    """Read the records of a topic of change events, of contract 3.x or 1.9.

    Args:
        keys: Reads keys.
        values: Reads values.
    """

    def __init__(self, keys: PayloadReader, values: PayloadReader) -> None:
        self._keys, self._values = keys, values

    def read(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> EventRecord:
        """Return what a record says; see ``EventReader``."""
        fields, key_forms, exact = None, None, True
        if key is not None:
            fields, key_forms = self._keys.read(key, headers)
            if fields is not None and not isinstance(fields, dict):
                raise UnreadableRecord("the key is no object")
            exact = fields is None or self._keys.is_exact(key, fields, headers)
        if value is None:  # of a table without a key, the tombstone has no key either
            return EventRecord(
                NO_CHANGE, fields, None, None, _NO_SOURCE, None, key_forms, key_bytes=key, key_exact=exact
            )
        event, forms = self._values.read(value, headers)
        if not isinstance(event, dict):
            raise UnreadableRecord("the value is no object")
        op = event.get("op")
        if not isinstance(op, str) or op not in _ROWS:
            return _other_message(event)
        rows = _ROWS[op]
        before, after, source = event.get("before"), event.get("after"), event.get("source")
        if not isinstance(source, dict):
            raise UnreadableRecord(f"the event of op {op} has no source")
        require_members(event, _MEMBERS, "the event")
        require_members(source, _SOURCE_MEMBERS, "source")
        for name, row, wanted in (("before", before, rows[0]), ("after", after, rows[1])):
            if (row is not None and not isinstance(row, dict)) or wanted is (row is None):
                raise UnreadableRecord(_misfit(op, name, row, wanted))
        more = event.get("transaction"), key, exact
        return EventRecord(op, fields, before, after, source, forms, key_forms, 0, *more)


def require_members(members: Mapping[str, Any], known: Set[str], where: str) -> None:
    """Check that the stream writes all members that a part of an event has.

    Args:
        members: The part.
        known: Names of members that the stream writes.
        where: The part, for messages.

    Raises:
        UnreadableRecord: It has other members.
    """
    if not members.keys() <= known:
        more = ", ".join(sorted(members.keys() - known))
        raise UnreadableRecord(f"{where} has members that the stream does not write: {more}")


def _misfit(op: str, name: str, row: Any, wanted: bool | None) -> str:
    if row is not None and not isinstance(row, dict):
        return f"{name} of the event of op {op} is no object"
    return f"the event of op {op} has {'no' if wanted else 'a row'} {name}"


def _other_message(event: Mapping[str, Any]) -> EventRecord:
    """Return what a value says that is no change event: a message (op ``m``) or a heartbeat."""
    if event.get("op") == "m" or event.keys() == _HEARTBEAT:
        return EventRecord(NO_CHANGE, None, None, None, _NO_SOURCE)
    if "op" not in event:
        raise UnreadableRecord("the value is no change event: it has no op")
    raise UnreadableRecord(f"the value is no change event: its op is {event['op']!r:.20}")
