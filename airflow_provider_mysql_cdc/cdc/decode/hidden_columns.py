"""Hidden columns of functional indexes in the binlogs of MySQL 8.0.13 to 8.0.17.

A functional index has a generated column that nobody sees. These versions announce it in TABLE_MAP events, behind the
columns that the table had when the index was created, and leave it out of all rows: its bit in the bitmaps of present
columns is never set (8.0.15). Later versions do not announce it. So both kinds of events are read as if the column did
not exist.

With ``binlog_row_metadata=FULL`` its name tells which column it is. Otherwise the columns that a row event leaves out
are the hidden ones, if their number and the types of the others agree with the table's structure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import (
    LENENC_PREFIX,
    RowsHeader,
    check_rows,
    has_column,
    rows_header,
)
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.table import Table

_VERSIONS = re.compile(r"8\.0\.1[3-7]\b")
_NAME = re.compile("[0-9a-f]{32}")
"""Their names are MD5 sums."""
_PER_COLUMN = (
    "column_meta", "unsigned", "charsets", "names", "enum_members", "set_members", "geometry_types", "visible",
    "dimensions",
)  # fmt: skip


def announces_hidden_columns(server_version: str) -> bool:
    """Return whether a server announces the hidden columns of functional indexes.

    Args:
        server_version: The version in the FORMAT_DESCRIPTION event of the binlog file.
    """
    return _VERSIONS.match(server_version) is not None


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """Read the events of a table as if its hidden columns did not exist.

    Args:
        table: The table.
        announced: The TABLE_MAP event with the hidden columns.
        indexes: Indexes of the hidden columns; None where only rows tell them.
        table_map: The event without them.
    """

    table: Table
    announced: TableMap
    indexes: frozenset[int] | None
    table_map: TableMap
    _bitmaps: dict[bytes, bytes] = field(default_factory=dict)

    def visible_rows(self, event: Event, header: RowsHeader) -> tuple[Event, RowsHeader]:
        """Return a row event, and its header, without the hidden columns.

        Args:
            event: The event.
            header: Its header.

        Raises:
            BinlogCorruptError: It has another number of columns than the TABLE_MAP event.
            SchemaMismatchError: It is not known which columns the rows have.
        """
        check_rows(event, header, len(self.announced.column_types))
        images = [header.present] if header.present_after is None else [header.present, header.present_after]
        bitmaps = b"".join(map(self._visible_bitmap, images))
        size = len(b"".join(images)) + (1 if header.width < LENENC_PREFIX else 3)
        width = len(self.table_map.column_types)
        number = bytes([width]) if width < LENENC_PREFIX else b"\xfc" + width.to_bytes(2, "little")
        head = event.buf[event.body : header.pos - size]
        buf = b"".join((head, number, bitmaps, event.buf[header.pos : event.end]))
        visible = event._replace(buf=buf, body=0, end=len(buf))
        return visible, rows_header(visible)

    def _visible_bitmap(self, image: bytes) -> bytes:
        """Return the bitmap of present columns without the hidden ones."""
        if image not in self._bitmaps:
            width = len(self.announced.column_types)
            absent = frozenset(index for index in range(width) if not has_column(image, index))
            hidden = absent if self.indexes is None else self.indexes
            self._check_absent(absent, hidden)
            kept = [index for index in range(width) if index not in hidden]
            bits = sum(1 << place for place, index in enumerate(kept) if index not in absent)
            size = (len(kept) + 7) >> 3
            spare = (1 << 8 * size) - (1 << len(kept))  # the server sets the spare bits of the last byte
            self._bitmaps[image] = (bits | spare).to_bytes(size, "little")
        return self._bitmaps[image]

    def _check_absent(self, absent: frozenset[int], hidden: frozenset[int]) -> None:
        known, announced = len(self.table.columns), len(self.announced.column_types)
        if not hidden <= absent:
            raise self._error("a row event contains a column whose name is that of a hidden column")
        if self.indexes is not None:
            return
        if known + len(hidden) != announced:
            raise self._error(
                f"the schema history has {known} columns, the TABLE_MAP event {announced}, and a row event leaves out "
                f"{len(hidden)} of them"
            )
        check_table_map(self.table, without_columns(self.announced, hidden))

    def _error(self, why: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"It is not known which columns the rows of table {self.table.id} have",
            where=str(self.table.id),
            why=f"MySQL 8.0.13 to 8.0.17 announce the hidden columns of functional indexes in the binlog, and {why}",
            remedy=(
                "set binlog_row_image=FULL on the server, exclude the table (table.exclude.list), drain, include it "
                "again, and take a new snapshot of the table; if the image is FULL already, the schema history lacks a "
                "change of the table: rebuild it with snapshot.mode=recovery"
            ),
        )


def find_hidden_columns(table: Table, table_map: TableMap) -> HiddenColumns | None:
    """Return the hidden columns that a TABLE_MAP event of MySQL 8.0.13 to 8.0.17 announces; None where it has none.

    Args:
        table: The table as of this point of the binlog.
        table_map: The event.
    """
    width = len(table_map.column_types)
    if table_map.names is not None:
        known = {column.name for column in table.columns}
        named = frozenset(
            index for index, name in enumerate(table_map.names) if name not in known and _NAME.fullmatch(name)
        )
        return HiddenColumns(table, table_map, named, without_columns(table_map, named)) if named else None
    visible = _visible_indexes(table, table_map) if width > len(table.columns) else None
    if visible is None:
        return None
    # Which of several columns of one type it is shows in the rows; the types of the others are the same in any case.
    assumed = frozenset(range(width)) - visible
    return HiddenColumns(table, table_map, None, without_columns(table_map, assumed))


def _visible_indexes(table: Table, table_map: TableMap) -> frozenset[int] | None:
    """Return indexes in the event at which the table's columns are, in their order; None where there are none."""
    found, start = list[int](), 0
    for number, column in enumerate(table.columns):
        single = replace(table, columns=(replace(column, position=1),), primary_key=())
        last = len(table_map.column_types) - (len(table.columns) - number)
        index = next((i for i in range(start, last + 1) if _fits(single, table_map, i)), None)
        if index is None:
            return None
        found.append(index)
        start = index + 1
    return frozenset(found)


