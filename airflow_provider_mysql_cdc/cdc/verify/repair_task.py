"""The task of a repair: opens a view, drains to the view's position, reads the suspects once more, and repairs them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs, write_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, WriterReport
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import WriterResult
from airflow_provider_mysql_cdc.cdc.drain.structure_check import difference_in_view
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError, SourceError, StateError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import OPENED
from airflow_provider_mysql_cdc.cdc.incremental.window_task import open_window_view
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.schema_texts import ask_driver_for_texts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, open_task
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import ViewPosition
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable, compared_table, tables_by_topic
from airflow_provider_mysql_cdc.cdc.verify.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import REPAIR_HEADER
from airflow_provider_mysql_cdc.cdc.verify.repair_writer import RepairIdentity, RepairWriter
from airflow_provider_mysql_cdc.cdc.verify.suspect_judge import JudgedTable, SuspectJudge
from airflow_provider_mysql_cdc.cdc.verify.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.time_limit import is_time_limit, time_limit
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import COMPARE
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind


@dataclass(frozen=True, slots=True)
class RepairInputs:
    """Hold what the task of a repair needs.

    Args:
        writer: What it needs as the writer of the batch that ends at the repair's position.
        suspects: The suspects.
        identity: Who repairs.
        max_rows: Most differences that are repaired.
        dry_run: Whether nothing is written.
    """

    writer: WriterInputs
    suspects: tuple[TableSuspects, ...]
    identity: RepairIdentity
    max_rows: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """Hold what was done about one table.

    Args:
        confirmed: Number of differences that are to be repaired, by kind.
        repaired: Number of differences that are repaired, by kind.
        dropped: Number of suspects that later events have mended, or that the view shows otherwise.
        reasons: What could not be repaired, and why.
    """

    confirmed: Mapping[DifferenceKind, int] = field(default_factory=dict)
    repaired: Mapping[DifferenceKind, int] = field(default_factory=dict)
    dropped: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Hold what a repair has done.

    Args:
        tables: By table.
        counts: Records by topic that were written.
    """

    tables: Mapping[TableId, TableOutcome] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def confirmed(self) -> int:
        """Return the number of differences that are to be repaired."""
        return sum(sum(outcome.confirmed.values()) for outcome in self.tables.values())

    @property
    def repaired(self) -> int:
        """Return the number of differences that are repaired."""
        return sum(sum(outcome.repaired.values()) for outcome in self.tables.values())


def run_repair_task(index: int, arguments: StageArguments[RepairInputs]) -> RepairReport:
    """Run the task of a repair; called in a Spark task of a barrier stage.

    Args:
        index: The task's index, which is its writer's index.
        arguments: What the task was started with.

    Returns:
        What it has done.
    """
    with (
        open_task(index, arguments) as (cfg, channel),
        contextlib.closing(kafka_clients.record_writer(cfg, index)) as sink,
        named_errors(cfg),
        connect(cfg.connection_settings()) as conn,
    ):
        view = open_window_view(conn, channel, table_options.decoder_options(cfg).skipped_ops)
        if view is None:
            return RepairReport()
        plan = OPENED.arrive(channel).plan
        written = write_batch(cfg, index, sink, channel, plan, arguments.inputs.writer)
        COMPARE.arrive(channel)
        task = _RepairTask(cfg, plan, index, conn, sink, channel, arguments.inputs, written)
        return task.run(view.unreadable)


