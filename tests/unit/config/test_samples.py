"""The settings in the manuals' examples: each is accepted with its meaning, or refused by name with the way out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.kafka import KafkaRole
from airflow_provider_mysql_cdc.cdc.emit.topic_names import table_topics
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.model.column_rule import RuleKind
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.model.table import TableId

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
CONVERTER = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"
EX_36 = """{"name":"inventory-connector","config":{"connector.class":"io.debezium.connector.mysql.MySqlConnector",
"database.hostname":"192.168.99.100","database.port":"3306","database.user":"debezium-user",
"database.password":"debezium-user-pw","database.server.id":"184054","database.server.name":"fullfillment",
"database.include.list":"inventory","database.history.kafka.bootstrap.servers":"kafka:9092",
"database.history.kafka.topic":"dbhistory.fullfillment","include.schema.changes":"true"}}"""
EX_37 = """{"kind":"KafkaConnector","metadata":{"name":"inventory-connector",
"labels":{"strimzi.io/cluster":"my-connect-cluster"}},"spec":{"class":"io.debezium.connector.mysql.MySqlConnector",
"tasksMax":1,"config":{"database.hostname":"mysql","database.port":3306,"database.user":"debezium",
"database.password":"dbz","database.server.id":184054,"database.server.name":"dbserver1",
"database.include.list":"inventory","database.history.kafka.bootstrap.servers":"my-cluster-kafka-bootstrap:9092",
"database.history.kafka.topic":"schema-changes.inventory"}}}"""
EX_38 = """
transforms=snapshotasinsert,...
transforms.snapshotasinsert.type=io.debezium.connector.mysql.transforms.ReadToInsertEvent
"""
EX_39 = f"""
converters=boolean
boolean.type={CONVERTER}
boolean.selector=db1.table1.*, db1.table2.column1
"""
EX_40 = EX_39 + "boolean.length.checker=false\n"
EX_41 = """
column.mask.hash.SHA-256.with.salt.CzQMA0cB5K = inventory.orders.customerName, inventory.shipment.customerName
"""
EX_42 = "inventory.customers:pk1,pk2;(.*).purchaseorders:pk3,pk4"
EX_43 = "SELECT * FROM [customers].[orders] WHERE delete_flag = 0 ORDER BY id DESC"
EX_44 = "INSERT INTO gtid_history_table (select * from mysql.gtid_executed)"
EX_45 = """
security.protocol=SSL
ssl.keystore.location=/var/private/ssl/kafka.server.keystore.jks
ssl.keystore.password=test1234
ssl.truststore.location=/var/private/ssl/kafka.server.truststore.jks
ssl.truststore.password=test1234
ssl.key.password=test1234
"""


def lines(text: str, prefix: str = "") -> dict[str, str]:
    """Return the properties of a sample in the form of a properties file."""
    pairs = (line.partition("=") for line in text.strip().splitlines())
    return {prefix + name.strip(): value.strip() for name, _, value in pairs}


def config(given: dict[str, Any]) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **given})


def problems(given: dict[str, Any]) -> dict[str, Problem]:
    return {p.name: p for p in ConnectorConfig.check({**BASE, **given})}


def refused(name: str, value: str) -> Problem:
    """Return the only problem of a property; it must say what to do."""
    found = problems({name: value})
    assert list(found) == [name], found
    assert found[name].what and found[name].fix
    return found[name]


@pytest.mark.req("EX-36", "EX-37", "TOPIC-03", "TOPIC-10", "TOPIC-12")
@pytest.mark.parametrize(
    ("document", "host", "prefix", "history", "kafka"),
    [
        (EX_36, "192.168.99.100", "fullfillment", "dbhistory.fullfillment", "kafka:9092"),
        (EX_37, "mysql", "dbserver1", "schema-changes.inventory", "my-cluster-kafka-bootstrap:9092"),
    ],
)
def test_whole_configurations_mean_what_they_say(
    document: str, host: str, prefix: str, history: str, kafka: str
) -> None:
    cfg = ConnectorConfig.from_connect_json(document)
    assert (cfg[F.NAME], cfg[F.DATABASE_HOSTNAME], cfg[F.DATABASE_PORT]) == ("inventory-connector", host, 3306)
    assert (cfg.topic_prefix, cfg.history_topic, cfg.server_id(0)) == (prefix, history, 184054)
    assert cfg.kafka_settings()["bootstrap.servers"] == kafka
    assert cfg[F.INCLUDE_SCHEMA_CHANGES] is True
    assert cfg.captures(TableId("inventory", "customers")) and not cfg.captures(TableId("inventory2", "customers"))
    # The server's logical name, the database, the table.
    assert record_topics.table_topic_name(cfg, TableId("inventory", "customers")) == f"{prefix}.inventory.customers"
    assert [note for note in cfg.notes if note.startswith("database.server.name")]


@pytest.mark.req("EX-38", "SNAP-41", "CFG-104", "CFG-105")
def test_the_transform_of_reads_into_creates_is_taken_from_the_sample() -> None:
    """The ellipsis stands for transforms of one's own."""
    assert list(problems(lines(EX_38))) == ["transforms.....type"]
    cfg = config(lines(EX_38.replace(",...", "")))
    assert (
        table_options.decoder_options(cfg).read_op == "c" and table_options.decoder_options(config({})).read_op == "r"
    )
    assert cfg.notes == ()


