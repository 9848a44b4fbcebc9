"""A job that only does what every job does at its start: ``spark-submit empty_job.py``."""

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext

from airflow_provider_mysql_cdc.spark.spark_tasks import SparkRunner


def no_op(index: int, arguments: Mapping[str, Any]) -> int:
    """Return the task's number.

    Args:
        index: The number.
        arguments: Unused.
    """
    return index


if __name__ == "__main__":
    context = SparkContext(conf=SparkConf())
    try:
        runner = SparkRunner(context)
        runner.run(no_op, runner.slots(1), {}, barrier=True)
    finally:
        context.stop()
