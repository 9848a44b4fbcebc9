"""The second reader of TiCDC's Avro records: fastavro and the registry's API, nothing of the provider."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import fastavro
from demolib.events import Event, EventReader, Layout, Record, RecordError, position_of
from demolib.values import Convert

from soaklib.binlog_facts import Gtid

_LOGICAL_BITS = 18
# Dates and times are the text that MySQL prints; decimals are read by fastavro.
_BY_TYPE: Mapping[str, Convert] = {"DATE": date.fromisoformat, "DATETIME": datetime.fromisoformat}
_OPERATION, _COMMIT_TS, _COMMIT_MS = "_tidb_op", "_tidb_commit_ts", "_tidb_commit_physical_time"
Converts = Mapping[str, Convert | None]


class FlatWire:
    """Read keys and values in Confluent's wire format; each schema is requested once.

    Args:
        texts: The text of a schema by its id (``avrolib.wire.from_registry``).
    """

    def __init__(self, texts: Callable[[int], str]) -> None:
        self._texts = texts
        self._known: dict[bytes, tuple[Any, Converts]] = {}

    def read(self, data: bytes) -> tuple[dict[str, Any], Converts]:
        """Return the fields of a key or value, and what makes their values comparable.

        Raises:
            RecordError: It is not in the wire format, or has more bytes after its last field.
        """
        head = data[:5]
        if len(head) < 5 or head[0]:
            raise RecordError(f"it begins with {head!r}, and not with a zero byte and the id of a schema")
        if head not in self._known:
            avro = json.loads(self._texts(struct.unpack(">I", head[1:])[0]))
            self._known[head] = fastavro.parse_schema(avro), {f["name"]: _convert_of(f) for f in avro["fields"]}
        parsed, converts = self._known[head]
        stream = io.BytesIO(data)
        stream.seek(5)
        fields: Any = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise RecordError(f"there are {len(data) - stream.tell()} bytes after the last field")
        return fields, converts


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

    def _event(self, record: Record) -> Event:
        identity = record.headers.get("cdc-id")
        if identity is None:
            raise RecordError("the header cdc-id is missing")
        key = None
        if record.key is not None:
            fields, converts = self._wire.read(record.key)
            key = tuple(_value(fields[name], converts[name]) for name in self._layout.key)
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
            self._times.note((position.lineage, position.numbers[0]), timestamp)
            lag_ms = max(0, record.timestamp_ms - commit_ms)
        else:
            operation = "r"
        after = self._row(fields, converts)
        return Event(record.where, record.partition, operation, key, None, after, identity, position, None, lag_ms)


def _value(value: Any, convert: Convert | None) -> Any:
    return value if value is None or convert is None else convert(value)
