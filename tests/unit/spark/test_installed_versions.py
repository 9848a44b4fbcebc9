"""Versions of what others installed: an Airflow that is too old, Spark's two halves, a pyspark without Spark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.airflow_version import require_airflow
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.spark.main import jars_version, require_same_version

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("found", ["1.1.8", "1.2.2", None])
def test_an_older_airflow_is_refused_in_one_line(found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(RuntimeError, match=r"needs Apache Airflow 3\.3 or later") as caught:
        require_airflow()
    assert (found or "none") in str(caught.value) and "\n" not in str(caught.value)


@for_each("found", ["1.3.0", "1.3.2", "1.10.0.dev1", "2.0"])
def test_newer_ones_are_accepted(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(metadata, "version", lambda name: asked.append(name) or found)
    require_airflow()
    assert asked == ["apache-airflow-task-sdk"]


@for_each("part", ["operators", "hooks", "sensors", "triggers", "example_dags"])
def test_any_first_import_of_the_airflow_side_says_so(part: str, tmp_path: Path) -> None:
    """Not the package itself, which executors import without Airflow."""
    (tmp_path / "apache_airflow_task_sdk-1.2.2.dist-info").mkdir()
    (tmp_path / "apache_airflow_task_sdk-1.2.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: apache-airflow-task-sdk\nVersion: 1.2.2\n"
    )
    module = next(p.stem for p in (ROOT / "airflow_provider_mysql_cdc" / part).glob("[a-z]*.py"))
    code = f"import airflow_provider_mysql_cdc.cdc.errors; import airflow_provider_mysql_cdc.{part}.{module}"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stderr.strip().splitlines()[-1].startswith("RuntimeError: airflow-provider-mysql-cdc needs Apache")


def test_a_pyspark_without_spark_in_it_is_no_spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark-client owns the folder pyspark/ as well; spark-submit of a cluster's Spark stands on PATH then."""
    from airflow_provider_mysql_cdc.hooks.spark_python import driver_env

    spec = SimpleNamespace(origin=str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert "SPARK_HOME" not in driver_env({"PATH": "/opt/spark/bin"})
    (tmp_path / "pyspark" / "bin").mkdir(parents=True)
    (tmp_path / "pyspark" / "bin" / "spark-submit").touch()
    assert driver_env({"PATH": "/bin"})["SPARK_HOME"] == str(tmp_path / "pyspark")


def spark_home(folder: Path, version: str) -> Path:
    """Return a folder that looks like a Spark of a version."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder


@pytest.mark.parametrize("version", ["4.3.0", "4.2.0-amzn-1", "5.0.0.1"])
def test_the_version_of_a_spark_is_read_from_its_jar(version: str, tmp_path: Path) -> None:
    assert jars_version(str(spark_home(tmp_path, version))) == version


def test_a_place_without_jars_says_nothing(tmp_path: Path) -> None:
    assert jars_version(str(tmp_path)) is None and jars_version("") is None
    require_same_version("4.3.0", None, "pyspark/__init__.py")


@pytest.mark.parametrize("java", ["4.3.0", "4.3.1", "4.3.0-amzn-0"])
def test_patches_and_vendors_names_go_together(java: str) -> None:
    require_same_version("4.3.0", java, "pyspark/__init__.py")
    with pytest.raises(ConfigError, match=r"4\.4\.0"):
        require_same_version("4.4.0", java, "pyspark/__init__.py")


@pytest.mark.parametrize("java", ["4.2.0", "4.30.0", "3.4.3"])
def test_two_releases_do_not(java: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_same_version("4.3.0", java, "/env/pyspark/__init__.py")
    assert f"pyspark=={java}" in caught.value.remedy and not caught.value.can_retry
    assert "/env/pyspark/__init__.py is 4.3.0" in caught.value.where


@for_each("job", sorted((ROOT / "spark_jobs").glob("*.py")), ids=lambda p: p.stem)
def test_a_job_on_mixed_files_ends_before_java_starts(job: Path, tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark", "3.9.0")
    env = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    spec = tmp_path / "job-spec.json"
    JobSpec("drain", {}, {}, "dag/run/task/-1").write(spec)
    done = subprocess.run([sys.executable, str(job), str(spec)], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 78
    assert "[mysql-cdc] ConfigError: pyspark and Spark have different versions" in done.stdout
    assert "--no-deps pyspark==3.9.0" in done.stdout
