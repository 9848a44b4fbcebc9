"""The channel from tasks to their driver: whoever may connect, only tasks are heard."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, SourceError, StateError
from airflow_provider_mysql_cdc.cdc.job import coordinator
from airflow_provider_mysql_cdc.cdc.job import coordinator as module
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator, CoordinatorClient, Endpoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskOperation


@dataclass(frozen=True)
class Text:
    """A text, and the task whose it is."""

    text: str
    task: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "task": self.task}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Text:
        return cls(members["text"], members["task"])


@dataclass(frozen=True)
class Other(Text):
    """A request with another member than the driver's."""

    def to_json(self) -> dict[str, Any]:
        return {"other": 1}


ECHO = TaskOperation("echo", Text, Text)
FAIL = TaskOperation("fail", EmptyMessage, EmptyMessage)


class Driver:
    """A coordinator with the operations that the tests call."""

    def __init__(self, hello_s: float) -> None:
        self.lost: list[tuple[int, CdcError | None]] = []
        self.heard = threading.Event()
        handlers = [ECHO.handled_by(lambda task, request: Text(request.text, task)), FAIL.handled_by(self._fail)]
        self.coordinator = Coordinator(handlers, on_lost=self._on_lost, hello_s=hello_s)

    def _fail(self, task: int, request: EmptyMessage) -> EmptyMessage:
        raise SourceError("a table is gone", where="d.t")

    def _on_lost(self, task: int, cause: CdcError | None) -> None:
        self.lost.append((task, cause))
        self.heard.set()

    def client(self, task: int = 1) -> CoordinatorClient:
        return CoordinatorClient(self.coordinator.address, self.coordinator.token, task)

    def raw(self) -> socket.socket:
        return socket.create_connection(self.coordinator.address, timeout=20)


@contextmanager
def driver(hello_s: float = 10) -> Iterator[Driver]:
    made = Driver(hello_s)
    try:
        yield made
    finally:
        made.coordinator.close()


