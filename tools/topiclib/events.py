"""Change events with comparable values, from the records of a table's topic in JSON or Avro."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from topiclib.topics import KafkaRecord
from topiclib.values import Convert, converted, converter_of_schema
from topiclib.wire import RecordError, WireReader

Row = tuple[Any, ...]
Gtid = tuple[str, int]
"""A transaction: the id of its source and its number."""

_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'
_IDENTITY = re.compile(r"(?P<line>.+):(\d+)/(\d+)/(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Layout:
    """Describe a table as it is at the end.

    Args:
        columns: Column names in order.
        key: Names of the primary key's columns, empty for a table without key.
        defaults: Value of each column in rows that were written before the column was added.
        earlier: Names that columns had before, to their name at the end; None for a column that was dropped.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    defaults: Row
    earlier: Mapping[str, str | None] = field(default_factory=dict)

    def key_of(self, row: Row) -> Row:
        """Return the key values of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Return an event's position in the binlog; places of one line are ordered by their numbers.

    Args:
        lineage: GTID source, or server and binlog base name.
        numbers: Transaction number (or file and position), event, row and leg.
    """

    lineage: str
    numbers: tuple[int, ...]

    @property
    def transaction(self) -> str:
        """The transaction: ``GTID source:number``."""
        return f"{self.lineage}:{self.numbers[0]}"

    @property
    def gtid(self) -> Gtid:
        """The transaction as source and number."""
        return (self.lineage, self.numbers[0])

    def follows(self, other: EventPosition, ranks: Mapping[str, int] | None = None) -> bool:
        """Return whether this position is after another one; positions of two lines do, unless their ranks say not."""
        if ranks and self.transaction in ranks and other.transaction in ranks:
            own, others = ranks[self.transaction], ranks[other.transaction]
            return (own, *self.numbers[1:]) > (others, *other.numbers[1:])
        return self.lineage != other.lineage or self.numbers > other.numbers


_AGAIN = (b"incremental/", b"blocking/")


@dataclass(frozen=True, slots=True)
class Event:
    """Hold one change event or tombstone.

    Args:
        record: Its place in the topic.
        op: ``r``, ``c``, ``u``, ``d``, ``t`` for a tombstone, ``x`` for a TRUNCATE.
        key: Key values, None for a table without key.
        before: Row before, by the layout's columns.
        position: Where in the binlog, None for snapshot rows.
        file: Number of the binlog file and position that the source block shows; None for tombstones.
        lag_ms: Milliseconds from commit to Kafka; None for snapshot rows and tombstones.
    """

    record: str
    partition: int
    op: str
    key: Row | None
    before: Row | None
    after: Row | None
    identity: bytes
    position: EventPosition | None
    file: tuple[int, int] | None
    lag_ms: int | None = None

    @property
    def again(self) -> bool:
        """Whether it is a row of an ad-hoc snapshot."""
        return self.identity.startswith(_AGAIN)


def position_of(identity: bytes) -> EventPosition | None:
    """Return the place that an event identity names, None for a snapshot row.

    Args:
        identity: ``GTID/event/row/leg``, ``uuid/file:position/event/row/leg``, or ``snapshot/...`` and the like.

    Raises:
        RecordError: It has another form.
    """
    if identity.startswith((b"snapshot/", *_AGAIN)):
        return None
    match = _IDENTITY.fullmatch(identity.decode("utf-8", "replace"))
    if match is None:
        raise RecordError(f"cdc-id {identity!r} has an unknown form")
    line, numbers = match["line"], tuple(int(n) for n in match.groups()[1:])
    if "/" in line:
        line, _, serial = line.rpartition(".")
        numbers = (int(serial), *numbers)
    return EventPosition(line, numbers)


