"""Damaged records: what checksums take for a table's row without reading the record is what reading it would say."""

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
from kit.table_records import SOURCE, TableRecords

from airflow_provider_mysql_cdc.cdc.verify.checksum_reader import record_slices
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import RecordSlices
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventReader
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import RowIdentity, compared_table

pytestmark = pytest.mark.quick
TABLE = (
    "CREATE TABLE t (id INT NOT NULL, k VARCHAR(9) NOT NULL, name VARCHAR(9), doc JSON, "
    "data VARBINARY(9) NOT NULL, d DOUBLE NOT NULL, PRIMARY KEY ({key}))"
)
ROW = {"id": 1, "k": "ä", "name": 'Ü\n"x"', "doc": '{"a":1}', "data": "AP8=", "d": 0.5}
OTHER = {"id": 1, "k": "ä", "name": None, "doc": "[]", "data": "AP8=", "d": 0.5}
EVENTS: tuple[tuple[str, Any, Any], ...] = (("c", None, ROW), ("u", OTHER, ROW), ("r", None, OTHER), ("d", ROW, None))
OLD = {"event.contract": "1.9"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
FORMATS = {
    "json with schemas": SCHEMAS,
    "json": PLAIN,
    "json, contract 1.9": PLAIN | OLD,
    "json with schemas, contract 1.9": SCHEMAS | OLD,
    "avro": avro("http://registry:1"),
    "avro, contract 1.9": avro("http://registry:1") | OLD,
}


@dataclass(frozen=True)
class Written:
    """Records of a table, and what reads them."""

    slices: RecordSlices
    reader: EventReader
    identity: RowIdentity
    records: tuple[tuple[bytes, bytes], ...]


@cache
def written(name: str, key: str) -> Written:
    records = TableRecords(TABLE.format(key=key), FORMATS[name])
    compared = compared_table(records.cfg, 0, records.table)
    found = [
        records.event({n: (after or before)[n] for n in key.split(",")}, op=op, before=before, after=after,
                      source=SOURCE, transaction=None, ts_us=1, ts_ns=1)[:2]
        for op, before, after in EVENTS
    ]  # fmt: skip
    if "json" in name:
        # The members as the stream writes them; an event above has those that the test gives.
        row = records.row("1", "ä", 'Ü\n"x"', '{"a":1}', b"\x00\xff", "0.5")[1] or b""
        head, tail = row[: row.index(b'{"before":null,"after":')], row[row.index(b',"source":{') :]
        found = [(key, _event(head, event, tail)) for event, (key, _) in zip(EVENTS, found, strict=True)]
    slices = record_slices(records.cfg, compared, records.formats)
    assert slices is not None
    reader = event_reader(records.cfg, records.topic, records.schemas.lookup)
    return Written(slices, reader, compared.identity, tuple((k or b"", v or b"") for k, v in found))


def _event(head: bytes, event: tuple[str, Any, Any], tail: bytes) -> bytes:
    op, before, after = event
    rows = b'{"before":%s,"after":%s' % (orjson.dumps(before), orjson.dumps(after))
    return head + rows + tail.replace(b'"op":"r"', b'"op":"%s"' % op.encode())


@for_each("name", FORMATS)
@for_each("key", ["id", "k", "id,k", "data", "d"])
def test_sound_records_need_not_be_read(name: str, key: str) -> None:
    records = written(name, key)
    for key_bytes, value in records.records:
        assert records.slices.row_after(value) is not None, value
        if key != "d":
            assert records.slices.fields_of(key_bytes) is not None


@given(st.sampled_from(tuple(FORMATS)), st.integers(0, 3), st.data())
def test_an_event_that_is_not_read_could_be(name: str, number: int, data: st.DataObject) -> None:
    records = written(name, "id")
    key, sound = records.records[number]
    expected = records.slices.row_after(sound)
    value = data.draw(changed(sound))
    after = records.slices.row_after(value)
    if after is None or after != expected:
        return
    event = records.reader.read(key, value)
    assert event.op in ("c", "r", "u", "d") and (event.source["db"], event.source["table"]) == ("shop", "t")
    assert event.after == records.reader.read(key, sound).after


@given(st.sampled_from(tuple(FORMATS)), st.sampled_from(("id", "k", "id,k", "data", "d")), st.data())
def test_a_key_that_is_not_read_has_the_bytes_of_no_other(name: str, key: str, data: st.DataObject) -> None:
    records = written(name, key)
    sound, value = records.records[0]
    key_bytes = data.draw(changed(sound))
    fields = records.slices.fields_of(key_bytes)
    if fields is not None:
        records.reader.read(key_bytes, value)
        assert key_bytes == sound or fields != records.slices.fields_of(sound)
