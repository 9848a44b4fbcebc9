"""The driver of many streams: it is ended on all of them, also on those that wait for their turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.operate import end_run


class Driver:
    """A driver of many streams of two servers, of each of which some work at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, streams: int, turns: int) -> None:
        self.waiting = {server: list(range(streams)) for server in ("a", "b")}
        self.working: dict[str, set[int]] = {"a": set(), "b": set()}
        self.asked = 0
        monkeypatch.setattr(end_run, "STREAMS_OF_SERVER", turns)
        monkeypatch.setattr(end_run, "end_run", self.end)
        monkeypatch.setattr(end_run.time, "sleep", lambda seconds: self.next_turn(turns))
        self.next_turn(turns)

    def next_turn(self, turns: int) -> None:
        for server, waiting in self.waiting.items():
            while waiting and len(self.working[server]) < turns:
                self.working[server].add(waiting.pop(0))

    def end(self, cfg: Any, owner: str, log: Any) -> bool:
        self.asked += 1
        if cfg.server == "dead":
            raise SourceConnectionError("gone")
        found = cfg.number in self.working[cfg.server]
        self.working[cfg.server].discard(cfg.number)
        return found

    def left(self) -> int:
        return sum(map(len, (*self.waiting.values(), *self.working.values())))


def configs(streams: int, *servers: str) -> list[Any]:
    return [
        SimpleNamespace(server=server, number=number, source_address=lambda server=server: server)
        for server in servers
        for number in range(streams)
    ]


def test_streams_that_wait_for_their_turn_are_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, streams=7, turns=2)
    end_run.end_runs(configs(7, "a", "b", "dead"), "owner", print)
    assert driver.left() == 0 and driver.asked == 4 * 21


def test_where_no_stream_waits_each_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, streams=2, turns=2)
    end_run.end_runs(configs(2, "a", "b"), "owner", print)
    assert (driver.left(), driver.asked) == (0, 4), "a second look could end the driver of the next try"
