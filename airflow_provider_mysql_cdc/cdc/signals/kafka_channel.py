"""Signals from a Kafka topic (INC-40 to INC-46).

Partition 0 is read from the place that the ledger keeps, which moves on in the same transaction as what the signals led
to: each is carried out once. At first the topic is read from its beginning, as Debezium 3.6.1 does
(``KafkaSignalChannel``), or from its end with ``signal.consumer.auto.offset.reset=latest``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, received
from airflow_provider_mysql_cdc.cdc.signals.table_names import show
from airflow_provider_mysql_cdc.cdc.sink.clients import Admin, make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord, read_between
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, partition_counts, topic_id

MOST_AT_ONCE = 1_000
MOST_BYTES = 64 * 2**20
"""Records, and bytes of them, that one poll reads; the rest comes with the next."""
_PARTITION = 0
_SILENT_S = 30.0
_LOOK_S = 0.05
_FROM_THE_END = ("latest", "largest", "end")


@dataclass(slots=True)
class Polled:
    """Hold what a poll found.

    Args:
        signals: Signals that are new, with the ledger keys they would wait under; refused ones among them.
        place: New value of the ledger's ``signal-offset``, to be committed together with what the signals lead to; None
            when the place has not moved.
        notes: Lines for the log.
    """

    signals: list[tuple[str, Signal]] = field(default_factory=list)
    place: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


def poll(cfg: ConnectorConfig, ledger: LedgerState) -> Polled:
    """Return the signals of the Kafka topic that are new; none where the channel is off.

    Args:
        cfg: The connector's configuration.
        ledger: What the ledger holds.

    Raises:
        ConfigError: librdkafka does not take a setting.
    """
    return KafkaChannel(cfg).poll(ledger) if cfg.takes_signals_from("kafka") else Polled()


def signals_wait(cfg: ConnectorConfig, ledger: LedgerState) -> bool:
    """Return whether the Kafka topic holds records behind the place that the ledger keeps.

    Args:
        cfg: The connector's configuration.
        ledger: What the ledger holds.

    Raises:
        ConfigError: librdkafka does not take a setting.
    """
    return cfg.takes_signals_from("kafka") and KafkaChannel(cfg).waits(ledger)


class KafkaChannel:
    """Read signals of one connector.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._settings = cfg.signal_kafka_settings()
        self._topic, self._prefix = cfg[F.SIGNAL_KAFKA_TOPIC], cfg.topic_prefix
        self._group, self._wait_s = cfg[F.SIGNAL_KAFKA_GROUP_ID], cfg[F.SIGNAL_KAFKA_POLL_TIMEOUT_MS] / 1000
        self._admin_client: Admin | None = None

    def poll(self, ledger: LedgerState) -> Polled:
        """Return the signals behind the place that the ledger keeps; wait a little when there are none.

        A topic that is missing or cannot be read is a line for the log and never stops the drain.

        Args:
            ledger: What the ledger holds.

        Raises:
            ConfigError: librdkafka does not take a setting.
        """
        found = Polled()
        try:
            self._poll(ledger.others.get(SIGNAL_OFFSET_KEY), found)
        except SinkError as error:
            return Polled(notes=[f"signals of topic {self._topic} cannot be read now: {error.message()}"])
        except HiddenByTransaction as hidden:
            why = f"an open transaction hides the rest ({hidden})"
            return Polled(notes=[f"signals of topic {self._topic} cannot be read now: {why}"])
        return found

    def waits(self, ledger: LedgerState) -> bool:
        """Return whether there is something to read; no when the topic cannot be asked.

        Args:
            ledger: What the ledger holds.

        Raises:
            ConfigError: librdkafka does not take a setting.
        """
        try:
            if self._topic not in partition_counts(self._admin(), [self._topic]):
                return False
            number = topic_id(self._admin(), self._topic)
            start, end = self._range(ledger.others.get(SIGNAL_OFFSET_KEY), number, Polled())
        except SinkError:
            return False
        return start < end

    def _admin(self) -> Admin:
        if self._admin_client is None:
            self._admin_client = make_admin(self._settings)
        return self._admin_client

    def _poll(self, known: Mapping[str, Any] | None, found: Polled) -> None:
        admin, topic = self._admin(), self._topic
        if topic not in partition_counts(admin, [topic]):
            found.notes.append(f"topic {topic} of signals does not exist (signal.kafka.topic)")
            return
        number = topic_id(admin, topic)
        start, end = self._range(known, number, found)
        deadline = time.monotonic() + self._wait_s
        while start >= end and time.monotonic() < deadline:
            time.sleep(min(_LOOK_S, max(0.0, deadline - time.monotonic())))
            end = max(end, end_offsets(admin, topic, [_PARTITION], stable=True)[_PARTITION][1])
        reached = self._read(start, end, found)
        place = {"topic": topic, "id": number, "offset": reached}
        if known is None or dict(known) != place:
            found.place = place

    def _range(self, known: Mapping[str, Any] | None, number: str | None, found: Polled) -> tuple[int, int]:
        """Return where to begin, and the end of what is committed."""
        first, end = end_offsets(self._admin(), self._topic, [_PARTITION], stable=True)[_PARTITION]
        if known is None or known["topic"] != self._topic:
            late = str(self._settings.get("auto.offset.reset", "")).lower() in _FROM_THE_END
            return (end if late else first), end
        if known.get("id") not in (None, number):
            found.notes.append(f"topic {self._topic} of signals was made anew; it is read from its beginning")
            return first, end
        at = int(known["offset"])
        if at < first:
            found.notes.append(
                f"topic {self._topic} of signals begins with offset {first} now: signals from {at} on were deleted "
                "before anybody read them"
            )
        # Behind its end it can be after an unclean election only.
        return min(max(at, first), max(end, first)), end

    def _read(self, start: int, end: int, found: Polled) -> int:
        """Read from offset to offset; return where the next poll begins."""
        reached = end if end > start else start
        size = others = 0
        bounds = {_PARTITION: (start, end)}
        for record in read_between(self._settings, self._topic, bounds, timeout_s=_SILENT_S, group=self._group):
            size += len(record.value or b"")
            if (record.key or b"") != self._prefix.encode():
                others += 1
            elif record.value:
                signal = read_record(record)
                found.signals.append((signal.key(str(record.offset)), signal))
            if len(found.signals) + others >= MOST_AT_ONCE or size >= MOST_BYTES:
                reached = record.offset + 1
                break
        if others:
            found.notes.append(
                f"{others} records of topic {self._topic} are passed over: their key is not {self._prefix}"
            )
        return reached


def read_record(record: TopicRecord) -> Signal:
    """Return the signal that a record of the signal topic holds; a refused one when nobody can read it.

    Args:
        record: The record.
    """
    stand_in = f"kafka-{record.offset}"  # INC-46: the record has no id of its own, as a rule
    try:
        value = json.loads(record.value or b"")
    except (ValueError, RecursionError) as error:
        why = f"the value at offset {record.offset} is not JSON: {error}"
        return received(stand_in, "", "", "kafka", why)
    if not isinstance(value, dict):
        return received(stand_in, "", "", "kafka", f"the value at offset {record.offset} is not a JSON object")
    wrong = ""
    texts = {}
    for name in ("id", "type"):
        text = value.get(name)
        if text is not None and not isinstance(text, str):
            wrong = wrong or f"{name} at offset {record.offset} is not a text"
            text = None
        texts[name] = text
    data = value.get("data")
    if data is not None and not isinstance(data, dict):
        wrong = wrong or f"data at offset {record.offset} is not a JSON object, and is {show(json.dumps(data))}"
        data = None
    written = "" if data is None else json.dumps(data, ensure_ascii=False)
    return received(texts["id"] or stand_in, texts["type"], written, "kafka", wrong)
