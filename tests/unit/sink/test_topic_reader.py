"""A topic whose reading stops: an open transaction may hide the rest, or Kafka is silent."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink import topic_reader
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, read_topic
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


class Silent:
    """A consumer that is told nothing, as one whose brokers stand still."""

    def assign(self, places: Any) -> None:
        pass

    def consume(self, most: int, timeout: float) -> list[Any]:
        return []

    def poll(self, timeout: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({}, HiddenByTransaction),
        ({"stable": True}, SinkConnectionError),
        ({"committed": False}, SinkConnectionError),
    ],
    ids=["committed", "stable", "all"],
)
def test_what_no_transaction_can_hide_is_a_silence_of_kafka(
    how: dict[str, bool], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "make_consumer", lambda *a, **k: Silent())
    monkeypatch.setattr(topic_reader, "end_offsets", lambda *a, **k: {0: (0, 42)})
    settings = {"bootstrap.servers": "127.0.0.1:9"}
    with pytest.raises(error, match="0 of 42") as caught:
        list(read_topic(settings, "ledger", timeout_s=0, admin=object(), topic_info=TopicInfo(1, "id"), **how))
    assert error is HiddenByTransaction or caught.value.can_retry
