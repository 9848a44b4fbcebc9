"""Run the tasks of a job at the same time as one Spark stage, and answer them while it runs.

Run the tasks of a job as one Spark stage, and answer them while it runs.

Every job runs its tasks in this way: the properties are encrypted, a coordinator answers the tasks' operations, and the
tasks get its address with their inputs. In a barrier stage all tasks run at the same time, and a thread of the driver
leads them from one point of their barrier to the next.

Pass a job's configuration from the driver to its tasks.

Spark writes a broadcast to files in ``spark.local.dir`` of the driver and the executors, and leaves them there when the
process is killed. So the arguments of a task hold the properties encrypted. The task asks the driver for their key over
the coordinator's connection, which is authenticated by the job's token, and keeps it in memory only. Reading one of the
two channels alone reveals nothing (Spark's can be encrypted as well: ``spark.network.crypto.enabled``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import pymysql

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator, CoordinatorClient, LostHandler
from airflow_provider_mysql_cdc.cdc.job.job_spec import decrypt_properties, encrypt_properties
from airflow_provider_mysql_cdc.cdc.job.schema_ids import PROPERTIES_KEY, PropertiesKey, SchemaIds
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier, lost_task_error
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, TaskHandler
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block, BucketResultT, Shuffle, TaskRunner


def encrypted_properties(cfg: ConnectorConfig) -> tuple[str, TaskHandler]:
    """Return the properties for the tasks' arguments, encrypted, and the coordinator's handler that hands out the key.

    Args:
        cfg: The connector's configuration.
    """
    text, key = encrypt_properties(cfg.properties())
    return text, PROPERTIES_KEY.handled_by(lambda task, request: PropertiesKey(key, cfg.server_uuid))


def load_task_config(channel: CoordinatorClient, properties: str) -> ConnectorConfig:
    """Return the configuration in a task.

    Args:
        channel: Calls to the driver.
        properties: The encrypted properties (``encrypted_properties``).

    Raises:
        ConfigError: This host cannot read it, for example a converter's module is missing.
        StateError: The driver is gone.
    """
    reply = channel.call(PROPERTIES_KEY, EMPTY)
    return ConnectorConfig.from_properties(decrypt_properties(properties, reply.key)).of_server(reply.server_uuid)


@contextmanager
def named_errors(cfg: ConnectorConfig) -> Iterator[None]:
    """Convert errors of the MySQL client library into named ones.

    Args:
        cfg: The connector's configuration, for the server's address.

    Raises:
        SourceError: The subclass that fits the server's error code.
    """
    try:
        yield
    except pymysql.MySQLError as error:
        raise from_exception(error, cfg.source_address()) from error


InputsT = TypeVar("InputsT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class StageArguments(Generic[InputsT]):
    """Hold what each task of a stage gets; Spark broadcasts it.

    Args:
        properties: The connector's properties, encrypted (``encrypted_properties``).
        address: Host and port of the coordinator.
        token: Its secret.
        driver_pids: Process ids of the driver, for tests (``faults``).
        inputs: What the tasks of this job need beyond that; values that can be pickled.
    """

    properties: str
    address: tuple[str, int]
    token: str
    driver_pids: list[int]
    inputs: InputsT


class StageLeader(threading.Thread):
    """Do the driver's part of a barrier stage: ``TaskRunner.run`` blocks the driver's main thread.

    Args:
        cfg: The connector's configuration.
        barrier: The barrier of the tasks; an error of the driver's part ends their waiting.
        lead: The driver's part; the event is set when the tasks have ended.
        failure: Text of the error when the driver's part ends with an unexpected exception.
        end_timeout_s: Seconds for which the end of the driver's part is awaited once the tasks have ended.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        barrier: TaskBarrier,
        lead: Callable[[threading.Event], None],
        failure: str,
        end_timeout_s: float,
    ) -> None:
        super().__init__(name="cdc-stage", daemon=True)
        self.barrier = barrier
        self.error: CdcError | None = None
        self._cfg, self._lead, self._failure, self._end_timeout_s = cfg, lead, failure, end_timeout_s
        self._stage_ended = threading.Event()

    def run(self) -> None:
        """Do the driver's part; called in a thread of its own."""
        try:
            with named_errors(self._cfg):
                self._lead(self._stage_ended)
        except CdcError as error:
            self._fail(error)
        except Exception as error:
            self._fail(StateError(self._failure, why=repr(error), retriable=True))

    def _fail(self, error: CdcError) -> None:
        self.error = error
        self.barrier.fail(error)

    def finish(self) -> None:
        """Signal that the tasks have ended, and wait for the end of the driver's part."""
        self._stage_ended.set()
        self.join(self._end_timeout_s)


