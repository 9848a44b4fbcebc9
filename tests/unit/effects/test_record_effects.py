"""What each property of events changes in what is written: properties as text, records as a consumer reads them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from kit.binlog_bytes import UUID_TEXT
from kit.cases import case
from kit.effect_rig import DELETE, IN_AVRO, QUERY, UPDATE, WRITE, Written, drain, snapshot
from kit.table_records import TICDC

from airflow_provider_mysql_cdc.cdc.binlog.constants import QUERY_EVENT
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import dead_letter

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(10) DEFAULT 'd' COMMENT 'says', odd INT)"
ODD = CREATE.replace("odd", "`odd-name`")
HEARTBEATS, METADATA = {"heartbeat.interval.ms": "5"}, {"provide.transaction.metadata": "true"}
ROUTER = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.r.regex": "p.shop.(.*)",
    "transforms.r.replacement": "all.$1",
}
PREDICATE = {
    "predicates": "only",
    "predicates.only.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.only.pattern": "other",
    "transforms.r.predicate": "only",
}
DISPATCHER = {"dispatchers": '[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "table"}]'}
OTHER_UUID = "11111111-1111-1111-1111-111111111111"


def image(number: int, name: bytes | None, odd: int = 5) -> bytes:
    """Return a row image."""
    text = b"" if name is None else bytes([len(name)]) + name
    return bytes([0 if name is not None else 2]) + struct.pack("<i", number) + text + struct.pack("<i", odd)


LIFE = [
    (WRITE, image(1, b"abc")),
    (UPDATE, image(1, b"abc") + image(1, b"abd")),
    (DELETE, image(1, b"abd")),
]
STREAM, BOTH = ("stream",), ("stream", "snapshot")
Measure = Callable[[Written], Any]


class Effect(NamedTuple):
    """One property.

    Args:
        name: Its name.
        value: Its value, or several properties.
        measure: What it changes.
        before: What that is without it.
        after: What that is with it.
        given: Properties that are given in both cases.
        paths: Who writes.
        create: The table.
        null: Whether the row has NULL in ``name``.
    """

    name: str
    value: str | dict[str, str]
    measure: Measure
    before: Any
    after: Any
    given: Mapping[str, str] = MappingProxyType({})
    paths: tuple[str, ...] = BOTH
    create: str = CREATE
    null: bool = False


def topics(written: Written) -> list[str]:
    return sorted(written.topics)


def operations(written: Written) -> list[str | None]:
    return [None if value is None else value["op"] for value in written.values()]


def row(written: Written) -> Any:
    value = written.values()[0]
    return value.get("after", value)


def key(written: Written) -> Any:
    data = json.loads(written.records[0].key or b"")
    return data["payload"] if "schema" in data else data


def source(written: Written) -> Any:
    return written.values()[0]["source"]


def header_names(written: Written) -> list[str]:
    return [name for name, _ in written.records[0].headers]


def cdc_id(written: Written) -> bytes | None:
    """Return the key in the identity of a snapshot's row, which is JSON in Avro too."""
    found = dict(written.records[0].headers).get("cdc-id")
    return None if found is None else bytes(found)[bytes(found).rindex(b"{") + 1 :].rstrip(b"}")


def has_schema(part: str) -> Measure:
    return lambda written: "schema" in json.loads(getattr(written.records[0], part))


def side_schema(part: str, topic: str) -> Measure:
    return lambda written: "schema" in json.loads(getattr(written.topics[topic][0], part))


def first_byte(part: str) -> Measure:
    return lambda written: getattr(written.records[0], part)[:1]


def schema(written: Written) -> Any:
    return json.loads(written.records[0].value or b"")["schema"]


def field_schema(name: str, member: str) -> Measure:
    def measure(written: Written) -> Any:
        fields = {f["field"]: f for f in schema(written)["fields"][1]["fields"]}
        return fields[name].get(member)

    return measure


def schema_texts(part: str) -> Measure:
    """Return whether Connect's own words stand in the schemas of a part."""

    def measure(written: Written) -> bool:
        number = struct.unpack(">I", getattr(written.records[0], part)[1:5])[0]
        return "connect.name" in written.schemas.texts[str(number)]

    return measure


