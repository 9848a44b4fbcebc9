"""Whether a connector is stopped: what Kafka Connect says, who reads the binlog, what moves."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from kit.cases import for_each
from kit.connect_answers import LIST, ConnectAnswers, answering, connector
from kit.drain_rig import GIVEN

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium import import_request, stopped
from airflow_provider_mysql_cdc.cdc.debezium.stopped import ConnectRest, StoppedConnector
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, RunInProgressError, StateError


@pytest.fixture
def connect() -> Iterator[ConnectAnswers]:
    with answering() as answers:
        yield answers


def stopped_at(connect: ConnectAnswers, name: str = "", prefix: str = "shop", **connectors: Any) -> StoppedConnector:
    connect.answers[LIST] = 200, {of.replace("_", "/"): answer for of, answer in connectors.items()}
    return stopped.require_stopped(ConnectRest.at(connect.url), name, prefix)


def test_only_a_connector_that_is_stopped_or_gone_may_be_taken_over(connect: ConnectAnswers) -> None:
    others = {"c": connector("RUNNING", prefix="other")}
    assert "connector a/b is STOPPED" in stopped_at(connect, "a/b", a_b=connector("STOPPED"), **others).text
    assert stopped_at(connect, "gone", **others) == StoppedConnector("gone")
    for answer in (connector("RUNNING", "RUNNING"), connector("PAUSED", "PAUSED"), connector("STOPPED", "X"), {}):
        with pytest.raises(RunInProgressError, match=rf"not stopped.*PUT {connect.url}/connectors/a%2Fb/stop"):
            stopped_at(connect, "a/b", a_b=answer)


def test_a_connector_is_found_by_its_topics_and_not_by_its_name(connect: ConnectAnswers) -> None:
    """A wrong name, or none, is no evidence that nobody writes."""
    for name in ("", "inventry"):
        with pytest.raises(RunInProgressError, match="connector inventory at"):
            stopped_at(connect, name, inventory=connector("RUNNING", "RUNNING"))
    older = connector("STOPPED", name="database.server.name")
    assert stopped_at(connect, inventory=older).name == "inventory"
    with pytest.raises(
        ConfigError, match=r"another name.*it has inventory, and no inventry.*--connector-name inventory"
    ):
        stopped_at(connect, "inventry", inventory=older)
    with pytest.raises(ConfigError, match=r"it has a, b\..*--connector-name"):
        stopped_at(connect, a=older, b=older)
    with pytest.raises(RunInProgressError, match="connector b at"):
        stopped_at(connect, "a", a=older, b=connector("PAUSED", "PAUSED"))


@for_each(
    "address",
    ["connect:8083", "ftp://x", "http://", "http://u:s3cret@", "http://u:s3cret/x@h:80", "http://[::1", "http://h:99999",
     "http://u:s3cret@h:port"],
)  # fmt: skip
def test_an_address_that_is_not_kafka_connect_s_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"not an address of Kafka Connect \[.*USER:PASSWORD@") as caught:
        ConnectRest.at(address)
    assert "s3cret" not in str(caught.value)


def test_where_nobody_answers_a_retry_can_help(connect: ConnectAnswers) -> None:
    with pytest.raises(ConfigError, match=r"does not answer.*\[http://127.0.0.1:1/connectors/x/offsets\].*retry can"):
        rest = ConnectRest.at("http://127.0.0.1:1")
        rest.get(rest.connector("x", "offsets"))
    connect.answers[LIST] = 200, ["a"]
    with pytest.raises(ConfigError, match="not the REST interface of Kafka Connect"):
        stopped.require_stopped(ConnectRest.at(connect.url), "x", "shop")


def test_a_server_that_is_no_web_server_is_named() -> None:
    """MySQL, for example, greets each client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with server.accept()[0] as client:
                client.sendall(b"J\0\0\0\n9.7.4\0\n")

        threading.Thread(target=greet, daemon=True).start()
        rest = ConnectRest.at(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ConfigError, match="does not answer as its REST interface does"):
            rest.get(f"{rest.url}/connectors")


def test_user_and_password_are_sent_and_never_shown(connect: ConnectAnswers) -> None:
    rest = ConnectRest.at(connect.url.replace("//", "//ann:p%40ss%3A1@"))
    connect.answers["/connectors/x/offsets"] = 200, {}
    assert rest.get(rest.connector("x", "offsets")) == {}
    basic = base64.b64encode(b"ann:p@ss:1").decode()
    assert connect.asked == [("/connectors/x/offsets", f"Basic {basic}")]
    assert rest == ConnectRest.at(f"{connect.url}/", "ann", "p@ss:1")
    for status, text in (
        (401, "check user and password"),
        (403, "allow the user"),
        (302, "HTTP 302"),
        (409, "can help"),
    ):
        connect.answers["/connectors/x/offsets"] = status, {"message": "refused"}
        with pytest.raises(ConfigError, match=text) as caught:
            rest.get(rest.connector("x", "offsets"))
        shown = f"{caught.value} {rest} {rest!r} {rest.url}"
        assert "p@ss" not in shown and "p%40ss" not in shown and basic not in shown
    assert "/elsewhere" not in [path for path, _ in connect.asked], "a redirect would take the password along"


def test_the_offset_is_read_when_the_connector_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it stores while it is being stopped would be missing in an offset that was read before."""
    calls = list[str]()
    cfg = ConnectorConfig.from_properties(GIVEN)
    stream = import_request.StreamOfConnector(cfg, cfg, {})
    monkeypatch.setattr(import_request.StreamOfConnector, "of", lambda *_: stream)
    monkeypatch.setattr(import_request, "_statements", lambda *_: None)
    monkeypatch.setattr(import_request, "_require_stopped", lambda *_, **__: (calls.append("stopped"), ("c", []))[1])
    monkeypatch.setattr(import_request, "_offset", lambda *_: calls.append("offset"))

    def planned(*_: Any, **__: Any) -> None:
        raise StateError("planned")

    monkeypatch.setattr(import_request, "plan_takeover", planned)
    with pytest.raises(StateError, match="planned"):
        import_request.import_connector(cfg, import_request.ConnectorPlaces(), None, "o", print)
    assert calls == ["stopped", "offset"]


def test_a_connector_without_a_name_is_not_called_as_its_topics_are() -> None:
    cfg, places = ConnectorConfig.from_properties(GIVEN), import_request.ConnectorPlaces()
    assert import_request.connector_name(cfg, places) == ""
    named = ConnectorConfig.from_properties(GIVEN | {"name": "inventory"})
    assert import_request.connector_name(named, places) == "inventory"
    assert import_request.connector_name(named, import_request.ConnectorPlaces(name="other")) == "other"


def test_a_refused_request_is_named_with_its_answer(connect: ConnectAnswers) -> None:
    connect.answers["/connectors/x/offsets"] = 405, {"message": "not here"}
    rest = ConnectRest.at(connect.url)
    with pytest.raises(ConfigError, match=r"HTTP 405: .*not here.*Kafka Connect 3.6"):
        rest.get(rest.connector("x", "offsets"))


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
