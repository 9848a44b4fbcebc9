"""How many tasks Spark can run at once is asked of the executors, not of the default parallelism."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pipelinelib.submit import JVM, spark_home, submit_env

SCRIPT = """
from pyspark import SparkContext
from airflow_provider_mysql_cdc.spark.spark_tasks import SparkRunner

def index(i, arguments):
    return i + arguments["more"]

context = SparkContext()
runner = SparkRunner(context)
slots = runner.slots()
print("default", context.defaultParallelism, "slots", slots, flush=True)
print("gang", runner.run(index, slots, {"more": 5}, barrier=True), flush=True)
context.stop()
"""


@pytest.mark.spark
@pytest.mark.exhaustive
def test_a_barrier_stage_fits_a_cluster_with_one_core_whose_default_parallelism_is_two(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    # The cluster's worker leaves its folder in Spark's home.
    for part in ("bin", "jars", "python"):
        (home / part).symlink_to(spark_home() / part)
    script = tmp_path / "gang.py"
    script.write_text(SCRIPT, encoding="utf-8")
    # What a killed executor has unpacked goes with the test's folder.
    options = f"{JVM} -Djava.io.tmpdir={tmp_path}"
    once = "spark.scheduler.barrier.maxConcurrentTasksCheck"
    done = subprocess.run(
        [
            *(str(home / "bin" / "spark-submit"), "--master", "local-cluster[1,1,768]"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"),
            *("--driver-java-options", options, "--conf", f"spark.executor.extraJavaOptions={options}"),
            *("--conf", f"{once}.maxFailures=1", "--conf", f"{once}.interval=1s"),
            str(script),
        ],
        env={**submit_env(), "SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert "default 2 slots 1" in done.stdout, done.stdout + done.stderr[-3000:]
    assert "gang [5]" in done.stdout, done.stdout + done.stderr[-3000:]
