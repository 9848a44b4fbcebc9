"""Take the parts that a comparison needs out of an event's JSON text, without reading the text.

The bytes of ``after`` of two events of equal rows under one structure are equal, so they are compared as they are;
where they differ, the comparison reads them. What has another layout is read as a whole (``event_readers``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

_BEFORE = b'{"before":'
_NEW_ROW = b'{"before":null,"after":{'
_SOURCE, _AFTER_ROW, _NO_AFTER = b',"source":{"version":', b',"after":{', b',"after":null'
_OPERATION = re.compile(rb'"op":"([a-z])"')
_FILE_AND_POS = re.compile(rb'"file":"[^"]*?\.?(\d+)","pos":(\d+)')
_MEMBER_NAMES = frozenset({"before", "after", "source"})
MAX_SLICE_BYTES = 4096
"""Longest text of a row that is carried as it is; a longer one is read, and long values become digests."""


class EventSlice(NamedTuple):
    """Hold the parts of an event's text.

    Args:
        op: Its operation.
        after: Text of the row after it; empty when there is none.
        file_number: Number of the binlog file; 0 where it is not known.
        pos: Position in it.
    """

    op: str
    after: bytes
    file_number: int
    pos: int


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


def slice_event(value: bytes, prefix: bytes, *, ordered: bool, members: tuple[bytes, ...] = ()) -> EventSlice | None:
    """Return the parts of an event; None where the text has another layout.

    A quote inside of a JSON string is escaped, so the names of members are found only where they are members.

    Args:
        value: The record's value.
        prefix: What values of the table's present structure begin with (``value_prefix``).
        ordered: Whether the place in the binlog is wanted.
        members: What the source block has to have.
    """
    start = len(prefix)
    if not value.startswith(prefix) or not value.startswith(_BEFORE, start):
        return None
    source = value.find(_SOURCE, start)
    if source < 0 or any(value.find(member, source) < 0 for member in members):
        return None
    if value.startswith(_NEW_ROW, start):
        after = value[start + len(_NEW_ROW) - 1 : source]
    elif value.endswith(_NO_AFTER, start, source):
        after = b""
    else:
        begin = value.find(_AFTER_ROW, start, source)
        if begin < 0:
            return None
        after = value[begin + len(_AFTER_ROW) - 1 : source]
    operation = _OPERATION.search(value, source)
    if operation is None or (after and not after.endswith(b"}")) or len(after) > MAX_SLICE_BYTES:
        return None
    file_number, pos = place_in_binlog(value, source) if ordered else (0, 0)
    return EventSlice(operation[1].decode(), after, file_number, pos)


def place_in_binlog(value: bytes, source: int = 0) -> tuple[int, int]:
    """Return number of the binlog file and position of an event; zeros where its text does not say them.

    Args:
        value: The record's value.
        source: Where its source block begins, or before.
    """
    place = _FILE_AND_POS.search(value, source)
    return (0, 0) if place is None else (int(place[1]), int(place[2]))
