"""A topic that several writers share: each decodes the rows of its partitions, and passes over the others."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import DEFAULT, NO_SCHEMA, body, column, context, image, table, table_map

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import MAX_BITMAPS
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition_python

COLUMNS = column("name", "VARCHAR", length=20, charset="utf8mb4"), column("id", "INT", nullable=False)
T = table(*COLUMNS, column("n", "INT"), key=("id",))
MAP = table_map((wt.VARCHAR, 80), (wt.LONG, 0), (wt.LONG, 0))
PARTS = 3
MINE = OwnedKeys(PARTS, frozenset({0, 2}), partition_python)
KINDS = ("write", "update", "delete")


def row(number: int, name: str | None = "ünï", n: int | None = 1) -> bytes:
    nulls = (1 if name is None else 0) | (4 if n is None else 0)
    data = b"" if name is None else bytes([len(name.encode())]) + name.encode()
    data += struct.pack("<i", number) + (b"" if n is None else struct.pack("<i", n))
    return image(3, data, nulls)


def decoded(kind: str, *rows: bytes, owned: OwnedKeys | None = MINE, made: Any = T, **more: Any) -> list[Any]:
    out: list[Any] = []
    decoder = compile_decoder(made, MAP, replace(DEFAULT, **more), NO_SCHEMA, owned=owned)
    images = 2 if kind == "update" else 1
    buf, pos, end = body(*rows, columns=3, images=images)
    assert getattr(decoder, kind)(buf, pos, end, context(), out) == len(rows) // images
    return out


def rows_of(kind: str, numbers: range) -> list[bytes]:
    twice = 2 if kind == "update" else 1
    return [row(n, None if n % 5 == 1 else "x" * (n % 9), n if n % 7 else None) for n in numbers for _ in range(twice)]


@for_each("kind", KINDS)
@for_each("more", [{}, {"tombstones": False}, {"included": ("name",)}, {"key_columns": ("n", "name")}])
def test_only_rows_of_the_writers_partitions_become_records(kind: str, more: dict[str, Any]) -> None:
    rows = rows_of(kind, range(60))
    every = decoded(kind, *rows, owned=None, **more)
    mine = [record for record in every if partition_python(record[0], PARTS) in MINE.own_partitions]
    assert decoded(kind, *rows, **more) == mine and 0 < len(mine) < len(every)


def test_rows_of_all_combinations_of_nulls_by_the_function_of_any_bitmap() -> None:
    many = tuple(column(f"c{n}", "INT") for n in range(9))
    made = table(*many, column("id", "INT", nullable=False), key=("id",))
    wires = table_map(*[(wt.LONG, 0)] * 10)
    rows = []
    for nulls in range(2 * MAX_BITMAPS):
        values = [n for n in range(9) if not nulls >> n & 1]
        rows.append(image(10, b"".join(struct.pack("<i", n) for n in (*values, nulls)), nulls))
    found = []
    for owned in (None, MINE):
        out: list[Any] = []
        buf, pos, end = body(*rows, columns=10)
        compile_decoder(made, wires, DEFAULT, NO_SCHEMA, owned=owned).write(buf, pos, end, context(), out)
        found.append(out)
    assert found[1] == [record for record in found[0] if partition_python(record[0], PARTS) in MINE.own_partitions]


@for_each("kind", KINDS)
@for_each("mine", [frozenset({0}), frozenset({1, 2})])
def test_rows_without_a_key_are_of_partition_0(kind: str, mine: frozenset[int]) -> None:
    made = table(*COLUMNS, column("n", "INT"))
    rows = rows_of(kind, range(4))
    found = decoded(kind, *rows, owned=OwnedKeys(PARTS, mine, partition_python), made=made)
    assert found == (decoded(kind, *rows, owned=None, made=made) if 0 in mine else [])


def test_of_an_update_that_changes_a_key_all_records_come() -> None:
    """They go to two partitions, perhaps; who produces them looks at each."""
    for before, after in ((1, 2), (2, 1), (4, 7)):
        rows = row(before), row(after), row(9), row(9)
        found = decoded("update", *rows)
        assert [r[3] for r in found if r[2] == 0] == [0, 1, 2]
        assert [r for r in found if r[2]] == [r for r in decoded("update", *rows, owned=None)[3:] if owns(r)]


def owns(record: Any) -> bool:
    return MINE.owns(record[0])


ODD = 'a"b', "\\", "ü\n", "\0", "/"


@for_each("kind", KINDS)
@for_each("keys", [("name",), ("name", "id"), ("n", "name")])
def test_keys_whose_text_is_made_of_more_than_what_is_stored(kind: str, keys: tuple[str, ...]) -> None:
    numbers = [n for n in range(60) for _ in range(1 + (kind == "update"))]
    rows = [row(n, ODD[n % len(ODD)] * (n % 7), n) for n in numbers]
    every = decoded(kind, *rows, owned=None, key_columns=keys)
    mine = [record for record in every if owns(record)]
    assert decoded(kind, *rows, key_columns=keys) == mine and 0 < len(mine) < len(every)


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_row_of_another_writer_only_the_key_is_read(kind: str) -> None:
    """What is wrong with its other values is told by the writer that has it."""
    theirs = next(n for n in range(99) if not MINE.owns(b'{"id":%d}' % n))
    bad = image(3, b"\2\xff\xff" + struct.pack("<ii", theirs, 1))
    assert decoded(kind, *[bad] * (1 + (kind == "update"))) == []
    with pytest.raises(ValueDecodeError, match="A value of column name"):
        decoded(kind, *[bad] * (1 + (kind == "update")), owned=None)


def test_an_error_in_an_own_row_is_raised() -> None:
    number = next(n for n in range(99) if MINE.owns(b'{"id":%d}' % n))
    bad = image(3, b"\2\xff\xff" + struct.pack("<ii", number, 1))
    with pytest.raises(ValueDecodeError, match="A value of column name"):
        decoded("write", row(5), bad)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_do_not_end_with_their_event_are_an_error_whoever_has_them(kind: str) -> None:
    rows = rows_of(kind, range(3))
    for owned in (MINE, OwnedKeys(PARTS, frozenset(), partition_python)):
        with pytest.raises(ValueDecodeError):
            decoded(kind, *rows[:-1], rows[-1][:-2], owned=owned)


PROPERTIES = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
START = BinlogOffset("binlog.000001", 4)


@for_each(
    ("share", "more", "selects"),
    [
        (TopicShare("t", 2, frozenset({1}), False), {}, True),
        (TopicShare("t", 2, frozenset({0, 1}), True), {}, False),
        (TopicShare("t", 2, frozenset({1}), False), {"provide.transaction.metadata": "true"}, False),
        (TopicShare("t", 2, frozenset({1}), False), {"event.processing.failure.handling.mode": "warn"}, False),
    ],
)
def test_rows_are_selected_where_nothing_looks_at_those_of_others(
    share: TopicShare, more: dict[str, str], selects: bool
) -> None:
    cfg = ConnectorConfig.from_properties({**PROPERTIES, **more})
    found = RouteSettings.for_writer(cfg).owned_keys(share)
    assert found == (OwnedKeys(2, share.assigned, partition_of(found)) if selects else None)


def partition_of(owned: OwnedKeys | None) -> Any:
    return None if owned is None else owned.partitioner
