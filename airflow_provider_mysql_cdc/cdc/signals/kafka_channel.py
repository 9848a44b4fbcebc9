"""Signals from a Kafka topic (INC-40 to INC-46): checked before a run, read, and put in order by time.

Signals from a Kafka topic (INC-40 to INC-46).

Each partition is read from the offset that the ledger stores. The offsets advance in the transaction that commits the
effects of the signals, so each is carried out once. The first read starts at the beginning of the topic, as in Debezium
3.6.1 (``KafkaSignalChannel``), or at its end with ``signal.consumer.auto.offset.reset=latest``. Debezium reads
partition 0 only.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record, record_location
from airflow_provider_mysql_cdc.cdc.signals.actions import quote_text
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, build_signal
from airflow_provider_mysql_cdc.cdc.sink.clients import Admin, make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord, read_between
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import allow_command, allowed_operations
from airflow_provider_mysql_cdc.cdc.sink.topics import describe_topics, end_offsets, partition_counts, topic_id

_NEEDED = ("DESCRIBE", "READ")
_UNREAD = "no Kafka signals are read until then; the stream goes on"


def signal_topic_findings(cfg: ConnectorConfig) -> list[Finding]:
    """Return why signals of the Kafka topic are not read or have no order, as warnings, since the stream goes on.

    Args:
        cfg: The connector's configuration.
    """
    if not cfg.accepts_signals_from("kafka"):
        return []
    try:
        return list(_problems(cfg))
    except SinkError as error:
        what = f"the signal topic {cfg[F.SIGNAL_KAFKA_TOPIC]} cannot be checked: {error.what}"
        return [Finding(WARNING, what, error.why or _UNREAD, error.remedy or error.advice)]


def _problems(cfg: ConnectorConfig) -> Iterator[Finding]:
    topic, settings = cfg[F.SIGNAL_KAFKA_TOPIC], cfg.signal_kafka_settings()
    admin, brokers = make_admin(settings), broker_addresses(settings)
    info = describe_topics(admin, [topic], brokers).get(topic)
    if info is None:
        yield Finding(
            WARNING,
            f"the signal topic {topic} does not exist at {brokers}",
            _UNREAD,
            "create it with one partition, or correct signal.kafka.topic and signal.kafka.bootstrap.servers; or take "
            "kafka out of signal.enabled.channels",
        )
        return
    allowed = allowed_operations(admin, [topic]).get(topic)
    lacking = [name for name in _NEEDED if allowed is not None and name not in allowed]
    if lacking:
        yield Finding(
            WARNING,
            f"the account may not read the signal topic {topic}",
            _UNREAD,
            allow_command(settings, topic, lacking),
        )
    if info.partitions > 1:
        yield Finding(
            WARNING,
            f"the signal topic {topic} has {info.partitions} partitions",
            "signals in different partitions have no order among them, and Debezium reads the first one only",
            "use a topic with one partition",
        )


T = TypeVar("T")


def in_time_order(items: Iterable[T], sequence: Callable[[T], Hashable], time_ms: Callable[[T], int]) -> list[T]:
    """Return the items by their times; those of one sequence keep their order, whatever their times are.

    Args:
        items: The items, those of one sequence in its order.
        sequence: Returns the sequence of an item: a channel, or a partition.
        time_ms: Returns the time of an item in milliseconds since 1970; 0 if it is not known.
    """
    latest: dict[Hashable, int] = {}
    timed: list[tuple[int, T]] = []
    for item in items:
        key = sequence(item)
        latest[key] = max(latest.get(key, 0), time_ms(item))
        timed.append((latest[key], item))
    return [item for _, item in sorted(timed, key=lambda pair: pair[0])]


MAX_POLL_RECORDS = 1_000
MAX_POLL_BYTES = 64 * 2**20
"""Most records and bytes that one poll reads; the next poll reads the rest."""
_DIGEST_CHARS = 12
_READ_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.05
LATEST_RESETS = ("latest", "largest", "end")
"""Values of ``auto.offset.reset`` with which the first read of the topic begins at its end."""


@dataclass(frozen=True, slots=True)
class SignalOffsets(Record):
    """Hold how far the signal topic was read: the ledger's ``signal-offset``.

    Args:
        topic: The topic.
        topic_id: Kafka's id of it; None if it is not known.
        offsets: The next offset to read, by partition.
    """

    topic: str
    topic_id: str | None
    offsets: Mapping[int, Count]

    @classmethod
    def stored(cls, ledger: LedgerState) -> SignalOffsets | None:
        """Return what the ledger says; None before the first read.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = ledger.other_records.get(SIGNAL_OFFSET_KEY)
        with record_location(f"key {SIGNAL_OFFSET_KEY}"):
            return None if record is None else cls.from_json(record)


