"""The check, before a job starts, that the Python and the Java side of Spark have the same version."""

from __future__ import annotations

import os
import re
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

_CORE_JAR = re.compile(r"spark-core_[\d.]+-(\d.*)\.jar")


def jars_version(spark_home: str) -> str | None:
    """Return the version of the Spark in a folder from the name of its core jar, or None when there is no such jar.

    Args:
        spark_home: Value of SPARK_HOME; in YARN's cluster mode the jars are elsewhere.
    """
    matches = (_CORE_JAR.fullmatch(path.name) for path in Path(spark_home, "jars").glob("spark-core_*.jar"))
    return next((match[1] for match in matches if match), None)


def require_same_version(python: str, java: str | None, pyspark_file: str) -> None:
    """Refuse the Python files of one Spark with the jars of another, because their protocol has no version.

    Args:
        python: ``pyspark.__version__``.
        java: Version of the jars; None when it is not known.
        pyspark_file: File from which pyspark came.

    Raises:
        ConfigError: The minor versions differ.
    """
    if java is None or _release(python) == _release(java):
        return
    raise ConfigError(
        "pyspark and Spark have different versions",
        where=f"{pyspark_file} is {python}, the jars of SPARK_HOME={os.environ.get('SPARK_HOME', '')} are {java}",
        why="pyspark-client has replaced files of pyspark, or PYTHONPATH or PYSPARK_PYTHON selects another pyspark",
        remedy="pip install --force-reinstall --no-deps pyspark=="
        f"{java} in that environment; or uninstall pyspark there, because spark-submit provides its own",
    )


def _release(version: str) -> str:
    """Return the minor release, for example 4.0 of 4.0.1-amzn-2; patch releases do not change the protocol."""
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else version
