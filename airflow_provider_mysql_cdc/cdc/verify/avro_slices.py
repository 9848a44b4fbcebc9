"""Take the parts that a comparison needs out of an event in Avro, without reading the row after it.

Reading depends on the schema and on the bytes that it has come to, on nothing else. So where an event goes on with the
bytes of a table's row at the place of ``after``, its reader would read that row and no other, and goes on behind it.
Where the row ends is guessed by how the source block begins; a wrong guess gives other bytes than those of any row.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.avro_schemas import without_logical_types
from airflow_provider_mysql_cdc.cdc.verify.json_slices import MAX_SLICE_BYTES, EventSlice
from airflow_provider_mysql_cdc.cdc.verify.recent_tails import RecentTails, Times
from airflow_provider_mysql_cdc.cdc.verify.source_place import source_order

RAW_ROW = b"\0"
"""What the value of an entry begins with if a row in Avro follows; no JSON begins with it."""
MAX_TRIES = 32
"""Events that are read to learn how source blocks begin."""
_NULL, _SOME = 0, 2
_BEFORE_AND_AFTER = ["before", "after"]
_CONSTANTS = ("version", "connector", "name")
_OPERATIONS = {(False, True): "cru", (True, True): "u", (True, False): "d", (False, False): "d"}
"""Operations of events with and without a row before and after them."""
_NEW_ROW_OPERATIONS = _OPERATIONS[False, True]
_FLAT_END = re.compile(rb"\x02[cu]([\x80-\xff]{0,8}[\x00-\x7f])[\x80-\xff]{0,8}[\x00-\x7f]\Z")
"""The extension's operation, timestamp and time, of at most 63 bits each."""
_FLAT_END_BYTES = 20
_SOME_LONG = rb"\x02[\x80-\xff]{0,8}[\x00-\x7f]"
"""A number of at most 63 bits that may be absent, and is not."""

Decode = Callable[[io.BytesIO], Any]


def decoder_of(schema: Any) -> Decode:
    """Return what reads a value from a stream.

    Args:
        schema: Its schema, as JSON.

    Raises:
        Exception: It is no schema; fastavro has many.
    """
    import fastavro

    parsed, read = fastavro.parse_schema(without_logical_types(schema)), fastavro.schemaless_reader
    return lambda stream: read(stream, parsed, None)


class _KnownForm:
    """Slices of a form that the schema tells; no event has to be read as an example of it."""

    @property
    def knows_none(self) -> bool:
        """Return whether an event has to be read before others need not be: never."""
        return False

    def learn(self, value: bytes) -> None:
        """Do nothing; see ``knows_none``."""


class AvroSlices(_KnownForm):
    """Take the parts out of the events of one table, in Debezium's envelope.

    Args:
        table: The table.
        mark: What values begin with that are written with the present schema.
        schema: That schema, as JSON.

    Raises:
        ValueError: It is no schema of such an envelope.
    """

    def __init__(self, table: TableId, mark: bytes, schema: Mapping[str, Any]) -> None:
        self._db, self._name, self._mark, self._begin = table.db, table.table, mark, len(mark)
        row, tail = _parts(schema)
        self._read_row, self._read_tail, self._read_event = map(decoder_of, (row, tail, schema))
        self._recent = RecentTails[tuple[int, str]](_times_behind(tail))
        self._heads, self._row_head = list[bytes](), b""
        self._row_tail = b""
        self._new_row = mark + bytes((_NULL, _SOME))
        self._tries = 0

    def slice(self, value: bytes) -> EventSlice | None:
        """Return the parts of an event; None where it has to be read.

        Args:
            value: The record's value.
        """
        try:
            return self._slice(value)
        except Exception:  # fastavro has many for damaged bytes
            return None

    def of_row(self, value: bytes) -> bytes | None:
        """Return the bytes of a row of the table; None where its record has to be read.

        Args:
            value: The value of a record that the product's encoders have written.
        """
        if not value.startswith(self._new_row):
            return None
        begin, tail = self._begin + 2, self._row_tail
        if tail and value.endswith(tail):
            return _row(value, begin, len(value) - len(tail))
        if not self._row_head:
            self._row_head = self._head(value)
        source = value.rfind(self._row_head, begin)
        if source < 0:
            return None
        self._row_tail = value[source:]
        return _row(value, begin, source)

    def _slice(self, value: bytes) -> EventSlice | None:
        if value.startswith(self._new_row) and (end := self._recent.read_end(value)) is not None:
            start, (place, op) = end
            row = _row(value, self._begin + 2, start)
            if row is not None and op in _NEW_ROW_OPERATIONS:
                return row, place
        if not value.startswith(self._mark):
            return None
        before, pos = value[self._begin], self._begin + 1
        if before == _SOME:
            stream = io.BytesIO(value)
            stream.seek(pos)
            self._read_row(stream)
            pos = stream.tell()
        elif before != _NULL:
            return None
        after: bytes | None = b""
        if value[pos] == _SOME:
            source = self._source(value, pos + 1)
            after = None if source is None else _row(value, pos + 1, source)
        else:
            source = pos + 1 if value[pos] == _NULL else None
        if source is None or after is None:
            return None
        order = self._order(value, source, _OPERATIONS[before == _SOME, bool(after)])
        return None if order is None else (after, order)

    def _order(self, value: bytes, source: int, operations: str) -> int | None:
        """Return the place of an event of the table in the binlog; None where it is none."""
        facts = self._recent.read(value, source) or self._read_facts(value, source)
        return facts[0] if facts is not None and facts[1] in operations else None

    def _read_facts(self, value: bytes, source: int) -> tuple[int, str] | None:
        """Return place in the binlog and operation of an event of the table; None where it is none."""
        stream = io.BytesIO(value)
        stream.seek(source)
        tail = self._read_tail(stream)
        block, op = tail["source"], tail["op"]
        if stream.tell() != len(value) or len(op) != 1 or (block["db"], block["table"]) != (self._db, self._name):
            return None
        return self._recent.learn(value, source, (source_order(block), op))

    def _source(self, value: bytes, begin: int) -> int | None:
        """Return where a source block may begin."""
        # Behind the row there is one: those before it are texts of the row, of this or of an earlier version.
        found = max((value.rfind(head, begin) for head in self._heads), default=-1)
        if found >= 0 or self._tries >= MAX_TRIES:
            return found if found >= 0 else None
        self._tries += 1
        self._heads.append(self._head(value))
        found = value.rfind(self._heads[-1], begin)
        return found if found >= 0 else None

    def _head(self, value: bytes) -> bytes:
        """Return how the source block of an event begins."""
        block = self._read_event(io.BytesIO(value[self._begin :]))["source"]
        return b"".join(_string(block[name]) for name in _CONSTANTS)


