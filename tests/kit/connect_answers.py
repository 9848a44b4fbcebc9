"""A web server that answers as Kafka Connect's REST interface would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

LIST = "/connectors?expand=status&expand=info"


@dataclass
class ConnectAnswers:
    """What it answers, by path, and what it was asked: paths with their Authorization header."""

    url: str
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)


def connector(state: str, *tasks: str, name: str = "topic.prefix", prefix: str = "shop") -> dict[str, Any]:
    """Return what it says about a connector."""
    status = {"connector": {"state": state}, "tasks": [{"id": n, "state": t} for n, t in enumerate(tasks)]}
    return {"status": status, "info": {"config": {name: prefix, "database.password": "s3cret"}}}


@contextmanager
def answering() -> Iterator[ConnectAnswers]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            connect.asked.append((self.path, self.headers["Authorization"]))
            status, body = connect.answers.get(self.path, (404, {"error_code": 404}))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    connect = ConnectAnswers(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield connect
    finally:
        server.shutdown()
        server.server_close()
