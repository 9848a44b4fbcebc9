"""The driver of a job at a Spark Connect server, a Python process without a JVM, and the runner of its tasks."""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings
from airflow_provider_mysql_cdc.cdc.job.task_runner import ArgumentsT, Block, BucketResultT, Shuffle, TaskResultT
from airflow_provider_mysql_cdc.cdc.model.job_names import CONNECT_VARIABLE
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.cluster_slots import (
    DEFAULT_REGISTRATION_WAIT_S,
    endpoint,
    wait_for_slots,
    warn_while_starving,
)
from airflow_provider_mysql_cdc.spark.connect_channel import connect_error, import_arrow_alone, missing_client
from airflow_provider_mysql_cdc.spark.connect_client import ConnectClient
from airflow_provider_mysql_cdc.spark.connect_plans import BLOCK, RESULT, PlanMessages
from airflow_provider_mysql_cdc.spark.connect_session import OWN_PREFIX, PARTITIONS_SETTINGS, ConnectSession
from airflow_provider_mysql_cdc.spark.connect_tasks import BlockFunction, BucketFunction, ResultFunction
from airflow_provider_mysql_cdc.spark.errors import executor_error, named_error, too_few_slots

SLOTS_SETTING = OWN_PREFIX + "slots"
"""Number of tasks that the server's executors can run at once; without it the server is asked."""
BARRIER_START_S = 60.0
"""Seconds without a report of a begun stage after which the server's slots are counted, for tasks that must run at the
same time: Spark begins such a stage when it has as many slots, used or not."""
_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")


@dataclass(slots=True)
class StageProgress:
    """What the server says about the operation of one call.

    Args:
        started: When the call began, in seconds of ``time.monotonic``.
        stages: Whether Spark has begun a stage of it.
        running: Number of running tasks.
        error: The error for which the operation was interrupted.
    """

    started: float = field(default_factory=time.monotonic)
    stages: bool = False
    running: int = 0
    error: CdcError | None = None


