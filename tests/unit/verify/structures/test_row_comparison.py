"""Rows and their last events: what differs, what an event does not say, and values of earlier structures."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import TICDC, TableRecords

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DECIMAL,
    EventRecord,
    ValueForm,
    row_bytes,
    stored_row,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import (
    CarriedRowComparison,
    ComparedColumns,
    FormCarrier,
    RowDifference,
    compare_rows,
    compared_columns,
    is_placeholder,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import StructureVersion, TableVersions
from airflow_provider_mysql_cdc.cdc.verify.structures.value_meaning import Kind, Meaning, equal_meanings, meaning
from airflow_provider_mysql_cdc.cdc.verify.structures.written_structures import WrittenStructures

pytestmark = pytest.mark.quick

SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
AVRO = avro("http://registry:1")
NO_METADATA = AVRO | {f"{part}.converter.connect.meta.data": "false" for part in ("key", "value")}
DAY = "2024-02-29"
EQUAL, DIFFERENT, INCOMPARABLE = RowDifference(), RowDifference(("v",)), RowDifference(incomparable=("v",))
UNKNOWN = RowDifference(unknown=("v",))
MICRO_TIME = "io.debezium.time.MicroTime"


def table_of(*columns: str) -> str:
    return f"CREATE TABLE t ({', '.join(('id INT NOT NULL PRIMARY KEY', *columns))})"


def read(records: TableRecords, *values: Any) -> EventRecord:
    return event_reader(records.cfg, records.topic, records.schemas.lookup).read(*records.row(*values))


def compared(
    old: TableRecords, new: TableRecords, old_values: tuple[Any, ...], values: tuple[Any, ...]
) -> RowDifference:
    """Compare a row with the event that was written for it under the old structure."""
    event, row = read(old, "1", *old_values), read(new, "1", *values)
    columns = compared_columns(new.cfg, new.table)
    if row.forms is not None:
        assert {name: row.forms[name] for name in columns.forms} == columns.forms
    assert row.after is not None and event.after is not None
    return compare_rows(row.after, event.after, columns, row.forms, event.forms)


FORMATS = {
    "json with schemas": SCHEMAS,
    "json": PLAIN,
    "avro": AVRO,
    "avro without metadata": NO_METADATA,
    "ticdc": TICDC,
}
TYPES: dict[str, tuple[Any, Any]] = {
    "TINYINT(1)": ("1", "0"),
    "BIGINT UNSIGNED": ("18446744073709551615", "18446744073709551614"),
    "DECIMAL(10,2)": ("1.50", "1.51"),
    "FLOAT": ("1.5", "1.25"),
    "DOUBLE": ("1.1", "1.2"),
    "VARCHAR(20)": ("Ünï", "Üni"),
    "VARBINARY(20)": (b"\x00\xff", b"\x00\xfe"),
    "BIT(9)": (b"\x01\x02", b"\x01\x03"),
    "JSON": ('{"a": [1, 2.5]}', '{"a": [2.5, 1]}'),
    "ENUM('a','b')": ("a", "b"),
    "SET('a','b')": ("a,b", "b"),
    "DATE": ("2024-02-29", "2024-03-01"),
    "TIME(3)": ("-12:34:56.789", "12:34:56.789"),
    "DATETIME(6)": ("2024-02-29 12:34:56.123456", "2024-02-29 12:34:56.123457"),
    "TIMESTAMP": ("2024-02-29 12:34:56", "2024-02-29 12:34:57"),
    "YEAR": ("2024", "2025"),
}


@for_each("name", FORMATS)
@for_each("kind", TYPES)
def test_equal_and_different_values_of_every_type(name: str, kind: str) -> None:
    records, (value, other) = TableRecords(table_of(f"v {kind}"), FORMATS[name]), TYPES[kind]
    for mine, theirs, expected in (
        (value, value, EQUAL),
        (value, other, DIFFERENT),
        (None, None, EQUAL),
        (value, None, DIFFERENT),
        (None, value, DIFFERENT),
    ):
        assert compared(records, records, (theirs,), (mine,)) == expected


# The column before and after ALTER TABLE with a value that it leaves as it is, and one that another statement stored.
ALTERED: list[tuple[str, Any, str, Any, Any]] = [
    ("INT", "5", "BIGINT", "5", "6"),
    ("SMALLINT", "-5", "INT", "-5", "5"),
    ("INT", "5", "DOUBLE", "5", "5.5"),
    ("INT", "5", "DECIMAL(10,2)", "5.00", "5.01"),
    ("DECIMAL(10,2)", "1.50", "DECIMAL(12,4)", "1.5000", "1.5001"),
    ("DECIMAL(10,2)", "-1.50", "DECIMAL(10,1)", "-1.5", "1.5"),
    ("DECIMAL(10,2)", "1.10", "DOUBLE", "1.1", "1.11"),
    ("DECIMAL(10,2)", "1.10", "FLOAT", "1.100000023841858", "1.2000000476837158"),
    ("FLOAT", "1.100000023841858", "DOUBLE", "1.100000023841858", "1.1"),
    ("DOUBLE", "1.1", "FLOAT", "1.100000023841858", "1.2000000476837158"),
    ("BIGINT UNSIGNED", "7", "INT", "7", "8"),
    ("BIT(3)", b"\x05", "INT", "5", "6"),
    ("BIT(9)", b"\x01\x02", "BIT(20)", b"\x00\x01\x02", b"\x00\x01\x03"),
    ("YEAR", "2024", "INT", "2024", "2025"),
    ("INT", "5", "VARCHAR(20)", "5", "6"),
    ("DECIMAL(10,2)", "1.50", "VARCHAR(20)", "1.50", "1.51"),
    ("DOUBLE", "1.1", "VARCHAR(20)", "1.1", "1.2"),
    ("DOUBLE", "1e22", "VARCHAR(20)", "1e22", "1e23"),
    ("DOUBLE", "1.1", "DECIMAL(40,20)", f"1.1{0:019}", f"1.2{0:019}"),
    ("DOUBLE", "1.2345678901234568e+18", "BIGINT", "1234567890123456768", "1234567890123457000"),
    ("FLOAT", "1.100000023841858", "DECIMAL(9,1)", "1.1", "1.2"),
    ("VARCHAR(20)", "5", "INT", "5", "6"),
    ("VARCHAR(20)", "1.50", "DECIMAL(10,3)", "1.500", "1.501"),
    ("ENUM('a','b')", "a", "VARCHAR(20)", "a", "b"),
    ("VARCHAR(20)", "a", "ENUM('a','b')", "a", "b"),
    ("VARCHAR(50)", '{"b": 1,"a": [2.0]}', "JSON", '{"a": [2.0], "b": 1}', '{"a": [2.0], "b": 2}'),
    ("DATE", "2024-02-29", "DATETIME", "2024-02-29 00:00:00", "2024-02-29 00:00:01"),
    ("DATETIME(3)", "2024-02-29 12:34:56.123", "DATETIME(6)", f"{DAY} 12:34:56.123000", f"{DAY} 12:34:56.123001"),
    ("TIME", "-12:34:56", "TIME(6)", "-12:34:56.000000", "-12:34:56.000001"),
    ("TIMESTAMP", "2024-02-29 12:34:56", "TIMESTAMP(3)", "2024-02-29 12:34:56.000", "2024-02-29 12:34:56.001"),
    ("BINARY(2)", b"ab", "VARBINARY(9)", b"ab", b"ac"),
]  # fmt: skip


@for_each("name", ["json with schemas", "avro", "ticdc"])
@for_each(("old", "old_value", "new", "value", "other"), ALTERED)
def test_a_value_of_an_earlier_structure_is_compared_by_what_it_stands_for(
    name: str, old: str, old_value: Any, new: str, value: Any, other: Any
) -> None:
    before, after = (TableRecords(table_of(f"v {kind}"), FORMATS[name]) for kind in (old, new))
    assert compared(before, after, (old_value,), (value,)) == EQUAL
    assert compared(before, after, (old_value,), (other,)) == DIFFERENT
    assert compared(before, after, (None,), (None,)) == EQUAL
    assert compared(before, after, (old_value,), (None,)) == DIFFERENT


@for_each("name", ["json with schemas", "avro", "ticdc"])
@for_each(
    ("old", "old_value", "new", "value"),
    [
        ("TIMESTAMP", "2024-02-29 12:34:56", "DATETIME", "2024-02-29 12:34:56"),
        ("VARCHAR(9)", "ab", "VARBINARY(9)", b"ab"),
        ("VARCHAR(9)", "ab", "INT", "0"),
        ("TIME", "12:34:56", "INT", "123456"),
        ("VARCHAR(9)", "{", "JSON", "{}"),
        # Numbers that are as large, which the server would have written or rounded otherwise.
        ("INT", "1000", "VARCHAR(20)", "1e3"),
        ("INT", "1000", "VARCHAR(20)", "1_000"),
        ("DECIMAL(10,2)", "1.50", "VARCHAR(20)", "1.5"),
        ("FLOAT", "1000.0", "VARCHAR(20)", "01000"),
        ("DOUBLE", "1000.0", "VARCHAR(20)", "1000.0"),
        ("JSON", "1", "VARCHAR(20)", "1.0"),
        ("DOUBLE", "9007199254740992.0", "BIGINT", "9007199254740993"),
        ("DOUBLE", "1000.0", "DECIMAL(40,20)", "1000.00000000000000000001"),
    ],
)
def test_where_the_meaning_is_not_known_the_column_is_left_out(
    name: str, old: str, old_value: Any, new: str, value: Any
) -> None:
    before, after = (TableRecords(table_of(f"v {kind}"), FORMATS[name]) for kind in (old, new))
    assert compared(before, after, (old_value,), (value,)) == INCOMPARABLE
    assert INCOMPARABLE.partial and not INCOMPARABLE.columns


@for_each(
    ("properties", "old", "old_value", "new", "value", "other"),
    [
        ({"decimal.handling.mode": "string"}, "DECIMAL(10,2)", "1.50", "DECIMAL(10,4)", "1.5000", "1.5001"),
        ({"decimal.handling.mode": "double"}, "DECIMAL(10,2)", "1.50", "DECIMAL(10,4)", "1.5000", "1.5001"),
        ({"bigint.unsigned.handling.mode": "precise"}, "BIGINT", "5", "BIGINT UNSIGNED", "5", "6"),
        (
            {"time.precision.mode": "microseconds"},
            "DATE",
            "2024-02-29",
            "DATETIME",
            "2024-02-29 00:00:00",
            f"{DAY} 00:00:01",
        ),
        ({"time.precision.mode": "nanoseconds"}, "TIME", "01:00:00", "TIME(3)", "01:00:00.000", "01:00:00.001"),
        ({"time.precision.mode": "connect"}, "TIME", "01:00:00", "TIME(3)", "01:00:00.000", "01:00:00.001"),
        ({"time.precision.mode": "isostring"}, "TIME", "01:00:00", "TIME(3)", "01:00:00.000", "01:00:00.001"),
        (
            {"time.precision.mode": "isostring"},
            "DATETIME",
            "2024-02-29 00:00:00",
            "DATETIME(3)",
            "2024-02-29 00:00:00.000",
            "2024-02-29 00:00:00.001",
        ),
    ],
)
@for_each("base", [SCHEMAS, AVRO])
def test_modes(
    base: dict[str, str], properties: dict[str, str], old: str, old_value: Any, new: str, value: Any, other: Any
) -> None:
    before, after = (TableRecords(table_of(f"v {kind}"), base | properties) for kind in (old, new))
    assert compared(before, after, (old_value,), (value,)) == EQUAL
    assert compared(before, after, (old_value,), (other,)) == DIFFERENT


@for_each(
    ("mode", "kind", "value"),
    [
        ({"decimal.handling.mode": "string"}, "DECIMAL(10,2)", "1.50"),
        ({"decimal.handling.mode": "double"}, "DECIMAL(10,2)", "1.50"),
        ({"time.precision.mode": "isostring"}, "DATETIME(3)", "2024-02-29 12:34:56.123"),
        ({"time.precision.mode": "isostring"}, "DATE", "2024-02-29"),
        ({"time.precision.mode": "nanoseconds"}, "TIME(3)", "12:34:56.123"),
        ({"time.precision.mode": "connect"}, "TIME(3)", "12:34:56.123"),
        ({"converters": "b", "b.type": "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter"},
         "TINYINT(1)", "1"),
    ],
)  # fmt: skip
def test_another_mode_since_the_event(mode: dict[str, str], kind: str, value: str) -> None:
    before, after = TableRecords(table_of(f"v {kind}"), SCHEMAS), TableRecords(table_of(f"v {kind}"), SCHEMAS | mode)
    assert compared(before, after, (value,), (value,)) == EQUAL
    assert compared(after, before, (value,), (value,)) == EQUAL


@for_each("name", FORMATS)
def test_columns_that_the_event_lacks_or_the_table_has_no_longer(name: str) -> None:
    old = TableRecords(table_of("a INT", "b INT"), FORMATS[name])
    new = TableRecords(table_of("b INT", "c INT", "d INT"), FORMATS[name])
    assert compared(old, new, ("1", "2"), ("2", "3", None)) == RowDifference(("c", "d"))
    assert compared(old, new, ("1", "2"), ("5", "3", None)) == RowDifference(("b", "c", "d"))
    dropped = TableRecords(table_of("b INT"), FORMATS[name])
    assert compared(old, dropped, ("1", "2"), ("2",)) == EQUAL


def judged(
    old: str, new: str, event: tuple[Any, ...], row: tuple[Any, ...], *, failover: bool = False
) -> RowDifference:
    """Compare a row with the event before an ALTER TABLE, both without schemas, as the schema history tells them."""
    before, after = (TableRecords(table_of(*of.split(", ")), PLAIN) for of in (old, new))
    at = [BinlogOffset("binlog.000007", pos, None, f"{n}" * 8) for n, pos in ((1, 4), (1 + failover, 5000))]
    history = (StructureVersion(at[0], before.table), StructureVersion(at[1], after.table))
    versions = TableVersions(history if old != new else history[:1], one_binlog=not failover)
    written = WrittenStructures(after.cfg, after.table, versions)
    record = written.with_added_columns(written.complete(read(before, "1", *event)))
    columns = compared_columns(after.cfg, after.table)
    carrier, same = FormCarrier(columns), CarriedRowComparison({0: columns})
    assert record.after is not None
    event_row = stored_row(row_bytes(carrier.row_with_forms(record.after, record.forms)))
    return same(0, read(after, "1", *row).after or {}, event_row)


@for_each(
    ("old", "new", "event", "row"),
    [
        ("v DATETIME(3)", "v DATETIME(6)", (f"{DAY} 00:00:01.000",), (f"{DAY} 00:00:01.000000",)),
        ("v DECIMAL(10,2)", "v DECIMAL(10,3)", ("1.50",), ("1.500",)),
        ("v BIT(9)", "v BIT(20)", (b"\x01\x02",), (b"\x00\x01\x02",)),
        ("v INT", "v BIGINT", ("7",), ("7",)),
        ("v TEXT", "v INT", ("7",), ("7",)),
    ],
)
@for_each("failover", [False, True])
def test_without_schemas_the_history_says_how_a_value_was_written(
    old: str, new: str, event: Any, row: Any, failover: bool
) -> None:
    found = judged(old, new, event, row, failover=failover)
    # Where it is not known under which of two structures, a value that is equal under one alone is not judged.
    assert found in ((EQUAL, INCOMPARABLE) if failover else (EQUAL,))
    assert judged(new, new, row, row) == EQUAL


@for_each("failover", [False, True])
@for_each(
    ("old", "new", "event", "row"),
    [
        ("v DATETIME(3)", "v DATETIME(3)", ("1970-01-01 00:00:01.000",), ("1970-01-01 00:16:40.000",)),
        ("v TIME(6)", "v TIME(6)", ("00:00:01",), ("00:16:40",)),
        ("v TIME(6)", "v TIME(6)", ("00:00:00.000005",), ("00:00:05",)),
        ("v TIME(6)", "v TIME(6), w INT", ("00:00:01",), ("00:16:40", None)),
        ("v DECIMAL(10,2)", "v DECIMAL(10,2), w INT", ("1.50",), ("15.00", None)),
        ("v DECIMAL(10,2)", "v DECIMAL(10,3), w INT", ("1.50",), ("0.150", None)),
        ("v DATETIME(3)", "v DATETIME(6)", (f"{DAY} 00:00:01.000",), (f"{DAY} 00:00:01.000001",)),
        ("v INT", "v BIGINT", ("7",), ("8",)),
        ("v INT", "v BIGINT, w INT", ("7",), ("7000", None)),
    ],
)
def test_without_an_alter_of_its_column_a_value_in_other_units_differs(
    old: str, new: str, event: Any, row: Any, failover: bool
) -> None:
    found = judged(old, new, event, row, failover=failover)
    same_text = failover and row == ("0.150", None)  # under the structure of now it is equal
    assert (found.columns, found.incomparable) == (((), ("v",)) if same_text else (("v",), ()))


def test_null_is_that_of_a_form_that_cannot_hold_the_value() -> None:
    connect, micro = (ValueForm("int32", "org.apache.kafka.connect.data.Time"), ValueForm("int64", MICRO_TIME))
    columns = ComparedColumns({"v": micro}, {"v": micro})
    for micros, expected in ((-1, UNKNOWN), (86_400_000_001, UNKNOWN), (86_400_000_000, DIFFERENT), (5, DIFFERENT)):
        assert compare_rows({"v": micros}, {"v": None}, columns, None, {"v": connect}) == expected, micros


def test_a_value_that_cannot_be_read_as_its_schema_says_differs_where_its_column_was_not_altered() -> None:
    number = ValueForm("bytes", DECIMAL, 2)
    columns, text = ComparedColumns({"v": number}, {"v": number}), ValueForm("string")
    assert compare_rows({"v": "AJY="}, {"v": "x"}, columns, None, {"v": text}) == INCOMPARABLE
    assert compare_rows({"v": "AJY="}, {"v": "x"}, columns, None, {"v": text._replace(altered=False)}) == DIFFERENT


ISO = {"time.precision.mode": "isostring"}
NUMBERS_AS_TEXT = {"decimal.handling.mode": "string"}
ORIGIN = b"\0\0\0\0\x01\x01\0\0\0" + bytes(16)


@for_each("base", [PLAIN, SCHEMAS])
@for_each(
    ("properties", "kind", "stored", "foreign"),
    [
        ({}, "DECIMAL(10,2)", "1.50", [1.5, "1.50"]),
        ({"bigint.unsigned.handling.mode": "precise"}, "BIGINT UNSIGNED", "7", [7]),
        (NUMBERS_AS_TEXT, "DECIMAL(10,0)", "7", [7, 7.0, " 7", "+7", "7\n"]),
        ({}, "TIMESTAMP", f"{DAY} 12:34:56", [f"{DAY}T12:34:56", f"{DAY} 12:34:56Z", f"{DAY}T14:34:56+02:00"]),
        (ISO, "DATETIME", f"{DAY} 12:34:56", [f"{DAY}T12:34:56", f"{DAY} 12:34:56Z", f"{DAY}T12:34:56ZZ"]),
        (ISO, "DATE", DAY, [DAY, f"{DAY}+00:00"]),
        (ISO, "TIME(3)", "12:34:56.789", ["12:34:56.789", " 12:34:56.789Z", "012:34:56.789Z", "12:33:116.789Z"]),
        ({}, "VECTOR(2)", b"\0\0\x80\x3f\0\0\0\x40", ["[1.0, 2.0]", ["1.0", "2.0"]]),
        ({}, "POINT", ORIGIN, [{"x": 1.0}, {"y": 1.0}, {"y": None}]),
    ],
)
def test_what_consumers_cannot_read_as_its_form_differs(
    base: dict[str, str], properties: dict[str, str], kind: str, stored: Any, foreign: list[Any]
) -> None:
    """It stands for the same, but the stream never writes it, and no ALTER explains it."""
    records = TableRecords(table_of(f"v {kind}"), base | properties)
    row, columns = read(records, "1", stored).after or {}, compared_columns(records.cfg, records.table)
    assert compare_rows(row, row, columns) == EQUAL
    for value in foreign:
        other = row["v"] | value if isinstance(value, dict) else value
        assert compare_rows(row, row | {"v": other}, columns) == DIFFERENT, value


def test_the_order_of_columns_does_not_matter_and_documents_are_compared_by_value() -> None:
    records = TableRecords(table_of("v JSON", "w INT"), SCHEMAS)
    columns = compared_columns(records.cfg, records.table)
    row = {"id": 1, "v": '{"a":1,"bb":[true,null]}', "w": 2}
    assert compare_rows(row | {"v": '"{}"'}, row | {"v": "{}"}, columns) == DIFFERENT
    for document in ('{"bb": [true, null], "a": 1}', '{"a":1,"bb":[true,null]}'):
        assert compare_rows(row, {"w": 2, "v": document, "id": 1}, columns) == EQUAL
    others = (
        '{"a":1,"bb":[null,true]}',
        '{"a":1,"bb":[1,null]}',
        '{"a":true,"bb":[true,null]}',
        '{"a":"1","bb":[true,null]}',
    )
    for document in (*others, '{"a":1.0,"bb":[true,null]}', "null", "{"):
        assert compare_rows(row, {"w": 2, "v": document, "id": 1}, columns) == DIFFERENT


TEXT = "__debezium_unavailable_value"


@pytest.mark.req("CFG-22")
@for_each(
    ("properties", "kind", "value", "placeholder"),
    [
        ({}, "VARCHAR(50)", "a", TEXT),
        ({}, "JSON", "{}", TEXT),
        ({}, "ENUM('a')", "a", TEXT),
        ({}, "SET('a')", "a", TEXT),
        ({}, "VARBINARY(50)", b"a", b64encode(TEXT.encode()).decode()),
        ({"binary.handling.mode": "hex"}, "BLOB", b"a", TEXT.encode().hex()),
        ({"binary.handling.mode": "base64"}, "BLOB", b"a", b64encode(TEXT.encode()).decode()),
        ({"unavailable.value.placeholder": "??>"}, "TEXT", "a", "??>"),
        ({"unavailable.value.placeholder": "??>", "binary.handling.mode": "base64-url-safe"}, "BLOB", b"a", "Pz8-"),
        ({"unavailable.value.placeholder": "hex:ff00"}, "BLOB", b"a", "/wA="),
    ],
)
def test_a_placeholder_is_no_value(properties: dict[str, str], kind: str, value: Any, placeholder: str) -> None:
    records = TableRecords(table_of(f"v {kind}"), SCHEMAS | properties)
    columns = compared_columns(records.cfg, records.table)
    row = read(records, "1", value).after
    assert row is not None
    assert compare_rows(row, row | {"v": placeholder}, columns) == UNKNOWN
    assert compare_rows(row | {"v": None}, row | {"v": placeholder}, columns) == UNKNOWN
    assert compare_rows(row | {"v": placeholder}, row | {"v": placeholder}, columns) == EQUAL
    assert compare_rows(row, row | {"v": placeholder + "."}, columns) == DIFFERENT


@for_each("value", [[TEXT], [TEXT, TEXT], {"a": TEXT}, {"a": [TEXT]}])
def test_a_placeholder_in_arrays_and_maps(value: Any) -> None:
    texts = frozenset({TEXT})
    assert is_placeholder(value, texts)
    assert not any(is_placeholder(other, texts) for other in ([], {}, [TEXT, "a"], {"a": TEXT, "b": 1}, 7, None))


def test_null_may_stand_for_an_unknown_value() -> None:
    create = table_of("v INT", "s VARCHAR(9)", "n INT NOT NULL")
    row, event = {"id": 1, "v": 5, "s": "a", "n": 1}, {"id": 1, "v": None, "s": None, "n": None}
    for properties, expected in (
        ({}, RowDifference(("v", "s", "n"))),
        ({"unavailable.value.as.null": "true"}, RowDifference(("s", "n"), unknown=("v",))),
    ):
        records = TableRecords(create, SCHEMAS | properties)
        columns = compared_columns(records.cfg, records.table)
        assert compare_rows(row, event, columns) == expected
        assert compare_rows(row | {"v": None}, row, columns) == RowDifference(("v",))


def test_a_value_that_another_form_could_not_hold() -> None:
    connect, micro = (
        TableRecords(table_of("v TIME"), SCHEMAS | mode) for mode in ({"time.precision.mode": "connect"}, {})
    )
    assert compared(connect, micro, ("800:00:00",), ("800:00:00",)) == UNKNOWN
    assert compared(micro, connect, ("800:00:00",), ("800:00:00",)) == UNKNOWN
    assert compared(connect, connect, ("800:00:00",), ("801:00:00",)) == EQUAL
    assert compared(connect, connect, ("800:00:00",), ("01:00:00",)) == DIFFERENT


@pytest.mark.parametrize("name", ["json with schemas", "avro"])
def test_places_and_vectors(name: str) -> None:
    create, other = table_of("v POINT", "w VECTOR(2)"), table_of("v GEOMETRY", "w VECTOR(2)")
    place = bytes.fromhex("00000000" + "0101000000" + "000000000000f03f" + "0000000000000040")
    moved, vector = place[:-1] + b"\x41", bytes.fromhex("0000803fcdcccc3d")
    old, new = TableRecords(create, FORMATS[name]), TableRecords(other, FORMATS[name])
    assert compared(old, new, (place, vector), (place, vector)) == EQUAL
    assert compared(old, new, (place, vector), (moved, vector[:-1] + b"\x3e")) == RowDifference(("v", "w"))


def test_a_digest_of_a_long_value_stands_for_itself_alone() -> None:
    records = TableRecords(table_of("v JSON"), SCHEMAS)
    columns = compared_columns(records.cfg, records.table)
    row, event = ({"id": 1, "v": f"blake2b:{mark * 32}:2000"} for mark in "ab")
    assert compare_rows(row, row, columns) == EQUAL
    assert compare_rows(row, event, columns) == DIFFERENT
    text = replace(columns, forms={**columns.forms, "v": ValueForm("string")})
    assert compare_rows(row, event, columns, columns.forms, text.forms) == INCOMPARABLE


@for_each(
    "form",
    [
        ValueForm("bytes", "org.apache.kafka.connect.data.Decimal", 2),
        ValueForm("bytes"),
        ValueForm("string", "io.debezium.data.Json"),
        ValueForm("string", "io.debezium.time.ZonedTimestamp"),
        ValueForm("string", "io.debezium.time.IsoTime"),
        ValueForm("struct", "io.debezium.data.geometry.Point"),
        ValueForm("array", "io.debezium.data.FloatVector"),
        ValueForm("int64", "io.debezium.time.MicroTimestamp"),
        ValueForm("int32"),
        ValueForm("float"),
        ValueForm("string", "com.example.Own"),
        ValueForm("map"),
        ValueForm("tidb", "BIT"),
        ValueForm("tidb", "NEW"),
    ],
)
def test_a_value_that_its_form_cannot_have_means_nothing(form: ValueForm) -> None:
    for value in ("?", "", [[]], {"a": 1}, "NaN", "\ud800", "[" * 100_000, 10**400):
        found = meaning(value, form)
        assert found is None or json.dumps(str(found))


@for_each("kind", Kind)
def test_meanings_of_different_kinds(kind: Kind) -> None:
    value = {Kind.DOUBLE: 1, Kind.SINGLE: 1, Kind.EXACT: 1}.get(kind, b"x")
    for other in Kind:
        a = meaning(1, ValueForm("int32"))
        assert a is not None
        mine, theirs = a._replace(kind=kind, value=value), a._replace(kind=other, value="no number")
        if kind is not other and Kind.TEXT in (kind, other):
            assert equal_meanings(mine, theirs) is None


def test_equal_bytes_of_different_forms_are_different_values() -> None:
    hundredth, thousandth = ({"v": ValueForm("bytes", DECIMAL, scale)} for scale in (2, 3))
    columns = ComparedColumns(thousandth, thousandth)
    assert compare_rows({"v": "AQ=="}, {"v": "AQ=="}, columns, thousandth, hundredth) == DIFFERENT
    assert compare_rows({"v": "Cg=="}, {"v": "AQ=="}, columns, thousandth, hundredth) == EQUAL


@for_each(
    ("column", "value", "event_value"),
    [
        ("v INT", 14, "14"),
        ("v BIT(1)", True, 1),
        ("v DOUBLE", 1.5, "1.5"),
        ("v YEAR", 2020, "2020"),
        ("v TIME(6)", 5, "5"),
    ],
)
def test_a_value_in_another_encoding_is_different(column: str, value: Any, event_value: Any) -> None:
    for properties in (PLAIN, SCHEMAS):
        records = TableRecords(table_of(column), properties)
        columns = compared_columns(records.cfg, records.table)
        assert compare_rows({"id": 1, "v": value}, {"id": 1, "v": event_value}, columns) == DIFFERENT


@pytest.mark.parametrize("properties", [PLAIN, SCHEMAS])
def test_the_sign_of_zero_and_the_kind_of_a_number_count(properties: dict[str, str]) -> None:
    records = TableRecords(table_of("d DOUBLE", "f FLOAT", "n INT"), properties)
    columns = compared_columns(records.cfg, records.table)
    row = {"id": 1, "d": 0.0, "f": 1.0, "n": 1}
    assert compare_rows(row, row | {"d": 0, "f": 1}, columns) == EQUAL
    assert compare_rows(row, row | {"d": -0.0}, columns).columns == ("d",)
    assert compare_rows(row, row | {"n": 1.0}, columns).columns == ("n",)
    widened = ValueForm("double"), ValueForm("float")
    told = (meaning(-0.0, form) for form in widened)
    assert [equal_meanings(Meaning(Kind.DOUBLE, Decimal(0)), each) for each in told if each is not None] == [False] * 2


@for_each(("value", "default"), [("7", "DEFAULT 7"), ("8", "DEFAULT 7"), (None, "DEFAULT 7"), (None, ""), ("7", "")])
def test_a_history_that_was_recorded_anew_does_not_say_what_a_column_was_filled_with(
    value: str | None, default: str
) -> None:
    before, after = (TableRecords(table_of(*more), PLAIN) for more in (("v INT",), ("v INT", f"w INT {default}")))
    again = StructureVersion(BinlogOffset("binlog.000007", 5000, None, "1" * 8), after.table)
    written = WrittenStructures(after.cfg, after.table, TableVersions((again,)))
    event = read(before, "1", "5")
    event = replace(event, source={**event.source, "file": "binlog.000007", "pos": 400})
    columns = compared_columns(after.cfg, after.table)
    record = written.with_added_columns(written.complete(event))
    assert record.after is not None
    event_row = stored_row(row_bytes(FormCarrier(columns).row_with_forms(record.after, record.forms)))
    row = read(after, "1", "5", value).after or {}
    assert CarriedRowComparison({0: columns})(0, row, event_row) == RowDifference(incomparable=("w",))
