"""The offsets of many topics are asked for together: a stream may have thousands."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, end_offsets_of_topics

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
