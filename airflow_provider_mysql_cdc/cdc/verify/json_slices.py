"""Take the parts that a comparison needs out of an event's JSON text, without reading the rows in it.

The bytes of ``after`` of two events of equal rows under one structure are equal, so they are compared as they are;
where they differ, the comparison reads them. What has another layout is read as a whole (``event_readers``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.event_tails import EventTails

_BEFORE_ROW, _NEW_ROW = b'{"before":{', b'{"before":null,"after":{'
_NO_ROW = b'{"before":null,"after":null,"source":{"version":'
_SOURCE, _AFTER_ROW, _NO_AFTER = b',"source":{"version":', b',"after":{', b',"after":null'
_FILE_AND_POS = re.compile(rb'"file":"[^"]*?\.?(\d+)","pos":(\d+)')
_MEMBER_NAMES = frozenset({"before", "after", "source"})
_BEHIND_BEFORE = len(_BEFORE_ROW) - 1
OPERATIONS: Mapping[tuple[bool, bool], str] = {
    (False, True): "cru",
    (True, True): "u",
    (True, False): "d",
    (False, False): "d",
}
"""Operations of events with or without a row before and after them."""
_NEW_ROW_OPERATIONS = OPERATIONS[False, True]
MAX_SLICE_BYTES = 4096
"""Longest text of a row that is carried as it is; a longer one is read, and long values become digests."""


EventSlice = tuple[bytes, int]
"""Text of the row after an event, which is empty when there is none, and its place in the binlog (``source_place``)."""


def value_prefix(cfg: ConnectorConfig, table: Table) -> bytes | None:
    """Return what values of a table's events begin with, before their members; None where these are not looked for.

    An event with another schema is of an earlier structure, and has to be read.

    Args:
        cfg: The connector's configuration.
        table: The table.
    """
    if cfg.is_ticdc or cfg.is_avro("key") or cfg.is_avro("value"):
        return None
    if any(column.name.lower() in _MEMBER_NAMES for column in table.columns):
        return None
    schema = table_options.envelope_text(cfg, table, table_options.table_options(cfg, table)).value_schema
    return b"" if schema is None else f'{{"schema":{schema},"payload":'.encode()


def source_members(table: TableId) -> tuple[bytes, ...]:
    """Return the members of the source block that name a table; other tables may have events in its topic.

    Args:
        table: The table.
    """
    return f'"db":{dumps(table.db)}'.encode(), f'"table":{dumps(table.table)}'.encode()


class JsonSlices:
    """Take the parts out of the events of one table.

    A quote inside of a JSON string is escaped, so the names of members are found only where they are members.

    Args:
        table: The table.
        prefix: What values of its present structure begin with (``value_prefix``).
        row: Matches the text of a row that has its columns, and no others.
    """

    def __init__(self, table: TableId, prefix: bytes, row: re.Pattern[bytes]) -> None:
        self._has_own_members = row.fullmatch
        self._start, self._new_row = len(prefix), prefix + _NEW_ROW
        self._old_row, self._no_row = prefix + _BEFORE_ROW, prefix + _NO_ROW
        self._tails = EventTails(table, b"}" if prefix else b"")
        self._begin = len(self._new_row) - 1
        self._read_end = self._tails.read_end
        self._row_tail = b""

    def slice(self, value: bytes) -> EventSlice | None:
        """Return the parts of an event; None where its text has another layout than those that were learned.

        Args:
            value: The record's value.
        """
        if value.startswith(self._new_row) and (end := self._read_end(value)) is not None:
            source, (op, order) = end
            row = value[self._begin : source]
            if len(row) <= MAX_SLICE_BYTES and self._has_own_members(row) is not None and op in _NEW_ROW_OPERATIONS:
                return row, order
        source = value.find(_SOURCE, self._start)
        if source < 0 or (facts := self._tails.read(value, source)) is None:
            return None
        op, order = facts
        after = self.row_of(value, source)
        if after is None or len(after) > MAX_SLICE_BYTES or (after and self._has_own_members(after) is None):
            return None
        if op not in OPERATIONS[value.startswith(self._old_row), bool(after)]:
            return None
        return after, order

    def row_of(self, value: bytes, source: int) -> bytes | None:
        """Return the text of the row after an event; empty where there is none, None for another layout.

        Args:
            value: The record's value.
            source: Where the comma before its source block is.
        """
        if value.startswith(self._new_row):
            return value[len(self._new_row) - 1 : source]
        if value.startswith(self._no_row):
            return b""
        if not value.startswith(self._old_row):
            return None
        if value.endswith(_NO_AFTER, self._start, source):
            row, after = source - len(_NO_AFTER), b""
        else:
            row = value.find(_AFTER_ROW, self._start, source)
            after = value[row + len(_AFTER_ROW) - 1 : source]
        before = value[self._start + _BEHIND_BEFORE : row]
        return after if row >= 0 and self._has_own_members(before) is not None and _is_object(before) else None

    def of_row(self, value: bytes) -> bytes | None:
        """Return the text of a row of the table; None where its record has to be read.

        Args:
            value: The value of a record that the product's encoders have written.
        """
        tail = self._row_tail
        if tail and value.endswith(tail) and value.startswith(self._new_row):
            row = value[self._begin : -len(tail)]
            return row if len(row) <= MAX_SLICE_BYTES else None
        source = value.find(_SOURCE, self._start)
        after = self.row_of(value, source) if source >= 0 else None
        if after:
            self._row_tail = value[source:]
        return after if after and len(after) <= MAX_SLICE_BYTES else None

    @property
    def knows_none(self) -> bool:
        """Return whether no event was learned."""
        return self._tails.knows_none

    def learn(self, value: bytes) -> None:
        """Take an event as one that later ones may be like.

        Args:
            value: The value of an event that was read in full.
        """
        source = value.find(_SOURCE, self._start)
        if source >= 0 and self.row_of(value, source) is not None:
            self._tails.learn(value, source)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def place_in_binlog(value: bytes, source: int = 0) -> tuple[int, int]:
    """Return number of the binlog file and position of an event; zeros where its text does not say them.

    Args:
        value: The record's value.
        source: Where its source block begins, or before.
    """
    place = _FILE_AND_POS.search(value, source)
    return (0, 0) if place is None else (int(place[1]), int(place[2]))
