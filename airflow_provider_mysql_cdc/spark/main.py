"""Entry point of every Spark job: read the spec file, run the job, and end with an error line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_error import reporting_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE, YARN_CREDENTIAL
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.connect_main import connect_runner, inherited_settings
from airflow_provider_mysql_cdc.spark.driver_log import reduce_log, silence_stop
from airflow_provider_mysql_cdc.spark.errors import named_job_error, settings_error
from airflow_provider_mysql_cdc.spark.java_arguments import leave_out_numpy
from airflow_provider_mysql_cdc.spark.jvm_watchdog import exit_with_parent
from airflow_provider_mysql_cdc.spark.spark_version import jars_version, require_same_version

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