def closed(sock: socket.socket) -> bool:
    """Wait until the other side closes; return whether it said nothing before."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_a_task_is_answered() -> None:
    with driver() as d, d.client(7) as client:
        assert client.call(ECHO, Text("é" * 100_000)) == Text("é" * 100_000, 7)
        with pytest.raises(SourceError, match="a table is gone"):
            client.call(FAIL, EMPTY)
        assert client.call(ECHO, Text("on")).text == "on"
    assert d.lost == []


def test_a_line_without_end_before_the_token_is_cut_off() -> None:
    with driver(hello_s=60) as d, d.raw() as sock:
        sent = 0
        with pytest.raises(ConnectionError):  # closed, and not only left unread
            while sent < 64 << 20:
                sent += sock.send(b"x" * 65536)
        assert sent < 32 << 20  # what the buffers of both sides took
    assert d.lost == []


def test_a_connection_that_says_nothing_is_closed() -> None:
    with driver(hello_s=0.2) as d, d.raw() as silent, d.raw() as slow:
        slow.sendall(b'{"tok')
        assert closed(silent) and closed(slow)
        with d.client() as client:
            assert client.call(ECHO, Text("a")).text == "a"


def test_silent_strangers_keep_no_task_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MAX_UNAUTHENTICATED", 2)
    monkeypatch.setattr(coordinator, "PATIENCE_S", 0.05)
    with driver(hello_s=600) as d:
        crowd = [d.raw() for _ in range(9)]
        with d.client() as client:
            assert client.call(ECHO, Text("a")).text == "a"
            assert all(closed(sock) for sock in crowd[:8])
        assert d.lost == []


def test_many_tasks_connect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MAX_UNAUTHENTICATED", 2)
    with driver() as d:
        early = [d.raw() for _ in range(2)]
        late = [d.raw() for _ in range(4)]
        for task, sock in enumerate(early + late):
            sock.sendall(json.dumps({"token": d.coordinator.token, "task": task}).encode() + b"\n")
            sock.sendall(b'{"op": "echo", "text": "a", "task": 0}\n')
        for sock in early + late:
            sock.settimeout(20)
            assert json.loads(sock.makefile("rb").readline())["text"] == "a"


@for_each(
    "hello",
    [
        b"[]",
        b"1",
        b"null",
        b'{"token": "wrong", "task": 1}',
        '{"token": "é", "task": 1}'.encode(),
        b'{"token": "\\ud800", "task": 1}',
        b'{"token": ["a"], "task": 1}',
        b'{"task": 1}',
        b'{"token": TOKEN, "task": "1"}',
        b'{"token": TOKEN, "task": -1}',
        b'{"token": TOKEN}',
        b"[" * 1000,
        b"\xff\xfe",
        b"not json",
    ],
)
def test_who_does_not_show_the_token_gets_no_answer(hello: bytes) -> None:
    with driver() as d, d.raw() as sock:
        sock.sendall(hello.replace(b"TOKEN", json.dumps(d.coordinator.token).encode()) + b"\n")
        sock.sendall(b'{"op": "echo", "text": "a"}\n')
        assert closed(sock)
        assert d.lost == []


@for_each("line", [b"[]", b"{}", b"nonsense", b'{"op": 1}', b"[" * 100_000, b"\xff"])
def test_an_unknown_message_of_a_task_is_named(line: bytes) -> None:
    with driver() as d, d.raw() as sock:
        sock.sendall(json.dumps({"token": d.coordinator.token, "task": 3}).encode() + b"\n" + line + b"\n")
        assert d.heard.wait(20)
        ((task, cause),) = d.lost
        assert task == 3 and isinstance(cause, StateError) and "task 3" in cause.where


def test_a_line_of_a_task_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    with driver() as d, d.client(2) as client:
        with pytest.raises(StateError):
            client.call(ECHO, Text("x" * 2000))
        assert d.heard.wait(20)
        ((task, cause),) = d.lost
        assert task == 2 and isinstance(cause, StateError) and "1000 bytes" in cause.why


@pytest.mark.parametrize(
    "operation, request_",
    [(TaskOperation("unknown", EmptyMessage, EmptyMessage), EMPTY), (ECHO, Other("a"))],
    ids=["unknown", "another member"],
)
def test_a_call_that_does_not_fit_is_answered_by_name(operation: TaskOperation[Any, Any], request_: Any) -> None:
    with driver() as d, d.client() as client:
        with pytest.raises(StateError, match="cannot read a message"):
            client.call(operation, request_)
        assert client.call(ECHO, Text("a")).text == "a"


def test_a_task_that_ends_without_goodbye_is_lost_with_its_error() -> None:
    with driver() as d:
        with pytest.raises(SourceError), d.client(4):
            raise SourceError("gone", where="x")
        assert d.heard.wait(20)
        ((task, cause),) = d.lost
        assert task == 4 and isinstance(cause, SourceError)


def test_each_side_finds_out_that_the_others_host_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both may be silent for hours; a host without power says nothing, so the operating system has to ask."""
    plain, watched = module.enable_keepalive, []

    def keep_alive(sock: socket.socket, seconds: float) -> None:
        plain(sock, seconds)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        watched.append((sock.getsockname(), seconds))

    monkeypatch.setattr(module, "enable_keepalive", keep_alive)
    with driver() as d, d.client() as client:
        assert client.call(ECHO, Text("a")).text == "a"
        ends = {client._sock.getsockname(), d.coordinator.address}
        assert set(watched) == {(end, module.KEEPALIVE_S) for end in ends}


def test_a_driver_that_is_gone_is_named() -> None:
    with driver() as d:
        address, token = d.coordinator.address, d.coordinator.token
    with pytest.raises(StateError, match="driver of this job is gone"):
        CoordinatorClient(address, token, 0)


# -- where it listens --------------------------------------------------------------------------------------------------


def test_the_tasks_get_another_address_than_the_one_that_is_listened_on() -> None:
    made = Coordinator([], Endpoint(host="localhost", bind="127.0.0.1"))
    try:
        assert made.address[0] == "localhost" and made.address[1] > 0
        with CoordinatorClient(("127.0.0.1", made.address[1]), made.token, 0):
            pass
    finally:
        made.close()


def test_a_port_that_is_taken_leads_to_the_next_one_as_in_spark() -> None:
    first = Coordinator([], Endpoint())
    port = first.address[1]
    second = Coordinator([], Endpoint(port=port))
    try:
        assert port < second.address[1] < port + module.MAX_PORT_TRIES
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("endpoint", [Endpoint(bind="192.0.2.1", port=17_170), Endpoint(host="no.such.host.invalid")])
def test_an_address_of_another_host_is_named(endpoint: Endpoint) -> None:
    with pytest.raises(ConfigError, match="cannot listen") as caught:
        Coordinator([], endpoint)
    assert (endpoint.bind or endpoint.host) in caught.value.where
    assert "spark.mysqlcdc.coordinator" in caught.value.remedy
