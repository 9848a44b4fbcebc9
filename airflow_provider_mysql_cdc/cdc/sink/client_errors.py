"""Keep what a Kafka client has reported, and name the error that explains it, with what the listener itself says.

Keep what a Kafka client has reported, and name the error that it explains.

librdkafka calls back with the reason (TLS, login, network) and lets the request run into its timeout, which says
nothing; ``_ALL_BROKERS_DOWN`` follows each reason. So the reason is kept here, for every client, and asked for while a
request waits.

Ask a Kafka listener what it speaks, where the client only says that no broker can be reached.

A broker closes a connection of the wrong kind without an answer, as one that goes down does. So what is wrong is
certain only after an answer: to a TLS handshake, or to a SaslHandshake request (Kafka's protocol, api key 17), which a
listener with SASL answers with its mechanisms, and one without with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.sink import kafka_errors as refusals
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import (
    UNSPECIFIC_CODES,
    Refusal,
    find_refusal,
    to_sink_error,
    unwrap_error,
)

_TIMEOUT_S = 2.0
_LIMIT_S = 4.5
"""Seconds for all servers; each is asked twice at most."""
_MAX_SERVERS = 8
_DEFAULT_PORT = 9092
_SERVER = re.compile(r"(?:\w+://)?(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\s]+))(?::(?P<port>\d+))?\Z")
_SASL_HANDSHAKE, _VERSION, _CORRELATION = 17, 1, 1
_NO_MECHANISM, _UNSUPPORTED_MECHANISM, _ILLEGAL_STATE = "?", 33, 34
_LARGEST_ANSWER = 10_000
# X509_V_ERR_* of OpenSSL.
_VERIFY_CODES: dict[int, Refusal] = {
    **dict.fromkeys((9, 10), refusals.EXPIRED),
    **dict.fromkeys((62, 64), refusals.OTHER_NAME),
    **dict.fromkeys((2, 18, 19, 20, 21), refusals.UNKNOWN_AUTHORITY),
}


class Verdict(NamedTuple):
    """Hold what a listener has answered.

    Args:
        refusal: Why a client with these settings cannot use it.
        why: What it has answered.
        others: Servers that have given no answer, so that a client may be able to use them.
    """

    refusal: Refusal
    why: str
    others: tuple[str, ...] = ()


def probe_servers(settings: Mapping[str, Any]) -> Verdict | None:
    """Return why no server of ``bootstrap.servers`` that answers can be used with these settings.

    Args:
        settings: Client settings.

    Returns:
        The first verdict; None where a server fits, or none answers.
    """
    servers = [text.strip() for text in str(settings.get("bootstrap.servers", "")).split(",") if text.strip()]
    answers = _probe_all(servers[:_MAX_SERVERS], settings)
    verdict = next((answer for answer in answers.values() if answer is not None), None)
    if verdict is None or _FITS in answers.values():
        return None
    return verdict._replace(others=tuple(server for server in servers if answers.get(server) is None))


_FITS = Verdict(Refusal(SinkError, "", ""), "")
"""Stands for a listener that can be used."""


def _probe_all(servers: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Verdict | None]:
    """Ask all servers at once; a name that is not resolved in time has no answer (getaddrinfo has no timeout)."""
    answers: dict[str, Verdict | None] = {}

    def ask(server: str) -> None:
        if match := _SERVER.match(server):
            answers[server] = _probe(match["six"] or match["name"], int(match["port"] or _DEFAULT_PORT), settings)

    threads = [threading.Thread(target=ask, args=(server,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _LIMIT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    # In the order of the list; a thread that still waits may add its answer to the other dictionary.
    return {server: answers.get(server) for server in servers}


def _probe(host: str, port: int, settings: Mapping[str, Any]) -> Verdict | None:
    """Return what a listener answers; None if it gives no answer of Kafka's."""
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    where = f"{host}:{port}"
    try:
        if not protocol.endswith("ssl"):
            mechanisms = _ask(host, port, None)
            if mechanisms is None and _ask(host, port, _any_certificate()) is not None:
                return Verdict(refusals.TLS_NEEDED, f"{where} answers over TLS only")
        else:
            mechanisms = _ask(host, port, _context(settings))
            if mechanisms is None and _ask(host, port, None) is not None:
                return Verdict(refusals.TLS_NOT_USED, f"{where} answers without TLS")
    except ssl.SSLCertVerificationError as error:
        refusal = _VERIFY_CODES.get(error.verify_code, refusals.UNVERIFIED)
        return Verdict(refusal, f"{where}: {error.verify_message}")
    except OSError:
        return None
    if mechanisms and not protocol.startswith("sasl"):
        return Verdict(refusals.ACCOUNT_NEEDED, f"{where} offers the SASL mechanisms {', '.join(mechanisms)}")
    return None if mechanisms is None else _FITS


