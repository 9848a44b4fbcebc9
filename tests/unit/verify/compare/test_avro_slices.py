"""Which events in Avro need not be read."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import SOURCE, TableRecords

from airflow_provider_mysql_cdc.cdc.verify.compare.avro_slices import AvroKeys, AvroSlices, avro_slices
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import compared_table

pytestmark = pytest.mark.quick
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n INT)"
ROW, OTHER = {"id": 1, "n": 5}, {"id": 1, "n": None}


def slices_of(records: TableRecords) -> AvroSlices:
    assert records.formats is not None
    found = avro_slices(records.cfg, compared_table(records.cfg, 0, records.table), records.formats)
    assert found is not None
    return found


def event(records: TableRecords, op: str, before: Any, after: Any, **source: Any) -> bytes:
    value = records.event({"id": 1}, op=op, before=before, after=after, source=SOURCE | source, transaction=None)[1]
    assert value is not None
    return value


def test_other_records_are_read() -> None:
    records = TableRecords(TABLE, avro("http://registry:1"))
    slices = slices_of(records)
    sound = event(records, "c", None, ROW)
    assert slices.row_after(sound) is not None
    for other in (
        b"",
        sound + b"\0",
        sound[:-1],
        b"\0\0\0\0\x63" + sound[5:],
        event(records, "c", None, ROW, table="u"),
        event(records, "c", None, ROW, db="other"),
        event(records, "c", ROW, ROW),
        event(records, "r", ROW, ROW),
        event(records, "d", ROW, OTHER),
        event(records, "u", ROW, None),
        event(records, "u", None, None),
        event(records, "t", None, None),
        event(records, "x", None, ROW),
    ):
        assert slices.row_after(other) is None
    for op, before, after in (("r", None, ROW), ("u", OTHER, ROW), ("u", None, ROW), ("d", ROW, None)):
        found = slices.row_after(event(records, op, before, after))
        assert found is not None and bool(found) is (after is not None)


def test_keys_with_another_schema_are_read() -> None:
    records = TableRecords(TABLE, avro("http://registry:1"))
    keys = slices_of(records)
    key = records.row("-300", "5")[0]
    assert key is not None and keys.fields_of(key) == b'{"id":-300}'
    for other in (b"", key[:-1], key + b"\0", b"\0\0\0\0\x63" + key[5:], key[:5] + b"\xff" * 9 + b"\x7f"):
        assert keys.fields_of(other) is None


@for_each(
    ("column", "value", "change"),
    [
        ("INT", "1", (b"\x02", b"\x82\x00")),
        ("BIGINT", "300", (b"\xd8\x04", b"\xd8\x84\x80\x00")),
        ("VARCHAR(9)", "ab", (b"\x04ab", b"\x84\x00ab")),
        ("VARBINARY(9)", "ab", (b"\x04ab", b"\x84\x00ab")),
        ("DECIMAL(9,2)", "1.00", (b"\x02d", b"\x82\x00d")),
        ("DATE", "1970-01-02", (b"\x02", b"\x82\x00")),
        ("DATETIME", "1970-01-01 00:00:01", (b"\xd0\x0f", b"\xd0\x8f\x00")),
        ("TINYINT(1)", "1", (b"\x02", b"\x82\x00")),
        ("ENUM('a','b')", "b", (b"\x02b", b"\x82\x00b")),
        ("BIT(9)", b"\x01\x02", (b"\x04\x02\x01", b"\x84\x00\x02\x01")),
        ("DOUBLE", "0.5", None),
    ],
)
def test_keys_whose_values_other_bytes_have_are_read(
    column: str, value: str | bytes, change: tuple[bytes, bytes] | None
) -> None:
    """A delete under other bytes of a key comes in another order, perhaps: checksums tell keys by their bytes."""
    records = TableRecords(f"CREATE TABLE t (id {column} PRIMARY KEY, n INT)", avro("http://registry:1"))
    keys = slices_of(records)
    key = records.row(value, "5")[0]
    assert key is not None and keys.fields_of(key) is not None
    if change is not None:
        assert key[5:] == change[0]
        assert keys.fields_of(key[:5] + change[1]) is None


def test_rows_may_have_texts_that_look_like_what_follows_rows_of_an_earlier_version() -> None:
    records = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, n VARCHAR(200))", avro("http://registry:1"))
    slices = slices_of(records)
    old = event(records, "c", None, {"id": 1, "n": ""}, version="3.5.0")
    text = old[old.index(b"\x0a3.5.0") :][:14].decode()
    row = {"id": 1, "n": text}
    value = records.row("1", text)[1]
    assert value is not None and text.encode() in value
    expected = slices.row_of(value)
    assert expected is not None and expected.endswith(text.encode())
    slices = slices_of(records)
    assert slices.row_after(old) is not None, "how events of the earlier version go on is known, and of no other"
    assert slices.row_of(value) == expected
    assert slices.row_after(event(records, "c", None, {"id": 1, "n": "x"})) is not None
    found = slices.row_after(event(records, "c", None, row))
    assert found == expected


@pytest.mark.parametrize("part", ["key", "value"])
def test_tables_of_which_one_part_is_no_avro_are_read(part: str) -> None:
    records = TableRecords(TABLE, avro("http://registry:1", part))
    assert records.formats is not None
    assert avro_slices(records.cfg, compared_table(records.cfg, 0, records.table), records.formats) is None


def test_what_is_no_schema_of_an_envelope_is_refused() -> None:
    records = TableRecords(TABLE, avro("http://registry:1"))
    slices_of(records)
    text = next(text for text in records.schemas.texts.values() if "before" in text)
    schema = json.loads(text)
    for wrong in (
        schema | {"fields": schema["fields"][1:]},
        schema | {"fields": [schema["fields"][0], schema["fields"][1], schema["fields"][3]]},
    ):
        with pytest.raises((ValueError, KeyError)):
            AvroSlices(records.table.id, Mock(AvroKeys), b"m", wrong)
