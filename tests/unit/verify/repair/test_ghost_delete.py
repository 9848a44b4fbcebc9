"""Deletes of ghosts: made of the topic's own records, in every format, and read back by readers of events."""

from __future__ import annotations

import json

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.table_records import SOURCE, TICDC, Record, SchemaTexts, TableRecords

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import KeyedRecord, ViewPosition
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.repair.listed_stretch import GhostDeletes

pytestmark = pytest.mark.quick

CREATE = (
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), r DOUBLE, data VARBINARY(20), "
    "at DATETIME(6), doc JSON, flag BIT(9), p POINT, v VECTOR(2))"
)
VALUES = (
    "5",
    'Ünï"\\',
    "1.50",
    "1e20",
    b"\x00\xff",
    "2024-02-29 12:34:56.123456",
    '{"a": [1]}',
    b"\x01\x02",
    None,
    None,
)
HEADERS = [("cdc-repair", b"run 1")]
AT = ViewPosition(BinlogOffset("binlog.000009", 999), 1_750_000_000_123, (7, "a-b:1-5"), 450_000)
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
OLD = {"event.contract": "1.9"}
REGISTRY = avro("http://registry:1")
ENVELOPES: dict[str, dict[str, str]] = {
    "json with schemas": SCHEMAS,
    "json": PLAIN,
    "json 1.9": SCHEMAS | OLD,
    "json 1.9 without schemas": PLAIN | OLD,
    "json before 0.10": SCHEMAS | OLD | {"source.struct.version": "v1"},
    "json before 0.10 without schemas": PLAIN | OLD | {"source.struct.version": "v1"},
    "json with transactions": SCHEMAS | {"provide.transaction.metadata": "true"},
    "avro": REGISTRY,
    "avro 1.9": REGISTRY | OLD,
    "avro with transactions": REGISTRY | {"provide.transaction.metadata": "true"},
    "avro keys": avro("http://registry:1", "key") | {"value.converter.schemas.enable": "true"},
    "avro values": avro("http://registry:1", "value"),
}


def stored(record: Record) -> TopicRecord:
    key, value, headers = record
    return TopicRecord(2, 41, key, value, 5, tuple(headers))


def deletes(records: TableRecords, record: Record, id_prefix: str | None = None) -> list[KeyedRecord]:
    made = GhostDeletes(records.cfg, AT, HEADERS, records.schemas.lookup, id_prefix)
    return list(made.records(records.topic, stored(record)))


@for_each("name", ENVELOPES)
def test_a_delete_has_the_row_before_and_says_that_a_repair_has_read_the_table(name: str) -> None:
    records = TableRecords(CREATE, ENVELOPES[name])
    reader = event_reader(records.cfg, records.topic, records.schemas.lookup)
    row = records.row(*VALUES)
    delete, tombstone = deletes(records, row)
    read, was = reader.read(delete.key, delete.value), reader.read(row[0], row[1])
    assert (read.op, read.key, read.before, read.after) == ("d", was.key, was.after, None)
    assert read.forms == was.forms
    assert list(read.source) == list(was.source)
    expected = {
        "ts_sec": 0, "ts_ms": 1_750_000_000_123, "ts_us": 1_750_000_000_123_000, "ts_ns": 1_750_000_000_123_000_000,
        "snapshot": True if "before 0.10" in name else "incremental", "server_id": 7, "gtid": "a-b:1-5",
        "file": "binlog.000009", "pos": 999, "row": 0, "thread": None, "query": None,
    }  # fmt: skip
    assert read.source == {name: expected.get(name, value) for name, value in was.source.items()}
    assert tombstone == KeyedRecord(row[0], None, 2, HEADERS) and delete.partition == 2 and delete.key == row[0]
    assert delete.headers == HEADERS


@for_each("name", ENVELOPES)
def test_it_is_the_event_that_the_stream_would_have_written(name: str) -> None:
    records = TableRecords(CREATE, ENVELOPES[name])
    row = records.row(*VALUES)
    reader = event_reader(records.cfg, records.topic, records.schemas.lookup)
    was = reader.read(row[0], row[1])
    key, value, _ = records.event(dict(was.key or {}), op="d", before=was.after, source=was.source)
    wanted, (delete, _) = reader.read(key, value), deletes(records, row)
    read = reader.read(delete.key, delete.value)
    assert (delete.key, read.op, read.before, read.after) == (key, wanted.op, wanted.before, wanted.after)
    if "avro" not in name or name == "avro keys":
        texts = [json.loads(each or b"") for each in (delete.value, row[1])]
        assert list(texts[0]) == list(texts[1])
        assert "payload" not in texts[0] or texts[0]["schema"] == texts[1]["schema"]
        # The text of each value stays as it was, 1e20 among them.
        image = (row[1] or b"").partition(b'"after":')[2].partition(b',"source"')[0]
        assert b'"before":' + image + b',"after":null,' in (delete.value or b"")
    else:
        assert (delete.value or b"")[:5] == (row[1] or b"")[:5]


