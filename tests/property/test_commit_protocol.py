"""The commit protocol as a state machine over the in-memory twins (design, section 4; anchors D2, D5).

The machine interleaves the steps of up to three runs and of all writers they ever started, dead or alive: planning,
fencing, producing, committing, settling; it kills, freezes, revives, lets transactions expire, loses commit replies,
loses the stored offset or brings back an old copy of it. Planning, take-over, reconciliation, ledger and store are the
real code; only the reading of the binlog and Kafka itself are stand-ins.

Promises held after every single step:

* each event is visible at most once, and in order within its Kafka partition;
* every event before the stored offset is visible;
* the stored offset never moves back, unless somebody restored an old copy or it was lost;

and whatever happened, one undisturbed run afterwards brings every event to be visible exactly once, in order.

Each protection is also taken away, one at a time, and then the machine must find a violation (D5.1).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from first_seeds import WALKS, breaks_a_promise
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger
from memo import read_once
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.errors import CdcError, OffsetConflictError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id

TOPICS = {"p.d.a": 2, "p.d.b": 1}
PLACES = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
LEDGER = "ledger.p"


def offset(number: int) -> BinlogOffset:
    return BinlogOffset("binlog.000001", number, None, "server")


def place_of(event: int) -> tuple[str, int]:
    return PLACES[event * 7 % 5 % len(PLACES)]


@dataclass
class Protections:
    """What keeps the promises; a test takes one away."""

    fence_own_id: bool = True
    check_plan: bool = True
    resume_from_marker: bool = True
    marker_in_same_transaction: bool = True
    fence_after_plan: bool = True
    planner_compares: bool = True
    settle_by_ledger: bool = True
    restore_from_ledger: bool = True


class UnfencedWriter(MemoryWriter):
    """A writer that takes over nothing: as if every attempt had a transactional id of its own."""

    serial = 0

    def __init__(self, kafka: MemoryKafka, transactional_id: str) -> None:
        UnfencedWriter.serial += 1
        super().__init__(kafka, f"{transactional_id}#{UnfencedWriter.serial}")


@dataclass
class World:
    protections: Protections
    kafka: MemoryKafka = field(default_factory=MemoryKafka)
    store: MemoryOffsetStore = field(default_factory=MemoryOffsetStore)
    events: int = 0

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger(self.kafka, LEDGER, "p")

    def visible(self) -> dict[tuple[str, int], list[int]]:
        seen: dict[tuple[str, int], list[int]] = {place: [] for place in PLACES}
        for topic in TOPICS:
            for record in self.kafka.committed(topic):
                assert record.value is not None
                seen[topic, record.partition].append(int(record.value))
        return seen


Steps = Iterator[str]


@dataclass
class Writer:
    """One attempt of one writer, a step at a time."""

    world: World
    plan: BatchPlan
    index: int
    chunk: int
    reply_lost: bool = False
    done: bool = False

    def steps(self) -> Steps:
        p, plan = self.world.protections, self.plan
        kind = MemoryWriter if p.fence_own_id else UnfencedWriter
        sink = kind(self.world.kafka, transactional_id("p", self.index))
        sink.init()
        yield "init"
        ledger = self.world.ledger.read() or LedgerState()
        yield "read"
        if p.check_plan:
            ledger.require_plan(plan)
        found = ledger.marker(self.index, plan.epoch)
        if found is not None and found.done:
            self.done = True
            return
        at = found.reached.offset.pos if found is not None and p.resume_from_marker else plan.start.pos
        since = 0
        while at < plan.end.pos:
            topic, partition = place_of(at)
            if plan.assigned_writer(topic, partition) == self.index:
                sink.produce(topic, None, str(at).encode(), partition)
                since += 1
                yield "produce"
            at += 1
            if since >= self.chunk:
                since = 0
                yield from self._commit(sink, at, False)
        yield from self._commit(sink, at, True)
        self.done = True

    def _commit(self, sink: MemoryWriter, at: int, done: bool) -> Steps:
        plan = self.plan
        reached = ResumePosition(offset(at))
        record = Marker(plan.epoch, self.index, plan.start, plan.end, reached, done).record(LEDGER)
        if self.world.protections.marker_in_same_transaction:
            sink.produce(*record[:3], 0)
            yield "marker"
            sink.commit()
        else:
            sink.commit()
            yield "records without marker"
            sink.commit([record])
        if self.reply_lost:
            self.reply_lost = False
            raise CdcError("the reply to the commit was lost")
        yield "commit"


@dataclass
class Run:
    """One attempt of a run: what operator and driver do, a step at a time."""

    world: World
    owner: str
    writers_wanted: int
    length: int
    chunk: int
    started: list[Writer] = field(default_factory=list)

    def _synchronise(self) -> StoredState:
        world = self.world
        stored = world.store.load()
        ledger = world.ledger.read(fence_after_s=1)
        if not world.protections.restore_from_ledger and stored is None:
            ledger = None
        result = reconcile(stored, ledger)
        return world.store.save(result.state, stored) if result.changed else result.state

    def steps(self) -> Steps:
        world, p = self.world, self.world.protections
        world.ledger.ensure()
        state = self._synchronise()
        yield "reconciled"
        plan = state.pending
        if plan is None:
            plan = self._plan(state)
            if plan is None:
                return
        plan = replace(plan, owner=self.owner)
        ledger_id = world.kafka.topic_ids[LEDGER]
        state = world.store.save(state.with_plan(plan, ledger_id), state)
        yield "stored"
        planner = world.ledger.planner()
        yield "planner"
        ledger = yield from self._begin(plan, planner)
        if p.fence_after_plan and p.planner_compares:
            plan = ledger.plan_in_force()
        yield "begun"
        missing = ledger.missing_writers()
        self.started = [Writer(world, plan, index, self.chunk) for index in missing]
        yield "started"
        while not all(writer.done for writer in self.started):
            yield "waiting"
        if p.settle_by_ledger:
            self._synchronise()
        else:
            found = world.store.load()
            assert found is not None
            world.store.save(found.commit(plan.end, 0), found)
        yield "settled"

    def _begin(self, plan: BatchPlan, planner: MemoryWriter) -> Iterator[str]:
        world, p = self.world, self.world.protections
        if p.fence_after_plan and p.planner_compares:
            return world.ledger.begin(plan, planner)
        found = world.ledger.read() or LedgerState()
        if not p.fence_after_plan:
            yield "read"
            if found.plan is not None and found.plan.epoch > plan.epoch:
                raise OffsetConflictError("late")
        else:
            planner = world.ledger.planner()
        planner.commit([SideRecord(LEDGER, PLAN_KEY.encode(), encode(plan.to_json()))])
        if p.fence_after_plan:
            world.ledger.fence(found.writer_ids(plan.writers))
        return world.ledger.read() or LedgerState()

    def _plan(self, state: StoredState) -> BatchPlan | None:
        start = state.committed or offset(0)
        end = min(self.world.events, start.pos + self.length)
        if end <= start.pos:
            return None
        assignment = {
            topic: tuple((state.epoch + n + i) % self.writers_wanted for n in range(count))
            for i, (topic, count) in enumerate(TOPICS.items())
        }
        return BatchPlan(
            state.epoch + 1, "drain", start, offset(end), self.writers_wanted, dict(TOPICS), assignment, self.owner
        )


class Simulation:
    """The world, everything that runs in it, what may happen to it, and what must hold after each step.

    Actors are chosen by a number, modulo how many there are.
    """

    def __init__(self, protections: Protections, events: int) -> None:
        self.world = World(protections, events=events)
        self.runs: list[tuple[Run, Steps]] = []
        self.writers: list[tuple[Writer, Steps]] = []
        self.serial = 0
        self.copies: list[str | None] = []
        self.high = 0

    # -- what happens ---------------------------------------------------------------------------------------------

    def source_goes_on(self, more: int) -> None:
        self.world.events = min(40, self.world.events + more % 6 + 1)

    def start_run(self, choice: int) -> None:
        if len(self.runs) >= 3:
            return
        # A retry has the owner of the attempt before it.
        self.serial += choice % 2
        run = Run(self.world, f"run-{self.serial}", choice % 3 + 1, choice % 11 + 1, choice % 4 + 1)
        self.runs.append((run, run.steps()))

    def step_run(self, choice: int, steps: int) -> None:
        self._step(self.runs, choice, steps)

    def start_writer(self, choice: int) -> None:
        """Spark starts a task, or starts it again, or twice at once: each attempt is a process of its own."""
        waiting = [writer for run, _ in self.runs for writer in run.started]
        if waiting and len(self.writers) < 8:
            writer = waiting[choice % len(waiting)]
            self.writers.append((writer, writer.steps()))

    def step_writer(self, choice: int, steps: int) -> None:
        self._step(self.writers, choice, steps)

    def finish_writers(self) -> None:
        for writer in [writer for run, _ in self.runs for writer in run.started if not writer.done]:
            self.writers.append((writer, writer.steps()))
            self._step(self.writers, -1, 200)

    # -- what goes wrong ------------------------------------------------------------------------------------------

    def kill_run(self, choice: int) -> None:
        """Its writers live on as zombies; what they wrote stays open."""
        if self.runs:
            del self.runs[choice % len(self.runs)]

    def kill_writer(self, choice: int) -> None:
        if self.writers:
            del self.writers[choice % len(self.writers)]

    def lose_next_reply(self, choice: int) -> None:
        if self.writers:
            self.writers[choice % len(self.writers)][0].reply_lost = True

    def expire_transaction(self, choice: int) -> None:
        self.world.kafka.expire(("p.0", "p.1", "p.2", "p.plan")[choice % 4])

    def lose_stored_offset(self) -> None:
        self.world.store.clear()
        self.high = 0

    def copy_stored_offset(self) -> None:
        self.copies.append(self.world.store._text)

    def restore_old_copy(self, choice: int) -> None:
        if self.copies:
            self.world.store._text = self.copies[choice % len(self.copies)]
            self.high = 0

    # -- what must hold -------------------------------------------------------------------------------------------

    def check(self) -> None:
        visible = self.world.visible()
        for place, events in visible.items():
            assert events == sorted(set(events)), f"{place}: {events}"
        stored = self.world.store.load()
        at = stored.committed.pos if stored is not None and stored.committed is not None else 0
        assert at >= self.high, f"the stored offset moved from {self.high} to {at}"
        self.high = at
        missing = set(range(at)).difference(*visible.values())
        assert not missing or missing <= self._committed(), f"{at} is stored, but {missing} are not in Kafka"

    def _committed(self) -> set[int]:
        """Return what is committed, seen or still hidden behind an open transaction."""
        return {
            int(record.value or b"")
            for (topic, _), log in self.world.kafka.logs.items()
            if topic in TOPICS
            for transaction, record in log
            if transaction.status == "committed"
        }

    def finish(self) -> None:
        """Let undisturbed runs follow, and check that every event is visible exactly once."""
        for producer in list(self.world.kafka.producers):
            self.world.kafka.expire(producer)
        for number in range(45):
            run = Run(self.world, f"last-{number}", 2, 40, 3)
            for step in run.steps():
                if step == "started":
                    for writer in run.started:
                        list(writer.steps())
            stored = self.world.store.load()
            assert stored is not None and stored.pending is None
            if stored.committed == offset(self.world.events):
                break
        self.check()
        everything = sorted(event for events in self.world.visible().values() for event in events)
        assert everything == list(range(self.world.events))

    @staticmethod
    def _step(actors: list[tuple[Any, Steps]], choice: int, steps: int) -> None:
        if not actors:
            return
        actor = actors[choice % len(actors)]
        try:
            for _ in range(steps):
                next(actor[1])
        except (StopIteration, CdcError):  # every failure is loud and named; a retry is another actor
            actors.remove(actor)


NUMBER = st.integers(0, 10**6)


class CommitProtocol(RuleBasedStateMachine):
    """Hypothesis chooses what happens next, and shrinks what it finds."""

    @initialize(events=st.integers(4, 12))
    def begin(self, events: int) -> None:
        self.sim = Simulation(Protections(), events)

    @rule(more=NUMBER)
    def source_goes_on(self, more: int) -> None:
        self.sim.source_goes_on(more)

    @rule(choice=NUMBER, steps=st.integers(0, 8))
    def start_run(self, choice: int, steps: int) -> None:
        self.sim.start_run(choice)
        self.sim.step_run(-1, steps)

    @rule(choice=NUMBER, steps=st.integers(1, 8))
    def step_run(self, choice: int, steps: int) -> None:
        self.sim.step_run(choice, steps)

    @rule(choice=NUMBER, steps=st.integers(0, 15))
    def start_writer(self, choice: int, steps: int) -> None:
        self.sim.start_writer(choice)
        self.sim.step_writer(-1, steps)

    @rule(choice=NUMBER, steps=st.integers(1, 15))
    def step_writer(self, choice: int, steps: int) -> None:
        self.sim.step_writer(choice, steps)

    @rule()
    def finish_writers(self) -> None:
        self.sim.finish_writers()

    @rule(choice=NUMBER, what=st.sampled_from(["kill_run", "kill_writer", "lose_next_reply", "expire_transaction"]))
    def fault(self, choice: int, what: str) -> None:
        getattr(self.sim, what)(choice)

    @rule(choice=NUMBER, what=st.sampled_from(["lose", "copy", "restore"]))
    def tamper_with_the_stored_offset(self, choice: int, what: str) -> None:
        if what == "restore":
            self.sim.restore_old_copy(choice)
        else:
            getattr(self.sim, f"{what}_stored_offset")()

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "sim"):
            self.sim.check()

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            self.sim.finish()


TestCommitProtocol = CommitProtocol.TestCase
TestCommitProtocol.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


def random_walk(seed: int, protections: Protections, steps: int = 50) -> None:
    """Let chance choose what happens; ten times as fast as the state machine, for many interleavings."""
    rng = random.Random(seed)
    sim = Simulation(protections, rng.randrange(4, 13))
    ordinary: list[Callable[[int], None]] = [
        sim.start_run,
        lambda n: sim.step_run(n, n % 4 + 1),
        lambda n: sim.step_run(-1, 8),
        lambda n: (sim.start_writer(n), sim.step_writer(-1, n % 12))[0],
        lambda n: sim.step_writer(n, n % 9 + 1),
        lambda n: sim.step_writer(n, n % 3 + 1),
        lambda n: sim.finish_writers(),
        sim.source_goes_on,
    ]
    faults: list[Callable[[int], None]] = [
        sim.kill_run,
        sim.kill_writer,
        sim.lose_next_reply,
        sim.expire_transaction,
        lambda n: sim.lose_stored_offset(),
        lambda n: sim.copy_stored_offset(),
        sim.restore_old_copy,
    ]
    for _ in range(steps):
        rng.choice(ordinary if rng.random() < 0.85 else faults)(rng.randrange(10**6))
        sim.check()
    sim.finish()


@pytest.fixture(autouse=True, scope="module")
def remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_once(patch)
        yield


OWN_WALKS = WALKS * 7 // 10


@pytest.mark.timeout(0 if OWN_WALKS > 5000 else 600)
def test_promises_hold_over_many_random_interleavings() -> None:
    for seed in range(OWN_WALKS):
        try:
            random_walk(seed, Protections())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


SHOWN_BY = {"fence_after_plan": 1184, "check_plan": 9, "planner_compares": 45, "restore_from_ledger": 6}
"""Seeds whose walks miss a protection; the others show at once."""


@pytest.mark.parametrize("name", list(Protections.__dataclass_fields__))
def test_without_a_protection_the_machine_finds_a_violation(name: str) -> None:
    weakened = replace(Protections(), **{name: False})
    shown_by = SHOWN_BY.get(name, 0)
    assert breaks_a_promise(lambda seed: random_walk(seed, weakened), shown_by, range(20_000)), f"{name} is not needed"
