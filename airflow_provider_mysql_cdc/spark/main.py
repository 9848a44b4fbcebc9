"""Entry of every Spark job: read the spec file, run, and end with a clear line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_error import reporting_job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE, YARN_CREDENTIAL
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.spark.errors import application_error, named_error, settings_error
from airflow_provider_mysql_cdc.spark.jvm_watchdog import exit_with_parent
from airflow_provider_mysql_cdc.spark.spark_version import jars_version, require_same_version

EXIT_RETRY, EXIT_FAIL = 75, 78
"""Exit codes: a retry can help (EX_TEMPFAIL), or a person is needed (EX_CONFIG)."""

JobFunction = Callable[[JobSpec, TaskRunner, Log], Any]
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"


def log(line: str) -> None:
    """Print one progress line; Airflow's task log shows the driver's standard output."""
    print(f"[mysql-cdc] {line}", flush=True)


def main(run: JobFunction, arguments: list[str] | None = None) -> None:
    """Run a job on Spark and exit.

    The error that the job ends with goes to three places, for the operator reads what it can reach: the ledger, the
    driver's output, and the exit code.

    Args:
        run: ``run_drain`` or ``run_snapshot``.
        arguments: Command line; one argument, the spec file.
    """
    os.environ["MYSQL_CDC_SPARK_DRIVER"] = "1"
    if _GATEWAY_VARIABLE in os.environ:
        exit_with_parent(EXIT_RETRY)
    try:
        # In cluster modes the path is relative to the folder that the driver is started in, where the file is shipped.
        spec = JobSpec.read(Path((sys.argv[1:] if arguments is None else arguments)[0]), spec_key)
        with reporting_job_error(spec, log, lambda error: named_error(error) or application_error(error)):
            _on_spark(run, spec)
    except CdcError as error:
        # On one line: whoever reads the output finds the error by its name, which stands at its beginning.
        log(" ".join(f"{type(error).__name__}: {error.message()}".split()))
        sys.exit(EXIT_RETRY if error.can_retry else EXIT_FAIL)


def spec_key() -> str | None:
    """Return the key that the operator has handed over beside a sealed spec; None when there is none.

    It stands in this process's environment where spark-submit started it, else among the credentials that YARN gave to
    the application (``hooks.spec_delivery``).
    """
    if key := os.environ.pop(KEY_VARIABLE, None):
        return key
    if _GATEWAY_VARIABLE not in os.environ:  # nobody's Spark application
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
    conf = SparkConf()
    # A second copy of a writer would fence the first one (F04); a failed writer's batch is retried as a whole.
    # The jobs are submitted with false, which wins over the cluster's own settings.
    if str(conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise ConfigError("spark.speculation=true starts writers twice", where="conf", remedy="set it to false")
    try:
        context = SparkContext(conf=conf)
    except Exception as error:
        if (named_failure := settings_error(error)) is None:
            raise
        raise named_failure from None
    context.setLogLevel("ERROR")
    try:
        from airflow_provider_mysql_cdc.spark.spark_tasks import SparkRunner

        run(spec, SparkRunner(context, log), log)
    finally:
        context.stop()
