"""A gate before a real schema registry: it lets nobody through without the right account, token or certificate."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from avrolib.fake_registry import serving

_HOP = ("host", "connection", "content-length", "transfer-encoding", "authorization", "accept-encoding")


@dataclass
class Gate:
    """Say whom to let through, and who has come.

    Args:
        url: Address of the registry behind the gate.
        account: ``user:password`` that is wanted, or None.
        token: Bearer token that is wanted, or None.
        client: Id and secret for which ``/token`` gives tokens, of which only the newest is good; None for none.
        passed: Method and path of the requests that were let through.
        refused: How many were not.
        given: How many tokens were given.
    """

    url: str = ""
    account: str | None = None
    token: str | None = None
    client: tuple[str, str] | None = None
    passed: list[tuple[str, str]] = field(default_factory=list)
    refused: int = 0
    given: int = 0

    def opens(self, header: str) -> bool:
        """Return whether what a request shows is what is wanted."""
        kind, _, value = header.partition(" ")
        if self.account is not None:
            return kind == "Basic" and b64decode(value).decode() == self.account
        if self.token is not None or self.client is not None:
            return (kind, value) == ("Bearer", self.token)
        return not header

    def give(self, form: dict[str, list[str]], header: str) -> str | None:
        """Return a token for client credentials, or None."""
        shown = (form.get("client_id", [""])[0], form.get("client_secret", [""])[0])
        if header.startswith("Basic "):
            user, _, secret = b64decode(header[6:]).decode().partition(":")
            shown = user, secret
        if self.client is None or shown != self.client or form.get("grant_type") != ["client_credentials"]:
            return None
        self.given += 1
        self.token = f"t0ken-{self.given}"
        return self.token


def _forwarded(registry: str, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
    """Return status and body of the registry's answer."""
    there = urlsplit(registry)
    connection = http.client.HTTPConnection(there.netloc, timeout=120)
    try:
        kept = {name: value for name, value in headers.items() if name.lower() not in _HOP}
        connection.request(method, there.path + path, body or None, kept)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def running_gate(registry: str, tls: ssl.SSLContext | None = None) -> Iterator[Gate]:
    """Yield a gate before a registry, on a port of its own, behind TLS where that is asked for.

    Args:
        registry: The registry's address.
        tls: The gate's side of TLS.
    """
    gate = Gate()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            shown = self.headers.get("Authorization") or ""
            if self.path == "/token":
                token = gate.give(parse_qs(body.decode()), shown)
                if token is None:
                    return self._answer(401, {"error": "invalid_client"})
                return self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})
            if not gate.opens(shown):
                gate.refused += 1
                return self._answer(401, {"error_code": 401, "message": "Unauthorized"})
            gate.passed.append((self.command, self.path))
            return self._answer(*_forwarded(registry, self.command, self.path, self.headers, body))

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def _answer(self, status: int, said: Any) -> None:
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Handler, tls) as gate.url:
        yield gate
