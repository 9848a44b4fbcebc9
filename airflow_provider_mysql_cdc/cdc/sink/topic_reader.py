"""Read small topics to their end, or only the end that begins with the last record of a kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.client_pool import CachedConsumer, ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin, make_consumer
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, to_sink_error
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, end_offsets, existing_topics, last_offsets

# The client reconnects by itself. It also looks up the group's coordinator although no group is used, so an account
# without permission for a group can still read.
IGNORED_ERRORS = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """Hold one committed record.

    Args:
        partition: Partition number.
        offset: Offset in it.
        key: Key bytes or None.
        value: Value bytes, or None for a tombstone.
        timestamp_ms: Record timestamp, milliseconds since 1970.
        headers: Headers in order.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


def to_record(message: Message) -> TopicRecord:
    """Return what a message of the client holds, which is a record and not an error.

    Args:
        message: The message.
    """
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return TopicRecord(
        partition, offset, message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ())
    )


class RecordsDeleted(Exception):
    """Raised with the reason where records are gone that were there when the reading of a topic was planned."""


class HiddenByTransaction(Exception):
    """Raised inside the sink when an open transaction hides later records; becomes a SinkConnectionError."""


def read_topic_committed(
    kafka_settings: Mapping[str, Any],
    topic: str,
    *,
    timeout_s: float = 60.0,
    admin: AdminClient | None = None,
    since: Mapping[int, int] = MappingProxyType({}),
    topic_info: TopicInfo | None = None,
    consumer_cache: ConsumerCache | None = None,
) -> Iterator[TopicRecord]:
    """Yield the committed records of a topic, up to the high watermark at the time of the call.

    Reading to the last *stable* offset is not enough: an open transaction hides everything that was committed after its
    first record. So this waits until the open transactions below the high watermark have ended. Live writers end theirs
    within their commit interval; dead writers must be fenced first (``fence.fence``), or their transactions end only at
    their timeout.

    Args:
        kafka_settings: Client settings.
        topic: Topic name; it must exist.
        timeout_s: Seconds without progress after which this fails.
        admin: An admin client; None creates one.
        since: Offset of the first record to read, by partition; other partitions are read from their beginning. Where
            all have one, a record that was deleted is an error.
        topic_info: The topic's description, if the caller has just fetched it; None fetches it.
        consumer_cache: Lends the consumer; None creates one and closes it.

    Returns:
        Records, in order within each partition.

    Raises:
        SinkConnectionError: No progress: Kafka does not answer, or an open transaction hides the rest.
        SinkError: The topic does not exist or may not be read.
    """
    try:
        yield from read_topic(
            kafka_settings,
            topic,
            timeout_s=timeout_s,
            admin=admin,
            since=since,
            topic_info=topic_info,
            consumer_cache=consumer_cache,
        )
    except HiddenByTransaction as hidden:
        raise hidden_records_error(topic, hidden) from None


def hidden_records_error(topic: str, hidden: HiddenByTransaction) -> SinkConnectionError:
    """Return the error for an open transaction that hides later records.

    Args:
        topic: The topic.
        hidden: What was raised while reading it.
    """
    return SinkConnectionError(
        "a topic cannot be read to its end",
        where=f"topic {topic}",
        why=f"an open transaction hides the rest ({hidden})",
        remedy="fence the writer that left it open, or wait for its transaction timeout",
    )


