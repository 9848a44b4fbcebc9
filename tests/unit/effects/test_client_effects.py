"""What properties of connections change in what the clients of MySQL, Kafka and the schema registry are given."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from avrolib.fake_registry import FakeRegistry, running_registry
from kit.avro_rig import AVRO
from kit.cases import case, for_each
from kit.memory_job import PROPERTIES, config
from kit.tls_files import KEY_PASSWORD, Files, make_files

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry, client_settings
from airflow_provider_mysql_cdc.cdc.binlog import connect as connect_module
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit import ledger as ledger_module
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.fields import PARTS, ConverterPart
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.drain import topic_shares
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, RegistryError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import dead_letter, record_topics
from airflow_provider_mysql_cdc.cdc.job import job_ledger, topic_guard
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import findings
from airflow_provider_mysql_cdc.cdc.schema import history
from airflow_provider_mysql_cdc.cdc.signals import kafka_channel
from airflow_provider_mysql_cdc.cdc.verify.views import replica_views

FOLDER = "<files>"
"""Stands for the folder with certificates in values of properties."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"))


class Driver:
    """Stand in for the driver of MySQL; note what a connection is made with, and its limits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: dict[str, Any] = {}
        self.limits: tuple[float, float] = (0, 0)
        monkeypatch.setattr(connect_module, "SecureConnection", self)
        monkeypatch.setattr(connect_module, "prepare_session", lambda conn, where: "")
        monkeypatch.setattr(connect_module, "DeadlineReader", self._reader)

    def __call__(self, **given: Any) -> Any:
        self.given = given
        return SimpleNamespace(_sock=socket.socket())

    def _reader(self, sock: Any, silence_s: float, limit_s: float, lost_reason: Any) -> Any:
        self.limits = silence_s, limit_s
        return connect_module.io.BytesIO()


def _context(driver: Driver) -> ssl.SSLContext:
    found = driver.given["ssl"]
    assert isinstance(found, ssl.SSLContext)
    return found


def _given(name: str) -> Callable[[Driver], Any]:
    return lambda driver: driver.given.get(name)


CERTIFICATE = {"ssl.mode": "required", "ssl.cert": f"{FOLDER}/client.crt"}
ENCRYPTED = CERTIFICATE | {"ssl.key": f"{FOLDER}/client.key"}
ACCOUNT: list[tuple[str, str, Callable[[Driver], Any], Any, Any, dict[str, str]]] = [
    ("hostname", "other", _given("host"), "db", "other", {}),
    ("port", "3307", _given("port"), 3306, 3307, {}),
    ("user", "ann", _given("user"), "cdc", "ann", {}),
    ("password", "pw", _given("password"), b"", b"pw", {}),
    ("ssl.mode", "disabled", _given("ssl_disabled"), None, True, {}),
    ("ssl.ca", f"{FOLDER}/ca.pem", lambda d: len(_context(d).get_ca_certs()), 0, 1, {"ssl.mode": "required"}),
]
"""A property's name behind ``database.`` or that of the replica, its value, what it changes, and other properties."""
REFUSED = [
    ("ssl.cert", {"ssl.mode": "required"}, {"ssl.cert": "/nowhere/client.pem"}, "cannot be used"),
    ("ssl.key", CERTIFICATE | {"ssl.key.password": KEY_PASSWORD}, {"ssl.key": f"{FOLDER}/client.key"}, ""),
    ("ssl.key.password", ENCRYPTED, {"ssl.key.password": KEY_PASSWORD}, ""),
]
"""What the files of a certificate are read for: an error that the property makes or takes away (no text)."""
LIMITS: list[tuple[str, str, Callable[[Driver], Any], Any, Any]] = [
    ("connect.timeout.ms", "3000", _given("connect_timeout"), 30, 3),
    ("source.silence.timeout.ms", "9000", lambda d: d.limits[0], 60, 9),
    ("database.query.timeout.ms", "7000", lambda d: d.limits[1], 600, 7),
    ("database.program_name", "mine", _given("program_name"), "airflow-provider-mysql-cdc", "mine"),
]
REPLICA = "verify.replica.database."
SERVERS = [("database.", {}), (REPLICA, {REPLICA + "hostname": "db", REPLICA + "user": "cdc"})]


