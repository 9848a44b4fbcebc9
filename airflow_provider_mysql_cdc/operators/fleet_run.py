"""The streams of a fleet's task: plan a job for each, submit one Spark application for all, and settle each."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError, from_json
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.operators.common import run_key
from airflow_provider_mysql_cdc.operators.detached_driver import DetachedDriver
from airflow_provider_mysql_cdc.operators.fleet_outcome import DRAINED, FAILED, GAVE_WAY, IDLE, StreamOutcome
from airflow_provider_mysql_cdc.operators.fleet_plans import MAX_THREADS, PlanWaves
from airflow_provider_mysql_cdc.operators.job_run import following_ledgers
from airflow_provider_mysql_cdc.operators.task_error import NamedTaskError, is_other_run_error

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
    from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
    from airflow_provider_mysql_cdc.operators.job_run import JobRun


ResultT = TypeVar("ResultT")
KEPT_KEY = "mysql_cdc_fleet_kept"
"""In the task's state store: what is known of the streams that are not in the job of its last submission."""
LOADED_FIRST = (
    "cdc.operate.prepare_drain",
    "cdc.operate.settle",
    "cdc.operate.lag",
    "cdc.operate.stored_offset",
)
"""Modules that the threads import, which are loaded before."""


@dataclass(frozen=True, slots=True)
class FleetStream:
    """Hold one stream of a task.

    Args:
        conn_id: Its connection.
        run: Its jobs, with its configuration and offset store.
    """

    conn_id: str
    run: JobRun

    @property
    def name(self) -> str:
        """Its ``topic.prefix``."""
        return self.run.cfg.topic_prefix

    def outcome(
        self, state: str, result: Mapping[str, Any] | None = None, error: CdcError | None = None
    ) -> StreamOutcome:
        """Return its outcome.

        Args:
            state: A state of ``fleet_outcome``.
            result: Its result.
            error: What it has failed with.
        """
        return StreamOutcome(self.name, self.conn_id, state, result or {}, error)

    def plan(self) -> JobSpec | StreamOutcome:
        """Plan its job from its stored offset; return its outcome where there is none.

        Raises:
            CdcError: It cannot be planned.
        """
        from airflow_provider_mysql_cdc.cdc.operate.lag import record_idle
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain

        run, reasons = self.run, list["IdleReason"]()
        prepared = prepare_drain(run.cfg, run.store, run.owner, run.log, give_way=True, on_idle=reasons.append)
        if prepared is not None:
            return replace(prepared.spec, run=run_key(run.context))
        record_idle(run.store, run.log)
        result = run.task_result.idle_result(run.cfg, run.store)
        result |= {"reason": reasons[-1].text} if reasons else {}
        # A retry has nothing to do for what an earlier try has drained, and reports it.
        state = DRAINED if result.get("batches") else GAVE_WAY if reasons and reasons[-1].gave_way else IDLE
        return self.outcome(state, result)

    def recall(self, data: Mapping[str, Any]) -> StreamOutcome:
        """Return its outcome when it was not in the job of a deferred task.

        Args:
            data: From ``StreamOutcome.remembered``.
        """
        if data.get("error"):
            return self.outcome(FAILED, error=from_json(data["error"]))
        result = self.run.task_result.idle_result(self.run.cfg, self.run.store)
        return self.outcome(str(data["state"]), {**result, "reason": str(data.get("reason") or "")})

    def settle(self, spec: JobSpec, failure: Exception | None) -> StreamOutcome:
        """Move its stored offset to what Kafka holds, and return its outcome.

        Args:
            spec: Its job.
            failure: What submitting or tracking the Spark application raised.

        Raises:
            CdcError: It has failed, or cannot be settled.
        """
        try:
            return self.outcome(DRAINED, self.run.settle(spec, failure))
        except NamedTaskError as raised:
            if not gave_way(raised.error):
                raise raised.error from raised
            result = self.run.task_result.idle_result(self.run.cfg, self.run.store)
            return self.outcome(GAVE_WAY, {**result, "reason": raised.error.what})


def gave_way(error: CdcError) -> bool:
    """Return whether a stream's driver found another run of the stream, which had started after the plan.

    Args:
        error: What the stream ended with.
    """
    from airflow_provider_mysql_cdc.cdc.job.run_lock import LOCK_LOST

    return is_other_run_error(error) and LOCK_LOST not in str(error)


