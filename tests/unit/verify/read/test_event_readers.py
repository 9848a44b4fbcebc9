"""Records of rows and of events, in every format, as a verification reads them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import SOURCE, TICDC, SchemaTexts, TableRecords
from topiclib.wire import WireReader

from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DECIMAL,
    EventReader,
    EventRecord,
    UnreadableRecord,
    ValueForm,
    row_bytes,
    row_forms,
    stored_row,
)
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import settled_places

pytestmark = pytest.mark.quick

CREATE = (
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), data VARBINARY(20), "
    "at DATETIME(6), doc JSON, flag BIT(9))"
)
VALUES = ("5", "Ünï", "1.50", b"\x00\xff", "2024-02-29 12:34:56.123456", '{"a": [1, 2.5]}', b"\x01\x02")
ROW = {
    "id": 5,
    "name": "Ünï",
    "price": "AJY=",
    "data": "AP8=",
    "at": 1709210096123456,
    "doc": '{"a":[1,2.5]}',
    "flag": "AgE=",
}
REGISTRY = "http://registry:1"
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
FORMATS: dict[str, dict[str, str]] = {
    "json with schemas": SCHEMAS,
    "json": PLAIN,
    "json with schemas of values": {**PLAIN, "value.converter.schemas.enable": "true"},
    "json 1.9": {**SCHEMAS, "event.contract": "1.9"},
    "json before 0.10": {**SCHEMAS, "event.contract": "1.9", "source.struct.version": "v1"},
    "avro": avro(REGISTRY),
    "avro 1.9": {**avro(REGISTRY), "event.contract": "1.9"},
    "avro without metadata": {
        **avro(REGISTRY),
        "key.converter.connect.meta.data": "false",
        "value.converter.connect.meta.data": "false",
    },
    "avro keys": {**avro(REGISTRY, "key"), "value.converter.schemas.enable": "true"},
    "avro values": {**avro(REGISTRY, "value"), "key.converter.schemas.enable": "false"},
}


def reader_of(records: TableRecords) -> EventReader:
    return event_reader(records.cfg, records.topic, records.schemas.lookup)


def reason(reader: EventReader, key: bytes | None, value: bytes | None, headers: Any = ()) -> str:
    with pytest.raises(UnreadableRecord) as caught:
        reader.read(key, value, headers)
    return str(caught.value)


@for_each("name", FORMATS)
def test_a_row_of_the_table_reads_as_the_event_of_an_equal_row(name: str) -> None:
    records = TableRecords(CREATE, FORMATS[name])
    reader = reader_of(records)
    row = reader.read(*records.row(*VALUES))
    assert (row.op, row.key, row.before, row.after) == ("r", {"id": 5}, None, ROW)
    assert (row.source["file"], row.source["pos"]) == ("binlog.000007", 4711)
    event = reader.read(*records.event({"id": 5}, op="c", after=ROW))
    assert event.after == row.after and event.key == row.key and event.op == "c"
    assert event.forms == row.forms and event.key_forms == row.key_forms


@for_each("name", FORMATS)
def test_updates_deletes_tombstones_and_truncates(name: str) -> None:
    records = TableRecords(CREATE, FORMATS[name])
    reader, other = reader_of(records), ROW | {"name": None}
    update = reader.read(*records.event({"id": 5}, op="u", before=other, after=ROW))
    assert (update.op, update.key, update.before, update.after) == ("u", {"id": 5}, other, ROW)
    delete = reader.read(*records.event({"id": 5}, op="d", before=ROW))
    assert (delete.op, delete.key, delete.before, delete.after) == ("d", {"id": 5}, ROW, None)
    # A before image whose values are unknown is null as a whole.
    assert reader.read(*records.event({"id": 5}, op="d")).before is None
    key, _, headers = records.event({"id": 5}, op="d", before=ROW)
    tombstone = reader.read(key, None, headers)
    assert (tombstone.op, tombstone.key, tombstone.before, tombstone.after) == ("", {"id": 5}, None, None)
    truncate = reader.read(*records.event(None, op="t"))
    assert (truncate.op, truncate.key, truncate.before, truncate.after) == ("t", None, None, None)


@for_each("name", FORMATS)
def test_a_table_without_a_key(name: str) -> None:
    records = TableRecords("CREATE TABLE t (a INT, b TEXT)", FORMATS[name])
    row = reader_of(records).read(*records.row("1", None))
    assert row.key is None and row.key_forms is None and row.after == {"a": 1, "b": None}
    assert reader_of(records).read(None, None) == EventRecord("", None, None, None, {})


FORMS = {
    "id": ValueForm("int32"),
    "name": ValueForm("string"),
    "price": ValueForm("bytes", DECIMAL, 2),
    "data": ValueForm("bytes"),
    "at": ValueForm("int64", "io.debezium.time.MicroTimestamp"),
    "doc": ValueForm("string", "io.debezium.data.Json"),
    "flag": ValueForm("bytes", "io.debezium.data.Bits"),
}


@for_each(
    ("name", "values", "keys"),
    [
        ("json with schemas", FORMS, True),
        ("json with schemas of values", FORMS, False),
        ("avro", FORMS, True),
        ("json", None, False),
        (
            "avro without metadata",
            {name: form if form.scale == 2 else ValueForm(form.type) for name, form in FORMS.items()},
            True,
        ),
    ],
)
def test_a_schema_says_how_values_are_written(name: str, values: Any, keys: bool) -> None:
    records = TableRecords(CREATE, FORMATS[name])
    reader = reader_of(records)
    for _ in range(3):
        row = reader.read(*records.row(*VALUES))
        assert row.forms == values
        assert row.key_forms == ({"id": ValueForm("int32")} if keys else None)


def test_each_schema_is_asked_for_once_also_one_that_the_registry_does_not_have() -> None:
    records = TableRecords(CREATE, avro(REGISTRY))
    reader = reader_of(records)
    for _ in range(3):
        reader.read(*records.row(*VALUES))
    assert sorted(records.schemas.asked) == sorted(records.schemas.texts)
    key, value, _ = records.row(*VALUES)
    for _ in range(3):
        text = reason(reader, key, b"\0\0\0\1\0" + value[5:])
        assert text == "the schema registry does not have schema 256 of the value"
    assert records.schemas.asked.count("256") == 1


@pytest.mark.parametrize("part", ["key", "value"])
def test_guids_in_headers_name_schemas(part: str) -> None:
    properties = avro(REGISTRY) | {
        f"{p}.converter.{p}.schema.id.serializer": "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"
        for p in ("key", "value")
    }
    records = TableRecords(CREATE, properties, SchemaTexts(guids=True))
    reader = reader_of(records)
    key, value, headers = records.row(*VALUES)
    assert key == b"\x0a" and {name for name, _ in headers} >= {"__key_schema_id", "__value_schema_id"}
    row = reader.read(key, value, headers)
    assert (row.key, row.after) == ({"id": 5}, ROW)
    others = [(name, data) for name, data in headers if name != f"__{part}_schema_id"]
    assert reason(reader, key, value, others).startswith(f"the record has no header __{part}_schema_id")
    assert reason(reader, key, value, [*headers, *headers]).startswith("the record has several headers __key_schema_id")
    for wrong in (b"", b"\x02" + bytes(16), b"\x01" + bytes(15)):
        assert f"header __{part}_schema_id" in reason(reader, key, value, [*others, (f"__{part}_schema_id", wrong)])
    unknown = [*others, (f"__{part}_schema_id", b"\x01" + bytes(15) + b"\x09")]
    assert reason(reader, key, value, unknown).endswith(f"00000000-0000-0000-0000-000000000009 of the {part}")


@pytest.mark.req("AVRO-09", "AVRO-10", "AVRO-13")
@pytest.mark.parametrize("extension", ["true", "false"])
def test_rows_in_ticdcs_protocol(extension: str) -> None:
    records = TableRecords(CREATE, TICDC | {"enable-tidb-extension": extension})
    reader = reader_of(records)
    record = records.row(*VALUES)
    row = reader.read(*record)
    assert row.key == {"id": 5} and row.before is None
    assert row.after == ROW | {
        "at": "2024-02-29 12:34:56.123456", "flag": "AQI=", "doc": row.after["doc"]
    }  # fmt: skip
    assert json.loads(row.after["doc"]) == {"a": [1, 2.5]}
    assert (row.op, sorted(row.source)) == (
        ("c", ["_tidb_commit_physical_time", "_tidb_commit_ts", "_tidb_op"]) if extension == "true" else ("u", [])
    )
    assert row.forms is not None
    assert row.forms["price"] == ValueForm("tidb", "DECIMAL", 2) and row.forms["flag"] == ValueForm("tidb", "BIT")
    delete = reader.read(record[0], None)
    assert (delete.op, delete.key, delete.before, delete.after) == ("d", {"id": 5}, None, None)
    bare = TableRecords("CREATE TABLE t (a INT)", TICDC)
    assert reader_of(bare).read(*bare.row("1")) == EventRecord(
        "u", None, None, {"a": 1}, {}, {"a": ValueForm("tidb", "INT")}
    )


HEARTBEAT = (b'{"serverName":"p"}', b'{"ts_ms":1}')


def test_messages_that_are_no_change_events() -> None:
    reader = reader_of(TableRecords(CREATE, PLAIN))
    for record in (HEARTBEAT, (b"{}", b'{"status":"BEGIN","id":"x"}'), (b"{}", b'{"source":{},"ddl":"DROP TABLE t"}')):
        assert reader.read(*record) == EventRecord("", json.loads(record[0]), None, None, {})


EVENT = {"before": None, "after": {"id": 1}, "source": SOURCE, "op": "c", "ts_ms": 1}


@for_each(
    ("change", "text"),
    [
        ({"op": "m"}, "the value is no change event: its op is 'm'"),
        ({"op": "x"}, "the value is no change event: its op is 'x'"),
        ({"op": 1}, "the value is no change event: its op is 1"),
        ({"op": ["c"]}, "the value is no change event: its op is ['c']"),
        ({"after": None}, "the event of op c has no after"),
        ({"before": {"id": 1}}, "the event of op c has a row before"),
        ({"after": [1]}, "after of the event of op c is no object"),
        ({"op": "u", "before": "x"}, "before of the event of op u is no object"),
        ({"op": "d"}, "the event of op d has a row after"),
        ({"source": None}, "the event of op c has no source"),
        ({"op": "t", "after": None}, "the event of op t has a key, but deletes all rows"),
        ({"after": {"\0forms": 1}}, "after of the event of op c has a member that no table has"),
        ({"source": SOURCE | {"pos": -1}}, "pos of the event's source is -1"),
        ({"source": SOURCE | {"ts_ms": "1"}}, "ts_ms of the event's source is '1'"),
        ({"source": SOURCE | {"server_id": True}}, "server_id of the event's source is True"),
        ({"source": SOURCE | {"table": None}}, "the event's source names no table"),
        ({"source": {n: v for n, v in SOURCE.items() if n != "db"}}, "the event's source names no table"),
        ({"ts_ms": 1.5}, "ts_ms of the event is 1.5"),
        ({"transaction": "t"}, "transaction of the event is 't'"),
        ({"transaction": {"id": 5}}, "id of the event's transaction is 5"),
        (
            {"after": {"id": json.loads("[" * 300 + "]" * 300)}},
            "the value is nested deeper than any that the stream writes",
        ),
        ({"\ud800": 1}, "the event has members that the stream does not write: \\ud800"),
    ],
)
def test_what_is_no_event_is_unreadable(change: dict[str, Any], text: str) -> None:
    reader = reader_of(TableRecords(CREATE, PLAIN))
    assert reader.read(b'{"id":1}', json.dumps(EVENT).encode()).after == {"id": 1}
    assert reason(reader, b'{"id":1}', json.dumps(EVENT | change).encode()) == text


@for_each(
    ("key", "value", "text"),
    [
        (b'{"id":1}', b"", "the value is not JSON"),
        (b'{"id":1}', b"\x00\x00\x00\x00\x07\x00", "the value is not JSON"),
        (b'{"id":1}', json.dumps(EVENT).encode("utf-16"), "the value is not JSON"),
        (b'{"id":1}', b'{"op":NaN}', "the value is not JSON"),
        (b'{"id":1}', b'{"op":"c","s":"\\ud800","v":1e999}', "the value is not JSON"),
        (b'{"id":1}', b'{"op":"d","op":"c"}', "the value has a member twice"),
        (b'{"id":1}', b'{"op":"c","after":{"v":1, "v":1}}', "the value has a member twice"),
        (b'{"id":1}', b'{"op":"c","s":"\\ud800","after":{"v":1,"v":2}}', "the value has a member twice"),
        (b'{"id":1}', b"[" * 100_000, "the value is not JSON"),
        (b'{"id":1}', b"7", "the value is no object"),
        (b'{"id":1}', b'{"id":1,"name":"x"}', "the value is no change event: it has no op"),
        (b"7", b"{}", "the key is no object"),
        (b"{", b"{}", "the key is not JSON"),
        (b'{"schema":{"type":"struct"},"payload":{"id":1}}', None, "the key has a schema, although key.converter.sc"),
    ],
)
def test_what_is_no_json_is_unreadable(key: bytes | None, value: bytes | None, text: str) -> None:
    assert reason(reader_of(TableRecords(CREATE, PLAIN)), key, value).startswith(text)


def test_a_number_that_is_none_is_no_null() -> None:
    records = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, v DOUBLE)", TICDC)
    key, value, _ = records.row("1", "2.5")
    two = struct.pack("<d", 2.5)
    assert value is not None and value.count(two) == 1
    for wrong in ("nan", "inf"):
        damaged = value.replace(two, struct.pack("<d", float(wrong)))
        assert f"{wrong} is no number of the server" in reason(reader_of(records), key, damaged)


def test_a_repair_s_header_names_places_that_there_can_be() -> None:
    header = (("cdc-repair-settles", b"x@y,1@2,99999999999999999999999@5,3@99999999999999999999999,4@5"),)
    assert list(settled_places(header)) == [(1, 2), (4, 5)]


def test_a_text_that_looks_like_a_digest_is_no_digest() -> None:
    long = row_bytes({"v": "x" * 2000})
    assert row_bytes(stored_row(long)) != long != row_bytes({"v": "x" * 2001})


def test_half_a_surrogate_pair_is_read_and_columns_may_be_called_schema_and_payload() -> None:
    reader = reader_of(TableRecords(CREATE, PLAIN))
    value = json.dumps(EVENT | {"after": {"id": 1, "name": "\ud800"}}).encode()
    row = reader.read(b'{"schema":"a","payload":"b"}', value)
    assert row.key == {"schema": "a", "payload": "b"} and row.after == {"id": 1, "name": "\ud800"}


def test_json_without_its_schema_is_unreadable_where_it_is_configured() -> None:
    records = TableRecords(CREATE, SCHEMAS)
    reader = reader_of(records)
    key, value, _ = records.row(*VALUES)
    plain = json.dumps(json.loads(value)["payload"]).encode()
    assert reason(reader, key, plain) == "the value has no schema, although value.converter.schemas.enable is true"
    assert reason(reader, b'{"id":5}', value).startswith("the key has no schema")
    for schema in ("7", "null", "{}", '{"type":"struct","fields":[{"field":"after","type":"struct"}]}'):
        text = f'{{"schema":{schema},"payload":{plain.decode()}}}'.encode()
        assert reason(reader, key, text).startswith("the schema of the value is none of Connect's")


def test_the_text_of_a_schema_is_parsed_once_and_what_follows_it_is_still_checked() -> None:
    records = TableRecords(CREATE, SCHEMAS)
    reader = reader_of(records)
    key, value, _ = records.row(*VALUES)
    first, again = reader.read(key, value), reader.read(key, value)
    assert first == again and first.forms is again.forms
    for damaged in (
        value[:-1],
        value + b"}",
        value[:-1] + b',"payload":1}',
        value[:-1] + b" x}",
        value[:-2] + b"}",
        value[:-1] + b"]",
    ):
        with pytest.raises(UnreadableRecord):
            reader.read(key, damaged)
    spaced = value.replace(b',"payload":', b', "payload" : ') + b"\n"
    for _ in range(2):
        assert reader.read(key, spaced) == first
    # A schema may have a member of the same name.
    row = '{"type":"int32","field":"id"},{"type":"string","field":"payload","default":{"a":1,"payload":2}}'
    others = "".join(f',{{"type":"string","field":"{name}"}}' for name in EVENT if name != "after")
    schema = f'{{"type":"struct","fields":[{{"type":"struct","field":"after","fields":[{row}]}}{others}]}}'
    event = json.dumps(EVENT | {"after": {"id": 1, "payload": "x"}}).encode()
    odd = b'{"schema":' + schema.encode() + b',"payload":' + event + b"}"
    for _ in range(2):
        assert reader.read(key, odd).forms == {"id": ValueForm("int32"), "payload": ValueForm("string")}
        assert reader.read(key, value) == first
        assert reason(reader, key, odd[: odd.index(b":2}}")] + b":" + event + b"}").startswith("the value is not JSON")
        assert reason(reader, key, b'{"schema":' + event + b"}").startswith("the value has no schema")


def test_two_schemas_by_turns() -> None:
    old, new = TableRecords(CREATE, SCHEMAS), TableRecords(CREATE.replace("10,2", "10,3"), SCHEMAS)
    reader = reader_of(old)
    for _ in range(3):
        assert reader.read(*old.row(*VALUES)).forms["price"].scale == 2  # type: ignore[index]
        assert reader.read(*new.row(*VALUES[:2], "1.500", *VALUES[3:])).forms["price"].scale == 3  # type: ignore[index]


@for_each(
    ("schema", "text"),
    [
        ("{", "JSONDecodeError"),
        ('"string"', "it is of type string"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"other"}]}', "KeyError"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":["null","r"]}]}', "KeyError: 'r'"),
        (
            '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}',
            "it has an array of items without bytes",
        ),
        ('{"type":"record","fields":[]}', "KeyError: 'name'"),
    ],
)
def test_a_schema_that_no_encoder_of_events_has(schema: str, text: str) -> None:
    records = TableRecords(CREATE, avro(REGISTRY))
    key, value, _ = records.row(*VALUES)
    records.schemas.texts["1000"] = schema
    found = reason(reader_of(records), key, b"\0\0\0\3\xe8" + value[5:])
    assert found.startswith("schema 1000 of the value cannot be used: ") and text in found


def test_avro_of_another_schema_or_with_more_bytes_is_unreadable() -> None:
    records = TableRecords(CREATE, avro(REGISTRY))
    reader = reader_of(records)
    key, value, _ = records.row(*VALUES)
    assert reason(reader, key, value + b"\0") == f"the value has bytes after its value of schema {value[4]}"
    assert reason(reader, key, value[:-3]).startswith(f"the value is not Avro of its schema {value[4]}: ")
    assert reason(reader, key, b"").startswith("the value begins with nothing, and not with a schema id")
    assert "with 7b226964, and" in reason(reader, b'{"id', value)
    assert "with 7b22696422, and not" in reason(reader, b'{"id":5}', value)
    # The key's schema in place of the value's.
    assert reason(reader, key, key) == "the value is no change event: it has no op"


@pytest.mark.parametrize("name", ["avro", "avro 1.9"])
def test_an_independent_reader_finds_the_same_in_the_bytes(name: str) -> None:
    records = TableRecords(CREATE, FORMATS[name])
    record, wire = records.row(*VALUES), WireReader(lambda schema_id: records.schemas.texts[str(schema_id)])
    found = reader_of(records).read(*record)
    assert found.key == wire.split(record[0] or b"")[1]
    schema, event = wire.split(record[1] or b"")
    assert (found.before, found.after, found.source) == (event["before"], event["after"], event["source"])
    assert found.forms == row_forms(schema)


def test_headers_are_not_read_where_ids_are_before_the_bytes() -> None:
    records = TableRecords(CREATE, avro(REGISTRY))
    key, value, _ = records.row(*VALUES)
    row = reader_of(records).read(key, value, [("__value_schema_id", b"\x01" + bytes(16)), ("x", b"y")])
    assert row.after == ROW


@for_each("name", [name for name in FORMATS if not name.startswith("avro")])
def test_members_that_the_stream_does_not_write_make_an_event_unreadable(name: str) -> None:
    records = TableRecords(CREATE, FORMATS[name])
    reader, (key, value, _) = reader_of(records), records.row(*VALUES)
    assert value is not None
    document = json.loads(value)
    event = document.get("payload", document)
    for part in (event, event["source"]):
        part["more"] = 1
        assert "members that the stream does not write: more" in reason(reader, key, json.dumps(document).encode())
        del part["more"]
    assert reader.read(key, json.dumps(document).encode()).op == "r"