def _connected(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], files: Files, prefix: str) -> Driver:
    folder, driver = str(Path(files.ca).parent), Driver(monkeypatch)
    base = {"database.hostname": "db", "database.user": "cdc"}
    cfg = config(**base | {name: text.replace(FOLDER, folder) for name, text in properties.items()})
    if prefix == "database.":
        connect(cfg.connection_settings())
    else:
        with replica_views.connect_views(cfg):
            pass
    return driver


@pytest.mark.req("STRM-36", "CFG-04", "CFG-05", "CFG-06", "CFG-07")
@pytest.mark.parametrize(("prefix", "given"), SERVERS, ids=["source", "replica"])
def test_accounts_and_certificates_reach_the_driver(
    monkeypatch: pytest.MonkeyPatch, files: Files, prefix: str, given: dict[str, str]
) -> None:
    monkeypatch.setattr(replica_views, "connect", lambda settings: nullcontext(connect(settings)))

    def connected(properties: dict[str, str]) -> Driver:
        return _connected(monkeypatch, given | {prefix + n: text for n, text in properties.items()}, files, prefix)

    for name, value, measure, before, after, more in ACCOUNT:
        with case(prefix + name):
            assert measure(connected(more)) == before
            assert measure(connected(more | {name: value})) == after
    for name, plain, changed, error in REFUSED:
        good, bad = (plain, plain | changed) if error else (plain | changed, plain)
        with case(prefix + name):
            connected(good)
            with pytest.raises(ConfigError, match="certificate or key cannot be used"):
                connected(bad)


