"""Properties of signals, incremental snapshots and notifications."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.model.table import TableId

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


def config(**given: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | {name.replace("__", "."): text for name, text in given.items()})


def problem(**given: str) -> Problem:
    (found,) = ConnectorConfig.check(BASE | {name.replace("__", "."): text for name, text in given.items()})
    return found


@pytest.mark.req("INC-33", "CFG-67")
def test_the_signal_table_is_one_table_with_its_database() -> None:
    assert config()[F.SIGNAL_DATA_COLLECTION] is None
    assert config(signal__data__collection=" ")[F.SIGNAL_DATA_COLLECTION] is None
    for text, table in (
        ("myschema.debezium_signal", TableId("myschema", "debezium_signal")),
        ('"my.schema"."a ""b"""', TableId("my.schema", 'a "b"')),
        ('ops."sig.nals"', TableId("ops", "sig.nals")),
    ):
        assert config(signal__data__collection=text)[F.SIGNAL_DATA_COLLECTION] == table
    for wrong in ("signals", "a.b.c", "a.b,a.c", "a.", '"a.b"'):
        assert "must name one table as database.table" in problem(signal__data__collection=wrong).what


def test_the_signal_table_is_followed_and_described_whether_captured_or_not() -> None:
    table = TableId("ops", "signals")
    given = {
        "signal.data.collection": "ops.signals",
        "database.include.list": "shop",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
    }
    cfg = config(**given)
    assert not cfg.captures(table)
    assert cfg.needs_schema(table) and cfg.stores_ddl(table)
    other = TableId("ops", "other")
    assert not cfg.needs_schema(other) and not cfg.stores_ddl(other)
    assert cfg.needs_schema(TableId("shop", "orders")) and cfg.stores_ddl(TableId("shop", "orders"))


def test_what_decides_about_the_ledgers_signals_is_fixed_inside_a_batch() -> None:
    given = {"signal.data.collection": "ops.signals", "signal.enabled.channels": "source,kafka", "read.only": "true"}
    assert property_pins(config(**given), snapshot=False).keys() - property_pins(config(), snapshot=False).keys() == {
        "signal.data.collection",
        "signal.enabled.channels",
    }


def test_signals_of_airflow_are_always_taken_and_others_where_asked_for() -> None:
    for text, channels in (
        (None, {"source", "airflow"}),
        ("", {"airflow"}),
        ("kafka", {"kafka", "airflow"}),
        (" Source , kafka,airflow", {"source", "kafka", "airflow"}),
    ):
        cfg = config() if text is None else config(signal__enabled__channels=text)
        assert {c for c in ("source", "kafka", "airflow") if cfg.accepts_signals_from(c)} == channels


@for_each("name", ["signal.enabled.channels", "signal.trusted.channels"])
@for_each("channel", ["jmx", "file", "in-process"])
def test_channels_that_are_not_here_are_refused_by_name(name: str, channel: str) -> None:
    found = problem(**{name: f"source,{channel}"})
    assert f"the channel {channel} is not supported" in found.what and "MySqlCdcSignalOperator" in found.what
    assert "must be a list of source, kafka, airflow; 'mail' is none" in problem(**{name: "mail"}).what


def test_notifications_go_where_they_are_asked_for() -> None:
    assert config()[F.NOTIFICATION_ENABLED_CHANNELS] == frozenset()
    assert "the channel jmx is not supported" in problem(notification__enabled__channels="jmx").what
    assert problem(notification__enabled__channels="log,jmx").what.endswith("; write log")
    assert problem(signal__enabled__channels="jmx").what.endswith("; leave the property out")
    missing = problem(notification__enabled__channels="sink,log")
    assert missing.name == "notification.sink.topic.name" and "is missing" in missing.what
    config(notification__enabled__channels="log")


@for_each("other", ["ledger.p", "schemahistory.p", "p", "p-signal"])
def test_topics_of_signals_and_notifications_are_topics_of_their_own(other: str) -> None:
    given = {
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": other,
        "signal.enabled.channels": "kafka",
    }
    assert f"are the same topic '{other}'" in problem(**given).what
    assert config(**given, signal__kafka__bootstrap__servers="other:1") if other == "p-signal" else True


@pytest.mark.req("CFG-99", "CFG-100", "INC-44", "INC-45")
def test_the_consumer_of_signals_has_settings_of_its_own() -> None:
    cfg = config(
        kafka__security__protocol="PLAINTEXT",
        signal__consumer__security__protocol="SSL",
        signals__consumer__ssl__key__password="test1234",
        producer__override__linger__ms="5",
        signal__consumer__fetch__max__bytes="1000",
    )
    assert cfg.signal_kafka_settings() == {
        "bootstrap.servers": "k:1",
        "security.protocol": "ssl",
        "ssl.key.password": Secret("test1234"),
        "fetch.max.bytes": "1000",
    }
    assert cfg.kafka_settings("consumer") == {"bootstrap.servers": "k:1", "security.protocol": "plaintext"}
    assert "test1234" not in f"{cfg!r} {cfg.redacted_properties()}"
    assert "signals.consumer.ssl.key.password is read as signal.consumer.ssl.key.password" in cfg.notes
    other = config(signal__kafka__bootstrap__servers="a:1, b:2")
    assert other.signal_kafka_settings()["bootstrap.servers"] == "a:1,b:2"


def test_two_spellings_of_one_setting_must_agree() -> None:
    given = {"signal.consumer.security.protocol": "SSL", "signals.consumer.security.protocol": "PLAINTEXT"}
    assert "contradicts" in problem(**given).what
    assert "use signal.kafka.groupId" in problem(signal__consumer__group__id="g").what
    assert "signal.kafka.bootstrap.servers" in problem(signal__consumer__bootstrap__servers="k:2").what
    assert "no such setting" in problem(signal__consumer__securty__protocol="SSL").what
