"""A Kafka that refuses protocol, certificate, mechanism or account: each has its name, soon, and is not retried."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from kit.private_kafka import PASSWORD, USER, PrivateKafka
from kit.sql import execute
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    SinkAuthorizationError,
    SinkConnectionError,
    SinkError,
    SinkTlsError,
)
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink import clients, topics
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.request_limit import request_max_bytes
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_between, read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicSpec,
    cluster_metadata,
    describe_topics,
    end_offsets,
    ensure_topics,
    topic_config,
    topic_id,
)
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

NAMED_WITHIN_S = 10.0
"""On a machine that has nothing else to do; otherwise more, in proportion to its load."""
TIMEOUT_MS = 30_000
WRONG_PASSWORD, KEY_PASSWORD = "hunter2-wrong", "key-word-of-the-client"
Settings = dict[str, str]


@pytest.fixture(scope="module")
def kafka(private_kafka: PrivateKafka) -> PrivateKafka:
    """Return a broker with one listener for each way to connect, and certificates of its clients."""
    private_kafka.authority.issue("client", password=KEY_PASSWORD)
    private_kafka.stranger.issue("strange-client")
    return private_kafka


def certificate(kafka: PrivateKafka, name: str = "client", password: str = KEY_PASSWORD) -> Settings:
    """Return the settings of a client certificate."""
    return {
        "ssl_certificate_location": str(kafka.folder / f"{name}.crt"),
        "ssl_key_location": str(kafka.folder / f"{name}.key"),
        "ssl_key_password": password,
    }


ACCEPTED: dict[str, Callable[[PrivateKafka], Settings]] = {
    "SSL with a client certificate": lambda k: k.settings("SSL", **certificate(k)),
    "SASL without TLS": lambda k: k.settings("SASL_PLAINTEXT"),
    "SASL_SSL PLAIN": lambda k: k.settings("SASL_SSL", sasl_mechanism="PLAIN"),
    "SASL_SSL SCRAM-SHA-256": lambda k: k.settings("SASL_SSL", sasl_mechanism="SCRAM-SHA-256"),
    "SASL_SSL SCRAM-SHA-512": lambda k: k.settings("SASL_SSL", sasl_mechanism="SCRAM-SHA-512"),
    "a name that is not checked": lambda k: k.settings("OTHERNAME", ssl_endpoint_identification_algorithm="none"),
}


class Wrong(NamedTuple):
    """One way to set it wrong, and the error that it leads to."""

    settings: Callable[[PrivateKafka], Settings]
    error: type[CdcError]
    what: str


TLS_NEEDED, TLS_NOT_USED = "listener uses TLS, and the client does not", "listener does not use TLS"
UNTRUSTED, LOGIN = "signed by an authority that is not trusted", "refuses the account or its password"
REFUSED = {
    "no TLS to a TLS listener": Wrong(
        lambda k: k.settings("SSL", security_protocol="plaintext"), SinkTlsError, TLS_NEEDED
    ),
    "SASL without TLS to a TLS listener": Wrong(
        lambda k: k.settings("SASL_SSL", security_protocol="sasl_plaintext"), SinkTlsError, TLS_NEEDED
    ),
    "TLS to a listener without": Wrong(
        lambda k: k.settings("PLAINTEXT", security_protocol="ssl"), SinkTlsError, TLS_NOT_USED
    ),
    "SASL_SSL to a listener without TLS": Wrong(
        lambda k: k.settings("SASL_PLAINTEXT", security_protocol="sasl_ssl"), SinkTlsError, TLS_NOT_USED
    ),
    "an unknown authority": Wrong(
        lambda k: k.settings("SASL_SSL", ssl_ca_location=k.stranger.certificate), SinkTlsError, UNTRUSTED
    ),
    "no authority": Wrong(lambda k: k.settings("SASL_SSL", ssl_ca_location=""), SinkTlsError, UNTRUSTED),
    "another host name": Wrong(lambda k: k.settings("OTHERNAME"), SinkTlsError, "for another host name"),
    "an expired certificate": Wrong(lambda k: k.settings("EXPIRED"), SinkTlsError, "certificate has expired"),
    "no client certificate": Wrong(lambda k: k.settings("SSL"), SinkTlsError, "asks for a client certificate"),
    "a client certificate of another authority": Wrong(
        lambda k: k.settings("SSL", **certificate(k, "strange-client", "")),
        SinkTlsError,
        "refuses the client's certificate",
    ),
    "a wrong password of the key": Wrong(
        lambda k: k.settings("SSL", **certificate(k, password=WRONG_PASSWORD)),
        ConfigError,
        "the private key of the client certificate cannot be read",
    ),
    "no file of the authority": Wrong(
        lambda k: k.settings("SASL_SSL", ssl_ca_location=str(k.folder / "gone.pem")),
        ConfigError,
        "the certificate of the authority cannot be read",
    ),
    "a mechanism that the broker lacks": Wrong(
        lambda k: k.settings("SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256"),
        SinkAuthorizationError,
        "does not offer the SASL mechanism",
    ),
    "a wrong password": Wrong(
        lambda k: k.settings("SASL_SSL", sasl_password=WRONG_PASSWORD), SinkAuthorizationError, LOGIN
    ),
    "a wrong password of SCRAM": Wrong(
        lambda k: k.settings("SASL_SSL", sasl_password=WRONG_PASSWORD, sasl_mechanism="SCRAM-SHA-512"),
        SinkAuthorizationError,
        LOGIN,
    ),
    "an unknown account": Wrong(
        lambda k: k.settings("SASL_SSL", sasl_username="nobody", sasl_mechanism="SCRAM-SHA-256"),
        SinkAuthorizationError,
        LOGIN,
    ),
    "an account to a listener without": Wrong(
        lambda k: k.settings(
            "PLAINTEXT",
            security_protocol="sasl_plaintext",
            sasl_mechanism="PLAIN",
            sasl_username=USER,
            sasl_password=PASSWORD,
        ),
        SinkAuthorizationError,
        "listener takes no account",
    ),
    "no account to a listener with": Wrong(
        lambda k: k.settings("SASL_PLAINTEXT", security_protocol="plaintext"),
        SinkAuthorizationError,
        "asks for an account",
    ),
    "no account to a TLS listener with": Wrong(
        lambda k: k.settings("SASL_SSL", security_protocol="ssl"), SinkAuthorizationError, "asks for an account"
    ),
}


def take_over(settings: Settings) -> None:
    """Initialise a transactional producer."""
    with TransactionalWriter(settings, "refused.0", transaction_timeout_ms=TIMEOUT_MS) as writer:
        writer.init(30)


CLIENTS: dict[str, Callable[[Settings], object]] = {
    "describe": lambda s: describe_topics(make_admin(s), ["t"], s["bootstrap.servers"]),
    "list": lambda s: cluster_metadata(make_admin(s), 15),
    "transactions": take_over,
    "consume": lambda s: list(read_between(s, "t", {0: (0, 5)}, timeout_s=30)),
}
MORE_CLIENTS: dict[str, Callable[[Settings], object]] = {
    "create": lambda s: ensure_topics(make_admin(s), {"t": TopicSpec(1, 1)}),
    "id": lambda s: topic_id(make_admin(s), "t"),
    "settings": lambda s: topic_config(make_admin(s), "t"),
    "offsets": lambda s: end_offsets(make_admin(s), "t", [0]),
    "read": lambda s: list(read_topic_committed(s, "t", timeout_s=30)),
    "size": lambda s: TransactionalWriter(
        s, "refused.1", transaction_timeout_ms=TIMEOUT_MS, request_max_bytes=request_max_bytes(s)
    ).init(30),
    "write": lambda s: write_plain(s, [SideRecord("t", b"k", b"v", None)], timeout_s=30),
}


BESIDE = ["no TLS to a TLS listener", "no account to a listener with", "an unknown authority", "a wrong password"]
"""Cases that are also tried with a second server that is down."""
EVERY_REQUEST = ["a wrong password", "no TLS to a TLS listener"]


def clients_of(name: str) -> dict[str, Callable[[Settings], object]]:
    """Return the clients that a case is tried with; a client that is refused tries again without a pause."""
    few = {client: CLIENTS[client] for client in ("list", "transactions")}
    return CLIENTS | MORE_CLIENTS if name in EVERY_REQUEST else many(few, CLIENTS)


def outcome(client: Callable[[Settings], object], settings: Settings) -> tuple[BaseException | None, float]:
    """Return what a client ends with, and after how many seconds.

    The error is judged by the test; its frames hold the client, which would go on to be refused until the run ends.
    """
    started = time.monotonic()
    try:
        client(settings)
    except Exception as error:
        took, raised = time.monotonic() - started, error
    else:
        return None, time.monotonic() - started
    link: BaseException | None = raised
    while link is not None:
        link.__traceback__, link = None, link.__cause__ or link.__context__
    return raised, took


@pytest.fixture(scope="module")
def endings(kafka: PrivateKafka) -> dict[tuple[str, str], tuple[BaseException | None, float]]:
    """Return what each client ended with, by case and client; all at the same time, as most of it is waiting."""
    from stacklib.ports import any_free

    down = f"127.0.0.1:{any_free()}"
    tries: dict[tuple[str, str], tuple[Callable[[Settings], object], Settings]] = {}
    for name, wrong in REFUSED.items():
        settings = wrong.settings(kafka)
        for client, call in clients_of(name).items():
            larger = {"message.max.bytes": "2000000"} if client in MORE_CLIENTS else {}
            tries[name, client] = (call, settings | larger)
            if name in BESIDE and client in CLIENTS:
                both = settings | {"bootstrap.servers": f"{down},{settings['bootstrap.servers']}"}
                tries[f"{name} beside {down}", client] = (call, both)
    nobody = {"bootstrap.servers": down, "security.protocol": "ssl"}
    tries["nobody", "list"] = (lambda s: cluster_metadata(make_admin(s), 4), nobody)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(_AT_ONCE) as pool:
        patch.setattr(topics, "_METADATA_TRY_S", 1.0)  # looks for refusals after a second already
        made = {key: pool.submit(outcome, *one) for key, one in tries.items()}
        ends = {key: future.result() for key, future in made.items()}
    clients._ADMIN_POOL.clear()
    return ends


_AT_ONCE = 12


@pytest.fixture(scope="module")
def limit_s() -> float:
    """Return the seconds within which a refusal must be named; asked for before the clients add to the load."""
    return NAMED_WITHIN_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.exhaustive(but="^(?!no TLS to a TLS)")
@pytest.mark.req("FAULT-12")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_named_soon_and_not_retried(limit_s: float, endings: Any, name: str) -> None:
    wrong, seen = REFUSED[name], []
    for (case, client), (error, seconds) in endings.items():
        if case != name and not case.startswith(f"{name} beside "):
            continue
        down = case.partition(" beside ")[2]
        assert type(error) is wrong.error and wrong.what in error.what, f"{case}, {client}: {error!r}"
        assert error.can_retry is bool(down) and error.remedy and down in error.why, f"{case}, {client}: {error!r}"
        assert seconds < limit_s, f"{case}, {client}: {seconds:.1f} s"
        for secret in (WRONG_PASSWORD, KEY_PASSWORD, PASSWORD):
            assert secret not in str(error), client
        seen.append(client)
    assert {*seen} == {*clients_of(name)}
    assert len(seen) == len({*seen}) + len({*seen} & {*CLIENTS}) * (name in BESIDE)


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.exhaustive(but="client certificate|256|not checked")
def test_records_are_written_and_read_with_each_kind_of_login(kafka: PrivateKafka, unique: str, name: str) -> None:
    settings = ACCEPTED[name](kafka)
    ensure_topics(make_admin(settings), {unique: TopicSpec(1, 1)})
    with TransactionalWriter(settings, f"{unique}.0", transaction_timeout_ms=TIMEOUT_MS) as writer:
        writer.init()
        writer.produce(unique, b"k", b"v", 0)
        writer.commit()
    assert [record.value for record in read_topic_committed(settings, unique)] == [b"v"]


@pytest.mark.days("odd")
def test_jobs_run_with_a_login(kafka: PrivateKafka, properties: dict[str, str], root: Any, database: str) -> None:
    """The drain has another one than the snapshot."""
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")

    def pipeline_with(name: str) -> Pipeline:
        settings = {f"kafka.{setting}": value for setting, value in ACCEPTED[name](kafka).items()}
        limits = {"transaction.timeout.ms": str(TIMEOUT_MS), "snapshot.locking.mode": "none"}
        return Pipeline(properties | settings | limits)

    pipeline = pipeline_with("SSL with a client certificate")
    assert pipeline.snapshot().complete
    execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
    pipeline.properties = pipeline_with("SASL_SSL SCRAM-SHA-512").properties
    assert pipeline.drain() is not None
    assert len(list(read_topic_committed(pipeline.cfg.kafka_settings(), pipeline.table_topic("t")))) == 2


@pytest.mark.parametrize("pause_s", [0.0, 0.7])
def test_a_transaction_timeout_above_the_brokers_limit_has_its_name(
    kafka: PrivateKafka, unique: str, pause_s: float
) -> None:
    settings = kafka.settings("PLAINTEXT")
    with TransactionalWriter(settings, f"{unique}.0", transaction_timeout_ms=600_000) as writer:
        for _ in range(3):  # also after the producer has given up
            with pytest.raises(SinkError, match="refuses the transaction timeout") as caught:
                writer.init(20)
            assert not caught.value.can_retry and "transaction.max.timeout.ms" in caught.value.remedy
            time.sleep(pause_s)
        writer._kafka.poll(0)
        with pytest.raises(SinkError, match="refuses the transaction timeout"):
            writer.produce("t", b"k", b"v", 0)


def test_a_broker_that_is_down_stays_a_matter_of_time(endings: Any) -> None:
    """Also where its listeners would refuse: nothing answers, so nothing is certain."""
    error, _ = endings["nobody", "list"]
    assert type(error) is SinkConnectionError
    assert error.can_retry and "cannot be reached" in error.what


@pytest.mark.days("even")
def test_a_broker_that_restarts_is_waited_for(kafka: PrivateKafka) -> None:
    """Its last answers, and the first connections after its start, are no refusals."""
    soon = {"reconnect.backoff.max.ms": "300"}  # many connections while it starts
    settings = kafka.settings("SASL_SSL", sasl_mechanism="SCRAM-SHA-512") | soon
    with ThreadPoolExecutor(5) as pool:
        stopping = [pool.submit(outcome, CLIENTS["list"], settings) for _ in range(3)]
        kafka.stop()
        starting = [pool.submit(outcome, CLIENTS[name], settings) for name in ("list", "describe")]
        kafka.start()
        ends = [future.result() for future in (*stopping, *starting)]
    for error, _ in ends:
        assert error is None or (type(error) is SinkConnectionError and error.can_retry), ends
    assert any(error is None for error, _ in ends[-2:]), ends
