"""A consumer is lent again while its owner is at work and all went well, and never longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError

from airflow_provider_mysql_cdc.cdc.sink.client_pool import ConsumerCache

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


@dataclass
class Client:
    told: Callable[[Any], None]
    waits: list[str] = field(default_factory=list)
    closed: int = 0
    unassigned: int = 0

    def poll(self, timeout: float) -> None:
        while self.waits:
            self.told(self.waits.pop())

    def unassign(self) -> None:
        self.unassigned += 1

    def close(self) -> None:
        self.closed += 1


@dataclass
class Rig:
    kept: ConsumerCache = field(default_factory=ConsumerCache)
    made: list[Client] = field(default_factory=list)

    def lend(self, topic_id: str | None = "id-1") -> Any:
        def make(told: Callable[[Any], None]) -> Any:
            self.made.append(Client(told))
            return self.made[-1]

        return self.kept.borrow(topic_id, {}, make)

    @property
    def closed(self) -> list[int]:
        return [client.closed for client in self.made]


def test_one_consumer_serves_all_readings_of_its_owner_and_ends_with_it() -> None:
    rig = Rig()
    with rig.kept:
        for _ in range(3):
            with rig.lend():
                pass
        assert (rig.closed, rig.made[0].unassigned) == ([0], 3)
    assert rig.closed == [1]


def test_without_an_owner_nothing_is_kept() -> None:
    rig = Rig()
    with rig.lend():
        pass
    with rig.kept:
        pass
    with rig.lend():
        pass
    assert rig.closed == [1, 1]


def test_a_reading_that_outlives_the_owner_closes_its_consumer() -> None:
    rig = Rig()
    with rig.lend():
        with rig.kept:
            pass
        assert rig.closed == [0]
    assert rig.closed == [1]


def test_a_reading_inside_another_has_a_consumer_of_its_own_and_one_is_kept() -> None:
    rig = Rig()
    with rig.kept:
        with rig.lend() as outer, rig.lend() as inner:
            assert outer.consumer is not inner.consumer
        assert sum(rig.closed) == 1
    assert rig.closed == [1, 1]


@pytest.mark.parametrize("ids", [("id-1", "id-2"), (None, None)], ids=["made anew", "of a broker without ids"])
def test_another_topic_of_the_same_name_is_read_by_another_consumer(ids: tuple[str | None, str | None]) -> None:
    rig = Rig()
    with rig.kept:
        for topic_id in ids:
            with rig.lend(topic_id):
                pass
        assert rig.closed[0] == 1
    assert rig.closed == [1, 1]


@pytest.mark.parametrize("when", ["while it reads", "while it rests"])
def test_a_consumer_that_saw_an_error_is_not_lent_again(when: str) -> None:
    rig = Rig()
    with rig.kept:
        with rig.lend():
            if when == "while it reads":
                rig.made[0].told(DOWN)
        rig.made[0].waits.append(DOWN)
        with rig.lend() as lent:
            assert not lent.errors.any_reported
        assert rig.closed == [1, 0]


def test_a_reading_that_was_given_up_closes_its_consumer() -> None:
    rig = Rig()
    with rig.kept:
        with pytest.raises(ValueError, match="enough"), rig.lend():
            raise ValueError("enough")
        assert (rig.closed, rig.made[0].unassigned) == ([1], 0)
