"""Damaged records of topics: a verification reads each as an event or says why it cannot, in no time."""

from __future__ import annotations

import json
import struct
from functools import cache

import orjson
import pytest
from binlog_corpus import changed
from hypothesis import example, given
from hypothesis import strategies as st
from kit.avro_rig import avro
from kit.fuzzing import within_time
from kit.table_records import TICDC, Record, TableRecords

from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventReader, EventRecord, UnreadableRecord

pytestmark = pytest.mark.quick
REGISTRY = "http://registry:1"
CREATE = (
    "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), data VARBINARY(20), "
    "at DATETIME(6), doc JSON, flag BIT(9){more})"
)
VALUES = ("5", "Ünï", "1.50", b"\x00\xff", "2024-02-29 12:34:56.123456", '{"a": [1, 2.5]}', b"\x01\x02")
PLACE = struct.pack("<IBIdd", 0, 1, 1, 1.0, 2.0)
DEBEZIUM = ", p POINT, v VECTOR(2)"
FORMATS: dict[str, tuple[dict[str, str], str, tuple[bytes, ...]]] = {
    "json with schemas": (
        {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
        DEBEZIUM,
        (PLACE, b"\x00\x00\x80\x3f" * 2),
    ),
    "json": (
        {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
        DEBEZIUM,
        (PLACE, b"\x00\x00\x80\x3f" * 2),
    ),
    "avro": (avro(REGISTRY), DEBEZIUM, (PLACE, b"\x00\x00\x80\x3f" * 2)),
    "ticdc": (TICDC | {"enable-tidb-extension": "true"}, "", ()),
}


@cache
def sound(name: str) -> tuple[EventReader, tuple[Record, ...], frozenset[str]]:
    properties, more, values = FORMATS[name]
    records = TableRecords(CREATE.format(more=more), properties)
    written = (records.row(*VALUES, *values), records.row("6", *[None] * (6 + len(values))))
    return event_reader(records.cfg, records.topic, records.schemas.lookup), written, frozenset(records.schemas.texts)


def read(reader: EventReader, key: bytes | None, value: bytes | None) -> EventRecord | None:
    """Read a record; return None when it says why it cannot."""
    with within_time():
        try:
            found = reader.read(key, value)
        except UnreadableRecord as error:
            assert len(str(error)) > 10
            return None
    assert found.op in ("", "c", "u", "d", "r", "t")
    assert found.key is None or isinstance(found.key, dict)
    for row in (found.before, found.after, found.source):
        assert row is None or isinstance(row, dict)
        json.dumps(row)
    return found


@given(st.sampled_from(tuple(FORMATS)), st.integers(0, 1), st.data())
def test_damaged_records(name: str, number: int, data: st.DataObject) -> None:
    reader, written, _ = sound(name)
    key, value, _ = written[number]
    assert read(reader, key, value) is not None
    part = data.draw(st.sampled_from(("key", "value")))
    if part == "key":
        read(reader, data.draw(changed(key or b"")), value)
    else:
        read(reader, key, data.draw(changed(value or b"")))


@given(st.sampled_from(tuple(FORMATS)), st.binary(max_size=60), st.binary(max_size=60))
@example("json", b"[" * 200_000, b'{"a":' * 200_000)
@example("json with schemas", b'{"schema":', b'{"schema":,"payload":}')
def test_any_bytes(name: str, key: bytes, value: bytes) -> None:
    reader, written, ids = sound(name)
    read(reader, key, value)
    for schema_id in ids:
        read(reader, written[0][0], b"\0" + int(schema_id).to_bytes(4, "big") + value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_MEMBERS = ("op", "before", "after", "source", "ts_ms", "schema", "payload", "fields", "type", "field", "parameters")


@given(st.dictionaries(st.sampled_from(_MEMBERS), _JSON, max_size=6), _JSON, st.sampled_from(("c", "u", "d", "r", "t")))
def test_any_json(members: dict[str, object], schema: object, op: str) -> None:
    for document in (members, members | {"op": op}, {"schema": schema, "payload": members | {"op": op}}):
        try:
            text = orjson.dumps(document)
        except TypeError:
            text = json.dumps(document).encode()
        for name in ("json", "json with schemas"):
            read(sound(name)[0], text, text)
