"""Runs inside a fresh environment, away from the checkout: what an Airflow worker does first.

``python probe.py base|spark DAGS_FOLDER`` prints a line for each thing that was tried, and fails at the first that is
wrong.
"""

from __future__ import annotations

import importlib
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

TASK = """
import pyspark
from pyspark import SparkConf, SparkContext
sc = SparkContext(conf=SparkConf())
worker = sc.parallelize([0], 1).barrier().mapPartitions(lambda _: [__import__("pyspark").__version__]).first()
print("VERSIONS", pyspark.__version__, worker, sc.version, flush=True)
sc.stop()
"""


def modules() -> None:
    """Import everything that the provider announces."""
    from airflow_provider_mysql_cdc.get_provider_info import get_provider_info

    info = get_provider_info()
    names = [
        m for part in ("hooks", "operators", "sensors", "triggers") for e in info[part] for m in e["python-modules"]
    ]
    for name in names:
        importlib.import_module(name)
    print(f"{len(names)} modules imported")


def dags(folder: Path) -> None:
    """Parse DAG files that take the package's DAGs in."""
    from airflow.sdk import DAG

    bag = [v.dag_id for path in folder.glob("*.py") for v in runpy.run_path(str(path)).values() if isinstance(v, DAG)]
    assert len(bag) == len(list(folder.glob("*.py"))), bag
    print(f"DAGs: {', '.join(sorted(bag))}")


def spark(expected: bool) -> None:
    """Look for Spark as the operators do; where there is one, compare what driver, task and Java are."""
    from airflow_provider_mysql_cdc.cdc.errors import ConfigError
    from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
    from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook

    base = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    env = driver_env({**base, "PATH": "/usr/local/bin:/usr/bin:/bin", "PYSPARK_PYTHON": sys.executable})
    hook = CdcSparkSubmitHook(master="local[1]", driver_env=env, conn_id="none")
    if not expected:
        assert "SPARK_HOME" not in env, "pyspark-client was taken for a Spark"
        try:
            hook.check_programs()
        except ConfigError as error:
            assert "[spark]" in error.remedy, error
            print("without a Spark: named, with the extra that brings one")
            return
        raise AssertionError("there is no Spark, and no message says so")
    hook.check_programs()
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder, "versions.py")
        task.write_text(TASK)
        command = [f"{env['SPARK_HOME']}/bin/spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
        result = subprocess.run([*command, str(task)], env=env, capture_output=True, text=True, cwd=folder, check=False)
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("VERSIONS")] or [result.stderr[-2000:]]
    assert len(set(line.split()[1:])) == 1, line
    import pyspark

    print(f"spark-submit: driver, task and Java are {line.split()[1]}; what a worker imports is {pyspark.__version__}")


if __name__ == "__main__":
    modules()
    dags(Path(sys.argv[2]))
    spark(sys.argv[1] == "spark")
