"""The content of the ledger topic, kept between reads, and the check that all of it is this stream's.

Cache the content of the ledger topic, so that a later read fetches only the records since.

A ledger of 10,000 topics has as many records, and a batch reads it several times. Records before the last stable offset
do not change, so they need not be read twice as long as the topic is the same. A topic that was created again, or lost
its end, as after the election of a leader that lacked it, has another record, or none, at the offset of the last
record: so that record is read again each time, and when it differs, the whole topic is read. Before a driver puts a
plan in force it also compares the topic's id (``takeover``).

Check that the ledger topic holds this stream's records only, so that nothing is added to the topic of others.

A stream claims the ledger before it writes anything else. A claim is a record without a transaction, under a key of its
own, and is written once: of two streams that begin in one empty topic at the same moment, both read both claims, and
the first one owns the ledger.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit import ledger_keys as keys
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    CHUNK_PREFIX,
    OUTCOME_KEY,
    PLAN_KEY,
    SNAPSHOT_KEY,
    WRITER_PREFIX,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import ForeignLedgerError
from airflow_provider_mysql_cdc.cdc.model.records import connect_record, describe_record
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

_PROGRESS = (PLAN_KEY, OUTCOME_KEY, SNAPSHOT_KEY, WRITER_PREFIX, CHUNK_PREFIX)
ReadFrom = Callable[[str, int], Iterable[TopicRecord]]
"""Returns the committed records of the topic with an id, from an offset on."""


@dataclass(frozen=True, slots=True)
class LedgerValues:
    """Hold the last value of each key.

    Args:
        values: Value by key, in the order of the topic; None for a key that was deleted since the first read.
        offsets: Offset of that record by key.
        last: The last record; None in an empty topic.
        progress_end: The offset of the last record that says how far the stream is; 0 where there is none. It never
            moves back in a topic that keeps its records: compaction keeps the last one of each of these keys, and one
            is deleted behind a later plan, snapshot's record or outcome. A deletion itself does not count, because
            compaction forgets it (``delete.retention.ms``).
    """

    values: dict[str, bytes | None] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    last: TopicRecord | None = None
    progress_end: int = 0

    def with_records(self, records: Iterable[TopicRecord]) -> LedgerValues:
        """Return the values after further records.

        Args:
            records: The records in order.
        """
        values, offsets, last, progress_end = dict(self.values), dict(self.offsets), self.last, self.progress_end
        for r in records:
            key = (r.key or b"").decode("utf-8", "replace")
            if key in values and values[key] is None:
                del values[key]  # what is written again after its deletion comes last, so signals keep their order
            values[key], offsets[key] = r.value, r.offset
            if r.value is not None and key.startswith(_PROGRESS):
                progress_end = r.offset
            last = r
        return LedgerValues(values, offsets, last, progress_end)


@dataclass(slots=True)
class LedgerCache:
    """Keep the values of one ledger for the next read; safe to use from several threads."""

    _topic_id: str | None = None
    _values: LedgerValues = field(default_factory=LedgerValues)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, topic_id: str | None, values: LedgerValues) -> None:
        """Keep the values of the whole topic.

        Args:
            topic_id: Kafka's id of the topic. With None, from brokers without topic ids, nothing is kept, because a
                topic that was created again could not be told from the earlier one.
            values: The last value of each key.
        """
        with self._lock:
            self._topic_id, self._values = topic_id, values

    def keep_only(self, topic_id: str | None) -> None:
        """Drop the cached values unless they are of this topic.

        Args:
            topic_id: Kafka's id of the topic as it is now.
        """
        with self._lock:
            if topic_id != self._topic_id:
                self._topic_id, self._values = None, LedgerValues()

    def read_on(self, read: ReadFrom) -> tuple[str, LedgerValues] | None:
        """Return the topic's id and the last value of each key, from the cached values and the records since.

        Args:
            read: Reads the topic; when it raises an error, the cache stays as it is.

        Returns:
            None where nothing is cached, or the record that was read last is no longer there: the topic was created
            again, or has lost its end.
        """
        with self._lock:
            topic_id, cached = self._topic_id, self._values
        if topic_id is None or cached.last is None:
            return None
        values = _with_newer(cached, cached.last, read(topic_id, cached.last.offset))
        if values is None:
            return None
        self.keep(topic_id, values)
        return topic_id, values

    def clear(self) -> None:
        """Drop the cached values."""
        self.keep(None, LedgerValues())


def _with_newer(cached: LedgerValues, last: TopicRecord, newer: Iterable[TopicRecord]) -> LedgerValues | None:
    """Return the values with the records from the last one on; None when the last one is no longer there."""
    records = iter(newer)
    reread = next(records, None)
    if reread is None or (reread.offset, reread.key, reread.value) != (last.offset, last.key, last.value):
        return None
    return cached.with_records(records)


_OWN_TOPIC = (
    "set another ledger.topic for this stream; if it has run already, then run mysql_cdc_reset_offset with "
    "offset=stored, which begins the new one. This topic was not changed"
)
_KEY_STARTS = frozenset(
    value.partition("/")[0] for name, value in vars(keys).items() if name.endswith(("_KEY", "_PREFIX"))
)
_KEY_FORM = re.compile(r"[a-z][a-z-]*(/.*)?", re.DOTALL)


def require_own_records(topic: str, values: LedgerValues) -> None:
    """Check that every record's key is one of the ledger's.

    Another version may write keys that this one does not know. Where the ledger also holds keys that this one knows,
    their version is refused by name (``stored_record.require_version``).

    Args:
        topic: The ledger topic.
        values: Its records.

    Raises:
        ForeignLedgerError: A record is another program's.
    """
    unknown = [k for k, v in values.values.items() if v is not None and k.partition("/")[0] not in _KEY_STARTS]
    if not unknown:
        return
    foreign = next(filter(_is_foreign, unknown), None)
    if foreign is None and not _is_own(values.values):
        foreign = unknown[0]
    if foreign is not None:
        raise ForeignLedgerError(
            "the ledger topic holds records that are not this stream's",
            where=f"topic {topic}, offset {values.offsets[foreign]}",
            why=f"it is {describe_record(foreign.encode(), values.values[foreign])}",
            remedy=_OWN_TOPIC,
        )


def require_own_prefix(topic: str, prefix: str, state: LedgerState) -> None:
    """Check that the ledger was claimed by this stream, if it was.

    Args:
        topic: The ledger topic.
        prefix: ``topic.prefix``.
        state: The ledger.

    Raises:
        ForeignLedgerError: It is another stream's (TOPIC-08).
    """
    if state.owner not in ("", prefix):
        raise ForeignLedgerError(
            f"the ledger belongs to topic.prefix={state.owner}, not to {prefix}",
            where=f"topic {topic}",
            why="topic.prefix was changed, or two connectors have the same ledger.topic",
            remedy=f"set topic.prefix back to {state.owner}; or set another ledger.topic for the new one "
            "and take a new snapshot",
        )


def claim_ledger(prefix: str, peek: Callable[[], LedgerState], write: Callable[[str, bytes | None], None]) -> None:
    """Record that the ledger is this stream's, unless it says so already.

    Args:
        prefix: ``topic.prefix``.
        peek: Returns the ledger, or raises ``ForeignLedgerError``.
        write: Writes the value of a key at once, outside of any transaction.

    Raises:
        ForeignLedgerError: It is another stream's or program's; of this stream nothing is left in it.
    """
    if peek().owner:
        return
    key = keys.owner_key(prefix)
    write(key, encode({"prefix": prefix}))
    try:
        peek()
    except ForeignLedgerError:
        write(key, None)
        raise


def _is_foreign(key: str) -> bool:
    return _KEY_FORM.fullmatch(key) is None or bool(connect_record(key.encode()))


def _is_own(records: Iterable[str]) -> bool:
    return any(key.partition("/")[0] in _KEY_STARTS for key in records)
