"""The driver of a fleet: the unchanged drain driver of each stream in a thread of its own, on one task runner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.errors import CdcError, DamagedRecordError, StoredVersionError
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_streams
from airflow_provider_mysql_cdc.cdc.fleet.shared_slots import SharedSlots
from airflow_provider_mysql_cdc.cdc.fleet.slot_tasks import SlotTasks
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.coordinator import MAX_PORT_TRIES, Endpoint
from airflow_provider_mysql_cdc.cdc.job.job_error import reporting_job_error, unexpected_error, write_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.run_lock import STREAMS_OF_SERVER
from airflow_provider_mysql_cdc.cdc.job.task_runner import (
    ArgumentsT,
    Block,
    BucketResultT,
    Shuffle,
    TaskResultT,
    TaskRunner,
)
from airflow_provider_mysql_cdc.cdc.model.log import Log


@dataclass(frozen=True, slots=True)
class SingleTask(Generic[ArgumentsT, TaskResultT]):
    """Hold one of the tasks of a stage.

    Args:
        task: The stage's function.
        index: The task's index in the stage.
        arguments: The stage's arguments.
    """

    task: Callable[[int, ArgumentsT], TaskResultT]
    index: int
    arguments: ArgumentsT


def single_task(index: int, single: SingleTask[ArgumentsT, TaskResultT]) -> TaskResultT:
    """Run one task of a stage.

    Args:
        index: Its index in its job, always 0.
        single: The task.
    """
    return single.task(single.index, single.arguments)


class StreamRunner:
    """Run the tasks of one stream.

    Args:
        runner: Runs the tasks of all streams; it is called by several threads.
        slots: The slots of that runner.
        slot_tasks: Carries out tasks that do not wait for each other.
    """

    def __init__(self, runner: TaskRunner, slots: SharedSlots, slot_tasks: SlotTasks) -> None:
        self._runner, self._slots, self._slot_tasks = runner, slots, slot_tasks
        self.endpoint: Endpoint = slot_tasks.endpoint

    def slots(self, required: int = 0) -> int:
        """Return the most tasks of a barrier stage of this stream."""
        return self._slots.barrier_limit

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run the tasks as soon as they have slots; those of an ordinary stage perhaps one after the other.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()`` when ``barrier`` is set.
            arguments: Values that can be pickled.
            barrier: Whether all tasks must be running at once.
        """
        if barrier:
            with self._slots.lend(count, barrier=True):
                return self._runner.run(task, count, arguments, barrier=True)
        results = self._slot_tasks.run(task, count, arguments)
        return self._run_alone(task, count, arguments) if results is None else results

    def _run_alone(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT
    ) -> list[TaskResultT]:
        """Run each task of an ordinary stage as a job of its own."""
        results: list[TaskResultT] = []
        for index in range(count):
            with self._slots.lend(1, barrier=False):
                results += self._runner.run(single_task, 1, SingleTask(task, index, arguments), barrier=False)
        return results

    def run_shuffled(
        self,
        task: Callable[[int, ArgumentsT], Iterator[Block]],
        count: int,
        arguments: ArgumentsT,
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run the tasks of a barrier stage as soon as all have slots, then those of the buckets in the same slots.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()``.
            arguments: Values that can be pickled.
            shuffle: The buckets.
        """
        with self._slots.lend(count, barrier=True):
            return self._runner.run_shuffled(task, count, arguments, shuffle)


ToNamedError = Callable[[BaseException], CdcError | None]
"""Returns the named error that caused another one, or None when there is none."""
StreamJob = Callable[[JobSpec, TaskRunner, Log], Any]


def run_fleet(
    spec: JobSpec, runner: TaskRunner, log: Log, to_named_error: ToNamedError, run_stream: StreamJob = run_drain
) -> int:
    """Drain all streams at the same time, of one server some; return how many were drained without an error.

    Each stream ends as in a job of its own: its error is in its own ledger, and ends no other stream. The job itself
    fails only where it cannot begin.

    Args:
        spec: The job (``fleet_job``).
        runner: Runs the tasks of all streams.
        log: Takes one line of text.
        to_named_error: Names the error that a stream ends with.
        run_stream: Runs the job of one stream.

    Raises:
        DamagedRecordError: The spec is not that of a fleet.
    """
    streams = fleet_streams(spec)
    slots, lock = SharedSlots(runner.slots()), threading.Lock()
    # Each stream's driver listens for its tasks, all at the same time.
    endpoint = replace(runner.endpoint, tries=MAX_PORT_TRIES + len(streams))
    slot_tasks = SlotTasks(runner, slots, endpoint)
    turns = {_server_of(stream): threading.Semaphore(STREAMS_OF_SERVER) for stream in streams}
    drained: list[str] = []

    def write(line: str) -> None:
        with lock:  # lines of different streams come at the same time
            log(line)

    def run_one(stream: JobSpec) -> None:
        prefix = stream_name(stream)
        stream_log = partial(_prefixed, write, prefix)
        try:
            with turns[_server_of(stream)], reporting_job_error(stream, stream_log, to_named_error):
                run_stream(stream, StreamRunner(runner, slots, slot_tasks), stream_log)
            drained.append(prefix)
        except CdcError as error:
            stream_log(" ".join(f"{type(error).__name__}: {error.message()}".split()))

    with closing(slot_tasks):
        in_threads(run_one, streams)
    write(f"{len(drained)} of {len(streams)} streams were drained")
    return len(drained)


def stream_name(stream: JobSpec) -> str:
    """Return what a stream is called in the log: its topic.prefix.

    Args:
        stream: Its spec.
    """
    return str(stream.properties.get(F.TOPIC_PREFIX.name, "?"))


def _server_of(stream: JobSpec) -> tuple[Any, ...]:
    return tuple(stream.properties.get(field.name) for field in (F.DATABASE_HOSTNAME, F.DATABASE_PORT))


@contextmanager
def reporting_fleet_error(spec: JobSpec, log: Log, to_named_error: ToNamedError) -> Iterator[None]:
    """Write an error with which the job cannot begin into the ledger of each stream, and raise it as a named error.

    Args:
        spec: The job (``fleet_job``).
        log: Takes one line of text.
        to_named_error: Names the error.

    Raises:
        CdcError: The error.
    """
    try:
        yield
    except Exception as error:
        streams: list[JobSpec] = []
        with suppress(DamagedRecordError, StoredVersionError):  # then no ledger is known
            streams = fleet_streams(spec)
        named = to_named_error(error) or _unexpected(error, streams or [spec])
        in_threads(lambda stream: write_job_error(stream, named, log), streams)
        if named is error:
            raise
        raise named from None


def in_threads(work: Callable[[JobSpec], None], streams: Sequence[JobSpec]) -> None:
    """Do the same for all streams, each in a thread of its own, and wait for all.

    Args:
        work: Takes a stream; it raises nothing.
        streams: The streams.
    """
    threads = [
        threading.Thread(target=work, args=(stream,), name=f"cdc-{stream_name(stream)}", daemon=True)
        for stream in streams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _unexpected(error: Exception, streams: Sequence[JobSpec]) -> CdcError:
    """Return the named error for an unexpected one, without the secrets of any stream."""
    text = f"{type(error).__name__}: {error}"
    for stream in streams:
        text = scrub(text, stream.properties)
    return unexpected_error(RuntimeError(text), streams[0])


def _prefixed(write: Log, prefix: str, line: str) -> None:
    write(f"{prefix}: {line}")
