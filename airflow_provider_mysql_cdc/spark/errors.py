"""Named errors of tasks and of Spark itself, and what every task does about them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError, from_json

ERROR_MARK = "mysql-cdc-error:"


def named_error(error: BaseException) -> CdcError | None:
    """Return the CdcError that an error is or contains, also one from a task; None when there is none.

    Args:
        error: The exception of a job.
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
_PACK_HINT = f"python -m {_PACKAGE}.environment packs a suitable one (docs/spark.md)"
# Spark's messages about executors whose Python differs from the driver's.
_EXECUTOR_PROBLEMS = (
    (
        re.compile(r"No module named '?(\w+)"),
        "a Python module is missing on the executors",
        f"set spark.pyspark.python to an environment that has it; {_PACK_HINT}",
    ),
    (
        re.compile(rf"Can't get attribute \S+ on <module '{_PACKAGE}[^>]*"),
        "driver and executors run different versions of airflow-provider-mysql-cdc",
        f"install the driver's version on the executors; {_PACK_HINT}",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "the Python program of the executors does not exist",
        f"set spark.pyspark.python to a program on the executors, or to one in an archive (archives=); {_PACK_HINT}",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH\S* (.{0,200})", re.DOTALL),
        "driver and executors run different Python versions",
        f"use the same minor version for both (spark.pyspark.driver.python, spark.pyspark.python); {_PACK_HINT}",
    ),
)


# Spark has stopped its context by itself; only the driver's log has its message.
_APPLICATION_ENDED = re.compile(
    r"Master removed our application: \w+|All masters are unresponsive[^\n]{0,100}"
    r"|Cannot call methods on a stopped SparkContext|because SparkContext was shut down"
    r"|cancelled as part of cancellation of all jobs"
)


def application_error(error: BaseException, stopped: bool = False) -> CdcError | None:
    """Return an error when a call of Spark failed because the cluster has ended the application.

    Source: org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend.dead, org.apache.spark.deploy.client.
    StandaloneAppClient, org.apache.spark.SparkContext.assertNotStopped, DAGScheduler.cleanUpAfterSchedulerStop (4.x).

    Args:
        error: The exception of Spark.
        stopped: Whether the context has stopped by itself; then a call may fail with any exception.
    """
    match = _APPLICATION_ENDED.search(str(error))
    if match is None and not stopped:
        return None
    return StateError(
        "Spark has ended the application of this job",
        where="Spark cluster",
        why=match[0] if match else " ".join(str(error).split())[:200],
        remedy="read Spark's own lines above (Application has been killed. Reason: ...): the driver must reach the "
        "master, with the cluster's own spark.authenticate, spark.network.crypto and spark.ssl, and executors must "
        "start; a retry continues after the last commit",
        retriable=True,
    )


def named_job_error(error: BaseException) -> CdcError | None:
    """Return the named error that a job ended with; None when it has no name.

    Args:
        error: The exception of the job.
    """
    return named_error(error) or application_error(error)


# SparkContext validates its settings before it connects to a cluster.
_SETTINGS_REFUSED = re.compile(r"IllegalArgumentException: ([^\n]{1,300})|(\[INVALID_SPARK_CONFIG[^\n]{1,300})")


def settings_error(error: BaseException) -> CdcError | None:
    """Return an error when no context could be created because Spark refuses its settings.

    Source: org.apache.spark.SparkConf.validateSettings, org.apache.spark.SecurityManager.initializeAuth (4.x).

    Args:
        error: The exception of Spark.
    """
    match = _SETTINGS_REFUSED.search(str(error))
    if match is None:
        return None
    return ConfigError(
        "Spark refuses its settings",
        where="conf of the task or of its Spark connection, or the cluster's spark-defaults.conf",
        why=match[1] or match[2],
        remedy="correct the setting that the message names",
    )


# A task that ended without an error of its own, with its executor or alone.
_TASK_LOST = re.compile(r"(ExecutorLostFailure \([^\n]{0,300}|Python worker exited unexpectedly[^\n]{0,100})")


_TOO_FEW_SLOTS = re.compile(r"a barrier stage that requires more slots than the total number of slots[^.\n]{0,50}")


def too_few_slots(where: str, why: str) -> StateError:
    """Return the error when Spark cannot start tasks that must run at the same time.

    Args:
        where: The server or cluster.
        why: How this is known.
    """
    return StateError(
        "Spark has fewer slots than this job has tasks",
        where=where,
        why=why,
        remedy="give Spark more executors, or set snapshot.parallelism (at a Spark Connect server also "
        "spark.mysqlcdc.slots of the Spark connection) to the number of tasks that its executors can run at once",
        retriable=True,
    )


def executor_error(error: BaseException) -> CdcError | None:
    """Return an error when a stage failed because of its executors.

    Source: messages of org.apache.spark.api.python.PythonWorkerFactory and PythonRunner, of
    org.apache.spark.ExecutorLostFailure, of pyspark/worker_util.py, and of
    org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed (4.x).

    Args:
        error: The exception of Spark.
    """
    text = str(error)
    for pattern, what, remedy in _EXECUTOR_PROBLEMS:
        if match := pattern.search(text):
            return ConfigError(what, where="Spark executors", why=" ".join(match[0].split()), remedy=remedy)
    if match := _TOO_FEW_SLOTS.search(text):
        return too_few_slots("Spark", f"it does not run {match[0]}")
    if match := _TASK_LOST.search(text):
        return StateError(
            "Spark lost a task of this job",
            where="Spark executors",
            why=match[0],
            remedy="read the executor's stderr (killed, out of memory?); a retry continues after the last commit",
            retriable=True,
        )
    return None


SHOW_VARIABLES = "SPARK_TRACEBACK_WITH_LOCALS"
"""Variable of a Python worker by which Spark (4.3) adds the values of all variables to the text of an error:
``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled``."""


@contextmanager
def marking_errors() -> Iterator[None]:
    """End a task with the text of a named error: Spark passes it to the driver, and nothing else of an exception.

    The values of variables, passwords among them, never become part of the text of any error.

    Raises:
        RuntimeError: A named error was raised inside; ``errors.named_error`` finds it in the text.
    """
    os.environ.pop(SHOW_VARIABLES, None)
    try:
        yield
    except CdcError as error:
        raise RuntimeError(ERROR_MARK + json.dumps(error.to_json())) from error


def require_version(driver: str) -> None:
    """Refuse a driver of another version, which may plan tasks differently.

    Raises:
        ConfigError: The versions differ.
    """
    if driver != __version__:
        raise ConfigError(
            "driver and executors run different versions of airflow-provider-mysql-cdc",
            why=f"the driver has {driver}, the executor {__version__}",
            remedy="pack the executors' environment again with the driver's version (docs/spark.md)",
        )
