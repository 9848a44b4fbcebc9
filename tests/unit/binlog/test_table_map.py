"""TABLE_MAP events as MySQL 9.7.4 wrote them, with and without full metadata."""

from __future__ import annotations

import pytest
from kit.binlog_bytes import lenenc
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, parse_table_map
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

# CREATE TABLE b_test.f (id BIGINT UNSIGNED NOT NULL, b_ INT, name VARCHAR(20) CHARSET latin1, txt TEXT,
#   bin VARBINARY(5), e ENUM('a','ö') CHARSET latin1, s SET('x','y') CHARSET utf8mb4, v VECTOR(3), g LINESTRING,
#   gg GEOMETRY, d DECIMAL(5,2) UNSIGNED, y YEAR, h INT INVISIBLE, c CHAR(3) COLLATE utf8mb4_bin, dt DATETIME(3),
#   PRIMARY KEY (name(4), id)) with binlog_row_metadata=FULL
FULL = bytes.fromhex(
    "6b0e00000000010006625f74657374000166000f08030ffc0ffefef2fffff60d03fe12111400020500f701f8010404040502fe0c03fa7f"
    "0101b0030708fcff003f3f2e070202000d0103042902696402625f046e616d65037478740362696e01650173017601670267670164017901"
    "6801630264740b0408fcff0005050201780179060502016101f60904020400000c02fff6"
)
# CREATE TABLE b_test.f2 (a INT, b INT, PRIMARY KEY (b, a)) with binlog_row_metadata=FULL
WHOLE_KEY = bytes.fromhex("6c0e00000000010006625f7465737400026632000203030000010100040401610162080201000c01c0")
# CREATE TABLE b_test.t (id INT UNSIGNED PRIMARY KEY, name VARCHAR(20), e ENUM('a','b'), f DECIMAL(10,2), j JSON,
#   v VECTOR(3), g POINT, s SET('x','y') CHARSET latin1, b BIT(10), c CHAR(200)) with binlog_row_metadata=MINIMAL
MINIMAL = bytes.fromhex("b50600000000" "0100") + (
    b"\x06b_test\x00\x01t\x00\n\x03\x0f\xfe\xf6\xf5\xf2\xff\xfe\x10\xfe\x0fP\x00\xf7\x01\n\x02\x04\x04\x04\xf8\x01\x02"
    b"\x01\xce \xfe\x03\x01\x01\x80\x02\x05\xfc\xff\x00\x01?\x07\x01\x01\r\x01\x03"
)  # fmt: skip


def parse(body: bytes) -> TableMap:
    return parse_table_map(
        Event(c.TABLE_MAP_EVENT, 0, 1, 0, "binlog.000001", 4, 99, b"##" + body + b"crc!", 2, 2 + len(body))
    )


def by_name(table_map: TableMap, values: tuple[object, ...] | None) -> dict[str, object]:
    assert table_map.names is not None and values is not None
    return {name: value for name, value in zip(table_map.names, values, strict=True) if value is not None}


def test_names_types_and_metadata() -> None:
    found = parse(FULL)
    assert (found.table_id, found.flags, found.db, found.table) == (3691, 1, "b_test", "f")
    assert found.names == ("id", "b_", "name", "txt", "bin", "e", "s", "v", "g", "gg", "d", "y", "h", "c", "dt")
    meta = by_name(found, found.column_meta)
    assert (meta["name"], meta["d"], meta["dt"], meta["e"]) == (20, 5 | 2 << 8, 3, wt.ENUM | 1 << 8)
    assert [found.nullable(i) for i in range(15)] == [False, True, False] + [True] * 12


def test_signedness_counts_numeric_columns_only() -> None:
    found = parse(FULL)
    # A server before YEAR columns had a bit would have written the same if h were UNSIGNED.
    assert by_name(found, found.unsigned) == {"id": True, "b_": False, "d": True, "y": True}


def test_charsets_of_character_and_list_columns_come_together() -> None:
    found = parse(FULL)
    assert by_name(found, found.charsets) == {
        "name": 8, "txt": 255, "bin": 63, "e": 8, "s": 255, "v": 63, "c": 46
    }  # fmt: skip