def test_times_of_the_event_are_now_and_it_has_no_transaction() -> None:
    records = TableRecords(CREATE, PLAIN | {"provide.transaction.metadata": "true"})
    transaction = {"id": "x", "total_order": 1, "data_collection_order": 1}
    event = records.event({"id": 5}, op="u", before={"id": 5}, after={"id": 5}, transaction=transaction, ts_us=1)
    (delete, _) = deletes(records, event)
    told = json.loads(delete.value or b"")
    assert told["transaction"] is None and told["ts_ms"] * 1000 <= told["ts_us"] and told["ts_ms"] > 1_700_000_000_000


def test_no_tombstone_without_tombstones_on_delete_or_without_a_key() -> None:
    records = TableRecords(CREATE, PLAIN | {"tombstones.on.delete": "false"})
    assert len(deletes(records, records.row(*VALUES))) == 1
    keyless = TableRecords("CREATE TABLE t (a INT)", PLAIN)
    assert [record.key for record in deletes(keyless, keyless.row("1"))] == [None]


@pytest.mark.parametrize("extension", ["false", "true"])
def test_ticdc_deletes_by_a_record_without_a_value(extension: str) -> None:
    records = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, n INT)", TICDC | {"enable-tidb-extension": extension})
    row = records.row("5", "1")
    assert deletes(records, row) == [KeyedRecord(row[0], None, 2, HEADERS)]
    keyless = TableRecords("CREATE TABLE t (a INT)", TICDC)
    with pytest.raises(UnreadableRecord, match="without a key"):
        deletes(keyless, keyless.row("1"))


def test_guids_of_schemas_stay_in_the_headers() -> None:
    properties = REGISTRY | {
        "key.converter.key.schema.id.serializer": "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer",
        "value.converter.value.schema.id.serializer": (
            "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"
        ),
    }
    records = TableRecords(CREATE, properties, SchemaTexts(guids=True))
    row = records.row(*VALUES)
    assert len(row[2]) == 2
    delete, tombstone = deletes(records, row, id_prefix="repair/3/run 1")
    assert delete.headers == [*HEADERS, ("cdc-id", b"repair/3/run 1/p.shop.t/2@41/0"), *row[2]]
    assert tombstone.headers == [*HEADERS, ("cdc-id", b"repair/3/run 1/p.shop.t/2@41/1"), row[2][0]]
    reader = event_reader(records.cfg, records.topic, records.schemas.lookup)
    assert reader.read(delete.key, delete.value, delete.headers).before == reader.read(*row).after


def test_a_record_of_an_earlier_structure_keeps_its_schema() -> None:
    schemas = SchemaTexts()
    before = TableRecords("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, gone TEXT)", REGISTRY, schemas)
    now = TableRecords("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n INT NOT NULL)", REGISTRY, schemas)
    row = before.row("5", "x")
    delete, _ = deletes(now, row)
    assert (delete.value or b"")[:5] == (row[1] or b"")[:5]
    reader = event_reader(now.cfg, now.topic, schemas.lookup)
    assert reader.read(delete.key, delete.value).before == {"id": 5, "gone": "x"}


@for_each(
    ("properties", "value", "reason"),
    [
        (PLAIN, b"{", "no JSON"),
        (PLAIN, b"7", "no change event"),
        (PLAIN, b"\xff", "no JSON"),
        (PLAIN, b'{"ts_ms":1}', "no change event"),
        (PLAIN, b'{"before":null,"after":{},"source":7,"op":"c"}', "no change event"),
        (PLAIN, None, "tombstone"),
        (REGISTRY, b"{}", "a schema id"),
        (REGISTRY, b"\0\0\0\0\x01abc", "does not have schema 1"),
        (REGISTRY, b"\0\0\0\0\x08", "by its schema 8"),
    ],
)
def test_what_is_no_event_is_named(properties: dict[str, str], value: bytes | None, reason: str) -> None:
    records = TableRecords(CREATE, properties)
    with pytest.raises(UnreadableRecord, match=reason):
        deletes(records, (b"{}", value, []))


def test_source_members_are_those_of_the_record() -> None:
    records = TableRecords("CREATE TABLE t (id INT NOT NULL PRIMARY KEY)", PLAIN)
    key, value, headers = records.event({"id": 5}, op="c", after={"id": 5}, source={"file": "x", "own": [1, {}]})
    delete, _ = deletes(records, (key, b" \n" + (value or b"").replace(b":", b" : ") + b"\t", headers))
    assert json.loads(delete.value or b"")["source"] == {"file": "binlog.000009", "own": [1, {}]}
    assert SOURCE["file"] == "binlog.000007"


@for_each("name", ENVELOPES)
def test_a_row_that_is_deleted_already_is_deleted_once_more(name: str) -> None:
    records = TableRecords(CREATE, ENVELOPES[name])
    reader = event_reader(records.cfg, records.topic, records.schemas.lookup)
    first, _ = deletes(records, records.row(*VALUES))
    again, tombstone = deletes(records, (first.key, first.value, []))
    read, was = reader.read(again.key, again.value), reader.read(first.key, first.value)
    assert (read.op, read.before, read.after) == ("d", was.before, None) and was.before is not None
    assert tombstone.value is None
