"""The packed environment runs the core elsewhere: no checkout, no Airflow, no packages of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.spark_cluster import unpack_environment
from pipelinelib.submit import spark_home

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.environment.packed import read_manifest

IMPORT_ALL = """
import importlib, pkgutil, runpy, sys
import airflow_provider_mysql_cdc as package
folder = package.__path__[0]
# The offset store in a database is the Airflow worker's.
for part in ("cdc", "spark"):
    for module in pkgutil.walk_packages([f"{folder}/{part}"], f"{package.__name__}.{part}."):
        if not module.name.endswith(".sql_store"):
            importlib.import_module(module.name)
for job in ("drain_binlog", "snapshot_tables"):
    runpy.run_path(f"{folder}/spark_jobs/{job}.py")
print(folder, len(sys.modules))
print([n for n in sys.modules if n.split(".")[0] in ("airflow", "sqlalchemy")])
print(sorted({p for p in sys.path if p and not p.startswith(sys.prefix)}))
"""


@pytest.mark.spark
@pytest.mark.days("even")
def test_the_core_imports_without_airflow_and_the_archive_says_what_it_holds(
    tmp_path: Path,
) -> None:
    archive = unpack_environment(tmp_path / "environment")
    python = str(tmp_path / "environment" / "bin" / "python")
    pyspark = ":".join(map(str, (spark_home() / "python" / "lib").glob("*.zip")))
    done = subprocess.run(
        [python, "-c", IMPORT_ALL],
        env={"PYTHONPATH": pyspark, "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder, airflow, foreign = done.stdout.splitlines()
    assert folder.startswith(str(tmp_path / "environment"))
    assert airflow == "[]"
    assert foreign == str(sorted(pyspark.split(":")))
    without = subprocess.run(
        [python, "-c", "import airflow"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "ModuleNotFoundError" in without.stderr

    manifest = read_manifest(archive)
    assert manifest is not None
    assert (manifest["package"], manifest["python"]) == (__version__, ".".join(map(str, sys.version_info[:3])))
    assert "pymysql" in manifest["packages"] and "apache-airflow" not in manifest["packages"]
