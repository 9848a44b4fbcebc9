"""Consumers are lent to one at a time, kept when all went well, and no longer than they are good for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.sink.kept_consumers import KEPT_S, Consumers


@dataclass
class Client:
    told: Callable[[Any], None]
    closed: bool = False
    unassigned: int = 0

    def unassign(self) -> None:
        self.unassigned += 1

    def close(self) -> None:
        self.closed = True


@dataclass
class Rig:
    now: float = 0.0
    made: list[Client] = field(default_factory=list)
    consumers: Consumers = field(init=False)

    def __post_init__(self) -> None:
        self.consumers = Consumers(clock=lambda: self.now)

    def lend(self, key: str | None = "ledger") -> Any:
        def make(told: Callable[[Any], None]) -> Any:
            self.made.append(Client(told))
            return self.made[-1]

        return self.consumers.lend(key, make)


def test_the_next_reading_of_the_same_topic_has_the_same_consumer() -> None:
    rig = Rig()
    for key in ("ledger", "ledger", "history", "ledger"):
        with rig.lend(key):
            pass
    assert [(c.unassigned, c.closed) for c in rig.made] == [(3, False), (1, False)]


def test_two_readings_at_once_have_two_consumers() -> None:
    rig = Rig()
    with rig.lend() as one, rig.lend() as other:
        assert one.consumer is not other.consumer


def test_without_a_key_nothing_is_kept() -> None:
    rig = Rig()
    for _ in range(2):
        with rig.lend(None):
            pass
    assert [c.closed for c in rig.made] == [True, True]


def test_a_consumer_that_saw_an_error_is_closed() -> None:
    rig = Rig()
    with rig.lend():
        rig.made[0].told("all brokers are down")
    with rig.lend() as reader:
        assert reader.errors == []
    assert [c.closed for c in rig.made] == [True, False]


def test_a_consumer_whose_reading_was_given_up_is_closed() -> None:
    rig = Rig()
    with pytest.raises(ValueError, match="enough"), rig.lend():
        raise ValueError("enough")
    assert rig.made[0].closed
    assert rig.made[0].unassigned == 0


def test_a_consumer_is_kept_for_a_minute_at_most() -> None:
    rig = Rig()
    for now in (0.0, KEPT_S - 1, KEPT_S):
        rig.now = now
        with rig.lend():
            pass
    assert [c.closed for c in rig.made] == [True, False]


def test_all_that_are_kept_can_be_let_go() -> None:
    rig = Rig()
    with rig.lend():
        rig.consumers.clear()
    rig.consumers.clear()
    assert rig.made[0].closed
