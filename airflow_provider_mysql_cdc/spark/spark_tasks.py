"""Tasks as Spark tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from pyspark import SparkConf, SparkContext

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.job.task_runner import Task
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.errors import MARK, application_error, executor_error, named_error
from airflow_provider_mysql_cdc.spark.executor_failures import MOST, RETRIES, ExecutorEnds
from airflow_provider_mysql_cdc.spark.starvation import told_while_starving

COORDINATOR = "spark.mysqlcdc.coordinator."
"""``host``, ``bindAddress`` and ``port`` of the channel from tasks to driver; Spark's own are the default."""
SETTLE_S = 2.0
"""Seconds without a further slot after which all executors count as there."""
WAIT = "spark.scheduler.maxRegisteredResourcesWaitingTime"
WAIT_MS = 30_000
ASKED = (
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.cores.max",
    "spark.task.cpus",
)
"""What keeps a cluster from giving executors."""


class SparkRunner:
    """Run tasks as one Spark stage with one partition for each task.

    The partitions carry no rows: a task reads MySQL and writes Kafka by itself and returns only counters. So plain RDD
    tasks do, without the cost of a SQL session, Arrow and pandas in every Python worker (docs/adr/0002).

    Args:
        context: The Spark context.
        log: Takes one line of text.
    """

    def __init__(self, context: SparkContext, log: Log = lambda line: None) -> None:
        self._context, self._log = context, log
        conf = context.getConf()
        self.endpoint = endpoint(conf)
        self._local = str(context.master).startswith("local[") or context.master == "local"
        # A local master has no executors to come and go (org.apache.spark.util.Utils.isDynamicAllocationEnabled).
        elastic = str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
        self._elastic = elastic and not self._local
        self._waited = False
        self._standalone = str(context.master).startswith("spark://")
        self._ends: ExecutorEnds | None = None
        self._given_up: CdcError | None = None

    def slots(self, wanted: int = 0) -> int:
        """Return how many tasks can run at once on the executors that are there, at least one.

        Executors register one after the other: as many slots as are wanted are waited for, as long as Spark itself
        would wait (``spark.scheduler.maxRegisteredResourcesWaitingTime``); without a number, until no more come.

        ``defaultParallelism`` is not that number: it is 2 while no executor has registered and on one core, or what
        ``spark.default.parallelism`` says. A barrier stage of more tasks than slots never starts: Spark looks 40 times,
        every 15 s, and gives up (``spark.scheduler.barrier.maxConcurrentTasksCheck.*``).

        Source: org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend.defaultParallelism and
        org.apache.spark.SparkContext.maxNumConcurrentTasks (4.x).
        """
        jvm: Any = self._context._jvm
        spark = self._context._jsc.sc()
        one = jvm.java.util.ArrayList()
        one.add(1)
        # A first task, without a Python worker, waits for the executors.
        with self._watched():
            self._context._jsc.parallelize(one, 1).count()

        def now() -> int:
            return max(1, int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())))

        # Where executors come as tasks wait for them, none comes before. Waited is once: a job may have many rounds.
        if self._local or self._elastic or self._waited:
            return now()
        self._waited = True
        patience = float(spark.conf().getTimeAsMs(WAIT, f"{WAIT_MS}ms")) / 1000
        return settled(now, wanted, patience)

    def run(self, task: Task, count: int, arguments: dict[str, Any], *, gang: bool) -> list[Any]:
        """Run ``task(index, arguments)`` for each index.

        Args:
            task: A module-level function.
            count: Number of tasks.
            arguments: Values that can be pickled.
            gang: Use a barrier stage: all tasks at once or none. Spark refuses such a stage with dynamic allocation
                (SPARK-24942); the tasks are then ordinary ones, which meet at the driver or end with its error: it
                waits a limited time for all of them, and takes no second attempt of one.

        Raises:
            CdcError: A task ended with it, or the executors cannot run tasks.
        """
        shared = self._context.broadcast(arguments)
        body = _body(task, shared)
        rdd = self._context.parallelize(range(count), count)
        try:
            with self._watched():
                if gang and not self._elastic:
                    return list(rdd.barrier().mapPartitions(body).collect())
                return list(rdd.mapPartitions(body).collect())
        finally:
            with suppress(Exception):  # the context is gone; what was raised inside says why
                shared.destroy()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Name what the stage inside fails with, and say while it has no task that runs; a local one has its slots.

        Raises:
            CdcError: A task ended with it, or Spark cannot run tasks.
        """
        self._given_up = None
        try:
            with nullcontext() if self._local else told_while_starving(self._running, self._tell_starving):
                yield
        except Exception as error:
            stopped = bool(self._context._jsc.sc().isStopped())
            found = self._given_up or named_error(error) or executor_error(error) or application_error(error, stopped)
            if found is None:
                raise
            raise found from None

    def _running(self) -> int | None:
        """Return how many tasks run now, or None when there is no stage."""
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = sum(stage.numActiveTasks for stage in stages if stage is not None) if stages else None
        if self._standalone:
            self._look_at_ends(running)
        return running

    def _look_at_ends(self, running: int | None) -> None:
        """End the stage when one executor after the other ends before it is there, as Spark's master would."""
        if running != 0:
            if self._ends is not None:
                self._ends.forget()
            return
        try:
            self._ends = self._ends or ExecutorEnds(self._context._jvm)
            self._ends.look()
        except Exception:  # the driver logs with something else than log4j
            self._standalone = False
            return
        most = int(self._context.getConf().get(RETRIES) or MOST)
        if 0 <= most <= self._ends.number and not self._executors():
            self._given_up = self._ends.error(str(self._context.master))
            self._context.cancelAllJobs()

    def _executors(self) -> int:
        spark: Any = self._context._jsc.sc()
        return max(0, int(spark.getExecutorMemoryStatus().size()) - 1)

    def _tell_starving(self, idle_s: float) -> None:
        conf = self._context.getConf()
        asked = ", ".join(f"{name}={value}" for name in ASKED if (value := conf.get(name)))
        ended = f"; {self._ends.number} have ended: {self._ends.last}" if self._ends and self._ends.number else ""
        self._log(
            f"waiting for Spark: no task of this job has run for {idle_s:.0f} s, {self._executors()} executor(s) are "
            f"there{ended}. "
            "Others hold the cluster's cores, or none of its workers has what is asked for "
            f"({asked or 'nothing is set'}); the web page of {self._context.master} tells"
        )


