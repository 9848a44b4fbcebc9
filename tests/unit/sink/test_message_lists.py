"""Lists of messages of one partition: all committed records of the range, and none behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.sink import message_lists
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction

pytestmark = pytest.mark.quick
SETTINGS = {"bootstrap.servers": "h:1"}


class Message:
    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset, self._error = offset, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> Any:
        return None if self._error is None else KafkaError(self._error)


class Consumer:
    """Returns messages as the client does: those that it has, up to the number that is asked for."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def consume(self, most: int, timeout: float) -> list[Message]:
        taken, self._messages = self._messages[:most], self._messages[most:]
        return taken


def offsets(messages: list[Message], start: int, end: int, timeout_s: float = 5.0) -> list[int]:
    def lists() -> Iterator[list[Message]]:
        consumer: Any = Consumer(messages)
        yield from message_lists._lists(consumer, "t", 0, (start, end), timeout_s, ClientErrors(SETTINGS))

    return [message.offset() for each in lists() for message in each]


@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_records_of_a_range_are_returned_and_none_behind_it(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(message_lists, "_MOST_MESSAGES", most)
    # Offset 5 is the marker of a transaction, which no consumer sees.
    assert offsets([Message(n) for n in (3, 4, 6, 7, 8, 9)], 3, 8) == [3, 4, 6, 7]


def test_the_end_of_the_partition_ends_a_range_whose_last_offsets_are_not_visible() -> None:
    assert offsets([Message(3), Message(4), Message(6, KafkaError._PARTITION_EOF)], 3, 6) == [3, 4]
    assert offsets([Message(5, KafkaError._PARTITION_EOF), Message(5), Message(6)], 3, 6) == [5]


def test_brokers_that_give_nothing_are_named() -> None:
    with pytest.raises(HiddenByTransaction, match="partition 0: 4 of 9"):
        offsets([Message(3)], 3, 9, 0.0)


def test_an_error_of_the_client_is_raised_unless_it_passes() -> None:
    assert offsets([Message(0, KafkaError._TRANSPORT), Message(3)], 3, 4) == [3]
    with pytest.raises(SinkError):
        offsets([Message(3), Message(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)], 3, 5)


def test_an_empty_range_needs_no_consumer() -> None:
    assert list(message_lists.read_message_lists(SETTINGS, "t", 0, (5, 5), 1.0)) == []
