"""Read the end of a topic, beginning with the last record of a kind, without reading what is before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.sink.consumer_cache import ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import (
    HiddenByTransaction,
    TopicRecord,
    hidden_records_error,
    read_between,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, end_offsets

FIRST_PART = 1024
"""Offsets that are read first; each part before them is four times as long."""
MAX_KEPT_BYTES = 128 << 20
"""Bytes that are searched, and kept in memory."""
_TIMEOUT_S = 60.0


def read_from_last(
    kafka_settings: Mapping[str, Any],
    topic: str,
    admin: AdminClient,
    topic_info: TopicInfo,
    is_start: Callable[[Sequence[bytes]], bool],
) -> Iterator[TopicRecord]:
    """Yield the committed records of a topic of one partition, beginning with the last one that is a start.

    If none is a start within the last ``MAX_KEPT_BYTES``, all records are yielded.

    Args:
        kafka_settings: Client settings.
        topic: Topic name.
        admin: An admin client.
        topic_info: The topic.
        is_start: Returns whether the first of some values is a start; gets the values of a record and of all after it.

    Raises:
        SinkConnectionError: No progress: Kafka does not answer, or an open transaction hides the rest.
        SinkError: The topic may not be read.
    """
    first, end = end_offsets(admin, topic, [0])[0]
    with ConsumerCache() as cache:

        def read(low: int, high: int) -> Iterator[TopicRecord]:
            bounds = {0: (low, high)}
            return read_between(
                kafka_settings, topic, bounds, timeout_s=_TIMEOUT_S, consumer_cache=cache, topic_id=topic_info.id
            )

        try:
            yield from _read_from_last(read, first, end, is_start)
        except HiddenByTransaction as hidden:
            raise hidden_records_error(topic, hidden) from None


def _read_from_last(
    read: Callable[[int, int], Iterator[TopicRecord]], first: int, end: int, is_start: Callable[[Sequence[bytes]], bool]
) -> Iterator[TopicRecord]:
    kept: list[TopicRecord] = []
    low, part, kept_bytes = end, FIRST_PART, 0
    while low > first and kept_bytes < MAX_KEPT_BYTES:
        high, low, part = low, max(first, low - part), part * 4
        records = list(read(low, high))
        kept_bytes += sum(len(record.value or b"") for record in records)
        kept = records + kept
        values = [record.value or b"" for record in kept]
        for start in reversed(range(len(records))):
            if is_start(_Tail(values, start)):
                yield from kept[start:]
                return
    if low > first:
        yield from read(first, low)
    yield from kept


class _Tail(Sequence[bytes]):
    """Values from one place on, without a copy for each place."""

    def __init__(self, values: list[bytes], start: int) -> None:
        self._values, self._start = values, start

    def __len__(self) -> int:
        return len(self._values) - self._start

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._values[self._start :][index]
        return self._values[self._start + index]
