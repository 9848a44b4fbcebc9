"""The Python of driver and executors, and the environment variables of the driver."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import site
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.environment.packed import read_manifest

_PACKAGE = Path(__file__).resolve().parent.parent
# Variables that the driver inherits, because it needs them to start, and to reach a cluster and log in there. It must
# not get the rest of an Airflow task's environment (connections, the API token, the metadata database's address).
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|JAVA_HOME|LD_LIBRARY_PATH|PYTHONPATH"
    r"|SPARK_\w+|PYSPARK_\w+|HADOOP_\w+|YARN_\w+|KRB5\w*|SSL_CERT_(FILE|DIR)"
    r"|KUBECONFIG|GRPC_DEFAULT_SSL_ROOTS_FILE_PATH|KUBERNETES_SERVICE_\w+|(AWS|AZURE|GOOGLE|CLOUDSDK)_\w+"
    r"|(https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY"
)
# Spark 4.3 imports pandas where it is installed, as with Airflow's Spark provider, and warns of version 3 in each
# process that imports pyspark. Nothing here uses it.
_WARNINGS = {"PYTHONWARNINGS": "ignore:PySpark does not yet fully support pandas:FutureWarning"}
EXECUTOR_PYTHON, DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"


def driver_env(base: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for spark-submit and the driver that it starts on this host.

    Args:
        base: The environment of the Airflow task; only variables that a driver needs are copied.
        extra: Variables that override all others.

    Returns:
        Variables with SPARK_HOME and PATH that let the driver find Spark; ``choose_python`` adds those that depend on
        the master.
    """
    env = {name: value for name, value in base.items() if _INHERITED.fullmatch(name)}
    if "SPARK_HOME" not in env and (home := _pyspark_folder() or _home_on_path(env.get("PATH"))):
        env["SPARK_HOME"] = home
    bins = [f"{env['SPARK_HOME']}/bin"] if "SPARK_HOME" in env else []
    env["PATH"] = _join_paths([*bins, str(Path(sys.executable).parent)], env.get("PATH", os.defpath))
    return {**_WARNINGS, **env, **(extra or {})}


def require_programs(binary: str, env: Mapping[str, str]) -> None:
    """Check that spark-submit and Java are installed.

    Args:
        binary: spark-submit's name or path.
        env: Its environment.

    Raises:
        ConfigError: One is missing.
    """
    if not shutil.which(binary, path=env.get("PATH")):
        raise ConfigError(
            f"{binary} was not found",
            where="PATH of the Airflow worker",
            remedy="set SPARK_HOME for the worker, or pip install 'airflow-provider-mysql-cdc[spark]' there",
        )
    java = f"{env['JAVA_HOME']}/bin/java" if env.get("JAVA_HOME") else "java"
    if not shutil.which(java, path=env.get("PATH")):
        raise ConfigError(
            "Java was not found",
            where=f"{java} on the Airflow worker",
            remedy="install Java 17 or newer and set JAVA_HOME for the worker",
        )


@dataclass(frozen=True, slots=True)
class SparkPython:
    """Hold the settings of spark-submit that choose a Python.

    Args:
        env: Environment variables.
        conf: Spark configuration.
    """

    env: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)


def choose_python(
    master: str,
    deploy_mode: str,
    *,
    env: Mapping[str, str],
    conf: Mapping[str, Any],
    archives: str | None = None,
    requested_env: Mapping[str, Any] | None = None,
    cluster_settings: Collection[str] = (),
) -> SparkPython:
    """Return environment variables and Spark settings with which the right Python runs driver and executors.

    A local driver and its tasks run in this interpreter. On a cluster, the executors run in the Python that the user or
    the cluster configured, or in the one of an archive that ``mysql-cdc environment`` packed; this interpreter and its
    packages are not assumed to exist there. A driver in client mode runs in this interpreter, one in cluster mode in
    the executors'.

    Source: org.apache.spark.deploy.PythonRunner: ``spark.pyspark.driver.python``, then ``spark.pyspark.python``, then
    PYSPARK_DRIVER_PYTHON, then PYSPARK_PYTHON choose the driver's Python (4.x). org.apache.spark.deploy.yarn.Client
    puts spark-submit's own PYTHONPATH, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON into the containers.

    Args:
        master: The master.
        deploy_mode: ``client`` or ``cluster``.
        env: The driver's environment so far.
        conf: Spark's configuration, with the cluster's defaults.
        archives: The job's archives.
        requested_env: Environment variables that the user set.
        cluster_settings: Names of settings that only the cluster's administrator has set.
    """
    python_env = dict(env)
    if master.startswith("local"):
        python_env.setdefault("PYSPARK_PYTHON", sys.executable)
        python_env.setdefault("PYSPARK_DRIVER_PYTHON", python_env["PYSPARK_PYTHON"])
        python_env["PYTHONPATH"] = _join_paths([str(_PACKAGE.parent)], python_env.get("PYTHONPATH", ""))
        # The administrator's setting names a Python of the cluster's machines and would win over the variables.
        own = {EXECUTOR_PYTHON: python_env["PYSPARK_PYTHON"], DRIVER_PYTHON: python_env["PYSPARK_DRIVER_PYTHON"]}
        return SparkPython(python_env, {name: python for name, python in own.items() if name in cluster_settings})
    if "PYTHONPATH" not in (requested_env or {}):
        python_env.pop("PYTHONPATH", None)
    executors = (
        conf.get(EXECUTOR_PYTHON)
        or python_env.get("PYSPARK_PYTHON")
        or packed_python(archives or conf.get("spark.archives"))
    )
    added = {EXECUTOR_PYTHON: str(executors)} if executors else {}
    if deploy_mode == "cluster":
        return SparkPython(python_env, added)
    driver = str(conf.get(DRIVER_PYTHON) or python_env.get("PYSPARK_DRIVER_PYTHON") or sys.executable)
    if driver == sys.executable and not _installed_here():
        python_env["PYTHONPATH"] = _join_paths([str(_PACKAGE.parent)], python_env.get("PYTHONPATH", ""))
    return SparkPython(python_env, {**added, DRIVER_PYTHON: driver})


def packed_python(archives: str | None) -> str | None:
    """Return the executors' path of the interpreter in the first archive with a packed environment.

    Args:
        archives: Paths with ``#alias``, comma-separated; only files on this host can be read.
    """
    for archive in (archives or "").split(","):
        path, _, alias = archive.strip().partition("#")
        if alias and read_manifest(Path(path.removeprefix("file://"))) is not None:
            return f"./{alias}/bin/python"
    return None


def _installed_here() -> bool:
    """Return whether this interpreter finds this package by itself, without PYTHONPATH."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return str(_PACKAGE.parent) in {os.path.realpath(folder) for folder in folders}


def _pyspark_folder() -> str | None:
    """Return the Spark in the package pyspark; pyspark-client has the same folder without a Spark."""
    spec = importlib.util.find_spec("pyspark")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    return folder if folder and os.path.isfile(os.path.join(folder, "bin", "spark-submit")) else None


def _home_on_path(path: str | None) -> str | None:
    """Return the Spark whose spark-submit is on PATH, also as a link; its spark-defaults.conf then applies."""
    program = shutil.which("spark-submit", path=path)
    home = os.path.dirname(os.path.dirname(os.path.realpath(program))) if program else ""
    return home if home and os.path.isdir(os.path.join(home, "jars")) else None


def _join_paths(first: list[str], path: str) -> str:
    parts = [*first, *(p for p in path.split(os.pathsep) if p and p not in first)]
    return os.pathsep.join(parts)
