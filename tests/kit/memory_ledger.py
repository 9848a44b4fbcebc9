"""The in-memory twin of the ledger, for tests and trials without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import LedgerValues, claim_ledger, require_own_prefix
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import ExtraRecords, LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import PLANNER, begin_epoch
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter, transactional_id
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from kit.memory_kafka import MemoryKafka, MemoryWriter


class MemoryLedger:
    """Twin of ``Ledger``.

    Args:
        kafka: The twin of the cluster.
        topic: Ledger topic.
        prefix: topic.prefix.
    """

    def __init__(self, kafka: MemoryKafka, topic: str, prefix: str = "") -> None:
        self.topic = topic
        self._kafka, self._prefix, self.fences = kafka, prefix or topic, 0

    def __enter__(self) -> MemoryLedger:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ensure(self) -> None:
        """Create the topic when it is missing."""
        self._kafka.create(self.topic)

    def expect(self, topic_id: str | None, progress_end: int) -> None:
        """Do nothing: what is in memory does not go back."""

    def claim(self) -> None:
        """Record whose the ledger is; see ``Ledger.claim``."""

        def write(key: str, value: bytes | None) -> None:
            self._kafka.append(self.topic, key.encode(), value)

        if self.topic in self._kafka.topic_ids:
            claim_ledger(self._prefix, self.peek, write)

    def read(
        self,
        timeout_s: float = 60.0,
        *,
        fence_after_s: float | None = None,
        fence_planner: bool = True,
        before_fence: Callable[[], None] = lambda: None,
        chunks: bool = True,
    ) -> LedgerState | None:
        """Return what is committed, or None when the topic does not exist; see ``Ledger.read``."""
        topic_id = self._kafka.topic_ids.get(self.topic)
        if topic_id is None:
            return None
        try:
            records = self._kafka.committed(self.topic, wait=True)
        except SinkConnectionError:
            if fence_after_s is None:
                raise
            before_fence()
            everything = {(r.key or b"").decode(): r.value for _, r in self._kafka.logs[self.topic, 0]}
            seen = build_ledger_state(everything, require_parts=False)
            self.fence((*seen.writer_ids(1), *([PLANNER] if fence_planner else [])))
            records = self._kafka.committed(self.topic, wait=True)
        return self._own_state(records, topic_id)

    def peek(self) -> LedgerState:
        """Return what is committed before the oldest open transaction; see ``Ledger.peek``."""
        records = self._kafka.committed(self.topic)
        return self._own_state(records)

    def current_id(self) -> str | None:
        """Return the topic's id; see ``Ledger.current_id``."""
        return self._kafka.topic_ids.get(self.topic)

    def _own_state(self, records: Iterable[TopicRecord], topic_id: str | None = None) -> LedgerState:
        state = build_ledger_state(LedgerValues().with_records(records).values, topic_id)
        require_own_prefix(self.topic, self._prefix, state)
        return state

    def fence(self, writers: Iterable[int | str]) -> None:
        """Fence writers; twin of ``fence.fence``."""
        self.fences += 1
        for writer in writers:
            MemoryWriter(self._kafka, transactional_id(self._prefix, writer)).init()

    def begin(
        self,
        plan: BatchPlan,
        planner: RecordWriter | None = None,
        extra_records: ExtraRecords = (),
        after: BatchPlan | None = None,
        latest: LedgerState | None = None,
    ) -> LedgerState:
        """Put a plan in force; see ``takeover.begin_epoch``."""
        return begin_epoch(self, planner or self.planner(), plan, self.fence, extra_records, after, latest)

    def put(self, records: Mapping[str, bytes | None]) -> None:
        """Write other keys in one transaction."""
        self.planner().commit([SideRecord(self.topic, key.encode(), value) for key, value in records.items()])

    def planner(self) -> MemoryWriter:
        """Return a new writer of the planner's id; older ones are fenced."""
        writer = MemoryWriter(self._kafka, transactional_id(self._prefix, PLANNER))
        writer.init()
        return writer
