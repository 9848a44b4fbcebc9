"""The offsets of many topics are asked for together: a stream may have thousands."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.sink import topics as asking
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    describe_topics,
    end_offsets,
    end_offsets_of_topics,
    last_offsets,
    topic_config,
)

pytestmark = pytest.mark.quick


class Admin:
    """Answer with the partition's number as its first offset, and ten more as its end."""

    def __init__(self) -> None:
        self.requests: list[int] = []

    def list_offsets(self, requests: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        answers, later = {}, 10 * len(self.requests)
        self.requests.append(len(requests))
        for partition in requests:
            answers[partition] = Future()
            answers[partition].set_result(SimpleNamespace(offset=partition.partition + later))
        return answers


def test_first_offsets_and_ends_of_all_topics_take_two_requests() -> None:
    admin: Any = Admin()
    topics = {f"t{number}": range(3) for number in range(2000)}
    found = end_offsets_of_topics(admin, topics, stable=True)
    assert admin.requests == [6000, 6000]
    assert found.keys() == topics.keys() and found["t7"] == {0: (0, 10), 1: (1, 11), 2: (2, 12)}


def test_nothing_is_asked_about_no_topic() -> None:
    admin: Any = Admin()
    assert end_offsets_of_topics(admin, {}) == {} and end_offsets(admin, "t", []) == {}
    assert admin.requests == []


class Behind(Admin):
    """Do not know a topic in the first answers, as a broker that has not heard of it yet."""

    def __init__(self, unknown: int, code: int = KafkaError.UNKNOWN_TOPIC_OR_PART) -> None:
        super().__init__()
        self.unknown, self._code = unknown, code

    def _answer(self, value: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        self.unknown -= 1
        if self.unknown >= 0:
            answer.set_exception(KafkaException(KafkaError(self._code)))
        else:
            answer.set_result(value)
        return answer

    def list_offsets(self, requests: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        return {partition: self._answer(SimpleNamespace(offset=7)) for partition in requests}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        found = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(replicas=[1])])
        return {name: self._answer(found) for name in ("t", "u")}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {resource: self._answer({"name": SimpleNamespace(value="value")}) for resource in resources}


def test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has described it a moment before; a topic that stays unknown is an error."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(asking, "time", clock)
    monkeypatch.setattr(asking, "all_partition_counts", lambda admin: {})
    admin: Any = Behind(2)
    assert last_offsets(admin, "t", [0]) == {0: 7}
    admin.unknown = 2
    assert topic_config(admin, "t") == {"name": "value"}
    for ask in (lambda: last_offsets(admin, "t", [0]), lambda: topic_config(admin, "t")):
        admin.unknown = 1000
        with pytest.raises(SinkError):
            ask()


@pytest.mark.parametrize("has_answered", [True, False])
def test_topics_are_described_again_while_a_broker_that_has_answered_restarts(
    has_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no broker has ever answered, the addresses may be wrong, and nothing is waited for."""
    monkeypatch.setattr(asking, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    errors = SimpleNamespace(
        has_answered=has_answered, note_answer=lambda: None, to_error=lambda *_, **__: SinkError("x")
    )
    monkeypatch.setattr(asking, "client_errors", lambda _: errors)
    admin: Any = Behind(3, KafkaError._TRANSPORT)
    if has_answered:
        assert describe_topics(admin, ["t", "u"], "a").keys() == {"t", "u"}
    else:
        with pytest.raises(SinkError):
            describe_topics(admin, ["t", "u"], "a")
