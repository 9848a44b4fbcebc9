"""One round of a verification: open views at one position, drain to it, compare tables and topics.

The views of the tasks are opened under the short read lock that the view of a snapshot is opened with, and the batch of
that moment ends at the views' position. So the topics hold exactly what the views show, while the source goes on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import MOVED_KEY, TAKEN_OVER_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs, finish_batch
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.emit.envelope import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaTexts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader, StageRunner
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskHandler
from airflow_provider_mysql_cdc.cdc.job.task_runner import Shuffle
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import estimated_rows
from airflow_provider_mysql_cdc.cdc.verify.checksum_reader import has_checksums
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import bucket_count
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_fold import (
    ChecksumResult,
    DifferingKeys,
    ReduceBucket,
    add_counts_of_checksums,
    differing_keys,
    keys_left,
    merge_checksums,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.folding import BucketResult, merge_results
from airflow_provider_mysql_cdc.cdc.verify.compare.judged_kinds import (
    TopicFacts,
    ad_hoc_views,
    chooses_partition_by_key,
    unchecked_histories,
    unfinished_tables,
    unjudged_kinds,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import Bounds, TableSuspects, collect_suspects
from airflow_provider_mysql_cdc.cdc.verify.compared_topics import ComparedTopics
from airflow_provider_mysql_cdc.cdc.verify.history.batch_counts import PartCounts
from airflow_provider_mysql_cdc.cdc.verify.history.transactions import transaction_check
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import sql_texts
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import repairs_by_topic
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_window import most_found
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import TableVerdict, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import CarriedRowComparison
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import KnownViews, TableVersions, read_versions
from airflow_provider_mysql_cdc.cdc.verify.verdicts import TopicComparison, build_verdicts
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import (
    COMPARE,
    NEXT_PART,
    RECORDS_COUNTED,
    RECORDS_UNREADABLE,
    TABLE_UNREAD,
    VERSIONS,
    PartQueue,
    UnreadableRecords,
    UnreadTable,
    VerifyInputs,
    topic_ranges,
)
from airflow_provider_mysql_cdc.cdc.verify.verify_task import compared_tables, run_verify_task
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import connect_views
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import (
    BARRIER_TIMEOUT_S,
    ViewBatch,
    rows_per_query,
    split_tables,
    time_limit,
)

ENTRIES_PER_BUCKET = 50_000
"""Entries that one task of the comparison is to hold in memory."""
CHECKSUM_SHARE = 0.2
"""Memory for the state of a key in a comparison of checksums, as a share of that for an entry."""
MAX_BUCKETS = 4096


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Hold what a round has found.

    Args:
        offset: The position at which tables and topics were compared.
        suspects: Rows that a repair reads once more.
        counts: Records by topic that the round's batch has written.
        differing: Keys of tables without a verdict, whose rows have to be compared because checksums differ.
    """

    offset: BinlogOffset
    verdicts: tuple[TableVerdict, ...]
    suspects: tuple[TableSuspects, ...]
    counts: dict[str, int]
    differing: Mapping[TableId, DifferingKeys] = field(default_factory=dict)


