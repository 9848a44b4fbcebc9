"""In-memory twins of Kafka and writer, for tests and trials without a server.

They keep the properties that the commit protocol rests on: a transaction becomes visible as a whole; taking over a
transactional id aborts what its older producer has open and refuses what it still sends; an open transaction hides all
that was committed behind it in the same partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import FencedError, RecordTooLargeError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.model.records import Headers, RowRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord


@dataclass(slots=True, eq=False)
class _Transaction:
    status: str = "open"


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    current: _Transaction | None = None


_Log = list[tuple[_Transaction, TopicRecord]]


@dataclass(slots=True)
class MemoryKafka:
    """Hold topics and transactional ids.

    Args:
        logs: Records of each (topic, partition), with the transaction they belong to.
        producers: State of each transactional id.
        topic_ids: Id of each topic that was created.
    """

    logs: dict[tuple[str, int], _Log] = field(default_factory=lambda: defaultdict(list))
    producers: dict[str, _Producer] = field(default_factory=lambda: defaultdict(_Producer))
    topic_ids: dict[str, str] = field(default_factory=dict)
    created: int = 0

    def create(self, topic: str) -> None:
        """Create a topic when it is missing."""
        if topic not in self.topic_ids:
            self.created += 1
            self.topic_ids[topic] = f"topic-{self.created}"

    def delete(self, topic: str) -> None:
        """Delete a topic with its records."""
        self.topic_ids.pop(topic, None)
        for place in [place for place in self.logs if place[0] == topic]:
            del self.logs[place]

    def committed(self, topic: str, *, wait: bool = False) -> list[TopicRecord]:
        """Return what a read_committed consumer sees, partition by partition.

        Args:
            topic: Topic name.
            wait: Whether to insist on the high watermark, as the ledger does.

        Raises:
            SinkConnectionError: ``wait`` is set and an open transaction hides the rest.
        """
        seen: list[TopicRecord] = []
        for (name, _), log in sorted(self.logs.items(), key=lambda item: item[0]):
            if name != topic:
                continue
            for transaction, record in log:
                if transaction.status == "open":
                    if wait:
                        raise SinkConnectionError("a topic cannot be read to its end", why="an open transaction")
                    break
                if transaction.status == "committed":
                    seen.append(record)
        return seen

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Write a record outside of any transaction to partition 0."""
        log = self.logs[topic, 0]
        log.append((_Transaction("committed"), TopicRecord(0, len(log), key, value, 0)))

    def expire(self, transactional_id: str) -> None:
        """Let the transaction of an id time out: the broker aborts it and bumps the epoch."""
        producer = self.producers[transactional_id]
        if producer.current is not None:
            producer.current.status = "aborted"
            producer.current = None
            producer.epoch += 1


class MemoryWriter:
    """Twin of ``TransactionalWriter``.

    Args:
        kafka: The twin of the cluster.
        transactional_id: ``<topic.prefix>.<writer>``.
    """

    def __init__(self, kafka: MemoryKafka, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.bytes_pending = 0
        self._kafka, self._epoch = kafka, -1

    def init(self, timeout_s: float = 60.0) -> None:
        """Fence every older producer of this transactional id."""
        producer = self._kafka.producers[self.transactional_id]
        if producer.current is not None:
            producer.current.status = "aborted"
        producer.current = None
        producer.epoch += 1
        self._epoch = producer.epoch

    def _current(self) -> _Producer:
        producer = self._kafka.producers[self.transactional_id]
        if producer.epoch != self._epoch:
            raise FencedError("a newer attempt took over this writer", where=self.transactional_id)
        return producer

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        """Add a record to the current transaction."""
        producer = self._current()
        if producer.current is None:
            producer.current = _Transaction()
        log = self._kafka.logs[topic, partition]
        log.append((producer.current, TopicRecord(partition, len(log), key, value, 0, tuple(headers or ()))))
        self.bytes_pending += len(key or b"") + len(value or b"")

    @property
    def queued(self) -> int:
        """Return the records that wait for Kafka."""
        return 0

    def note_partition(self, topic: str, partition: int) -> None:
        """Note where rows go, which makes no difference here."""

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Add records to the current transaction."""
        for key, value, _, _, header, own_partition in records:
            record_partition = partition if own_partition is None else own_partition
            self.produce(topic, key, value, record_partition, headers if header is None else [header, *headers])

    def produce_plain(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int, size: int
    ) -> None:
        """Add records of one partition to the current transaction."""
        self.produce_all(topic, records, headers, partition)

    def send(self, records: Sequence[SideRecord]) -> None:
        """Add side records to the current transaction."""
        for topic, key, value, headers in records:
            self.produce(topic, key, value, 0, headers)

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        """Add side records and commit."""
        MemoryWriter.send(self, records)
        producer = self._current()
        if producer.current is not None:
            producer.current.status = "committed"
            producer.current = None
        self.bytes_pending = 0

    def abort(self) -> None:
        """Throw the current transaction away."""
        producer = self._current()
        if producer.current is not None:
            producer.current.status = "aborted"
            producer.current = None
        self.bytes_pending = 0

    def close(self) -> None:
        """Do nothing: a crash and a close look the same to the cluster."""


class RefusingWriter(MemoryWriter):
    """A writer whose topic refuses the batches of its next commits, as many as ``refusals`` says."""

    open_s = 0.0
    refusals = 0

    def commit(self, records: Any = ()) -> None:
        """Commit, or abort and raise what Kafka says of a batch that is too large."""
        if self.refusals:
            self.refusals -= 1
            self.abort()
            raise RecordTooLargeError("a batch is larger than Kafka takes")
        super().commit(records)
