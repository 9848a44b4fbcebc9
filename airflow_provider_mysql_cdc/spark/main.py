"""Entry point of every Spark job: read the spec file, make the driver's process fit, run the job, end with an exit
code.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_error import reporting_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE, YARN_CREDENTIAL
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.connect_main import connect_runner, inherited_settings
from airflow_provider_mysql_cdc.spark.errors import named_job_error, settings_error

LEVEL_SETTING, DEFAULT_LEVEL = "spark.log.level", "WARN"
"""A job that is submitted with another level than the default of this provider gets all lines of that level."""
# In local mode they write a page of Java and Python for an error of a task, whose text the driver writes as well: an
# error without a name with the whole exception of Spark (org.apache.spark.executor.Executor, TaskSetManager, 4.3).
TASK_LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


def reduce_log(context: Any) -> None:
    """Have Spark write errors only, and none of those with which a task ends.

    Args:
        context: The Spark context.
    """
    if not _is_default(context):
        return
    context.setLogLevel("ERROR")
    with suppress(Exception):  # the driver does not log with log4j
        log4j = context._jvm.org.apache.logging.log4j
        for name in TASK_LOGGERS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def silence_stop(context: Any) -> None:
    """Have the JVM of a driver in client mode write nothing more, because the job has ended and its error is known.

    While Spark stops, an answer of an executor may come too late, and Java writes the stack of a
    ``RejectedExecutionException``: as an error of TransportResponseHandler, or without a logger from the execution
    context of Scala, which calls ``printStackTrace`` (org.apache.spark.rpc.netty.NettyRpcEnv.askAbortable, 4.3: in 4 of
    10 runs on a standalone cluster).

    Args:
        context: The Spark context, before it is stopped.
    """
    if not _is_default(context) or context.getConf().get("spark.submit.deployMode", "client") != "client":
        return
    with suppress(Exception):  # the JVM is gone
        context.setLogLevel("OFF")
        java = context._jvm.java
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def _is_default(context: Any) -> bool:
    return str(context.getConf().get(LEVEL_SETTING, DEFAULT_LEVEL)).upper() == DEFAULT_LEVEL


def leave_out_numpy() -> None:
    """Leave out NumPy's values among those that are converted for Java; call it before a context is made.

    PySpark asks of each argument whether it is NumPy's, and for the question it imports NumPy, pandas and pyarrow where
    they are installed (``pyspark.sql.types``, Spark 4.3): half a CPU second at each start. A job has no such values.
    """
    from py4j import protocol  # type: ignore[import-untyped]
    from pyspark.sql import types

    of_numpy = types.NumpyScalarConverter, types.NumpyArrayConverter
    # In place: a gateway that is there already has this list.
    protocol.INPUT_CONVERTER[:] = [each for each in protocol.INPUT_CONVERTER if not isinstance(each, of_numpy)]


POLL_S = 1.0
"""Seconds between two checks of the JVM."""


def exit_with_parent(code: int) -> None:
    """End this process when its parent process has ended.

    spark-submit's JVM starts the driver's Python (org.apache.spark.deploy.PythonRunner) and ends it in a shutdown hook.
    A JVM that is killed, by a person or because the machine is out of memory, runs no hook. Python would notice at its
    next call of Spark, and hold the stream's lock until then; without new events that is the end of ``run_for``.

    Args:
        code: Exit code. Committed records stay; everything else ends as if this process had been killed.
    """
    threading.Thread(target=_watch, args=(os.getppid(), code), name="cdc-lifeline", daemon=True).start()


def _watch(parent: int, code: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(code)


_CORE_JAR = re.compile(r"spark-core_[\d.]+-(\d.*)\.jar")


def jars_version(spark_home: str) -> str | None:
    """Return the version of the Spark in a folder from the name of its core jar, or None when there is no such jar.

    Args:
        spark_home: Value of SPARK_HOME; in YARN's cluster mode the jars are elsewhere.
    """
    matches = (_CORE_JAR.fullmatch(path.name) for path in Path(spark_home, "jars").glob("spark-core_*.jar"))
    return next((match[1] for match in matches if match), None)


def require_same_version(python: str, java: str | None, pyspark_file: str) -> None:
    """Refuse the Python files of one Spark with the jars of another, because their protocol has no version.

    Args:
        python: ``pyspark.__version__``.
        java: Version of the jars; None when it is not known.
        pyspark_file: File from which pyspark came.

    Raises:
        ConfigError: The minor versions differ.
    """
    if java is None or _release(python) == _release(java):
        return
    raise ConfigError(
        "pyspark and Spark have different versions",
        where=f"{pyspark_file} is {python}, the jars of SPARK_HOME={os.environ.get('SPARK_HOME', '')} are {java}",
        why="pyspark-client has replaced files of pyspark, or PYTHONPATH or PYSPARK_PYTHON selects another pyspark",
        remedy="pip install --force-reinstall --no-deps pyspark=="
        f"{java} in that environment; or uninstall pyspark there, because spark-submit provides its own",
    )


def _release(version: str) -> str:
    """Return the minor release, for example 4.0 of 4.0.1-amzn-2; patch releases do not change the protocol."""
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else version


EXIT_RETRY, EXIT_FAIL = 75, 78
"""Exit codes: a retry can help (EX_TEMPFAIL), or it cannot (EX_CONFIG)."""

WORKER_MEMORY = "spark.python.worker.memory"
SHUFFLE_MEMORY = "64m"
"""PySpark collects what is shuffled until a Python worker has half of this; by default (512m) all the more, the more
buckets there are (pyspark.RDD.partitionBy)."""

END_QUIET_TASKS = "spark.python.worker.killOnIdleTimeout"
"""By which a cluster may end tasks that hand on nothing for a while (since 4.1); these do so only when they end."""

JobFunction = Callable[[JobSpec, TaskRunner, Log], Any]
ErrorReport = Callable[[JobSpec, Log, Callable[[BaseException], CdcError | None]], AbstractContextManager[None]]
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"


def log(line: str) -> None:
    """Print one progress line; Airflow's task log shows the driver's standard output."""
    print(f"[mysql-cdc] {line}", flush=True)


def main(run: JobFunction, arguments: list[str] | None = None, *, reporting: ErrorReport = reporting_job_error) -> None:
    """Run a job on Spark and exit.

    The error that the job ends with goes to the ledger, to the driver's output, and into the exit code, because the
    operator cannot reach all of these in every deploy mode.

    Args:
        run: ``run_drain`` or ``run_snapshot``.
        arguments: Command line; one argument, the spec file.
        reporting: Writes the error that the job ends with into the ledger.
    """
    connect = inherited_settings()
    os.environ["MYSQL_CDC_SPARK_DRIVER"] = "spark-submit" if connect is None else "connect"
    if _GATEWAY_VARIABLE in os.environ:
        exit_with_parent(EXIT_RETRY)
    try:
        # In cluster modes the path is relative to the folder that the driver is started in, where the file is shipped.
        spec = JobSpec.read(Path((sys.argv[1:] if arguments is None else arguments)[0]), spec_key)
        with reporting(spec, log, named_job_error):
            if connect is None:
                _on_spark(run, spec)
            else:
                with connect_runner(connect, session_name(spec), log, EXIT_RETRY) as runner:
                    run(spec, runner, log)
    except CdcError as error:
        # One line: the operator finds the error in the output by its name at the beginning.
        log(" ".join(f"{type(error).__name__}: {error.message()}".split()))
        sys.exit(EXIT_RETRY if error.can_retry else EXIT_FAIL)


def session_name(spec: JobSpec) -> str:
    """Return whose jobs share a session at a Spark Connect server: the stream's, or the fleet task's.

    The streams of a fleet's job differ from run to run, as those without changes are left out; its task does not.

    Args:
        spec: The job.
    """
    if prefix := spec.properties.get("topic.prefix"):
        return str(prefix)
    owner = spec.owner.split("/")  # dag_id/run_id/task_id/map_index
    return "/".join((spec.mode, *owner[:1], *owner[2:]))


def spec_key() -> str | None:
    """Return the key of an encrypted spec; None when there is no key.

    The key is in this process's environment when spark-submit has started it, otherwise among the credentials that YARN
    passes to the application (``hooks.spec_delivery``).
    """
    if key := os.environ.pop(KEY_VARIABLE, None):
        return key
    if _GATEWAY_VARIABLE not in os.environ:  # not started by spark-submit
        return None
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    hadoop: Any = SparkContext._jvm.org.apache.hadoop  # type: ignore[union-attr]
    user = hadoop.security.UserGroupInformation.getCurrentUser()
    secret_key = user.getCredentials().getSecretKey(hadoop.io.Text(YARN_CREDENTIAL))
    return None if secret_key is None else bytes(secret_key).decode()


def _on_spark(run: JobFunction, spec: JobSpec) -> None:
    import pyspark
    from pyspark import SparkConf, SparkContext

    require_same_version(pyspark.__version__, jars_version(os.environ.get("SPARK_HOME", "")), pyspark.__file__)
    leave_out_numpy()
    SparkContext._ensure_initialized()  # without a JVM there are no settings of the application
    conf = SparkConf()
    # A second copy of a writer would fence the first one (F04); a failed writer's batch is retried as a whole.
    # The operators submit jobs with false, which overrides the cluster's own settings.
    if str(conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise ConfigError(
            "spark.speculation=true would start a second copy of a writer, which fences the first one",
            where="conf",
            remedy="set spark.speculation to false",
        )
    conf.set(END_QUIET_TASKS, "false")
    try:
        context = SparkContext(conf=conf.setIfMissing(WORKER_MEMORY, SHUFFLE_MEMORY))
    except Exception as error:
        if (named_failure := settings_error(error)) is None:
            raise
        raise named_failure from None
    reduce_log(context)
    page = context.uiWebUrl
    log(f"Spark application {context.applicationId}" + (f", page {page}" if page else ""))
    try:
        from airflow_provider_mysql_cdc.spark.spark_tasks import SparkRunner

        run(spec, SparkRunner(context, log), log)
    finally:
        silence_stop(context)
        context.stop()
