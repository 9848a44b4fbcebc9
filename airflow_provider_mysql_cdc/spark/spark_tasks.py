"""Tasks as Spark tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import SparkContext

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.task_runner import Task
from airflow_provider_mysql_cdc.spark.errors import MARK, named_error


class SparkRunner:
    """Run tasks as one Spark stage with one partition for each task.

    The partitions carry no rows: a task reads MySQL and writes Kafka by itself and returns only counters. So plain RDD
    tasks do, without the cost of a SQL session, Arrow and pandas in every Python worker (docs/adr/0002).

    Args:
        context: The Spark context.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self.host = str(context.getConf().get("spark.driver.host", "127.0.0.1"))

    def slots(self) -> int:
        """Return how many tasks can run at once on the executors that are there, at least one.

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
        self._context._jsc.parallelize(one, 1).count()
        return max(1, int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())))

    def run(self, task: Task, count: int, arguments: dict[str, Any], *, gang: bool) -> list[Any]:
        """Run ``task(index, arguments)`` for each index.

        Args:
            task: A module-level function.
            count: Number of tasks.
            arguments: Values that can be pickled.
            gang: Use a barrier stage: all tasks at once or none.
        """
        shared = self._context.broadcast(arguments)
        body = _body(task, shared)
        rdd = self._context.parallelize(range(count), count)
        try:
            if gang:
                return list(rdd.barrier().mapPartitions(body).collect())
            return list(rdd.mapPartitions(body).collect())
        except Exception as error:
            found = named_error(error)
            if found is None:
                raise
            raise found from None
        finally:
            shared.destroy()


def _body(task: Task, shared: Any) -> Callable[[Iterator[int]], Iterator[Any]]:
    def run(indexes: Iterator[int]) -> Iterator[Any]:
        for index in indexes:
            try:
                yield task(index, shared.value)
            except CdcError as error:
                # Spark brings an exception back as text only.
                raise RuntimeError(MARK + json.dumps(error.to_json())) from error

    return run
