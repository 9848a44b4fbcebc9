"""What every job's driver does in Kafka: fence older attempts, write the plan and the outcome, create topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger import PLANNER
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import (
    CHUNK_PREFIX,
    OUTCOME_KEY,
    SNAPSHOT_KEY,
    VIEW_KEY,
    WRITERS_KEY,
    BatchPlan,
    bounded_counts,
    encode,
)
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import plan_records
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RUN_KEY, RunTally, added, taken_up
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.topic_names import schema_change_topic, table_topics
from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaBook
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.schema.history_cache import KeptHistory
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import HeadedRecord, Headers, SideRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

PUT_AT_ONCE = 2000
"""Records of one transaction of ``put_all``; with the longest keys of MySQL that is some megabytes."""


class JobLedger:
    """Write the driver's records of the ledger, each in a Kafka transaction of its own.

    Opening it takes over the driver's transactional id, so an older driver can no longer plan or report.

    Args:
        cfg: The connector's configuration.
        run: The run whose batches are counted together (``commit.run_tally``); empty counts none.
    """

    def __init__(self, cfg: ConnectorConfig, run: str = "") -> None:
        self._cfg, self._run = cfg, run
        self._tally: RunTally | None = None
        self._native = NativeCounts()
        self._tables: dict[str, int] = {}
        self._ledger = wiring.ledger(cfg)
        self._ledger.ensure()
        self._writer = wiring.record_writer(cfg, PLANNER)
        self._writer.init()
        self._last: LedgerState | None = None
        # Tasks ask for schemas, whose ids are committed, in threads of their own.
        self._writing = threading.Lock()
        self.schemas = SchemaBook(cfg, self._write, lambda: self.read(chunks=False))
        self._forms = Forms.wanted(cfg, self.schemas.id_of)
        self.history = KeptHistory()

    def __enter__(self) -> JobLedger:
        self._ledger.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._ledger.__exit__()
        finally:
            self.schemas.close()
            self._writer.close()

    def read(self, *, chunks: bool = True) -> LedgerState:
        """Read the ledger as read_committed consumers see it.

        Args:
            chunks: Whether the chunks of a snapshot are wanted.
        """
        found = self._ledger.read(chunks=chunks) or LedgerState()
        if chunks:
            self._last = found
        return found

    def latest(self) -> LedgerState:
        """Return the ledger as this job has read it last, with its own outcome; read it if the job wrote more since.

        Only for between two batches, where no writer of the job is at work: then nobody else but those who send
        signals can have written, and theirs wait for the next look. A newer attempt is found out by the next commit.
        """
        return self._last or self.read()

    def read_fencing(self) -> LedgerState:
        """Read the ledger to its end although writers have transactions open, which are fenced."""
        return self._ledger.read(fence_after_s=1.0, fence_planner=False) or LedgerState()

    def begin(self, plan: BatchPlan, beside: Sequence[SideRecord] = ()) -> LedgerState:
        """Put the plan in force: nobody but writers of the new attempt can add anything (``commit.takeover``).

        Args:
            plan: The plan of this job.
            beside: Records that become visible with the plan, in one transaction.

        Returns:
            The ledger with the plan in it, which bears the attempt's id now.

        Raises:
            OffsetConflictError: The ledger holds another plan.
        """
        self._last = None
        told = self._formed(beside, {})
        with self._writing:
            begun = self._ledger.begin(plan, self._writer, lambda found: [*told, *self._begin_tally(found)])
        self.schemas.begin(begun)
        return begun

    def ready_schemas(self, tables: Iterable[Table]) -> None:
        """Have the schemas of tables registered; nothing where all is JSON.

        Args:
            tables: The tables.

        Raises:
            SchemaError: A name or type has no form in Avro.
            RegistryError: The registry refuses one, or cannot be reached.
        """
        if self._forms is not None:
            for table in tables:
                options = wiring.table_options(self._cfg, table)
                self._forms.of_table(table, options, wiring.topic_of(self._cfg, table.id))

    def _formed(self, records: Sequence[SideRecord], headers: Mapping[str, Headers]) -> list[HeadedRecord]:
        """Return records in the form that the converters give them; before a transaction is open, as it may ask."""
        headed = [(topic, key, value, headers.get(topic)) for topic, key, value in records]
        return headed if self._forms is None else self._forms.sides(headed)

    def _begin_tally(self, found: LedgerState) -> list[SideRecord]:
        """Return the record of this run, before its first plan is in force; later the ledger holds it."""
        if not self._run or self._tally is not None:
            return []
        self._tally = taken_up(found, self._run)
        return [self.record(RUN_KEY, self._tally.to_json())]

    def note_tables(self, tables: Mapping[str, int]) -> None:
        """Take note of records of row events that the batch at work has written; ``write_outcome`` tells of them.

        Args:
            tables: Records by table (``TableId.path``).
        """
        self._tables = added(self._tables, tables)

    def note_native(self, counts: NativeCounts) -> None:
        """Take note of what the native kernel has decoded; ``write_outcome`` tells of it.

        Args:
            counts: Of one writer.
        """
        self._native = self._native.add(counts)

    @property
    def native(self) -> NativeCounts:
        """Return what the native kernel has decoded of the batch at work."""
        return self._native

    def replace_plan(self, plan: BatchPlan) -> None:
        """Write the plan in force anew, with the same work under today's configuration.

        Args:
            plan: The plan; nothing of it is committed yet.
        """
        records = plan_records(replace(plan, prefix=self._cfg[F.TOPIC_PREFIX]))
        self.commit([(self._cfg.ledger_topic, key.encode(), value) for key, value in records.items()])

    def allow_writers(self, count: int, ledger: LedgerState) -> None:
        """Write down that writers 0 to count - 1 may start, before they do, so that whoever comes next fences them.

        Args:
            count: Number of writers.
            ledger: What ``begin`` returned.
        """
        if count > ledger.ids:
            self.put(WRITERS_KEY, {"count": count})

    def require(self, plan: BatchPlan) -> None:
        """Check that this attempt is still in force, before a step that Kafka does not fence.

        Raises:
            FencedError: A newer one is.
        """
        self.read(chunks=False).require_plan(plan)

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Write one key in a transaction of its own."""
        self.commit([self.record(key, value)])

    def put_all(self, values: Iterable[tuple[str, dict[str, Any] | None]]) -> None:
        """Write many keys, in transactions of at most ``PUT_AT_ONCE`` records each.

        Args:
            values: Key and value of each; None deletes the key.
        """
        for part in _parts(values):
            self.commit([(self._cfg.ledger_topic, key.encode(), None if v is None else encode(v)) for key, v in part])

    def record(self, key: str, value: dict[str, Any]) -> SideRecord:
        """Return a ledger record, to be committed together with others."""
        return ledger_record(self._cfg, key, value)

    def commit(self, records: Sequence[SideRecord], headers: Mapping[str, Headers] = MappingProxyType({})) -> None:
        """Produce records, each to partition 0, and commit them as one transaction.

        Args:
            records: Topic, key, value of each.
            headers: Headers of the records of a topic, by topic.
        """
        self._write(self._formed(records, headers))

    def _write(self, records: Sequence[SideRecord | HeadedRecord]) -> None:
        with self._writing:
            self._last = None
            self._writer.commit(records)

    def put_counted(self, key: str, value: dict[str, Any], plan: BatchPlan, counts: Mapping[str, int]) -> None:
        """Write the key that makes a plan complete, and in the same transaction what the plan has written.

        Otherwise a driver that dies before the outcome would leave a complete plan of which nobody can tell.

        Args:
            key: The key.
            value: Its value.
            plan: The plan.
            counts: Records per topic.
        """
        self.commit([self.record(key, value), *self._counted(plan, counts)])

    def _counted(self, plan: BatchPlan, counts: Mapping[str, int]) -> list[SideRecord]:
        """Return the record of this run with a plan's records in it; one that is counted already changes nothing."""
        if self._tally is None:
            return []
        self._tally = self._tally.add(plan, counts, self._tables, self._native)
        self._tables, self._native = {}, NativeCounts()
        return [self.record(RUN_KEY, self._tally.to_json())]

    def write_outcome(
        self, plan: BatchPlan, *, counts: dict[str, int] | None = None, error: CdcError | None = None
    ) -> None:
        """Write how the batch ended; the operator reads it in every deploy mode.

        Args:
            plan: The batch.
            counts: Records per topic, when the batch is complete.
            error: What went wrong otherwise.

        Raises:
            FencedError: A newer attempt has taken over; then that is what went wrong, whatever else came of it (the
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
        last = self._last
        others = dict(last.others) if last is not None else {}
        counted = self._counted(plan, counts or {}) if error is None else []
        if counted and self._tally is not None:
            others[RUN_KEY] = self._tally.to_json()
        records = [self.record(OUTCOME_KEY, outcome), *counted]
        try:
            self.commit(records)
            self._last = None if last is None else replace(last, outcome=outcome, others=others)
        except FencedError as fenced:
            raise FencedError(
                "a newer attempt has taken over this run",
                where=f"epoch {plan.epoch} of {plan.owner or 'unknown'}",
                why=fenced.what if error is None else error.message(),
                remedy="nothing: the newer attempt goes on from what is committed",
                retriable=False,
            ) from (error or fenced)
        except CdcError:
            if error is None:
                raise
            # The error itself goes to the caller; Kafka may be the very thing that is broken.

    def wanted_topics(self, state: SchemaState) -> dict[str, TopicSpec]:
        """Return the topics of all captured tables, and those of schema changes and the like, with how to create them.

        Args:
            state: The tables.

        Raises:
            ConfigError: Two tables would share a topic, and no transform says so (FAULT-32).
        """
        cfg = self._cfg
        tables = [t for t in state.tables if cfg.captures(t)]
        named = table_topics(
            cfg[F.TOPIC_PREFIX],
            tables,
            reserved=wiring.reserved_topics(cfg),
            route=lambda t: cfg.route(t).topic,
            name=lambda table: wiring.own_topic(cfg, table),
        )
        specs = {topic: wiring.table_topic(cfg) for topic in named.values()}
        replication = cfg[F.TOPIC_CREATION_REPLICATION_FACTOR]
        for side in wiring.side_topics(cfg):
            if cfg[F.INCLUDE_SCHEMA_CHANGES] or side != schema_change_topic(cfg[F.TOPIC_PREFIX]):
                specs.setdefault(cfg.route(side).topic, TopicSpec(1, replication))
        return specs

    def create_topics(self, specs: Mapping[str, TopicSpec]) -> None:
        """Create topics, and the one of the schema history, where they are missing.

        Args:
            specs: From ``wanted_topics``.
        """
        # SCH-05, SCH-06: one partition, kept for ever.
        history = TopicSpec(
            1,
            self._cfg[F.TOPIC_CREATION_REPLICATION_FACTOR],
            {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        )
        ensure_topics(make_admin(self._cfg.kafka_settings()), {**specs, self._cfg.history_topic: history})


def _parts(values: Iterable[tuple[str, dict[str, Any] | None]]) -> Iterator[list[tuple[str, dict[str, Any] | None]]]:
    rest = iter(values)
    while part := list(islice(rest, PUT_AT_ONCE)):
        yield part


def ledger_record(cfg: ConnectorConfig, key: str, value: dict[str, Any]) -> SideRecord:
    """Return a ledger record (topic, key, value)."""
    return cfg.ledger_topic, key.encode(), encode(value)


__all__ = ["CHUNK_PREFIX", "SNAPSHOT_KEY", "VIEW_KEY", "JobLedger", "ledger_record"]
