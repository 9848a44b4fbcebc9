"""One batch of a drain: what its driver does before and after the writers, and what each writer does."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.takeover import join
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import filters_in_force, passed
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.producer_renewal import require_last
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import KeyFilters
from airflow_provider_mysql_cdc.cdc.drain.window_keys import TouchedKeys
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError, StateError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import gather_less
from airflow_provider_mysql_cdc.cdc.job.config_guard import begin_pinned
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.history_guard import learn_history, require_known_history
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.topic_guard import ready_topics
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.schema.history import load_state
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import finished_chunks, forget_chunks


@dataclass(frozen=True, slots=True)
class BegunBatch:
    """Hold a batch that is in force.

    Args:
        plan: Its plan, with the attempt that carries it out.
        ledger: The ledger when it came into force.
        state: Table structures as of its start.
        filters: Chunks of a snapshot that mean something for its events.
    """

    plan: BatchPlan
    ledger: LedgerState
    state: SchemaState
    filters: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Written:
    """Say how a writer ended.

    Args:
        counts: Records by topic.
        state: Table structures at the batch's end; None when an earlier attempt had written everything.
        last: Server id and GTID of the last transaction.
    """

    counts: dict[str, int]
    state: SchemaState | None
    last: tuple[int, str | None] = (0, None)


def begin_batch(
    cfg: ConnectorConfig,
    conn: Any,
    job: JobLedger,
    plan: BatchPlan,
    log: Log,
    known: tuple[SchemaState, list[dict[str, Any]]] | None = None,
    *,
    looked_at: bool = False,
) -> BegunBatch:
    """Put a batch in force and get everything ready that its writers need.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger.
        plan: The batch.
        log: Takes one line of text.
        known: Table structures and filters as of its start, where somebody has looked them up already.
        looked_at: Whether this driver has just made the plan, and found both its offsets in the binlog; a writer looks
            at its start once more in any case (``open_stream``).

    Raises:
        CdcError: The batch cannot be carried out.
    """
    ledger, plan = begin_pinned(cfg, job, plan)
    faults.fault_point("plan.after_store")
    for offset in () if looked_at else (plan.start, plan.end):
        check_available(conn, cfg.connection_settings(), offset)
    log(f"batch {plan.epoch}: {plan.start} -> {plan.end}, {plan.writers} writer(s)")
    if plan.epoch == 1:
        job.create_topics({})  # a stream without snapshot begins without a history
    require_known_history(cfg, ledger)
    state = load_state(cfg, until=plan.start, epoch=plan.epoch, kept=job.history) if known is None else known[0]
    ready_topics(cfg, job, plan, ledger, state, log)
    learn_history(cfg, job, ledger)
    filters = filters_in_force(cfg, conn, finished_chunks(ledger), plan.start, log) if known is None else known[1]
    return BegunBatch(plan, ledger, state, filters)


def finish_batch(job: JobLedger, cfg: ConnectorConfig, begun: BegunBatch) -> dict[str, int]:
    """Check that all writers have reached the batch's end; return records per topic.

    Args:
        job: The ledger.
        cfg: The connector's configuration.
        begun: The batch.

    Raises:
        StateError: One has not.
    """
    plan = begun.plan
    markers = job.read().markers
    done = [m for m in markers.values() if m.epoch == plan.epoch and m.done]
    if len(done) != plan.writers:
        raise StateError(
            f"{len(done)} of {plan.writers} writers reached the end of batch {plan.epoch}",
            where=f"ledger topic {cfg.ledger_topic}",
            why="a writer ended without an error and without its marker",
            remedy="run the task again; it goes on from the markers",
            retriable=True,
        )
    totals: dict[str, int] = {}
    for marker in done:
        for topic, n in marker.counts.items():
            totals[topic] = totals.get(topic, 0) + n
        job.note_tables(marker.tables)
        job.note_native(marker.native)
    forget_chunks(job, begun.ledger, [r for r in finished_chunks(begun.ledger) if not passed(r, plan.end)])
    return totals


def write_batch(
    cfg: ConnectorConfig,
    index: int,
    sink: TransactionalWriter,
    channel: CoordinatorClient,
    arguments: dict[str, Any],
    touched: TouchedKeys | None = None,
) -> Written:
    """Write one writer's part of a batch.

    Args:
        cfg: The connector's configuration.
        index: The writer's index.
        sink: Its transactional producer, not yet initialised.
        channel: Calls to the driver.
        arguments: ``plan``, ``state``, ``filters``, ``server`` and ``run_id`` of the batch.
        touched: Remembers which rows of tables under snapshot were touched; None outside of a round.

    Raises:
        CdcError: Anything that keeps the batch from being complete.
    """
    # Open to the end: a writer that meets thousands of tables joins again and again (``client_turn``), and reads then
    # only what came since.
    with wiring.ledger(cfg) as book:
        while True:
            try:
                return _write(cfg, index, sink, channel, arguments, touched, book)
            except RecordTooLargeError as error:
                line = gather_less(sink, index, error)
                if touched is not None:
                    touched.again()
                _tell(channel, arguments, line)


def _tell(channel: CoordinatorClient, arguments: dict[str, Any], line: str) -> None:
    at = str(BatchPlan.from_json(arguments["plan"]).start)
    channel.call("progress", note=line, at=at, records=0)


def _write(
    cfg: ConnectorConfig,
    index: int,
    sink: TransactionalWriter,
    channel: CoordinatorClient,
    arguments: dict[str, Any],
    touched: TouchedKeys | None,
    book: Ledger,
) -> Written:
    plan = BatchPlan.from_json(arguments["plan"])
    ledger = join(book, plan, sink, index)
    resume = ledger.marker(index, plan.epoch)
    if resume is not None and resume.done:
        return Written(dict(resume.counts), None)

    def report(said: dict[str, Any]) -> None:
        channel.call("progress", **said)

    def renew(last: Marker) -> None:
        sink.renew()
        require_last(join(book, plan, sink, index).marker(index, plan.epoch), last)

    filters = KeyFilters.from_chunks(cfg, arguments["filters"], plan)
    writer = DrainWriter(
        cfg=cfg,
        plan=plan,
        index=index,
        state=arguments["state"],
        sink=sink,
        server=arguments["server"],
        resume=resume,
        filters=filters,
        touched=touched,
        topics=ledger.topics,
        run_id=arguments["run_id"],
        progress=report,
        forms=Forms.wanted(cfg, ask_driver(channel)),
        renew=renew,
    )
    with contextlib.closing(filters) if filters is not None else contextlib.nullcontext():
        counts = writer.run()
    return Written(counts, writer.state, writer.last)
