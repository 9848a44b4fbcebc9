"""Whether a connector is stopped: what Kafka Connect says, who reads the binlog, what moves."""

from __future__ import annotations

import argparse
import io
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.debezium import stopped
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, RunInProgressError, StateError
from airflow_provider_mysql_cdc.commands import debezium

ANSWERS: dict[str, tuple[int, Any]] = {}


class _Connect(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS.get(self.path, (404, {"error_code": 404}))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Connect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def status(state: str, *tasks: str) -> dict[str, Any]:
    return {"connector": {"state": state}, "tasks": [{"id": n, "state": t} for n, t in enumerate(tasks)]}


def test_only_a_connector_that_is_stopped_or_gone_may_be_taken_over(url: str) -> None:
    ANSWERS["/connectors/a%2Fb/status"] = 200, status("STOPPED")
    assert "is STOPPED" in stopped.require_stopped(url, "a/b")
    assert "has no connector gone" in stopped.require_stopped(url, "gone")
    for number, answer in enumerate((status("RUNNING", "RUNNING"), status("PAUSED", "PAUSED"), status("STOPPED", "X"))):
        ANSWERS[f"/connectors/c{number}/status"] = 200, answer
        with pytest.raises(RunInProgressError, match=rf"not stopped.*PUT {url}/connectors/c{number}/stop"):
            stopped.require_stopped(url, f"c{number}")


@for_each("address", ["connect:8083", "ftp://x", "http://127.0.0.1:1", "http://127.0.0.1:port"])
def test_an_address_that_is_not_kafka_connect_s_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"Kafka Connect.*\["):
        stopped.get_json(address, "connectors")


def test_a_server_that_is_no_web_server_is_named() -> None:
    """MySQL, for example, greets each client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with server.accept()[0] as client:
                client.sendall(b"J\0\0\0\n9.7.4\0\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(ConfigError, match="does not answer as its REST interface does"):
            stopped.get_json(f"http://127.0.0.1:{server.getsockname()[1]}", "connectors")


def test_the_offset_is_read_when_the_connector_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it stores while it is being stopped would be missing in an offset that was read before."""
    calls = list[str]()
    monkeypatch.setattr(debezium, "read_config", lambda *_: None)
    monkeypatch.setattr(debezium, "_own_history", lambda *_: {})
    monkeypatch.setattr(debezium, "_statements", lambda *_: None)
    monkeypatch.setattr(debezium, "_require_stopped", lambda *_: calls.append("stopped"))
    monkeypatch.setattr(debezium, "_offset", lambda *_: calls.append("offset"))

    def planned(*_: Any, **__: Any) -> None:
        raise StateError("planned")

    monkeypatch.setattr(debezium, "plan_takeover", planned)
    arguments = argparse.Namespace(dry_run=True, connector_name="c", trust_offset=False)
    with pytest.raises(StateError, match="planned"):
        debezium.run_import(arguments, io.StringIO())
    assert calls == ["stopped", "offset"]


def test_a_refused_request_is_named_with_its_answer(url: str) -> None:
    ANSWERS["/connectors/x/offsets"] = 405, {"message": "not here"}
    with pytest.raises(ConfigError, match=r"HTTP 405: .*not here.*Kafka Connect 3.6"):
        stopped.get_json(url, "connectors/x/offsets")


def test_what_moves_is_running() -> None:
    assert "not moved" in stopped.require_still(lambda: 5, 0.0)
    numbers = count()
    with pytest.raises(RunInProgressError, match=r"offset or its topics move.*before 0, now 1"):
        stopped.require_still(lambda: next(numbers), 0.01)


@for_each(
    ("command", "user", "refused"),
    [("Binlog Dump GTID", "cdc", True), ("Binlog Dump", "cdc", True), ("Binlog Dump", "replica", False),
     ("Query", "cdc", False)],
)  # fmt: skip
def test_nobody_may_read_the_binlog_under_the_account(
    command: str, user: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"Command": command, "User": user, "Host": "h:1", "Time": 9}
    monkeypatch.setattr(stopped, "fetch_dicts", lambda conn, sql: [row])
    if not refused:
        assert stopped.require_no_dump(None, "cdc", 0.0) == "nobody reads the binlog as cdc"
        return
    with pytest.raises(RunInProgressError, match=r"cdc from h:1 for 9 s.*--ignore-dumps"):
        stopped.require_no_dump(None, "cdc", 0.0)
