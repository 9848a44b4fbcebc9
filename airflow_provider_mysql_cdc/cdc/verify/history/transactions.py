"""Compare the events of each source transaction with what the transaction topic says of it.

With provide.transaction.metadata each event carries the id of its transaction and its number among the events of its
table, and the END record has the number of events of each table.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.emit.topic_names import transaction_topic
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import topic_config
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import PayloadReader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable

TRANSACTION_TOPIC = 0xFFFE
"""Stands for the transaction topic where entries name a table; 0xFFFF begins blocks of checksums."""
SKEW_MS = 3_600_000
"""Writers of a batch are not at the same place at the same time: one may have written the events of a transaction so
much earlier or later than another one its END."""
_NUMBER = struct.Struct("<I")
_END, _BEGIN = "END", "BEGIN"
_SUBJECT = "whether transactions are whole is not known"
TopicBounds = Mapping[int, tuple[int, int]]
"""First offset, and the offset after the last record, by partition."""


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """Say what is compared with the transaction topic.

    Args:
        topic: The transaction topic; empty where nothing is compared.
        tables: Numbers of the tables.
        reasons: Why it is not done for other tables, one sentence each, by number.
    """

    topic: str = ""
    tables: frozenset[int] = frozenset()
    reasons: Mapping[int, str] = field(default_factory=dict)


def transaction_check(
    cfg: ConnectorConfig,
    request: VerifyRequest,
    tables: Collection[ComparedTable],
    rules: Mapping[int, HistoryRules],
    bounds_of: Callable[[str], TopicBounds],
) -> TransactionCheck:
    """Return what is compared; nothing where histories are not checked, or events carry no transactions.

    Args:
        cfg: The connector's configuration.
        request: What was asked for.
        tables: The tables of the verification.
        rules: What holds for the histories of their keys.
        bounds_of: Returns first offset and end of a topic's partitions; none of a topic that the stream does not know.

    Raises:
        SinkError: The settings of the transaction topic cannot be read.
    """
    if not request.history or not rules or not cfg[F.PROVIDE_TRANSACTION_METADATA]:
        return TransactionCheck()
    topic = cfg.route_topic(transaction_topic(cfg[F.TOPIC_PREFIX], cfg[F.TOPIC_TRANSACTION])).topic
    if not bounds_of(topic):  # the stream has written no transaction yet
        return TransactionCheck()
    if reason := _reason(cfg, request, topic, tables, bounds_of):
        return TransactionCheck(reasons={compared.number: f"{_SUBJECT}: {reason}" for compared in tables})
    reasons = {
        compared.number: f"{_SUBJECT}: {why}"
        for compared in tables
        if (why := _table_reason(rules[compared.number], bounds_of(compared.topic)))
    }
    return TransactionCheck(topic, frozenset(c.number for c in tables if c.number not in reasons), reasons)


def _reason(
    cfg: ConnectorConfig,
    request: VerifyRequest,
    topic: str,
    tables: Collection[ComparedTable],
    bounds_of: Callable[[str], TopicBounds],
) -> str:
    """Return why no transactions are compared; empty if they are."""
    if request.sample_percent < 100:
        return "not all keys were compared"
    if DeadLetterReporter.enabled(cfg):
        return "END records count events that were left out (event.processing.failure.handling.mode)"
    if any(compared.topic == topic for compared in tables):
        return "events of tables are in the transaction topic"
    config = topic_config(make_admin(cfg.kafka_settings()), topic)
    if config is None or "compact" in config.get("cleanup.policy", ""):
        return f"{topic} is compacted, or its settings may not be read"
    return _lost(bounds_of(topic))


def _table_reason(rules: HistoryRules, bounds: TopicBounds) -> str:
    return _lost(bounds) if rules.complete else "its topic is compacted, or its settings may not be read"


def _lost(bounds: TopicBounds) -> str:
    """Return that a partition has lost all of its records, so that no record is left that says since when."""
    lost = [str(partition) for partition, (first, end) in bounds.items() if first == end > 0]
    return f"all records of partition {', '.join(lost)} are gone" if lost else ""


class TransactionEntries:
    """Make the entries of events and of the records of the transaction topic.

    Args:
        topic: The transaction topic; empty where transactions are not compared.
        numbers: Numbers of the tables that are compared.
        boundaries: Reads the records of the topic; None without one.
    """

    def __init__(self, topic: str, numbers: Mapping[TableId, int], boundaries: PayloadReader | None) -> None:
        self.topic, self._numbers = topic, {str(table): number for table, number in numbers.items()}
        self._boundaries = boundaries

    def of_event(self, number: int, event: EventRecord, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entry of an event; none of one without a transaction.

        Raises:
            UnreadableRecord: Its transaction block is none.
        """
        if self.topic and event.transaction is not None:
            place = record.partition, record.offset
            try:
                yield event_entry(number, place, record.timestamp_ms, event.transaction)
            except (KeyError, TypeError, struct.error) as error:
                raise UnreadableRecord(f"the transaction block cannot be read: {error!r}") from None

    def of_boundary(self, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entry of a record of the transaction topic; one that cannot be read is as if it were missing."""
        if record.value is None or self._boundaries is None:
            return
        try:
            payload, _ = self._boundaries.read(record.value, record.headers)
            place = record.partition, record.offset
            yield boundary_entry(self._numbers, place, record.timestamp_ms, payload)
        except (UnreadableRecord, KeyError, TypeError, ValueError, AttributeError):
            return

    def of_start(self, numbers: Iterable[int], start: int, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entries of the first record of a part of a topic."""
        if self.topic:
            for number in numbers:
                at_ms = max(0, record.timestamp_ms)
                yield FoldEntry(number, EntryKind.TOPIC_START, record.partition, start, at_ms, b"", b"")

    def of_topic(self, start: int, records: Iterable[TopicRecord]) -> Iterator[FoldEntry]:
        """Yield the entries of a part of the transaction topic."""
        first = True
        for record in records:
            if first:
                first = False
                yield from self.of_start((TRANSACTION_TOPIC,), start, record)
            yield from self.of_boundary(record)


def event_entry(table: int, place: tuple[int, int], timestamp_ms: int, transaction: Mapping[str, object]) -> FoldEntry:
    """Return the entry of an event; of a block that is none ``KeyError``, ``TypeError`` or ``struct.error``."""
    number = _NUMBER.pack(transaction["data_collection_order"])
    key = str(transaction["id"]).encode()
    return FoldEntry(table, EntryKind.TRANSACTION_EVENT, *place, max(0, timestamp_ms), key, number)


def boundary_entry(
    tables: Mapping[str, int], place: tuple[int, int], timestamp_ms: int, payload: Mapping[str, object]
) -> FoldEntry:
    """Return the entry of a BEGIN or END record; errors as for a record that is none: ``KeyError``, ``TypeError``.

    Args:
        tables: Numbers of the tables that are compared, by name.
        place: The record's partition and offset.
        timestamp_ms: The record's timestamp.
        payload: The record's value.
    """
    counts: dict[str, int] = {}
    collections = payload["data_collections"]
    for each in collections if isinstance(collections, list) else ():
        if each["data_collection"] in tables:
            counts[str(tables[each["data_collection"]])] = int(each["event_count"])
    value = json.dumps([payload["status"], counts]).encode()
    key = str(payload["id"]).encode()
    return FoldEntry(0, EntryKind.TRANSACTION_BOUNDARY, *place, max(0, timestamp_ms), key, value)


@dataclass(frozen=True, slots=True)
class TornTransaction:
    """Say what is wrong with the events of one table in a transaction.

    Args:
        table: The table's number.
        record: Partition and offset of one of its events; None without one.
        reason: What is wrong.
    """

    table: int
    transaction: str
    record: tuple[int, int] | None
    reason: str


@dataclass(slots=True)
class _TableEvents:
    """Hold which events of a table there are: a bit for each number."""

    timestamp_ms: int
    first: tuple[int, int]
    bits: bytearray = field(default_factory=bytearray)

    def add(self, number: int) -> None:
        place = number >> 3
        if place >= len(self.bits):
            self.bits.extend(bytes(place + 1 - len(self.bits)))
        self.bits[place] |= 1 << (number & 7)

    def number(self) -> int:
        return int.from_bytes(self.bits, "little").bit_count()


@dataclass(slots=True)
class _Transaction:
    begun: bool = False
    ended_ms: int | None = None
    counts: dict[int, int] = field(default_factory=dict)
    events: dict[int, _TableEvents] = field(default_factory=dict)


class _TopicStarts:
    """Hold from when on a topic has all its records, by the timestamps of the first ones that are left."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int]] = {}

    def add(self, entry: FoldEntry) -> None:
        start = entry.offset, entry.order
        self._first[entry.partition] = min(start, self._first.get(entry.partition, start))

    def complete_since(self) -> int:
        # A topic that was created again begins anew, at offset 0.
        created = min(timestamp for _, timestamp in self._first.values())
        lost = [timestamp + SKEW_MS for offset, timestamp in self._first.values() if offset]
        return max([created, *lost])


class TransactionFold:
    """Fold the entries of one bucket by transaction.

    Args:
        tables: Numbers of the tables whose topics have lost no records between others.
    """

    def __init__(self, tables: frozenset[int]) -> None:
        self._tables = tables
        self._transactions: dict[bytes, _Transaction] = {}
        self._starts: dict[int, _TopicStarts] = {}
        self.unjudged = Counter[int]()

    def add_event(self, entry: FoldEntry) -> None:
        """Add an event."""
        events = self._transaction(entry).events
        of_table = events.get(entry.table)
        if of_table is None:
            of_table = events[entry.table] = _TableEvents(entry.order, (entry.partition, entry.offset))
        of_table.add(*_NUMBER.unpack(entry.value))

    def add_boundary(self, entry: FoldEntry) -> None:
        """Add a BEGIN or END; after a reset there may be several, with other tables."""
        transaction, (status, counts) = self._transaction(entry), json.loads(entry.value)
        transaction.begun = transaction.begun or status == _BEGIN
        if status == _END:
            transaction.ended_ms = max(entry.order, transaction.ended_ms or 0)
            for table, number in counts.items():
                transaction.counts[int(table)] = max(number, transaction.counts.get(int(table), 0))

    def add_start(self, entry: FoldEntry) -> None:
        """Add the first record of a part of a topic: where the part begins, and the record's timestamp."""
        self._starts.setdefault(entry.table, _TopicStarts()).add(entry)

    def torn(self) -> Iterator[TornTransaction]:
        """Yield what is wrong, and count what cannot be judged."""
        since = {table: starts.complete_since() for table, starts in self._starts.items()}
        for key, transaction in self._transactions.items():
            for table in sorted(self._tables & (transaction.events.keys() | transaction.counts.keys())):
                events = transaction.events.get(table)
                reason = _torn_reason(transaction, table, events)
                if not reason:
                    continue
                if _is_judged(transaction, table, events, since):
                    first = None if events is None else events.first
                    yield TornTransaction(table, key.decode(errors="replace"), first, reason)
                else:
                    self.unjudged[table] += 1

    def _transaction(self, entry: FoldEntry) -> _Transaction:
        transaction = self._transactions.get(entry.key)
        if transaction is None:
            transaction = self._transactions[entry.key] = _Transaction()
        return transaction


def _torn_reason(transaction: _Transaction, table: int, events: _TableEvents | None) -> str:
    """Return what is wrong with the events of a table in a transaction; empty if nothing is."""
    seen, expected = 0 if events is None else events.number(), transaction.counts.get(table, 0)
    if transaction.ended_ms is None:
        return f"{seen:,} events of a transaction without END"
    if seen != expected:
        return f"{seen:,} of the {expected:,} events that END counts"
    return "" if transaction.begun or not seen else f"{seen:,} events of a transaction without BEGIN"


def _is_judged(transaction: _Transaction, table: int, events: _TableEvents | None, since: Mapping[int, int]) -> bool:
    """Return whether both topics have all records of the time of a transaction."""
    times = [] if transaction.ended_ms is None else [transaction.ended_ms]
    times += [] if events is None else [events.timestamp_ms]
    return all(topic in since and max(times) >= since[topic] for topic in (table, TRANSACTION_TOPIC))
