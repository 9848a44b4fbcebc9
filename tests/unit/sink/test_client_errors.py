"""What Kafka refuses is told from what may pass, and the reason is not lost among the errors that follow it.

Listing the topics of a cluster: a busy broker with very many is waited for, one that cannot be reached is not.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkConnectionError, SinkError, SinkTlsError
from airflow_provider_mysql_cdc.cdc.sink import client_errors, clients, topic_settings, topics
from airflow_provider_mysql_cdc.cdc.sink import kafka_errors as refusals
from airflow_provider_mysql_cdc.cdc.sink.client_errors import (
    OTHERS_AFTER_S,
    ClientErrors,
    Verdict,
    await_result,
    probe_servers,
)
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import Refusal, find_refusal

E = KafkaError
HANDSHAKE = "ssl://127.0.0.1:1/bootstrap: SSL handshake failed: "
DOWN = E(E._ALL_BROKERS_DOWN, "1/1 brokers are down")
TIMEOUT = E(E._TRANSPORT, "Failed to get metadata: Local: Broker transport failure")
WRONG_PASSWORD = E(E._AUTHENTICATION, "SASL authentication error: Authentication failed: Invalid username or password")


@for_each(
    ("code", "text", "refusal"),
    [
        (E._SSL, HANDSHAKE + "error:0A000086:SSL routines::certificate verify failed: broker", refusals.UNVERIFIED),
        (E._TRANSPORT, "error:0A000086:SSL routines::certificate verify failed", refusals.UNVERIFIED),
        (E._TRANSPORT, "Receive failed: ssl/tls alert bad certificate: SSL alert 42", refusals.CERTIFICATE_REFUSED),
        (E._TRANSPORT, "Receive failed: tlsv1 alert unknown ca: SSL alert number 48", refusals.CERTIFICATE_REFUSED),
        (E._TRANSPORT, "tlsv13 alert certificate required: SSL alert number 116", refusals.CERTIFICATE_MISSING),
        (E._SSL, HANDSHAKE + "tlsv1 alert protocol version: SSL alert number 70", refusals.NO_COMMON_TLS),
        (E._AUTHENTICATION, "SASL authentication error: Authentication failed: Invalid username", refusals.LOGIN),
        (E.SASL_AUTHENTICATION_FAILED, "Broker: SASL Authentication failed", refusals.LOGIN),
        (E._AUTHENTICATION, "handshake failed: Broker: Unsupported SASL mechanism: broker's", refusals.MECHANISM),
        (E._AUTHENTICATION, "Broker: Request not valid in current SASL state", refusals.ACCOUNT_NOT_TAKEN),
        # A broker that goes down or starts.
        (E._AUTHENTICATION, "SaslAuthenticateRequest failed: Local: Broker transport failure", None),
        (E._AUTHENTICATION, "SASL PLAIN mechanism handshake failed: Local: Timed out: broker's supported", None),
        (E._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: 503", None),
        (E._SSL, HANDSHAKE + "error:0A000126:SSL routines::unexpected eof while reading", None),
        (E._TRANSPORT, HANDSHAKE + "Disconnected: connecting to a PLAINTEXT broker listener?", None),
        (E._TRANSPORT, "Disconnected while requesting ApiVersion: might be caused by incorrect security", None),
        (E._TRANSPORT, "Connect to ipv4#127.0.0.1:1 failed: Connection refused", None),
        (E._ALL_BROKERS_DOWN, "1/1 brokers are down", None),
    ],
)
def test_only_what_is_certain_is_a_refusal(code: int, text: str, refusal: Refusal | None) -> None:
    assert find_refusal(E(code, text)) is refusal
    reported = ClientErrors({})
    reported.note(E(code, text))
    assert reported.to_error(TIMEOUT, "while testing", where="w").can_retry, "other brokers are connected"
    reported.note(DOWN)
    assert reported.to_error(TIMEOUT, "while testing", where="w").can_retry == (refusal is None)


def test_the_reason_outlasts_the_errors_that_follow_it() -> None:
    reported = ClientErrors({})
    for error in (WRONG_PASSWORD, DOWN, E(E._TRANSPORT, "down")):
        reported.note(error)
    named = reported.to_error(TIMEOUT, "while testing", where="w")
    assert type(named) is SinkAuthorizationError and "Invalid username" in named.why
    reported.reset()
    assert reported.last is None and type(reported.to_error(TIMEOUT, "x", where="w")) is SinkConnectionError


@pytest.mark.parametrize("vague", [E._FATAL, E._STATE, E._ALL_BROKERS_DOWN])
def test_the_transaction_timeout_keeps_its_name(vague: int) -> None:
    reported = ClientErrors({})
    for code in (E.INVALID_TRANSACTION_TIMEOUT, vague):
        reported.note(E(code))
    for code in (E._STATE, E._FATAL, E._TIMED_OUT, E.INVALID_TRANSACTION_TIMEOUT):
        named = reported.to_error(KafkaException(E(code)), "x", where="w")
        assert type(named) is SinkError and "transaction timeout" in named.what and not named.can_retry


def test_a_server_that_does_not_speak_kafka_is_named() -> None:
    """The size in the answer of MySQL's port, or of a web server."""
    reported = ClientErrors({})
    reported.note(E(E._BAD_MSG, "127.0.0.1:3306/bootstrap: Receive failed: Invalid response size 1258291200"))
    named = reported.to_error(TIMEOUT, "x", where="w")
    assert type(named) is SinkConnectionError and "not that of a Kafka broker" in named.what and named.can_retry


