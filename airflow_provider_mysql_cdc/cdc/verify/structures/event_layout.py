"""Recognize the JSON text of events that the stream writes under a table's present structure, without reading it.

Members stand in one order, each once. A text with other members, or in another order, has to be read; it may have been
written under another configuration, or by other hands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import value_columns
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member, contract
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import column_field

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALARS = {"string": _STRING, "boolean": b"true|false", **dict.fromkeys(("int32", "int64"), b"0|[1-9][0-9]*+")}
_VALUE = rb"(?:" + _STRING + rb'|[^"\[\]{},]++|\[(?:' + _STRING + rb'|[^"\[\]])*+\]|\{(?:' + _STRING + rb'|[^"{}])*+\})'
_OPERATION = rb'"([a-z])"'
_TRIES_PER_MISS = 16
"""One of so many tails that are not like the last one is remembered: those of changes seldom come again."""
_JSON_TIMES = re.compile(rb'(?:,"ts_[a-z]{2}":(?:0|[1-9][0-9]{0,18}))+\}{1,2}\Z')
_DIGITS = re.compile(rb"(?<=:)[0-9]+")
_NUMBERS = re.compile(rb"[0-9]+")
_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MAX_TIMES_BYTES = 128
Times = tuple[int, re.Pattern[bytes], re.Pattern[bytes]]
"""Where the times at the end of a value begin, and what matches such times, and those with as many digits."""


@dataclass(frozen=True, slots=True)
class EventLayout:
    """Hold the patterns of a table's events.

    Args:
        row: Matches the text of a row.
        tail: Matches what follows the rows, from the comma before ``source`` to the end; its group is the operation.
    """

    row: re.Pattern[bytes]
    tail: re.Pattern[bytes]


def event_layout(cfg: ConnectorConfig, table: Table, *, has_schema: bool) -> EventLayout:
    """Return the layout of a table's events in JSON, with schemas or without."""
    columns = value_columns(table, table_options.table_options(cfg, table))
    layout = contract(str(cfg[F.EVENT_CONTRACT]), source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]))
    return layout_of((column_field(cfg, column) for column in columns), table.id, layout, has_schema=has_schema)


def layout_of(fields: Iterable[str], table: TableId, layout: Contract, *, has_schema: bool) -> EventLayout:
    """Return the layout of events with these fields of rows, in order."""
    named = {"db": _literal(table.db), "table": _literal(table.table)}
    source = b",".join(_name(m.name) + named.get(m.name, _scalar(m.to_schema())) for m in layout.source)
    tail = b"".join(b"," + _name(member.name) + _tail_value(member) for member in layout.tail)
    closing = rb"\}\}" if has_schema else rb"\}"
    row = b",".join(_name(name) + _VALUE for name in fields)
    return EventLayout(
        re.compile(rb"\{" + row + rb"\}"), re.compile(rb',"source":\{' + source + rb"\}" + tail + closing)
    )


def _literal(text: str) -> bytes:
    return re.escape(dumps(text).encode())


def _name(name: str) -> bytes:
    return _literal(name) + b":"


def _tail_value(member: Member) -> bytes:
    if member.name == "op":
        return _OPERATION
    if not member.schema:
        return _scalar(member.to_schema())
    members = b",".join(_name(field["field"]) + _scalar(field) for field in dict(member.schema)["fields"])
    return rb"(?:null|\{" + members + rb"\})"


def _scalar(schema: ConnectSchema) -> bytes:
    # A boolean is a text in some records without schemas (``Contract.snapshot_value``).
    more = [b"null"] * bool(schema["optional"]) + [_STRING] * (schema["type"] == "boolean")
    return b"(?:" + b"|".join((_SCALARS[schema["type"]], *more)) + b")"


