"""Build a writer of a drain from what it is started with."""

from __future__ import annotations

from functools import partial

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer, ProducerRenewal, WrittenTopics
from airflow_provider_mysql_cdc.cdc.drain.ddl_effects import DdlEffects
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.event_handlers import EventHandlers
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnreadTables
from airflow_provider_mysql_cdc.cdc.drain.plain_transactions import PlainTransactions
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput, RowEventHandler
from airflow_provider_mysql_cdc.cdc.drain.side_records import TransactionMetadata
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import TouchedTables, skipped_before
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions, create_transaction_decoder
from airflow_provider_mysql_cdc.cdc.drain.writer_context import KeptParts, WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import output_counter
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalRows
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitClock


def create_writer(context: WriterContext) -> DrainWriter:
    """Return a writer at the start of its batch.

    Args:
        context: What it is started with.
    """
    cfg, plan = context.cfg, context.plan
    kept = context.kept
    settings = kept.routes.settings = kept.routes.settings or RouteSettings.for_writer(cfg, context.formats)
    resumed = context.resume_marker
    position = WriterPosition(plan.start, None if resumed is None else resumed.reached)
    counts = WriterCounts.resume(resumed, settings.tally, context.index)
    counts.take_outputs = output_counter(context.sink)
    xa = XaTransactions(plan.prepared, searched=resumed is not None and resumed.xa_searched)
    side_records = list[SideRecord]()
    committed_ts = 0 if resumed is None else resumed.commit_ts
    commit_clock = CommitClock(plan.commit_ts, committed_ts) if cfg.is_ticdc else None
    topics = WrittenTopics(cfg, plan, context.recorded_topics, counts.by_topic)
    committer = _committer(context, counts, position, xa, topics, side_records, commit_clock)
    output = _record_output(context, counts, position, tolerant=settings.failed_rows is not None)
    shares = TopicShares(cfg, plan, context.index, side_records, topics.recorded, context.state.tables)
    on_watermark = None if context.window_keys is None else context.window_keys.watermark_handler()
    taken = context.taken_over
    output.taken_over = taken if taken is not None and taken.is_ahead(plan) else None
    signals = SignalRows.for_writer(cfg, plan.epoch, context.index, side_records, on_watermark)
    touched_tables = None
    if context.index == 0:
        server_uuid = plan.start.server_uuid or ""
        touched_tables = TouchedTables(cfg.ledger_topic, context.unchecked, side_records, server_uuid)
    routes = _table_routes(context, settings, shares, signals, committer, position, touched_tables, kept)
    metadata = TransactionMetadata(cfg) if cfg[F.PROVIDE_TRANSACTION_METADATA] else None
    rows = _row_event_handler(context, settings, position, routes, output, committer, xa, metadata, commit_clock)
    whole_transactions = _whole_transactions(context, settings, output, position, committer, commit_clock)
    ddl = DdlEffects(
        context=context,
        state=context.state,
        position=position,
        shares=shares,
        routes=routes,
        ddl_events=DdlEventHandler(cfg, plan.epoch, context.server),
        unread_tables=UnreadTables(cfg, context.unread, side_records),
        output=output,
        committer=committer,
        touched_tables=touched_tables,
        whole_transactions=whole_transactions,
    )
    handlers = EventHandlers(
        context=context,
        position=position,
        xa=xa,
        signals=signals,
        routes=routes,
        rows=rows,
        ddl=ddl,
        output=output,
        committer=committer,
        metadata=metadata,
        whole_transactions=whole_transactions,
    )
    has_metadata = metadata is not None
    plain_transactions = PlainTransactions(
        position,
        routes,
        rows,
        committer,
        counts.meter,
        has_begin=has_metadata,
        has_end=has_metadata or signals is not None,
    )
    return DrainWriter(
        context, position, routes, handlers, ddl, output, committer, whole_transactions, plain_transactions
    )


def _committer(
    context: WriterContext,
    counts: WriterCounts,
    position: WriterPosition,
    xa: XaTransactions,
    topics: WrittenTopics,
    side_records: list[SideRecord],
    commit_clock: CommitClock | None,
) -> Committer:
    renew, sink = context.renew_producer, context.sink
    return Committer(
        cfg=context.cfg,
        plan=context.plan,
        index=context.index,
        sink=sink,
        counts=counts,
        position=position,
        xa=xa,
        progress=context.progress,
        topics=topics,
        side_records=side_records,
        formats=context.formats,
        commit_clock=commit_clock,
        heartbeat_due_s=context.heartbeat_due_s,
        renewal=None
        if renew is None
        else ProducerRenewal(counts.by_table, renew, lambda: sink.renewal_due, context.kept.met_tables),
    )


def _record_output(
    context: WriterContext, counts: WriterCounts, position: WriterPosition, *, tolerant: bool
) -> RecordOutput:
    return RecordOutput(
        sink=context.sink,
        headers=table_options.headers(context.cfg, context.run_id),
        has_id_header=context.cfg[F.CDC_ID_HEADER],
        tolerant=tolerant,
        position=position,
        formats=context.formats,
        history_topic=context.cfg.history_topic,
        server_uuid=context.plan.start.server_uuid,
        counts=counts,
    )


def _table_routes(
    context: WriterContext,
    settings: RouteSettings,
    shares: TopicShares,
    signals: SignalRows | None,
    committer: Committer,
    position: WriterPosition,
    touched_tables: TouchedTables | None,
    kept: KeptParts,
) -> TableRoutes:
    formats = context.formats

    def before_build() -> None:
        if formats is not None:
            committer.commit_before_delay(formats.max_wait_s)

    def on_refused(error: CdcError) -> None:
        if context.commit_before_refusal:
            committer.commit_pending()
        context.report_refusal(position.reached().offset, error)

    note = partial(committer.note, once=True)
    skipped = skipped_before(context.unchecked, context.plan.start)
    return TableRoutes(
        settings,
        shares,
        signals,
        context.window_keys,
        before_build,
        on_refused,
        touched_tables,
        note,
        skipped,
        kept.routes,
    )


def _row_event_handler(
    context: WriterContext,
    settings: RouteSettings,
    position: WriterPosition,
    routes: TableRoutes,
    output: RecordOutput,
    committer: Committer,
    xa: XaTransactions,
    metadata: TransactionMetadata | None,
    commit_clock: CommitClock | None,
) -> RowEventHandler:
    return RowEventHandler(
        position=position,
        routes=routes,
        output=output,
        committer=committer,
        xa=xa,
        dead_letters=DeadLetterReporter(context.cfg, context.index, context.sink.produce, output.counts.by_topic),
        failed_rows=settings.failed_rows,
        metadata=metadata,
        window_keys=context.window_keys,
        commit_clock=commit_clock,
        counts_source=context.cfg.writes_rows_of if context.cfg.filters_gtid_sources else None,
    )


def _whole_transactions(
    context: WriterContext,
    settings: RouteSettings,
    output: RecordOutput,
    position: WriterPosition,
    committer: Committer,
    commit_clock: CommitClock | None,
) -> WholeTransactions | None:
    cfg = context.cfg
    decoder = create_transaction_decoder(cfg, settings.tally, context.window_keys)
    if decoder is None:
        return None
    return WholeTransactions(decoder, output, position, committer, commit_clock, cfg.chain is not None)