class ConnectRunner:
    """Run tasks as one stage with one partition for each task, at a Spark that already runs.

    The calls are those of ``SparkRunner``. There are no RDDs, so a task is a function of ``mapInArrow``; and there is
    no JVM beside the driver, so what Spark does is known from its answers only. Several threads may run tasks.

    Args:
        session: The session at the server.
        log: Takes one line of text.
    """

    def __init__(self, session: ConnectSession, log: Log = lambda line: None) -> None:
        self._session, self._log = session, log
        self.endpoint = endpoint(session.setting, session.local_host())
        self._master = session.setting("spark.master") or ""
        self._local = self._master.startswith("local")
        dynamic = (session.setting("spark.dynamicAllocation.enabled") or "false").lower() == "true"
        # Spark has no barrier stages where executors come and go (SPARK-24942); a local master has none such.
        self._dynamic_allocation = dynamic and not self._local
        self._slots_awaited = False
        self._running: dict[str, ConnectClient] = {}

    def interrupt(self) -> None:
        """End all operations, because the driver is about to end; the calls that wait for them end with an error."""
        for tag, client in list(self._running.items()):
            with suppress(Exception):  # a server that is gone is not waited for
                client.interrupt(tag)

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once on the registered executors, at least one.

        The server is asked for the number of partitions that Spark would choose, which is the number of cores of the
        registered executors, at least 2 on a cluster.

        Args:
            required: How many slots to wait for, while executors may still register; 0 waits for all that register.

        Raises:
            ConfigError: ``spark.mysqlcdc.slots`` is no number.
        """
        if (configured := self._session.setting(SLOTS_SETTING)) is not None:
            return _positive(configured, SLOTS_SETTING)
        if self._local or self._dynamic_allocation or self._slots_awaited:
            return self._current_slots()
        self._slots_awaited = True
        return wait_for_slots(self._current_slots, required, DEFAULT_REGISTRATION_WAIT_S)

    def _current_slots(self) -> int:
        with self._named_errors(StageProgress()):
            client = self._session.client
            plan = client.explain(client.plans.numbers(1 << 20))
        match = _SPLITS.search(plan)
        cores_of_a_task = int(self._session.setting("spark.task.cpus") or 1)
        return max(1, int(match[1]) // cores_of_a_task) if match else 1

    def _slots_below(self, tasks: int) -> int | None:
        """Return the number of slots if it is certain that these tasks cannot run at once, otherwise None.

        A stage that is not reported may have begun. Where the server's number of partitions is set, its slots cannot be
        counted, and Spark's own check ends the stage after ten minutes (``errors.executor_error``).
        """
        if any(self._session.setting(name) for name in PARTITIONS_SETTINGS):
            return None
        slots = self._current_slots()
        return slots if slots < tasks else None

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run ``task(index, arguments)`` for each index.

        Args:
            task: A module-level function.
            count: Number of tasks.
            arguments: Values that can be pickled.
            barrier: Use a barrier stage: all tasks at once or none (not with dynamic allocation, as ``SparkRunner``).

        Raises:
            CdcError: A task raised it, the executors cannot run tasks, or the server or the session is gone.
        """
        barrier = barrier and not self._dynamic_allocation
        function = ResultFunction(task, arguments)
        results = self._collect(
            lambda plans: plans.tasks(count, function, RESULT, barrier=barrier),
            count if barrier else 0,
        )
        if sorted(results) != list(range(count)):
            raise StateError(
                "Spark has not returned the result of each task",
                where=f"Spark Connect server {self._session.server}",
                why=f"{count} tasks, results of {sorted(results)}",
                retriable=True,
            )
        return [results[index] for index in range(count)]

    def run_shuffled(
        self,
        task: Callable[[int, ArgumentsT], Iterator[Block]],
        count: int,
        arguments: ArgumentsT,
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run the tasks as a barrier stage, whose blocks Spark shuffles to the tasks of the buckets; it spills to disk.

        Args:
            task: A module-level function.
            count: Number of tasks.
            arguments: Values that can be pickled.
            shuffle: The buckets.

        Raises:
            CdcError: As for ``run``.
        """
        barrier, function = not self._dynamic_allocation, BlockFunction(task, arguments)
        with self._named_errors(StageProgress()):
            spark = self._session.client.server_version()

        def operation(plans: PlanMessages) -> Any:
            blocks = plans.tasks(count, function, BLOCK, barrier=barrier)
            return plans.buckets(blocks, shuffle.buckets, BucketFunction(shuffle.reduce), spark)

        results = self._collect(operation, count if barrier else 0)
        # A bucket without a block has no row, and so no call.
        return [results[b] if b in results else shuffle.reduce(iter(())) for b in range(shuffle.buckets)]

    def _collect(self, operation: Callable[[PlanMessages], Any], barrier_tasks: int) -> dict[int, Any]:
        """Run an operation on a session; return the results of its tasks by their numbers."""
        progress, client = StageProgress(), self._session.client
        tag = f"mysql-cdc-{uuid.uuid4().hex}"

        def on_progress(stages: bool, running: int) -> None:
            progress.stages, progress.running = progress.stages or stages, running

        def running() -> int | None:
            waited_s = time.monotonic() - progress.started
            overdue = barrier_tasks and not progress.stages and waited_s > BARRIER_START_S
            if overdue and (slots := self._slots_below(barrier_tasks)) is not None:
                why = f"{barrier_tasks} tasks must run at the same time, and it has {slots} slot(s)"
                progress.error = too_few_slots(f"Spark Connect server {self._session.server}", why)
                client.interrupt(tag)
            return progress.running

        self._running[tag] = client
        try:
            with self._named_errors(progress), warn_while_starving(running, self._warn_starving):
                rows = client.execute(operation(client.plans), tag, on_progress)
        except BaseException:
            with suppress(Exception):
                client.interrupt(tag)
            raise
        finally:
            del self._running[tag]
        return {number: pickle.loads(result) for number, result in rows}

    @contextmanager
    def _named_errors(self, progress: StageProgress) -> Iterator[None]:
        """Replace an exception of pyspark's client by a named error.

        Raises:
            CdcError: A task raised it, or server, session or executors are the cause.
        """
        try:
            yield
        except Exception as error:
            named_failure = (
                progress.error
                or named_error(error)
                or executor_error(error)
                or connect_error(error, self._session.server)
            )
            if named_failure is None:
                raise
            raise named_failure from None

    def _warn_starving(self, idle_s: float) -> None:
        self._log(
            f"waiting for Spark: no task of this job is reported as running for {idle_s:.0f} s. The Spark Connect "
            f"server {self._session.server} runs on {self._master}: are its slots taken by other jobs, or has it no "
            "executor?"
        )


def _positive(text: str, name: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise ConfigError("a setting is not a positive number", where=name, why=repr(text), remedy="use 1 or more")


def inherited_settings() -> ConnectSettings | None:
    """Return how to reach the server; None for a driver that spark-submit has started."""
    descriptor = os.environ.pop(CONNECT_VARIABLE, None)
    return None if descriptor is None else ConnectSettings.read(int(descriptor))


@contextmanager
def connect_runner(settings: ConnectSettings, stream: str, log: Log, exit_code: int) -> Iterator[ConnectRunner]:
    """Run tasks in the session of a stream.

    Args:
        settings: The server.
        stream: Name of the stream.
        log: Takes one line of text.
        exit_code: Exit code when the process is asked to end (SIGTERM), which ends its operations too.

    Raises:
        CdcError: The server cannot be used.
    """
    try:
        import_arrow_alone()
    except ImportError as error:
        raise missing_client(error) from error
    session = ConnectSession(settings, stream)
    try:
        _refuse_speculation(session)
        log(f"Spark application {session.setting('spark.app.id') or 'unknown'}, Spark Connect server {session.server}")
        runner = ConnectRunner(session, log)

        def end(*_: Any) -> None:
            # At once: whoever asks kills this process some seconds later, and the job may wait for its writers' end.
            runner.interrupt()
            raise SystemExit(exit_code)

        signal.signal(signal.SIGTERM, end)
        yield runner
    finally:
        session.close()


def _refuse_speculation(session: ConnectSession) -> None:
    """Refuse a server that starts tasks twice.

    Raises:
        ConfigError: It does.
    """
    if (session.setting("spark.speculation") or "false").strip().lower() == "true":
        raise ConfigError(
            "spark.speculation=true would start a second copy of a writer, which fences the first one",
            where=f"Spark Connect server {session.server}",
            remedy="start the server with spark.speculation=false",
        )
