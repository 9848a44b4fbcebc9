"""TABLE_MAP against the known structure."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, WireType, wire_type
from airflow_provider_mysql_cdc.cdc.decode.table_check import ColumnMetadata, check_table_map, type_fits
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt


def announced(*wires: tuple[int, int], nulls: int = 0xFF, **more: Any) -> TableMap:
    return TableMap(
        table_id=1,
        flags=1,
        db="db",
        table="t",
        column_types=bytes(code for code, _ in wires),
        column_meta=tuple(meta for _, meta in wires),
        null_bits=nulls.to_bytes(2, "little"),
        raw=b"",
        **more,
    )


@for_each(
    ("col", "code", "meta"),
    [
        (column("c", "TINYINT"), wt.TINY, 0),
        (column("c", "DECIMAL"), wt.NEWDECIMAL, 10),
        (column("c", "DECIMAL", length=10, scale=2), wt.NEWDECIMAL, 10 | 2 << 8),
        (column("c", "BIT"), wt.BIT, 1),
        (column("c", "BIT", length=10), wt.BIT, 2 | 1 << 8),
        (column("c", "CHAR", charset="utf8mb4"), wt.STRING, 0xFE | 4 << 8),
        (column("c", "CHAR", length=255, charset="utf8mb4"), wt.STRING, 0xCE | 0xFC << 8),
        (column("c", "CHAR", length=10, charset="gbk"), wt.STRING, 0xFE | 20 << 8),
        (column("c", "VARCHAR", length=20, charset="latin1"), wt.VARCHAR, 20),
        (column("c", "BINARY", length=16), wt.STRING, 0xFE | 16 << 8),
        (column("c", "MEDIUMTEXT", charset="utf8mb4"), wt.BLOB, 3),
        (column("c", "ENUM", enum_values=("a",)), wt.STRING, wt.ENUM | 1 << 8),
        (column("c", "ENUM", enum_values=tuple(map(str, range(256)))), wt.STRING, wt.ENUM | 2 << 8),
        (column("c", "SET", enum_values=tuple(map(str, range(33)))), wt.STRING, wt.SET | 8 << 8),
        (column("c", "SET", enum_values=tuple(map(str, range(17)))), wt.STRING, wt.SET | 3 << 8),
        (column("c", "DATETIME", length=6), wt.DATETIME2, 6),
        (column("c", "TIME"), wt.TIME2, 0),
        (column("c", "TIME"), wt.TIME, 0),
        (column("c", "JSON"), wt.JSON, 4),
        (column("c", "POINT"), wt.GEOMETRY, 4),
        (column("c", "VECTOR", length=3), wt.VECTOR, 4),
    ],
)
def test_what_fits_is_accepted(col: Any, code: int, meta: int) -> None:
    check_table_map(table(col), announced((code, meta)))


@for_each(
    ("col", "code", "meta"),
    [
        (column("c", "TINYINT"), wt.SHORT, 0),
        (column("c", "DECIMAL", length=10, scale=2), wt.NEWDECIMAL, 10 | 3 << 8),
        (column("c", "VARCHAR", length=20, charset="utf8mb4"), wt.VARCHAR, 20),
        (column("c", "DATETIME"), wt.DATETIME2, 3),
        (column("c", "TIME", length=3), wt.TIME, 0),
        (column("c", "ENUM", enum_values=("a",)), wt.STRING, wt.ENUM | 2 << 8),
        (column("c", "TEXT", charset="utf8mb4"), wt.BLOB, 3),
        (column("c", "NOSUCH"), wt.TINY, 0),
    ],
)
def test_another_type_length_or_precision_names_the_column(col: Any, code: int, meta: int) -> None:
    with pytest.raises(SchemaMismatchError, match=r"Column c of table db\.t"):
        check_table_map(table(col), announced((code, meta)))


def test_a_vector_of_other_dimensions_is_another_type() -> None:
    for dimension in (None, 3, 4):
        announced_column = ColumnMetadata("v", 1, WireType(wt.VECTOR, 4), nullable=True, dimension=dimension)
        assert type_fits(column("v", "VECTOR", length=3), announced_column) is (dimension != 4)


def test_another_number_of_columns_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="the schema history has 1 columns, the binlog 2"):
        check_table_map(table(column("c", "INT")), announced((wt.LONG, 0), (wt.LONG, 0)))


@for_each(
    ("more", "why"),
    [
        ({"names": ("other", "e")}, "names it c, the binlog other"),
        ({"unsigned": (True, None)}, "UNSIGNED"),
        ({"charsets": (None, 28)}, "the binlog has gbk"),
        ({"enum_members": (None, (b"x",))}, "members"),
        ({"nulls": 0b10}, "nullable"),
    ],
)
def test_optional_metadata_are_compared_when_there(more: dict[str, Any], why: str) -> None:
    made = table(column("c", "INT"), column("e", "ENUM", enum_values=("ü",), charset="latin1"))
    wires = ((wt.LONG, 0), (wt.STRING, wt.ENUM | 1 << 8))
    full = {"names": ("C", "e"), "unsigned": (False, None), "charsets": (None, 8), "enum_members": (None, (b"\xfc",))}
    check_table_map(made, announced(*wires, **full))
    with pytest.raises(SchemaMismatchError, match=why):
        check_table_map(made, announced(*wires, **{**full, **more}))


@for_each(
    ("code", "meta", "real"),
    [
        (wt.STRING, 0xFE | 40 << 8, WireType(wt.STRING, 40)),
        (wt.STRING, 0xCE | 0xFC << 8, WireType(wt.STRING, 1020)),
        (wt.STRING, wt.SET | 3 << 8, WireType(wt.SET, 3)),
        (wt.NEWDECIMAL, 65 | 30 << 8, WireType(wt.NEWDECIMAL, 65, 30)),
        (wt.BIT, 0 | 8 << 8, WireType(wt.BIT, 64)),
    ],
)
def test_real_types_in_the_metadata(code: int, meta: int, real: WireType) -> None:
    assert wire_type(code, meta) == real
