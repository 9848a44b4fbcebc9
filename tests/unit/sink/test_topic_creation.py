"""Thousands of topics are made in requests that a broker answers in time."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink import topics
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

SPEC = TopicSpec(1, 1)


class Brokers:
    """Make topics; show those of one request at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, slow: bool = False) -> None:
        self.requests: list[int] = []
        self.there: set[str] = {"old"}
        self.slow = slow
        monkeypatch.setattr(topics, "partition_counts", self.counts)

    def counts(self, admin: Any, names: Collection[str]) -> dict[str, int]:
        return {name: 1 for name in names if name in self.there}

    def create_topics(self, new: list[Any], operation_timeout: float) -> dict[str, Future[None]]:
        self.requests.append(len(new))
        done: Future[None] = Future()
        done.set_result(None)
        if not self.slow:
            self.there |= {topic.topic for topic in new}
        return dict.fromkeys((topic.topic for topic in new), done)


@pytest.mark.req("TOPIC-11")
def test_nine_thousand_topics_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers: Any = Brokers(monkeypatch)
    names = ["old", *(f"t{n}" for n in range(9000))]
    assert set(ensure_topics(brokers, dict.fromkeys(names, SPEC))) == set(names) - {"old"}
    assert brokers.requests == [500] * 18
    assert ensure_topics(brokers, dict.fromkeys(names, SPEC)) == () and len(brokers.requests) == 18


def test_an_error_about_many_topics_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers: Any = Brokers(monkeypatch, slow=True)
    monkeypatch.setattr(topics, "_TIMEOUT_S", 0.0)
    with pytest.raises(SinkConnectionError, match="t0, t1, t10, t100, t101 and 495 more"):
        ensure_topics(brokers, {f"t{n}": SPEC for n in range(1000)})


def test_only_topics_that_do_not_appear_yet_are_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers: Any = Brokers(monkeypatch, slow=True)
    asked: list[int] = []
    pauses: list[float] = []

    def counts(admin: Any, names: Collection[str]) -> dict[str, int]:
        """Show a hundred more each time."""
        asked.append(len(names))
        brokers.there |= set(sorted(names)[:100]) if brokers.requests else set()
        return brokers.counts(admin, names)

    monkeypatch.setattr(topics, "partition_counts", counts)
    monkeypatch.setattr(topics.time, "sleep", pauses.append)
    assert len(ensure_topics(brokers, {f"t{n}": SPEC for n in range(500)})) == 500
    assert asked == [500, 500, 400, 300, 200, 100]
    assert pauses == [0.05, 0.1, 0.2, 0.4]
