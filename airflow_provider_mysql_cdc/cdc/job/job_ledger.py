"""The driver's part in Kafka, for every job: fence older attempts, write plan and outcome, create topics."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger import PLANNER
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    ENDS_KEY,
    MOVED_KEY,
    OUTCOME_KEY,
    RUN_KEY,
    WRITERS_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, bounded_counts, encode
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import plan_records
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally, add_counts, initial_tally
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.topic_names import schema_change_topic
from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError, RecordsLostError, RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import begin_batch, register_schemas, with_chain
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.job.checked_topics import CheckedTopics
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobMetrics
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaIds
from airflow_provider_mysql_cdc.cdc.model.records import Headers, NativeCounts, SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.schema.history_replay import HistoryCache
from airflow_provider_mysql_cdc.cdc.schema.statement_size import name_statement, statement_of_records
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

MAX_TRANSACTION_RECORDS = 2000
"""Records in one transaction of ``put_all``; with the longest keys of MySQL these are some megabytes."""
MAX_ENDS, ENDS_INTERVAL_S = 200, 30.0
"""Topics whose ends are recorded, and seconds between two times in a run of many batches."""


class JobLedger:
    """Write the driver's records of the ledger, each in a Kafka transaction of its own.

    Opening it takes over the driver's transactional id, so an older driver can no longer plan or report.

    Args:
        cfg: The connector's configuration.
        run: The run whose batches are counted together (``commit.run_tally``); empty counts none.

    Attributes:
        history_cache: The schema history as far as this job has read it.
        metrics: What it measures.
        checked_topics: Its topics as it has last found them; None before its first batch.
    """

    def __init__(self, cfg: ConnectorConfig, run: str = "") -> None:
        self._cfg, self._run = cfg, run
        self._tally: RunTally | None = None
        self._native_counts = NativeCounts()
        self._table_counts: dict[str, int] = {}
        self._ends: dict[str, dict[str, Any]] = {}
        self._ends_noted, self._ends_due, self._unnoted = False, 0.0, dict[str, int]()
        self._ledger = kafka_clients.ledger(cfg)
        self._ledger.ensure()
        self.schema_ids = SchemaIds(cfg, self._write, lambda: self.read(chunks=False))
        self._writer = with_chain(cfg, kafka_clients.record_writer(cfg, PLANNER), self.schema_ids.id_of)
        self._last_state: LedgerState | None = None
        # Requests of tasks for schema ids, which are committed, run in threads of their own.
        self._write_lock = threading.Lock()
        self._avro_formats = RecordFormats.from_config(cfg, self.schema_ids.id_of)
        self.history_cache, self.metrics = HistoryCache(), JobMetrics(cfg)
        self.checked_topics: CheckedTopics | None = None

    def __enter__(self) -> JobLedger:
        self._ledger.__enter__()
        try:
            # A ledger that is refused is another version's or stream's: a driver of theirs may live, and is not fenced.
            self._ledger.claim()
            self._writer.init()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._ledger.__exit__()
        finally:
            self.schema_ids.close()
            self._writer.close()

    @property
    def fences(self) -> int:
        """Return how often this job has fenced writers."""
        return self._ledger.fences

    def read(self, *, chunks: bool = True) -> LedgerState:
        """Read the ledger as read_committed consumers see it.

        Args:
            chunks: Whether to read the chunks of a snapshot as well.
        """
        state = self._ledger.read(chunks=chunks) or LedgerState()
        begin_batch(self._writer, None, state.topics)
        if chunks:
            self._last_state = state
        return state

    def latest(self) -> LedgerState:
        """Return the ledger as this job has last read it, with its own outcome; read it if the job has written more.

        To be used only between two batches, when no writer of the job is running: then only senders of signals can have
        written, and their signals wait for the next read. The next commit finds out about a newer attempt.
        """
        return self._last_state or self.read()

    def read_fencing(self) -> LedgerState:
        """Read the ledger to its end; writers with open transactions are fenced."""
        return self._ledger.read(fence_after_s=1.0, fence_planner=False) or LedgerState()

    def begin(
        self,
        plan: BatchPlan,
        extra_records: Sequence[SideRecord] = (),
        first_records: Sequence[SideRecord] = (),
        after: BatchPlan | None = None,
    ) -> LedgerState:
        """Put the plan in force: only writers of the new attempt can add anything afterwards (``commit.takeover``).

        Args:
            plan: The plan of this job.
            extra_records: Records that become visible with the plan, in one transaction.
            first_records: The same, but only where the plan is not in the ledger yet; without headers.
            after: The batch before, where its writers live on.

        Returns:
            The ledger with the plan in it, which has the attempt's id now.

        Raises:
            OffsetConflictError: The ledger holds another plan.
        """
        latest, self._last_state = self._last_state, None
        moved = [self.record(MOVED_KEY, {"ms": plan.created_ms})] if plan.kind == "reset" else []
        headed_records = self._converted([*extra_records, *moved], {})
        with self._write_lock:
            state = self._ledger.begin(
                plan,
                self._writer,
                lambda found: [
                    *(() if found.plan is not None and found.plan.same_work(plan) else first_records),
                    *headed_records,
                    *self._begin_tally(found),
                ],
                after,
                latest,
            )
        self.schema_ids.begin(state)
        self._ends = dict(state.other_records.get(ENDS_KEY, {}).get("topics", {}))
        return state

    def register_schemas(self, tables: Iterable[Table]) -> None:
        """Register the schemas of tables; does nothing where all records are JSON.

        Args:
            tables: The tables.

        Raises:
            SchemaError: A name or type cannot be expressed in Avro.
            RegistryError: The registry refuses one, or cannot be reached.
        """
        if self._avro_formats is not None:
            for table in tables:
                options = table_options.table_options(self._cfg, table)
                self._avro_formats.table_format(table, options, record_topics.table_topic_name(self._cfg, table.id))

    def _converted(self, records: Sequence[SideRecord], headers: Mapping[str, Headers]) -> list[SideRecord]:
        """Return records as the converters write them; call it before a transaction, as it may call the registry."""
        headed = [record._replace(headers=headers.get(record.topic)) for record in records]
        register_schemas(self._writer, headed)
        return headed if self._avro_formats is None else self._avro_formats.format_side_records(headed)

    def _begin_tally(self, ledger: LedgerState) -> list[SideRecord]:
        """Return the record of this run before its first plan is in force; later the ledger holds it."""
        if not self._run or self._tally is not None:
            return []
        self._tally = initial_tally(ledger, self._run)
        self.metrics.base = self._tally.metrics
        return [self.record(RUN_KEY, self._tally.to_json())]

    def note_topic_ends(self, ends: Mapping[str, dict[str, Any]]) -> None:
        """Note where topics end behind a batch; ``write_outcome`` records it, of those that were written to last.

        Args:
            ends: Of each topic its id, and the ends by partition (``topic_guard.note_topic_ends``).
        """
        earlier = [(topic, end) for topic, end in self._ends.items() if topic not in ends]
        self._ends, self._ends_noted = dict([*earlier, *ends.items()][-MAX_ENDS:]), True
        self._ends_due, self._unnoted = time.monotonic() + ENDS_INTERVAL_S, {}

    def ends_due(self, counts: Mapping[str, int]) -> Mapping[str, int]:
        """Return the records by topic since ends were noted last; none where that was a moment ago in this run.

        Args:
            counts: Records by topic of the batch that has ended.
        """
        self._unnoted = add_counts(self._unnoted, counts)
        return self._unnoted if time.monotonic() >= self._ends_due else {}

    def add_table_counts(self, tables: Mapping[str, int]) -> None:
        """Add the records of row events that the current batch has written; ``write_outcome`` writes the sum.

        Args:
            tables: Records by table (``TableId.path``).
        """
        self._table_counts = add_counts(self._table_counts, tables)

    def add_native_counts(self, counts: NativeCounts) -> None:
        """Add what the native kernel has decoded; ``write_outcome`` writes the sum.

        Args:
            counts: Counts of one writer.
        """
        self._native_counts = self._native_counts.add(counts)

    @property
    def native_counts(self) -> NativeCounts:
        """Return what the native kernel has decoded of the current batch."""
        return self._native_counts

    def replace_plan(self, plan: BatchPlan) -> None:
        """Replace the plan in force by one of the same attempt, and wait until others can read it.

        Kafka may confirm a transaction before its records are visible, and a writer that still found the former plan
        would take this one for that of another attempt.

        Args:
            plan: The plan; nothing of what it has other than the former one is committed yet.
        """
        self.commit(self.plan_records(plan))
        self.read(chunks=False)

    def plan_records(self, plan: BatchPlan) -> list[SideRecord]:
        """Return the records of a plan that replaces the one in force, to be committed together with others.

        Args:
            plan: The plan.
        """
        records = plan_records(plan)
        return [SideRecord(self._cfg.ledger_topic, key.encode(), value) for key, value in records.items()]

    def reserve_writers(self, count: int, ledger: LedgerState) -> None:
        """Record that writers 0 to count - 1 may start, before they do, so that the next attempt fences them.

        Args:
            count: Number of writers.
            ledger: The ledger that ``begin`` returned.
        """
        if count > ledger.writer_count:
            self.put(WRITERS_KEY, {"count": count})

    def require(self, plan: BatchPlan) -> None:
        """Check that this attempt is still in force, before a step that Kafka does not fence.

        Raises:
            FencedError: A newer attempt is.
        """
        self.read(chunks=False).require_plan(plan)

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Write one key in a transaction of its own."""
        self.commit([self.record(key, value)])

    def put_all(self, values: Iterable[tuple[str, dict[str, Any] | None]]) -> None:
        """Write many keys, in transactions of at most ``MAX_TRANSACTION_RECORDS`` records each.

        Args:
            values: Key and value of each; None deletes the key.
        """
        for part in _batches(values):
            topic = self._cfg.ledger_topic
            self.commit([SideRecord(topic, key.encode(), None if v is None else encode(v)) for key, v in part])

    def record(self, key: str, value: dict[str, Any]) -> SideRecord:
        """Return a ledger record, to be committed together with others."""
        return ledger_record(self._cfg, key, value)

    def commit(
        self,
        records: Sequence[SideRecord],
        headers: Mapping[str, Headers] = MappingProxyType({}),
        check: Callable[[], None] | None = None,
    ) -> None:
        """Produce records, each to partition 0, and commit them as one transaction.

        Args:
            records: The records, without headers.
            headers: Headers of the records of a topic, by topic.
            check: Called when Kafka has the records, before they become visible; they do not when it raises an error.

        Raises:
            RecordTooLargeError: Kafka does not accept one; none of them is visible.
        """
        try:
            self._write(self._converted(records, headers), check)
        except RecordTooLargeError as error:
            with self._write_lock, contextlib.suppress(CdcError):  # otherwise the transaction ends at its timeout
                self._writer.abort()
            where = f"structures of the tables, {self._cfg.topic_prefix}"
            raise name_statement(self._cfg, error, statement_of_records(self._cfg, error, records, where)) from error

    def _write(self, records: Sequence[SideRecord], check: Callable[[], None] | None = None) -> None:
        with self._write_lock:
            self._last_state = None
            if check is not None:
                self._writer.send(records)
                try:
                    check()
                except CdcError:
                    self._writer.abort()
                    raise
                records = ()
            self._writer.commit(records)

    def put_with_counts(
        self,
        key: str,
        value: dict[str, Any],
        plan: BatchPlan,
        counts: Mapping[str, int],
        records: Sequence[SideRecord] = (),
    ) -> None:
        """Write the key that makes a plan complete, and in the same transaction what the plan has written.

        Otherwise a driver that dies before it writes the outcome would leave a complete plan without counts.

        Args:
            key: The key.
            value: Its value.
            plan: The plan.
            counts: Records per topic.
            records: Further records of the same transaction.
        """
        self.commit([*records, self.record(key, value), *self._add_to_tally(plan, counts)])

    def _add_to_tally(self, plan: BatchPlan, counts: Mapping[str, int]) -> list[SideRecord]:
        """Return the record of this run with a plan's records added; a plan that is counted already changes nothing."""
        if self._tally is None:
            return []
        metrics = self.metrics.take()
        self._tally = self._tally.add(plan, counts, self._table_counts, self._native_counts, metrics)
        self.metrics.base = self._tally.metrics
        self._table_counts, self._native_counts = {}, NativeCounts()
        return [self.record(RUN_KEY, self._tally.to_json())]

    def count_rows(self, counts: Mapping[str, int], tables: Mapping[str, int], records: Sequence[SideRecord]) -> bool:
        """Add rows that an earlier run has written to the tally, and write records in the same transaction.

        Args:
            counts: Rows by topic.
            tables: Rows by table (``TableId.path``).
            records: Records which say that these rows are counted.

        Returns:
            Whether there is a tally; otherwise nothing is written.
        """
        if self._tally is None:
            return False
        self._tally = self._tally.add_rows(counts, tables)
        self.commit([*records, self.record(RUN_KEY, self._tally.to_json())])
        return True

    def write_outcome(
        self,
        plan: BatchPlan,
        *,
        counts: dict[str, int] | None = None,
        error: CdcError | None = None,
        records: Sequence[SideRecord] = (),
    ) -> None:
        """Write how the batch ended; the operator reads it in every deploy mode.

        Args:
            plan: The batch.
            counts: Records per topic, when the batch is complete.
            error: The error otherwise.
            records: Further records of the same transaction.

        Raises:
            FencedError: A newer attempt has taken over; then this is the cause, whatever other errors it led to (the
                newer attempt also ends this one's connection to the source, see ``run_lock``).
        """
        outcome = {
            "epoch": plan.epoch,
            "kind": plan.kind,
            "ok": error is None,
            "error": None if error is None else error.to_json(),
            "counts": bounded_counts(counts or {}),
            "ts_ms": time.time_ns() // 1_000_000,
        }
        last_state = None if records else self._last_state
        other_records = dict(last_state.other_records) if last_state is not None else {}
        ends = {ENDS_KEY: {"topics": self._ends}} if error is None and self._ends_noted else {}
        tally_records = self._add_to_tally(plan, counts or {}) if error is None else self.metrics.progress_records()
        if error is None and self._tally is not None:
            other_records[RUN_KEY] = self._tally.to_json()
        other_records |= ends
        end_records = [self.record(key, value) for key, value in ends.items()]
        try:
            self.commit([*records, self.record(OUTCOME_KEY, outcome), *tally_records, *end_records])
            self._ends_noted = self._ends_noted and error is not None
            self._last_state = (
                None if last_state is None else replace(last_state, outcome=outcome, other_records=other_records)
            )
        except FencedError as fenced:
            raise FencedError(
                "a newer attempt has taken over this run",
                where=f"epoch {plan.epoch} of {plan.owner or 'unknown'}",
                why=fenced.what if error is None else error.message(),
                remedy="nothing: the newer attempt continues from what is committed",
                retriable=False,
            ) from (error or fenced)
        except CdcError:
            if error is None:
                raise
            # The caller gets the error itself; it may be Kafka that is broken.
            if isinstance(error, RecordsLostError):
                # A producer whose records are gone may write there no more, and the next run must know.
                with contextlib.suppress(CdcError):
                    write_plain(self._cfg.kafka_settings(), [self.record(OUTCOME_KEY, outcome)])

    def required_topics(self, state: SchemaState) -> dict[str, TopicSpec]:
        """Return the topics of all captured tables, and those of schema changes and the like, with how to create them.

        Args:
            state: The tables.

        Raises:
            ConfigError: See ``record_topics.topics_of_tables``.
        """
        cfg = self._cfg
        topics_by_table = record_topics.topics_of_tables(cfg, state.tables)
        specs = {topic: record_topics.table_topic_spec(cfg, topic) for topic in topics_by_table.values()}
        for side in record_topics.side_topics(cfg):
            if cfg[F.INCLUDE_SCHEMA_CHANGES] or side != schema_change_topic(cfg[F.TOPIC_PREFIX]):
                specs.setdefault(cfg.route_topic(side).topic, record_topics.side_topic_spec(cfg))
        return specs

    def create_topics(self, specs: Mapping[str, TopicSpec]) -> None:
        """Create topics, and the one of the schema history, where they are missing.

        Args:
            specs: The topics, from ``required_topics``.
        """
        history = record_topics.history_topic_spec(self._cfg)
        admin = make_admin(self._cfg.kafka_settings("admin"))
        ensure_topics(admin, {**specs, self._cfg.history_topic: history})


def _batches(values: Iterable[tuple[str, dict[str, Any] | None]]) -> Iterator[list[tuple[str, dict[str, Any] | None]]]:
    remaining = iter(values)
    while batch := list(islice(remaining, MAX_TRANSACTION_RECORDS)):
        yield batch


def ledger_record(cfg: ConnectorConfig, key: str, value: dict[str, Any]) -> SideRecord:
    """Return a ledger record."""
    return SideRecord(cfg.ledger_topic, key.encode(), encode(value))


__all__ = ["JobLedger", "ledger_record"]
