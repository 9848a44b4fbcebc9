"""What the ledger topic says, kept by whoever reads it again and again: a later reading takes only what came since.

A ledger of 10,000 topics has as many records, and a batch reads it several times. What stands before the last stable
offset is decided for ever, so it needs no second reading as long as the topic is the same. A topic made anew has
another id. One that lost its end, as after the election of a leader that lacked it, has another record, or none, where
the last one was read: so that one is read again each time, and when it is not there, everything is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

ReadFrom = Callable[[int], Iterable[TopicRecord]]
"""From an offset to the committed records of the topic from there on."""


@dataclass(frozen=True, slots=True)
class LedgerValues:
    """Hold the last value of each key.

    Args:
        values: Value by key, in the order in which they came; None for one that was deleted since the first reading.
        offsets: Offset of that record by key.
        last: The last record; None in an empty topic.
    """

    values: dict[str, bytes | None] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    last: TopicRecord | None = None

    def with_records(self, records: Iterable[TopicRecord]) -> LedgerValues:
        """Return the values behind further records.

        Args:
            records: The records in order.
        """
        values, offsets, last = dict(self.values), dict(self.offsets), self.last
        for r in records:
            key = (r.key or b"").decode("utf-8", "replace")
            if key in values and values[key] is None:
                del values[key]  # what comes again behind its deletion comes last: signals keep their order
            values[key], offsets[key] = r.value, r.offset
            last = r
        return LedgerValues(values, offsets, last)


@dataclass(slots=True)
class LedgerCache:
    """Keep the values of one ledger for its owner's next reading; safe to use from several threads."""

    _topic_id: str | None = None
    _values: LedgerValues = field(default_factory=LedgerValues)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, topic_id: str | None, read: ReadFrom) -> LedgerValues:
        """Return the last value of each key.

        Args:
            topic_id: Kafka's id of the topic. None, from brokers that give none, keeps nothing: a topic made anew would
                be taken for the one before.
            read: Reads the topic; what it raises leaves what is kept as it is.
        """
        with self._lock:
            cached = self._values if topic_id is not None and topic_id == self._topic_id else LedgerValues()
        values = None if cached.last is None else _read_newer(cached, cached.last, read)
        if values is None:
            values = LedgerValues().with_records(read(0))
        with self._lock:
            self._topic_id, self._values = topic_id, values
        return values

    def clear(self) -> None:
        """Let all go."""
        with self._lock:
            self._topic_id, self._values = None, LedgerValues()


def _read_newer(cached: LedgerValues, last: TopicRecord, read: ReadFrom) -> LedgerValues | None:
    """Return the values with what came behind a record; None when the record is not there any more."""
    records = iter(read(last.offset))
    reread = next(records, None)
    if reread is None or (reread.offset, reread.key, reread.value) != (last.offset, last.key, last.value):
        return None
    return cached.with_records(records)
