"""Recognize in the client's errors that Kafka and these settings do not fit, so that no retry can help.

librdkafka reports a refused login or handshake as the reason why a broker is down, reconnects, and lets each request
run into its timeout (rd_kafka_broker_fail). The codes say too little: ``_AUTHENTICATION`` is also what a broker that
goes down during the exchange ends with, and ``_SSL`` any handshake that breaks. So the text decides.
"""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import KafkaError

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkError, SinkTlsError


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