def _ask(host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, ...] | None:
    """Return the SASL mechanisms of a listener, none for one without SASL; None if it gives no answer of Kafka's.

    Raises:
        SSLCertVerificationError: Its certificate is not accepted.
        OSError: It cannot be reached.
    """
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), timeout=_TIMEOUT_S))
        try:
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(_request())
            return _mechanisms(connection.makefile("rb"))
        except ssl.SSLCertVerificationError:
            raise
        except ssl.SSLError as error:
            # An alert of the broker: it speaks TLS, and refuses this client only after its own side was accepted.
            return () if tls is not None and "ALERT" in (error.reason or "") else None
        except OSError:
            return None


def _request() -> bytes:
    client, mechanism = b"mysql-cdc", _NO_MECHANISM.encode()
    body = struct.pack(">hhih", _SASL_HANDSHAKE, _VERSION, _CORRELATION, len(client)) + client
    body += struct.pack(">h", len(mechanism)) + mechanism
    return struct.pack(">i", len(body)) + body


def _mechanisms(answer: Any) -> tuple[str, ...] | None:
    head = answer.read(14)
    if len(head) < 14:
        return None
    size, correlation, code, count = struct.unpack(">iihi", head)
    if correlation != _CORRELATION or size > _LARGEST_ANSWER or code not in (0, _UNSUPPORTED_MECHANISM, _ILLEGAL_STATE):
        return None
    if code == _ILLEGAL_STATE:
        return ()
    body, names = answer.read(size - 10), []
    for _ in range(count):
        length = struct.unpack(">h", body[:2])[0]
        names.append(body[2 : 2 + length].decode("ascii", "replace"))
        body = body[2 + length :]
    return tuple(names)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what verifies a broker as these settings say; without a client certificate, which is judged later."""
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        return _any_certificate()
    location, pem = str(settings.get("ssl.ca.location") or ""), settings.get("ssl.ca.pem")
    if pem:
        context = ssl.create_default_context(cadata=str(pem.reveal() if isinstance(pem, Secret) else pem))
    elif location and location != "probe":
        context = ssl.create_default_context(cafile=location)
    else:
        context = ssl.create_default_context()
    # Python 3.13 asks more of an authority's certificate than librdkafka does.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() != "none"
    return context


REFUSED_AFTER_S = 1.0
"""Seconds that a request waits although each broker has refused: one may be found that does not."""
OTHERS_AFTER_S = 6.0
"""The same while others cannot be reached: one of them may come back and take the request."""
_PROBE_AFTER_S = 2.0
"""Seconds without an answer after which the listeners are asked what they speak."""
_CHECK_S = 0.25
_MAX_NAMED = 3
_VAGUE_CODES = (KafkaError._ALL_BROKERS_DOWN, *UNSPECIFIC_CODES)
_MISMATCHES = (refusals.TLS_NEEDED, refusals.TLS_NOT_USED, refusals.ACCOUNT_NEEDED)
_BROKER = re.compile(r"(?:\w+://)?(?P<address>\S+?)/(?:bootstrap|\d+): ")
"""How librdkafka begins the text of a broker's error (rd_kafka_broker_set_error)."""
_CERTIFICATE_SETTINGS = (
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl_certificate",
)  # fmt: skip
_ANSWERED: set[str] = set()
"""The addresses (``bootstrap.servers``) of the clusters that have answered a client of this process."""