@dataclass(slots=True)
class PollResult:
    """Hold the result of a poll.

    Args:
        signals: New signals, invalid ones included, with the ledger keys of their channel.
        new_offset: New value of the ledger's ``signal-offset``, to be committed together with the effects of the
            signals; None when the offset has not changed.
        log_lines: Lines for the log.
    """

    signals: list[tuple[str, Signal]] = field(default_factory=list)
    new_offset: dict[str, Any] | None = None
    log_lines: list[str] = field(default_factory=list)


def poll_signals(cfg: ConnectorConfig, ledger: LedgerState) -> PollResult:
    """Return the new signals of the Kafka topic; none when the channel is not enabled.

    Args:
        cfg: The connector's configuration.
        ledger: What the ledger holds.

    Raises:
        ConfigError: librdkafka does not take a setting.
    """
    return KafkaSignalChannel(cfg).poll(ledger) if cfg.accepts_signals_from("kafka") else PollResult()


def has_new_signals(cfg: ConnectorConfig, ledger: LedgerState) -> bool:
    """Return whether the Kafka topic has records after the offset that the ledger stores.

    Args:
        cfg: The connector's configuration.
        ledger: What the ledger holds.

    Raises:
        ConfigError: librdkafka does not take a setting.
    """
    return cfg.accepts_signals_from("kafka") and KafkaSignalChannel(cfg).has_new_signals(ledger)


