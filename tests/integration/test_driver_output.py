"""What a real driver's output has of Java: nothing for a task that ends with a named error, nor when Spark stops."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pipelinelib.submit import JVM, spark_home, submit_env

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark import SparkConf, SparkContext
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceSettingError
from airflow_provider_mysql_cdc.spark.main import reduce_log, silence_stop
from airflow_provider_mysql_cdc.spark.spark_tasks import SparkRunner


def task(index, arguments):
    raise SourceSettingError("rows were changed by a statement")


context = SparkContext(conf=SparkConf())
reduce_log(context)
try:
    SparkRunner(context, print).run(task, 1, None, barrier=False)
except CdcError as error:
    print("ended with", type(error).__name__)
silence_stop(context)
context._jvm.java.lang.Throwable("too late").printStackTrace()
context.stop()
"""


@pytest.mark.parametrize("level", ["WARN", "INFO"])
@pytest.mark.exhaustive(but="WARN")
def test_a_named_error_and_the_end_come_without_stacks_of_java(tmp_path: Path, level: str) -> None:
    (tmp_path / "job.py").write_text(JOB)
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", "local[1]", "--conf", "spark.ui.enabled=false", "--conf", f"spark.log.level={level}"),
        *("--driver-java-options", f"{JVM} -Djava.io.tmpdir={tmp_path}", str(tmp_path / "job.py")),
    ]
    ended = subprocess.run(
        command, env=submit_env(), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0 and ended.stdout.splitlines()[-1] == "ended with SourceSettingError", ended.stderr
    shown = [text in ended.stderr for text in ("\tat ", "Traceback", "too late")]
    assert shown == [level == "INFO"] * 3, ended.stderr
