"""The stage on which the model of the whole stream runs: the product's drivers over memory.

Operators' work (``operate``), both drivers, joining, books, resumption, topic guard, pins and filters are the real
code. Stand-ins: Kafka, the source (``stream_source``), what reads and decodes rows, and the schema history.

Every process is a greenlet that stops at each of its steps to the outside (``World.pause``), so a walk can let another
one go on, or end it there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import greenlet
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger
from pipelinelib.stand_ins import MemoryOffsetStore
from stream_oracle import Entry, Oracle
from stream_source import TABLES, Source

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.model.records import Headers, SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter, transactional_id
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, TopicSpec

PREFIX, LEDGER = "p", "mysql-cdc-ledger.p"
TOPICS = {f"{PREFIX}.{table}": table for table in TABLES}
FIRST_PARTITIONS = 2
RECORD_BYTES = 512
"""As many as a record has in the eyes of a committer; with ``commit.bytes`` it says how often one commits."""
GIVEN = {
    "topic.prefix": PREFIX,
    "ledger.topic": LEDGER,
    "database.hostname": "localhost",
    "database.user": "u",
    "database.password": "x",
    "kafka.bootstrap.servers": "localhost:9092",
    "topic.creation.default.partitions": str(FIRST_PARTITIONS),
    "table.include.list": r"d\.[tux]",
    "include.schema.changes": "false",
    "drain.small.batch.bytes": "0",
    "commit.bytes": "1024",
}


@lru_cache(maxsize=64)
def config(salt: int, writers: int) -> ConnectorConfig:
    """Return a configuration.

    Args:
        salt: Decides how keys look, and so where they go.
        writers: Writers of a drain, and tasks of a snapshot.
    """
    more = {"drain.writers": str(writers), "snapshot.parallelism": str(writers)}
    return ConnectorConfig.from_properties(GIVEN | more | ({"tombstones.on.delete": "false"} if salt else {}))


class World:
    """Everything that lives longer than a process."""

    topics: Collection[str] = frozenset(TOPICS)
    """The topics of tables."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka()
        self.partitions: dict[str, int] = {}
        self.source, self.oracle = self.cast()
        self.ledger = StagedLedger(self)
        self.store = StagedStore(self)
        self.main = greenlet.getcurrent()
        self.salt, self.violation = 0, ""
        self.ranges_per_window = 99
        self._leader: Any = None

    def cast(self) -> tuple[Any, Any]:
        """Return the source, and who judges."""
        source = Source(self.pause)
        return source, Oracle(source, self.partitions)

    def lead(self, leader: Any) -> None:
        """Let the next stage have a leader: the driver's part of a window."""
        self._leader = leader

    def take_leader(self) -> Any:
        """Return the leader of the stage that begins; None when it has none."""
        leader, self._leader = self._leader, None
        return leader

    def pause(self) -> None:
        """Let others go on; a process may be ended here."""
        if greenlet.getcurrent() is not self.main:
            self.main.switch()

    def writer(self, cfg: ConnectorConfig, writer: int | str, *, single_partition: bool = False) -> StagedWriter:
        """Stand in for ``kafka_clients.record_writer``."""
        return StagedWriter(self, transactional_id(PREFIX, writer))

    def describe(self, _: Any, topics: Iterable[str], __: str) -> dict[str, TopicInfo]:
        """Stand in for ``sink.topics.describe_topics``."""
        self.pause()
        ids = self.kafka.topic_ids
        return {t: TopicInfo(self.partitions[t], ids[t]) for t in topics if t in self.partitions}

    def describe_made(self, _: Any, topics: Iterable[str], at: str) -> dict[str, TopicInfo]:
        """Stand in for ``sink.topics.describe_created``."""
        found = self.describe(_, topics, at)
        if set(topics) - found.keys():
            raise SinkError("a topic that was just made is gone", retriable=True)
        return found

    def counts(self, _: Any) -> dict[str, int]:
        """Stand in for ``sink.topics.all_partition_counts``."""
        self.pause()
        return dict(self.partitions)

    def ends(self, _: Any, topics: Mapping[str, Iterable[int]]) -> dict[str, dict[int, int]]:
        """Stand in for ``sink.topics.last_offsets_of_topics``."""
        return {topic: {p: len(self.kafka.logs.get((topic, p), ())) for p in of} for topic, of in topics.items()}

    def create(self, _: Any, specs: Mapping[str, TopicSpec]) -> None:
        """Stand in for ``sink.topics.ensure_topics``."""
        self.pause()
        for topic, spec in specs.items():
            if topic in self.topics and topic not in self.partitions:
                self.create_topic(topic, spec.partitions)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; its id is new."""
        self.kafka.create(topic)
        self.partitions[topic] = partitions

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its records."""
        if self.partitions.pop(topic, None) is not None:
            self.kafka.delete(topic)
            self.oracle.topic_deleted(topic)


