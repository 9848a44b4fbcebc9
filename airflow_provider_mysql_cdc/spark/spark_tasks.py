"""The runner that executes a job's tasks as Spark tasks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any

from pyspark import SparkContext

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.task_runner import ArgumentsT, Block, BucketResultT, Shuffle, TaskResultT
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.cluster_slots import (
    DEFAULT_MAX_RETRIES,
    DEFAULT_REGISTRATION_WAIT_S,
    MAX_RETRIES_SETTING,
    ExecutorFailures,
    endpoint,
    wait_for_slots,
    warn_while_starving,
)
from airflow_provider_mysql_cdc.spark.errors import (
    application_error,
    executor_error,
    marking_errors,
    named_error,
    require_version,
)

REGISTRATION_WAIT = "spark.scheduler.maxRegisteredResourcesWaitingTime"
RESOURCE_SETTINGS = (
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.cores.max",
    "spark.task.cpus",
)
"""Settings because of which a cluster may not start executors."""


class SparkRunner:
    """Run tasks as one Spark stage with one partition for each task.

    The partitions carry no rows: a task reads MySQL and writes Kafka itself and returns only counters. So plain RDD
    tasks are sufficient, without the cost of a SQL session, Arrow and pandas in every Python worker (docs/adr/0002).

    Args:
        context: The Spark context.
        log: Takes one line of text.
    """

    def __init__(self, context: SparkContext, log: Log = lambda line: None) -> None:
        self._context, self._log = context, log
        conf = context.getConf()
        self.endpoint = endpoint(conf.get)
        self._local = str(context.master).startswith("local[") or context.master == "local"
        # A local master has no dynamic allocation (org.apache.spark.util.Utils.isDynamicAllocationEnabled).
        dynamic_allocation = str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
        self._dynamic_allocation = dynamic_allocation and not self._local
        self._slots_awaited = False
        self._standalone = str(context.master).startswith("spark://")
        self._executor_failures: ExecutorFailures | None = None
        self._stage_error: CdcError | None = None

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once on the registered executors, at least one.

        Executors register one after the other. This waits for the required slots as long as Spark itself would wait
        (``spark.scheduler.maxRegisteredResourcesWaitingTime``); without a number, until no more executors register.

        ``defaultParallelism`` is not that number: it is 2 while no executor has registered and on one core, or the
        value of ``spark.default.parallelism``. A barrier stage with more tasks than slots never starts: Spark checks 40
        times, every 15 s, and fails (``spark.scheduler.barrier.maxConcurrentTasksCheck.*``).

        Source: org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend.defaultParallelism and
        org.apache.spark.SparkContext.maxNumConcurrentTasks (4.x).
        """
        jvm: Any = self._context._jvm
        spark = self._context._jsc.sc()
        single_row = jvm.java.util.ArrayList()
        single_row.add(1)
        # A first task, without a Python worker, waits for the executors.
        with self._watch_stage():
            self._context._jsc.parallelize(single_row, 1).count()

        def current_slots() -> int:
            return max(1, int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())))

        # With dynamic allocation executors start only when tasks wait. Wait once: a job may have many rounds.
        if self._local or self._dynamic_allocation or self._slots_awaited:
            return current_slots()
        self._slots_awaited = True
        timeout_s = float(spark.conf().getTimeAsMs(REGISTRATION_WAIT, f"{DEFAULT_REGISTRATION_WAIT_S}s")) / 1000
        return wait_for_slots(current_slots, required, timeout_s)

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run ``task(index, arguments)`` for each index.

        Args:
            task: A module-level function.
            count: Number of tasks.
            arguments: Values that can be pickled.
            barrier: Use a barrier stage: all tasks at once or none. Spark refuses such a stage with dynamic allocation
                (SPARK-24942). The tasks are then ordinary ones, which register at the driver or end with its error: it
                waits a limited time for all of them, and accepts no second attempt of a task.

        Raises:
            CdcError: A task raised it, or the executors cannot run tasks.
        """
        shared = self._context.broadcast(arguments)
        body = _partition_function(task, shared)
        rdd = self._context.parallelize(range(count), count)
        try:
            with self._watch_stage():
                if barrier and not self._dynamic_allocation:
                    return list(rdd.barrier().mapPartitions(body).collect())
                return list(rdd.mapPartitions(body).collect())
        finally:
            with suppress(Exception):  # the context has stopped; the exception from inside is more useful
                shared.destroy()

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
            CdcError: A task raised it, or the executors cannot run tasks.
        """
        shared = self._context.broadcast(arguments)
        rdd = self._context.parallelize(range(count), count)
        stage = rdd if self._dynamic_allocation else rdd.barrier()
        blocks = stage.mapPartitions(_block_function(task, shared))
        try:
            with self._watch_stage():
                buckets = blocks.partitionBy(shuffle.buckets, _bucket_number)
                return list(buckets.mapPartitions(_bucket_function(shuffle.reduce)).collect())
        finally:
            with suppress(Exception):  # the context has stopped; the exception from inside is more useful
                shared.destroy()

    @contextmanager
    def _watch_stage(self) -> Iterator[None]:
        """Replace the exception of a failed stage by a named error, and log while no task of the stage runs.

        Raises:
            CdcError: A task raised it, or Spark cannot run tasks.
        """
        self._stage_error = None
        try:
            with nullcontext() if self._local else warn_while_starving(self._running, self._warn_starving):
                yield
        except Exception as error:
            stopped = bool(self._context._jsc.sc().isStopped())
            named_failure = (
                self._stage_error or named_error(error) or executor_error(error) or application_error(error, stopped)
            )
            if named_failure is None:
                raise
            raise named_failure from None

    def _running(self) -> int | None:
        """Return how many tasks are running, or None when there is no stage."""
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = sum(stage.numActiveTasks for stage in stages if stage is not None) if stages else None
        if self._standalone:
            self._check_executor_failures(running)
        return running

    def _check_executor_failures(self, running: int | None) -> None:
        """End the stage when one executor after the other ends before it registers, as Spark's master would."""
        if running != 0:
            if self._executor_failures is not None:
                self._executor_failures.reset()
            return
        try:
            self._executor_failures = self._executor_failures or ExecutorFailures(self._context._jvm)
            self._executor_failures.poll()
        except Exception:  # the driver does not log with log4j
            self._standalone = False
            return
        max_retries = int(self._context.getConf().get(MAX_RETRIES_SETTING) or DEFAULT_MAX_RETRIES)
        if 0 <= max_retries <= self._executor_failures.count and not self._executors():
            # Jobs end some time after they are cancelled, and executors go on ending meanwhile.
            self._stage_error = self._stage_error or self._executor_failures.error(str(self._context.master))
            self._context.cancelAllJobs()

    def _executors(self) -> int:
        spark: Any = self._context._jsc.sc()
        return max(0, int(spark.getExecutorMemoryStatus().size()) - 1)

    def _warn_starving(self, idle_s: float) -> None:
        conf = self._context.getConf()
        settings = ", ".join(f"{name}={value}" for name in RESOURCE_SETTINGS if (value := conf.get(name)))
        failures = (
            f"; {self._executor_failures.count} have ended, the last one: {self._executor_failures.last_reason}"
            if self._executor_failures and self._executor_failures.count
            else ""
        )
        # The driver does not learn from a cluster manager why it starts no executor.
        self._log(
            f"waiting for Spark: no task of this job has run for {idle_s:.0f} s; {self._executors()} executor(s) are "
            f"registered{failures}. Look at the web page of {self._context.master}: are cores free, and does a worker "
            f"have the requested resources ({settings or 'no resource setting is set'})?"
        )


