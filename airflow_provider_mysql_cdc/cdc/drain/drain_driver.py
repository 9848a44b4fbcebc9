"""The driver of a drain: batch after batch until nothing is left or the time is up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import join
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch import plan_drain
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.key_filters import KeyFilters
from airflow_provider_mysql_cdc.cdc.drain.read_at import filters_in_force, passed
from airflow_provider_mysql_cdc.cdc.drain.schema_log import server_variables
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, SourceConnectionError, SourceError, StateError
from airflow_provider_mysql_cdc.cdc.job import run_lock, wiring
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator, CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.known_history import learn_history, require_known_history
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.pinned_plan import begin_pinned
from airflow_provider_mysql_cdc.cdc.job.progress import DrainProgress
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.job.topic_guard import ready_topics
from airflow_provider_mysql_cdc.cdc.schema.history import load_state
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_books import finished_chunks, forget_chunks

Log = Callable[[str], None]


def run_drain(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Run the spec's batch and, while ``run_for_s`` lasts, the batches after it; return records per topic.

    Args:
        spec: The job.
        runner: Runs the writers.
        log: Takes one line of text.

    Raises:
        CdcError: The batch could not be completed; the ledger's outcome record holds the same error.
    """
    cfg = ConnectorConfig.from_properties(spec.properties)
    faults.set_this_driver()
    deadline = time.monotonic() + spec.run_for_s
    plan = BatchPlan.from_json(spec.plan)
    totals: dict[str, int] = {}
    settings = cfg.connection_settings()
    with run_lock.held(settings, cfg.topic_prefix, spec.owner) as lock, connect(settings) as conn:
        run_lock.stay(conn)
        with JobLedger(cfg) as job:
            while True:
                lock.require()
                counts = _batch(cfg, conn, job, plan, runner, log, lock)
                for topic, n in counts.items():
                    totals[topic] = totals.get(topic, 0) + n
                _heartbeat_action(cfg, conn)
                with named_errors(cfg):
                    following = _next(cfg, conn, job, plan, spec, counts, deadline, log)
                if following is None:
                    return totals
                plan = following


def _heartbeat_action(cfg: ConnectorConfig, conn: Any) -> None:
    """Run heartbeat.action.query on the source (STRM-30); its own change is part of a later batch."""
    if cfg[F.HEARTBEAT_INTERVAL_MS] and cfg[F.HEARTBEAT_ACTION_QUERY]:
        try:
            with named_errors(cfg), conn.cursor() as cursor:
                cursor.execute(cfg[F.HEARTBEAT_ACTION_QUERY])
        except SourceConnectionError:
            raise
        except SourceError as error:
            raise ConfigError(
                f"{F.HEARTBEAT_ACTION_QUERY.name} cannot be run",
                where=error.where,
                why=error.why,
                remedy="name tables with their database, and grant the account the privilege that the statement needs; "
                "the batch before it is complete",
            ) from error


def _batch(
    cfg: ConnectorConfig,
    conn: Any,
    job: JobLedger,
    plan: BatchPlan,
    runner: TaskRunner,
    log: Log,
    lock: run_lock.RunLock,
) -> dict[str, int]:
    try:
        with named_errors(cfg):
            counts = _run_batch(cfg, conn, job, plan, runner, log)
    except CdcError as error:
        job.write_outcome(plan, error=error)
        raise
    faults.fault_point("driver.before_outcome")
    lock.require()
    job.write_outcome(plan, counts=counts)
    return counts


def _run_batch(
    cfg: ConnectorConfig, conn: Any, job: JobLedger, plan: BatchPlan, runner: TaskRunner, log: Log
) -> dict[str, int]:
    ledger, plan = begin_pinned(cfg, job, plan)
    faults.fault_point("plan.after_store")
    for offset in (plan.start, plan.end):
        check_available(conn, cfg.connection_settings(), offset)
    log(f"batch {plan.epoch}: {plan.start} -> {plan.end}, {plan.writers} writer(s)")
    if plan.epoch == 1:
        job.create_topics({})  # a stream without snapshot begins without a history
    require_known_history(cfg, ledger)
    state = load_state(cfg, until=plan.start, epoch=plan.epoch)
    ready_topics(cfg, job, plan, ledger, state, log)
    learn_history(cfg, job, ledger)
    progress = DrainProgress(plan, log)
    coordinator = Coordinator({"progress": progress.update}, runner.host)
    arguments = {
        "properties": cfg.properties(),
        "plan": plan.to_json(),
        "state": state,
        "filters": filters_in_force(cfg, conn, finished_chunks(ledger), plan.start, log),
        "address": coordinator.address,
        "token": coordinator.token,
        "driver": faults.driver_pids(),
        "run_id": new_run_id(),
        "server": server_variables(conn),
    }
    try:
        runner.run(writer_task, plan.writers, arguments, gang=False)
    finally:
        coordinator.close()
    markers = job.read(chunks=False).markers
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
    forget_chunks(job, ledger, [r for r in finished_chunks(ledger) if not passed(r, plan.end)])
    log(progress.summary(totals))
    return totals


def _next(
    cfg: ConnectorConfig,
    conn: Any,
    job: JobLedger,
    plan: BatchPlan,
    spec: JobSpec,
    counts: dict[str, int],
    deadline: float,
    log: Log,
) -> BatchPlan | None:
    """Wait for new events until the deadline and plan the next batch."""
    ledger = job.read()
    start = ledger.end()
    if start is None:
        return None
    while time.monotonic() < deadline:
        following = plan_drain(cfg, conn, start, plan.epoch + 1, spec.owner, counts, ledger.prepared())
        if following is not None:
            return following
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))
    return None


def writer_task(index: int, arguments: dict[str, Any]) -> dict[str, int]:
    """Run one writer; called in a Spark task.

    Args:
        index: The writer's index.
        arguments: What ``_run_batch`` put together.
    """
    faults.set_driver(arguments["driver"])
    cfg = ConnectorConfig.from_properties(arguments["properties"])
    plan = BatchPlan.from_json(arguments["plan"])
    sink = wiring.record_writer(cfg, index)
    address = tuple(arguments["address"])
    with (
        CoordinatorClient(address, arguments["token"], index) as channel,
        contextlib.closing(sink),
        named_errors(cfg),
    ):
        ledger = join(wiring.ledger(cfg), plan, sink, index)
        resume = ledger.marker(index, plan.epoch)
        if resume is not None and resume.done:
            return dict(resume.counts)
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
            topics=ledger.topics,
            run_id=arguments["run_id"],
            progress=lambda report: _report(channel, report),
        )
        with contextlib.closing(filters) if filters is not None else contextlib.nullcontext():
            return writer.run()


def _report(channel: CoordinatorClient, report: dict[str, Any]) -> None:
    channel.call("progress", **report)
