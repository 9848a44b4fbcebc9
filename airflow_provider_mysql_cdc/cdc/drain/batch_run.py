"""One batch of a drain: what the driver does before and after the writers, and what each writer does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unchecked_records, unchecked_tables, unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.committer import require_unchanged_marker
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import (
    PROGRESS,
    SCHEMA_REFUSED,
    RefusedSchema,
    WriterReport,
)
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import WriterResult
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.failover.failover import carried_history
from airflow_provider_mysql_cdc.cdc.drain.failover.server_transactions import unread_purged_line
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import note_joined_tables
from airflow_provider_mysql_cdc.cdc.drain.taken_over import taken_over
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.drain.writer_context import KeptWriter, WriterContext
from airflow_provider_mysql_cdc.cdc.errors import (
    PREVENT_LOSS,
    BinlogCorruptError,
    BinlogPurgedError,
    CdcError,
    RecordsLostError,
    RecordTooLargeError,
    SourceError,
)
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import reduce_batch_size
from airflow_provider_mysql_cdc.cdc.job.config_guard import begin_pinned_plan
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.topic_guard import (
    note_topic_ends,
    prepare_topics,
    record_history_id,
    require_recorded_history,
    require_written_topics,
)
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.schema.history import history_end, load_schema_state, unmoved_end
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import delete_chunk_records


@dataclass(frozen=True, slots=True)
class StartedBatch:
    """Hold a batch that is in force.

    Args:
        plan: Its plan, with the attempt that executes it.
        ledger: The ledger when the plan came into force.
        state: Table structures as of its start.
    """

    plan: BatchPlan
    ledger: LedgerState
    state: SchemaState


@dataclass(frozen=True, slots=True)
class WriterInputs:
    """Hold what the writers of a batch need besides its plan.

    Args:
        state: Table structures as of the batch's start.
        run_id: Id of the run, for the context headers.
        server: Variables of the source (``server_variables``).
        commit_before_refusal: Whether a writer that meets a refused schema commits what it has produced before; where
            the batch can be shortened to a transaction boundary, this would prevent it.
        heartbeat_due_s: Seconds until the first heartbeat of the batch is due.
    """

    state: SchemaState
    run_id: str
    server: dict[str, int]
    commit_before_refusal: bool = False
    heartbeat_due_s: float = 0


def begin_batch(
    cfg: ConnectorConfig,
    job: JobLedger,
    plan: BatchPlan,
    log: Log,
    preloaded: SchemaState | None = None,
    *,
    offsets_checked: bool = False,
    after: BatchPlan | None = None,
) -> StartedBatch:
    """Put a batch in force and prepare everything that its writers need.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The batch.
        log: Takes one line of text.
        preloaded: Table structures as of its start, where the caller has them already.
        offsets_checked: Whether this driver has just made the plan and found both its offsets in the binlog; a writer
            checks its start again in any case (``open_stream``).
        after: The batch before, where its writers live on; None fences all writers.

    Raises:
        CdcError: The batch cannot be executed.
    """
    moved_from = plan.continued_from
    history = [] if moved_from is None else carried_history(cfg, moved_from, plan.start, plan.epoch)
    ledger, plan = begin_pinned_plan(cfg, job, plan, history, after)
    faults.fault_point("plan.after_store")
    if not offsets_checked:
        read_with_retries(cfg, log, partial(_require_available, cfg, plan))
    log(f"batch {plan.epoch}: {plan.start} -> {plan.end}, {plan.writers} writer(s)")
    if line := unread_purged_line(cfg, plan.start):
        log(line)
    if plan.epoch == 1:
        job.create_topics({})  # a stream without snapshot begins without a history topic
    if preloaded is None:
        state = _structures(cfg, job, plan, ledger)
    else:
        require_recorded_history(cfg, ledger)
        state = preloaded
    job.metrics.begin(plan, state.tables)
    if moved_from is not None:
        # A server may have tables of another structure: statements that were not logged, filters, a restored backup.
        # Statements of servers that do not count may be missing here, or stand here alone.
        captured = [table for table in state.tables if cfg.captures(table)]
        job.commit(list(unchecked_records(cfg.ledger_topic, ledger, captured, str(plan.start))))
    note_joined_tables(cfg, job, plan, ledger, state, log)
    prepare_topics(cfg, job, plan, ledger, state, log)
    record_history_id(cfg, job, ledger)
    return StartedBatch(plan, ledger, state)


def _require_available(cfg: ConnectorConfig, plan: BatchPlan) -> None:
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        # A file that holds the end holds the start; if both were purged, the writers check the start once more.
        for offset in (plan.end,) if plan.start.file == plan.end.file else (plan.start, plan.end):
            check_available(conn, settings, offset)


def cause_of(cfg: ConnectorConfig, plan: BatchPlan, error: CdcError) -> CdcError:
    """Return why a batch failed: a file that a living dump cannot read on may have been replaced by another one.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        error: The error with which it ended.
    """
    if isinstance(error, BinlogCorruptError):
        try:
            _require_available(cfg, plan)
        except BinlogPurgedError as replaced:
            return replaced
        except SourceError:
            pass  # a server that cannot be asked now; the first error says what is known
    return error


def _structures(cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, ledger: LedgerState) -> SchemaState:
    """Return the table structures as of the batch's start, of a history that is the stream's."""
    end = unmoved_end(cfg, job.history_cache) or history_end(cfg, require_recorded_history(cfg, ledger))
    history = job.metrics.history
    with history.recovering():
        return load_schema_state(
            cfg,
            until=plan.start,
            epoch=plan.epoch,
            on_record=history.on_record,
            cache=job.history_cache,
            end=end,
        )


def finish_batch(
    job: JobLedger, cfg: ConnectorConfig, batch: StartedBatch, range_counts: Iterable[Mapping[str, int]] = ()
) -> dict[str, int]:
    """Check that all writers have reached the batch's end, in topics that still are the same; return records per topic.

    Args:
        job: The ledger.
        cfg: The connector's configuration.
        batch: The batch.
        range_counts: Records by topic that tasks of a window have written after its batch.

    Raises:
        RecordsLostError: The ledger lacks the marker of a writer that has ended.
        TopicChangedError: A topic was deleted, created again or given more partitions meanwhile.
    """
    plan, ledger = batch.plan, job.read()
    done_markers = [m for m in ledger.markers.values() if m.epoch == plan.epoch and m.done]
    if len(done_markers) != plan.writers:
        raise RecordsLostError(
            f"the ledger lacks markers of batch {plan.epoch}: it has those of "
            f"{len(done_markers)} of {plan.writers} writers",
            where=f"topic {cfg.ledger_topic}",
            why="Kafka had confirmed each of them: a broker that lacked them became the leader (unclean election, or a "
            "lost disk), and the events that they count may be in the topics",
            remedy=f"{PREVENT_LOSS}. Then run DAG mysql_cdc_reset_offset with offset=stored (events of the batch may "
            "come a second time), and mysql_cdc_verify with history=true",
        )
    totals: dict[str, int] = {}
    for counts in (*(marker.counts for marker in done_markers), *range_counts):
        for topic, n in counts.items():
            totals[topic] = totals.get(topic, 0) + n
    for marker in done_markers:
        job.add_table_counts(marker.tables)
        job.add_native_counts(marker.native)
    job.metrics.add_writers([marker.metrics for marker in done_markers])
    require_written_topics(cfg, ledger, plan, totals)
    note_topic_ends(cfg, job, ledger, totals)
    delete_chunk_records(job, batch.ledger)
    return totals


def write_batch(
    cfg: ConnectorConfig,
    index: int,
    sink: TransactionalWriter,
    channel: CoordinatorClient,
    plan: BatchPlan,
    inputs: WriterInputs,
    window_keys: WindowKeys | None = None,
) -> WriterResult:
    """Write one writer's part of a batch alone, with nothing kept before or after.

    Args:
        cfg: The connector's configuration.
        index: The writer's index.
        sink: Its transactional producer, not yet initialised.
        channel: Calls to the driver.
        plan: The batch.
        inputs: What its writers need.
        window_keys: Remembers which rows of tables under incremental snapshot were changed; None outside of a window.

    Raises:
        CdcError: The batch could not be completed.
    """
    with contextlib.closing(KeptWriter(cfg, index, channel, sink)) as writer:
        return write_next_batch(writer, plan, inputs, window_keys)


def write_next_batch(
    writer: KeptWriter, plan: BatchPlan, inputs: WriterInputs, window_keys: WindowKeys | None = None
) -> WriterResult:
    """Write one writer's part of a batch with what the writer has kept of the batch before.

    Args:
        writer: The writer.
        plan: The batch.
        inputs: What its writers need.
        window_keys: Remembers which rows of tables under incremental snapshot were changed; None outside of a window.

    Raises:
        CdcError: The batch could not be completed.
    """
    while True:
        try:
            result = _write_once(writer, plan, inputs, window_keys)
        except RecordTooLargeError as error:
            writer.forget()
            note = reduce_batch_size(writer.sink, writer.index, error)
            if window_keys is not None:
                window_keys.restart()
            writer.channel.call(PROGRESS, WriterReport(str(plan.start), 0, note))
            continue
        writer.complete(plan)
        return result


def _write_once(
    writer: KeptWriter, plan: BatchPlan, inputs: WriterInputs, window_keys: WindowKeys | None
) -> WriterResult:
    cfg, index, sink, channel, ledger = writer.cfg, writer.index, writer.sink, writer.channel, writer.ledger
    ledger_state = writer.join(plan)
    resume_marker = ledger_state.marker(index, plan.epoch)
    if resume_marker is not None and resume_marker.done:
        return WriterResult(dict(resume_marker.counts), None)

    def report(writer_report: WriterReport) -> None:
        channel.call(PROGRESS, writer_report)

    def report_refusal(before: BinlogOffset, error: CdcError) -> None:
        channel.call(SCHEMA_REFUSED, RefusedSchema(before, error))

    def renew(last_marker: Marker) -> None:
        sink.renew()
        require_unchanged_marker(join_plan(ledger, plan, sink, index).marker(index, plan.epoch), last_marker)

    context = WriterContext(
        cfg=cfg,
        plan=plan,
        index=index,
        state=inputs.state,
        sink=sink,
        server=inputs.server,
        resume_marker=resume_marker,
        window_keys=window_keys,
        recorded_topics=ledger_state.topics,
        unchecked=unchecked_tables(ledger_state),
        unread=unread_tables(ledger_state),
        run_id=inputs.run_id,
        progress=report,
        formats=writer.formats,
        renew_producer=renew,
        require_in_force=lambda: ledger.peek().require_plan(plan),
        report_refusal=report_refusal,
        commit_before_refusal=inputs.commit_before_refusal,
        heartbeat_due_s=inputs.heartbeat_due_s,
        taken_over=taken_over(ledger_state),
        kept=writer.parts,
    )
    return create_writer(context).run()
