"""Entry of every Spark job: read the spec file, run, and end with a clear line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.spark.errors import named_error
from airflow_provider_mysql_cdc.spark.spark_version import jars_version, require_one_version

EXIT_RETRY, EXIT_FAIL = 75, 78
"""Exit codes: a retry can help (EX_TEMPFAIL), or a person is needed (EX_CONFIG)."""

Run = Callable[[JobSpec, TaskRunner, Callable[[str], None]], Any]


def log(line: str) -> None:
    """Print one progress line; Airflow's task log shows the driver's standard output."""
    print(f"[mysql-cdc] {line}", flush=True)


def spec_path(arguments: list[str]) -> Path:
    """Return the spec file: the path given, or the file of that name shipped with --files.

    Args:
        arguments: Command line without the program's name.
    """
    path = Path(arguments[0])
    if path.exists():
        return path
    from pyspark import SparkFiles

    return Path(SparkFiles.get(path.name))


def main(run: Run, arguments: list[str] | None = None) -> None:
    """Run a job on Spark and exit.

    Args:
        run: ``run_drain`` or ``run_snapshot``.
        arguments: Command line; one argument, the spec file.
    """
    import pyspark
    from pyspark import SparkConf, SparkContext

    os.environ["MYSQL_CDC_SPARK_DRIVER"] = "1"
    try:
        home = os.environ.get("SPARK_HOME", "")
        require_one_version(pyspark.__version__, jars_version(home), pyspark.__file__)
    except ConfigError as error:
        log(f"ConfigError: {error.message()}")
        sys.exit(EXIT_FAIL)
    conf = SparkConf()
    # A second copy of a writer would fence the first one (F04); a failed writer's batch is retried as a whole.
    if conf.get("spark.speculation", "false") == "true":
        log("ConfigError: spark.speculation=true starts writers twice; set it to false")
        sys.exit(EXIT_FAIL)
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    try:
        from airflow_provider_mysql_cdc.spark.spark_tasks import SparkRunner

        spec = JobSpec.read(spec_path(sys.argv[1:] if arguments is None else arguments))
        run(spec, SparkRunner(context), log)
    except Exception as error:
        found = named_error(error)
        if found is None:
            traceback.print_exc()
            sys.exit(EXIT_RETRY)
        log(f"{type(found).__name__}: {found.message()}")
        sys.exit(EXIT_RETRY if found.can_retry else EXIT_FAIL)
    finally:
        context.stop()
