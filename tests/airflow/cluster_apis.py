"""The APIs of Kubernetes and of YARN's resource manager on loopback, as far as a job needs them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Api:
    """Hold what exists, and what was asked.

    Args:
        pods: Pods by name; the value is how often they are not found before they exist.
        secrets: Secrets by name.
        apps: YARN applications: id to tags and state.
        refuse: Status with which everything is refused; 0 for nothing.
    """

    pods: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    apps: dict[str, dict[str, str]] = field(default_factory=dict)
    refuse: int = 0
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and body of an answer."""
        url = urlsplit(target)
        query, parts = parse_qs(url.query), url.path.strip("/").split("/")
        self.asked.append(f"{method} {url.path}")
        if self.refuse:
            return self.refuse, {"kind": "Status", "reason": "Forbidden"}
        kind = "apps" if parts[0] == "ws" else parts[4]
        return getattr(self, f"_{kind}")(method, parts, query, body)  # type: ignore[no-any-return]

    def _pods(self, method: str, parts: list[str], query: Any, body: Any) -> tuple[int, Any]:
        name = parts[5]
        if self.pods.get(name, 1) > 0:
            self.pods[name] = self.pods.get(name, 10**6) - 1
            return 404, {"kind": "Status"}
        del self.pods[name]
        return 200, {"kind": "Pod", "metadata": {"name": name}}

    def _secrets(self, method: str, parts: list[str], query: Any, body: Any) -> tuple[int, Any]:
        if method == "POST":
            self.secrets[body["metadata"]["name"]] = body
            return 201, body
        if method == "GET":
            label, _, value = query["labelSelector"][0].partition("=")
            found = [s for s in self.secrets.values() if s["metadata"]["labels"][label] == value]
            return 200, {"kind": "SecretList", "items": found}
        return (200, {"kind": "Status"}) if self.secrets.pop(parts[5], None) else (404, {"kind": "Status"})

    def _apps(self, method: str, parts: list[str], query: Any, body: Any) -> tuple[int, Any]:
        if method == "PUT":
            self.apps[parts[4]]["state"] = body["state"]
            return 202, body
        active = query["states"][0].split(",")
        found = [
            {"id": id_}
            for id_, app in self.apps.items()
            if query["applicationTags"][0] in app["tags"].split(",") and app["state"] in active
        ]
        return 200, {"apps": {"app": found} if found else None}


@contextmanager
def served() -> Iterator[Api]:
    """Serve the APIs."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            given = self.rfile.read(length)
            status, body = api.answer(self.command, self.path, json.loads(given) if given else {})
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = _reply

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