class KafkaSignalChannel:
    """Read signals of one connector.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._settings = cfg.signal_kafka_settings()
        self._topic, self._prefix = cfg[F.SIGNAL_KAFKA_TOPIC], cfg.topic_prefix
        self._group, self._poll_timeout_s = cfg[F.SIGNAL_KAFKA_GROUP_ID], cfg[F.SIGNAL_KAFKA_POLL_TIMEOUT_MS] / 1000

    def poll(self, ledger: LedgerState) -> PollResult:
        """Return the signals after the offset that the ledger stores; wait a little when there are none.

        A topic that is missing or cannot be read is reported in the log and never stops the drain.

        Args:
            ledger: What the ledger holds.

        Raises:
            ConfigError: librdkafka does not take a setting.
        """
        result = PollResult()
        try:
            self._poll_topic(ledger, result)
        except SinkError as error:
            return PollResult(log_lines=[f"the signal topic {self._topic} cannot be read now: {error.message()}"])
        except HiddenByTransaction as hidden:
            reason = f"an open transaction hides the rest ({hidden})"
            return PollResult(log_lines=[f"the signal topic {self._topic} cannot be read now: {reason}"])
        return result

    def has_new_signals(self, ledger: LedgerState) -> bool:
        """Return whether there are records to read; False when Kafka cannot be reached.

        Args:
            ledger: What the ledger holds.

        Raises:
            ConfigError: librdkafka does not take a setting.
        """
        try:
            partition_count = partition_counts(self._admin(), [self._topic]).get(self._topic, 0)
            if not partition_count:
                return False
            stored = self._stored_offsets(ledger, topic_id(self._admin(), self._topic), PollResult())
            ranges = self._offset_ranges(stored, range(partition_count), PollResult())
        except SinkError:
            return False
        return any(start < end for start, end in ranges.values())

    def _admin(self) -> Admin:
        return make_admin(self._settings)

    def _poll_topic(self, ledger: LedgerState, result: PollResult) -> None:
        admin, topic = self._admin(), self._topic
        partitions = range(partition_counts(admin, [topic]).get(topic, 0))
        if not partitions:
            result.log_lines.append(
                f"the signal topic {topic} (signal.kafka.topic) does not exist; no Kafka signals are read"
            )
            return
        current_id = topic_id(admin, topic)
        stored = self._stored_offsets(ledger, current_id, result)
        ranges = self._offset_ranges(stored, partitions, result)
        deadline = time.monotonic() + self._poll_timeout_s
        while all(start >= end for start, end in ranges.values()) and time.monotonic() < deadline:
            time.sleep(min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))
            ends = end_offsets(admin, topic, partitions, stable=True)
            ranges = {p: (start, max(end, ends[p][1])) for p, (start, end) in ranges.items()}
        next_offsets = self._read_signals(ranges, current_id or "", result)
        new_offset = SignalOffsets(topic, current_id, next_offsets).to_json()
        if ledger.other_records.get(SIGNAL_OFFSET_KEY) != new_offset:
            result.new_offset = new_offset

    def _stored_offsets(self, ledger: LedgerState, current_id: str | None, result: PollResult) -> SignalOffsets | None:
        """Return the stored offsets; None when the topic was not read before, or by another name."""
        stored = SignalOffsets.stored(ledger)
        if stored is None or stored.topic != self._topic:
            return None
        if stored.topic_id not in (None, current_id):
            result.log_lines.append(f"the signal topic {self._topic} was recreated; it is read from its beginning")
            return SignalOffsets(self._topic, current_id, {})
        return stored

    def _offset_ranges(
        self, stored: SignalOffsets | None, partitions: Sequence[int], result: PollResult
    ) -> dict[int, tuple[int, int]]:
        """Return the offset to start from and the end of the committed records, by partition."""
        bounds = end_offsets(self._admin(), self._topic, partitions, stable=True)
        from_latest = str(self._settings.get("auto.offset.reset", "")).lower() in LATEST_RESETS
        if stored is None:
            return {p: (end if from_latest else first, end) for p, (first, end) in bounds.items()}
        ranges = {}
        for partition, (first, end) in bounds.items():
            offset = stored.offsets.get(partition, first)
            if offset < first:
                result.log_lines.append(
                    f"{self._partition_name(partition)} now begins with offset {first}: the signals from offset "
                    f"{offset} on were deleted before they were read"
                )
            # An offset after the end is possible only after an unclean leader election.
            ranges[partition] = min(max(offset, first), max(end, first)), end
        return ranges

    def _partition_name(self, partition: int) -> str:
        return f"partition {partition} of " * bool(partition) + f"the signal topic {self._topic}"

    def _read_signals(self, ranges: Mapping[int, tuple[int, int]], topic_id: str, result: PollResult) -> dict[int, int]:
        """Read the records of all partitions; return the offsets at which the next poll starts."""
        positions = {p: start for p, (start, _) in ranges.items()}
        size = other_keys = 0
        records: list[TopicRecord] = []
        for record in read_between(self._settings, self._topic, ranges, timeout_s=_READ_TIMEOUT_S, group=self._group):
            size += len(record.value or b"")
            positions[record.partition] = record.offset + 1
            if (record.key or b"") != self._prefix.encode():
                other_keys += 1
            elif record.value:
                records.append(record)
            if len(records) + other_keys >= MAX_POLL_RECORDS or size >= MAX_POLL_BYTES:
                break
        else:
            positions = {p: max(start, end) for p, (start, end) in ranges.items()}
        for record in in_time_order(records, lambda r: r.partition, lambda r: r.timestamp_ms):
            signal = replace(
                signal_from_record(record, topic_id),
                sent_ms=max(0, record.timestamp_ms),
                partition=record.partition,
            )
            name = f"{record.partition}-{record.offset}" if record.partition else str(record.offset)
            result.signals.append((signal.ledger_key(name), signal))
        if other_keys:
            result.log_lines.append(
                f"{other_keys} records of the signal topic {self._topic} are skipped: their key is not {self._prefix}"
            )
        return positions


def record_id(record: TopicRecord, topic_id: str) -> str:
    """Return the id of a signal whose record has none (INC-46): always the same, and no other record's.

    Partition and offset alone are those of another record after the topic was created again.

    Args:
        record: The record.
        topic_id: Kafka's id of the topic; empty if it is not known: time and content then tell two records apart.
    """
    identity = [topic_id, record.timestamp_ms, (record.value or b"").hex()]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_DIGEST_CHARS]
    return f"kafka-{record.partition}-{record.offset}-{digest}"


def signal_from_record(record: TopicRecord, topic_id: str = "") -> Signal:
    """Return the signal in a record of the signal topic; an invalid one when the record cannot be read.

    Args:
        record: The record.
        topic_id: Kafka's id of the topic; empty if it is not known.
    """
    default_id = record_id(record, topic_id)
    try:
        value = json.loads(record.value or b"")
    except (ValueError, RecursionError) as error:
        problem = f"the value at offset {record.offset} is not JSON: {error}"
        return build_signal(default_id, "", "", "kafka", problem)
    if not isinstance(value, dict):
        return build_signal(default_id, "", "", "kafka", f"the value at offset {record.offset} is not a JSON object")
    invalid_reason = ""
    fields = {}
    for name in ("id", "type"):
        text = value.get(name)
        if text is not None and not isinstance(text, str):
            invalid_reason = invalid_reason or f"{name} at offset {record.offset} is not a string"
            text = None
        fields[name] = text
    data = value.get("data")
    if data is not None and not isinstance(data, dict):
        invalid_reason = (
            invalid_reason
            or f"data at offset {record.offset} is not a JSON object, and is {quote_text(json.dumps(data))}"
        )
        data = None
    data_text = "" if data is None else json.dumps(data, ensure_ascii=False)
    return build_signal(fields["id"] or default_id, fields["type"], data_text, "kafka", invalid_reason)
