"""Waiting for a server's answer: as long as it is at work, and no longer when it is gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import query_deadline
from airflow_provider_mysql_cdc.cdc.binlog.query_deadline import DeadlineReader, connection_lost_reason


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    mine, servers = socket.socketpair()
    with mine, servers:
        yield mine, servers


def test_a_server_at_work_is_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    mine, servers = ends
    asked: list[None] = []

    def gone() -> None:
        asked.append(None)
        if len(asked) == 3:
            servers.sendall(b"answer")

    buffer = bytearray(9)
    assert DeadlineReader(mine, 0.01, 0, gone).readinto(buffer) == 6 and buffer[:6] == b"answer"
    assert len(asked) == 3


def test_a_server_that_is_gone_is_given_up(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_deadline, "FINAL_READ_S", 0.01)
    with pytest.raises(TimeoutError, match="the server has ended the connection"):
        DeadlineReader(ends[0], 0.01, 1.0, lambda: "the server has ended the connection").readinto(bytearray(9))


def test_an_answer_that_came_while_the_server_was_asked_counts(ends: tuple[socket.socket, socket.socket]) -> None:
    mine, servers = ends

    def gone() -> str:
        servers.sendall(b"answer")
        return "the server has answered"

    assert DeadlineReader(mine, 0.01, 0, gone).readinto(bytearray(9)) == 6


def test_the_limit_holds_although_the_server_is_at_work(ends: tuple[socket.socket, socket.socket]) -> None:
    asked: list[None] = []

    def gone() -> None:
        asked.append(None)
        assert len(asked) < 20, "nobody looks at the limit"

    with pytest.raises(TimeoutError, match=r"database\.query\.timeout\.ms"):
        DeadlineReader(ends[0], 0.01, 0.05, gone).readinto(bytearray(9))


class Other:
    """Another connection to a server with these threads."""

    def __init__(self, *threads: tuple[int, str]) -> None:
        self._rows = [(number, "cdc", "host", None, command) for number, command in threads]

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        assert sql == "SHOW PROCESSLIST"

    def fetchall(self) -> list[Any]:
        return self._rows

    def close(self) -> None:
        pass


@for_each(
    ("answer", "why"),
    [
        (Other((7, "Query")), None),
        (Other((7, "Sleep")), "has answered"),
        (Other((8, "Query")), "has ended the connection"),
        (OSError("no route"), "cannot be reached"),
        (pymysql.err.OperationalError(2003, "refused"), "cannot be reached"),
        (pymysql.err.OperationalError(1040, "too many connections"), None),
    ],
)
def test_where_a_server_is_is_asked_on_another_connection(answer: Any, why: str | None) -> None:
    def open_another() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = connection_lost_reason(open_another, 7)
    assert (found is None) == (why is None) and (why or "") in (found or "")
