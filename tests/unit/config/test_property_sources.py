"""Where properties come from, and what an error says of it."""

from __future__ import annotations

import json

import pytest

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

STANDARD = {"host": "db", "port": 3307, "login": "cdc", "password": "pw"}
EXTRA = {"topic.prefix": "shop", "kafka.bootstrap.servers": "k:9092", "drain.writers": "2"}


def test_parameters_win_over_the_connection_and_that_over_the_environment() -> None:
    cfg = sources.load_config(
        [
            sources.params_source({"drain.writers": 3, "commit.bytes": None}),
            sources.connection_source("mysql_cdc_default", STANDARD, EXTRA),
            sources.environment_source({"MYSQL_CDC_DRAIN_WRITERS": "4", "MYSQL_CDC_COMMIT_BYTES": "2048"}),
        ]
    )
    assert (cfg[F.DRAIN_WRITERS], cfg[F.COMMIT_BYTES], cfg[F.DATABASE_PORT]) == (3, 2048, 3307)


def test_an_older_name_in_a_nearer_place_wins_over_todays_in_a_farther_one() -> None:
    cfg = sources.load_config(
        [sources.params_source({"database.server.name": "near"}), sources.connection_source("c", STANDARD, EXTRA)]
    )
    assert cfg.topic_prefix == "near"


def test_a_missing_property_says_where_it_was_looked_for() -> None:
    with pytest.raises(ConfigError) as caught:
        sources.load_config(
            [
                sources.params_source({}),
                sources.connection_source("cdc_conn", {}, EXTRA),
                sources.environment_source({}),
            ]
        )
    text = str(caught.value)
    assert (
        "database.hostname: is required and missing; looked for in operator parameters (database.hostname), then "
        in text
    )
    assert "connection cdc_conn (field MySQL host), then the environment (MYSQL_CDC_DATABASE_HOSTNAME)" in text


def test_a_wrong_property_says_where_it_came_from() -> None:
    with pytest.raises(ConfigError) as caught:
        sources.load_config(
            [
                sources.params_source({"drain.writers": "x"}),
                sources.connection_source("c", STANDARD, {**EXTRA, "commit.bytes": "y"}),
            ]
        )
    text = str(caught.value)
    assert "drain.writers='x': must be a whole number. Correct the value. [operator parameters]" in text
    assert "[connection c]" in text


def test_a_connect_configuration_in_the_extra_is_read() -> None:
    source = sources.connection_source("c", STANDARD, {"name": "n", "config": {**EXTRA, "topic.prefix": "x"}})
    assert sources.load_config([source]).topic_prefix == "x"
    assert source.values["database.hostname"] == "db"


def test_the_environment_reads_declared_names_aliases_and_a_document() -> None:
    source = sources.environment_source(
        {
            "MYSQL_CDC_PROPERTIES": '{"kafka.linger.ms": "5", "topic.prefix": "doc"}',
            "MYSQL_CDC_TOPIC_PREFIX": "variable",
            "MYSQL_CDC_DATABASE_SSL_MODE": "",
            "MYSQL_CDC_STACK_DIR": "/x",
            "MYSQL_CDC_TOPIC_PREFX": "misprint",
            "HOME": "/",
        }
    )
    assert source.values == {"kafka.linger.ms": "5", "topic.prefix": "variable"}
    assert source.notes == ("the variable MYSQL_CDC_TOPIC_PREFX names no property; MYSQL_CDC_TOPIC_PREFIX would",)
    with pytest.raises(ConfigError, match="MYSQL_CDC_PROPERTIES"):
        sources.environment_source({"MYSQL_CDC_PROPERTIES": "{"})


def test_the_connection_of_a_replica_alone_names_one() -> None:
    kind = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"
    source = {"topic.prefix": "p", "database.hostname": "h", "database.user": "cdc", "database.ssl.mode": "required"}
    # Settings of a converter begin with its name.
    source |= {"kafka.bootstrap.servers": "k:1", "converters": "verify", "verify.type": kind}
    named = {"verify.replica.database.hostname": "r:3307", "verify.replica.database.password": "of-replica"}
    replica = sources.PropertySource("connection replica", named, is_private=True, is_replica=True)
    cfg = sources.load_config([sources.params_source(source), replica])
    for each in (cfg, cfg.at_server("elsewhere", 1)):
        settings = each.replica_settings()
        assert settings is not None and settings.address() == "r:3307" and settings.password.reveal() == "of-replica"
        assert (settings.user, settings.ssl_mode, settings.driver_options) == ("", "preferred", ())
    others = [
        sources.params_source(named),
        sources.connection_source("c", {}, named),
        sources.environment_source({sources.ENV_DOCUMENT: json.dumps(named)}),
    ]
    for other in others:
        for given in ([other], [other, replica]):
            with pytest.raises(ConfigError, match="is not a property of this place") as raised:
                sources.load_config([sources.params_source(source), *given])
            assert "of-replica" not in str(raised.value) and "replica_conn_id" in str(raised.value)
    assert sources.load_config([sources.params_source(source)]).replica_settings() is None