class EventReader:
    """Read the records of one topic; the schema text, the same in thousands of records, is parsed once.

    Args:
        layout: The table at the end.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index = {name: i for i, name in enumerate(layout.columns)}
        self._known: list[tuple[bytes, Any]] = []

    def event(self, record: KafkaRecord) -> Event:
        """Return the event of a record.

        Raises:
            RecordError: The record cannot be understood.
        """
        try:
            return self._event(record)
        except RecordError as error:
            raise RecordError(f"{record.where}: {error}") from error
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise RecordError(f"{record.where}: {error!r}") from error

    def events(self, records: Iterable[KafkaRecord]) -> Iterator[Event | RecordError]:
        """Yield the events of records; one that cannot be read comes as its error."""
        for record in records:
            try:
                yield self.event(record)
            except RecordError as error:
                yield error

    def _event(self, record: KafkaRecord) -> Event:
        identity = record.headers.get("cdc-id")
        if identity is None:
            return self._truncation(record)
        key = None if record.key is None else self._key(record.key)
        position = position_of(identity)
        if record.value is None:
            return Event(record.where, record.partition, "t", key, None, None, identity, position, None)
        schema, payload = self._split(record.value, self._columns)
        source = payload["source"]
        serial = int(source["file"].rpartition(".")[2])
        before, after = (None if (r := payload[side]) is None else self._row(r, schema) for side in ("before", "after"))
        return Event(
            record.where,
            record.partition,
            payload["op"],
            key,
            before,
            after,
            identity,
            position,
            (serial, source["pos"]),
            None if position is None else max(0, record.timestamp_ms - source["ts_ms"]),
        )

    def _truncation(self, record: KafkaRecord) -> Event:
        """Return a TRUNCATE, the only change that no row identifies."""
        payload = None if record.value is None else self._split(record.value, self._columns)[1]
        if payload is None or payload["op"] != "t":
            raise RecordError("the header cdc-id is missing")
        source = payload["source"]
        identity = f"truncate/{source.get('gtid') or (source['file'], source['pos'])}".encode()
        position = (int(source["file"].rpartition(".")[2]), source["pos"])
        return Event(record.where, record.partition, "x", None, None, None, identity, None, position)

    def _key(self, data: bytes) -> Row:
        converts, payload = self._split(data, _fields)
        return tuple(converted(payload[name], converts[name]) for name in self._layout.key)

    def _row(self, data: Mapping[str, Any], converts: Mapping[str, Convert | None]) -> Row:
        row = list(self._layout.defaults)
        for name, value in data.items():
            final = self._layout.earlier.get(name, name)
            if final is not None:
                row[self._index[final]] = converted(value, converts[name])
        return tuple(row)

    def _columns(self, schema: Mapping[str, Any]) -> Any:
        return _fields(next(f for f in schema["fields"] if f["field"] == "after"))

    def _split(self, data: bytes, prepare: Any) -> tuple[Any, Any]:
        for prefix, prepared in self._known:
            if data.startswith(prefix):
                return prepared, orjson.loads(data[len(prefix) : -1])
        document = orjson.loads(data)
        prepared = prepare(document["schema"])
        end = data.find(_PAYLOAD)
        # The text may hold the separator inside a name or default as well; then it is not taken as a prefix.
        if data.startswith(_SCHEMA) and _parses_to(data[len(_SCHEMA) : end], document["schema"]):
            self._known.append((data[: end + len(_PAYLOAD)], prepared))
        return prepared, document["payload"]


class AvroReader(EventReader):
    """Read the records of one topic whose keys and values are Avro; what a schema means is found once.

    Args:
        layout: The table at the end.
        wire: Reads Avro through the registry.
    """

    def __init__(self, layout: Layout, wire: WireReader) -> None:
        super().__init__(layout)
        self._wire = wire
        self._prepared: dict[bytes, Any] = {}

    def _split(self, data: bytes, prepare: Any) -> tuple[Any, Any]:
        schema, payload = self._wire.split(data)
        head = data[:5]
        if head not in self._prepared:
            self._prepared[head] = prepare(schema)
        return self._prepared[head], payload


def _fields(schema: Mapping[str, Any]) -> dict[str, Convert | None]:
    fields: Sequence[Mapping[str, Any]] = schema["fields"]
    return {field["field"]: converter_of_schema(field) for field in fields}


def _parses_to(text: bytes, expected: Any) -> bool:
    try:
        return bool(orjson.loads(text) == expected)
    except orjson.JSONDecodeError:
        return False
