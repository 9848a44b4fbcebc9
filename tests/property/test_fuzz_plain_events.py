"""Damaged events: what is taken out of one as bytes is what reading it says, or else it is left to be read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
import pytest
from binlog_corpus import changed
from hypothesis import given
from hypothesis import strategies as st
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import SOURCE, TICDC, TableRecords

from airflow_provider_mysql_cdc.cdc.verify.carried_rows import CarriedRows, DamagedRow, carried_row_schema
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable, compared_table
from airflow_provider_mysql_cdc.cdc.verify.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.plain_entries import Keys, Slices, plain_parts
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes

pytestmark = pytest.mark.quick
TABLE = (
    "CREATE TABLE t (id INT NOT NULL, k VARCHAR(9) NOT NULL, name VARCHAR(9), doc JSON, "
    "data VARBINARY(9), d DOUBLE, PRIMARY KEY ({key}))"
)
ROW = {"id": 1, "k": "ä", "name": 'Ü\n"x"', "doc": '{"a":1}', "data": "AP8=", "d": 0.5}
OTHER = {"id": -70_000, "k": "", "name": None, "doc": "[]", "data": None, "d": None}
EVENTS: tuple[tuple[str, Any, Any], ...] = (("c", None, ROW), ("u", OTHER, ROW), ("r", None, OTHER), ("d", ROW, None))
SOURCES: tuple[dict[str, Any], ...] = ({}, {"query": 'x "y"', "gtid": "1-2:3"})
FORMATS = {
    "json with schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    "json": {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
    "avro": avro("http://registry:1"),
    "ticdc": TICDC,
    "ticdc with extension": TICDC | {"enable-tidb-extension": "true"},
}


@dataclass(frozen=True)
class Written:
    """Records of a table, and what reads them."""

    compared: ComparedTable
    reader: EventReader
    keys: Keys
    slices: Slices
    rows: CarriedRows
    records: tuple[tuple[bytes, bytes], ...]


@cache
def written(name: str, key: str) -> Written:
    records = TableRecords(TABLE.format(key=key), FORMATS[name])
    compared = compared_table(records.cfg, 0, records.table)
    if name.startswith("ticdc"):
        rows = ("1", "ä", "Ü", '{"a":1}', b"\x00\xff", "0.5"), ("-70000", "", None, "[]", None, None)
        found = [records.row(*row)[:2] for row in rows]
    else:
        found = [
            records.event({n: (after or before)[n] for n in key.split(",")}, op=op, before=before, after=after,
                          source=SOURCE | source, transaction=None)[:2]
            for op, before, after in EVENTS
            for source in SOURCES
        ]  # fmt: skip
    parts = plain_parts(records.cfg, compared, records.formats)
    assert parts is not None
    reader = event_reader(records.cfg, records.topic, records.schemas.lookup)
    pairs = tuple((k, v) for k, v in found if k is not None and v is not None)
    for _, value in pairs:
        parts[1].learn(value)
    schema = carried_row_schema(records.cfg, records.table)
    return Written(compared, reader, *parts, CarriedRows({0: schema}), pairs)


def canonical(records: Written, after: bytes) -> bytes | None:
    try:
        text = records.rows.canonical(0, after)
        return row_bytes(orjson.loads(text))
    except (DamagedRow, orjson.JSONDecodeError):
        return None


@for_each("name", FORMATS)
@for_each("key", ["id", "k", "id,k"])
def test_sound_records_need_not_be_read(name: str, key: str) -> None:
    records = written(name, key)
    for key_bytes, value in records.records:
        event = records.reader.read(key_bytes, value)
        found = records.slices.slice(value)
        assert found is not None
        assert found[1] == records.compared.order_of(event.source)
        if event.after is not None:
            assert canonical(records, found[0]) == row_bytes(event.after)
        if event.op in ("c", "r"):
            assert records.slices.of_row(value) == found[0]
        assert records.keys.identity_of(key_bytes) == row_bytes(event.key or {})


@pytest.mark.parametrize("name", ["avro"])
def test_a_row_may_have_a_text_that_looks_like_what_follows_it(name: str) -> None:
    records = TableRecords(TABLE.format(key="id"), FORMATS[name])
    slices = written(name, "id").slices
    _, sound = written(name, "id").records[0]
    assert slices.slice(sound) is not None, "how a source block begins is known"
    begin = sound.index(b"\x163.6.1.Final")
    text = sound[begin : begin + 40].decode("ascii", "replace")
    row = ROW | {"name": text}
    _, value, _ = records.event({"id": 1}, op="c", before=None, after=row, source=SOURCE, transaction=None)
    assert value is not None and value.count(sound[begin : begin + 20]) == 2
    found = slices.slice(value)
    assert found is not None and canonical(written(name, "id"), found[0]) == row_bytes(row)
    assert slices.of_row(value) == found[0]


@given(st.sampled_from(tuple(FORMATS)), st.integers(0, 7), st.data())
def test_what_is_not_read_is_what_reading_would_say(name: str, number: int, data: st.DataObject) -> None:
    records = written(name, "id")
    key, value = records.records[number % len(records.records)]
    value = data.draw(changed(value))
    found = records.slices.slice(value)
    if found is None:
        return
    after = canonical(records, found[0]) if found[0] else None
    try:
        event = records.reader.read(key, value)
    except UnreadableRecord:
        # Its row equals none of the table's, byte by byte, and is read where it is compared.
        assert found[0] and after is None
        return
    assert found[1] == records.compared.order_of(event.source)
    assert (event.after is None) is (not found[0])
    assert event.op in ("c", "r", "u", "d") and event.source.get("table", "t") == "t"
    assert event.after is None or after in (None, row_bytes(event.after))


@given(st.sampled_from(tuple(FORMATS)), st.sampled_from(("id", "k", "id,k")), st.data())
def test_a_damaged_key_names_the_row_that_reading_it_names(name: str, key: str, data: st.DataObject) -> None:
    records = written(name, key)
    key_bytes, value = records.records[0]
    key_bytes = data.draw(changed(key_bytes))
    identity = records.keys.identity_of(key_bytes)
    if identity is not None:
        event = records.reader.read(key_bytes, value)
        assert records.compared.identity.record_key(event) == identity