class StagedLock:
    """Stand in for a lock of threads: whoever waits for it lets others go on."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause, self._held = pause, False

    def __enter__(self) -> StagedLock:
        while self._held:
            self._pause()
        self._held = True
        return self

    def __exit__(self, *_: object) -> None:
        self._held = False


class StagedThread:
    """Stand in for a thread of a driver, which goes on whenever the driver waits.

    Args:
        target: What it does.
    """

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.ident: int | None = None
        self._let = greenlet.greenlet(target, greenlet.getcurrent())  # where it ends, its driver goes on

    def start(self) -> None:
        self.ident = 1
        driver: Any = self._let.parent
        THREADS.setdefault(driver, []).append(self)

    def join(self, _: float) -> None:
        while not self._let.dead:
            self.step()

    def step(self) -> None:
        """Let it go on to its next pause, which is one of its driver, too."""
        self._let.switch()

    @property
    def dead(self) -> bool:
        return self._let.dead


THREADS: WeakKeyDictionary[Any, list[StagedThread]] = WeakKeyDictionary()
"""The threads of each driver."""


class StagedCondition:
    """Stand in for a condition of threads of a driver, and of the tasks that wait for its answers.

    Args:
        pause: Lets others go on.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause, self._driver = pause, greenlet.getcurrent()

    def __enter__(self) -> StagedCondition:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def notify_all(self) -> None:
        """Do nothing: whoever waits looks again."""

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Let others go on until something holds; the connection of a task ends with its driver."""
        while not holds():
            if self._driver.dead:
                raise StateError("the driver of this job is gone", retriable=True)
            own = THREADS.get(self._driver, []) if greenlet.getcurrent() is self._driver else []
            thread = next((thread for thread in own if not thread.dead), None)
            if thread is None:
                self._pause()
            else:
                thread.step()


class StagedTime:
    """Stand in for the time of a driver: only sleeping takes some.

    Args:
        pause: Lets others go on.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause, self._now = pause, 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self._pause()


class StagedWriter(MemoryWriter):
    """A writer whose every step can be the last one; what it commits is judged at once."""

    def __init__(self, world: World, transactional_id: str) -> None:
        super().__init__(world.kafka, transactional_id)
        self._world, self._entries, self.records = world, list[Entry](), list[SideRecord]()
        self.open_s = 0.0

    def init(self, timeout_s: float = 60.0) -> None:
        self._world.pause()
        super().init(timeout_s)

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        world = self._world
        if topic in world.topics:
            world.pause()
            if partition >= world.partitions.get(topic, 0):
                raise SinkError("no such topic or partition", where=f"{topic} {partition}", retriable=True)
            self._entries.append(Entry.of(topic, world.kafka.topic_ids[topic], partition, key, value))
        else:
            self.records.append(SideRecord(topic, key, value))
        super().produce(topic, key, value, partition, headers)
        self.bytes_pending += RECORD_BYTES if topic in world.topics else 0

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        self._world.pause()
        super().commit(records)
        # No pause from here on: what is judged is what stands in Kafka now.
        entries, side = self._entries, self.records
        self._entries, self.records = [], []
        self._world.oracle.committed(entries, [record for record in side if record.topic == LEDGER])

    def abort(self) -> None:
        super().abort()
        self._entries, self.records = [], []


