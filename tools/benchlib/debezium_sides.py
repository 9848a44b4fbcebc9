"""The workloads by Debezium, from the start of its JVM to its normal end."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchlib.debezium import DebeziumIncrementalSnapshot
from benchlib.figures import invalid_reasons
from benchlib.ground import WorkloadRun
from benchlib.lag import LagReader
from benchlib.ours import RATE as CHANGES
from benchlib.run import Run
from benchlib.source import DATABASE, TABLE, changing_rows
from benchlib.stream_debezium import DebeziumStream
from benchlib.topics import delete_topics_and_wait


def stream(entry: WorkloadRun, number: int) -> DebeziumStream:
    """Return a stream with a folder and a name of its own.

    Args:
        entry: What is measured.
        number: Which run.
    """
    folder = entry.folder / str(number)
    folder.mkdir(parents=True)
    ground = entry.ground
    return DebeziumStream(ground.java, ground.source, ground.kafka, folder, entry.prefix(number), entry=entry)


class DebeziumDrain:
    """Drain rows that are there: each run begins at the same place.

    Args:
        entry: What is measured.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry, self._stream = entry, stream(entry, 0)

    def store_position(self) -> None:
        """Store an offset before the rows."""
        self._stream.store_position()

    def run(self, number: int) -> Run:
        """Drain all rows.

        Args:
            number: Which run.
        """
        return self._stream.read_all()


class DebeziumSnapshot:
    """Read rows by an initial snapshot.

    Args:
        entry: What is measured.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: a snapshot needs no place."""

    def run(self, number: int) -> Run:
        """Read all rows; Connect remembers that a snapshot was done, so each run has a stream of its own.

        Args:
            number: Which run.
        """
        return stream(self._entry, number).read_all()


class DebeziumIncremental:
    """Read a table by an incremental snapshot while it is being changed.

    Args:
        entry: What is measured.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run."""

    def run(self, number: int) -> Run:
        """Read the table.

        Args:
            number: Which run.

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
    """Follow a steady load.

    Args:
        entry: What is measured.
    """

    def __init__(self, entry: WorkloadRun) -> None:
        self._entry = entry

    def store_position(self) -> None:
        """Do nothing: it is found right before a run, so that no run has to read what an earlier one has."""

    def run(self, number: int) -> Run:
        """Drain while the load runs, and return the costs and the lag of a reader.

        Args:
            number: Which run.
        """
        entry, found, workload = self._entry, stream(self._entry, number), self._entry.workload
        found.store_position()
        with ExitStack() as both:
            both.enter_context(changing_rows(entry.ground.source, workload.rows, workload.rate, workload.a_transaction))
            lag = both.enter_context(LagReader(entry.ground.kafka, f"{found.prefix}.{DATABASE}.{TABLE}"))
            end = time.monotonic() + workload.seconds
            measured = found.until(lambda: time.monotonic() >= end)
        return found.finish_run(measured, lag.seconds())
