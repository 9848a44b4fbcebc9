"""Named errors across Spark, which brings a task's exception back to the driver as text only."""

from __future__ import annotations

import json
import re

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError, from_json

MARK = "mysql-cdc-error:"


def named_error(error: BaseException) -> CdcError | None:
    """Return the CdcError behind an error, also one that came back from a task.

    Args:
        error: What a job raised.
    """
    if isinstance(error, CdcError):
        return error
    text = str(error)
    start = text.rfind(MARK)
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start + len(MARK) :])
        return from_json(data)
    except (ValueError, RecursionError):
        return None


_PACKAGE = "airflow_provider_mysql_cdc"
_PACK = f"python -m {_PACKAGE}.environment packs one that serves (docs/spark.md)"
# What Spark's own messages say about executors whose Python is not what the driver's is.
_EXECUTORS = (
    (
        re.compile(r"No module named '?(\w+)"),
        "the executors' Python lacks a module",
        f"let spark.pyspark.python name an environment that has it; {_PACK}",
    ),
    (
        re.compile(rf"Can't get attribute \S+ on <module '{_PACKAGE}[^>]*"),
        "driver and executors run different versions of airflow-provider-mysql-cdc",
        f"give the executors the driver's version; {_PACK}",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "the executors' Python is not there",
        f"let spark.pyspark.python name a program on the executors, or one in an archive (archives=); {_PACK}",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH\S* (.{0,200})", re.DOTALL),
        "the executors' Python is of another version than the driver's",
        f"let both have the same minor version (spark.pyspark.driver.python, spark.pyspark.python); {_PACK}",
    ),
)


# A task that ended without an error of its own, with the executor it ran on or alone.
_LOST = re.compile(r"(ExecutorLostFailure \([^\n]{0,300}|Python worker exited unexpectedly[^\n]{0,100})")


def executor_error(error: BaseException) -> CdcError | None:
    """Return what happened on the executors, when that is why a stage failed.

    Source: messages of org.apache.spark.api.python.PythonWorkerFactory and PythonRunner, of
    org.apache.spark.ExecutorLostFailure and of pyspark/worker_util.py (4.x).

    Args:
        error: What Spark raised.
    """
    text = str(error)
    for pattern, what, remedy in _EXECUTORS:
        if found := pattern.search(text):
            return ConfigError(what, where="Spark executors", why=" ".join(found[0].split()), remedy=remedy)
    if found := _LOST.search(text):
        return StateError(
            "Spark lost a task of this job",
            where="Spark executors",
            why=found[0],
            remedy="read the executor's stderr (killed, out of memory?); the next try goes on behind the last commit",
            retriable=True,
        )
    return None