def _partition_function(
    task: Callable[[int, ArgumentsT], TaskResultT], shared: Any
) -> Callable[[Iterator[int]], Iterator[TaskResultT]]:
    version = __version__

    def run(indexes: Iterator[int]) -> Iterator[TaskResultT]:
        for index in indexes:
            with marking_errors():
                require_version(version)
                yield task(index, shared.value)

    return run


def _block_function(
    task: Callable[[int, ArgumentsT], Iterator[Block]], shared: Any
) -> Callable[[Iterator[int]], Iterator[Block]]:
    version = __version__

    def run(indexes: Iterator[int]) -> Iterator[Block]:
        for index in indexes:
            with marking_errors():
                require_version(version)
                yield from task(index, shared.value)

    return run


@cache
def _freeze_modules() -> None:
    """Leave what this worker has imported out of the garbage collection that PySpark makes after each task.

    There is a task for each bucket, and each of these collections took longer than a small task.
    Source: pyspark.daemon.manager (4.x).
    """
    gc.freeze()


def _bucket_number(bucket: int) -> int:
    return bucket


def _bucket_function(
    reduce: Callable[[Iterable[bytes]], BucketResultT],
) -> Callable[[Iterator[Block]], Iterator[BucketResultT]]:
    def run(blocks: Iterator[Block]) -> Iterator[BucketResultT]:
        with marking_errors():
            _freeze_modules()
            yield reduce(block for _, block in blocks)

    return run
