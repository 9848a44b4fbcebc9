"""Watch Kafka signal topics for the streams of a process, with one consumer for each topic.

Streams often share a signal topic; each has the records whose key is its ``topic.prefix``. For each key only the newest
record of each partition is kept: a stream whose ledger has not read up to there has a signal that waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import LATEST_RESETS, SignalOffsets
from airflow_provider_mysql_cdc.cdc.sink.client_pool import ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, read_between
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, partition_counts, topic_id

log = logging.getLogger(__name__)

FRESH_S = 2.0
"""Seconds for which what was read serves other streams of the topic."""
IDLE_S = 900.0
"""Seconds after which the consumer of a topic that no stream asks about is closed."""
_READ_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class SignalTopicState:
    """Hold what a signal topic has.

    Args:
        topic_id: Kafka's id of the topic; None if it is not known, or there is no topic.
        newest: Offset of the newest record with a value, by partition, by key.
    """

    topic_id: str | None = None
    newest: Mapping[bytes, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))


NO_TOPIC = SignalTopicState()


class SignalTopicWatch:
    """Read a signal topic further each time that somebody asks.

    Args:
        settings: Settings of the Kafka client.
        topic: The topic.
        group: Consumer group id, for its permissions; no offsets are committed under it.
    """

    def __init__(self, settings: Mapping[str, str | Secret], topic: str, group: str) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._lock = threading.Lock()
        self._consumers = ConsumerCache().__enter__()
        self._id: str | None = None
        self._positions: dict[int, int] = {}
        self._newest: dict[bytes, dict[int, int]] = {}
        self._read_at: float | None = None
        self._state = NO_TOPIC
        self.asked_at = time.monotonic()

    def state(self) -> SignalTopicState:
        """Return what the topic has, as of the last two seconds.

        Raises:
            SinkError: The topic cannot be read.
        """
        with self._lock:
            self.asked_at = now = time.monotonic()
            if self._read_at is None or now - self._read_at > FRESH_S:
                self._read_on()
                self._read_at = now
            return self._state

    def close(self) -> None:
        """Close the consumer."""
        self._consumers.__exit__()

    def _read_on(self) -> None:
        admin = make_admin(self._settings)
        partitions = range(partition_counts(admin, [self._topic]).get(self._topic, 0))
        current = topic_id(admin, self._topic) if partitions else None
        if current != self._id:
            # Created again: its offsets begin anew.
            self._id, self._positions, self._newest = current, {}, {}
        if partitions:
            bounds = end_offsets(admin, self._topic, partitions, stable=True)
            self._read({p: (max(first, self._positions.get(p, 0)), end) for p, (first, end) in bounds.items()})
        self._state = SignalTopicState(current, {key: dict(offsets) for key, offsets in self._newest.items()})

    def _read(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        records = read_between(
            self._settings,
            self._topic,
            ranges,
            timeout_s=_READ_TIMEOUT_S,
            group=self._group,
            consumer_cache=self._consumers,
            topic_id=self._id,
        )
        try:
            for record in records:
                self._positions[record.partition] = record.offset + 1
                if record.key and record.value:
                    self._newest.setdefault(record.key, {})[record.partition] = record.offset
        except HiddenByTransaction:
            return  # the rest is read the next time
        self._positions |= {p: max(start, end) for p, (start, end) in ranges.items()}


_watches: dict[tuple[Any, ...], SignalTopicWatch] = {}
_watches_lock = threading.Lock()
_told: set[str] = set()


def signal_topic_state(cfg: ConnectorConfig) -> SignalTopicState:
    """Return what the signal topic of a stream has; nothing where the channel is off or the topic cannot be read.

    A topic that cannot be read is a warning in the log, once for each reason: the stream goes on, and so does what
    watches it.

    Args:
        cfg: The connector's configuration.
    """
    if not cfg.accepts_signals_from("kafka"):
        return NO_TOPIC
    try:
        return _watch_of(cfg).state()
    except SinkError as error:
        text = f"The signal topic {cfg[F.SIGNAL_KAFKA_TOPIC]} is not watched now: {error.message()}"
        if text not in _told:
            _told.add(text)
            log.warning("%s", text)
        return NO_TOPIC


def waiting_signals(cfg: ConnectorConfig, ledger: LedgerState, state: SignalTopicState) -> frozenset[str]:
    """Return ids of signals in the topic that the stream has not read; of several in one partition, the newest.

    Args:
        cfg: The connector's configuration.
        ledger: The stream's ledger, read after the topic.
        state: What the topic has.
    """
    topic, newest = cfg[F.SIGNAL_KAFKA_TOPIC], state.newest.get(cfg.topic_prefix.encode(), {})
    stored = SignalOffsets.stored(ledger)
    if stored is None or stored.topic != topic:
        # Of a topic that is read from its end, what is there before the first read is never carried out.
        if str(cfg.signal_kafka_settings().get("auto.offset.reset", "")).lower() in LATEST_RESETS:
            return frozenset()
        offsets: Mapping[int, int] = {}
    else:
        offsets = stored.offsets if stored.topic_id in (None, state.topic_id) else {}
    return frozenset(f"{topic}/{p}-{offset}" for p, offset in newest.items() if offset >= offsets.get(p, 0))


def _watch_of(cfg: ConnectorConfig) -> SignalTopicWatch:
    settings, topic = cfg.signal_kafka_settings(), cfg[F.SIGNAL_KAFKA_TOPIC]
    key = (topic, *sorted(settings.items(), key=lambda setting: setting[0]))
    now = time.monotonic()
    with _watches_lock:
        for idle in [name for name, watch in _watches.items() if name != key and now - watch.asked_at > IDLE_S]:
            _watches.pop(idle).close()
        if key not in _watches:
            _watches[key] = SignalTopicWatch(settings, topic, cfg[F.SIGNAL_KAFKA_GROUP_ID])
        return _watches[key]