def test_a_clear_answer_counts_more_than_what_was_reported_before() -> None:
    reported = ClientErrors({})
    reported.note(WRONG_PASSWORD)
    named = reported.to_error(E(E.UNKNOWN_TOPIC_OR_PART, "no such topic"), "x", where="w")
    assert "does not exist" in named.what


def test_waiting_ends_only_where_no_broker_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = ClientErrors({})
    reported.note(WRONG_PASSWORD)
    assert not reported.is_refused(60), "another broker may answer"
    reported.note(DOWN)
    assert reported.is_refused(5) and not reported.is_refused(0.1)


@pytest.mark.parametrize("reversed_order", [False, True])
def test_a_refusal_is_not_final_while_another_broker_only_cannot_be_reached(reversed_order: bool) -> None:
    """Of two bootstrap servers one is the wrong listener; the right one restarts."""
    wrong = E(E._AUTHENTICATION, "sasl_ssl://b:1/bootstrap: SASL authentication error: Authentication failed")
    restarts = E(E._TRANSPORT, "sasl_ssl://a:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused")
    reported = ClientErrors({})
    for error in (restarts, wrong)[:: -1 if reversed_order else 1]:
        reported.note(error)
    reported.note(DOWN)
    assert not reported.is_refused(OTHERS_AFTER_S - 1) and reported.is_refused(OTHERS_AFTER_S)
    named = reported.to_error(TIMEOUT, "x", where="w")
    assert type(named) is SinkAuthorizationError and named.can_retry
    assert "of the others none can be reached now (a:1)" in named.why

    reported.note(E(E._AUTHENTICATION, "sasl_ssl://a:1/2: SASL authentication error: Authentication failed"))
    assert reported.is_refused(60) and not reported.to_error(TIMEOUT, "x", where="w").can_retry


@pytest.mark.parametrize(
    ("refusal", "counts"), [(refusals.TLS_NEEDED, True), (refusals.ACCOUNT_NEEDED, True), (refusals.EXPIRED, False)]
)
def test_the_listener_is_asked_once_and_not_about_its_certificate(
    monkeypatch: pytest.MonkeyPatch, refusal: Refusal, counts: bool
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        client_errors, "probe_servers", lambda settings: asked.append(settings) or Verdict(refusal, "it said so")
    )
    reported = ClientErrors({})
    assert not reported.is_refused(60) and not asked
    reported.note(DOWN)
    for _ in range(3):
        assert reported.is_refused(60) == counts
    named = reported.to_error(TIMEOUT, "x", where="w")
    assert (named.what.startswith(refusal.what), named.can_retry) == (counts, not counts)
    assert len(asked) == 1


def test_an_expired_certificate_is_named_after_the_client_has_refused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_errors, "probe_servers", lambda settings: Verdict(refusals.EXPIRED, "b:1: it expired"))
    reported = ClientErrors({})
    reported.note(E(E._SSL, "certificate verify failed"))
    named = reported.to_error(TIMEOUT, "x", where="w")
    assert type(named) is SinkTlsError and "expired" in named.what and "b:1: it expired" in named.why


