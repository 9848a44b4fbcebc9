"""The ledger: a compacted topic of one partition, the second copy of all progress.

Its keys are in ``ledger_keys``. Markers and chunk records are written by ``TransactionalWriter.commit`` together with
the records that they count; plan and outcome are written by the driver.

**Fence first.** A writer that died between its marker and its commit leaves a transaction open, and read_committed
consumers see nothing after it until it is aborted. Reading therefore continues to the high watermark and waits for open
transactions; ``fence.fence`` ends them at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import (
    LedgerCache,
    LedgerValues,
    claim_ledger,
    require_own_prefix,
    require_own_records,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import ReadBefore, build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import MISSING_TIMEOUT_S, ExtraRecords, LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.takeover import PLANNER, begin_epoch
from airflow_provider_mysql_cdc.cdc.errors import PREVENT_LOSS, RecordsLostError, SinkConnectionError, SinkError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.client_pool import ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter, fence, transactional_id, write_plain
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord, read_topic
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import LEDGER_RULE, require_settings
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicInfo,
    TopicSpec,
    describe_created,
    ensure_topics,
    existing_topics,
    partition_counts,
    topic_id,
)
from airflow_provider_mysql_cdc.cdc.sink.writer import SHORT_TIMEOUT_MS, TransactionalWriter

__all__ = ["PLANNER", "BatchPlan", "Ledger", "LedgerState", "Marker"]

log = logging.getLogger(__name__)

_RETRY_INTERVAL_S = 0.25
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # Small segments and frequent compaction keep the ledger short and fast to read: the active segment is never
    # compacted, and a job that follows the stream writes some kilobytes with each batch. Brokers refuse a batch of
    # records that is larger than a segment.
    "segment.bytes": str(2 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}


def _topic_config(more: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new topic, whose segments hold the largest batch."""
    segment = max(int(_TOPIC_CONFIG["segment.bytes"]), int(more.get("max.message.bytes", 0)))
    return {**_TOPIC_CONFIG, **more, "segment.bytes": str(segment)}


