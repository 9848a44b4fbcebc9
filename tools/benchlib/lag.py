"""The lag of a reader of committed records behind the commits in MySQL."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_IDLE_TIMEOUT_S = 2.0
SHARES = {"p50": 0.5, "p95": 0.95, "max": 1.0}


def lags(arrivals: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the reader's lag in seconds at shares of all events; empty without events.

    Events that were committed before the first one arrived do not count: they waited for the start.

    Args:
        arrivals: When each event arrived and when it was committed, in seconds since 1970, in the order of arrival.
    """
    if not arrivals:
        return {}
    first = arrivals[0][0]
    counted = sorted(arrived - committed for arrived, committed in arrivals if committed >= first)
    waits = counted or sorted(arrived - committed for arrived, committed in arrivals)
    return {name: round(waits[min(len(waits) - 1, int(share * len(waits)))], 3) for name, share in SHARES.items()}


def committed_at(value: bytes | None) -> float | None:
    """Return when an update was committed in seconds since 1970; None for other records."""
    match = json.loads(value) if value else None
    return match["source"]["ts_us"] / 1e6 if match and match["op"] == "u" else None


class LagReader:
    """Read a topic in a process of its own, whose CPU time is not counted.

    Args:
        topic: The topic; it may be made later.
    """

    def __init__(self, kafka: str, topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._ending, self._found = context.Event(), context.SimpleQueue()
        arguments = (kafka, topic, self._ending, self._found)
        self._process = context.Process(target=_read, args=arguments, daemon=True)
        self._lags: dict[str, float] = {}

    def __enter__(self) -> LagReader:
        self._process.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._ending.set()
        if kind is None:
            self._lags = self._found.get()
        self._process.join(30)

    def seconds(self) -> dict[str, float]:
        """Return the reader's lag (``lags``) after it has ended."""
        return self._lags


def _read(kafka: str, topic: str, ending: Any, results: Any) -> None:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"{topic}-lag", "enable.auto.commit": False})
    arrivals: list[tuple[float, float]] = []
    try:
        arrivals += _events(consumer, topic, ending)
    finally:
        # The waiting process gets an answer also if reading has failed.
        results.put(lags(arrivals))
        consumer.close()


def _events(consumer: Any, topic: str, ending: Any) -> Iterator[tuple[float, float]]:
    while topic not in consumer.list_topics(timeout=10).topics:
        if ending.is_set():
            return
        time.sleep(0.2)
    consumer.assign([TopicPartition(topic, 0, 0)])
    last = time.monotonic()
    while not ending.is_set() or time.monotonic() - last < _IDLE_TIMEOUT_S:
        # One at a time: a call for many waits for its whole timeout where there are fewer.
        message = consumer.poll(0.1)
        if message is None:
            continue
        last = time.monotonic()
        if message.error() is None and (at := committed_at(message.value())) is not None:
            yield time.time(), at