@pytest.mark.parametrize(
    ("settings", "what"), [({}, refusals.CERTIFICATE_MISSING), ({"ssl.certificate.location": "c.pem"}, None)]
)
def test_a_client_without_a_certificate_is_told_so(settings: dict[str, str], what: Refusal | None) -> None:
    reported = ClientErrors(settings)
    reported.note(E(E._TRANSPORT, "ssl/tls alert bad certificate"))
    named = reported.to_error(TIMEOUT, "x", where="w")
    assert named.what.startswith((what or refusals.CERTIFICATE_REFUSED).what)


class Admin:
    """A client that reports in poll()."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors, self._untold = ClientErrors({}), list(errors)

    def poll(self, timeout: float) -> None:
        while self._untold:
            self.errors.note(self._untold.pop(0))


def test_a_request_does_not_wait_longer_than_for_a_refusal() -> None:
    never: Future[Any] = Future()
    with pytest.raises(KafkaException):
        await_result(Admin(WRONG_PASSWORD, DOWN), never, 4)
    with pytest.raises(TimeoutError):
        await_result(Admin(WRONG_PASSWORD), never, 0.3)
    done: Future[Any] = Future()
    done.set_result(7)
    assert await_result(object(), done, 1) == 7


@pytest.fixture
def closing() -> Iterator[str]:
    """Return the address of a server that closes each connection, as a broker that goes down does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("protocol", ["plaintext", "ssl", "sasl_ssl", "sasl_plaintext"])
def test_a_listener_that_closes_each_connection_gives_no_verdict(closing: str, protocol: str) -> None:
    assert probe_servers({"bootstrap.servers": closing, "security.protocol": protocol}) is None


def test_servers_of_which_one_may_fit_give_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": Verdict(refusals.TLS_NEEDED, "it said so"), "fits": client_errors._FITS}
    monkeypatch.setattr(client_errors, "_probe", lambda host, port, _: known.get(host))
    assert probe_servers({"bootstrap.servers": "a:1,a:2"}) == known["a"]
    for servers in ("a:1,fits:2", "fits:2,a:1", "fits:2,dead:1", "dead:1", ""):
        assert probe_servers({"bootstrap.servers": servers}) is None


def test_servers_without_an_answer_are_named_beside_one_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_errors, "_LIMIT_S", 0.3)

    def probe(host: str, port: int, _: object) -> Verdict | None:
        if host == "slow":
            time.sleep(5)  # as a name server that does not answer
        return Verdict(refusals.TLS_NEEDED, host) if host == "a" else None

    monkeypatch.setattr(client_errors, "_probe", probe)
    unasked = ",".join(f"a:{n}" for n in range(20))
    for servers, others in (
        ("SSL://a:1, [::1]:2", ("[::1]:2",)),
        ("dead:1,a:1", ("dead:1",)),
        ("slow:1,a:1", ("slow:1",)),
        (unasked, tuple(f"a:{n}" for n in range(client_errors._MAX_SERVERS, 20))),
    ):
        verdict = probe_servers({"bootstrap.servers": servers})
        assert verdict is not None and verdict.others == others


def test_a_listener_of_the_wrong_kind_beside_one_that_is_down_is_named_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = Verdict(refusals.TLS_NEEDED, "b:1 answers over TLS only", ("a:1",))
    monkeypatch.setattr(client_errors, "probe_servers", lambda settings: verdict)
    reported = ClientErrors({})
    reported.note(DOWN)
    assert not reported.is_refused(OTHERS_AFTER_S - 1) and reported.is_refused(OTHERS_AFTER_S)
    named = reported.to_error(TIMEOUT, "x", where="w")
    assert type(named) is SinkTlsError and named.can_retry and "none can be reached now (a:1)" in named.why


def test_a_request_is_not_judged_by_what_an_answer_has_shown_to_be_over() -> None:
    """A client is shared by requests, and lives longer than a fault."""
    for answer in (7, KafkaException(E(E.UNKNOWN_TOPIC_OR_PART))):
        client = Admin(WRONG_PASSWORD, DOWN)
        client.poll(0)
        done: Future[Any] = Future()
        if isinstance(answer, int):
            done.set_result(answer)
        else:
            done.set_exception(answer)
        with contextlib.suppress(KafkaException):
            await_result(client, done, 1)
        assert not client.errors.is_refused(60) and client.errors.last is None
        assert client.errors.any_reported, "the pool replaces it"
        assert reported_error(client).can_retry

    client = Admin(WRONG_PASSWORD, DOWN)
    client.poll(0)
    timed_out: Future[Any] = Future()
    timed_out.set_exception(KafkaException(E(E._TIMED_OUT)))
    with pytest.raises(KafkaException):
        await_result(client, timed_out, 1)
    assert client.errors.is_refused(60), "the client's own words are no answer of Kafka's"


