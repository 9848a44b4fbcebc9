"""Events of MySQL 8.0.13 to 8.0.17 whose tables have functional indexes, as 8.0.15 wrote them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.table_maps import full_table_map

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import (
    DELETE_ROWS,
    UPDATE_ROWS,
    WRITE_ROWS,
    rows_header,
)
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.decode.hidden_columns import (
    HiddenColumns,
    announces_hidden_columns,
    find_hidden_columns,
    without_columns,
)
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

HIDDEN = Column("28d61f7b1f07d88c18f1068410d140b5", 1, "BIGINT")
COLUMNS = (
    Column("id", 1, "INT", nullable=False),
    Column("n", 2, "BIGINT"),
    Column("mood", 3, "ENUM", charset="utf8mb4", enum_values=("x", "y")),
    Column("m", 4, "BIGINT"),
)
T = Table(TableId("db", "t"), COLUMNS, ("id",))
NO_NAMES: dict[str, Any] = dict.fromkeys(
    ("names", "enum_members", "set_members", "geometry_types", "primary_key", "visible", "dimensions")
)


def table_map(*places: int, key: tuple[str, ...] = ("id",), names: bool, columns: Any = COLUMNS) -> TableMap:
    """Return the event of the table with hidden columns, which are at these places at last."""
    announced = list(columns)
    for number, place in enumerate(places):
        announced.insert(place, replace(HIDDEN, name=f"{number:032x}"))
    placed = tuple(replace(each, position=i) for i, each in enumerate(announced, 1))
    made = full_table_map(Table(T.id, placed, key), visible=None)
    return made if names else replace(made, **NO_NAMES)


def event(kind: int, width: int, *images: bytes, rows: bytes = b"rows", at: int = 7) -> Event:
    body = bytes(6) + b"\1\0" + b"\2\0" + bytes([width]) + b"".join(images) + rows
    buf = b"x" * at + body + b"next"
    return Event(kind, 1, 1, 0, "binlog.000001", 4, 99, buf, at, at + len(body))


def visible(found: HiddenColumns | None, made: Event) -> tuple[Event, int, bytes, bytes | None, bytes]:
    assert found is not None
    shown, header = found.visible_rows(made, rows_header(made))
    assert shown[:7] == made[:7]
    return shown, header.width, header.present, header.present_after, shown.buf[header.pos : shown.end]


@for_each(
    ("version", "announced"),
    [("8.0.12", False), ("8.0.13", True), ("8.0.15-log", True), ("8.0.17", True), ("8.0.18", False), ("9.7.4", False),
     ("8.0.130", False), ("", False)],
)  # fmt: skip
def test_only_some_versions_announce_them(version: str, announced: bool) -> None:
    assert announces_hidden_columns(version) is announced


@for_each("names", [True, False], ids=["FULL", "MINIMAL"])
@for_each("places", [(4,), (1,), (2,), (4, 5), (1, 3), (1, 2)], ids=str)
def test_rows_and_table_map_are_those_of_the_table(places: tuple[int, ...], names: bool) -> None:
    """A hidden column may stand beside one of its own type: only the rows tell which of both it is."""
    announced = table_map(*places, names=names)
    found = find_hidden_columns(T, announced)
    assert found is not None
    check_table_map(T, found.table_map)
    assert found.table_map.primary_key == ((0,) if names else None)
    width = len(announced.column_types)
    image = bytes([0xFF & ~sum(1 << place for place in places)])
    for kind, images in ((WRITE_ROWS, [image]), (DELETE_ROWS, [image]), (UPDATE_ROWS, [image, image])):
        shown, columns, present, after, rows = visible(found, event(kind, width, *images))
        assert (columns, present, rows) == (4, b"\xff", b"rows")
        assert after == (b"\xff" if kind == UPDATE_ROWS else None)
        assert shown.end == len(shown.buf)


@pytest.mark.parametrize("names", [True, False])
def test_tables_without_them_are_left_alone(names: bool) -> None:
    assert find_hidden_columns(T, table_map(names=names)) is None
    fewer = replace(T, columns=COLUMNS[:3])
    if names:  # a column that the history lacks is no hidden one
        assert find_hidden_columns(fewer, table_map(names=True)) is None
        known = Table(T.id, (*COLUMNS, replace(HIDDEN, name=f"{0:032x}", position=5)), ("id",))
        assert find_hidden_columns(known, table_map(4, names=True)) is None
    other = replace(T, columns=(*COLUMNS[:3], replace(COLUMNS[3], type_name="INT")))
    assert (find_hidden_columns(other, table_map(4, names=names)) is None) is not names


def test_a_column_that_the_history_lacks_is_no_hidden_one() -> None:
    """Without names it looks like one until its first row."""
    found = find_hidden_columns(replace(T, columns=COLUMNS[:3]), table_map(names=False))
    with pytest.raises(SchemaMismatchError, match="leaves out 0 of them"):
        visible(found, event(WRITE_ROWS, 4, b"\xff"))


def test_other_columns_that_a_row_leaves_out() -> None:
    """With names it is known which are hidden; without them, only rows that leave out nothing else can be read."""
    made = event(WRITE_ROWS, 5, b"\xf5")  # without the hidden column and mood, which is behind n
    assert visible(find_hidden_columns(T, table_map(1, names=True)), made)[1:3] == (4, b"\xfb")
    with pytest.raises(SchemaMismatchError, match="leaves out 2 of them"):
        visible(find_hidden_columns(T, table_map(1, names=False)), made)


def test_the_columns_in_the_rows_must_be_those_of_the_table() -> None:
    unnamed = find_hidden_columns(T, table_map(4, names=False))
    with pytest.raises(SchemaMismatchError, match="Column mood"):
        visible(unnamed, event(WRITE_ROWS, 5, b"\xfb"))  # leaves out mood, and nothing else
    named = find_hidden_columns(T, table_map(4, names=True))
    with pytest.raises(SchemaMismatchError, match="name is that of a hidden column"):
        visible(named, event(WRITE_ROWS, 5, b"\xff"))
    with pytest.raises(BinlogCorruptError, match="it has 4 columns"):
        visible(named, event(WRITE_ROWS, 4, b"\xff"))


def test_tables_with_many_columns() -> None:
    many = tuple(Column(f"c{n}", n, "INT") for n in range(1, 301))
    wide = Table(T.id, many)
    found = find_hidden_columns(wide, table_map(300, key=(), names=False, columns=many))
    full = (1 << 304) - 1 & ~(1 << 300)
    made = event(WRITE_ROWS, 0, b"")
    head, tail = (
        made.buf[: made.body + 10],
        b"\xfc" + (301).to_bytes(2, "little") + full.to_bytes(38, "little") + b"rows",
    )
    made = made._replace(buf=head + tail, end=len(head + tail))
    _, width, present, _, rows = visible(found, made)
    assert (width, present, rows) == (300, b"\xff" * 38, b"rows")


def test_a_key_with_a_hidden_column_is_none() -> None:
    announced = replace(table_map(4, names=True), primary_key=(0, 4), prefix_lengths=(0, 0))
    assert without_columns(announced, {4}).primary_key is None
    assert without_columns(announced, {1}).primary_key == (0, 3)
