"""The records that go to Kafka, whose a record of a topic is, and how many the native kernel has decoded.

The records that go to Kafka, from the decoder or driver that writes them to the producer.

A ``RowRecord`` is a plain tuple, because generated code and the native kernel build at least one for each row.

Tell whose a record of a topic is, as far as its form tells.

The schema history and the ledger belong to one stream. Where another program has written, its records must be neither
deleted nor appended to, and the error names whose they are. Forms: Debezium's ``HistoryRecord`` (the history of this
package has the same members and ``epoch``), the envelopes of its events, Kafka Connect's internal topics
(``KafkaOffsetBackingStore``, ``KafkaConfigBackingStore``, ``KafkaStatusBackingStore``), and Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record

Header = tuple[str, bytes]
"""Name and value of a record's header."""
Headers = Sequence[tuple[str, bytes | None]]
"""Names and values of a record's headers."""


class SideRecord(NamedTuple):
    """A record that belongs to no row: ledger, schema history, schema change, transaction, heartbeat, notification.

    It goes to partition 0 of its topic.

    Args:
        topic: Its topic.
        key: Its key, or None.
        value: Its value; None deletes the key from a compacted topic.
        headers: Its headers, or None.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


RowRecord = tuple[bytes | None, bytes | None, int, int, Header | None, int | None]
"""A record of a row: key, value, number of the row in its event, number of the record among those of the row, header of
its own or None, and partition.

The partition is None until something has chosen it: ``format_rows``, the output that hashes keys, or a decoder that
writes records in TiCDC's protocol directly."""
PartitionedRecord = tuple[bytes | None, bytes | None, int, int, Header | None, int]
"""A ``RowRecord`` in its final format, whose partition is chosen."""


class AddedHeaders(tuple[tuple[str, bytes | None], ...]):
    """The headers that transforms have added to a record, in place of its own: the transforms are done with it."""

    __slots__ = ()


HEADER: Final = 4
"""Index of a record's own header in a ``RowRecord``."""
PARTITION: Final = 5
"""Index of the partition in a ``RowRecord``."""
CHANGE, TOMBSTONE, NEW_KEY = 0, 1, 2
"""Numbers of the records of a row: its change event, the tombstone after a delete, and the create event of an UPDATE
that changes the key, which follows the delete event of the old key."""


def byte_count(records: Sequence[RowRecord]) -> int:
    """Return the bytes of the records' keys and values."""
    return sum(len(record[0] or b"") + len(record[1] or b"") for record in records)


_EPOCH = "epoch"
_HISTORY_MEMBERS = ("ddl", "tableChanges", "databaseName")
_CONNECT_KEYS = {
    "connector-": "Kafka Connect's configuration of connector {}",
    "task-": "Kafka Connect's configuration of task {}",
    "target-state-": "Kafka Connect's state of connector {}",
    "commit-": "Kafka Connect's configuration of connector {}",
    "restart-connector-": "Kafka Connect's restart of connector {}",
    "session-key": "a Kafka Connect session key",
    "tasks-fencing-": "Kafka Connect's configuration of connector {}",
    "status-connector-": "Kafka Connect's status of connector {}",
    "status-task-": "Kafka Connect's status of task {}",
    "status-topic-": "Kafka Connect's list of topics ({})",
}
_MAX_NAMES = 6
_MAX_CHARS = 100
_WIRE_FORMAT_BYTES = 5
"""Bytes before the value in Confluent's wire format: a zero and the schema's id."""


def history_prefix(value: Mapping[str, Any]) -> str | None:
    """Return the topic.prefix of a schema history record of this package; None for any other record.

    Args:
        value: The record's value.
    """
    server = _server(value)
    return server if _EPOCH in value and any(name in value for name in _HISTORY_MEMBERS) else None