def namespace(written: Written) -> str:
    number = struct.unpack(">I", (written.records[0].value or b"")[1:5])[0]
    return str(json.loads(written.schemas.texts[str(number)])["namespace"])


def subjects(written: Written) -> set[str]:
    return set(written.schemas.subjects)


def is_captured(name: str, value: str, **more: Any) -> Effect:
    return Effect(name, value, topics, ["p.shop.t"], [], paths=STREAM, **more)


NAMES = ["id", "name", "odd"]
WHOLE = {"id": 1, "name": "abc", "odd": 5}
SOURCE_TYPE = {
    "__debezium.source.column.type": "VARCHAR",
    "__debezium.source.column.length": "10",
    "__debezium.source.column.name": "name",
}
CONTEXT = [f"__debezium.context.{name}" for name in ("connectorLogicalName", "taskId", "connectorName", "runId")]
STRATEGY = "{part}.converter.{part}.subject.name.strategy"

EFFECTS = [
    Effect("topic.prefix", "q", topics, ["p.shop.t"], ["q.shop.t"]),
    Effect("tombstones.on.delete", "false", operations, ["c", "u", "d", None], ["c", "u", "d"], paths=STREAM),
    Effect("skipped.operations", "u", operations, ["c", "u", "d", None], ["c", "d", None], paths=STREAM),
    Effect("include.query", "true", lambda w: source(w)["query"], None, QUERY.decode(), paths=STREAM),
    Effect(
        "provide.transaction.metadata",
        "true",
        lambda w: (w.values()[0]["transaction"], topics(w)),
        (None, ["p.shop.t"]),
        (
            {"id": f"{UUID_TEXT}:1", "total_order": 1, "data_collection_order": 1},
            ["p.shop.t", "p.transaction"],
        ),
        paths=STREAM,
    ),
    Effect("topic.transaction", "tx", topics, ["p.shop.t", "p.transaction"], ["p.shop.t", "p.tx"], METADATA, STREAM),
    Effect("extended.headers.enabled", "false", header_names, CONTEXT, [], paths=STREAM),
    Effect("cdc.id.header", "true", header_names, CONTEXT, [*CONTEXT, "cdc-id"], paths=STREAM),
    Effect(
        "heartbeat.interval.ms", "5", topics, ["p.shop.t"], ["__debezium-heartbeat.p", "p.shop.t"], paths=STREAM
    ),
    Effect(
        "topic.heartbeat.prefix",
        "hb",
        topics,
        ["__debezium-heartbeat.p", "p.shop.t"],
        ["hb.p", "p.shop.t"],
        HEARTBEATS,
        STREAM,
    ),
    Effect("key.converter.schemas.enable", "false", has_schema("key"), True, False),
    Effect("value.converter.schemas.enable", "false", has_schema("value"), True, False),
    *(
        Effect(
            f"{part}.converter",
            {name: text for name, text in IN_AVRO.items() if name.startswith(part)},
            first_byte(part),
            b"{",
            b"\0",
        )
        for part in ("key", "value")
    ),
    Effect("value.converter.replace.null.with.default", "true", lambda w: row(w)["name"], None, "d", null=True),
    Effect(
        "value.converter.ignore.default.for.nullables",
        "false",
        lambda w: row(w)["name"],
        None,
        "d",
        IN_AVRO,
        null=True,
    ),
    *(
        Effect(
            f"{part}.converter.connect.meta.data",
            "false",
            schema_texts(part),
            True,
            False,
            IN_AVRO,
        )
        for part in ("key", "value")
    ),
    *(
        Effect(
            STRATEGY.format(part=part),
            "TopicRecordNameStrategy",
            subjects,
            {"p.shop.t-key", "p.shop.t-value"},
            {"p.shop.t-key", "p.shop.t-value", f"p.shop.t-p.shop.t.{name}"} - {f"p.shop.t-{part}"},
            IN_AVRO,
        )
        for part, name in (("key", "Key"), ("value", "Envelope"))
    ),
    Effect("event.contract", "1.9", lambda w: "ts_us" in source(w), True, False),
    Effect("source.struct.version", "v1", lambda w: "ts_sec" in source(w), False, True, {"event.contract": "1.9"}),
    Effect(
        "schema.name.adjustment.mode",
        "avro",
        lambda w: schema(w)["name"],
        "p.shop.t-1.Envelope",
        "p.shop.t_1.Envelope",
        create=CREATE.replace("TABLE t", "TABLE `t-1`"),
    ),
    Effect("field.name.adjustment.mode", "avro", lambda w: list(row(w))[2], "odd-name", "odd_name", create=ODD),
    Effect("column.include.list", r"shop\.t\.name", lambda w: list(row(w)), NAMES, ["name"]),
    Effect("column.exclude.list", r"shop\.t\.name", lambda w: list(row(w)), NAMES, ["id", "odd"]),
    *(
        Effect(name, rf"shop\.t\.{which}", field_schema("name", "parameters"), None, SOURCE_TYPE)
        for name, which in (("column.propagate.source.type", "name"), ("datatype.propagate.source.type", "VARCHAR"))
    ),
    Effect("include.schema.comments", "true", field_schema("name", "doc"), None, "says"),
    Effect("message.key.columns", "shop.t:name", key, {"id": 1}, {"name": "abc"}),
    Effect("transforms", ROUTER, topics, ["p.shop.t"], ["all.t"]),
    Effect("predicates", PREDICATE, topics, ["all.t"], ["p.shop.t"], ROUTER),
    Effect("value.format", TICDC, lambda w: w.values()[0].get("odd"), None, 5),
    Effect(
        "enable-tidb-extension", "true", lambda w: "_tidb_op" in row(w), False, True, TICDC,
    ),
    Effect(
        "ticdc.namespace", "mine", namespace, "default.shop", "mine.shop", TICDC
    ),
    Effect("dispatchers", DISPATCHER, topics, ["p.shop.t"], ["tidb_shop_t"], TICDC),
    is_captured("database.include.list", "other"),
    is_captured("database.exclude.list", "shop"),
    is_captured("table.include.list", r"shop\.other"),
    is_captured("table.exclude.list", r"shop\.t"),
    Effect(
        "table.ignore.builtin", "false", topics, [], ["p.sys.t"], paths=STREAM,
        create=CREATE.replace("TABLE t", "TABLE sys.t"),
    ),
    is_captured("gtid.source.excludes", UUID_TEXT),
    is_captured("gtid.source.includes", OTHER_UUID),
    Effect(
        "gtid.source.filter.dml.events", "false", topics, [], ["p.shop.t"], {"gtid.source.excludes": UUID_TEXT}, STREAM
    ),
    Effect("topic.prefix", "q", lambda w: source(w)["name"], "p", "q", IN_AVRO),
    Effect(
        "provide.transaction.metadata",
        "true",
        lambda w: w.values()[0]["transaction"],
        None,
        {"id": f"{UUID_TEXT}:1", "total_order": 1, "data_collection_order": 1},
        IN_AVRO,
        STREAM,
    ),
    *(Effect("cdc.id.header", "true", cdc_id, None, b'"id":1', given, ("snapshot",)) for given in ({}, IN_AVRO)),
    Effect("source.silence.timeout.ms", "9000", lambda w: w.asked["silence_timeout_s"], 60.0, 9.0, paths=STREAM),
    *(
        Effect(f"{part}.converter.schemas.enable", "false", side_schema(part, topic), True, False, given, STREAM)
        for part in ("key", "value")
        for topic, given in (("__debezium-heartbeat.p", HEARTBEATS), ("p.transaction", METADATA))
    ),
    Effect("database.server.id", "77", lambda w: w.asked["server_id"] == 77, False, True, paths=STREAM),
]  # fmt: skip
PATHS = [
    *BOTH,
    *(pytest.param(f"{path} by the kernel", marks=pytest.mark.native) for path in BOTH),
]