class Ledger:
    """Read and write the ledger topic; inside ``with`` all reads share a consumer and a cache.

    Args:
        kafka_settings: Client settings under their librdkafka names.
        topic: Ledger topic (``ledger.topic``).
        prefix: topic.prefix; names the transactional ids.
        replication: Replication factor when the topic has to be created; -1 takes the broker's default.
        verified: Whether a person has checked the topic's settings (``topic.settings.verified``).
        transaction_timeout_ms: Milliseconds after which the brokers end a transaction of the planner; they refuse more
            than their ``transaction.max.timeout.ms``.
        topic_settings: More settings of the topic when it has to be created.
        admin_settings: Client settings for administration; None for the same.
    """

    def __init__(
        self,
        kafka_settings: Mapping[str, Any],
        topic: str,
        prefix: str = "",
        replication: int = -1,
        *,
        verified: bool = False,
        transaction_timeout_ms: int = SHORT_TIMEOUT_MS,
        topic_settings: Mapping[str, str] | None = None,
        admin_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self._settings, self._admin_settings = kafka_settings, admin_settings or kafka_settings
        self._prefix = prefix or topic
        self._replication, self._verified = replication, verified
        self._timeout_ms = transaction_timeout_ms
        self._topic_settings = topic_settings or {}
        self._consumer = ConsumerCache()
        self._cache, self._read_before, self._open = LedgerCache(), ReadBefore(), False
        self._expected: tuple[str | None, int] = None, 0
        self.fences = 0

    def __enter__(self) -> Ledger:
        self._consumer.__enter__()
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._cache.clear()
        self._read_before.clear()
        self._consumer.__exit__()

    def _admin(self) -> AdminClient:
        return make_admin(self._admin_settings)

    def expect(self, topic_id: str | None, progress_end: int) -> None:
        """Say how far the ledger went before; what this reads itself is expected from then on without a call.

        Args:
            topic_id: Kafka's id of the topic; a topic of another id is another ledger.
            progress_end: ``LedgerState.progress_end``.
        """
        self._expected = topic_id, progress_end

    def ensure(self) -> None:
        """Create the topic when it is missing; otherwise check that it keeps the last value of each key.

        Raises:
            SinkError: The topic has several partitions or would delete records.
            ForeignLedgerError: So it does, and it belongs to another topic.prefix or another program (TOPIC-08).
            SinkAuthorizationError: Its settings may not be read.
        """
        count = partition_counts(self._admin(), [self.topic]).get(self.topic)
        if count is None:
            ensure_topics(self._admin(), {self.topic: self.topic_spec()})
            # Another broker than the one that has shown it may not know it yet.
            created = describe_created(self._admin(), [self.topic], broker_addresses(self._settings))
            count = created[self.topic].partitions
        if count != 1:
            self.peek()  # the remedy would delete the topic of others
            raise SinkError(
                "the ledger topic must have one partition",
                where=f"topic {self.topic}",
                why=f"it has {count}",
                remedy="delete it, or set another ledger.topic. If the stream has already started, then run DAG "
                "mysql_cdc_reset_offset with offset=stored (records that an "
                "unfinished batch has already committed are written a second time)",
            )
        try:
            require_settings(self._admin(), self.topic, LEDGER_RULE, verified=self._verified)
        except SinkError:
            self.peek()  # the remedy would change the settings of others
            raise

    def topic_spec(self) -> TopicSpec:
        """Return how the topic is created."""
        return TopicSpec(1, self._replication, _topic_config(self._topic_settings))

    def exists(self) -> bool:
        """Return whether the topic exists."""
        return self.topic in partition_counts(self._admin(), [self.topic])

    def claim(self) -> None:
        """Record that the ledger is this stream's, before its first other record; see ``claim_ledger``.

        Raises:
            SinkError: Kafka refuses or does not answer.
            ForeignLedgerError: The ledger belongs to another topic.prefix or another program (TOPIC-08).
        """
        if not self.exists():
            return

        def write(key: str, value: bytes | None) -> None:
            write_plain(self._settings, [SideRecord(self.topic, key.encode(), value)])

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
        """Return everything committed when the call began.

        Args:
            timeout_s: Seconds without progress after which reading ends with an error.
            fence_after_s: Seconds without progress after which an open transaction counts as that of a dead writer, and
                every writer known to the ledger is fenced. A live writer's transaction is open in the ledger only while
                it commits; if it is a slow one, it is fenced and a retry continues its batch. None never fences.
            fence_planner: Whether to fence the planner as well; False when the caller is the planner.
            before_fence: Called before any writer is fenced; no writer is fenced when it raises an error.
            chunks: Whether to read the chunks of a snapshot as well; there may be very many.

        Returns:
            The state, or None when the topic does not exist.

        Raises:
            SinkConnectionError: Kafka does not answer, or the open transaction of a dead writer hides later records;
                the message names the transactional ids that may have opened it.
            DamagedRecordError: A record is damaged.
            StoredVersionError: A record is of another version.
            ForeignLedgerError: The ledger belongs to another topic.prefix or another program (TOPIC-08).
            RecordsLostError: The topic has gone back behind what it held.
        """
        try:
            found = self._read_committed(timeout_s if fence_after_s is None else fence_after_s)
        except HiddenByTransaction as hidden:
            if fence_after_s is None:
                raise self._open_transaction_error(hidden) from None
            before_fence()
            log.warning(
                "ledger %s: an open transaction hides later records (%s); fencing its writers", self.topic, hidden
            )
            self._fence(w for w in self._known_writers() if fence_planner or w != PLANNER)
            return self.read(timeout_s, chunks=chunks)
        if found is None:
            return None
        id_, ledger_values = found
        require_own_records(self.topic, ledger_values)
        # When the topic could not be described, its listing has no id.
        id_ = id_ or topic_id(self._admin(), self.topic)
        read_before = self._read_before if self._open else None
        state = self._build_state(ledger_values, id_, chunks=chunks, read_before=read_before)
        require_own_prefix(self.topic, self._prefix, state)
        return state

    def peek(self, *, chunks: bool = False) -> LedgerState:
        """Return what is committed before the oldest open transaction; empty when there is no topic.

        Unlike ``read`` this never waits, so it may lack records that others have committed after an open transaction.
        It is enough to find out early that a plan is no longer in force.

        Args:
            chunks: Whether to read the chunks of a snapshot as well; there may be very many.

        Raises:
            SinkConnectionError: Kafka does not answer.
            DamagedRecordError: A record is damaged.
            ForeignLedgerError: The ledger belongs to another topic.prefix or another program (TOPIC-08).
        """
        found = self._read_committed(60.0, stable=True)
        if found is None:
            return LedgerState()
        ledger_values = found[1]
        require_own_records(self.topic, ledger_values)
        read_before = self._read_before if self._open else None
        state = self._build_state(ledger_values, chunks=chunks, read_before=read_before)
        require_own_prefix(self.topic, self._prefix, state)
        return state

    def current_id(self) -> str | None:
        """Return Kafka's id of the topic as it is now; None without a topic, and where the brokers know no ids.

        Raises:
            SinkConnectionError: Kafka does not answer.
        """
        info = self._topic_info()
        id_ = None if info is None else info.id
        self._cache.keep_only(id_)
        return id_

    def _topic_info(self) -> TopicInfo | None:
        return existing_topics(self._admin(), [self.topic]).get(self.topic)

    def _read_committed(self, timeout_s: float, *, stable: bool = False) -> tuple[str | None, LedgerValues] | None:
        """Return the topic's id and the last value of each key, with its offset; None when there is no topic.

        Records that were there are looked for again for a while: a broker that has just restarted may not show them.

        Raises:
            RecordsLostError: The topic has gone back behind what it held.
        """
        deadline = time.monotonic() + MISSING_TIMEOUT_S
        while (found := self._read_values(timeout_s, stable=stable)) is not None:
            (id_, values), (expected_id, expected_end) = found, self._expected
            is_expected = id_ is not None and id_ == expected_id
            if not is_expected or values.progress_end >= expected_end:
                self._expected = id_, values.progress_end
                return found
            if time.monotonic() >= deadline:
                raise RecordsLostError(
                    "the ledger has lost records that Kafka had confirmed",
                    where=f"topic {self.topic}",
                    why=f"its last record of progress was at offset {expected_end}, and is at {values.progress_end} "
                    "now: a broker that lacked the rest became the leader (unclean election, or a lost disk)",
                    remedy=f"{PREVENT_LOSS}. Then run DAG mysql_cdc_reset_offset with offset=stored (events of an "
                    "unfinished batch may come a second time), and mysql_cdc_verify with history=true, as topics may "
                    "have lost records too",
                )
            self._cache.clear()
            time.sleep(_RETRY_INTERVAL_S)
        return None

    def _read_values(self, timeout_s: float, *, stable: bool) -> tuple[str | None, LedgerValues] | None:
        try:
            if found := self._cache.read_on(
                lambda id_, since: self._records(TopicInfo(1, id_), timeout_s, since, stable=stable)
            ):
                return found
        except SinkError as error:
            log.info("ledger %s: read again: %s", self.topic, error)
        info = self._topic_info()
        if info is None:
            return None
        values = LedgerValues().with_records(self._records(info, timeout_s, stable=stable))
        if self._open:
            self._cache.keep(info.id, values)
        return info.id, values

    def _records(
        self, info: TopicInfo | None, timeout_s: float, since: int = 0, *, committed: bool = True, stable: bool = False
    ) -> Iterable[TopicRecord]:
        return read_topic(
            self._settings,
            self.topic,
            timeout_s=timeout_s,
            admin=self._admin(),
            committed=committed,
            stable=stable,
            topic_info=info,
            consumer_cache=self._consumer,
            since={0: since},
        )

    def _build_state(self, values: LedgerValues, id_: str | None = None, **options: Any) -> LedgerState:
        """Return the state; an error says where in the topic a record stands."""
        state = build_ledger_state(
            values.values, id_, lambda key: f"topic {self.topic}, key {key}, offset {values.offsets[key]}", **options
        )
        return replace(state, progress_end=values.progress_end)

    def _known_writers(self) -> tuple[int | str, ...]:
        """Return the writers that may have a transaction open in this topic: all that have ever written to it."""
        values = LedgerValues().with_records(self._records(None, 10.0, committed=False))
        state = self._build_state(values, require_parts=False)
        return (*state.writer_ids(1), PLANNER)

    def _open_transaction_error(self, hidden: HiddenByTransaction) -> SinkConnectionError:
        ids = ", ".join(transactional_id(self._prefix, writer) for writer in self._known_writers())
        return SinkConnectionError(
            "the ledger cannot be read to its end",
            where=f"topic {self.topic}",
            why=f"an open transaction hides later records ({hidden}); one of these transactional ids opened it: {ids}",
            remedy="run the task again, which fences these writers, or wait for transaction.timeout.ms",
        )

    def begin(
        self,
        plan: BatchPlan,
        planner: RecordWriter | None = None,
        extra_records: ExtraRecords = (),
        after: BatchPlan | None = None,
        latest: LedgerState | None = None,
    ) -> LedgerState:
        """Put a plan in force; see ``takeover.begin_epoch``.

        Args:
            plan: The plan.
            planner: An initialised writer with the id ``<prefix>.plan``; None creates one.
            extra_records: Records that become visible with the plan, in one transaction.
            after: The batch before, where its writers live on.
            latest: The ledger since this planner's last record, if it is known.
        """
        if planner is not None:
            return begin_epoch(self, planner, plan, self._fence, extra_records, after, latest)
        with self._open_planner() as own_planner:
            return self.begin(plan, own_planner, extra_records, after, latest)

    def put(self, records: Mapping[str, bytes | None]) -> None:
        """Write further keys in one transaction.

        Args:
            records: Key to value (``plan.encode``); None deletes the key.
        """
        with self._open_planner() as writer:
            writer.commit([SideRecord(self.topic, key.encode(), value) for key, value in records.items()])

    def _fence(self, writers: Iterable[int | str]) -> None:
        self.fences += 1
        fence(self._settings, self._prefix, writers, transaction_timeout_ms=self._timeout_ms)

    def _open_planner(self) -> TransactionalWriter:
        writer = TransactionalWriter(
            self._settings, transactional_id(self._prefix, PLANNER), transaction_timeout_ms=self._timeout_ms
        )
        writer.init()
        return writer