class FlatSlices(_KnownForm):
    """Take the parts out of the events of one table in TiCDC's protocol: the row's bytes, and the extension's.

    Args:
        mark: What values begin with that are written with the present schema.
        extended: Whether events have the extension.
    """

    def __init__(self, mark: bytes, *, extended: bool) -> None:
        self._mark, self._extended = mark, extended

    def slice(self, value: bytes) -> EventSlice | None:
        """Return the parts of an event; None where it has to be read.

        Args:
            value: The record's value.
        """
        if not value.startswith(self._mark):
            return None
        begin, end, order = len(self._mark), len(value), 0
        if self._extended:
            found = _FLAT_END.search(value, max(begin, end - _FLAT_END_BYTES))
            if found is None:
                return None
            end, order = found.start(), _long(found[1])
        row = _row(value, begin, end)
        return None if row is None else (row, order)

    def of_row(self, value: bytes) -> bytes | None:
        """Return the bytes of a row of the table; None where its record has to be read.

        Args:
            value: The value of a record that the product's encoders have written.
        """
        event = self.slice(value)
        return None if event is None else event[0]


def _row(value: bytes, begin: int, end: int) -> bytes | None:
    return RAW_ROW + value[begin:end] if end - begin <= MAX_SLICE_BYTES else None


def row_schema(schema: Mapping[str, Any]) -> Any:
    """Return the schema of the rows in an envelope.

    Args:
        schema: The schema of the envelope, as JSON.

    Raises:
        ValueError: It is none of an envelope.
    """
    return _parts(schema)[0]


def _parts(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the schemas of a row, and of what follows the rows in an envelope."""
    rows, tail = schema["fields"][:2], schema["fields"][2:]
    before, after = (field["type"] for field in rows)
    in_order = [field["name"] for field in rows] == _BEFORE_AND_AFTER and tail[0]["name"] == "source"
    optional = isinstance(before, list) and isinstance(after, list) and before[0] == after[0] == "null"
    if not in_order or not optional or (len(before), len(after)) != (2, 2) or before[1]["type"] != "record":
        raise ValueError("no envelope")
    names = [field["name"] for field in tail[0]["type"]["fields"][: len(_CONSTANTS)]]
    if names != list(_CONSTANTS):
        raise ValueError("no source block")
    namespace = schema.get("namespace", "")
    row = {"namespace": namespace, **before[1]}
    return row, {"type": "record", "name": "Tail", "namespace": namespace, "fields": tail}


def _times_behind(tail: Mapping[str, Any]) -> Callable[[bytes, int], Times | None]:
    """Return what finds the times at the end of an event (``RecentTails``).

    Args:
        tail: The schema of what follows the rows.
    """
    names = [field["name"] for field in tail["fields"]]
    head, times = tail["fields"][: names.index("op") + 1], tail["fields"][names.index("op") + 1 :]
    if not all(without_logical_types(field["type"]) == ["null", "long"] for field in times):
        return lambda value, source: None
    read, pattern = decoder_of({**tail, "fields": head}), re.compile(_SOME_LONG * len(times))

    def times_of(value: bytes, source: int) -> Times:
        stream = io.BytesIO(value)
        stream.seek(source)
        read(stream)
        return stream.tell(), pattern, pattern

    return times_of


def _string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Return a number that is not negative as Avro writes it."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _long(data: bytes) -> int:
    number = 0
    for shift, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * shift
    return (number >> 1) ^ -(number & 1)