def test_members_geometry_key_and_visibility() -> None:
    found = parse(FULL)
    assert by_name(found, found.enum_members) == {"e": (b"a", b"\xf6")}
    assert by_name(found, found.set_members) == {"s": (b"x", b"y")}
    assert by_name(found, found.geometry_types) == {"g": 2, "gg": 0}
    assert by_name(found, found.dimensions) == {"v": 3}
    assert (found.primary_key, found.prefix_lengths) == ((2, 0), (4, 0))
    assert [name for name, visible in by_name(found, found.visible).items() if not visible] == ["h"]


def test_a_key_without_prefixes() -> None:
    found = parse(WHOLE_KEY)
    assert (found.primary_key, found.prefix_lengths, found.names) == ((1, 0), None, ("a", "b"))


def test_minimal_metadata_leave_names_and_members_unknown() -> None:
    found = parse(MINIMAL)
    absent = (found.names, found.enum_members, found.set_members, found.primary_key, found.visible)
    assert absent == (None,) * 5
    assert found.unsigned == (True, None, None, False) + (None,) * 6
    # One default with an exception: the second of name, v, c is binary.
    assert found.charsets == (None, 255, None, None, None, 63, None, None, None, 255)


def test_raw_ignores_table_id_and_flags() -> None:
    other = b"\x01\x02\x03\x04\x05\x06\x07\x08" + FULL[8:]
    assert parse(other).raw == parse(FULL).raw != parse(WHOLE_KEY).raw
    assert parse(other).table_id == 0x060504030201


def test_a_server_without_optional_metadata() -> None:
    body = WHOLE_KEY[: 8 + 8 + 4 + 1 + 2 + 1 + 1]
    found = parse(body)
    assert found.column_types == b"\x03\x03" and found.unsigned is None


def test_unknown_metadata_are_left_out() -> None:
    found = parse(WHOLE_KEY + b"\x7f\x03abc")
    assert found == parse(WHOLE_KEY + b"\x7f\x03abc") and found.names == ("a", "b")


def test_three_hundred_columns() -> None:
    names = [b"c%d" % i for i in range(300)]
    metadata = b"".join(bytes([len(n)]) + n for n in names)
    body = (
        bytes(8) + b"\x01d\0\x01t\0" + lenenc(300) + bytes([wt.LONG]) * 300 + lenenc(0) + bytes(38)
        + b"\x04" + lenenc(len(metadata)) + metadata
    )  # fmt: skip
    assert parse(body).names == tuple(n.decode() for n in names)


@pytest.mark.parametrize("body", [FULL, WHOLE_KEY, MINIMAL], ids=["full", "key", "minimal"])
def test_every_cut_is_refused_or_read_as_less_metadata(body: bytes) -> None:
    whole = parse(body)
    for length in range(len(body)):
        try:
            found = parse(body[:length])
        except BinlogCorruptError as error:
            assert error.where == "binlog.000001:4"
        else:
            assert found.column_types == whole.column_types and found.null_bits == whole.null_bits


@for_each(
    ("signedness", "unsigned"),
    [
        # INT, YEAR, INT UNSIGNED, INT, TINYINT UNSIGNED, as MySQL 9.7.4 and 8.0.15 wrote it.
        (b"\x68", (False, True, True, False, True)),
        (b"\x50", (False, True, None, None, None)),
        (b"\x00", (False, None, False, False, False)),
        (b"\x40", (False, True, None, False, False)),
    ],
)
def test_signedness_after_a_year_is_told_where_it_is_certain(
    signedness: bytes, unsigned: tuple[bool | None, ...]
) -> None:
    types = bytes((wt.LONG, wt.YEAR, wt.LONG, wt.LONG, wt.TINY))
    body = bytes(8) + b"\1d\0\1t\0" + b"\5" + types + b"\0" + b"\0" + b"\1" + bytes((len(signedness),)) + signedness
    assert parse(body).unsigned == unsigned