def _fits(single: Table, table_map: TableMap, index: int) -> bool:
    try:
        check_table_map(single, _only(table_map, [index]))
    except SchemaMismatchError:
        return False
    return True


def without_columns(table_map: TableMap, indexes: Collection[int]) -> TableMap:
    """Return a TABLE_MAP event without some columns.

    Args:
        table_map: The event.
        indexes: Their indexes.
    """
    return _only(table_map, [index for index in range(len(table_map.column_types)) if index not in indexes])


def _only(table_map: TableMap, kept: Sequence[int]) -> TableMap:
    changes: dict[str, Any] = {
        name: tuple(values[index] for index in kept)
        for name in _PER_COLUMN
        if (values := getattr(table_map, name)) is not None
    }
    nulls = sum(1 << place for place, index in enumerate(kept) if table_map.nullable(index))
    changes["column_types"] = bytes(table_map.column_types[index] for index in kept)
    changes["null_bits"] = nulls.to_bytes((len(kept) + 7) >> 3, "little")
    key = _moved(table_map.primary_key or (), kept)
    if table_map.primary_key is not None:
        changes["primary_key"] = key
    if key is None:
        changes["primary_key"] = changes["prefix_lengths"] = None
    return replace(table_map, layout=b"", **changes)


def _moved(key: Iterable[int], kept: Sequence[int]) -> tuple[int, ...] | None:
    """Return the places of a key's columns; None where one of them is gone."""
    places = {index: place for place, index in enumerate(kept)}
    moved = tuple(places.get(index, -1) for index in key)
    return None if -1 in moved else moved