class StagedLedger(MemoryLedger):
    """The ledger's twin, with pauses."""

    def __init__(self, world: World) -> None:
        super().__init__(world.kafka, LEDGER, PREFIX)
        self._world = world

    def ensure(self) -> None:
        self._world.pause()
        super().ensure()

    def read(
        self,
        timeout_s: float = 60.0,
        *,
        fence_after_s: float | None = None,
        fence_planner: bool = True,
        before_fence: Callable[[], None] = lambda: None,
        chunks: bool = True,
    ) -> LedgerState | None:
        self._world.pause()
        return super().read(
            timeout_s,
            fence_after_s=fence_after_s,
            fence_planner=fence_planner,
            before_fence=before_fence,
            chunks=chunks,
        )

    def peek(self) -> LedgerState:
        self._world.pause()
        return super().peek()

    def current_id(self) -> str | None:
        self._world.pause()
        return super().current_id()

    def fence(self, writers: Iterable[int | str]) -> None:
        self.fences += 1
        for writer in writers:
            self._world.writer(config(0, 1), writer).init()

    def begin(
        self,
        plan: BatchPlan,
        planner: RecordWriter | None = None,
        beside: Sequence[SideRecord] = (),
        after: BatchPlan | None = None,
        latest: LedgerState | None = None,
    ) -> LedgerState:
        found = super().begin(plan, planner, beside, after, latest)
        self._world.oracle.begun(found.plan_in_force())
        return found


class StagedStore(MemoryOffsetStore):
    """The store's twin, with pauses; where it stands is judged at once."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def load(self) -> StoredState | None:
        if not self._lock.locked():  # comparing and writing are one step
            self._world.pause()
        return super().load()

    def save(self, new: StoredState, expected: StoredState | None) -> StoredState:
        self._world.pause()
        saved = super().save(new, expected)
        self._world.oracle.stored(saved)
        return saved


@dataclass(eq=False)
class Work:
    """One task that a driver wants done, in as many attempts as it takes.

    Args:
        task: The product's function.
        index: Its index.
        arguments: What it gets.
        once: Whether the loss of its first attempt ends the stage.
        begun: Whether an attempt has begun.
        done: Whether an attempt has come to its end.
        error: What an attempt ended with.
    """

    task: Callable[[int, Any], Any]
    index: int
    arguments: Any
    once: bool = False
    begun: bool = False
    done: bool = False
    error: BaseException | None = None

    def run(self) -> None:
        """Do it."""
        self.begun = True
        try:
            self.task(self.index, self.arguments)
        except BaseException as error:
            self.error = error
            raise
        self.done = True

    @property
    def waits(self) -> bool:
        """Whether an attempt may begin."""
        return not self.done and not (self.once and self.begun)


@dataclass(eq=False)
class Runner:
    """Hand tasks to the walk.

    Args:
        world: The world.
        wanted: Tasks at once.
        patient: Whether lost tasks are begun again; if not, the first loss ends the job.
    """

    world: World
    wanted: int
    patient: bool = True
    work: list[Work] = field(default_factory=list)
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("driver"))

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once."""
        return self.wanted

    def run(self, task: Callable[[int, Any], Any], count: int, arguments: Any, *, barrier: bool) -> list[Any]:
        """Run the tasks, and the driver's part of a window beside them."""
        leader = self.world.take_leader()
        once = leader is not None or not self.patient
        self.work = [Work(task, index, arguments, once) for index in range(count)]
        if leader is not None:
            leader.run()
        while not all(work.done for work in self.work):
            lost = next((work for work in self.work if work.once and work.error is not None), None)
            if lost is not None:
                self.work = []
                raise lost.error if isinstance(lost.error, CdcError) else StateError("a task was lost", retriable=True)
            self.world.pause()
        self.work = []
        return [{} for _ in range(count)]


class Process:
    """A process of the walk, stopped at one of its steps.

    Args:
        world: The world.
        body: What it does.
        runner: Its tasks, when it is a driver.
    """

    def __init__(self, world: World, body: Callable[[], None], runner: Runner | None = None) -> None:
        self.runner, self.error = runner, None
        self._let = greenlet.greenlet(body, world.main)

    error: CdcError | None

    def step(self, steps: int) -> bool:
        """Go on for some steps; return whether there is more to do."""
        try:
            for _ in range(steps):
                if self._let.dead:
                    return False
                self._let.switch()
        except CdcError as error:  # every failure is loud and named; a retry is another process
            self.error = error
            return False
        return not self._let.dead

    def kill(self) -> None:
        """End it where it stands."""
        if self._let:
            self._let.throw()
