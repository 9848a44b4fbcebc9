"""Kafka settings: Java's names, precedence, and that librdkafka knows every name we pass."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import kafka
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

BASE: dict[str, object] = {
    "topic.prefix": "shop",
    "database.hostname": "mysql",
    "database.user": "cdc",
    "kafka.bootstrap.servers": "kafka:9092",
}


def settings(role: str | None = None, **more: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in more.items()}
    guarded = ConnectorConfig.from_properties({**BASE, **given}).kafka_settings(role)
    found = {name: value.reveal() if isinstance(value, Secret) else value for name, value in guarded.items()}
    assert found.pop("bootstrap.servers") == "kafka:9092"
    return found


def refusal(name: str, value: str, **more: str) -> str:
    problems = ConnectorConfig.check({**BASE, name: value, **more})
    assert [p.name for p in problems] == [name]
    return f"{problems[0].what}. {problems[0].fix}"


def test_settings_pass_through_by_kind_of_client() -> None:
    given = {"kafka.linger.ms": "5", "kafka.fetch.min.bytes": "1", "kafka.client.id": "x"}
    assert settings("producer", **given) == {"linger.ms": "5", "client.id": "x"}
    assert settings("consumer", **given) == {"fetch.min.bytes": "1", "client.id": "x"}
    assert settings("admin", **given) == {"client.id": "x"}
    assert settings(None, **given) == {"linger.ms": "5", "fetch.min.bytes": "1", "client.id": "x"}


def test_the_nearer_family_wins() -> None:
    given = {
        "schema.history.internal.producer.security.protocol": "SSL",
        "schema.history.internal.producer.linger.ms": "9",
        "schema.history.internal.consumer.sasl.username": "reader",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "producer.override.sasl.mechanisms": "SCRAM-SHA-256",
        "producer.override.linger.ms": "7",
        "admin.override.sasl.username": "admin",
    }
    assert settings("producer", **given) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "linger.ms": "7",
    }
    assert settings("consumer", **given)["sasl.username"] == "reader"
    assert settings("consumer", **given)["sasl.mechanism"] == "PLAIN"
    assert settings("admin", **given)["sasl.username"] == "admin"
    cfg = ConnectorConfig.from_properties({**BASE, **given})
    assert any("schema.history.internal.producer.linger.ms has no effect" in n for n in cfg.notes)


@pytest.mark.req("CFG-82")
def test_security_of_the_old_history_family_serves_all_clients() -> None:
    got = settings("producer", **{"database.history.producer.security.protocol": "SSL"})
    assert got == {"security.protocol": "ssl"}


@pytest.mark.req("CFG-89")
def test_what_the_history_consumer_is_given_is_the_consumers_alone() -> None:
    given = {
        "database.history.consumer.security.protocol": "SASL_SSL",
        "database.history.consumer.sasl.mechanism": "PLAIN",
        "database.history.consumer.sasl.username": "reader",
        "database.history.consumer.sasl.password": "word",
        "database.history.consumer.fetch.max.bytes": "100",
    }
    assert settings("consumer", **given) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": "word",
    }
    assert settings("producer", **given) == {}
    cfg = ConnectorConfig.from_properties({**BASE, **given})
    assert any("schema.history.internal.consumer.fetch.max.bytes has no effect" in n for n in cfg.notes)


@pytest.mark.parametrize(
    ("line", "username", "password"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p;\\" x";',
            "u",
            'p;" x',
        ),
        ("org.x.ScramLoginModule required\n username='u'\n password='p=1';", "u", "p=1"),
        ("org.x.ScramLoginModule required username=u password=p tokenauth=true;", "u", "p"),
    ],
)
def test_a_jaas_line_gives_user_and_password(line: str, username: str, password: str) -> None:
    got = settings(**{"kafka.sasl.jaas.config": line})
    assert (got["sasl.username"], got["sasl.password"]) == (username, password)
    assert got.get("sasl.mechanism") == ("PLAIN" if "Plain" in line else None)


def test_other_jaas_lines_are_refused_with_the_way_out() -> None:
    krb = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    assert "sasl.kerberos.*" in refusal("kafka.sasl.jaas.config", krb)
    assert "no username" in refusal("kafka.sasl.jaas.config", "org.x.PlainLoginModule required;")
    assert "not a JAAS" in refusal("kafka.sasl.jaas.config", "secret")


def test_java_stores_are_translated_or_refused() -> None:
    assert settings(**{"kafka.ssl.truststore.location": "/ca.pem"}) == {"ssl.ca.location": "/ca.pem"}
    typed = {"kafka.ssl.truststore.location": "/ca", "kafka.ssl.truststore.type": "PEM"}
    assert settings(**typed) == {"ssl.ca.location": "/ca"}
    pkcs12 = {"kafka.ssl.keystore.location": "/k.p12", "kafka.ssl.keystore.password": "x"}
    assert settings(**pkcs12) == {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"}
    pem = {"kafka.ssl.keystore.location": "/k.pem"}
    assert settings(**pem) == {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem"}
    assert "set kafka.ssl.ca.location" in refusal("kafka.ssl.truststore.location", "/trust.jks")
    assert "PKCS12" in refusal("kafka.ssl.keystore.location", "/key.jks")
    assert "PEM" in refusal("kafka.ssl.truststore.password", "x")


def test_java_names_become_librdkafkas() -> None:
    got = settings(
        **{
            "producer.override.buffer.memory": "67108864",
            "producer.override.max.request.size": "5000000",
            "kafka.ssl.endpoint.identification.algorithm": "",
            "kafka.receive.buffer.bytes": "-1",
        }
    )
    assert got == {
        "queue.buffering.max.kbytes": "65536",
        "message.max.bytes": "5000000",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.receive.buffer.bytes": "0",
    }
    assert "whole number" in refusal("kafka.buffer.memory", "64M")


@for_each(
    ("name", "value", "why"),
    [
        ("kafka.transactional.id", "x", "each writer"),
        ("producer.override.acks", "1", "all replicas"),
        ("producer.override.enable.idempotence", "false", "lost or doubled"),
        ("kafka.partitioner", "random", "Java's client"),
        ("producer.override.bootstrap.servers", "x:1", "kafka.bootstrap.servers"),
        ("kafka.isolation.level", "read_uncommitted", "committed"),
        ("kafka.interceptor.classes", "x.Y", "no such setting"),
        ("kafka.security.protocol", "TLS", "sasl_ssl"),
        ("kafka.lingr.ms", "1", "Write kafka.linger.ms"),
        ("kafka.nothing.of.this.kind", "1", "no such setting"),
    ],
)
def test_what_must_not_be_set_is_refused(name: str, value: str, why: str) -> None:
    assert why in refusal(name, value)


def test_what_is_fixed_may_be_stated() -> None:
    stated = {"producer.override.acks": "all", "kafka.enable.idempotence": "true"}
    assert settings("producer", **stated) == {}


def test_the_names_are_those_of_the_installed_librdkafka(tmp_path: Path) -> None:
    listed = _installed(tmp_path / "names")
    for scope, ours in (
        ("P", kafka.PRODUCER_SETTINGS),
        ("C", kafka.CONSUMER_SETTINGS),
        ("*", kafka.COMMON_SETTINGS),
    ):
        assert {n for n, scopes in listed.items() if scopes == {scope}} >= ours - _moved(listed, scope), scope
    # a newer library may know more; what we pass on must be known
    assert set(listed) >= kafka.ALL_SETTINGS
    targets = {target for target, _ in kafka.JAVA_RENAMED.values()}
    assert targets <= kafka.ALL_SETTINGS


def _moved(listed: dict[str, set[str]], scope: str) -> set[str]:
    return {n for n, scopes in listed.items() if scopes != {scope} and scope in scopes}


def _installed(path: Path) -> dict[str, set[str]]:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    libraries = sorted(folder.glob("librdkafka*.so*"))
    if not libraries:
        pytest.skip("librdkafka is not bundled with this confluent_kafka")
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    show = ctypes.CDLL(str(libraries[0])).rd_kafka_conf_properties_show
    show.argtypes = [ctypes.c_void_p]
    handle = libc.fopen(str(path).encode(), b"w")
    show(handle)
    libc.fclose(handle)
    listed: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) > 3 and cells[1] in ("P", "C", "*") and "see dedicated API" not in line:
            listed.setdefault(cells[0], set()).add(cells[1])
    return listed