@dataclass(frozen=True, slots=True)
class StageRunner:
    """Run stages of a job.

    Args:
        cfg: The connector's configuration.
        runner: Runs the tasks.
        schema_ids: Ids of schemas for the tasks.
    """

    cfg: ConnectorConfig
    runner: TaskRunner
    schema_ids: SchemaIds

    def run(
        self,
        task: Callable[[int, StageArguments[InputsT]], ResultT],
        count: int,
        inputs: InputsT,
        handlers: Iterable[TaskHandler],
        on_lost: LostHandler | None = None,
    ) -> list[ResultT]:
        """Run tasks that do not wait for each other; return their results in order.

        Args:
            task: A module-level function, which begins with ``open_task``.
            count: Number of tasks.
            inputs: What they need.
            handlers: Answers the operations of this job's tasks.
            on_lost: Called when the connection of a task ends without a goodbye.

        Raises:
            CdcError: A task ended with it, or the executors cannot run tasks.
        """
        with self._serving(inputs, handlers, on_lost) as arguments:
            return self.runner.run(task, count, arguments, barrier=False)

    def run_barrier(
        self,
        task: Callable[[int, StageArguments[InputsT]], ResultT],
        leader: StageLeader,
        inputs: InputsT,
        handlers: Iterable[TaskHandler],
    ) -> list[ResultT]:
        """Run the tasks of a barrier, all at the same time; return their results in order.

        A task that is lost ends the waiting of all others.

        Args:
            task: A module-level function, which begins with ``open_task``.
            leader: The driver's part.
            inputs: What the tasks need.
            handlers: Answers the operations of this job's tasks.

        Raises:
            CdcError: A task or the driver's part ended with it, or the executors cannot run tasks.
        """
        return self._led(
            leader,
            inputs,
            handlers,
            lambda arguments: self.runner.run(task, leader.barrier.tasks, arguments, barrier=True),
        )

    def run_barrier_shuffled(
        self,
        task: Callable[[int, StageArguments[InputsT]], Iterator[Block]],
        leader: StageLeader,
        inputs: InputsT,
        handlers: Iterable[TaskHandler],
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run the tasks of a barrier, which yield blocks, then the tasks of the buckets; return the buckets' results.

        Args:
            task: A module-level function, which begins with ``open_task``.
            leader: The driver's part.
            inputs: What the tasks need.
            handlers: Answers the operations of this job's tasks.
            shuffle: The buckets.

        Raises:
            CdcError: A task or the driver's part ended with it, or the executors cannot run tasks.
        """
        return self._led(
            leader,
            inputs,
            handlers,
            lambda arguments: self.runner.run_shuffled(task, leader.barrier.tasks, arguments, shuffle),
        )

    def _led(
        self,
        leader: StageLeader,
        inputs: InputsT,
        handlers: Iterable[TaskHandler],
        run: Callable[[StageArguments[InputsT]], list[ResultT]],
    ) -> list[ResultT]:
        barrier = leader.barrier

        def on_lost(task_index: int, cause: CdcError | None) -> None:
            barrier.fail(cause or lost_task_error(task_index))

        with self._serving(inputs, handlers, on_lost) as arguments:
            leader.start()
            try:
                results = run(arguments)
            except BaseException:
                barrier.fail(lost_task_error(-1))
                raise
            finally:
                leader.finish()
        if leader.error is not None:
            raise leader.error
        return results

    @contextmanager
    def _serving(
        self, inputs: InputsT, handlers: Iterable[TaskHandler], on_lost: LostHandler | None = None
    ) -> Iterator[StageArguments[InputsT]]:
        """Answer the tasks while the block runs; yield the arguments with which they are started."""
        properties, key_handler = encrypted_properties(self.cfg)
        coordinator = Coordinator(
            [key_handler, self.schema_ids.handler(), *handlers], self.runner.endpoint, on_lost=on_lost
        )
        try:
            yield StageArguments(properties, coordinator.address, coordinator.token, faults.driver_pids(), inputs)
        finally:
            coordinator.close()


@contextmanager
def open_task(index: int, arguments: StageArguments[InputsT]) -> Iterator[tuple[ConnectorConfig, CoordinatorClient]]:
    """Connect a task to its driver; yield the configuration, and the connection over which it calls operations.

    Args:
        index: The task's index.
        arguments: What the task was started with.

    Raises:
        ConfigError: This host cannot read the configuration, for example a converter's module is missing.
        StateError: The driver is gone.
    """
    faults.set_driver_pids(arguments.driver_pids)
    with CoordinatorClient(arguments.address, arguments.token, index) as channel:
        yield load_task_config(channel, arguments.properties), channel
