"""The second reader of TiCDC's Avro records: fastavro and the registry's API, nothing of the provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import fastavro

from topiclib.events import Event, EventReader, Gtid, Layout, position_of
from topiclib.topics import KafkaRecord
from topiclib.values import Convert, converted
from topiclib.wire import AvroWire, RecordError

_LOGICAL_BITS = 18
# Dates and times are the text that MySQL prints; decimals are read by fastavro.
_BY_TYPE: Mapping[str, Convert] = {"DATE": date.fromisoformat, "DATETIME": datetime.fromisoformat}
_OPERATION, _COMMIT_TS, _COMMIT_MS = "_tidb_op", "_tidb_commit_ts", "_tidb_commit_physical_time"
Converts = Mapping[str, Convert | None]


class FlatWire(AvroWire[Converts]):
    """Read keys and values of TiCDC's protocol."""

    def read(self, data: bytes) -> tuple[dict[str, Any], Converts]:
        """Return the fields of a key or value, and what makes their values comparable.

        Raises:
            RecordError: It is not in the wire format, or has more bytes after its last field.
        """
        converts, fields = self._decode(data)
        return fields, converts

    def _prepare(self, avro: Any) -> tuple[Any, Converts]:
        return fastavro.parse_schema(avro), {f["name"]: _convert_of(f) for f in avro["fields"]}


def _convert_of(avro_field: Mapping[str, Any]) -> Convert | None:
    kinds = avro_field["type"]
    kind = kinds[-1] if isinstance(kinds, list) else kinds
    parameters = kind.get("connect.parameters", {}) if isinstance(kind, dict) else {}
    return _BY_TYPE.get(parameters.get("tidb_type", ""))


@dataclass
class CommitTimes:
    """The commit timestamps of transactions: each has one, and they rise with the transactions' numbers.

    Args:
        times: The timestamp by transaction.
        unequal: Transactions whose rows have different ones.
    """

    times: dict[Gtid, int] = field(default_factory=dict)
    unequal: set[Gtid] = field(default_factory=set)

    def note(self, transaction: Gtid, timestamp: int) -> None:
        """Take the timestamp of a row."""
        if self.times.setdefault(transaction, timestamp) != timestamp:
            self.unequal.add(transaction)

    def differences(self, prepared: set[str]) -> list[str]:
        """Return what is wrong.

        Args:
            prepared: Transactions that end in XA PREPARE; they are committed after others that follow them.
        """
        wrong = [f"transaction {source}:{n}: its rows have different commit timestamps" for source, n in self.unequal]
        last_source, last_number, last_time = "", 0, 0
        for (source, number), time in sorted(self.times.items()):
            if f"{source}:{number}" in prepared:
                continue
            if source == last_source and time <= last_time:
                wrong.append(f"transaction {source}:{number}: its commit timestamp is not above that of {last_number}")
            last_source, last_number, last_time = source, number, time
        return wrong


class TicdcReader(EventReader):
    """Read the records of one table's topic: rows, and keys without a value for deleted rows.

    Args:
        layout: The table at the end.
        wire: Reads keys and values.
        times: Takes the transactions' commit timestamps.
    """

    def __init__(self, layout: Layout, wire: FlatWire, times: CommitTimes) -> None:
        super().__init__(layout)
        self._wire, self._times = wire, times

    def _event(self, record: KafkaRecord) -> Event:
        identity = record.headers.get("cdc-id")
        if identity is None:
            raise RecordError("the header cdc-id is missing")
        key = None
        if record.key is not None:
            fields, converts = self._wire.read(record.key)
            key = tuple(converted(fields[name], converts[name]) for name in self._layout.key)
        position = position_of(identity)
        if record.value is None:
            return Event(record.where, record.partition, "d", key, None, None, identity, position, None)
        fields, converts = self._wire.read(record.value)
        operation, timestamp, commit_ms = (fields.pop(name) for name in (_OPERATION, _COMMIT_TS, _COMMIT_MS))
        if operation not in ("c", "u") or (position is None and operation != "c"):
            raise RecordError(f"{_OPERATION} is {operation}")
        if timestamp >> _LOGICAL_BITS != commit_ms:
            raise RecordError(f"{_COMMIT_TS} {timestamp} does not belong to {_COMMIT_MS} {commit_ms}")
        lag_ms = None
        if position is not None:
            self._times.note(position.gtid, timestamp)
            lag_ms = max(0, record.timestamp_ms - commit_ms)
        else:
            operation = "r"
        after = self._row(fields, converts)
        return Event(record.where, record.partition, operation, key, None, after, identity, position, None, lag_ms)