def endpoint(conf: SparkConf) -> Endpoint:
    """Return where the driver listens for its tasks.

    Args:
        conf: Spark's configuration; what is not said for the coordinator holds as for Spark's own driver.
    """
    host = conf.get(COORDINATOR + "host") or conf.get("spark.driver.host") or "127.0.0.1"
    bind = conf.get(COORDINATOR + "bindAddress") or conf.get("spark.driver.bindAddress") or ""
    port = conf.get(COORDINATOR + "port") or "0"
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError("this is no port", where=COORDINATOR + "port", why=repr(port), remedy="give 0 to 65535")
    return Endpoint(host, bind, int(port))


def settled(now: Callable[[], int], wanted: int, patience_s: float) -> int:
    """Return the slots that are there once as many as wanted have come, or no more come.

    Args:
        now: Returns how many there are.
        wanted: How many are enough; 0 for all that come.
        patience_s: Longest wait in seconds.
    """
    found, began = now(), time.monotonic()
    grown = began
    while (not wanted or found < wanted) and time.monotonic() - began < patience_s:
        if not wanted and time.monotonic() - grown >= SETTLE_S:
            break
        time.sleep(0.1)
        if (more := now()) != found:
            found, grown = more, time.monotonic()
    return found


def _require_version(driver: str) -> None:
    """Refuse a driver of another version: the tasks would not agree with it, nor with each other.

    Raises:
        ConfigError: It is another.
    """
    if driver != __version__:
        raise ConfigError(
            "driver and executors run different versions of airflow-provider-mysql-cdc",
            why=f"the driver has {driver}, the executor {__version__}",
            remedy="pack the executors' environment again with the driver's version (docs/spark.md)",
        )


def _body(task: Task, shared: Any) -> Callable[[Iterator[int]], Iterator[Any]]:
    version = __version__

    def run(indexes: Iterator[int]) -> Iterator[Any]:
        for index in indexes:
            try:
                _require_version(version)
                yield task(index, shared.value)
            except CdcError as error:
                # Spark brings an exception back as text only.
                raise RuntimeError(MARK + json.dumps(error.to_json())) from error

    return run
