"""Signals from a Kafka topic (INC-40 to INC-46).

Partition 0 is read from the offset that the ledger stores. That offset advances in the transaction that commits the
effects of the signals, so each is carried out once. The first read starts at the beginning of the topic, as in Debezium
3.6.1 (``KafkaSignalChannel``), or at its end with ``signal.consumer.auto.offset.reset=latest``.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, build_signal
from airflow_provider_mysql_cdc.cdc.signals.table_names import quote_text
from airflow_provider_mysql_cdc.cdc.sink.clients import Admin, make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord, read_between
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, partition_counts, topic_id

MAX_POLL_RECORDS = 1_000
MAX_POLL_BYTES = 64 * 2**20
"""Most records and bytes that one poll reads; the next poll reads the rest."""
_PARTITION = 0
_DIGEST_CHARS = 12
_READ_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.05
_LATEST_RESETS = ("latest", "largest", "end")


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
        self._admin_client: Admin | None = None

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
            self._poll_topic(ledger.other_records.get(SIGNAL_OFFSET_KEY), result)
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
            if self._topic not in partition_counts(self._admin(), [self._topic]):
                return False
            current_id = topic_id(self._admin(), self._topic)
            start, end = self._offset_range(ledger.other_records.get(SIGNAL_OFFSET_KEY), current_id, PollResult())
        except SinkError:
            return False
        return start < end

    def _admin(self) -> Admin:
        if self._admin_client is None:
            self._admin_client = make_admin(self._settings)
        return self._admin_client

    def _poll_topic(self, stored_offset: Mapping[str, Any] | None, result: PollResult) -> None:
        admin, topic = self._admin(), self._topic
        if topic not in partition_counts(admin, [topic]):
            result.log_lines.append(
                f"the signal topic {topic} (signal.kafka.topic) does not exist; no Kafka signals are read"
            )
            return
        current_id = topic_id(admin, topic)
        start, end = self._offset_range(stored_offset, current_id, result)
        deadline = time.monotonic() + self._poll_timeout_s
        while start >= end and time.monotonic() < deadline:
            time.sleep(min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))
            end = max(end, end_offsets(admin, topic, [_PARTITION], stable=True)[_PARTITION][1])
        next_offset = self._read_signals(start, end, current_id or "", result)
        new_offset = {"topic": topic, "id": current_id, "offset": next_offset}
        if stored_offset is None or dict(stored_offset) != new_offset:
            result.new_offset = new_offset

    def _offset_range(
        self, stored_offset: Mapping[str, Any] | None, current_id: str | None, result: PollResult
    ) -> tuple[int, int]:
        """Return the offset to start from, and the end of the committed records."""
        first, end = end_offsets(self._admin(), self._topic, [_PARTITION], stable=True)[_PARTITION]
        if stored_offset is None or stored_offset["topic"] != self._topic:
            from_latest = str(self._settings.get("auto.offset.reset", "")).lower() in _LATEST_RESETS
            return (end if from_latest else first), end
        if stored_offset.get("id") not in (None, current_id):
            result.log_lines.append(f"the signal topic {self._topic} was recreated; it is read from its beginning")
            return first, end
        offset = int(stored_offset["offset"])
        if offset < first:
            result.log_lines.append(
                f"the signal topic {self._topic} now begins with offset {first}: the signals from offset {offset} on "
                "were deleted before they were read"
            )
        # An offset after the end is possible only after an unclean leader election.
        return min(max(offset, first), max(end, first)), end

    def _read_signals(self, start: int, end: int, topic_id: str, result: PollResult) -> int:
        """Read the records between two offsets; return the offset at which the next poll starts."""
        next_offset = end if end > start else start
        size = other_keys = 0
        bounds = {_PARTITION: (start, end)}
        for record in read_between(self._settings, self._topic, bounds, timeout_s=_READ_TIMEOUT_S, group=self._group):
            size += len(record.value or b"")
            if (record.key or b"") != self._prefix.encode():
                other_keys += 1
            elif record.value:
                signal = signal_from_record(record, topic_id)
                result.signals.append((signal.ledger_key(str(record.offset)), signal))
            if len(result.signals) + other_keys >= MAX_POLL_RECORDS or size >= MAX_POLL_BYTES:
                next_offset = record.offset + 1
                break
        if other_keys:
            result.log_lines.append(
                f"{other_keys} records of the signal topic {self._topic} are skipped: their key is not {self._prefix}"
            )
        return next_offset


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
