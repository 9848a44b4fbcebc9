"""The writer behind which transforms stand: topics, partitions, counts, and what stops it."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from kit.cases import for_each
from kit.chain_rig import (
    CONNECT,
    DEBEZIUM,
    GIVEN,
    chained,
    column,
    payload,
    row_event,
    row_key,
    transforms,
)

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote as json_string
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import register_schemas
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.prepare_verify import prepare_verify
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType, notification_record
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition as murmur2_partition
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

pytestmark = pytest.mark.quick
UNWRAP = {"type": f"{DEBEZIUM}ExtractNewRecordState"}
OUTBOX = {
    "type": f"{DEBEZIUM}outbox.EventRouter",
    "table.field.event.payload": "body",
    "table.field.event.timestamp": "at",
    "table.field.event.key": "k",
    "route.by.field": "kind",
    "route.topic.replacement": "out.${routedByValue}",
}
COLUMNS = [
    column("id", "int32", optional=False),
    column("kind", "string"),
    column("k", "string"),
    column("body", "string"),
    column("at", "int64", name="io.debezium.time.Timestamp", version=1),
]
PLAN = BatchPlan(7, "drain", BinlogOffset("b.000001", 4), BinlogOffset("b.000001", 9), 1)


def row(number: int, kind: str = "a", key: str | None = "k", body: str | None = "x", at: int | None = None) -> Any:
    return dict(zip(("id", "kind", "k", "body", "at"), (number, kind, key, body, at), strict=True))


def ledger(inner: Any) -> dict[str, Any]:
    """Return the ledger records, without the version of their form."""
    found = {r.key.decode(): json.loads(r.value) for r in inner.produced if r.topic == "ledger.cap"}
    return {key: {k: v for k, v in value.items() if k != "v"} for key, value in found.items()}


@pytest.mark.req("TOPIC-05")
def test_topics_are_known_and_created_when_a_record_goes_there() -> None:
    groups = {"topic.creation.groups": "g", "topic.creation.g.include": r"out\..*", "topic.creation.g.partitions": "5"}
    writer, inner, topics = chained(transforms(outbox=OUTBOX) | groups, partitions=3)
    topics.existing["out.old"] = TopicInfo(5, "id-old")
    writer.begin(PLAN, {"out.old": RecordedTopic(5, "id-old", 6)})
    for number, kind in enumerate(["new", "old", "new"]):
        event = row_event(COLUMNS, after=row(number, kind, f"key-{number}"))
        writer.produce("cap.d.t", row_key(id=number), event, 0, [("h", b"1")])
    writer.commit([SideRecord("ledger.cap", b"marker", b"{}")])
    assert {topic: spec.partitions for topic, spec in topics.created.items()} == {"out.new": 5}
    assert [(r.topic, payload(r.key), payload(r.value)) for r in inner.produced[:3]] == [
        ("out.new", "key-0", "x"),
        ("out.old", "key-1", "x"),
        ("out.new", "key-2", "x"),
    ]
    assert [r.partition for r in inner.produced[:3]] == [
        murmur2_partition(r.key, 5 if r.topic == "out.old" else 3) for r in inner.produced[:3]
    ]
    assert all(dict(r.headers).keys() == {"h", "id"} for r in inner.produced[:3])
    # Only the topic that the ledger did not know is recorded, in the transaction of its first record.
    assert ledger(inner) == {"topic/out.new": {"partitions": 3, "id": "id-out.new", "epoch": 7}, "marker": {}}
    assert writer.take_counts() == {"out.new": 2, "out.old": 1} and writer.take_counts() == {}


def test_what_was_aborted_is_recorded_and_counted_again() -> None:
    writer, inner, topics = chained(transforms(unwrap=UNWRAP))
    event = row_event(COLUMNS, after=row(1))
    writer.begin(PLAN, {})
    writer.produce("cap.d.t", row_key(id=1), event, 0)
    writer.init()
    inner.produced.clear()
    writer.produce("cap.d.t", row_key(id=1), event, 0)
    writer.commit()
    assert list(topics.created) == ["cap.d.t"] and writer.take_counts() == {"cap.d.t": 1}
    assert list(ledger(inner)) == ["topic/cap.d.t"]
    writer.produce("cap.d.t", row_key(id=1), event, 0)
    writer.commit()
    assert len([r for r in inner.produced if r.topic == "ledger.cap"]) == 1


@for_each("now", [None, TopicInfo(1, "other"), TopicInfo(2, "id")], ids=str)
def test_a_topic_that_was_deleted_or_changed_stops_the_batch(now: TopicInfo | None) -> None:
    writer, inner, topics = chained(transforms(unwrap=UNWRAP))
    if now is not None:
        topics.existing["cap.d.t"] = now
    writer.begin(PLAN, {"cap.d.t": RecordedTopic(1, "id", 6)})
    with pytest.raises(TopicChangedError, match="changed outside of this stream"):
        writer.produce("cap.d.t", row_key(id=1), row_event(COLUMNS, after=row(1)), 0)
    assert inner.produced == [] and topics.created == {}


def test_records_of_the_provider_itself_pass_no_transform() -> None:
    given = {**transforms(drop={"type": f"{CONNECT}Filter", "predicate": "all"}), "predicates": "all"}
    given |= {"predicates.all.type": f"{CONNECT}predicates.TopicNameMatches", "predicates.all.pattern": ".*"}
    writer, inner, _ = chained(given | {"errors.deadletterqueue.topic.name": "dead"})
    writer.begin(PLAN, {})
    internal = ["ledger.cap", "schemahistory.cap", "dead"]
    for topic in [*internal, "cap", "cap.d.t", "__debezium-heartbeat.cap"]:
        writer.produce(topic, None, b'{"schema":{"type":"string"},"payload":"x"}', 0)
    assert [r.topic for r in inner.produced] == internal
    writer.send([SideRecord("cap", None, None), SideRecord("ledger.cap", b"k", b"v")])
    assert [r.topic for r in inner.produced] == [*internal, "ledger.cap"]


def test_notifications_pass_a_chain_with_their_map() -> None:
    given = {**transforms(unwrap=UNWRAP), "notification.enabled.channels": "sink", "notification.sink.topic.name": "n"}
    for schemas, converter in (("true", "json.JsonConverter"), ("false", "json.JsonConverter"), ("false", STRINGS)):
        behind = {"value.converter": f"org.apache.kafka.connect.{converter}"}
        if converter != STRINGS:
            behind["value.converter.schemas.enable"] = schemas
        cfg = ConnectorConfig.from_properties({**GIVEN, **given, **behind})
        sent = notification_record(cfg, "INCREMENTAL", NotificationType.IN_PROGRESS, "id", {"a": "b"}, 5)
        writer, inner, _ = chained({**given, **behind})
        writer.begin(PLAN, {})
        assert sent is not None
        writer.produce(sent.topic, sent.key, sent.value, 0)
        (produced,) = inner.produced
        assert sent.value is not None and produced.value is not None and produced.key == sent.key
        if converter == STRINGS:
            assert b"additional_data={connector_name=cap, a=b},timestamp=5" in produced.value
        else:
            whole = json.loads(sent.value)
            assert json.loads(produced.value) == (whole if schemas == "true" else whole["payload"])


STRINGS = "storage.StringConverter"
NOT_A_STRUCT = transforms(mask={"type": f"{CONNECT}MaskField$Value", "fields": "k"})
EXPANDED = transforms(outbox={**OUTBOX, "table.expand.json.payload": "true"})
PLACED = transforms(outbox={**OUTBOX, "table.fields.additional.placement": "id:partition"})


@for_each(
    ("given", "after", "what", "why"),
    [
        (NOT_A_STRUCT, None, "the transform mask cannot take a record", "Only Map objects"),
        (EXPANDED, row(1, body="[{}]"), "cannot be converted", "Invalid type for ARRAY"),
        (PLACED, row(3), "partition 3 of a topic that has 1", ""),
        (transforms(outbox=OUTBOX), row(1, at=-2), "timestamp -2, before 1970", ""),
        (transforms(outbox=OUTBOX), row(1, kind="a b"), "routes to 'out.a b', which is not a topic name", ""),
        (transforms(outbox={**OUTBOX, "route.topic.replacement": "ledger.cap"}), row(1), "is not for events", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_connect_would_stop_at_stops_here_and_says_where(
    given: dict[str, str], after: Any, what: str, why: str
) -> None:
    writer, inner, _ = chained(given)
    writer.begin(PLAN, {})
    value = None if after is None else row_event(COLUMNS, after=after)
    with pytest.raises(ConfigError) as caught:
        writer.produce("cap.d.t", row_key(id=1), value, 0)
    error = caught.value
    assert what in error.what and why in (error.why or "") and error.where and error.remedy
    assert inner.produced == []


@for_each(("at", "produced"), [(None, 1_700_000_000_000), (-1, 0), (0, 0), (5, 5)])
def test_timestamps_are_those_that_connect_gives_to_kafka(at: int | None, produced: int) -> None:
    writer, inner, _ = chained(transforms(outbox=OUTBOX))
    writer.begin(PLAN, {})
    writer.produce("cap.d.t", row_key(id=1), row_event(COLUMNS, after=row(1, at=at)), 0)
    assert inner.produced[0].timestamp == produced


SCHEMA = b'{"schema":{"type":"string","optional":true},"payload":'


@for_each(
    ("converters", "key", "value"),
    [
        ({}, SCHEMA + b'"k"}', SCHEMA + b'"x"}'),
        ({"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}, b'"k"', b'"x"'),
        (
            {
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            },
            b"k",
            b"x",
        ),
    ],
    ids=["schemas", "plain", "text"],
)  # fmt: skip
def test_records_are_written_by_the_converters_that_are_configured(
    converters: dict[str, str], key: bytes, value: bytes
) -> None:
    writer, inner, _ = chained({**transforms(outbox=OUTBOX), **converters})
    writer.begin(PLAN, {})
    writer.produce("cap.d.t", row_key(id=1), row_event(COLUMNS, after=row(1)), 0)
    assert (inner.produced[0].key, inner.produced[0].value) == (key, value)


def test_null_stays_null_unless_the_converter_is_told_otherwise() -> None:
    columns = [column("id", "int32", optional=False), column("n", "int32", default=7)]
    event = row_event(columns, after={"id": 1, "n": None})
    for setting, kept, marker in ((None, None, "false"), ("false", None, None), ("true", 7, "false")):
        more = {} if setting is None else {"value.converter.replace.null.with.default": setting}
        route = {"type": f"{CONNECT}HoistField$Value", "field": "event"}
        writer, inner, _ = chained({**transforms(hoist=route), **more})
        writer.begin(PLAN, {})
        writer.produce(
            "cap.d.t", None, event.replace(b'"field":"snapshot"', b'"default":"false","field":"snapshot"'), 0
        )
        read = payload(inner.produced[0].value)["event"]
        assert (read["after"]["n"], read["source"]["snapshot"]) == (kept, marker)


@for_each(
    ("more", "refused"),
    [
        ({"value.format": "ticdc-avro"}, "value.format"),
        ({"event.contract": "1.9"}, "event.contract"),
    ],
    ids=["ticdc", "1.9"],
)  # fmt: skip
def test_what_cannot_stand_behind_transforms_is_refused_by_name(more: dict[str, str], refused: str) -> None:
    problems = {p.name: p for p in ConnectorConfig.check({**GIVEN, **transforms(unwrap=UNWRAP), **more})}
    assert refused in problems and "transforms" in problems[refused].what and problems[refused].fix


AVRO = {
    f"{part}.converter{more}": text
    for part in ("key", "value")
    for more, text in (("", "io.confluent.connect.avro.AvroConverter"), (".schema.registry.url", "http://r"))
}


def test_records_behind_transforms_are_written_as_avro() -> None:
    asked: dict[str, Any] = {}

    def lookup(part: str, subject: str, text: str, about: str) -> SchemaId:
        asked[subject] = json.loads(text)
        return SchemaId(len(asked), None)

    given = {**transforms(unwrap={**UNWRAP, "add.fields": "op"}), **AVRO}
    writer, inner, _ = chained(given, lookup_id=lookup)
    columns = [column("id", "int32", optional=False), column("n", "string", default="none"), column("b", "bytes")]
    writer.begin(PLAN, {})
    rows = [{"id": 1, "n": "x", "b": "AQI="}, {"id": 2, "n": None, "b": None}]
    for after in rows:
        writer.produce("cap.d.t", row_key(id=after["id"]), row_event(columns, after=after), 0)
    writer.produce("cap.d.t", row_key(id=1), row_event(columns, before=rows[0]), 0)
    assert list(asked) == ["cap.d.t-key", "cap.d.t-value"] and asked["cap.d.t-value"]["name"] == "Value"
    parsed = fastavro.parse_schema(asked["cap.d.t-value"])
    read = [
        fastavro.schemaless_reader(io.BytesIO((r.value or b"")[5:]), parsed, None) for r in inner.produced if r.value
    ]
    assert read == [{"id": 1, "n": "x", "b": b"\1\2", "__op": "c"}, {"id": 2, "n": None, "b": None, "__op": "c"}]
    assert [(r.value or b"")[:5] for r in inner.produced] == [b"\0\0\0\0\2"] * 2 + [b""]


def test_the_driver_asks_for_schema_ids_before_its_transaction() -> None:
    asked: list[str] = []

    def lookup(part: str, subject: str, text: str, about: str) -> SchemaId:
        asked.append(subject)
        return SchemaId(len(asked), None)

    writer, inner, _ = chained({**transforms(outbox=OUTBOX), **AVRO}, lookup_id=lookup)
    writer.begin(None, {})
    record = SideRecord("cap.d.t", row_key(id=1), row_event(COLUMNS, after=row(1)), None)
    register_schemas(writer, [record, SideRecord("ledger.cap", b"k", b"v")])
    assert asked == ["out.a-key", "out.a-value"] and inner.produced == []
    writer.commit([record])
    assert len(asked) == 2 and [r.topic for r in inner.produced] == ["out.a", "ledger.cap"]


def test_texts_without_a_transform_are_refused() -> None:
    given = {**GIVEN, "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    (problem,) = ConnectorConfig.check(given)
    assert problem.name == "value.converter" and "transform" in problem.what


def test_topics_behind_transforms_are_not_verified() -> None:
    cfg = ConnectorConfig.from_properties({**GIVEN, **transforms(unwrap=UNWRAP)})
    unused: Any = None
    with pytest.raises(CdcError, match="cannot be verified or repaired") as caught:
        prepare_verify(cfg, unused, "run", unused, unused)
    assert "transforms=unwrap" in caught.value.where


@for_each("text", ["plain", 'quote " and \\', "line\n\x1f", "\U0001f600", "\ud83d", "ключ"])
def test_texts_pass_a_chain_unchanged_in_the_form_of_the_converter(text: str) -> None:
    """Half a surrogate pair is no text for the faster of the two readers of JSON."""
    writer, inner, _ = chained({**transforms(unwrap=UNWRAP), "value.converter.schemas.enable": "false"})
    event = row_event(COLUMNS, after=row(1, body="TEXT")).replace(b'"TEXT"', json_string(text).encode())
    for _ in range(2):  # the schema is known from the second one on
        writer.produce("cap.d.t", row_key(id=1), event, 0, [])
    value = inner.produced[1].value.decode()
    assert json.loads(value)["body"] == text
    assert json_string(text) in value
