"""The settings that a job is submitted with reach its checks, and win over the package's defaults."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pipelinelib.submit import JVM, spark_home, submit_env

SCRIPT = """
from pyspark import SparkContext
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.spark import main

def shown(spec, runner, log):
    print("memory", runner._context.getConf().get(main.WORKER_MEMORY), flush=True)

try:
    main._on_spark(shown, None)
except ConfigError as error:
    print("refused", error.what, flush=True)
SparkContext._ensure_initialized()
SparkContext._jvm.java.lang.System.setProperty("spark.speculation", "false")
main._on_spark(shown, None)
"""


@pytest.mark.spark
@pytest.mark.exhaustive
def test_a_job_with_speculation_is_refused_and_a_workers_memory_is_the_users(tmp_path: Path) -> None:
    script = tmp_path / "settings.py"
    script.write_text(SCRIPT, encoding="utf-8")
    given = ("--conf", "spark.speculation=true", "--conf", "spark.python.worker.memory=96m")
    done = subprocess.run(
        [
            *(str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"),
            *("--driver-java-options", f"{JVM} -Djava.io.tmpdir={tmp_path}", *given, str(script)),
        ],
        env=submit_env(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    said = done.stdout + done.stderr[-3000:]
    assert "refused spark.speculation=true would start a second copy of a writer" in done.stdout, said
    assert "memory 96m" in done.stdout, said