def reported_error(client: Admin) -> SinkError:
    return client.errors.to_error(TIMEOUT, "x", where="w")


@for_each(
    ("text", "what", "where"),
    [
        ("ssl.key.location failed: error:0A080009:SSL routines::PEM lib", "the private key", "kafka.ssl.key.location"),
        ("ssl.certificate.pem failed: error reading certificate", "the client cert", "kafka.ssl.certificate.pem"),
        ("ssl.ca.location failed: error:05880020:x509 certificate", "the authority", "kafka.ssl.ca.location"),
        ("Failed to parse ssl.keystore.location PKCS#12 file: c.p12", "the key store", "kafka.ssl.keystore.location"),
        ('No such configuration property: "ssl.key.lokation"', "the Kafka client refuses", "kafka.*"),
    ],
)
def test_a_file_that_the_client_cannot_read_is_named(text: str, what: str, where: str) -> None:
    error = clients._settings_error(f"Failed to create admin client: {text}")
    assert what in error.what and error.where == where and not error.can_retry
    assert ("kafka.ssl.keystore.password" in error.remedy) == ("key store" in what)


class Slow:
    """An admin client whose broker needs so many seconds to list its topics."""

    def __init__(self, needs_s: float, last_error: KafkaError | None = None, addresses: str = "") -> None:
        self.now = 0.0
        self.needs_s, self.errors = needs_s, ClientErrors({"bootstrap.servers": addresses})
        if last_error is not None:
            self.errors.note(last_error)

    def list_topics(self, timeout: float) -> Any:
        self.now += min(timeout, self.needs_s)
        if timeout < self.needs_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(topics={"a": SimpleNamespace(partitions={0: None, 1: None})})

    def poll(self, timeout: float) -> None:
        pass


def listed(monkeypatch: pytest.MonkeyPatch, admin: Slow) -> dict[str, int]:
    monkeypatch.setattr(topics.time, "monotonic", lambda: admin.now)
    return topics.all_partition_counts(admin)  # type: ignore[arg-type]


@pytest.mark.parametrize("needs_s", [0.1, 4, 11])
def test_a_busy_broker_is_given_longer_each_time(monkeypatch: pytest.MonkeyPatch, needs_s: float) -> None:
    assert listed(monkeypatch, Slow(needs_s)) == {"a": 2}


@pytest.mark.parametrize(("told", "within"), [(KafkaError._ALL_BROKERS_DOWN, 15), (None, 65)])
def test_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch, told: int | None, within: float) -> None:
    admin = Slow(1e6, None if told is None else KafkaError(told))
    with pytest.raises(SinkConnectionError, match="listing topics"):
        listed(monkeypatch, admin)
    assert 15 <= admin.now <= within


@pytest.mark.req("FAULT-12")
def test_a_broker_that_has_answered_before_may_take_long_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_errors, "_ANSWERED", set())
    assert listed(monkeypatch, Slow(0.1, addresses="known:9092")) == {"a": 2}
    back = Slow(1e6, KafkaError(KafkaError._ALL_BROKERS_DOWN), addresses="known:9092")
    with pytest.raises(SinkConnectionError):
        listed(monkeypatch, back)
    assert back.now >= 60
    other = Slow(1e6, KafkaError(KafkaError._ALL_BROKERS_DOWN), addresses="typing-error:9092")
    with pytest.raises(SinkConnectionError):
        listed(monkeypatch, other)
    assert other.now < 20


def test_a_broker_that_does_not_say_what_is_allowed_forbids_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimpleNamespace(authorized_operations=[SimpleNamespace(name="READ")])
    answers = {"t": SimpleNamespace(authorized_operations=None), "u": read}
    admin: Any = SimpleNamespace(describe_topics=lambda *_, **__: answers)
    monkeypatch.setattr(topic_settings, "await_result", lambda admin, answer, timeout_s: answer)
    assert topic_settings.allowed_operations(admin, ["t", "u"]) == {"u": frozenset({"READ"})}