def read_topic(
    kafka_settings: Mapping[str, Any],
    topic: str,
    *,
    timeout_s: float,
    admin: AdminClient | None = None,
    committed: bool = True,
    stable: bool = False,
    topic_info: TopicInfo | None = None,
    consumer_cache: ConsumerCache | None = None,
    since: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[TopicRecord]:
    """Yield records up to the high watermark; see ``read_topic_committed``.

    Args:
        kafka_settings: Client settings.
        topic: Topic name; it must exist.
        timeout_s: Seconds without progress after which this fails.
        admin: An admin client; None creates one.
        committed: False reads aborted and open transactions as well.
        stable: Read only up to the oldest open transaction, without waiting for its end.
        topic_info: The topic's description, if the caller has just fetched it; None fetches it.
        consumer_cache: Lends the consumer, which must read committed records only; None creates one and closes it.
        since: Offset of the first record to read, by partition; other partitions are read from their beginning. Where
            all have one, a record that was deleted is an error.

    Raises:
        HiddenByTransaction: Kafka answers, but an open transaction hides the rest.
        SinkError: As ``read_topic_committed``.
    """
    admin = admin or make_admin(kafka_settings)
    topic_info = topic_info or existing_topics(admin, [topic]).get(topic)
    if topic_info is None:
        raise SinkError("a topic does not exist", where=f"topic {topic}", remedy="create it, or correct its name")
    partitions = range(topic_info.partitions)
    if all(since.get(p) for p in partitions):
        bounds = {p: (since[p], end) for p, end in last_offsets(admin, topic, partitions, stable=stable).items()}
    else:
        bounds = end_offsets(admin, topic, partitions, stable=stable)
        bounds = {p: (max(first, since.get(p, 0)), end) for p, (first, end) in bounds.items()}
    try:
        yield from read_between(
            kafka_settings,
            topic,
            bounds,
            timeout_s=timeout_s,
            committed=committed,
            consumer_cache=consumer_cache if committed else None,
            topic_id=topic_info.id,
        )
    except HiddenByTransaction as blocked:
        if committed and not stable:
            raise
        # No transaction hides records from a read_uncommitted consumer, or before the last stable offset: the brokers
        # have stopped answering, which the client reports as an error only after ``socket.timeout.ms``.
        raise no_progress_error(kafka_settings, topic, blocked, ClientErrors(kafka_settings)) from None


def read_between(
    kafka_settings: Mapping[str, Any],
    topic: str,
    bounds: Mapping[int, tuple[int, int]],
    *,
    timeout_s: float,
    committed: bool = True,
    group: str = "",
    consumer_cache: ConsumerCache | None = None,
    topic_id: str | None = None,
) -> Iterator[TopicRecord]:
    """Yield records from offset to offset; see ``read_topic``.

    Args:
        kafka_settings: Client settings.
        topic: Topic name; it must exist.
        bounds: First offset and the offset after the last record, by partition.
        timeout_s: Seconds without progress after which this fails.
        committed: False reads aborted and open transactions as well.
        group: Consumer group id; no offsets are committed under it.
        consumer_cache: Lends the consumer; None creates one and closes it.
        topic_id: Kafka's id of the topic, for ``consumer_cache``.

    Raises:
        HiddenByTransaction: Kafka answers, but an open transaction hides the rest.
        SinkError: As ``read_topic_committed``.
    """
    ends = {p: end for p, (first, end) in bounds.items() if end > first}
    if not ends:
        return

    def create(on_error: Callable[[KafkaError], None]) -> Consumer:
        return make_consumer(kafka_settings, group or f"{topic}.reader", on_error, committed=committed)

    with (consumer_cache or ConsumerCache()).borrow(topic_id, kafka_settings, create) as cached:
        yield from _consume_cached(cached, kafka_settings, topic, bounds, ends, timeout_s)


def _consume_cached(
    cached: CachedConsumer,
    kafka_settings: Mapping[str, Any],
    topic: str,
    bounds: Mapping[int, tuple[int, int]],
    ends: dict[int, int],
    timeout_s: float,
) -> Iterator[TopicRecord]:
    try:
        cached.consumer.assign([TopicPartition(topic, p, bounds[p][0]) for p in ends])
        yield from _consume(cached.consumer, topic, {p: bounds[p][0] for p in ends}, ends, timeout_s, cached.errors)
    except HiddenByTransaction as hidden:
        if cached.errors.last is None:
            raise
        raise no_progress_error(kafka_settings, topic, hidden, cached.errors) from None


def no_progress_error(
    kafka_settings: Mapping[str, Any], topic: str, blocked: HiddenByTransaction, reported: ClientErrors
) -> SinkError:
    """Return the error for brokers that give no more records.

    Args:
        kafka_settings: Client settings.
        topic: The topic.
        blocked: Says where reading has stopped.
        reported: What the client has reported.
    """
    error = KafkaError(KafkaError._TIMED_OUT, f"stopped at {blocked}")
    where = f"topic {topic} at {broker_addresses(kafka_settings)}"
    return reported.to_error(error, "while reading a topic", where=where)


_CONSUME_BATCH = 500
"""Messages that one call fetches from the client."""


def _consume(
    consumer: Consumer,
    topic: str,
    starts: Mapping[int, int],
    ends: dict[int, int],
    timeout_s: float,
    errors: ClientErrors,
) -> Iterator[TopicRecord]:
    deadline, positions = time.monotonic() + timeout_s, dict(starts)
    while ends:
        # A call for many messages waits for its whole timeout if there are fewer: wait for one, then fetch the others.
        for message in (*consumer.consume(1, 0.2), *consumer.consume(_CONSUME_BATCH, 0)):
            position, record = _parse_message(message, topic)
            if position is None:
                continue
            partition, offset = position
            if offset > positions[partition]:
                positions[partition], deadline = offset, time.monotonic() + timeout_s
                errors.note_answer()
            if record is not None and record.offset < ends.get(partition, 0):
                yield record
            if partition in ends and offset >= ends[partition]:
                del ends[partition]
        waited_s = time.monotonic() + timeout_s - deadline
        if ends and (waited_s > timeout_s or errors.is_refused(waited_s)):
            raise HiddenByTransaction(", ".join(f"partition {p}: {positions[p]} of {ends[p]}" for p in sorted(ends)))


def _parse_message(message: Message, topic: str) -> tuple[tuple[int, int] | None, TopicRecord | None]:
    """Return ((partition, next offset), record) of a message; there is no record at the end of a partition."""
    error = message.error()
    partition, offset = message.partition(), message.offset()
    if error is None:
        record = to_record(message)
        return (record.partition, record.offset + 1), record
    if error.code() == KafkaError._PARTITION_EOF:
        assert partition is not None and offset is not None
        return (partition, offset), None
    if error.retriable() or error.code() in IGNORED_ERRORS:
        return None, None
    raise to_sink_error(error, "while reading a topic", where=f"topic {topic}")


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