@dataclass(frozen=True, slots=True)
class FleetRun:
    """Carry out one try of a fleet's task.

    Args:
        streams: The streams whose configuration could be read.
        unread: Outcomes of the others.
    """

    streams: Sequence[FleetStream]
    unread: Sequence[StreamOutcome]

    @property
    def cfgs(self) -> list[ConnectorConfig]:
        """The configuration of each stream."""
        return [stream.run.cfg for stream in self.streams]

    def drain(self, keep: Callable[[Mapping[str, Any]], None]) -> list[StreamOutcome]:
        """Plan, run one Spark application, and settle; then the same for streams whose plans came late.

        Args:
            keep: Takes what ``resume`` needs where the task is deferred.

        Returns:
            What happened to each stream.

        Raises:
            TaskDeferred: The driver works.
            CdcError: The Spark application cannot be submitted at all.
        """
        outcomes = list(self.unread)
        if not self.streams:
            return outcomes
        first = self.streams[0].run
        detached = None
        if first.spark.should_defer():
            keep(_stored_outcomes(first.context))
            detached = DetachedDriver(self.cfgs, first.context, first.spark, first.handle, first.log)
            detached.follow_earlier()
        _load_modules()
        plan = partial(_guarded, FleetStream.plan)
        with PlanWaves(self.streams, plan, _is_job, first.handle.raise_if_killed) as plans:
            # A task that is deferred has one driver, so it waits for all plans.
            while wave := plans.next(all_at_once=detached is not None):
                outcomes += [plan for _, plan in wave if isinstance(plan, StreamOutcome)]
                jobs = [(stream, plan) for stream, plan in wave if not isinstance(plan, StreamOutcome)]
                if jobs:
                    outcomes += self._run_jobs(jobs, outcomes, detached, keep)
        return outcomes

    def _run_jobs(
        self,
        planned: Sequence[tuple[FleetStream, JobSpec]],
        ended: Sequence[StreamOutcome],
        detached: DetachedDriver | None,
        keep: Callable[[Mapping[str, Any]], None],
    ) -> list[StreamOutcome]:
        """Run the jobs of streams in one Spark application, and settle them; all have the id of the submission."""
        job = secrets.token_hex(8)
        jobs = [(stream, replace(spec, id=job)) for stream, spec in planned]
        failure = self._submit(jobs, ended, detached, keep)
        specs = {stream.name: spec for stream, spec in jobs}
        return self._each([stream for stream, _ in jobs], lambda stream: stream.settle(specs[stream.name], failure))

    def _submit(
        self,
        jobs: Sequence[tuple[FleetStream, JobSpec]],
        ended: Sequence[StreamOutcome],
        detached: DetachedDriver | None,
        keep: Callable[[Mapping[str, Any]], None],
    ) -> Exception | None:
        from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_job

        first = self.streams[0].run
        spec = replace(fleet_job([spec for _, spec in jobs]), id=jobs[0][1].id)
        if detached is not None:
            kept = {outcome.conn_id: outcome.remembered() for outcome in ended}
            _store_outcomes(first.context, spec.id, kept)
            keep(kept)
            return detached.submit(spec)
        with following_ledgers([(stream.run.cfg, stream.run.store, stream.run.log) for stream, _ in jobs]):
            failure = first.spark.submit(spec)
        first.handle.raise_if_killed()
        return failure

    def resume(self, spec: JobSpec, kept: Mapping[str, Mapping[str, Any]]) -> list[StreamOutcome]:
        """Settle the streams of a driver that has ended while the task was deferred.

        Args:
            spec: Mode, owner, id and run of the job.
            kept: What ``drain`` has kept of the streams that were not in the job.

        Returns:
            What happened to each stream.
        """

        def end(stream: FleetStream) -> StreamOutcome:
            data = kept.get(stream.conn_id)
            return stream.settle(spec, None) if data is None else stream.recall(data)

        return [*self.unread, *self._each(self.streams, end)]

    def mark_reported(self) -> None:
        """Record in the ledgers that this task, which now succeeds, has reported the batches of its streams."""
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            list(pool.map(lambda stream: stream.run.task_result.mark_reported(), self.streams))

    def _each(
        self, streams: Sequence[FleetStream], work: Callable[[FleetStream], StreamOutcome]
    ) -> list[StreamOutcome]:
        """Do the same for many streams at a time; an error is the outcome of its stream alone."""
        _load_modules()
        with ThreadPoolExecutor(min(MAX_THREADS, max(1, len(streams)))) as pool:
            return list(pool.map(partial(_guarded, work), streams))


def _guarded(work: Callable[[FleetStream], ResultT], stream: FleetStream) -> ResultT | StreamOutcome:
    try:
        return work(stream)
    except NamedTaskError as raised:
        return stream.outcome(FAILED, error=raised.error)
    except CdcError as error:
        return stream.outcome(FAILED, error=error)
    except Exception as error:
        stream.run.logger.warning("unexpected error", exc_info=True)
        return stream.outcome(FAILED, error=_unexpected(error))


def _is_job(plan: JobSpec | StreamOutcome) -> bool:
    return not isinstance(plan, StreamOutcome)


def _load_modules() -> None:
    """Load what threads import: those that import the same modules at the same time may see them half loaded."""
    for module in LOADED_FIRST:
        import_module(f"airflow_provider_mysql_cdc.{module}")


def _store_outcomes(context: Any, job: str, kept: Mapping[str, Any]) -> None:
    """Store what is known of the streams that are not in a job, for a try that follows its driver after this one."""
    if (store := context.get("task_state_store")) is not None:
        store.set(KEPT_KEY, {"job": job, "kept": dict(kept)})


def _stored_outcomes(context: Any) -> Mapping[str, Any]:
    """Return what an earlier try has stored with its driver; nothing where it has started none."""
    store, earlier = context.get("task_state_store"), Submission.from_context(context)
    stored = None if store is None else store.get(KEPT_KEY)
    return stored["kept"] if stored and earlier is not None and stored["job"] == earlier.job else {}


def _unexpected(error: Exception) -> StateError:
    return StateError(
        "the stream could not be planned or settled",
        why=type(error).__name__,
        remedy="read the traceback in the task's log; a retry continues from the last committed marker",
        retriable=True,
    )


class StreamLog(logging.LoggerAdapter[logging.Logger]):
    """Write lines of a stream behind its name.

    Args:
        logger: The task's logger.
        stream: What the stream is called.
    """

    def __init__(self, logger: Any, stream: str) -> None:
        super().__init__(logger)
        self._stream = stream

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line.

        Args:
            level: Its level.
            msg: The line, or its format if there are arguments.
            args: The arguments.
            kwargs: As for ``logging.Logger.log``.
        """
        line = str(msg) % args if args else str(msg)
        self.logger.log(level, "%s: %s", self._stream, line, **kwargs)
