"""A small world for the protocol's model: a source of keys, snapshots in chunks, drains behind them, and faults.

Planning, taking over, joining, ledger, store and reconciliation are the real code; the source, the reading of rows and
Kafka itself are stand-ins. Every attempt of a driver and of a task is an actor of its own that can be stopped between
any two steps, and go on at any later time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    CHUNK_PREFIX,
    PLAN_KEY,
    SNAPSHOT_KEY,
    VIEW_KEY,
    WRITERS_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import MemoryOffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import done_record, filtering_chunk_records

LEDGER, TOPIC, PARTITIONS, KEYS, CHUNKS = "ledger.p", "p.d.t", 3, 6, 3
Steps = Iterator[str]


def offset(number: int) -> BinlogOffset:
    """Return the place behind the first ``number`` events."""
    return BinlogOffset("binlog.000001", number, None, "server")


def key_of(event: int) -> int:
    """Return the key that an event changes."""
    return event * 5 % 7 % KEYS


def chunk_of(key: int) -> int:
    """Return the chunk that holds a key."""
    return key * CHUNKS // KEYS


@dataclass
class Protections:
    """What keeps the promises; a test takes one away."""

    attempt_in_plan: bool = True
    fence_at_begin: bool = True
    compare_after_taking_over: bool = True
    done_chunks_after_begin: bool = True
    chunk_record_with_its_rows: bool = True
    later_views_filter: bool = True
    drain_from_lowest_view: bool = True
    pins_compared: bool = True


@dataclass
class World:
    """Everything that lives longer than a run.

    Args:
        protections: What is in force.
        events: Events in the source's binlog.
        salt: A setting that decides which partition a key goes to.
    """

    protections: Protections
    events: int
    salt: int = 0
    kafka: MemoryKafka = field(default_factory=MemoryKafka)
    store: MemoryOffsetStore = field(default_factory=MemoryOffsetStore)

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger(self.kafka, LEDGER, "p")

    def last_change(self, key: int, before: int) -> int:
        """Return the last event of a key before a place, -1 for the row as it was first."""
        return max((event for event in range(before) if key_of(event) == key), default=-1)

    def visible(self) -> dict[int, list[list[tuple[str, int]]]]:
        """Return what consumers see of each key, partition by partition.

        An entry is ``("r", last change in the row)`` or ``("c", event)``.
        """
        seen: dict[int, list[list[tuple[str, int]]]] = {key: [[] for _ in range(PARTITIONS)] for key in range(KEYS)}
        for record in self.kafka.committed(TOPIC):
            assert record.key is not None and record.value is not None
            kind, _, number = record.value.decode().partition(" ")
            seen[int(record.key)][record.partition].append((kind, int(number)))
        return seen


@dataclass
class Job:
    """What a driver shares with its tasks: the chunks that nobody has yet."""

    plan: BatchPlan
    view: int = 0
    waiting: list[int] = field(default_factory=list)


@dataclass
class Task:
    """One attempt of one task: of a snapshot or of a drain."""

    world: World
    job: Job
    index: int
    salt: int
    done: bool = False

    def steps(self) -> Steps:
        """Do the work, a step at a time."""
        world, plan = self.world, self.job.plan
        sink = MemoryWriter(world.kafka, transactional_id("p", self.index))
        world.ledger.peek().require_plan(plan)
        yield "compared"
        sink.init()
        yield "taken over"
        ledger = world.ledger.read() or LedgerState()
        if world.protections.compare_after_taking_over:
            ledger.require_plan(plan)
        yield "joined"
        yield from self._chunks(sink) if plan.kind == "snapshot" else self._events(sink, ledger)
        self.done = True

    def _put(self, sink: MemoryWriter, key: int, value: str) -> None:
        sink.produce(TOPIC, str(key).encode(), value.encode(), (key + self.salt) % PARTITIONS)

    def _chunks(self, sink: MemoryWriter) -> Steps:
        world, job = self.world, self.job
        while job.waiting:
            chunk = job.waiting.pop(0)
            for key in (k for k in range(KEYS) if chunk_of(k) == chunk):
                self._put(sink, key, f"r {world.last_change(key, job.view)}")
                yield "row"
            if not world.protections.chunk_record_with_its_rows:
                sink.commit()
                yield "rows without their record"
            record = {
                "epoch": job.plan.epoch,
                "chunk": {"number": chunk},
                "offset": offset(job.view).to_json(),
                "writer": self.index,
                "rows": KEYS // CHUNKS,
            }
            sink.commit([SideRecord(LEDGER, f"{CHUNK_PREFIX}d.t/{chunk}".encode(), encode(record))])
            yield "chunk"

    def _events(self, sink: MemoryWriter, ledger: LedgerState) -> Steps:
        plan = self.job.plan
        marker = ledger.marker(self.index, plan.epoch)
        if marker is not None and marker.done:
            return
        at = marker.reached.offset.pos if marker else plan.start.pos
        filters = {int(f["chunk"]["number"]): int(f["offset"]["pos"]) for f in filtering_chunk_records(ledger)}
        since = 0
        while at < plan.end.pos:
            key, event, at = key_of(at), at, at + 1
            if (key + self.salt) % PARTITIONS % plan.writers != self.index:
                continue
            if self.world.protections.later_views_filter and event < filters.get(chunk_of(key), 0):
                continue
            self._put(sink, key, f"c {event}")
            since += 1
            yield "event"
            if since == 2:
                since = 0
                yield from self._mark(sink, at, False)
        yield from self._mark(sink, at, True)

    def _mark(self, sink: MemoryWriter, at: int, done: bool) -> Steps:
        plan = self.job.plan
        sink.commit(
            [Marker(plan.epoch, self.index, plan.start, plan.end, ResumePosition(offset(at)), done).record(LEDGER)]
        )
        yield "marker"


@dataclass
class Run:
    """One attempt of a run: what operator and driver do, a step at a time."""

    world: World
    owner: str
    tasks_wanted: int
    length: int
    tasks: list[Task] = field(default_factory=list)

    def steps(self) -> Steps:
        """Reconcile, plan, take over, work, close the books, settle."""
        world = self.world
        salt = world.salt
        world.ledger.ensure()
        state = self._synchronise()
        yield "reconciled"
        plan = state.pending or self._plan(state, salt)
        if plan is None:
            return
        plan = replace(plan, owner=self.owner)
        state = world.store.save(state.with_plan(plan, world.kafka.topic_ids[LEDGER]), state)
        yield "stored"
        before = world.ledger.read() or LedgerState()
        planner = world.ledger.planner()
        yield "planner"
        ledger, plan = self._begin(plan, planner, salt)
        yield "begun"
        if not ledger.complete():
            yield from self._work(plan, ledger if world.protections.done_chunks_after_begin else before, planner, salt)
        self._synchronise()
        yield "settled"

    def _synchronise(self) -> StoredState:
        world = self.world
        stored = world.store.load()
        result = reconcile(stored, world.ledger.read(fence_after_s=1))
        return world.store.save(result.state, stored) if result.changed else result.state

    def _plan(self, state: StoredState, salt: int) -> BatchPlan | None:
        pins = {"salt": str(salt)}
        if state.committed is None:
            here = offset(self.world.events)
            return BatchPlan(state.epoch + 1, "snapshot", here, here, self.tasks_wanted, owner=self.owner, pins=pins)
        end = min(self.world.events, state.committed.pos + self.length)
        if end <= state.committed.pos:
            return None
        return BatchPlan(
            state.epoch + 1, "drain", state.committed, offset(end), self.tasks_wanted, owner=self.owner, pins=pins
        )

    def _begin(self, plan: BatchPlan, planner: MemoryWriter, salt: int) -> tuple[LedgerState, BatchPlan]:
        world, p = self.world, self.world.protections
        fence = world.ledger.fence
        if not p.fence_at_begin:
            world.ledger.fence = lambda writers: None  # type: ignore[method-assign, assignment]
        try:
            ledger = world.ledger.begin(plan, planner)
        finally:
            world.ledger.fence = fence  # type: ignore[method-assign]
        plan = ledger.plan_in_force()
        if not p.attempt_in_plan:
            plan = replace(plan, attempt="")
            planner.commit([SideRecord(LEDGER, PLAN_KEY.encode(), encode(plan.to_json()))])
        now = {"salt": str(salt)}
        if p.pins_compared and dict(plan.pins) != now and ledger.has_commits() and not ledger.complete():
            raise ConfigError("salt was changed inside a batch")
        if dict(plan.pins) != now and not ledger.has_commits():
            plan = replace(plan, pins=now)
            planner.commit([SideRecord(LEDGER, PLAN_KEY.encode(), encode(plan.to_json()))])
        return ledger, plan

    def _work(self, plan: BatchPlan, ledger: LedgerState, planner: MemoryWriter, salt: int) -> Steps:
        job = Job(plan)
        count = min(self.tasks_wanted, plan.writers) if plan.kind == "snapshot" else plan.writers
        if plan.kind == "snapshot":
            job.waiting = [c for c in range(CHUNKS) if c not in self._done(ledger, plan)]
            planner.commit(
                [SideRecord(LEDGER, WRITERS_KEY.encode(), encode({"count": max(count, ledger.writer_count)}))]
            )
            yield "noted"
            job.view = self.world.events
            if ledger.other_records.get(VIEW_KEY, {}).get("epoch") != plan.epoch:
                view = {"epoch": plan.epoch, "offset": offset(job.view).to_json()}
                planner.commit([SideRecord(LEDGER, VIEW_KEY.encode(), encode(view))])
            yield "view"
        self.tasks = [Task(self.world, job, index, salt) for index in range(count)]
        yield "started"
        while not all(task.done for task in self.tasks):
            yield "waiting"
        if plan.kind == "snapshot":
            self._close_books(plan, planner)
            yield "closed"

    @staticmethod
    def _done(ledger: LedgerState, plan: BatchPlan) -> dict[int, dict[str, Any]]:
        return {int(k.rpartition("/")[2]): r for k, r in ledger.chunks.items() if r["epoch"] == plan.epoch}

    def _close_books(self, plan: BatchPlan, planner: MemoryWriter) -> None:
        ledger = self.world.ledger.read() or LedgerState()
        done, view = self._done(ledger, plan), ledger.other_records.get(VIEW_KEY)
        if len(done) < CHUNKS or view is None:
            raise StateError("chunks are missing", retriable=True)
        places = [int(r["offset"]["pos"]) for r in done.values()] + [int(view["offset"]["pos"])]
        lowest = min(places) if self.world.protections.drain_from_lowest_view else max(places)
        planner.commit([SideRecord(LEDGER, SNAPSHOT_KEY.encode(), encode(done_record(plan.epoch, offset(lowest))))])


class Simulation:
    """The world, everything that runs in it, what may happen to it, and what must hold after each step.

    Actors are chosen by a number, modulo how many there are.
    """

    def __init__(self, protections: Protections, events: int) -> None:
        self.world = World(protections, events)
        self.runs: list[tuple[Run, Steps]] = []
        self.tasks: list[tuple[Task, Steps]] = []
        self.serial = 0

    def source_goes_on(self, n: int) -> None:
        """Write more events."""
        self.world.events = min(40, self.world.events + n % 6 + 1)

    def start_run(self, n: int) -> None:
        """Start a run, or a second attempt of the last one: it has the same owner."""
        if len(self.runs) < 3:
            self.serial += n % 2
            run = Run(self.world, f"run-{self.serial}", n % 3 + 1, n % 11 + 1)
            self.runs.append((run, run.steps()))

    def step_run(self, n: int, steps: int) -> None:
        """Let a run go on."""
        self._step(self.runs, n, steps)

    def start_task(self, n: int) -> None:
        """Start a task of a run; Spark may start it again, or twice at once."""
        waiting = [task for run, _ in self.runs for task in run.tasks if not task.done]
        if waiting and len(self.tasks) < 8:
            task = waiting[n % len(waiting)]
            self.tasks.append((task, task.steps()))

    def step_task(self, n: int, steps: int) -> None:
        """Let a task go on."""
        self._step(self.tasks, n, steps)

    def finish_tasks(self, _: int) -> None:
        """Let all tasks of all runs come to their end, each in an attempt of its own."""
        for task in [task for run, _ in self.runs for task in run.tasks if not task.done]:
            self.tasks.append((task, task.steps()))
            self._step(self.tasks, -1, 200)

    def kill_run(self, n: int) -> None:
        """End a run; its tasks live on."""
        if self.runs:
            del self.runs[n % len(self.runs)]

    def kill_task(self, n: int) -> None:
        """End a task; what it wrote stays open."""
        if self.tasks:
            del self.tasks[n % len(self.tasks)]

    def expire_transaction(self, n: int) -> None:
        """Let a transaction time out."""
        self.world.kafka.expire(("p.0", "p.1", "p.2", "p.plan")[n % 4])

    def lose_stored_offset(self, _: int) -> None:
        """Delete Airflow's copy."""
        self.world.store.clear()

    def change_configuration(self, n: int) -> None:
        """Change what decides about partitions, or change it back."""
        self.world.salt = n % 2

    def check(self) -> None:
        """Check what must hold at any time: one row of a view, and each event after it at most once, in order.

        A configuration that changes between batches may move a key to another partition; there order starts again, and
        an open transaction may hide one partition and not the other.
        """
        for key, partitions in self.world.visible().items():
            entries = [entry for part in partitions for entry in part]
            assert len(entries) == len(set(entries)), f"key {key} has something twice: {partitions}"
            assert all(part == sorted(part, key=lambda e: e[1]) for part in partitions), f"key {key}: {partitions}"
            rows = [number for kind, number in entries if kind == "r"]
            assert len(rows) <= 1, f"key {key} was read twice: {partitions}"
            early = [entry for entry in entries if rows and entry[0] == "c" and entry[1] <= rows[0]]
            assert not early, f"key {key}: its row of the snapshot holds {early} already"

    def finish(self) -> None:
        """Let undisturbed runs follow, and check that each key has its row and every later event."""
        for producer in list(self.world.kafka.producers):
            self.world.kafka.expire(producer)
        for number in range(60):
            plan = (self.world.ledger.read() or LedgerState()).plan if LEDGER in self.world.kafka.topic_ids else None
            if plan is not None and plan.pins:
                self.world.salt = int(plan.pins["salt"])
            run = Run(self.world, f"last-{number}", 2, 40)
            for step in run.steps():
                if step == "started":
                    for task in run.tasks:
                        list(task.steps())
            stored = self.world.store.load()
            if stored is not None and stored.pending is None and stored.committed == offset(self.world.events):
                break
        else:
            raise AssertionError("the stream never came to its end")
        self.check()
        for key, partitions in self.world.visible().items():
            entries = [entry for part in partitions for entry in part]
            rows = [number for kind, number in entries if kind == "r"]
            assert len(rows) == 1, f"key {key} has {len(rows)} rows of the snapshot"
            later = sorted(number for kind, number in entries if kind == "c")
            expected = [e for e in range(rows[0] + 1, self.world.events) if key_of(e) == key]
            assert later == expected, f"key {key}: row {rows[0]}, then {later}, expected {expected}"

    @staticmethod
    def _step(actors: list[tuple[Any, Steps]], n: int, steps: int) -> None:
        if not actors:
            return
        actor = actors[n % len(actors)]
        try:
            for _ in range(steps):
                next(actor[1])
        except (StopIteration, CdcError):  # every failure is loud and named; a retry is another actor
            actors.remove(actor)
