"""Keep what a Kafka client has reported, and name the error that it explains.

librdkafka calls back with the reason (TLS, login, network) and lets the request run into its timeout, which says
nothing; ``_ALL_BROKERS_DOWN`` follows each reason. So the reason is kept here, for every client, and asked for while a
request waits.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.sink import kafka_refusals as refusals
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import UNSPECIFIC_CODES, to_sink_error, unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.kafka_refusals import Refusal, find_refusal
from airflow_provider_mysql_cdc.cdc.sink.listener_probe import Verdict, probe_servers

REFUSED_AFTER_S = 1.0
"""Seconds that a request waits although a broker has refused: another one may take it."""
_PROBE_AFTER_S = 2.0
"""Seconds without an answer after which the listener is asked what it speaks."""
_CHECK_S = 0.25
_VAGUE_CODES = (KafkaError._ALL_BROKERS_DOWN, *UNSPECIFIC_CODES)
_MISMATCHES = (refusals.TLS_NEEDED, refusals.TLS_NOT_USED, refusals.ACCOUNT_NEEDED)
_BROKER = re.compile(r"(?:\w+://)?(?P<address>\S+?)/(?:bootstrap|\d+): ")
"""How librdkafka begins the text of a broker's error (rd_kafka_broker_set_error)."""
_CERTIFICATE_SETTINGS = (
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl_certificate",
)  # fmt: skip


class ClientErrors:
    """Keep the errors of one client.

    Args:
        settings: The client's settings.

    Attributes:
        last: The last error that says something, or else the last one; None if none was reported.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.reset()

    def reset(self) -> None:
        """Forget the errors."""
        self.last: KafkaError | None = None
        self._refusal: tuple[Refusal, KafkaError] | None = None
        self._all_down = False
        self._refusing: set[str] = set()
        self._unreached: set[str] = set()
        self._verdict: Verdict | None = None
        self._probed = False

    def note(self, error: KafkaError) -> None:
        """Note an error of the client."""
        if self.last is None or error.code() not in _VAGUE_CODES or self.last.code() in _VAGUE_CODES:
            self.last = error
        self._all_down = self._all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        refusal = find_refusal(error)
        if self._refusal is None and refusal is not None:
            self._refusal = refusal, error
        if (broker := _BROKER.match(error.str())) is not None:
            (self._unreached if refusal is None else self._refusing).add(broker["address"])

    @property
    def _others_may_answer(self) -> bool:
        """Whether a broker that has not refused is connected, or only cannot be reached now."""
        return not self._all_down or bool(self._unreached - self._refusing)

    def is_refused(self, waited_s: float) -> bool:
        """Return whether Kafka has refused these settings, so that waiting longer does not help.

        Args:
            waited_s: Seconds that the request has waited.
        """
        if not self._all_down:
            return False  # another broker may answer
        if self._refusal is not None:
            return waited_s >= REFUSED_AFTER_S and not self._others_may_answer
        return waited_s >= _PROBE_AFTER_S and self._mismatch() is not None

    def to_error(self, error: KafkaException | KafkaError, action: str, *, where: str) -> SinkError:
        """Return the error to raise for a request that failed.

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
            refused.can_retry = refused.can_retry or self._others_may_answer
            return refused
        verdict = self._mismatch() if named.can_retry and self._all_down else None
        if verdict is None:
            return named
        return _build(verdict.refusal, action, where, f"{verdict.why}; {named.why}")

    def _refused(self, refusal: Refusal, reported: KafkaError, action: str, where: str) -> SinkError:
        why = f"{reported.name()}: {reported.str()}"
        if refusal is refusals.UNVERIFIED and (verdict := self._probe()) is not None:
            return _build(verdict.refusal, action, where, f"{verdict.why}; {why}")
        if refusal is refusals.CERTIFICATE_REFUSED and not any(self._settings.get(n) for n in _CERTIFICATE_SETTINGS):
            refusal = refusals.CERTIFICATE_MISSING
        return _build(refusal, action, where, why)

    def _mismatch(self) -> Verdict | None:
        """Return what the listener answers to another protocol; its certificate is the client's to judge."""
        verdict = self._probe()
        return verdict if verdict is not None and verdict.refusal in _MISMATCHES else None

    def _probe(self) -> Verdict | None:
        if not self._probed:
            self._probed, self._verdict = True, probe_servers(self._settings)
        return self._verdict


def _build(refusal: Refusal, action: str, where: str, why: str) -> SinkError:
    return refusal.error(f"{refusal.what}, {action}", where=where, why=why, remedy=refusal.remedy)


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
            return future.result(max(0.0, min(_CHECK_S, timeout_s - waited_s)))
        except TimeoutError:
            if waited_s >= timeout_s:
                raise
            if client_errors(client).is_refused(waited_s):
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Kafka has refused the client")) from None