class ClientErrors:
    """Keep the errors that one client has reported since Kafka last answered it.

    librdkafka reports that all brokers are down once until one is up again, and equal errors of a broker once in 30 s.
    So errors are kept from one request to the next, until an answer shows that they have passed (``note_answer``).

    Args:
        settings: The client's settings.

    Attributes:
        last: The last error that says something, or else the last one; None if none was reported.
        any_reported: Whether the client has ever reported one.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.any_reported = False
        self.reset()

    @property
    def has_answered(self) -> bool:
        """Whether Kafka has ever answered a client of this process, so that its addresses are right."""
        return self._settings.get("bootstrap.servers") in _ANSWERED

    def note_answer(self) -> None:
        """Forget the errors: Kafka has answered, so they have passed."""
        if addresses := self._settings.get("bootstrap.servers"):
            _ANSWERED.add(addresses)
        self.reset()

    def reset(self) -> None:
        """Forget the errors, for the next piece of work."""
        self.last: KafkaError | None = None
        self._refusal: tuple[Refusal, KafkaError] | None = None
        self._all_down = False
        self._refusing: set[str] = set()
        self._unreached: set[str] = set()
        self._verdict: Verdict | None = None
        self._probed = False

    def note(self, error: KafkaError) -> None:
        """Note an error of the client."""
        self.any_reported = True
        if self.last is None or error.code() not in _VAGUE_CODES or self.last.code() in _VAGUE_CODES:
            self.last = error
        self._all_down = self._all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        refusal = find_refusal(error)
        if self._refusal is None and refusal is not None:
            self._refusal = refusal, error
        if (broker := _BROKER.match(error.str())) is not None:
            (self._unreached if refusal is None else self._refusing).add(broker["address"])

    @property
    def _others(self) -> set[str]:
        """Brokers that have not refused, and only cannot be reached now."""
        return self._unreached - self._refusing

    def is_refused(self, waited_s: float) -> bool:
        """Return whether Kafka has refused these settings, so that waiting longer does not help.

        Args:
            waited_s: Seconds that the request has waited.
        """
        if not self._all_down:
            return False  # another broker may answer
        if self._refusal is not None:
            return waited_s >= (OTHERS_AFTER_S if self._others else REFUSED_AFTER_S)
        if waited_s < _PROBE_AFTER_S or (verdict := self._mismatch()) is None:
            return False
        return not verdict.others or waited_s >= OTHERS_AFTER_S

    def to_error(self, error: KafkaException | KafkaError, action: str, *, where: str) -> SinkError:
        """Return the error to raise for a request that failed; a retry can help where only some brokers have refused.

        Args:
            error: What the request failed with.
            action: What the client was doing, as the end of a sentence: "while committing".
            where: Topic, transactional id or broker addresses.
        """
        named = to_sink_error(error, action, where=where, hint=self.last)
        if unwrap_error(error).code() not in UNSPECIFIC_CODES:
            return named
        if self._refusal is not None:
            refused = self._refused(*self._refusal, action, where)
            return _beside(refused, self._others) if self._all_down else _may_pass(refused)
        verdict = self._mismatch() if named.can_retry and self._all_down else None
        if verdict is None:
            return named
        refused = _build(verdict.refusal, action, where, f"{verdict.why}; {named.why}")
        return _beside(refused, verdict.others)

    def _refused(self, refusal: Refusal, reported: KafkaError, action: str, where: str) -> SinkError:
        why = f"{reported.name()}: {reported.str()}"
        if refusal is refusals.UNVERIFIED and (verdict := self._probe()) is not None:
            return _build(verdict.refusal, action, where, f"{verdict.why}; {why}")
        if refusal is refusals.CERTIFICATE_REFUSED and not any(self._settings.get(n) for n in _CERTIFICATE_SETTINGS):
            refusal = refusals.CERTIFICATE_MISSING
        return _build(refusal, action, where, why)

    def _mismatch(self) -> Verdict | None:
        """Return what the listeners answer to another protocol; their certificates are the client's to judge."""
        verdict = self._probe()
        return verdict if verdict is not None and verdict.refusal in _MISMATCHES else None

    def _probe(self) -> Verdict | None:
        if not self._probed:
            self._probed, self._verdict = True, probe_servers(self._settings)
        return self._verdict


def _build(refusal: Refusal, action: str, where: str, why: str) -> SinkError:
    return refusal.error(f"{refusal.what}, {action}", where=where, why=why, remedy=refusal.remedy)


def _may_pass(error: SinkError) -> SinkError:
    error.can_retry = True
    return error


def _beside(error: SinkError, others: Collection[str]) -> SinkError:
    """Return the error of a broker that refuses; a retry can help while others cannot be reached."""
    if not others:
        return error
    why = f"{error.why}; of the others none can be reached now ({', '.join(sorted(others)[:_MAX_NAMED])})"
    return type(error)(error.what, where=error.where, why=why, remedy=error.remedy, retriable=True)


def client_errors(client: Any) -> ClientErrors:
    """Return the errors of an admin client after it has reported them; none of a client that keeps none.

    Args:
        client: From ``clients.make_admin``.
    """
    errors = getattr(client, "errors", None)
    if not isinstance(errors, ClientErrors):
        return ClientErrors({})
    # The client reports errors here only.
    with contextlib.suppress(KafkaException):
        client.poll(0)
    return errors


def await_result(client: Any, future: Future[Any], timeout_s: float) -> Any:
    """Return the result of an admin client's request.

    Args:
        client: From ``clients.make_admin``.
        future: Of the request.
        timeout_s: Seconds to wait.

    Raises:
        KafkaException: The request failed, or Kafka refuses these settings (``ClientErrors.to_error`` names it).
        TimeoutError: It did not end in time.
    """
    started = time.monotonic()
    while True:
        waited_s = time.monotonic() - started
        try:
            result = future.result(max(0.0, min(_CHECK_S, timeout_s - waited_s)))
        except TimeoutError:
            if waited_s >= timeout_s:
                raise
            if client_errors(client).is_refused(waited_s):
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Kafka has refused the client")) from None
        except KafkaException as error:
            if unwrap_error(error).code() > 0:  # a broker's own; those of the client are negative
                client_errors(client).note_answer()
            raise
        else:
            client_errors(client).note_answer()
            return result
