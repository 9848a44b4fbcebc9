"""Transforms: what they rename, what they add to keys, and what is refused."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, context, image, packet, table, table_map, write
from kit.drain_rig import routes_of

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import row_layout
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.drain import topic_shares as topics_ahead
from airflow_provider_mysql_cdc.cdc.drain.side_records import TransactionMetadata, heartbeat
from airflow_provider_mysql_cdc.cdc.emit.topic_names import table_topics
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.record_topics import assign_partitions, topic_share
from airflow_provider_mysql_cdc.cdc.job import topic_guard
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import Rewrite, parse_replacement
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo
from airflow_provider_mysql_cdc.cdc.transforms.known_transforms import CONNECT
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainRecord

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
INSERT = "io.debezium.connector.mysql.transforms.ReadToInsertEvent"
REGEX = "org.apache.kafka.connect.transforms.RegexRouter"
LOGICAL = "io.debezium.transforms.ByLogicalTableRouter"
IDENTIFIER = "__dbz__physicalTableIdentifier"
T = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
MAP = table_map((wt.LONG, 0), (wt.LONG, 0))


def steps(**transforms: dict[str, str]) -> dict[str, str]:
    """Return the properties of transforms: name to settings."""
    found = {"transforms": ",".join(transforms)}
    for name, settings in transforms.items():
        found |= {f"transforms.{name}.{setting}": text for setting, text in settings.items()}
    return found


def regex(expression: str, new: str) -> dict[str, str]:
    return {"type": REGEX, "regex": expression, "replacement": new}


def logical(expression: str, new: str, **more: str) -> dict[str, str]:
    rest = {name.replace("__", "."): text for name, text in more.items()}
    return {"type": LOGICAL, "topic.regex": expression, "topic.replacement": new, **rest}


def config(given: dict[str, str], **more: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **given, **{n.replace("__", "."): v for n, v in more.items()}})


def problems(given: dict[str, str]) -> dict[str, Problem]:
    return {p.name: p for p in ConnectorConfig.check({**BASE, **given})}


def decoder(cfg: ConnectorConfig, made: Table = T) -> RowDecoder:
    options = table_options.table_options(cfg, made)
    return compile_decoder(made, MAP, options, table_options.envelope_text(cfg, made, options))


def row(number: int, n: int = 7) -> bytes:
    return image(2, struct.pack("<ii", number, n))


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("TOPIC-05")
@for_each(
    ("expression", "new", "name", "expected"),
    [
        ("(.*)_(\\d+)", "$1", "p.d.t_7", "p.d.t"),
        ("(.*)_(\\d+)", "$1", "p.d.t_7x", None),
        ("p\\.d\\.t", "x", "P.d.t", None),
        ("p.d", "x", "a.p.d", None),
        ("(a)(b)?c", "$1-$2-", "ac", "a--"),
        ("(?<db>.*)\\.(?<table>.*)", "${table}.${db}", "p.t", "t.p"),
        ("(.)b", "\\$1$1\\\\$0", "ab", "$1a\\ab"),
        ("(.)b", "$12", "ab", "a2"),
        # replaceFirst searches anew and may find less than the whole name.
        ("a|ab", "x", "ab", "xb"),
        (".*?", "x", "ab", "xab"),
        ("\\Qp.d\\E.*", "x", "p.d.t", "x"),
    ],
)
def test_names_are_rewritten_as_java_does(expression: str, new: str, name: str, expected: str | None) -> None:
    assert config(steps(a=regex(expression, new))).families.transforms.routers[0].rewrite(name) == expected


def test_more_than_nine_groups_take_as_many_digits_as_there_are_groups() -> None:
    pattern = re.compile("(.)" * 11)
    assert Rewrite(pattern, parse_replacement("$11-$12", pattern))("abcdefghijk") == "k-a2"


@for_each("new", ["$2", "$", "$x", "${no}", "a\\", "${1}"])
def test_a_replacement_that_java_would_refuse_is_refused_at_the_start(new: str) -> None:
    assert list(problems(steps(a=regex("(.*)", new)))) == ["transforms.a.replacement"]


@pytest.mark.req("TOPIC-05", "TOPIC-06", "TOPIC-09", "TXN-06")
def test_all_topics_of_the_source_pass_the_transforms_in_their_order() -> None:
    given = steps(one=regex("(.*)p(.*)", "$1q$2"), two=regex("q", "q.ddl"))
    cfg = config(given, provide__transaction__metadata="true", heartbeat__interval__ms="1")
    assert record_topics.table_topic_name(cfg, TableId("d", "t")) == "q.d.t"
    assert record_topics.schema_change_topic(cfg) == "q.ddl"
    transactions = TransactionMetadata(cfg)
    transactions.begin("uuid:1", "f", 4)
    assert transactions.begin_record()[0] == "q.transaction"
    assert heartbeat(cfg)[0] == "__debezium-heartbeat.q"
    assert (cfg.history_topic, cfg.ledger_topic) == ("schemahistory.p", "ledger.p")


def test_a_name_that_a_router_makes_empty_is_kept_or_refused() -> None:
    assert record_topics.table_topic_name(config(steps(a=logical("(x?)p.*", "$1"))), T.id) == "p.db.t"
    with pytest.raises(ConfigError, match="not a topic name that Kafka allows"):
        record_topics.table_topic_name(config(steps(a=regex("p.*", ""))), T.id)


@for_each("new", ["ledger.p", "schemahistory.p", "dead", "a b", "..", "x" * 250])
def test_events_cannot_be_routed_to_what_is_not_for_them(new: str) -> None:
    cfg = config(steps(a=regex("p.*", new)), errors__deadletterqueue__topic__name="dead")
    with pytest.raises(ConfigError, match="transforms routes to"):
        record_topics.table_topic_name(cfg, T.id)


@pytest.mark.req("FAULT-32", "TOPIC-05")
def test_tables_may_share_a_topic_only_where_a_transform_says_so() -> None:
    def named(cfg: ConnectorConfig, *tables: str) -> dict[TableId, str]:
        ids = [TableId("d", t) for t in tables]
        return table_topics(
            "p", ids, reserved=record_topics.reserved_topics(cfg), route_topic=lambda t: cfg.route_topic(t).topic
        )

    shards = config(steps(a=logical("(.*)_\\d", "$1")))
    assert set(named(shards, "t_1", "t_2", "t").values()) == {"p.d.t"}
    with pytest.raises(ConfigError, match=r"p\.d\.a_1: d\.a 1, d\.a_1"):
        named(shards, "a 1", "a_1")
    long = "x" * 250
    assert named(config(steps(a=regex(".*x", "short"))), long) == {TableId("d", long): "short"}


# -- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("EX-38", "SNAP-41")
def test_reads_become_creates_and_nothing_else_changes() -> None:
    read, create = [], []
    for out, cfg in ((read, config({})), (create, config(steps(a={"type": INSERT})))):
        options = table_options.table_options(cfg, T)
        compile_text_decoder(T, options, table_options.envelope_text(cfg, T, options))(
            packet(b"1", None), 0, context(), out
        )
    assert [[r[1].count(op) for op in (b'"op":"r"', b'"op":"c"')] for r in (*read, *create)] == [[1, 0], [0, 1]]
    assert [(r[0], r[1].replace(b'"op":"c"', b'"op":"r"'), *r[2:]) for r in create] == read


@pytest.mark.req("TOPIC-05", "EVT-04")
def test_a_logical_table_names_schemas_and_keeps_tables_apart_in_the_key() -> None:
    cfg = config(steps(a=logical("(.*)\\.t", "$1.all-t")))
    ((key, value, *_),) = write(decoder(cfg), row(1), columns=2)
    assert key == (
        b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"},'
        b'{"type":"string","optional":false,"field":"__dbz__physicalTableIdentifier"}],"optional":false,'
        b'"name":"p.db.all-t.Key"},"payload":{"id":1,"__dbz__physicalTableIdentifier":"p.db.t"}}'
    )
    plain = write(decoder(config({})), row(1), columns=2)[0][1]
    schema = plain.replace(b"p.db.t.Value", b"p.db.all-t.Value").replace(b"p.db.t.Envelope", b"p.db.all-t.Envelope")
    assert value == schema
    assert value.count(b"p.db.all-t.Value") == 2


def test_the_key_field_takes_name_and_value_from_the_settings() -> None:
    more = {"key__field__name": "größe", "key__field__regex": "p\\.(.*)\\.t", "key__field__replacement": "<$1>"}
    cfg = config(steps(a=logical("p.*", "all", **more)), key__converter__schemas__enable="false")
    assert write(decoder(cfg), row(1), columns=2)[0][0] == '{"id":1,"größe":"<db>"}'.encode()
    more["key__field__regex"] = "no(.)"
    cfg = config(steps(a=logical("p.*", "all", **more)), key__converter__schemas__enable="false")
    assert write(decoder(cfg), row(1), columns=2)[0][0] == '{"id":1,"größe":"p.db.t"}'.encode()
    cfg = config(steps(a=logical("p.*", "all", key__enforce__uniqueness="false")))
    assert json.loads(write(decoder(cfg), row(1), columns=2)[0][0])["payload"] == {"id": 1}


def test_schema_names_are_adjusted_as_the_transform_says() -> None:
    given = steps(a=logical("p.*", "9-all"), b=regex("9.*", "other"))
    adjusted = {**given, "transforms.a.schema.name.adjustment.mode": "avro"}
    old = {**given, "event.contract": "1.9"}
    for properties, name in ((given, "9-all.Key"), (adjusted, "_9_all.Key"), (old, "__all.Key")):
        cfg = config(properties)
        assert json.loads(write(decoder(cfg), row(1), columns=2)[0][0])["schema"]["name"] == name
        assert record_topics.table_topic_name(cfg, T.id) == "other"


def test_every_way_of_reading_a_row_makes_the_same_key() -> None:
    """Full and incomplete images, updates, key changes, rows that cannot be decoded, snapshot rows."""
    cfg = config(steps(a=logical("p.*", "all")), key__converter__schemas__enable="false")
    made, expected = decoder(cfg), b'{"id":1,"__dbz__physicalTableIdentifier":"p.db.t"}'
    out: list[Any] = []
    whole = b"\x03"
    update = whole * 2 + row(1) + row(1, 8) + row(1) + row(2)
    made.update(update, 2, len(update), context(), out)
    partial = b"\x01" + image(1, struct.pack("<i", 1))
    made.delete(partial, 1, len(partial), context(), out)
    options = table_options.table_options(cfg, T)
    compile_text_decoder(T, options, table_options.envelope_text(cfg, T, options))(
        packet(b"1", b"7"), 0, context(), out
    )
    other = expected.replace(b":1", b":2")
    assert [r[0] for r in out] == [expected, expected, expected, other, expected, expected, expected]
    # Headers of a key change keep the key as it was: transforms do not look at headers.
    assert [r[4] for r in out if r[4]] == [
        ("__debezium.newkey", b'{"id":2}'),
        ("__debezium.newkey", b'{"id":2}'),
        ("__debezium.oldkey", b'{"id":1}'),
    ]
    salvaged = made.partial_decoder().row(row(1), 0, row_layout(whole, 2, 1))
    assert made.key_bytes(salvaged.key) == expected


def test_a_table_without_a_key_gets_none() -> None:
    cfg = config(steps(a=logical("p.*", "all")))
    assert write(decoder(cfg, replace(T, primary_key=())), row(1), columns=2)[0][0] is None


def test_a_column_named_like_the_added_field_is_refused() -> None:
    with pytest.raises(SchemaError, match="the key already has a field id"):
        decoder(config(steps(a=logical("p.*", "all", key__field__name="id"))))
    with pytest.raises(SchemaError, match=IDENTIFIER):
        decoder(config(steps(a=logical("p.*", "all"), b=logical("all", "more"))))


@pytest.mark.parametrize("schema", ["true", "false"])
def test_other_records_get_the_field_too_and_keep_their_value(schema: str) -> None:
    given = steps(a=logical("p.transaction", "tx", key__field__name="from"))
    more = {"provide__transaction__metadata": "true", "key__converter__schemas__enable": schema}
    before, after = TransactionMetadata(config({}, **more)), TransactionMetadata(config(given, **more))
    for one in (before, after):
        one.begin("uuid:1", "f", 4)
    (_, old, *_), (topic, new, value, _) = before.begin_record(), after.begin_record()
    assert topic == "tx" and old is not None and new is not None and value is not None
    name = b"io.debezium.connector.common.TransactionMetadataKey"
    field = b'{"type":"string","optional":false,"field":"from"}'
    expected = old.replace(name, b"tx.Key").replace(b'"id"}]', b'"id"},' + field + b"]")
    assert new == expected.replace(b'"id":"uuid:1"', b'"id":"uuid:1","from":"p.transaction"')


# -- settings ---------------------------------------------------------------------------------------------------------


def test_all_problems_of_transforms_are_reported_at_once() -> None:
    given = steps(
        a={"type": REGEX, "regex": "(", "extra": "1"},
        b={"type": "com.example.Mine", "predicate": "x", "negate": "true"},
        c=logical(" ", "", key__field__regex="x", schema__name__adjustment__mode="y", key__enforce__uniqueness="z"),
        d={},
        e=logical("x", "y", key__field__regex="x"),
    )
    found = problems({**given, "transforms": given["transforms"] + ",a", "transforms.no.type": INSERT})
    assert sorted(found) == [
        "transforms",
        "transforms.a.extra",
        "transforms.a.regex",
        "transforms.a.replacement",
        "transforms.b.predicate",
        "transforms.b.type",
        "transforms.c.key.enforce.uniqueness",
        "transforms.c.schema.name.adjustment.mode",
        "transforms.c.topic.regex",
        "transforms.c.topic.replacement",
        "transforms.d.type",
        "transforms.e.key.field.replacement",
        "transforms.no.type",
    ]
    assert all(p.what and p.fix for p in found.values())
    assert (
        found["transforms.b.type"].what.startswith("not supported") and "Transforms" in found["transforms.b.type"].fix
    )


MATCHES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"


@pytest.mark.parametrize(
    ("more", "routed"),
    [({}, {"p.d.a": "all", "p.d.b": "p.d.b"}), ({"negate": "true"}, {"p.d.a": "p.d.a", "p.d.b": "all"})],
)
def test_a_router_applies_where_its_predicate_matches_the_whole_topic(
    more: dict[str, str], routed: dict[str, str]
) -> None:
    given = steps(a={"type": REGEX, "regex": ".*", "replacement": "all", "predicate": "one", **more})
    given |= {"predicates": "one,unused", "predicates.one.type": MATCHES, "predicates.one.pattern": r"p\.d\.[a]"}
    given |= {"predicates.unused.type": MATCHES, "predicates.unused.pattern": "x"}
    cfg = config(given)
    assert {topic: cfg.route_topic(topic).topic for topic in routed} == routed
    assert ConnectorConfig.from_properties(cfg.properties()).families.transforms == cfg.families.transforms
    pins = property_pins(cfg, snapshot=False)
    assert {"predicates", "predicates.one.pattern", "transforms.a.predicate"} <= pins.keys()


def test_the_name_before_the_router_counts_for_its_predicate() -> None:
    given = steps(
        a={"type": REGEX, "regex": "p.d.(.*)", "replacement": "$1"},
        b={"type": REGEX, "regex": "(.*)", "replacement": "x.$1", "predicate": "short"},
    )
    cfg = config(given | {"predicates": "short", "predicates.short.type": MATCHES, "predicates.short.pattern": "t"})
    assert (cfg.route_topic("p.d.t").topic, cfg.route_topic("p.d.u").topic) == ("x.t", "u")


def test_what_is_wrong_with_predicates_is_reported() -> None:
    given = steps(
        a={"type": REGEX, "regex": "x", "replacement": "y", "negate": "true"},
        b={"type": REGEX, "regex": "x", "replacement": "y", "predicate": "nobody"},
        c={"type": "org.apache.kafka.connect.transforms.Filter"},
        d={"type": REGEX, "regex": "x", "replacement": "y", "predicate": "good", "negate": "perhaps"},
    )
    given |= {
        "predicates": "good,unknown,bare,wrong",
        "predicates.good.type": MATCHES,
        "predicates.good.pattern": "x",
        "predicates.unknown.type": "com.example.Mine",
        "predicates.bare.pattern": "x",
        "predicates.wrong.type": MATCHES,
        "predicates.wrong.pattern": "(",
        "predicates.wrong.extra": "1",
        "predicates.other.type": MATCHES,
    }
    found = problems(given)
    assert sorted(found) == [
        "predicates.bare.type",
        "predicates.other.type",
        "predicates.unknown.type",
        "predicates.wrong.extra",
        "predicates.wrong.pattern",
        "transforms.a.negate",
        "transforms.b.predicate",
        "transforms.c.predicate",
        "transforms.d.negate",
    ]
    assert all(p.what and p.fix for p in found.values())


def test_settings_survive_the_way_to_a_spark_task() -> None:
    cfg = config(steps(a=logical("p.*", "all", logical__table__cache__size="5"), b={"type": INSERT}))
    again = ConnectorConfig.from_properties(cfg.properties())
    assert again.families.transforms == cfg.families.transforms
    assert cfg.families.transforms.read_is_create and again[F.TRANSFORMS] == ("a", "b")
    assert [n for n in cfg.notes if "cache.size has no effect" in n]


# -- writers ----------------------------------------------------------------------------------------------------------


def offset(pos: int) -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos, None, "uuid")


def plan(**more: Any) -> BatchPlan:
    return BatchPlan(epoch=3, kind="drain", start=offset(4), end=offset(900), writers=3, **more)


def test_a_shared_topic_has_one_owner_for_each_partition_whatever_table_a_row_is_of() -> None:
    cfg = config(steps(a=logical("(.*)_\\d", "$1")))
    topics = [record_topics.table_topic_name(cfg, TableId("d", name)) for name in ("t_1", "t_2")]
    counts = {"p.d.t": 4, "p.d.u": 4, "p": 1}
    made = plan(partitions=counts, assignment=assign_partitions(counts, {"p.d.t": 100, "p.d.u": 1}, 3))
    for topic in topics:
        shares = [topic_share(made, writer, topic, 1) for writer in range(3)]
        assert sorted(p for share in shares for p in share.assigned) == [0, 1, 2, 3]
        assert sum(bool(share.assigned) for share in shares) > 1
        assert shares == [topic_share(made, writer, "p.d.t", 1) for writer in range(3)]


def test_a_topic_of_tables_and_schema_changes_belongs_to_the_first_writer() -> None:
    dealt = assign_partitions({"all": 4, "u": 4, "v": 4}, {"all": 1000, "u": 10, "v": 10}, 3, {"all"})
    assert dealt["all"] == (0, 0, 0, 0)
    assert 0 not in dealt["u"] + dealt["v"]


def test_a_plan_knows_the_topics_to_which_tables_are_routed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"p": 1, "p.d.x": 2, "all": 5, "stranger": 9}
    monkeypatch.setattr(topic_guard, "make_admin", lambda settings: None)
    monkeypatch.setattr(topic_guard, "all_partition_counts", lambda admin: found)
    tables = [TableId("d", "t"), TableId("mysql", "user")]
    assert topic_guard.topic_partitions(config({}), tables) == {"p.d.x": 2}
    assert topic_guard.topic_partitions(config(steps(a=regex(".*\\.t", "all"))), tables) == {"p.d.x": 2, "all": 5}


def test_a_new_table_is_written_to_all_partitions_that_an_old_topic_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = config(steps(a=regex(".*\\.t", "all")), topic__creation__default__partitions="2")
    monkeypatch.setattr(topics_ahead, "make_admin", lambda settings: None)
    monkeypatch.setattr(topics_ahead, "ensure_topics", lambda admin, topics: ())
    monkeypatch.setattr(topics_ahead, "describe_created", lambda admin, topics, at: {"all": TopicInfo(5, "id")})
    types = {"column_types": MAP.column_types, "column_meta": MAP.column_meta, "names": None}
    announced = SimpleNamespace(db="db", table="t", **types)
    shares = []
    for writer in range(3):
        state: Any = SimpleNamespace(tables={T.id: T})
        made: Any = announced
        event: Any = None
        shares.append(routes_of(cfg, plan(), writer)._table_route(made, state, event).share)
    assert [share.partitions for share in shares if share.assigned] == [5]


@for_each(
    ("kind", "options", "applied"),
    [
        ("InsertField$Value", {"static.field": " f ", "static.value": " v "}, {"f": "v"}),
        ("HoistField$Value", {"field": " f "}, {"f": {}}),
        ("HoistField$Value", {"field": "f", "predicate": "p"}, {"f": {}}),
    ],
)
def test_options_of_connect_lose_the_blanks_around_them(kind: str, options: dict[str, str], applied: Any) -> None:
    given = steps(a={"type": f"org.apache.kafka.connect.transforms.{kind}", **options})
    given |= {
        "predicates": "p",
        "predicates.p.type": f"{CONNECT}predicates.TopicNameMatches",
        "predicates.p.pattern": " t ",
    }
    cfg = config(given)
    assert cfg.chain is not None
    out = cfg.chain.apply(ChainRecord("t", None, None, None, RecordSchema("struct"), {}))
    assert out is not None and out.value == applied


def test_a_null_that_transforms_put_into_a_key_is_not_kept_silently() -> None:
    name, unwrap = (
        "key.converter.replace.null.with.default",
        steps(u={"type": "io.debezium.transforms.ExtractNewRecordState"}),
    )
    assert config(unwrap | {name: "true"}).chain is not None and config({name: "false"}).chain is None
    with pytest.raises(ConfigError, match=rf"{name} \(value 'false'\): does not go with transforms"):
        config(unwrap | {name: "false"})
