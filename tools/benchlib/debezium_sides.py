"""The workloads by Debezium, from the start of its JVM to its normal end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

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
from benchlib.ground import WorkloadRun
from benchlib.lag import LagReader
from benchlib.ours import RATE as CHANGES
from benchlib.process_tree import sample_tree, usage
from benchlib.run import Measured, Run, count_written, invalid_reasons
from benchlib.servers import delete_topics_and_wait
from benchlib.source import DATABASE, TABLE, changing_rows, signal_table
from benchlib.stream_debezium import DebeziumStream


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


def stream(entry: WorkloadRun, number: int) -> DebeziumStream:
    """Return a stream with a folder and a name of its own."""
    folder = entry.folder / str(number)
    folder.mkdir(parents=True)
    ground = entry.ground
    return DebeziumStream(ground.java, ground.source, ground.kafka, folder, entry.prefix(number), entry=entry)


class DebeziumDrain:
    """Drain rows that are there: each run begins at the same place."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry, self._stream = entry, stream(entry, 0)

    def store_position(self) -> None:
        """Store an offset before the rows."""
        self._stream.store_position()

    def run(self, number: int) -> Run:
        """Drain all rows."""
        return self._stream.read_all()


class DebeziumSnapshot:
    """Read rows by an initial snapshot."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: a snapshot needs no place."""

    def run(self, number: int) -> Run:
        """Read all rows; Connect remembers that a snapshot was done, so each run has a stream of its own."""
        return stream(self._entry, number).read_all()


class DebeziumIncremental:
    """Read a table by an incremental snapshot while it is being changed."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run."""

    def run(self, number: int) -> Run:
        """Read the table.

        Raises:
            RuntimeError: Rows are missing.
        """
        entry, ground, workload = self._entry, self._entry.ground, self._entry.workload
        folder, prefix = entry.folder / str(number), entry.prefix(number)
        folder.mkdir(parents=True)
        with changing_rows(ground.source, workload.rows, CHANGES):
            measured = DebeziumIncrementalSnapshot(ground.java, ground.source, ground.kafka, folder, prefix).measure()
        delete_topics_and_wait(ground.kafka, [f"{prefix}.{DATABASE}.{TABLE}"])
        if wrong := invalid_reasons(measured, workload.rows, CHANGES):
            raise RuntimeError(f"{workload.name}: {'; '.join(wrong)}")
        return Run(workload.name, entry.side.name, measured.wrote.reads, measured.used, load=measured.load)


class DebeziumSteadyLoad:
    """Follow a steady load."""

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run, so that no run has to read what an earlier one has."""

    def run(self, number: int) -> Run:
        """Drain while the load runs, and return the costs and the lag of a reader."""
        entry, found, workload = self._entry, stream(self._entry, number), self._entry.workload
        found.store_position()
        with ExitStack() as both:
            both.enter_context(workload.steady_load(entry.ground.source))
            lag = both.enter_context(LagReader(entry.ground.kafka, f"{found.prefix}.{DATABASE}.{workload.names[0]}"))
            end = time.monotonic() + workload.seconds
            measured = found.until(lambda: time.monotonic() >= end)
        return found.finish_run(measured, lag.seconds())
