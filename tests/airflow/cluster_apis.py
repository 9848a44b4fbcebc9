"""The APIs of Kubernetes and of YARN's resource manager on loopback, as far as a job needs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from avrolib.fake_registry import serving


@dataclass
class Api:
    """Hold what exists, and what was asked.

    Args:
        pods: Pods by name; the value is how often they are not found before they exist.
        phases: Phases of pods by name; no others can be looked at.
        secrets: Secrets by name.
        apps: YARN applications: id to tags and state.
        now: The server's time, in which Secrets are created.
        refuse: Status with which everything is refused; 0 for nothing.
    """

    pods: dict[str, int] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    apps: dict[str, dict[str, str]] = field(default_factory=dict)
    now: str = "2026-11-23T10:00:00Z"
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
        if method == "GET":
            phase = self.phases.get(name)
            return (200, {"kind": "Pod", "status": {"phase": phase}}) if phase else (404, {"kind": "Status"})
        if self.pods.get(name, 1) > 0:
            self.pods[name] = self.pods.get(name, 10**6) - 1
            return 404, {"kind": "Status"}
        del self.pods[name]
        return 200, {"kind": "Pod", "metadata": {"name": name}}

    def _secrets(self, method: str, parts: list[str], query: Any, body: Any) -> tuple[int, Any]:
        if method == "POST":
            body["metadata"]["creationTimestamp"] = self.now
            self.secrets[body["metadata"]["name"]] = body
            return 201, body
        if method == "GET":
            label, _, value = query["labelSelector"][0].partition("=")
            found = [s for s in self.secrets.values() if value in ("", s["metadata"]["labels"][label])]
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

    with serving(Handler) as api.address:
        yield api