@dataclass(slots=True)
class VerifyRound:
    """Compare at one position.

    Args:
        context: The drain after a batch.
        request: What is asked for.
        schema_texts: Texts of schemas for the tasks.
        names: The tables to compare.
        differing: Keys to look at, of the tables of which checksums differ; None where checksums come first.
    """

    context: BatchContext
    request: VerifyRequest
    schema_texts: SchemaTexts
    names: Sequence[TableId]
    differing: Mapping[TableId, DifferingKeys] | None = None
    _checksum_buckets: Mapping[int, int] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _queue: PartQueue | None = None
    _tables: Mapping[TableId, ComparedTable] = field(default_factory=dict)
    _planned: Mapping[TableId, ComparedTable] = field(default_factory=dict)
    _gone: Mapping[TableId, str] = field(default_factory=dict)
    _facts: dict[str, TopicFacts] = field(default_factory=dict)
    _compared: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    _unread: dict[TableId, str] = field(default_factory=dict)
    _unfinished: Mapping[TableId, str] = field(default_factory=dict)
    _versions: Mapping[TableId, TableVersions] = field(default_factory=dict)
    _unreadable: list[UnreadableRecords] = field(default_factory=list)
    _tasks: int = 1
    _transaction_topic: str = ""
    _counts_of_parts: PartCounts = field(default_factory=PartCounts)
    _unchecked: Mapping[int, str] = field(default_factory=dict)

    def compare(self) -> RoundOutcome:
        """Compare, and return what was found; the lock of the stream is free then."""
        context, names = self.context, self.names
        # Spark says it by a job of its own, which gets no slot while the stage has them all.
        tasks = self._tasks = self._task_count()
        views = ViewBatch(context, tasks, "a verification")
        schema_state = views.schema_state
        self._unfinished = unfinished_tables(views.ledger)
        tables, topics = compared_tables(context.cfg, names, schema_state.tables), ComparedTopics(context)
        self._planned = tables
        bounds = topics.bounds({compared.topic for compared in tables.values()})
        self._checksum_buckets, buckets = self._bucket_counts(tables.values(), bounds, tasks)
        columns = {compared.number: compared.columns for compared in tables.values()}
        rules = topics.history_rules(tables.values()) if self.request.history else {}
        # TiCDC's records say neither their transaction nor their place in the binlog.
        placed = {} if context.cfg.is_ticdc else rules
        transactions = transaction_check(
            context.cfg,
            self.request,
            tables.values(),
            placed,
            lambda topic: bounds.get(topic) or topics.bounds([topic])[topic],
        )
        self._unchecked = transactions.reasons or unchecked_histories(context.cfg, rules)
        self._transaction_topic = transactions.topic
        self._counts_of_parts = PartCounts.of_tables(context.cfg, tables.values(), placed)
        moving = frozenset(c.number for c in tables.values() if not chooses_partition_by_key(context.cfg, c))

        def lead(stage_ended: threading.Event) -> None:
            self._lead(views)

        inputs = VerifyInputs(
            WriterInputs(schema_state, new_run_id(), server_variables(context.conn)),
            tuple(names),
            buckets,
            self.request.sample_percent,
            context.cfg[F.VERIFY_ROWS_PER_SECOND],
            tasks,
            frozenset(rules),
            transactions.topic,
            self._checksum_buckets,
            self.differing or {},
            self._counts_of_parts.batches,
            self.request.checksums,
            topics.judged_tombstones(tables.values()),
            repairs_by_topic(views.ledger),
        )
        results = StageRunner(context.cfg, context.runner, context.job.schema_ids).run_barrier_shuffled(
            run_verify_task,
            StageLeader(context.cfg, views.barrier, lead, "the driver of a verification failed", BARRIER_TIMEOUT_S),
            inputs,
            self._handlers(views),
            Shuffle(
                buckets,
                ReduceBucket(
                    most_found(context.cfg, self.request),
                    rules,
                    CarriedRowComparison(columns),
                    moving,
                    transactions.tables,
                ),
            ),
        )
        found = merge_results((result.rows for result in results), most_found(context.cfg, self.request))
        return self._outcome(views.batch.plan.end, found, merge_checksums(result.checksums for result in results))

    def _task_count(self) -> int:
        parallelism = self.context.cfg[F.SNAPSHOT_PARALLELISM]
        slots = self.context.runner.slots(parallelism)
        return max(1, min(parallelism or slots, slots))

    def _bucket_counts(
        self, tables: Iterable[ComparedTable], bounds: Mapping[str, Bounds], tasks: int
    ) -> tuple[dict[int, int], int]:
        """Return the numbers of buckets from what is expected: of keys, by table, and of the tasks that compare."""
        cfg, entries, buckets = self.context.cfg, 0.0, dict[int, int]()
        by_checksums = self.differing is None and not self.request.history
        for compared in tables:
            rows = estimated_rows(self.context.conn, compared.table.id)
            records = sum(end - first for first, end in bounds[compared.topic].values())
            if by_checksums and has_checksums(cfg, compared):
                buckets[compared.number] = bucket_count(max(rows, records))
                has_sums = self.request.checksums and sql_texts(cfg, compared.table) is not None
                entries += (records if has_sums else rows + records) * CHECKSUM_SHARE
            else:
                entries += rows + records
        return buckets, min(MAX_BUCKETS, max(tasks, math.ceil(entries / ENTRIES_PER_BUCKET)))

    def _require_committed_bounds(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the bounds of all topics to read; tables of which records are hidden are not compared.

        Raises:
            SinkConnectionError: Records of the transaction topic are hidden.
        """
        by_topic: dict[str, list[TableId]] = {topic: [] for topic in [self._transaction_topic] if topic}
        for name, compared in self._tables.items():
            by_topic.setdefault(compared.topic, []).append(name)
        ends = ComparedTopics(self.context).committed(by_topic)
        if (reason := ends.hidden.get(self._transaction_topic)) is not None:
            where = f"topic {self._transaction_topic}"
            raise SinkConnectionError("a topic cannot be read to its end", where=where, why=reason)
        for topic, reason in ends.hidden.items():
            self._unread.update(dict.fromkeys(by_topic[topic], reason))
            self.context.log(f"verification: tables of topic {topic} are not compared: {reason}")
        return {topic: ends.bounds.get(topic, {}) for topic in by_topic}

    def _handlers(self, views: ViewBatch) -> list[TaskHandler]:
        return [
            *views.handlers(),
            views.barrier.handler(COMPARE),
            self.schema_texts.handler(),
            NEXT_PART.handled_by(lambda task, request: self._required_queue().next(task, request)),
            RECORDS_UNREADABLE.handled_by(self._add_unreadable),
            RECORDS_COUNTED.handled_by(lambda task, part: self._counts_of_parts.add(part)),
            TABLE_UNREAD.handled_by(self._add_unread),
            VERSIONS.handled_by(lambda task, name: self._versions[TableId(name.db, name.table)]),
        ]

    def _required_queue(self) -> PartQueue:
        assert self._queue is not None  # a task reads after it was released from COMPARE
        return self._queue

    def _add_unreadable(self, task: int, report: UnreadableRecords) -> EmptyMessage:
        self._unreadable.append(report)
        return EMPTY

    def _add_unread(self, task: int, report: UnreadTable) -> EmptyMessage:
        self._unread[TableId(report.db, report.table)] = report.reason
        return EMPTY

    def _lead(self, views: ViewBatch) -> None:
        """Take the tasks from one point of their barrier to the next, while their stage runs."""
        context, names = self.context, self.names
        views.begin(names, context.cfg.replica_settings())
        batch = views.batch
        try:
            views.barrier.wait(COMPARE, unlimited=True)
            self._counts = finish_batch(context.job, context.cfg, batch)
        except CdcError as error:
            views.note_error(error)
            raise
        context.log(views.progress.summary(self._counts, context.job.native_counts.text()))
        context.require_lock()
        context.job.write_outcome(batch.plan, counts=self._counts)
        self._queue = self._fill_queue(names, batch.plan)
        # The ids of schemas are ledger records, which a run without its lock does not write.
        context.job.register_schemas(compared.table for compared in self._tables.values())
        context.log("the stream goes on: other runs may drain while tables and topics are compared")
        context.release_lock()
        self._versions = self._read_versions(names, batch.plan)
        views.barrier.release(COMPARE, EMPTY)

    def _fill_queue(self, names: Sequence[TableId], plan: BatchPlan) -> PartQueue:
        """Return the parts to read: the tables' chunks, and the topics' records up to now, all of the views' past."""
        context = self.context
        state = load_schema_state(context.cfg, until=plan.end, epoch=plan.epoch + 1, cache=context.job.history_cache)
        self._tables = compared_tables(context.cfg, names, state.tables)
        self._gone = {n: table_topic_name(context.cfg, n) for n in names if n not in self._tables}
        for name in self._gone:
            context.log(f"verification: {name} was dropped or renamed meanwhile")
        ranges = []
        bounds_of = self._require_committed_bounds()
        for topic, bounds in bounds_of.items():
            hidden = any(c.topic == topic and name in self._unread for name, c in self._tables.items())
            ranges += [] if hidden else topic_ranges(topic, bounds)
        self._compared.update({c.topic: bounds_of[c.topic] for c in self._tables.values()})
        topics = ComparedTopics(context)
        for topic, bounds in self._compared.items():
            has_other_keys = any(c.topic == topic and not c.own_key and not c.keyless for c in self._tables.values())
            self._facts[topic] = topics.facts(topic, bounds, has_other_keys=has_other_keys)
        chunk_rows = rows_per_query(context.cfg, self._tasks)
        with connect_views(context.cfg) as conn, time_limit(context.cfg, conn):
            tables = (compared.table for name, compared in self._tables.items() if name not in self._unread)
            chunks = split_tables(conn, tables, chunk_rows, context.log)
        context.log(
            f"verification at {plan.end}: {len(self._tables)} table(s) in {len(chunks)} chunk(s), "
            f"{sum(part.end - part.start for part in ranges):,} offsets of {len(self._facts)} topic(s)"
        )
        return PartQueue(chunks, ranges, context.log)

    def _read_versions(self, names: Sequence[TableId], plan: BatchPlan) -> Mapping[TableId, TableVersions]:
        context = self.context
        ledger = context.job.latest()
        view = ledger.other_records.get(VIEW_KEY)
        offset = None if view is None else BinlogOffset.from_json(view["offset"])
        versions = read_versions(context.cfg, names, plan.end, plan.epoch + 1, offset)
        if not ledger.other_records.keys() & {MOVED_KEY, TAKEN_OVER_KEY}:
            versions = {name: replace(each, read_again=False) for name, each in versions.items()}
        if (registry := context.cfg.registry_settings("key")) is not None and not registry.guids_for:
            ids = context.job.schema_ids.key_ids
            versions = {n: replace(v, key_ids=ids(table_topic_name(context.cfg, n))) for n, v in versions.items()}
        if not context.cfg.is_ticdc:  # whose records say how they are written, and are in the order of their timestamps
            if view is None or offset is None:
                return versions
            scans = read_incremental_state(ledger)
            ad_hoc, since_ms = ad_hoc_views(scans), max(view["ts_ms"], scans.complete_since_ms)
            place = offset.file, offset.pos, view["ts_ms"], since_ms
            known = {n: KnownViews(*place, tuple(ad_hoc.get(n, ()))) for n in names}
            return {name: replace(each, views=known[name]) for name, each in versions.items()}
        view_ts = None if view is None else view.get("commit_ts")
        return {name: each.without_places(view_ts) for name, each in versions.items()}

    def _outcome(self, offset: BinlogOffset, found: BucketResult, checksums: ChecksumResult) -> RoundOutcome:
        context = self.context
        by_checksums = [c for c in self._tables.values() if c.number in self._checksum_buckets]
        differing = differing_keys(by_checksums, self._checksum_buckets, checksums, compared_by_rows=found.counts)
        others = {name for name, c in self._tables.items() if c.number in checksums.unjudged}
        differing |= keys_left(self.differing or {}, others)
        # Rows and records were compared by the structures from before the round's batch.
        planned = {name: compared.table for name, compared in self._planned.items()}
        changed = {name: c.table for name, c in self._tables.items() if c.table != planned.get(name, c.table)}
        differing |= {name: DifferingKeys(table, 1) for name, table in changed.items()}
        differing = {name: keys for name, keys in differing.items() if name not in self._unread}
        # Without sums the checksum of each row was compared.
        equal = frozenset(c.number for c in by_checksums if self.request.checksums and c.number not in found.counts)
        add_counts_of_checksums(found.counts, checksums)
        tables = [compared for name, compared in self._tables.items() if name not in differing]
        unjudged = {
            c.table.id: unjudged_kinds(context.cfg, c.table.id, self._facts[c.topic], self._unfinished) for c in tables
        }
        comparison = TopicComparison(
            tables, found, unjudged, self._unread, self._unreadable, self._gone, self._unchecked, equal
        )
        comparison.lost = self._counts_of_parts.lost(tables, self._compared)
        compared = [each for each in tables if each.table.id not in self._unread]
        return RoundOutcome(
            offset,
            build_verdicts(comparison, self.request),
            collect_suspects(compared, found.found, unjudged, self._versions),
            self._counts,
            differing,
        )