def written(monkeypatch: pytest.MonkeyPatch, path: str, effect: Effect, properties: dict[str, str]) -> Written:
    """Return what is written of the row, and in the stream of its life."""
    native = "kernel" in path
    if path.startswith("stream"):
        changes = [(WRITE, image(1, None))] if effect.null else LIFE
        return drain(monkeypatch, effect.create, changes, properties, native=native)
    values = [b"1", None if effect.null else b"abc", b"5"]
    return snapshot(monkeypatch, effect.create, values, properties, native=native)[0]


@pytest.mark.req("TXN-01", "TXN-06", "CFG-38", "CFG-71", "CFG-124", "STRM-12", "STRM-14", "STRM-15", "STRM-17")
@pytest.mark.parametrize("path", PATHS)
def test_a_property_changes_what_is_written(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    tried = [effect for effect in EFFECTS if path.split(maxsplit=1)[0] in effect.paths]
    for effect in tried:
        changed = effect.value if isinstance(effect.value, dict) else {effect.name: effect.value}
        for more, wanted in (({}, effect.before), (changed, effect.after)):
            properties = {**effect.given, **more}
            with case(path, effect.name, properties):
                assert effect.measure(written(monkeypatch, path, effect, properties)) == wanted
    assert len(tried) > 15


def test_each_case_changes_something() -> None:
    assert [effect.name for effect in EFFECTS if effect.before == effect.after] == []


@pytest.mark.req("STRM-15", "CFG-66")
def test_truncations_are_written_where_they_are_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = [(QUERY_EVENT, b"TRUNCATE TABLE shop.t")]
    assert operations(drain(monkeypatch, CREATE, statement)) == []
    assert operations(drain(monkeypatch, CREATE, statement, {"skipped.operations": "none"})) == ["t"]


@pytest.mark.req("MET-26", "MET-27", "MET-28")
@pytest.mark.parametrize("native", [False, pytest.param(True, marks=pytest.mark.native)])
def test_rows_are_counted_by_what_happened_to_them(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    found = drain(monkeypatch, CREATE, [*LIFE, LIFE[0], LIFE[0], LIFE[1]], native=native)
    assert found.native_rows() == 6 * native and found.writer is not None
    meter = found.writer.output.counts.meter
    assert (meter.created, meter.updated, meter.deleted) == (3, 2, 1)


UNAVAILABLE = [
    ("TEXT", {}, "__debezium_unavailable_value"),
    ("TEXT", {"unavailable.value.placeholder": "gone"}, "gone"),
    ("INT", {}, None),
    ("INT", {"unavailable.value.as.null": "true"}, None),
]


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=pytest.mark.native)])
def test_what_a_row_image_lacks_is_written_as_the_properties_say(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    for declared, properties, wanted in UNAVAILABLE:
        create = f"CREATE TABLE t (id INT PRIMARY KEY, name {declared}, n INT)"
        changes = [(UPDATE, b"\0" + struct.pack("<ii", 1, 4) + b"\0" + struct.pack("<ii", 1, 5))]
        fails = declared == "INT" and not properties
        with case(declared, properties), pytest.raises(ValueDecodeError) if fails else nullcontext():
            found = drain(monkeypatch, create, changes, properties, native=native, present=b"\xfd")
            assert row(found)["name"] == wanted


@pytest.mark.req("CFG-28", "STRM-23")
@pytest.mark.parametrize("path", BOTH)
def test_a_row_that_cannot_be_written_goes_where_the_properties_say(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """A TIME(3) of more than a day does not fit the type that mode ``adaptive`` gives it."""
    monkeypatch.setattr(dead_letter, "make_admin", lambda settings: None)
    monkeypatch.setattr(dead_letter, "ensure_topics", lambda admin, topics: None)
    create, mode = "CREATE TABLE t (id INT PRIMARY KEY, c TIME(3))", {"time.precision.mode": "adaptive"}
    long_time = (1 << 23 | 838 << 12 | 59 << 6 | 59).to_bytes(3, "big") + bytes(2)

    def topics_with(**given: str) -> list[str]:
        properties = mode | {name.replace("__", "."): text for name, text in given.items()}
        if path == "stream":
            rows = [(WRITE, b"\0" + struct.pack("<i", 1) + long_time)]
            return topics(drain(monkeypatch, create, rows, properties))
        return topics(snapshot(monkeypatch, create, [b"1", b"838:59:59.000"], properties)[0])

    with pytest.raises(ValueDecodeError):
        topics_with()
    assert topics_with(event__processing__failure__handling__mode="skip") == []
    letters = {"errors.deadletterqueue.topic.name": "dead"}
    assert topics_with(event__processing__failure__handling__mode="skip", **letters) == ["dead"]
    assert topics_with(errors__tolerance="all", **letters) == ["dead"]
    with pytest.raises(ValueDecodeError):
        topics_with(errors__tolerance="all", event__processing__failure__handling__mode="fail")