def test_time_limits_and_options_reach_the_driver(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    for name, value, measure, before, after in LIMITS:
        with case(name):
            assert measure(_connected(monkeypatch, {}, files, "database.")) == before
            assert measure(_connected(monkeypatch, {name: value}, files, "database.")) == after


# -- Kafka ---------------------------------------------------------------------------------------------------------
def _producer(name: str) -> Callable[..., Any]:
    def setting(**given: str) -> Any:
        with closing(kafka_clients.record_writer(config(**given), 0)) as writer:
            return writer._kafka.settings.get(name)

    return setting


def _writer(name: str) -> Callable[..., Any]:
    def member(**given: str) -> Any:
        with closing(kafka_clients.record_writer(config(**given), 0)) as writer:
            return getattr(writer, name)

    return member


KAFKA: list[tuple[str, str, Callable[..., Any], Any, Any]] = [
    ("kafka.bootstrap.servers", "other:9", _producer("bootstrap.servers"), "k:1", "other:9"),
    ("kafka.client.id", "mine", _producer("client.id"), None, "mine"),
    ("producer.override.compression.type", "lz4", _producer("compression.type"), "none", "lz4"),
    ("transaction.timeout.ms", "700000", _producer("transaction.timeout.ms"), 600_000, 700_000),
    ("commit.bytes", "1048576", _writer("_commit_bytes"), 32 << 20, 1 << 20),
    ("commit.interval.ms", "2000", _writer("_commit_interval_s"), 10.0, 2.0),
    ("ledger.topic", "mine", lambda **g: kafka_clients.ledger(config(**g)).topic, "ledger.p", "mine"),
    ("topic.prefix", "q", lambda **g: kafka_clients.ledger(config(**g))._prefix, "p", "q"),
    ("topic.settings.verified", "true", lambda **g: kafka_clients.ledger(config(**g))._verified, False, True),
    (
        "topic.creation.default.replication.factor",
        "3",
        lambda **g: kafka_clients.ledger(config(**g)).topic_spec().replication,
        -1,
        3,
    ),
    ("signal.kafka.bootstrap.servers", "s:2", lambda **g: _signals(**g)["bootstrap.servers"], "k:1", "s:2"),
    ("signal.consumer.fetch.min.bytes", "7", lambda **g: _signals(**g).get("fetch.min.bytes"), None, "7"),
    (
        "topic.creation.default.partitions",
        "5",
        lambda **g: record_topics.table_topic_spec(config(**g), "p.d.t").partitions,
        1,
        5,
    ),
    (
        "topic.creation.default.replication.factor",
        "3",
        lambda **g: record_topics.table_topic_spec(config(**g), "p.d.t").replication,
        -1,
        3,
    ),
    (
        "topic.creation.default.cleanup.policy",
        "compact",
        lambda **g: record_topics.table_topic_spec(config(**g), "p.d.t").config.get("cleanup.policy"),
        None,
        "compact",
    ),
]


def _signals(**given: str) -> Any:
    return kafka_channel.KafkaSignalChannel(config(**given))._settings


@pytest.mark.req("CFG-97")
@for_each(("name", "value", "measure", "before", "after"), KAFKA)
def test_settings_reach_the_clients_of_kafka(
    name: str, value: str, measure: Callable[..., Any], before: Any, after: Any
) -> None:
    found = measure(), measure(**{name: value})
    assert found == (before, after)


def test_a_topic_is_created_as_the_first_group_says_that_it_is_in() -> None:
    groups = {
        "topic.creation.groups": "big, logs",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.cleanup.policy": "compact",
        "topic.creation.big.include": r"p\.d\.(orders|log_.*)",
        "topic.creation.big.exclude": r".*_old,p\.d\.log_z",
        "topic.creation.big.partitions": "12",
        "topic.creation.logs.include": r"p\.d\.log_.*",
        "topic.creation.logs.replication.factor": "1",
        "topic.creation.logs.retention.ms": "5",
    }
    cfg = config(**groups)
    specs = {name: record_topics.table_topic_spec(cfg, f"p.d.{name}") for name in ("t", "orders", "log_a", "log_z")}
    assert {name: (s.partitions, s.replication) for name, s in specs.items()} == {
        "t": (3, -1),
        "orders": (12, -1),
        "log_a": (12, -1),
        "log_z": (3, 1),
    }
    assert [specs[name].config.get("cleanup.policy") for name in ("t", "log_z")] == ["compact", None]
    assert specs["log_z"].config["retention.ms"] == "5"
    assert record_topics.table_topic_spec(cfg, "p.d.log_a_old").partitions == 3, "the whole name has to match"
    plan = BatchPlan(1, "drain", BinlogOffset("b.000001", 4), BinlogOffset("b.000001", 9), 1)
    assert TopicShares(cfg, plan, 0, []).share_of(TableId("d", "orders")).partitions == 12, "it does not exist yet"


def test_the_cluster_of_the_history_stands_for_that_of_the_events() -> None:
    given = {name: text for name, text in PROPERTIES.items() if name != "kafka.bootstrap.servers"}
    cfg = ConnectorConfig.from_properties(given | {"schema.history.internal.kafka.bootstrap.servers": "history:1"})
    assert cfg.kafka_settings()["bootstrap.servers"] == "history:1"
    with closing(kafka_clients.record_writer(cfg, 0)) as writer:
        assert writer._kafka.settings["bootstrap.servers"] == "history:1"


ACCOUNTS = {
    "schema.history.internal.producer.sasl.username": "writer",
    "schema.history.internal.consumer.sasl.username": "reader",
}


@pytest.mark.req("CFG-82", "CFG-89")
def test_topics_are_created_and_the_history_is_read_with_the_settings_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no family says so, all clients have the same settings."""
    admins, readers = set[tuple[Any, str]](), list[Any]()

    def note(module: Any, settings: Any) -> None:
        admins.add((module, settings["sasl.username"]))

    creators = (job_ledger, topic_shares, dead_letter, ledger_module, findings)
    for module in creators:
        monkeypatch.setattr(module, "make_admin", partial(note, module))
        monkeypatch.setattr(module, "ensure_topics", lambda admin, topics: None, raising=False)
    monkeypatch.setattr(findings, "validate_topics", lambda admin, topics: [])
    monkeypatch.setattr(topic_shares, "describe_created", lambda admin, topics, at: {"t": None})
    monkeypatch.setattr(ledger_module, "partition_counts", lambda admin, topics: {"other": 1})
    monkeypatch.setattr(ledger_module, "describe_created", lambda admin, topics, at: {})
    monkeypatch.setattr(history, "make_admin", lambda settings: None)
    monkeypatch.setattr(history, "require_history", lambda cfg: None)
    monkeypatch.setattr(
        history, "read_topic_committed", lambda settings, topic, **named: readers.append(settings) or ()
    )
    for given, creator in ((ACCOUNTS, "reader"), (ACCOUNTS | {"admin.override.sasl.username": "admin"}, "admin")):
        cfg = config(**given, **{"errors.deadletterqueue.topic.name": "dead"})
        ledger: Any = SimpleNamespace(_cfg=cfg)
        job_ledger.JobLedger.create_topics(ledger, {})
        topic_shares.TopicPrecreation(cfg, lambda table: None).create("t")
        bad = BadRow(0, "c", ValueDecodeError("a value"))
        dead_letter.DeadLetterReporter(cfg, 0, lambda *record: None, {}).report("t", bad, EventContext(), [])
        cluster: Any = SimpleNamespace(cfg=cfg, specs={"t": None}, topics={}, admin=None)
        assert list(findings._missing_topics(cluster)) == []
        with pytest.raises(KeyError):  # the topic is made, and looked for again
            kafka_clients.ledger(cfg).ensure()
        assert admins == {(module, creator) for module in creators}
        assert list(history.read_history_records(cfg)) == [] and [each["sasl.username"] for each in readers] == [
            "reader"
        ]
        with closing(kafka_clients.record_writer(cfg, 0)) as writer:
            assert writer._kafka.settings["sasl.username"] == "writer"
        admins.clear()
        readers.clear()


@pytest.mark.req("INC-44", "CFG-98")
def test_a_poll_of_the_signal_topic_waits_as_long_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, group = SimpleNamespace(now=0.0), list[str]()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(kafka_channel, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock.now))
    monkeypatch.setattr(kafka_channel, "make_admin", lambda settings: None)
    monkeypatch.setattr(kafka_channel, "partition_counts", lambda admin, topics: dict.fromkeys(topics, 1))
    monkeypatch.setattr(kafka_channel, "topic_id", lambda admin, topic: "id")
    monkeypatch.setattr(kafka_channel, "end_offsets", lambda *given, stable: {0: (0, 0)})
    monkeypatch.setattr(kafka_channel, "read_between", lambda *given, group, **named: group_of(group))

    def group_of(name: str) -> Iterator[Any]:
        group.append(name)
        return iter(())

    for given, waited, name in (
        ({}, 0.1, "kafka-signal"),
        ({"signal.kafka.poll.timeout.ms": "0"}, 0.0, "kafka-signal"),
        ({"signal.kafka.poll.timeout.ms": "430", "signal.kafka.groupId": "mine"}, 0.43, "mine"),
    ):
        clock.now = 0.0
        kafka_channel.poll_signals(config(**{"signal.enabled.channels": "kafka"}, **given), build_ledger_state({}))
        assert clock.now == pytest.approx(waited) and group.pop() == name


# -- the schema registry -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as found:
        yield found


OAUTH = {
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.issuer.endpoint.url": "http://t:1",
    "bearer.auth.client.id": "cdc",
    "bearer.auth.client.secret": "s",
    "bearer.auth.scope": "all",
}
TOKEN = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "t"}
CERTIFIED = {"schema.registry.ssl.certificate.location": "/c.pem"}
REGISTRY: list[tuple[str, str, str, Any, Any, dict[str, str]]] = [
    ("schema.registry.url", "http://s:2", "url", "http://r:1", "http://s:2", {}),
    ("basic.auth.user.info", "ann:pw", "basic.auth.user.info", None, "ann:pw", {}),
    ("bearer.auth.token", "t2", "bearer.auth.token", "t", "t2", TOKEN),
    ("bearer.auth.logical.cluster", "c", "bearer.auth.logical.cluster", "", "c", TOKEN),
    ("bearer.auth.identity.pool.id", "p", "bearer.auth.identity.pool.id", None, "p", TOKEN),
    *((name, f"{text}2", name, text, f"{text}2", OAUTH) for name, text in OAUTH.items() if not name.endswith("source")),
    ("schema.registry.ssl.ca.location", "/ca.pem", "ssl.ca.location", None, "/ca.pem", {}),
    ("schema.registry.ssl.certificate.location", "/c.pem", "ssl.certificate.location", None, "/c.pem", {}),
    ("schema.registry.ssl.key.location", "/k.pem", "ssl.key.location", None, "/k.pem", CERTIFIED),
    ("schema.registry.ssl.key.password", "pw", "ssl.key.password", None, "pw", CERTIFIED),
    ("http.read.timeout.ms", "2000", "timeout", 10.0, 2.0, {}),
    ("max.retries", "7", "max.retries", 3, 7, {}),
    ("retries.wait.ms", "8", "retries.wait.ms", 1000, 8, {}),
    ("retries.max.wait.ms", "9", "retries.max.wait.ms", 20_000, 9, {}),
]


def _registry_config(part: ConverterPart, given: dict[str, str]) -> Any:
    base = {"schema.registry.url": "http://r:1"} | given
    cfg = config(**{f"{part}.converter": AVRO} | {f"{part}.converter.{name}": text for name, text in base.items()})
    settings = cfg.registry_settings(part)
    assert settings is not None
    return settings


@pytest.mark.parametrize("part", PARTS)
def test_settings_reach_the_client_of_the_registry(part: ConverterPart) -> None:
    for name, value, member, before, after, more in REGISTRY:
        with case(name):
            assert client_settings(_registry_config(part, more)).get(member) == before
            assert client_settings(_registry_config(part, more | {name: value})).get(member) == after


@pytest.mark.parametrize("part", PARTS)
def test_the_source_of_credentials_decides_what_is_sent(part: ConverterPart) -> None:
    both = {"schema.registry.url": "http://ann:url@r:1", "basic.auth.user.info": "ann:info"}
    for source, wanted in (("URL", "ann:url"), ("USER_INFO", "ann:info")):
        settings = _registry_config(part, both | {"basic.auth.credentials.source": source})
        assert client_settings(settings)["basic.auth.user.info"] == wanted
    for source, name in (("STATIC_TOKEN", "bearer.auth.token"), ("OAUTHBEARER", "bearer.auth.client.secret")):
        settings = _registry_config(part, TOKEN if source == "STATIC_TOKEN" else OAUTH)
        assert client_settings(settings)["bearer.auth.credentials.source"] == source
        assert name in client_settings(settings)


@pytest.mark.parametrize("part", PARTS)
def test_schemas_are_asked_for_as_the_properties_say(registry: FakeRegistry, part: ConverterPart) -> None:
    registry.guids = True

    def ask(**given: str) -> tuple[Any, list[tuple[str, str]]]:
        registry.requests.clear()
        named = {name.replace("__", "."): text for name, text in given.items()}
        with closing(SchemaRegistry(_registry_config(part, {"schema.registry.url": registry.url} | named))) as client:
            return client.schema_id("t-value", '{"type":"string"}', "table shop.t"), list(registry.requests)

    registry.wipe(1)
    with pytest.raises(RegistryError, match="does not have the table's schema"):
        ask(auto__register__schemas="false")
    plain, asked = ask()
    assert plain.guid is None and [path.partition("?")[0] for _, path in asked] == ["/subjects/t-value/versions"]
    assert "normalize=true" not in asked[0][1].lower()
    assert "normalize=true" in ask(normalize__schemas="true")[1][0][1].lower()
    assert ask(use__latest__version="true")[1][0][0] == "GET"
    name = f"{part}.schema.id.serializer"
    assert ask(**{name: "HeaderSchemaIdSerializer"})[0].guid is not None


def test_the_topics_of_the_stream_are_those_that_the_properties_name(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = set[str]()
    for module in (topic_guard, history):
        monkeypatch.setattr(module, "make_admin", lambda settings: None)
        monkeypatch.setattr(module, "require_settings", lambda admin, topic, rule, verified: looked.add(topic))
    monkeypatch.setattr(topic_guard, "describe_topics", lambda admin, topics, at: looked.update(topics) or {})
    monkeypatch.setattr(topic_guard, "broker_ids", lambda admin: (1,))
    named = {"ledger.topic": "l", "schema.history.internal.kafka.topic": "h"}
    topic_guard.require_durable_topics(config(**named), lambda *given: None)
    assert looked == {"l", "h"}


def test_secrets_stay_secrets() -> None:
    assert isinstance(config(kafka__sasl__password="x").kafka_settings()["sasl.password"], Secret)
