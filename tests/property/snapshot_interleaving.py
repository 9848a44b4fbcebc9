"""Walks through interrupted snapshots: chunks, the hand-over, windows, and what happens between any two steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from snapshot_oracle import TableOracle
from snapshot_source import CAPTURED, TableSource
from stream_interleaving import Simulation
from stream_oracle import Entry
from stream_stage import ModelRangeWriter, ModelWriter
from stream_world import FIRST_PARTITIONS, PREFIX, Process, World

from airflow_provider_mysql_cdc.cdc.errors import CdcError

TOPICS = [f"{PREFIX}.{table}" for table in CAPTURED]


class TableWorld(World):
    """A world with tables whose names and structures change."""

    topics = frozenset(TOPICS)
    source: TableSource
    oracle: TableOracle  # type: ignore[assignment]

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        super().__init__()
        for topic in TOPICS:
            self.create_topic(topic, FIRST_PARTITIONS)

    def cast(self) -> tuple[Any, Any]:
        """Return the source, and who judges."""
        source = TableSource(self.pause, self._rng)
        return source, TableOracle(source, PREFIX)


class SnapshotSimulation(Simulation):
    """A snapshot that is interrupted, and what may happen then."""

    world: TableWorld

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.world = ModelRangeWriter.world = ModelWriter.world = TableWorld(rng)
        self.serial, self.last_error = 0, ""
        self.runs: list[Process] = []
        self.tasks: list[Process] = []

    def start_snapshot(self, n: int) -> None:
        """Start the snapshot, or what goes on with it."""
        self._start(n, self._first_snapshot)

    def change_rows(self, n: int) -> None:
        """Change some rows."""
        for _ in range(n % 4 + 1):
            self.world.source.any_row(self.rng)

    def change_tables(self, n: int) -> None:
        """Change a table as a whole, mostly with rows before and after it."""
        self.change_rows(n)
        self.world.source.any_statement(self.rng)
        self.change_rows(n // 4)

    def end_windows_after(self, n: int) -> None:
        """Let the time of windows be over after some key ranges."""
        self.world.ranges_per_window = (1, 2, 3, 99)[n % 4]

    def go_on(self, n: int) -> None:
        """Start what waits, and let everything go on for some steps; between them the source may change."""
        self.start_tasks()
        for _ in range(n % 12 + 1):
            self.step_all(n // 12 % 9 + 1)
            chance = self.rng.random()
            if chance < 0.04:
                self.world.source.any_statement(self.rng)
            elif chance < 0.3:
                self.world.source.any_row(self.rng)

    def start_tasks(self) -> None:
        """Start every task that waits."""
        for work in [w for run in self.runs if run.runner for w in run.runner.work if w.waits and not w.begun]:
            self.tasks.append(Process(self.world, work.run))

    def interrupt(self, n: int) -> None:
        """Let a snapshot come to some place, and end every process."""
        self.start_snapshot(n)
        self.step_run(-1, 60)
        for _ in range(self.rng.randrange(1, 4)):
            self.start_task(self.rng.randrange(9))
            self.step_task(-1, self.rng.randrange(5, 36))
            if self.rng.random() < 0.3:
                self.change_rows(n)
        if self.rng.random() < 0.9:
            self.stop_all()

    def finish(self) -> None:
        """Bring the stream to the end of the binlog."""
        self.stop_all()
        self.expire_transactions()
        source = self.world.source
        if not any(table in CAPTURED for table in source.now):  # no snapshot is possible
            source.create(CAPTURED[0])
        self.world.ranges_per_window = 99
        for _ in range(8):
            self._set_back()
            for body in (self._first_snapshot, self._drain):
                try:
                    self.undisturbed(body)
                except CdcError as error:  # the other job's turn, or a matter of trying again
                    self.last_error = error.message()
            stored = self.world.store.load()
            at = stored.committed if stored is not None and stored.pending is None else None
            if at is not None and at.pos == self.world.source.address.binlog.end():
                self.read_rest()
                self.world.oracle.finished(at)
                self._consume()
                return
        raise AssertionError(f"the stream never came to its end: {self.last_error}")

    def _consume(self) -> None:
        """Check that a consumer of each topic, from its first record on, comes to what was judged.

        A changed configuration may have moved a key to another partition; there its order begins anew.
        """
        for topic, table in zip(TOPICS, CAPTURED, strict=True):
            states: dict[int, tuple[bool, int]] = {}
            for r in self.world.kafka.committed(topic, wait=True):
                entry = Entry.of(topic, "", r.partition, r.key, r.value)
                if entry.n >= states.get(entry.key, (False, -2))[1]:
                    states[entry.key] = entry.kind != "d", entry.n
            assert states == self.world.oracle.seen[table], f"{topic}: {states}, not {self.world.oracle.seen[table]}"


def random_walk(seed: int, steps: int = 30) -> SnapshotSimulation:
    """Let chance choose what happens next."""
    rng = random.Random(seed)
    sim = SnapshotSimulation(rng)
    if rng.random() < 0.9:
        sim.interrupt(rng.randrange(99))
    ordinary: list[Callable[[int], object]] = [
        lambda n: (sim.start_snapshot(n), sim.step_run(-1, n % 80)),
        lambda n: (sim.start_drain(n), sim.step_run(-1, n % 60)),
        lambda n: sim.step_run(n, n % 9 + 1),
        lambda n: (sim.start_task(n), sim.step_task(-1, n % 14)),
        lambda n: sim.step_task(n, n % 9 + 1),
        sim.go_on,
        sim.go_on,
        sim.go_on,
        sim.finish_tasks,
        sim.change_rows,
        sim.change_rows,
        sim.change_tables,
        sim.end_windows_after,
    ]
    faults: list[Callable[[int], object]] = [
        sim.kill_run,
        sim.kill_run,
        sim.kill_task,
        sim.expire_transaction,
        sim.lose_stored_offset,
        sim.change_configuration,
    ]
    for _ in range(steps):
        rng.choice(ordinary if rng.random() < 0.88 else faults)(rng.randrange(10**6))
    sim.finish()
    return sim