class RecentTails:
    """Remember what followed the rows of the last event that was read, up to its times, and its operation.

    The events of a chunk of a snapshot have one source block; so have most of an incremental snapshot's. What was read
    once need not be read again where the same bytes stand there.

    Args:
        times: Returns what is known of the times at the end of a value; None where there are none.
    """

    def __init__(self, times: Callable[[bytes, int], Times | None]) -> None:
        self._times_of, self._misses = times, -1
        self._head, self._times, self._size = b"", b"", 0
        self._is_times: Callable[[bytes, int], object] = _JSON_TIMES.fullmatch
        self._is_as_long: Callable[[bytes, int], object] = _JSON_TIMES.fullmatch
        self._whole_size = 0
        self._operation: bytes | None = None

    def read(self, value: bytes, source: int) -> bytes | None:
        """Return the operation of an event that ends like the last one behind its rows; None for another one."""
        if self._operation is None or not value.startswith(self._head, source):
            return None
        return self._operation if self._is_times(value, source + self._size) is not None else None

    def read_end(self, value: bytes) -> tuple[int, bytes] | None:
        """Return where an end begins that is like the last one and of its length, and the operation.

        What is before it has to be looked at, or compared as bytes: nothing says that no such text is there, too.
        """
        source = len(value) - self._whole_size
        operation = self._operation
        if operation is None or source < 0 or not value.startswith(self._head, source):
            return None
        return (source, operation) if self._is_as_long(value, source + self._size) is not None else None

    def learn(self, value: bytes, source: int, operation: bytes) -> bytes:
        """Take the end of an event that was read as one that later ones may be like; return its operation."""
        self._misses += 1
        if self._misses % _TRIES_PER_MISS == 0:
            found = self._times_of(value, source)
            self._operation = None
            if found is not None:
                begin, pattern, as_long = found
                self._head, self._size, self._whole_size = value[source:begin], begin - source, len(value) - source
                self._times = value[begin:]
                self._is_times, self._is_as_long, self._operation = pattern.fullmatch, as_long.fullmatch, operation
        return operation

    def rows_of(self, values: Sequence[bytes], new_row: bytes, operations: Collection[bytes]) -> list[bytes] | None:
        """Return the rows after many events in JSON; None where not all have a row alone, and end like the last one.

        Each step is one look at all events, and takes half the time of a look at each of them. What it accepts is what
        ``read_end`` accepts.

        Args:
            values: The values of their records.
            new_row: What such values begin with, up to the brace of the row.
            operations: Operations that such events have.
        """
        if self._operation not in operations or not values:
            return None
        head, times = b"}" + self._head, self._times
        begin, times_begin, row_end = len(new_row) - 1, -len(times), 1 - len(head) - len(times)
        if not values[-1].endswith(head, begin, times_begin):  # changes differ from each other
            return None
        rows = [
            value[begin:row_end]
            for value in values
            if value.startswith(new_row) and value.endswith(head, begin, times_begin)
        ]
        return rows if len(rows) == len(values) and _are_times(times, values) else None


def _are_times(times: bytes, values: Sequence[bytes]) -> bool:
    """Return whether values, none of which is shorter, end with times that have as many digits as others."""
    size = len(times)
    ends = b"".join([value[-size:] for value in values])
    if ends.translate(_AS_ZEROS) != times.translate(_AS_ZEROS) * len(values):
        return False
    numbers = (number.span() for number in _NUMBERS.finditer(times))
    return not any(b"0" in ends[begin::size] for begin, end in numbers if end - begin > 1)


def json_times(value: bytes, source: int) -> Times | None:
    """Return what is known of the times at the end of an event in JSON, behind its rows."""
    found = _JSON_TIMES.search(value, max(source, len(value) - _MAX_TIMES_BYTES))
    if found is None:
        return None
    names = [re.escape(name) for name in _DIGITS.split(found[0])]
    sizes = [len(digits) for digits in _DIGITS.findall(found[0])]
    numbers = (b"[0-9]" if size == 1 else b"[1-9][0-9]{%d}" % (size - 1) for size in sizes)
    same = b"".join(part for pair in zip(names, (*numbers, b""), strict=True) for part in pair)
    return found.start(), re.compile(rb"(?:0|[1-9][0-9]{0,18})".join(names)), re.compile(same)