@dataclass(slots=True)
class _RepairTask:
    """Judge all suspects, then repair them."""

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: Any
    sink: TransactionalWriter
    channel: CoordinatorClient
    inputs: RepairInputs
    written: WriterResult

    def run(self, unreadable: Mapping[TableId, str]) -> RepairReport:
        """Return what was done; nothing is written if there are too many differences.

        Args:
            unreadable: Why tables cannot be read in the view.
        """
        with time_limit(self.cfg, self.conn):
            judged, outcomes = self._judge(unreadable)
        report = RepairReport(outcomes)
        if self.inputs.dry_run or report.confirmed > self.inputs.max_rows:
            return report
        writer = self._writer()
        for table, each in judged.items():
            repaired = writer.write(each.repair)
            confirmed, outcome = sum(outcomes[table].confirmed.values()), outcomes[table]
            left = confirmed - sum(repaired.values())
            reasons = (*outcome.reasons, *((f"{left:,} could not be written",) if left else ()))
            outcomes[table] = TableOutcome(outcome.confirmed, repaired, outcome.dropped, reasons)
        return RepairReport(outcomes, writer.counts)

    def _judge(
        self, unreadable: Mapping[TableId, str]
    ) -> tuple[dict[TableId, JudgedTable], dict[TableId, TableOutcome]]:
        tables = self._tables()
        by_topic = tables_by_topic(tables.values())
        lookup_schema = ask_driver_for_texts(self.channel)
        judge = SuspectJudge(
            self.cfg,
            self.plan,
            self.conn,
            RecordFormats.from_config(self.cfg, ask_driver(self.channel)),
            lambda topic: event_reader(self.cfg, topic, lookup_schema),
        )
        judged, outcomes = dict[TableId, JudgedTable](), dict[TableId, TableOutcome]()
        for suspects in self.inputs.suspects:
            name = suspects.table
            compared = tables.get(name)
            reason = self._unreadable_reason(compared, suspects.structure, unreadable.get(name, ""))
            if compared is not None and not reason:
                reason = judge.hidden_reason(compared.topic)
            if compared is None or reason:
                outcomes[name] = TableOutcome(reasons=(reason,))
                continue
            each = judged[name] = judge.judge(compared, suspects, by_topic[compared.topic])
            confirmed = each.repair.kinds()
            outcomes[name] = TableOutcome(confirmed, {}, each.dropped, each.reasons)
        return judged, outcomes

    def _tables(self) -> dict[TableId, ComparedTable]:
        """Return the tables of the suspects, and the others of their topics, at the position of the view."""
        state = self.written.state
        if state is None:
            raise StateError(
                "a task does not know the structures at the position of the repair",
                why="an earlier attempt of it had written its part of the batch",
                remedy="run the task again",
                retriable=True,
            )
        topics = {suspects.topic for suspects in self.inputs.suspects}
        names = [
            name
            for name in sorted(state.tables)
            if self.cfg.captures(name) and record_topics.table_topic_name(self.cfg, name) in topics
        ]
        versions = {suspects.table: suspects.versions for suspects in self.inputs.suspects}
        return {
            name: compared_table(self.cfg, number, state.tables[name], versions=versions.get(name))
            for number, name in enumerate(names)
        }

    def _unreadable_reason(self, compared: ComparedTable | None, structure: Table, reason: str) -> str:
        """Return why a table cannot be repaired in this view; empty if it can."""
        if compared is None:
            return "the table was dropped or renamed meanwhile"
        if reason:
            return reason
        if compared.table != structure:
            # Keys of another structure have other forms, by which no row would be found.
            return "its structure has changed since it was compared; verify again"
        if compared.topic not in self.plan.partitions:
            return f"its topic {compared.topic} was created during this batch"
        try:
            difference = difference_in_view(self.conn, compared.table)
        except (SchemaMismatchError, SourceError) as error:
            if isinstance(error, SourceConnectionError) or is_time_limit(error):
                raise
            return error.why
        return f"its structure differs from the server's: {difference}" if difference else ""

    def _writer(self) -> RepairWriter:
        run = self.inputs.identity.run
        position = ViewPosition(
            self.plan.end, time.time_ns() // 1_000_000, self.written.last_transaction, self.written.commit_ts
        )
        return RepairWriter(
            self.cfg,
            self.plan,
            self.index,
            self.sink,
            position,
            [*table_options.headers(self.cfg, self.inputs.writer.run_id), (REPAIR_HEADER, run.encode())],
            self.inputs.identity,
            ask_driver_for_texts(self.channel),
            self._report_line,
        )

    def _report_line(self, line: str) -> None:
        self.channel.call(PROGRESS, WriterReport(str(self.plan.end), 0, once=line))
