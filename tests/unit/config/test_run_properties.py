"""Who may set which property, as the declarations say; the lists here are the decision."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, kafka_names, undeclared_properties
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config.field import SetBy
from airflow_provider_mysql_cdc.cdc.config.read_properties import ALIASES, canonical_name
from airflow_provider_mysql_cdc.cdc.config.run_properties import check_run_properties, set_by
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

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
    for name in ("plugin.library.paths", "type", "anything", "linger.ms", *kafka_names.ALL_SETTINGS):
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
