"""The whole configuration: problems, aliases, notes, secrets, filters."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import read_properties as read
from airflow_provider_mysql_cdc.cdc.config import undeclared_properties as known
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

BASE: dict[str, object] = {
    "topic.prefix": "shop",
    "database.hostname": "mysql",
    "database.user": "cdc",
    "database.password": "s3cret-pw",
    "kafka.bootstrap.servers": "kafka:9092",
}
EX_36 = (
    '{"name":"inventory-connector","config":{"connector.class":"io.debezium.connector.mysql.MySqlConnector",'
    '"database.hostname":"192.168.99.100","database.port":"3306","database.user":"debezium-user",'
    '"database.password":"debezium-user-pw","database.server.id":"184054","database.server.name":"fullfillment",'
    '"database.include.list":"inventory","database.history.kafka.bootstrap.servers":"kafka:9092",'
    '"database.history.kafka.topic":"dbhistory.fullfillment","include.schema.changes":"true"}}'
)
EX_37 = (
    '{"kind":"KafkaConnector","metadata":{"name":"inventory-connector","labels":{"strimzi.io/cluster":"c"}},'
    '"spec":{"class":"io.debezium.connector.mysql.MySqlConnector","tasksMax":1,"config":{"database.hostname":"mysql",'
    '"database.port":3306,"database.user":"debezium","database.password":"dbz","database.server.id":184054,'
    '"database.server.name":"dbserver1","database.include.list":"inventory",'
    '"database.history.kafka.bootstrap.servers":"my-cluster-kafka-bootstrap:9092",'
    '"database.history.kafka.topic":"schema-changes.inventory"}}}'
)
DEBEZIUM_3 = {
    "name": "cap",
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "database.hostname": "h",
    "database.port": "3306",
    "database.user": "u",
    "database.password": "p",
    "database.server.id": "5556",
    "topic.prefix": "cap",
    "schema.history.internal.kafka.bootstrap.servers": "k:9092",
    "schema.history.internal.kafka.topic": "schemahistory.cap",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
    "topic.creation.default.message.timestamp.type": "CreateTime",
    "max.queue.size": 8192,
    "database.allowPublicKeyRetrieval": True,
    "read.only": False,
    "schema.name.adjustment.mode": "none",
}


def config(**more: Any) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **dots(more)})


def dots(names: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in names.items()}


def problem(name: str, value: object, **more: Any) -> Problem:
    problems = ConnectorConfig.check({**BASE, name: value, **dots(more)})
    assert [p.name for p in problems] == [name], problems
    return problems[0]


def test_defaults_are_debeziums_and_the_result_is_typed() -> None:
    cfg = config()
    assert cfg[F.DATABASE_PORT] == 3306
    assert cfg[F.SNAPSHOT_MODE] is F.SnapshotMode.INITIAL
    assert cfg[F.TOMBSTONES_ON_DELETE] is True
    assert {str(o) for o in cfg[F.SKIPPED_OPERATIONS]} == {"t"}
    assert cfg[F.VALUE_REPLACE_NULL_WITH_DEFAULT] is False
    assert cfg[F.DATABASE_PASSWORD].reveal() == "s3cret-pw"
    assert (cfg.ledger_topic, cfg.history_topic, cfg.topic_prefix) == ("ledger.shop", "schemahistory.shop", "shop")
    assert cfg.notes == ()
    assert not cfg.is_set(F.DATABASE_PORT)
    assert cfg.is_set(F.TOPIC_PREFIX)


@pytest.mark.req("FAULT-02", "FAULT-05")
def test_all_problems_are_reported_at_once_each_with_value_and_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectorConfig.from_properties(
            {
                "topic.prefx": "a",
                "database.port": "abc",
                "snapshot.mode": "inital",
                "drain.writers": 65,
                "no.such.thing": "x",
                "database.hostname": "h",
            }
        )
    text = str(caught.value)
    for part in (
        "7 problems",
        "topic.prefx='a': unknown property. Write topic.prefix",
        "database.port='abc': must be a whole number",
        "snapshot.mode='inital': must be one of initial",
        "Write initial, if that is meant",
        "drain.writers='65': must be at most 64",
        "no.such.thing='x': unknown property",
        "database.user: is required and missing",
        "kafka.bootstrap.servers: is required and missing",
        "docs/properties.md explains every property",
        "A retry will not help",
    ):
        assert part in text
    assert "topic.prefix: is required" not in text, "the misspelt name is one problem, not two"


def test_one_problem_is_one_sentence() -> None:
    with pytest.raises(ConfigError) as caught:
        config(database__port="0")
    assert caught.value.what == "database.port (value '0'): must be at least 1"


@for_each(
    ("given", "meant"),
    [
        ("database.hostnam", "database.hostname"),
        ("Topic.Prefix", "topic.prefix"),
        ("topic_prefix", "topic.prefix"),
        ("table.includelist", "table.include.list"),
        ("snapshot.lockingmode", "snapshot.locking.mode"),
        ("commit.byte", "commit.bytes"),
        ("database.server_id", "database.server.id"),
        ("database.read_timout", "database.read_timeout"),
        ("max.queue.sise", "max.queue.size"),
        ("schema.registry.url", "value.converter.schema.registry.url"),
        ("history.internal.kafka.topic", "schema.history.internal.kafka.topic"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(given: str, meant: str) -> None:
    problems = ConnectorConfig.check({**BASE, given: "1"})
    assert [(p.name, p.what) for p in problems] == [(given, "unknown property")]
    assert problems[0].fix == f"Write {meant}, if that is meant"


@pytest.mark.req("CFG-01", "CFG-08", "CFG-74")
@for_each(
    ("document", "prefix", "server_id", "history"),
    [
        (EX_36, "fullfillment", 184054, "dbhistory.fullfillment"),
        (EX_37, "dbserver1", 184054, "schema-changes.inventory"),
        (json.dumps(DEBEZIUM_3), "cap", 5556, "schemahistory.cap"),
        (json.dumps({"name": "cap", "config": DEBEZIUM_3}), "cap", 5556, "schemahistory.cap"),
    ],
)
def test_a_kafka_connect_configuration_is_accepted_as_it_is(
    document: str, prefix: str, server_id: int, history: str
) -> None:
    cfg = ConnectorConfig.from_connect_json(document)
    assert (cfg.topic_prefix, cfg[F.DATABASE_SERVER_ID], cfg.history_topic) == (prefix, server_id, history)
    assert cfg.kafka_settings()["bootstrap.servers"] == cfg[F.HISTORY_KAFKA_BOOTSTRAP_SERVERS]
    assert cfg[F.NAME] in ("inventory-connector", "cap")


@pytest.mark.req("CFG-02")
def test_another_connectors_class_is_refused() -> None:
    mysql = "io.debezium.connector.mysql.MySqlConnector"
    assert ConnectorConfig.check({**BASE, "connector.class": mysql}) == []
    (found,) = ConnectorConfig.check({**BASE, "connector.class": "io.debezium.connector.postgresql.PostgresConnector"})
    assert (found.name, found.what) == ("connector.class", f"must be {mysql}")


@pytest.mark.req("CFG-75", "SCH-14")
@pytest.mark.parametrize("name", ["database.history", "schema.history.internal"])
def test_the_cluster_of_the_history_is_that_of_the_events(name: str) -> None:
    given = {k: v for k, v in BASE.items() if k != "kafka.bootstrap.servers"} | {
        f"{name}.kafka.bootstrap.servers": "h:9"
    }
    cfg = ConnectorConfig.from_properties(given)
    for client in ("producer", "consumer", "admin"):
        assert cfg.kafka_settings(client)["bootstrap.servers"] == "h:9"
    (found,) = ConnectorConfig.check(given | {"kafka.bootstrap.servers": "other:9"})
    assert found.name == "schema.history.internal.kafka.bootstrap.servers" and "in one cluster" in found.what
    assert ConnectorConfig.check(given | {"kafka.bootstrap.servers": "h:9"}) == []


@pytest.mark.parametrize("document", ["not json", "[1]", '"text"'])
def test_another_document_is_refused_by_name(document: str) -> None:
    with pytest.raises(ConfigError, match=r"not JSON|not a JSON object"):
        ConnectorConfig.from_connect_json(document)


def test_older_names_are_accepted_and_noted() -> None:
    cfg = ConnectorConfig.from_connect_json(EX_36)
    assert "database.server.name is read as topic.prefix" in cfg.notes
    assert "database.history.kafka.topic is read as schema.history.internal.kafka.topic" in cfg.notes
    assert "database.server.name" not in cfg.properties()
    assert config(**{"snapshot.max.threads": 4})[F.SNAPSHOT_PARALLELISM] == 4
    assert config(**{"snapshot.mode": "schema_only"})[F.SNAPSHOT_MODE] is F.SnapshotMode.NO_DATA
    assert config(**{"snapshot.mode": "schema_only_recovery"})[F.SNAPSHOT_MODE] is F.SnapshotMode.RECOVERY
    assert config(**{"transaction.topic": "${database.server.name}.tx"})[F.TOPIC_TRANSACTION] == "tx"
    assert "use topic.transaction" in problem("transaction.topic", "${other}.tx").what


def test_two_names_of_one_property_may_agree_but_not_contradict() -> None:
    assert config(database__server__name="shop").topic_prefix == "shop"
    with pytest.raises(ConfigError, match="contradicts"):
        config(database__server__name="other")


@pytest.mark.req("CFG-03")
@for_each("name", ["tasks.max", "max.queue.size", "max.batch.size", "queue.provider.type"])
def test_what_has_no_effect_is_accepted_and_noted(name: str) -> None:
    cfg = config(**{name: "5"})
    assert any(note.startswith(f"{name} has no effect: ") for note in cfg.notes)
    assert cfg.properties()[name] == "5"


@pytest.mark.req("FAULT-20", "STRM-12", "STRM-13")
@for_each(
    "pair",
    [
        ("database.include.list", "database.exclude.list"),
        ("table.include.list", "table.exclude.list"),
        ("column.include.list", "column.exclude.list"),
        ("gtid.source.includes", "gtid.source.excludes"),
        ("table.whitelist", "table.blacklist"),
    ],
)
def test_include_and_exclude_exclude_each_other(pair: tuple[str, str]) -> None:
    problems = ConnectorConfig.check({**BASE, pair[0]: "a", pair[1]: "b"})
    assert any(p.name == pair[1] and "cannot be combined with" in p.what for p in problems)
    assert not any(
        "cannot be combined with" in p.what for p in ConnectorConfig.check({**BASE, pair[0]: "a", pair[1]: ""})
    )


@for_each(
    ("name", "value"),
    [
        ("value.converter", "io.confluent.connect.protobuf.ProtobufConverter"),
        ("snapshot.mode", "custom"),
        ("snapshot.locking.mode", "custom"),
        ("schema.history.internal", "io.debezium.storage.file.history.FileSchemaHistory"),
        ("database.initial.statements", "SET x=1"),
        ("driver.someOption", "1"),
    ],
)
def test_what_is_known_and_not_supported_is_refused_with_the_reason(name: str, value: str) -> None:
    assert problem(name, value).what.startswith("not supported yet: ")


def test_a_property_that_asks_for_what_happens_anyway_is_accepted() -> None:
    for refused in known.REFUSED_PROPERTIES:
        for value in refused.accepted_values:
            name = refused.name.replace("*", "x")
            assert ConnectorConfig.check({**BASE, name: value}) == [], name


def test_settings_of_listed_plugins_are_not_reported_one_by_one() -> None:
    more = {"post.processors": "u", "u.type": "x", "predicates": "p", "predicates.p.type": "y"}
    assert [p.name for p in ConnectorConfig.check({**BASE, **more})] == ["post.processors", "predicates.p.type"]


def test_a_placeholder_of_a_config_provider_is_refused_without_being_shown() -> None:
    refused = problem("database.password", "${file:/secrets:pw}")
    assert "placeholder" in refused.what
    assert refused.value == "***"


@for_each(
    ("name", "value", "fix"),
    [
        (
            "database.password",
            "${file:/run/secrets/db.properties:db.pass}",
            "password of the Airflow connection, or set it in the environment: export "
            'MYSQL_CDC_DATABASE_PASSWORD="$(sed -n \'s/^db\\.pass *= *//p\' /run/secrets/db.properties)"',
        ),
        ("database.user", "${env:DB_USER}", 'login of the Airflow connection, or set it in the environment: export '
         'MYSQL_CDC_DATABASE_USER="${DB_USER}"'),
        ("database.hostname", "db.${dir:/etc/db:host}.local", 'export MYSQL_CDC_DATABASE_HOSTNAME='
         '"db.$(cat /etc/db/host).local"'),
        ("database.server.name", "${vault:secret/db:name}", 'MYSQL_CDC_TOPIC_PREFIX="<the value of name in vault>"'),
    ],
)  # fmt: skip
def test_what_to_write_instead_of_a_placeholder_is_said_word_by_word(name: str, value: str, fix: str) -> None:
    given = {k: v for k, v in BASE.items() if (k, name) != ("topic.prefix", "database.server.name")}
    [refused] = ConnectorConfig.check(given | {name: value})
    assert fix in refused.fix


@for_each(
    ("properties", "name", "text"),
    [
        ({"topic.creation.groups": "a"}, "topic.creation.groups", "a group without include"),
        ({"topic.creation.groups": "a", "topic.creation.a.include": "("}, "topic.creation.a.include", "missing )"),
        ({"topic.creation.b.include": "x"}, "topic.creation.b.include", "no group that topic.creation.groups lists"),
        (
            {"topic.creation.groups": "a", "topic.creation.a.include": "x", "topic.creation.a.partitions": "0"},
            "topic.creation.a.partitions",
            "at least 1",
        ),
        ({"errors.tolerance": "some"}, "errors.tolerance", "none or all"),
    ],
)
def test_groups_and_tolerance_that_mean_nothing_are_refused(properties: dict[str, str], name: str, text: str) -> None:
    [refused] = ConnectorConfig.check(BASE | properties)
    assert refused.name == name
    assert text in refused.what


def test_values_are_texts_numbers_or_booleans() -> None:
    assert config(database__port=3307)[F.DATABASE_PORT] == 3307
    assert config(tombstones__on__delete=False)[F.TOMBSTONES_ON_DELETE] is False
    assert config(database__port=None)[F.DATABASE_PORT] == 3306
    assert "must be a text" in problem("table.include.list", ["a"]).what


@pytest.mark.req("SETUP-02")
def test_secrets_never_show() -> None:
    secret = "s3cret-pw"
    more = {
        "database.ssl.key.password": secret,
        "kafka.sasl.password": secret,
        "kafka.ssl.key.password": secret,
        "producer.override.sasl.jaas.config": f'org.x.PlainLoginModule required username="u" password="{secret}";',
    }
    cfg = config(**more)
    for text in (
        repr(cfg),
        str(cfg),
        str(cfg.redacted_properties()),
        repr(cfg.connection_settings()),
        repr(cfg.families),
    ):
        assert secret not in text
    assert cfg.properties()["database.password"] == secret
    wrong = {**BASE, **more, "database.pasword": secret, "kafka.sasl.pasword": secret, "database.port": "x"}
    with pytest.raises(ConfigError) as caught:
        ConnectorConfig.from_properties(wrong)
    assert secret not in str(caught.value)
    assert secret not in json.dumps(caught.value.to_json())
    salted = {**BASE, "column.mask.hash.SHA-256.with.salt.pepper": "a.b.c"}
    assert "pepper" not in str(ConnectorConfig.check({**salted, "column.mask.hash.NO-1.with.salt.pepper": "a.b.c"}))
    shown = ConnectorConfig.from_properties(salted)
    assert "pepper" not in f"{shown!r} {shown.redacted_properties()} {shown.families!r} {shown.families.columns!r}"
    assert shown.properties()["column.mask.hash.SHA-256.with.salt.pepper"] == "a.b.c"


def test_properties_come_back_and_the_configuration_can_be_pickled() -> None:
    cfg = ConnectorConfig.from_properties({**DEBEZIUM_3, "kafka.linger.ms": 5, "database.read_timeout": 7})
    again = ConnectorConfig.from_properties(cfg.properties())
    assert again == cfg
    assert again.properties() == cfg.properties()
    assert pickle.loads(pickle.dumps(cfg)).kafka_settings() == cfg.kafka_settings()


@pytest.mark.req("STRM-12", "STRM-13", "STRM-14", "CFG-11", "CFG-47")
def test_captures_follows_lists_and_leaves_out_system_tables() -> None:
    everything = config()
    assert everything.captures(TableId("a", "t"))
    for name in ("mysql", "sys", "PERFORMANCE_SCHEMA", "information_schema"):
        assert not everything.captures(TableId(name, "t"))
        assert not everything.captures_database(name)
    assert config(table__ignore__builtin=False).captures(TableId("mysql", "user"))
    some = config(database__include__list="shop,crm_.*", table__exclude__list=r"shop\.tmp_.*")
    assert some.captures(TableId("shop", "orders"))
    assert some.captures(TableId("CRM_1", "x"))
    assert not some.captures(TableId("shop", "tmp_1"))
    assert not some.captures(TableId("shop2", "orders"))
    only = config(table__include__list="shop.orders")
    assert [only.captures(TableId("shop", t)) for t in ("orders", "orders2")] == [True, False]
    assert only.captures_database("other"), "the table list does not close databases"
    out = config(database__exclude__list="tmp.*")
    assert (out.captures_database("tmp1"), out.captures_database("atmp")) == (False, True)


@pytest.mark.req("CFG-09", "STRM-02")
def test_the_derived_server_id_is_stable_and_leaves_room_for_all_writers() -> None:
    first = config()
    assert first.server_id(0) == config().server_id(0) == 1_519_593_600
    assert first.server_id(63) == first.server_id(0) + 63
    starts = {ConnectorConfig.from_properties({**BASE, "topic.prefix": f"p{i}"}).server_id(0) for i in range(500)}
    assert len(starts) == 500
    assert all(2**30 <= s < 2**31 and s % F.WRITER_IDS == 0 for s in starts)
    assert config(database__server__id=5).server_id(2) == 7
    assert "at most" in problem("database.server.id", 2**32 - 1).what
    for wrong in (-1, 64):
        with pytest.raises(ValueError, match="writer"):
            first.server_id(wrong)


@pytest.mark.req("CFG-06", "CFG-101", "CFG-34", "STRM-38")
def test_connection_settings_carry_what_the_connection_needs() -> None:
    cfg = config(
        **{
            "database.port": 3307,
            "database.ssl.mode": "VERIFY_CA",
            "database.ssl.truststore": "/etc/ca.pem",
            "database.ssl.cert": "/etc/c.pem",
            "database.ssl.key": "/etc/k.pem",
            "connect.timeout.ms": 1500,
            "database.unix_socket": "/run/mysqld.sock",
            "database.read_timeout": "30",
        }
    )
    got = cfg.connection_settings()
    assert (got.address(), got.user, got.password.reveal()) == ("mysql:3307", "cdc", "s3cret-pw")
    assert (got.ssl_mode, got.ssl_ca, got.ssl_cert, got.ssl_key) == (
        "verify_ca",
        "/etc/ca.pem",
        "/etc/c.pem",
        "/etc/k.pem",
    )
    assert (got.connect_timeout_s, got.query_timeout_s) == (1.5, 600.0)
    assert dict(got.driver_options) == {"unix_socket": "/run/mysqld.sock", "read_timeout": 30}


def test_a_java_key_store_is_refused_with_the_way_out() -> None:
    assert "convert it to PEM" in problem("database.ssl.truststore", "/etc/trust.jks").what


def test_an_unknown_driver_option_is_refused() -> None:
    refused = problem("database.foobar", "false")
    assert "driver option" in refused.what
    assert "database.read_timeout" in refused.fix


def test_settings_that_contradict_each_other_are_named() -> None:
    assert problem("transaction.timeout.ms", 10_000, commit__interval__ms=20_000).fix.startswith("Raise it")
    assert problem("database.ssl.key", "/k.pem").fix == "Set database.ssl.cert"
    assert "same topic" in problem("ledger.topic", "shop").what
    other = problem("schema.history.internal.kafka.bootstrap.servers", "elsewhere:9092")
    assert "in one cluster" in other.what
    assert config(**{"schema.history.internal.kafka.bootstrap.servers": "kafka:9092,b:1"})


@for_each("servers", ["k:9092", "a:1, b:2", "[::1]:9092", "host", "127.0.0.1:29092"])
def test_bootstrap_servers(servers: str) -> None:
    got = ConnectorConfig.from_properties({**BASE, "kafka.bootstrap.servers": servers})
    assert got.kafka_settings()["bootstrap.servers"] == servers.replace(" ", "")


@for_each("servers", ["", "k:", "k:x", "k:70000", "a b"])
def test_wrong_bootstrap_servers(servers: str) -> None:
    assert "host:port" in problem("kafka.bootstrap.servers", servers).what


def test_topic_settings_pass_through_and_misprints_do_not() -> None:
    cfg = config(**{"topic.creation.default.cleanup.policy": "compact", "topic.creation.default.new.setting": "1"})
    assert cfg.topic_creation_settings() == {"cleanup.policy": "compact", "new.setting": "1"}
    assert any("new.setting" in note for note in cfg.notes)
    assert problem("topic.creation.default.cleanup.polcy", "x").fix.startswith(
        "Write topic.creation.default.cleanup.policy"
    )
    assert cfg[F.TOPIC_CREATION_REPLICATION_FACTOR] == -1
    assert "at least 1" in problem("topic.creation.default.partitions", -1).what
    assert "broker's default" in problem("topic.creation.default.replication.factor", 0).what


def test_names_are_declared_once() -> None:
    names = [f.name for f in F.ALL]
    aliases = [a.name for f in F.ALL for a in f.alias_list()]
    everything = [*names, *aliases, *known.NO_EFFECT, *(r.name for r in known.REFUSED_PROPERTIES)]
    assert sorted(everything) == sorted(set(everything))
    assert all(read.canonical_name(f.name) == f.name for f in F.ALL)
    assert all(f.doc.endswith((".", ")")) for f in F.ALL)
