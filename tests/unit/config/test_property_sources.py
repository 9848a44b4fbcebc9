"""Where properties come from, and what an error says of it.

Who may set which property, as the declarations say; the lists here are the decision.
"""

from __future__ import annotations

import json

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, undeclared_properties
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
from airflow_provider_mysql_cdc.cdc.config.field import SetBy
from airflow_provider_mysql_cdc.cdc.config.property_sources import check_run_properties, set_by
from airflow_provider_mysql_cdc.cdc.config.read_properties import ALIASES, canonical_name
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


AUTHOR = {
    # who and where: hosts, accounts, TLS, identities
    "topic.prefix", "name", "connector.class", "database.hostname", "database.port", "database.user",
    "database.server.id", "database.ssl.mode", "database.ssl.ca", "database.ssl.cert", "database.ssl.key",
    "kafka.bootstrap.servers", "schema.history.internal.kafka.bootstrap.servers",
    "gtid.source.includes", "gtid.source.excludes", "gtid.source.filter.dml.events", "gtid.ignore.on.recovery",
    # topics and tables that are written
    "topic.creation.default.partitions", "topic.creation.default.replication.factor", "topic.creation.groups",
    "topic.heartbeat.prefix",
    "topic.transaction", "ledger.topic", "schema.history.internal.kafka.topic", "errors.deadletterqueue.topic.name",
    "notification.sink.topic.name", "transforms", "predicates", "dispatchers", "ticdc.namespace",
    "signal.data.collection", "signal.data.collection.create",
    # who is listened to
    "signal.enabled.channels", "signal.trusted.channels", "signal.kafka.topic", "signal.kafka.bootstrap.servers",
    "signal.kafka.groupId",
    # classes and SQL
    "key.converter", "value.converter", "converters", "heartbeat.action.query", "snapshot.select.statement.overrides",
    # what is hidden: system tables, columns, statements; a column named as key is shown in clear
    "table.ignore.builtin", "column.include.list", "column.exclude.list", "message.key.columns", "include.query",
}  # fmt: skip
REGISTRY_AUTHOR = {
    "schema.registry.url", "{part}.subject.name.strategy", "{part}.schema.id.serializer",
    "basic.auth.credentials.source", "bearer.auth.credentials.source", "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id", "bearer.auth.issuer.endpoint.url", "bearer.auth.client.id", "bearer.auth.scope",
    "schema.registry.ssl.ca.location", "schema.registry.ssl.certificate.location", "schema.registry.ssl.key.location",
}  # fmt: skip


def test_every_property_is_a_secret_the_author_s_or_the_run_s() -> None:
    registry = {f"{part}.converter.{name.format(part=part)}" for part in F.PARTS for name in REGISTRY_AUTHOR}
    assert {f.name for f in F.ALL if f.set_by is SetBy.AUTHOR} == AUTHOR | registry
    assert {f.name for f in F.ALL if f.set_by is SetBy.CONNECTION} == {f.name for f in F.ALL if f.secret}


def test_an_older_name_belongs_to_whom_today_s_belongs() -> None:
    for alias, (declared, _) in ALIASES.items():
        assert set_by(alias) is declared.set_by, alias
    assert set_by("database.history.kafka.bootstrap.servers") is SetBy.AUTHOR
    assert set_by("database.history.skip.unparseable.ddl") is SetBy.RUN


@for_each(
    "prefix",
    [
        *kafka.PREFIXES,
        "signals.consumer.",
        families.TOPIC_CREATION_PREFIX,
        families.SELECT_OVERRIDES_PREFIX,
        "column.truncate.to.",
        "column.mask.with.",
        "transforms.route.",
        "predicates.",
        "driver.",
        "isbn.",
        "",
    ],
)
def test_of_families_and_unknown_names_no_run_sets_any(prefix: str) -> None:
    for name in ("plugin.library.paths", "type", "anything", "linger.ms", *kafka.ALL_SETTINGS):
        if (full := prefix + name) not in F.BY_NAME:
            assert set_by(full) is not SetBy.RUN, full


@for_each("option", families.DRIVER_OPTIONS)
def test_no_run_sets_a_driver_option(option: str) -> None:
    assert set_by(f"database.{option}") is SetBy.AUTHOR


def test_no_run_sets_what_is_known_and_not_declared() -> None:
    names = [*undeclared_properties.NO_EFFECT, *(r.name for r in undeclared_properties.REFUSED_PROPERTIES)]
    assert [name for name in names if set_by(name) is SetBy.RUN and name not in F.BY_NAME] == []


def test_the_author_opens_single_properties_and_no_secret() -> None:
    check_run_properties({"topic.prefix", "snapshot.mode"}, ["database.server.name"], "c")
    with pytest.raises(ConfigError) as caught:
        check_run_properties({"kafka.sasl.password", "topic.prefix"}, ["kafka.sasl.password"], "shop_cdc")
    assert caught.value.where == "kafka.sasl.password, topic.prefix"
    assert not caught.value.can_retry
    assert "connection shop_cdc" in caught.value.remedy and "run_properties" in caught.value.remedy


def test_the_salt_of_a_hash_is_a_secret_and_is_not_shown() -> None:
    name = "column.mask.hash.SHA-256.with.salt.s4lt"
    assert set_by(name) is SetBy.CONNECTION
    with pytest.raises(ConfigError) as caught:
        check_run_properties({name}, [name], "c")
    assert "s4lt" not in str(caught.value)


@for_each("name", ["", " database.port", "database.port\0", "database.port\u00a0"])
def test_a_name_that_cannot_be_seen_is_shown_in_quotes(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_run_properties({name}, [], "c")
    assert caught.value.where == repr(name)


def test_a_name_that_is_no_property_is_refused_too() -> None:
    assert canonical_name("Database.Hostname") == "Database.Hostname"
    for name in ("Database.Hostname", " database.hostname", "config", "schema_registry_conn_id", "kafka_conn_id"):
        with pytest.raises(ConfigError):
            check_run_properties({name}, [], "c")