@pytest.mark.parametrize(
    "given",
    [
        {
            "transforms": "Reroute",
            "transforms.Reroute.type": "io.debezium.transforms.ContentBasedRouter",
            "transforms.Reroute.topic.expression": "value.op",
        },
        {"topic.regex": "(.*)_shard"},
        {"topic.naming.strategy": "io.debezium.schema.DefaultRegexTopicNamingStrategy"},
    ],
)
def test_other_ways_to_name_topics_are_refused_by_name_and_never_left_out(given: dict[str, str]) -> None:
    (found,) = problems(given).values()
    assert (
        found.name in given and found.what.startswith("not supported") and found.fix.split()[0] in ("Remove", "Route")
    )


@pytest.mark.req("TOPIC-05")
def test_the_topic_routing_transform_brings_shards_together() -> None:
    cfg = config(
        {
            "transforms": "Reroute",
            "transforms.Reroute.type": "io.debezium.transforms.ByLogicalTableRouter",
            "transforms.Reroute.topic.regex": "(.*)customers_shard(.*)",
            "transforms.Reroute.topic.replacement": "$1customers_all_shards",
        }
    )
    names = [
        record_topics.table_topic_name(cfg, TableId("db", table))
        for table in ("customers_shard1", "customers_shard2", "other")
    ]
    assert names == ["p.db.customers_all_shards"] * 2 + ["p.db.other"]


@pytest.mark.req("EX-39", "EX-40", "TYPE-62", "TYPE-64", "CFG-43", "CFG-44", "CFG-45", "CFG-46")
@pytest.mark.parametrize(("sample", "any_width"), [(EX_39, False), (EX_40, True)])
def test_the_boolean_converter_takes_the_columns_it_names(sample: str, any_width: bool) -> None:
    cfg = config(lines(sample))
    one, two, other = TableId("db1", "table1"), TableId("db1", "table2"), TableId("db2", "table1")
    assert cfg.is_boolean(one, "anything", "TINYINT", 1) and cfg.is_boolean(two, "column1", "TINYINT", 1)
    assert not cfg.is_boolean(two, "column2", "TINYINT", 1) and not cfg.is_boolean(other, "x", "TINYINT", 1)
    for length in (4, None):
        assert cfg.is_boolean(one, "anything", "TINYINT", length) is any_width
    assert cfg.notes == ()


@pytest.mark.req("TYPE-65")
def test_a_converter_of_java_is_refused_with_what_there_is() -> None:
    found = problems({"converters": "isbn", "isbn.type": "io.debezium.test.IsbnConverter", "isbn.schema.name": "x"})
    assert list(found) == ["isbn.type"]
    assert "there is " + CONVERTER in found["isbn.type"].what and "Remove the converter" in found["isbn.type"].fix


@pytest.mark.req("EX-41", "COL-05")
def test_hashing_takes_algorithm_salt_and_columns_from_the_sample() -> None:
    cfg = config(lines(EX_41))
    for name in ("orders", "shipment"):
        (rule,) = cfg.column_rules(TableId("inventory", name), "customerName", "VARCHAR")
        assert (rule.kind, rule.algorithm) == (RuleKind.HASH, "sha256")
        assert rule.salt.reveal() == "CzQMA0cB5K"
    assert cfg.column_rules(TableId("inventory", "orders"), "id", "INT") == ()
    assert "CzQMA0cB5K" not in f"{cfg!r} {cfg.redacted_properties()} {cfg.notes}"


