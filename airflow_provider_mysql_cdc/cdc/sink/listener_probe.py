"""Ask a Kafka listener what it speaks, where the client only says that no broker can be reached.

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
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.secret import Secret
from airflow_provider_mysql_cdc.cdc.sink import kafka_refusals as refusals
from airflow_provider_mysql_cdc.cdc.sink.kafka_refusals import Refusal

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
