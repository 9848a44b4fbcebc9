"""A schema registry in this process, for answers that a real one gives only when something is broken."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

Answer = tuple[int, Any]
DOWN: Answer = (0, None)
SLOW: Answer = (0, "late")


@dataclass
class FakeRegistry:
    """Hold what the registry knows, and what is wrong with it.

    Args:
        subjects: Schema texts by subject, the oldest first.
        ids: Ids by schema text; equal texts have one id, as in Confluent's registry.
        requests: Method and path of each request.
        headers: Headers of the last request.
        bodies: What the requests sent.
        refuses: Says for a subject and a schema why it is incompatible, or None.
        broken: Answers for the next requests, in place of the right ones; None lets one pass, ``DOWN`` ends the
            connection without an answer, and ``SLOW`` does so after the client has given up.
        delay_s: Wait in seconds before each answer.
        late_s: Wait in seconds before ``SLOW``.
        first_id: The first id that it returns.
        tokens: How many tokens were issued; any client gets them, at ``/token``.
        token_s: How many seconds a token is good for.
        guids: Whether answers hold GUIDs, as those of Confluent's registry do since 8.0: a hash of the schema's text.
    """

    url: str = ""
    subjects: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    refuses: Callable[[str, str], str | None] = lambda subject, text: None
    broken: list[Answer | None] = field(default_factory=list)
    delay_s: float = 0
    late_s: float = 10
    first_id: int = 1
    tokens: int = 0
    token_s: int = 3600
    guids: bool = False

    def wipe(self, first_id: int) -> None:
        """Forget everything, and give other ids from now on."""
        self.subjects.clear()
        self.ids.clear()
        self.first_id = first_id

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        """Return what a request gets, decided as it comes: one that nobody waits for takes no later one's answer."""
        self.requests.append((method, path))
        delay_s, found = self.delay_s, self._found(method, path, body)
        time.sleep(self.late_s if found == SLOW else delay_s)
        return found

    def _found(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        if self.broken and (answer := self.broken.pop(0)) is not None:
            return answer
        parts = [unquote(p) for p in urlsplit(path).path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            text = next((t for t, i in self.ids.items() if i == int(parts[2])), None)
            return (200, {"schema": text}) if text else (404, {"error_code": 40403, "message": "no such schema"})
        if parts[:2] == ["schemas", "guids"] and self.guids:
            text = next((t for t in self.ids if guid_of(t) == parts[2]), None)
            return (200, {"schema": text}) if text else (404, {"error_code": 40403, "message": "no such schema"})
        if parts == ["token"]:
            self.tokens += 1
            return 200, {"access_token": f"t0ken-{self.tokens}", "token_type": "Bearer", "expires_in": self.token_s}
        if parts == ["subjects"]:
            return 200, list(self.subjects)
        subject, known = parts[1], self.subjects.get(parts[1], [])
        if method == "GET":
            return self._read(subject, known, parts[3:])
        text = body["schema"]
        if len(parts) == 2:
            if text not in known:
                return 404, {"error_code": 40403, "message": "no such schema under the subject"}
            return 200, self._registered(subject, text, known.index(text) + 1)
        if text not in known:
            if known and (why := self.refuses(subject, text)) is not None:
                return 409, {"error_code": 409, "message": why}
            self.ids.setdefault(text, self.first_id + len(self.ids))
            self.subjects.setdefault(subject, []).append(text)
        return 200, {"id": self.ids[text], **self._guid(text)}

    def _read(self, subject: str, known: list[str], version: list[str]) -> Answer:
        """Return a subject's versions, or one of them."""
        if not known:
            return 404, {"error_code": 40401, "message": "no such subject"}
        if not version:
            return 200, list(range(1, len(known) + 1))
        number = len(known) if version[0] == "latest" else int(version[0])
        return 200, self._registered(subject, known[number - 1], number)

    def _registered(self, subject: str, text: str, version: int) -> dict[str, Any]:
        return {"subject": subject, "version": version, "id": self.ids[text], "schema": text, **self._guid(text)}

    def _guid(self, text: str) -> dict[str, str]:
        return {"guid": guid_of(text)} if self.guids else {}


def guid_of(text: str) -> str:
    """Return the GUID of a schema."""
    return str(UUID(bytes=hashlib.md5(text.encode(), usedforsecurity=False).digest()))


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Yield a registry that listens on a port of its own, with TLS if requested."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(size) or b"{}"
            form = "form" in (self.headers.get("Content-Type") or "")
            body = dict(parse_qsl(sent.decode())) if form else json.loads(sent)
            registry.bodies.append(body)
            registry.headers = dict(self.headers)
            status, answer = registry.answer(self.command, self.path, body)
            if status == 0:
                self.close_connection = True
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _serve

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Handler, tls) as registry.url:
        yield registry


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the address at which a handler answers, with TLS if requested."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that ends the handshake
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