@pytest.mark.req("EX-42", "COL-13")
def test_message_keys_are_chosen_by_table_and_by_expression() -> None:
    cfg = config({"message.key.columns": EX_42})

    def key_of(db: str, name: str) -> tuple[str, ...]:
        return cfg[F.MESSAGE_KEY_COLUMNS].select(TableId(db, name), ("pk4", "pk3", "pk2", "pk1", "id"))

    assert key_of("inventory", "customers") == ("pk1", "pk2")
    assert key_of("sales", "purchaseorders") == key_of("inventory", "purchaseorders") == ("pk3", "pk4")
    assert key_of("inventory", "products") == ()


@pytest.mark.req("EX-43", "SNAP-50", "CFG-53", "CFG-54")
def test_snapshot_statements_are_taken_as_they_stand_and_lists_need_them() -> None:
    """That the sample's brackets are no quotes for MySQL is told when the server sees the statement."""
    name = "snapshot.select.statement.overrides"
    cfg = config({name: "customer.orders", f"{name}.customer.orders": EX_43})
    assert cfg.select_override(TableId("customer", "orders")) == EX_43
    assert cfg.select_override(TableId("customers", "orders")) is None
    found = problems({name: "inventory.products,customers.orders"})
    assert list(found) == [f"{name}.inventory.products", f"{name}.customers.orders"]
    assert all("is missing" in p.what and p.fix == "Set it to a SELECT statement" for p in found.values())


@pytest.mark.req("EX-44", "STRM-30")
def test_the_heartbeat_statement_is_kept_and_noted_where_it_never_runs() -> None:
    cfg = config({"heartbeat.action.query": EX_44, "heartbeat.interval.ms": "1000"})
    assert cfg[F.HEARTBEAT_ACTION_QUERY] == EX_44 and cfg.notes == ()
    without = config({"heartbeat.action.query": EX_44})
    assert without.notes == (
        "heartbeat.action.query has no effect: heartbeat.interval.ms is 0, so there are no heartbeats",
    )


@pytest.mark.req("EX-45", "SCH-13")
@pytest.mark.parametrize("family", ["database.history.producer.", "database.history.consumer."])
def test_java_key_stores_of_the_history_clients_are_refused_one_by_one_with_the_conversion(family: str) -> None:
    given = lines(EX_45, family)
    assert len(given) == 6
    found = problems(given)
    assert {name.removeprefix(family): p.fix for name, p in found.items()} == {
        "ssl.keystore.location": "Convert it with keytool -importkeystore -deststoretype PKCS12 and give the .p12 file",
        "ssl.truststore.location": "Convert it with keytool -exportcert -rfc and set "
        f"{family.replace('database.history', 'schema.history.internal')}ssl.ca.location to the PEM file",
        "ssl.truststore.password": "PEM files have no password; convert the trust store to PEM and set ssl.ca.location",
    }
    assert "test1234" not in str(found)


@pytest.mark.req(
    "EX-45",
    "SCH-13",
    "CFG-83",
    "CFG-84",
    "CFG-85",
    "CFG-86",
    "CFG-87",
    "CFG-88",
    "CFG-90",
    "CFG-91",
    "CFG-92",
    "CFG-93",
    "CFG-94",
    "CFG-95",
)
def test_the_same_settings_with_converted_stores_reach_the_clients_without_their_prefix() -> None:
    given: dict[str, str] = {}
    for family in ("database.history.producer.", "database.history.consumer."):
        given |= lines(EX_45.replace("server.keystore.jks", "server.keystore.p12"), family)
        del given[family + "ssl.truststore.password"]
        given[family + "ssl.truststore.location"] = "/var/private/ssl/ca.pem"
    cfg = config(given)
    for role in (KafkaRole.PRODUCER, KafkaRole.CONSUMER, KafkaRole.ADMIN):
        assert cfg.kafka_settings(role) == {
            "bootstrap.servers": "k:1",
            "security.protocol": "ssl",
            "ssl.keystore.location": "/var/private/ssl/kafka.server.keystore.p12",
            "ssl.keystore.password": Secret("test1234"),
            "ssl.ca.location": "/var/private/ssl/ca.pem",
            "ssl.key.password": Secret("test1234"),
        }
    assert "test1234" not in f"{cfg!r} {cfg.redacted_properties()}"


