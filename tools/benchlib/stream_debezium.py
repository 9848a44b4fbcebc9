"""One stream by Debezium in Kafka Connect standalone, from its start to its normal end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from stacklib.connect import Connect
from stacklib.errors import StackError

from benchlib.debezium_worker import (
    FAST_FLUSH_S,
    RUN_TIMEOUT_S,
    START_TIMEOUT_S,
    STREAMING_MARK,
    USUAL_FLUSH_S,
    DebeziumWorker,
)
from benchlib.ground import WorkloadRun
from benchlib.process_tree import Usage, sample_tree, usage
from benchlib.run import Run
from benchlib.servers import delete_topics_and_wait
from benchlib.source import DATABASE

_OFFSETS = "offsets"
_POLL_S, _POLL_PER_TABLE_S = 0.5, 0.001
"""Seconds between two looks at its topics: fewer looks where there are many, since the broker shares the processors."""


@dataclass
class DebeziumStream(DebeziumWorker):
    """Run Debezium's MySQL connector over one workload."""

    entry: WorkloadRun = field(kw_only=True)
    _runs: int = 0

    def store_position(self) -> None:
        """Start it on empty tables, and stop it when it has stored an offset before the load."""
        with self._connect(self.folder / _OFFSETS, "place", FAST_FLUSH_S) as connect:
            connect.wait(
                lambda: STREAMING_MARK in connect.log.read_text(errors="replace"), "Debezium to stream", START_TIMEOUT_S
            )
            # A statement that it hears of, so that it stores an offset.
            self.source.run(f"CREATE TABLE {DATABASE}.place (id INT)", f"DROP TABLE {DATABASE}.place")
            connect.wait((self.folder / _OFFSETS).exists, "Debezium's offset", START_TIMEOUT_S)
            time.sleep(3 * FAST_FLUSH_S)
            connect.ask_to_end()
            sample_tree(connect.pid, lambda: connect.ended)

    def read_all(self) -> Run:
        """Run it until it has written all rows of its workload, and return what it used."""
        wanted = self.entry.workload.records
        return self.finish_run(self.until(lambda: self.records() >= wanted))

    def until(self, enough: Callable[[], bool]) -> Usage:
        """Run it from its stored offset until it has done enough, and end it normally.

        Args:
            enough: Says whether it has; asked each half second.

        Raises:
            StackError: It ends before that.
        """
        self._runs += 1
        offsets = self.folder / f"{_OFFSETS}-{self._runs}"
        if (self.folder / _OFFSETS).exists():
            shutil.copy(self.folder / _OFFSETS, offsets)
        with self._connect(offsets, f"run-{self._runs}") as connect:
            return usage(sample_tree(connect.pid, self._stop_condition(connect, enough)))

    def finish_run(self, used: Usage, lag_s: Mapping[str, float] | None = None) -> Run:
        """Return a run, and delete the topics, so that the disk holds the rows of one run at a time."""
        load, records = os.getloadavg()[0], self.records()
        delete_topics_and_wait(self.kafka, self._topics(AdminClient({"bootstrap.servers": self.kafka})))
        name, side = self.entry.workload.name, self.entry.side.name
        return Run(name, side, records, used, load=load, lag_s=lag_s or {})

    def records(self) -> int:
        """Return how many records the tables' topics have."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        requests = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in self._topics(admin)}
        return sum(found.result().offset for found in admin.list_offsets(requests).values()) if requests else 0

    def _topics(self, admin: AdminClient) -> list[str]:
        begins = f"{self.prefix}.{DATABASE}."
        return [topic for topic in admin.list_topics(timeout=30).topics if topic.startswith(begins)]

    def _connect(self, offsets: Path, name: str, flush_s: float = USUAL_FLUSH_S) -> Connect:
        # Each snapshot needs a name of its own: Connect remembers that the one before was done.
        workload = self.entry.workload
        mode = "initial_only" if workload.snapshot else "no_data"
        connector = {"table.include.list": workload.included, "snapshot.mode": mode}
        return self.start(name, offsets, flush_s, connector, schemas=bool(workload.form.schemas))

    def _stop_condition(self, connect: Connect, enough: Callable[[], bool]) -> Callable[[], bool]:
        limit, last_status, last_check = time.monotonic() + RUN_TIMEOUT_S, False, 0.0
        every = _POLL_S + self.entry.workload.tables * _POLL_PER_TABLE_S

        def over() -> bool:
            nonlocal last_status, last_check
            if last_status:
                return connect.ended
            now = time.monotonic()
            if now - last_check > every:
                last_check = now
                if now > limit or connect.trouble() is not None:
                    why = connect.trouble() or f"not done within {RUN_TIMEOUT_S:.0f} s"
                    raise StackError("measuring Debezium", why, f"see {connect.log}")
                if enough():
                    last_status = True
                    connect.ask_to_end()
            return False

        return over
