"""Convert errors of the Kafka client into errors of this package, those that no retry can help included.

Recognize in the client's errors that Kafka and these settings do not fit, so that no retry can help.

librdkafka reports a refused login or handshake as the reason why a broker is down, reconnects, and lets each request
run into its timeout (rd_kafka_broker_fail). The codes say too little: ``_AUTHENTICATION`` is also what a broker that
goes down during the exchange ends with, and ``_SSL`` any handshake that breaks. So the text decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.errors import (
    FencedError,
    RecordTooLargeError,
    SinkAuthorizationError,
    SinkConnectionError,
    SinkError,
    SinkTlsError,
)


class Refusal(NamedTuple):
    """Say why a client with these settings can never use the listener.

    Args:
        error: Class to raise.
        what: What went wrong.
        remedy: What to do.
    """

    error: type[SinkError]
    what: str
    remedy: str


UNVERIFIED = Refusal(
    SinkTlsError,
    "Kafka's certificate cannot be verified",
    "set kafka.ssl.ca.location to the certificate of the authority that signs the brokers' certificates",
)
EXPIRED = Refusal(
    SinkTlsError,
    "Kafka's certificate has expired, or is not valid yet",
    "renew the broker's certificate, and check the clock of this machine",
)
OTHER_NAME = Refusal(
    SinkTlsError,
    "Kafka's certificate is for another host name",
    "use the name in the certificate, in kafka.bootstrap.servers and in the brokers' advertised.listeners; or give the "
    "broker a certificate for this name (kafka.ssl.endpoint.identification.algorithm=none does not check names)",
)
UNKNOWN_AUTHORITY = Refusal(
    SinkTlsError,
    "Kafka's certificate is signed by an authority that is not trusted here",
    UNVERIFIED.remedy + ", on the machine of the driver and of each executor too",
)
CERTIFICATE_MISSING = Refusal(
    SinkTlsError,
    "Kafka asks for a client certificate",
    "set kafka.ssl.certificate.location and kafka.ssl.key.location (or kafka.ssl.keystore.location)",
)
CERTIFICATE_REFUSED = Refusal(
    SinkTlsError,
    "Kafka refuses the client's certificate",
    "use a certificate that is valid and signed by an authority in the brokers' truststore "
    "(kafka.ssl.certificate.location or kafka.ssl.keystore.location)",
)
NO_COMMON_TLS = Refusal(
    SinkTlsError,
    "Kafka and the client have no TLS version or cipher in common",
    "compare ssl.enabled.protocols and ssl.cipher.suites of the brokers with kafka.ssl.cipher.suites",
)
TLS_NEEDED = Refusal(
    SinkTlsError,
    "Kafka's listener uses TLS, and the client does not",
    "set kafka.security.protocol to ssl or sasl_ssl, or use the port of a listener without TLS",
)
TLS_NOT_USED = Refusal(
    SinkTlsError,
    "Kafka's listener does not use TLS, and the client does",
    "use the port of a listener with TLS, or set kafka.security.protocol to plaintext or sasl_plaintext",
)
ACCOUNT_NEEDED = Refusal(
    SinkAuthorizationError,
    "Kafka asks for an account",
    "set kafka.security.protocol to sasl_ssl or sasl_plaintext, and kafka.sasl.mechanism, kafka.sasl.username and "
    "kafka.sasl.password",
)
ACCOUNT_NOT_TAKEN = Refusal(
    SinkAuthorizationError,
    "Kafka's listener takes no account",
    "use the port of a listener with SASL, or set kafka.security.protocol to ssl or plaintext",
)
MECHANISM = Refusal(
    SinkAuthorizationError,
    "Kafka does not offer the SASL mechanism",
    "set kafka.sasl.mechanism to one that the broker names",
)
LOGIN = Refusal(
    SinkAuthorizationError,
    "Kafka refuses the account or its password",
    "check kafka.security.protocol and kafka.sasl.*",
)

_TLS_TEXTS: tuple[tuple[str, Refusal], ...] = (
    ("certificate verify failed", UNVERIFIED),
    # Alerts of the broker, in OpenSSL's words. Java sends bad_certificate where TLS 1.3 has certificate_required.
    ("alert certificate required", CERTIFICATE_MISSING),
    ("alert bad certificate", CERTIFICATE_REFUSED),
    ("alert unsupported certificate", CERTIFICATE_REFUSED),
    ("alert certificate revoked", CERTIFICATE_REFUSED),
    ("alert certificate expired", CERTIFICATE_REFUSED),
    ("alert certificate unknown", CERTIFICATE_REFUSED),
    ("alert unknown ca", CERTIFICATE_REFUSED),
    ("alert protocol version", NO_COMMON_TLS),
    ("alert handshake failure", NO_COMMON_TLS),
    ("alert insufficient security", NO_COMMON_TLS),
)
_LOGIN_TEXTS: tuple[tuple[str, Refusal | None], ...] = (
    # A broker that went down during the exchange ("Local: Broker transport failure"), or a token that was not fetched.
    ("local: ", None),
    ("failed to acquire", None),
    ("unsupported sasl mechanism", MECHANISM),
    ("request not valid in current sasl state", ACCOUNT_NOT_TAKEN),
    ("", LOGIN),
)
_LOGIN_CODES = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)


def find_refusal(error: KafkaError) -> Refusal | None:
    """Return the refusal that an error of the client reports; None for one that may pass.

    Args:
        error: From the client's error callback, or raised by it.
    """
    text = error.str().lower()
    if error.code() in _LOGIN_CODES:
        return next(refusal for part, refusal in _LOGIN_TEXTS if part in text)
    return next((refusal for part, refusal in _TLS_TEXTS if part in text), None)


log = logging.getLogger(__name__)

_E = KafkaError

_CONNECTION = (
    "Kafka cannot be reached",
    "check kafka.bootstrap.servers, that the brokers run, and the listener addresses they advertise",
)
_AUTHORIZATION = "grant what is missing to the account that kafka.* names (ACLs of topic, transactional id, cluster)"

_ERROR_TABLE: dict[int, tuple[type[SinkError], str, str]] = {
    **dict.fromkeys(
        (
            _E._TRANSPORT,
            _E._ALL_BROKERS_DOWN,
            _E._TIMED_OUT,
            _E._MSG_TIMED_OUT,
            _E._TIMED_OUT_QUEUE,
            _E._RESOLVE,
            # The client's answer to a request for offsets while no partition has a leader.
            _E._NOENT,
            _E.REQUEST_TIMED_OUT,
            _E.BROKER_NOT_AVAILABLE,
            _E.COORDINATOR_NOT_AVAILABLE,
            _E.COORDINATOR_LOAD_IN_PROGRESS,
            _E.NOT_COORDINATOR,
            _E.NETWORK_EXCEPTION,
            _E.LEADER_NOT_AVAILABLE,
            _E.NOT_LEADER_FOR_PARTITION,
            _E.FENCED_LEADER_EPOCH,
            _E.UNKNOWN_LEADER_EPOCH,
            _E.PREFERRED_LEADER_NOT_AVAILABLE,
            _E.REPLICA_NOT_AVAILABLE,
            _E.OFFSET_NOT_AVAILABLE,
            _E.KAFKA_STORAGE_ERROR,
            _E.NOT_ENOUGH_REPLICAS,
            _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
        (SinkConnectionError, *_CONNECTION),
    ),
    _E._SSL: (
        SinkConnectionError,
        "the TLS connection to Kafka broke",
        "run the task again; if it never succeeds, check kafka.ssl.* and the port",
    ),
    _E._AUTHENTICATION: (
        SinkConnectionError,
        "the connection to Kafka broke during the login",
        "run the task again; if it never succeeds, check kafka.sasl.*",
    ),
    _E._BAD_MSG: (
        SinkConnectionError,
        "the answer is not that of a Kafka broker",
        "check that kafka.bootstrap.servers names Kafka's host and port, and any proxy in between",
    ),
    _E.TOPIC_AUTHORIZATION_FAILED: (
        SinkAuthorizationError,
        "Kafka refuses access to a topic",
        "grant Describe, Read, Write and Create on the topics of topic.prefix and on ledger.topic",
    ),
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        SinkAuthorizationError,
        "Kafka refuses the transactional id",
        "grant Describe and Write on the transactional ids that begin with topic.prefix",
    ),
    _E.CLUSTER_AUTHORIZATION_FAILED: (
        SinkAuthorizationError,
        "Kafka refuses an operation on the cluster",
        _AUTHORIZATION,
    ),
    _E.GROUP_AUTHORIZATION_FAILED: (SinkAuthorizationError, "Kafka refuses the consumer group", _AUTHORIZATION),
    **dict.fromkeys(
        (_E._FENCED, _E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED),
        (
            FencedError,
            "a newer attempt took over this writer",
            "nothing if another run or attempt is running; otherwise run the task again",
        ),
    ),
    # The id is free then, or a newer attempt has taken it over since: the next try finds out, and loses nothing.
    _E.INVALID_PRODUCER_ID_MAPPING: (
        SinkError,
        "Kafka has forgotten the transactional id of this writer",
        "run the task again, which goes on behind what is committed; the brokers forget an id that has committed "
        "nothing for transactional.id.expiration.ms (7 days by default)",
    ),
    **dict.fromkeys(
        (_E.MSG_SIZE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE),
        (
            RecordTooLargeError,
            "a record is larger than Kafka accepts",
            "raise max.message.bytes of the topic (message.max.bytes of the broker) and kafka.message.max.bytes, "
            "or exclude the column or table; where the record itself is smaller, it came in a batch of up to "
            "kafka.batch.size bytes: set that below max.message.bytes",
        ),
    ),
    **dict.fromkeys(
        (_E._UNKNOWN_TOPIC, _E._UNKNOWN_PARTITION, _E.UNKNOWN_TOPIC_OR_PART),
        (
            SinkError,
            "a topic or partition does not exist",
            "create it, or let the package do so (topic.creation.*); it must not be deleted while a batch runs",
        ),
    ),
    # Brokers refuse records more than an hour in the future (message.timestamp.after.max.ms, default since Kafka 4.0).
    _E.INVALID_TIMESTAMP: (
        SinkError,
        "Kafka refuses the timestamp of a record",
        "correct the clock of the machine that writes (driver, executors) or the clocks of the brokers; "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic limit the difference",
    ),
    _E.TOPIC_EXCEPTION: (SinkError, "Kafka refuses the topic's name", "change topic.prefix or the topic's name"),
    _E.INVALID_TRANSACTION_TIMEOUT: (
        SinkError,
        "Kafka refuses the transaction timeout",
        "lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers",
    ),
    _E.INVALID_REPLICATION_FACTOR: (
        SinkError,
        "Kafka refuses the replication factor",
        "set topic.creation.default.replication.factor to at most the number of brokers",
    ),
    _E.INVALID_PARTITIONS: (
        SinkError,
        "Kafka refuses the number of partitions",
        "correct topic.creation.default.partitions",
    ),
    _E.INVALID_CONFIG: (SinkError, "Kafka refuses a topic setting", "correct topic.creation.*"),
    _E.POLICY_VIOLATION: (
        SinkError,
        "a policy of the Kafka cluster refuses the topic",
        "correct topic.creation.*, or ask the administrators of the cluster to create the topic",
    ),
}

_RETRIABLE_CODES = frozenset({_E.INVALID_PRODUCER_ID_MAPPING, _E.INVALID_TXN_STATE})
"""Codes with which a try of the task ends, and not the next one, although Kafka does not call them retriable."""


def broker_addresses(settings: Mapping[str, Any]) -> str:
    """Return the broker addresses in client settings, for messages."""
    return str(settings.get("bootstrap.servers", "")) or "no kafka.bootstrap.servers"


def unwrap_error(error: KafkaException | KafkaError) -> KafkaError:
    """Return the KafkaError inside an exception."""
    if isinstance(error, KafkaError):
        return error
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def to_sink_error(
    error: KafkaException | KafkaError, action: str, *, where: str, hint: KafkaError | None = None
) -> SinkError:
    """Return the error of this package for a client error.

    Args:
        error: The error that the client raised.
        action: What the client was doing, as the end of a sentence: "while committing".
        where: Topic, transactional id or broker addresses.
        hint: The last error of the client's error callback, which can explain a timeout.
    """
    cause = unwrap_error(error)
    if cause.code() in UNSPECIFIC_CODES and hint is not None:
        cause = hint if hint.code() in _ERROR_TABLE or find_refusal(hint) else cause
    kind, what, remedy = _named(cause)
    why = f"{cause.name()}: {cause.str()}"
    if hint is not None and cause is not hint:
        why += f"; last error of the client: {hint.name()}: {hint.str()}"
    retriable = True if cause.retriable() or kind.retriable or cause.code() in _RETRIABLE_CODES else None
    return kind(f"{what}, {action}", where=where, why=why, remedy=remedy, retriable=retriable)


def _named(cause: KafkaError) -> tuple[type[SinkError], str, str]:
    if (refusal := find_refusal(cause)) is not None:
        return refusal
    return _ERROR_TABLE.get(cause.code(), (SinkError, "Kafka refuses or fails", "see the brokers' logs"))


UNSPECIFIC_CODES = (
    _E._TIMED_OUT, _E._MSG_TIMED_OUT, _E._TIMED_OUT_QUEUE, _E._TRANSPORT, _E._ALL_BROKERS_DOWN, _E._STATE, _E._FATAL,
    _E._FAIL, _E._INCONSISTENT,
)  # fmt: skip
"""Codes that do not name a cause: a timeout, a failed state, a fatal state."""


class ClientLogHandler(logging.Handler):
    """Forward the client's log lines, limited in number and without secrets.

    librdkafka repeats a line for each reconnect to each broker. At most ``limit`` lines a minute are forwarded; the
    others are counted.

    Args:
        settings: Client settings, whose secret values are masked.
        limit: Lines a minute.
    """

    def __init__(self, settings: Mapping[str, Any], limit: int = 10) -> None:
        super().__init__()
        self._settings = dict(settings)
        self._limit, self._count, self._suppressed, self._minute_start = limit, 0, 0, time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Forward a line, or count it."""
        now = time.monotonic()
        if now - self._minute_start >= 60:
            if self._suppressed:
                log.warning("kafka client: %d more lines in the last minute", self._suppressed)
            self._count, self._suppressed, self._minute_start = 0, 0, now
        self._count += 1
        if self._count > self._limit:
            self._suppressed += 1
            return
        text = scrub(record.getMessage(), self._settings)
        log.log(min(record.levelno, logging.WARNING), "kafka client: %s", text)


def client_logger(settings: Mapping[str, Any]) -> logging.Logger:
    """Return a new logger for one client; it is not registered, so it is freed with the client."""
    logger = logging.Logger("kafka-client", logging.INFO)
    logger.addHandler(ClientLogHandler(settings))
    return logger
