"""Named errors across Spark, which brings a task's exception back to the driver as text only."""

from __future__ import annotations

import json
import re

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError, from_json

ERROR_MARK = "mysql-cdc-error:"


def named_error(error: BaseException) -> CdcError | None:
    """Return the CdcError behind an error, also one that came back from a task.

    Args:
        error: What a job raised.
    """
    if isinstance(error, CdcError):
        return error
    text = str(error)
    start = text.rfind(ERROR_MARK)
    if start < 0:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start + len(ERROR_MARK) :])
        return from_json(data)
    except (ValueError, RecursionError):
        return None


_PACKAGE = "airflow_provider_mysql_cdc"
_PACK_HINT = f"python -m {_PACKAGE}.environment packs one that serves (docs/spark.md)"
# What Spark's own messages say about executors whose Python is not what the driver's is.
_EXECUTOR_PROBLEMS = (
    (
        re.compile(r"No module named '?(\w+)"),
        "the executors' Python lacks a module",
        f"let spark.pyspark.python name an environment that has it; {_PACK_HINT}",
    ),
    (
        re.compile(rf"Can't get attribute \S+ on <module '{_PACKAGE}[^>]*"),
        "driver and executors run different versions of airflow-provider-mysql-cdc",
        f"give the executors the driver's version; {_PACK_HINT}",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "the executors' Python is not there",
        f"let spark.pyspark.python name a program on the executors, or one in an archive (archives=); {_PACK_HINT}",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH\S* (.{0,200})", re.DOTALL),
        "the executors' Python is of another version than the driver's",
        f"let both have the same minor version (spark.pyspark.driver.python, spark.pyspark.python); {_PACK_HINT}",
    ),
)


# Spark has stopped its context by itself; what it says of it stands in the driver's log only.
_APPLICATION_ENDED = re.compile(
    r"Master removed our application: \w+|All masters are unresponsive[^\n]{0,100}"
    r"|Cannot call methods on a stopped SparkContext|because SparkContext was shut down"
    r"|cancelled as part of cancellation of all jobs"
)


def application_error(error: BaseException, stopped: bool = False) -> CdcError | None:
    """Return that the cluster has ended the application, when that is why a call of Spark failed.

    Source: org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend.dead, org.apache.spark.deploy.client.
    StandaloneAppClient, org.apache.spark.SparkContext.assertNotStopped, DAGScheduler.cleanUpAfterSchedulerStop (4.x).

    Args:
        error: What Spark raised.
        stopped: Whether the context has stopped by itself; a call that met it fails with whatever was gone first.
    """
    match = _APPLICATION_ENDED.search(str(error))
    if match is None and not stopped:
        return None
    return StateError(
        "Spark has ended this job's application",
        where="Spark cluster",
        why=match[0] if match else " ".join(str(error).split())[:200],
        remedy="read Spark's own lines above (Application has been killed. Reason: ...): the driver has to reach the "
        "master, with the cluster's own spark.authenticate, spark.network.crypto and spark.ssl, and executors have to "
        "start; the next try goes on behind the last commit",
        retriable=True,
    )


# SparkContext finds them out before it asks any cluster.
_SETTINGS_REFUSED = re.compile(r"IllegalArgumentException: ([^\n]{1,300})|(\[INVALID_SPARK_CONFIG[^\n]{1,300})")


def settings_error(error: BaseException) -> CdcError | None:
    """Return that Spark refuses its own settings, when that is why no context could be made.

    Source: org.apache.spark.SparkConf.validateSettings, org.apache.spark.SecurityManager.initializeAuth (4.x).

    Args:
        error: What Spark raised.
    """
    match = _SETTINGS_REFUSED.search(str(error))
    if match is None:
        return None
    return ConfigError(
        "Spark refuses its settings",
        where="conf of the task or of its Spark connection, or the cluster's spark-defaults.conf",
        why=match[1] or match[2],
        remedy="correct the setting that Spark names",
    )


# A task that ended without an error of its own, with the executor it ran on or alone.
_TASK_LOST = re.compile(r"(ExecutorLostFailure \([^\n]{0,300}|Python worker exited unexpectedly[^\n]{0,100})")


def executor_error(error: BaseException) -> CdcError | None:
    """Return what happened on the executors, when that is why a stage failed.

    Source: messages of org.apache.spark.api.python.PythonWorkerFactory and PythonRunner, of
    org.apache.spark.ExecutorLostFailure and of pyspark/worker_util.py (4.x).

    Args:
        error: What Spark raised.
    """
    text = str(error)
    for pattern, what, remedy in _EXECUTOR_PROBLEMS:
        if match := pattern.search(text):
            return ConfigError(what, where="Spark executors", why=" ".join(match[0].split()), remedy=remedy)
    if match := _TASK_LOST.search(text):
        return StateError(
            "Spark lost a task of this job",
            where="Spark executors",
            why=match[0],
            remedy="read the executor's stderr (killed, out of memory?); the next try goes on behind the last commit",
            retriable=True,
        )
    return None