@pytest.mark.req("EX-54")
def test_pass_through_samples_reach_the_client_or_are_refused_with_the_reason() -> None:
    signals = config({"signal.consumer.security.protocol": "SSL"})
    assert signals.signal_kafka_settings()["security.protocol"] == "ssl"
    foobar = refused("database.foobar", "false")
    assert "neither a property nor a known driver option" in foobar.what
    assert "driver options: database.bind_address" in foobar.fix


@pytest.mark.req("TYPE-51", "CFG-102", "CFG-103")
@for_each(
    "name",
    ["connectionTimeZone", "database.connectionTimeZone", "database.serverTimezone", "driver.connectionTimeZone"],
)
def test_a_zone_of_the_connection_is_accepted_and_said_to_be_needless(name: str) -> None:
    cfg = config({name: "Europe/Paris"})
    assert cfg.notes == (
        f"{name} has no effect: TIMESTAMP values are read in UTC, whatever zone the server or a session is in",
    )


@pytest.mark.req("TOPIC-07")
def test_the_logical_name_has_letters_digits_hyphens_dots_and_underscores() -> None:
    given = {k: v for k, v in BASE.items() if k != "topic.prefix"}
    for name in ("database.server.name", "topic.prefix"):
        assert ConnectorConfig.from_properties({**given, name: "Shop-1.eu_2"}).topic_prefix == "Shop-1.eu_2"
        for wrong in ("shop 1", "shop/1", "shöp", "shop$", ""):
            (found,) = ConnectorConfig.check({**given, name: wrong})
            assert found.name == name and found.fix
            assert "may hold only letters, digits, hyphens, dots and underscores" in found.what or not wrong


@pytest.mark.req("TOPIC-04", "TOPIC-06", "TOPIC-10", "SCH-18")
def test_history_schema_change_and_transaction_topics_are_named_after_the_prefix() -> None:
    cfg = config({"provide.transaction.metadata": "true", "heartbeat.interval.ms": "5"})
    assert set(record_topics.reserved_topics(cfg)) == {
        "p", "schemahistory.p", "ledger.p", "p.transaction", "__debezium-heartbeat.p",
    }  # fmt: skip
    named = config({"database.history.kafka.topic": "schema-changes.inventory"})
    assert named.history_topic == "schema-changes.inventory"


def test_two_topics_of_our_own_under_one_name_are_refused() -> None:
    same = {"schema.history.internal.kafka.topic": "p.transaction", "provide.transaction.metadata": "true"}
    (found,) = problems(same).values()
    assert "are the same topic 'p.transaction'" in found.what


@pytest.mark.req("TXN-12")
def test_transactions_are_never_buffered_so_nothing_is_counted_about_buffers() -> None:
    assert "transactions are never held back" in refused("binlog.buffer.size", "1000").what
    assert problems({"binlog.buffer.size": "0"}) == {}


# -- what is no property ---------------------------------------------------------------------------------------------


def test_a_changefeeds_file_and_address_are_no_properties() -> None:
    """EX-32 to EX-35: they become properties with ``mysql-cdc changefeed``."""
    found = problems({"sink-uri": "kafka://127.0.0.1:9092/topic-name?protocol=avro&enable-tidb-extension=true"})
    assert [(name, p.what) for name, p in found.items()] == [("sink-uri", "unknown property")]
    toml = "[sink]\ndispatchers = [\n{matcher = ['*.*'], topic = \"tidb_{schema}_{table}\"},\n]"
    with pytest.raises(ConfigError, match="not JSON"):
        ConnectorConfig.from_connect_json(toml)
    with pytest.raises(ConfigError):
        ConnectorConfig.from_connect_json(json.dumps({"sink": {"dispatchers": []}}))


def test_a_table_cannot_have_the_transaction_topic() -> None:
    cfg = config({"topic.transaction": "shop.orders", "provide.transaction.metadata": "true"})
    with pytest.raises(ConfigError, match=r"the topic p\.shop\.orders itself, shop\.orders"):
        table_topics("p", [TableId("shop", "orders")], reserved=record_topics.reserved_topics(cfg))
    table_topics("p", [TableId("shop", "orders")], reserved=record_topics.reserved_topics(config({})))
