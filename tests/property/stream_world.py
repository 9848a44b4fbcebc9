"""The stage on which the model of the whole stream runs: the product's drivers over memory.

Operators' work (``operate``), both drivers, joining, books, resumption, topic guard, pins and filters are the real
code. Stand-ins: Kafka, the source (``stream_source``), what reads and decodes rows, and the schema history.

Every process is a greenlet that stops at each of its steps to the outside (``World.pause``), so a walk can let another
one go on, or end it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import greenlet
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger
from stream_oracle import Entry, Oracle
from stream_source import KEYS, Source

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import MemoryOffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.model.records import Headers, SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter, transactional_id
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, TopicSpec

PREFIX, LEDGER = "p", "mysql-cdc-ledger.p"
TABLES = {TableId("d", "t"): range(4), TableId("d", "u"): range(4, KEYS)}
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
    "include.schema.changes": "false",
    "drain.small.batch.bytes": "0",
    "commit.bytes": "1024",
}


def table_of(key: int) -> TableId:
    """Return the table that holds a key."""
    return next(table for table, keys in TABLES.items() if key in keys)


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

    def __init__(self) -> None:
        self.kafka = MemoryKafka()
        self.partitions: dict[str, int] = {}
        self.source = Source(self.pause)
        self.oracle = Oracle(self.source, self.partitions)
        self.ledger = StagedLedger(self)
        self.store = StagedStore(self)
        self.main = greenlet.getcurrent()
        self.salt, self.violation = 0, ""

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

    def create(self, _: Any, specs: Mapping[str, TopicSpec]) -> None:
        """Stand in for ``sink.topics.ensure_topics``."""
        self.pause()
        for topic, spec in specs.items():
            if topic in TOPICS and topic not in self.partitions:
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
        if topic in TOPICS:
            world.pause()
            if partition >= world.partitions.get(topic, 0):
                raise SinkError("no such topic or partition", where=f"{topic} {partition}", retriable=True)
            self._entries.append(Entry.of(topic, world.kafka.topic_ids[topic], partition, key, value))
        else:
            self.records.append(SideRecord(topic, key, value))
        super().produce(topic, key, value, partition, headers)
        self.bytes_pending += RECORD_BYTES if topic in TOPICS else 0

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

    def fence(self, writers: Iterable[int | str]) -> None:
        for writer in writers:
            self._world.writer(config(0, 1), writer).init()

    def begin(
        self, plan: BatchPlan, planner: RecordWriter | None = None, beside: Sequence[SideRecord] = ()
    ) -> LedgerState:
        found = super().begin(plan, planner, beside)
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
    """One task that a driver wants done, in as many attempts as it takes."""

    task: Callable[[int, Any], Any]
    index: int
    arguments: Any
    done: bool = False

    def run(self) -> None:
        """Do it."""
        self.task(self.index, self.arguments)
        self.done = True


@dataclass(eq=False)
class Runner:
    """Run tasks where they stand, or hand them to the walk.

    Args:
        world: The world.
        wanted: Tasks at once.
        inline: Whether to run them here.
    """

    world: World
    wanted: int
    inline: bool = False
    work: list[Work] = field(default_factory=list)
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("driver"))

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once."""
        return self.wanted

    def run(self, task: Callable[[int, Any], Any], count: int, arguments: Any, *, barrier: bool) -> list[Any]:
        """Run the tasks."""
        self.work = [Work(task, index, arguments) for index in range(count)]
        if self.inline:
            for work in self.work:
                work.run()
        while not all(work.done for work in self.work):
            self.world.pause()
        self.work = []
        return []


class Process:
    """A process of the walk, stopped at one of its steps.

    Args:
        world: The world.
        body: What it does.
        runner: Its tasks, when it is a driver.
    """

    def __init__(self, world: World, body: Callable[[], None], runner: Runner | None = None) -> None:
        self.runner = runner
        self._let = greenlet.greenlet(body, world.main)

    def step(self, steps: int) -> bool:
        """Go on for some steps; return whether there is more to do."""
        try:
            for _ in range(steps):
                if self._let.dead:
                    return False
                self._let.switch()
        except CdcError:  # every failure is loud and named; a retry is another process
            return False
        return not self._let.dead

    def kill(self) -> None:
        """End it where it stands."""
        if self._let:
            self._let.throw()
