"""Consumers that a process keeps for the next time that the same topic is read.

The ledger is read eight times by a drain; each consumer made for it opened three connections and asked for a group's
coordinator that nobody needs. A kept consumer has no partition assigned meanwhile, so it fetches nothing; what it may
still hold of an earlier assignment librdkafka drops by itself (rd_kafka_op_version_outdated).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError

KEPT_S = 60.0
"""Seconds that a consumer is kept; what it remembers of the cluster gets no older."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Hold a consumer and the errors that concern the whole client.

    Args:
        consumer: The consumer.
        errors: What its error callback was told.
        until: When it is given up, by the clock of its ``Consumers``.
    """

    consumer: Consumer
    errors: list[KafkaError]
    until: float


@dataclass(slots=True)
class Consumers:
    """Lend consumers, each to one at a time.

    Args:
        clock: Seconds that never go back.
    """

    clock: Callable[[], float] = time.monotonic
    _idle: dict[Hashable, list[Reader]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def lend(self, key: Hashable | None, make: Callable[[Callable[[KafkaError], None]], Consumer]) -> Iterator[Reader]:
        """Lend a consumer; it is kept when all went well and closed otherwise.

        Args:
            key: What it is for: settings, group, isolation, and the id of the topic that it has learnt about; None
            closes it in any case.
            make: Makes one with an error callback.
        """
        reader = None if key is None else self._take(key)
        if reader is None:
            errors: list[KafkaError] = []
            reader = Reader(make(errors.append), errors, self.clock() + KEPT_S)
        whole = False
        try:
            yield reader
            whole = key is not None and not reader.errors
        finally:
            if whole:
                reader.consumer.unassign()
                with self._lock:
                    self._idle.setdefault(key, []).append(reader)
            else:
                reader.consumer.close()

    def _take(self, key: Hashable) -> Reader | None:
        now = self.clock()
        with self._lock:
            old = [reader for readers in self._idle.values() for reader in readers if now >= reader.until]
            self._idle = {k: kept for k, v in self._idle.items() if (kept := [r for r in v if now < r.until])}
            reader = self._idle[key].pop() if self._idle.get(key) else None
        for gone in old:
            gone.consumer.close()
        return reader

    def clear(self) -> None:
        """Close all that nobody reads with."""
        with self._lock:
            readers = [reader for readers in self._idle.values() for reader in readers]
            self._idle = {}
        for reader in readers:
            reader.consumer.close()
