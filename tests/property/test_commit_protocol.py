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

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from airflow_provider_mysql_cdc.cdc.errors import CdcError, OffsetConflictError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, Reached
from airflow_provider_mysql_cdc.cdc.sink.memory import MemoryKafka, MemoryLedger, MemoryWriter
from airflow_provider_mysql_cdc.cdc.state.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.state.plan import PLAN_KEY, BatchPlan, Marker, encode, transactional_id
from airflow_provider_mysql_cdc.cdc.state.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.state.store import MemoryOffsetStore, StoredState

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
            if plan.owner_of(topic, partition) == self.index:
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
        reached = Reached(offset(at))
        record = Marker(plan.epoch, self.index, plan.start, plan.end, reached, done).record(LEDGER)
        if self.world.protections.marker_in_same_transaction:
            sink.produce(*record, 0)
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
        planner.commit([(LEDGER, PLAN_KEY.encode(), encode(plan.to_json()))])
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


class CommitProtocol(RuleBasedStateMachine):
    protections = Protections()
    runs = Bundle("runs")
    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.protections)
        self.active: dict[int, tuple[Run | Writer, Steps]] = {}
        self.serial = 0
        self.copies: list[str | None] = []
        self.high = 0

    # -- what happens ---------------------------------------------------------------------------------------------

    @initialize(events=st.integers(4, 12))
    def begin(self, events: int) -> None:
        self.world.events = events

    @rule(more=st.integers(1, 6))
    def source_goes_on(self, more: int) -> None:
        self.world.events = min(40, self.world.events + more)

    @rule(target=runs, w=st.integers(1, 3), length=st.integers(1, 12), chunk=st.integers(1, 4), again=st.booleans())
    def start_run(self, w: int, length: int, chunk: int, again: bool) -> int:
        owner = f"run-{self.serial - 1 if again else self.serial}"
        run = Run(self.world, owner, w, length, chunk)
        return self._add(run, run.steps())

    @rule(run=runs, steps=st.integers(1, 8))
    def step_run(self, run: int, steps: int) -> None:
        self._step(run, steps)

    @rule(target=writers, run=runs, which=st.integers(0, 2))
    def start_writer(self, run: int, which: int) -> int:
        found = self.active.get(run)
        if found is None or not isinstance(found[0], Run) or which >= len(found[0].started):
            return -1
        writer = found[0].started[which]
        # Spark may start a task again, or twice at once: each attempt is a process of its own.
        return self._add(writer, writer.steps())

    @rule(writer=writers, steps=st.integers(1, 15))
    def step_writer(self, writer: int, steps: int) -> None:
        self._step(writer, steps)

    @rule(steps=st.integers(1, 40), data=st.data())
    def step_anything(self, steps: int, data: st.DataObject) -> None:
        if self.active:
            self._step(data.draw(st.sampled_from(sorted(self.active))), steps)

    @rule()
    def let_all_writers_finish(self) -> None:
        for number in sorted(self.active):
            if isinstance(self.active[number][0], Writer):
                self._step(number, 200)

    # -- what goes wrong ------------------------------------------------------------------------------------------

    @rule(run=runs)
    def kill_run(self, run: int) -> None:
        """Its writers live on as zombies; what they wrote stays open."""
        self.active.pop(run, None)

    @rule(writer=writers)
    def kill_writer(self, writer: int) -> None:
        self.active.pop(writer, None)

    @rule(writer=writers)
    def lose_the_next_reply(self, writer: int) -> None:
        if writer in self.active and isinstance(self.active[writer][0], Writer):
            self.active[writer][0].reply_lost = True  # type: ignore[union-attr]

    @rule(writer=st.sampled_from(["p.0", "p.1", "p.2", "p.plan"]))
    def transaction_expires(self, writer: str) -> None:
        self.world.kafka.expire(writer)

    @rule()
    def lose_the_stored_offset(self) -> None:
        self.world.store.forget()
        self.high = 0

    @rule()
    def copy_the_stored_offset(self) -> None:
        self.copies.append(self.world.store._text)

    @rule(data=st.data())
    def bring_an_old_copy_back(self, data: st.DataObject) -> None:
        if self.copies:
            self.world.store._text = data.draw(st.sampled_from(self.copies))
            self.high = 0

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def each_event_is_visible_at_most_once_and_in_order(self) -> None:
        for place, events in self.world.visible().items():
            assert events == sorted(set(events)), f"{place}: {events}"

    @invariant()
    def everything_before_the_stored_offset_is_visible(self) -> None:
        stored = self.world.store.load()
        if stored is None or stored.committed is None:
            return
        done = {event for events in self.world.visible().values() for event in events}
        hidden = set(range(stored.committed.pos)) - done
        assert not hidden or self._hidden_by_open_transactions(hidden), f"{stored.committed}: {hidden} are missing"

    @invariant()
    def the_stored_offset_never_moves_back(self) -> None:
        stored = self.world.store.load()
        at = stored.committed.pos if stored is not None and stored.committed is not None else 0
        assert at >= self.high
        self.high = at

    def teardown(self) -> None:
        """One undisturbed run after another ends with every event exactly once."""
        self.active.clear()
        for producer in list(self.world.kafka.producers):
            self.world.kafka.expire(producer)
        for _ in range(40):
            stored = self.world.store.load()
            run = Run(self.world, "last", 2, 40, 3)
            for step in run.steps():
                if step == "started":
                    for writer in run.started:
                        assert list(writer.steps())
            stored = self.world.store.load()
            if stored is None or (stored.pending is None and stored.committed == offset(self.world.events)):
                break
        everything = sorted(event for events in self.world.visible().values() for event in events)
        assert everything == list(range(self.world.events))
        self.each_event_is_visible_at_most_once_and_in_order()

    # -- machinery --------------------------------------------------------------------------------------------------

    def _add(self, actor: Run | Writer, steps: Steps) -> int:
        self.serial += 1
        self.active[self.serial] = (actor, steps)
        return self.serial

    def _step(self, number: int, steps: int) -> None:
        for _ in range(steps):
            if number not in self.active:
                return
            try:
                next(self.active[number][1])
            except StopIteration:
                del self.active[number]
            except CdcError:  # every failure is loud and named; the actor ends, and a retry is another actor
                del self.active[number]

    def _hidden_by_open_transactions(self, hidden: set[int]) -> bool:
        committed = {
            int(record.value or b"")
            for (topic, _), log in self.world.kafka.logs.items()
            if topic in TOPICS
            for transaction, record in log
            if transaction.status == "committed"
        }
        return hidden <= committed


LIMITS = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
TestCommitProtocol = CommitProtocol.TestCase
TestCommitProtocol.settings = LIMITS


@pytest.mark.parametrize("name", [name for name in Protections.__dataclass_fields__])
def test_without_a_protection_the_machine_finds_a_violation(name: str) -> None:
    machine = type("Weakened", (CommitProtocol,), {"protections": Protections(**{name: False})})
    with pytest.raises(BaseException):  # noqa: B017, PT011
        run_state_machine_as_test(
            machine, settings=settings(LIMITS, max_examples=2000, print_blob=False, derandomize=True)
        )
