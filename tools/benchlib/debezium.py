"""Incremental snapshots of a running stream by Debezium, with a signal from the signal table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import TopicPartition
from stacklib.connect import Connect
from stacklib.errors import StackError

from benchlib.debezium_worker import (
    FAST_FLUSH_S,
    NAME,
    RUN_TIMEOUT_S,
    START_TIMEOUT_S,
    STREAMING_MARK,
    USUAL_FLUSH_S,
    DebeziumWorker,
)
from benchlib.figures import Measured, count_written
from benchlib.process_tree import sample_tree, usage
from benchlib.source import DATABASE, TABLE, signal_table


def is_completion(note: bytes | None) -> bool:
    """Return whether a notification reports an incremental snapshot's end; the first snapshot has such ones, too."""
    return b'"aggregate_type":"Incremental Snapshot"' in (note or b"") and b'"type":"COMPLETED"' in (note or b"")


class DebeziumIncrementalSnapshot(DebeziumWorker):
    """Take an incremental snapshot with Debezium."""

    def measure(self) -> Measured:
        """Let it store its start position, stop it, send the signal, and measure from its restart to COMPLETED."""
        self._store_start_offset()
        data = f'{{"type":"incremental","data-collections":["{DATABASE}.{TABLE}"]}}'
        table = f"{DATABASE}.{signal_table('debezium')}"
        self.source.run(f"INSERT INTO {table} VALUES ('{self.prefix}', 'execute-snapshot', '{data}')")
        with self._connect("measured", USUAL_FLUSH_S) as connect:
            samples = sample_tree(connect.pid, self._completed(connect))
        load = os.getloadavg()[0]
        wrote = count_written(self._records(f"{self.prefix}.{DATABASE}.{TABLE}", self._offset_stored()))
        return Measured(NAME, wrote, usage(samples), load=load)

    def _store_start_offset(self) -> None:
        """Start it without a snapshot, and stop it when it has stored an offset in the stream."""
        with self._connect("placed", FAST_FLUSH_S) as connect:
            connect.wait(
                lambda: STREAMING_MARK in connect.log.read_text(errors="replace"), "Debezium to stream", START_TIMEOUT_S
            )
            self.source.run(f"UPDATE {DATABASE}.{TABLE} SET customer_id = customer_id + 1 WHERE id = 1")
            topic = f"{self.prefix}.{DATABASE}.{TABLE}"
            connect.wait(lambda: self.end(topic) > 0, "Debezium's first event", START_TIMEOUT_S)
            time.sleep(3 * FAST_FLUSH_S)
            connect.ask_to_end()
            sample_tree(connect.pid, lambda: connect.ended)
        (self.folder / "place").write_text(str(self.end(topic)))

    def _offset_stored(self) -> int:
        return int((self.folder / "place").read_text())

    def _connect(self, name: str, flush_s: float) -> Connect:
        return self.start(name, self.folder / "offsets", flush_s, self._signals())

    def _signals(self) -> Mapping[str, str]:
        return {
            "table.include.list": f"{DATABASE}.{TABLE}",
            "signal.data.collection": f"{DATABASE}.{signal_table('debezium')}",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": self._notification_topic,
        }

    @property
    def _notification_topic(self) -> str:
        return f"{self.prefix}-notes"

    def _completed(self, connect: Connect) -> Callable[[], bool]:
        """Return a function that asks for the end when the notification of the snapshot's end is there.

        It overtakes the rows, which have a topic of their own; the worker sends what it holds when it ends well.
        """
        consumer, limit = self.consumer(), time.monotonic() + RUN_TIMEOUT_S
        seen = done = False

        def over() -> bool:
            nonlocal seen, done
            if done:
                return connect.ended
            if (why := connect.trouble()) is not None or time.monotonic() > limit:
                raise StackError(
                    "measuring Debezium", why or f"not done within {RUN_TIMEOUT_S:.0f} s", f"see {connect.log}"
                )
            if not seen and self.end(self._notification_topic):
                seen = True
                consumer.assign([TopicPartition(self._notification_topic, 0, 0)])
            found = consumer.consume(1000, 0.01) if seen else []
            done = any(is_completion(m.value()) for m in found if m.error() is None)
            if done:
                consumer.close()
                connect.ask_to_end()
            return False

        return over

    def _records(self, topic: str, begin: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        end, consumer = self.end(topic), self.consumer()
        consumer.assign([TopicPartition(topic, 0, begin)])
        try:
            while begin < end:
                for message in consumer.consume(5000, 1.0):
                    if message.error() is None:
                        begin = (message.offset() or 0) + 1
                        yield message.key(), message.value()
        finally:
            consumer.close()