def describe_record(key: bytes | None, value: bytes | None) -> str:
    """Return what a record is and whose, without its values.

    Args:
        key: The record's key.
        value: The record's value.
    """
    if connect := connect_record(key):
        return connect
    data = _json(value)
    if isinstance(data, Mapping):
        return _describe_object(data)
    if value is None:
        return "a record of an unknown program, without a value"
    if value[:1] == b"\0" and len(value) > _WIRE_FORMAT_BYTES:
        return f"a record in the format of a schema registry (schema id {int.from_bytes(value[1:5], 'big')})"
    return f"a record of an unknown program ({'JSON' if data is not None else f'{len(value)} bytes, not JSON'})"


def connect_record(key: bytes | None) -> str:
    """Return what a record of one of Kafka Connect's own topics is; empty for any other.

    Args:
        key: The record's key.
    """
    text = (key or b"").decode("utf-8", "replace")
    for start, description in _CONNECT_KEYS.items():
        if text.startswith(start):
            return description.format(_short(text[len(start) :]))
    parts = _json(key)
    if isinstance(parts, list) and len(parts) == 2 and isinstance(parts[1], Mapping):
        return f"an offset of Kafka Connect's connector {_short(parts[0])}"
    return ""


def _describe_object(data: Mapping[str, Any]) -> str:
    if (prefix := history_prefix(data)) is not None:
        return f"the schema history of topic.prefix={_short(prefix)}"
    if (server := _server(data)) is not None and any(name in data for name in _HISTORY_MEMBERS):
        return f"Debezium's schema history of the connector with topic.prefix={_short(server)}"
    payload = data["payload"] if isinstance(data.get("payload"), Mapping) else data
    source = payload.get("source")
    if isinstance(source, Mapping) and {"op", "ddl"} & payload.keys():
        kind = "a change event" if "op" in payload else "a schema change event"
        return f"{kind} of topic.prefix={_short(source.get('name'))} (connector {_short(source.get('connector'))})"
    names = ", ".join(_short(name) for name in list(data)[:_MAX_NAMES])
    return f"a record of an unknown program (a JSON object with {names or 'no members'})"


def _server(data: Mapping[str, Any]) -> str | None:
    """Return ``source.server``, which Debezium's history names its connector by; None without it."""
    source = data.get("source")
    server = source.get("server") if isinstance(source, Mapping) else None
    return server if isinstance(server, str) else None


def _json(text: bytes | None) -> Any:
    try:
        return None if text is None else orjson.loads(text)
    except ValueError:
        return None


def _short(value: object) -> str:
    return str(value)[:_MAX_CHARS]


@dataclass(frozen=True, slots=True)
class NativeCounts(Record):
    """Count what the kernel has done.

    Args:
        rows: Rows that it has decoded.
        declined: Row events that Python has decoded although there is a kernel, by reason (docs/native.md).
    """

    rows: Count = 0
    declined: Mapping[str, Count] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows or self.declined)

    def add(self, other: NativeCounts) -> NativeCounts:
        """Return both together.

        Args:
            other: The others.
        """
        declined = dict(self.declined)
        for reason, events in other.declined.items():
            declined[reason] = declined.get(reason, 0) + events
        return NativeCounts(self.rows + other.rows, declined)

    def since(self, before: NativeCounts) -> NativeCounts:
        """Return what has come to an earlier count.

        Args:
            before: The earlier count.
        """
        declined = {reason: n - before.declined.get(reason, 0) for reason, n in self.declined.items()}
        return NativeCounts(self.rows - before.rows, {reason: n for reason, n in declined.items() if n})

    def members(self) -> dict[str, Any]:
        """Return what a task's result says of them; nothing where there is nothing to tell."""
        counts = {"native_rows": self.rows, "native_declined": dict(self.declined)}
        return {name: value for name, value in counts.items() if value}

    def text(self) -> str:
        """Return what the job's log says of them; empty where there is nothing to tell."""
        if not self:
            return ""
        events = sum(self.declined.values())
        reasons = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in sorted(self.declined.items()))
        declined_text = f", {events:,} row events left to Python ({reasons})" if events else ""
        return f"the native kernel decoded {self.rows:,} rows{declined_text}"
