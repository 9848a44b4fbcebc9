"""Whether the Python and the Java side of Spark are of one version; said before a job begins."""

from __future__ import annotations

import os
import re
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

_CORE_JAR = re.compile(r"spark-core_[\d.]+-(\d.*)\.jar")


def jars_version(spark_home: str) -> str | None:
    """Return the version of the Spark in a folder by the name of its core jar, or None when there is none to see.

    Args:
        spark_home: Value of SPARK_HOME; in YARN's cluster mode the jars lie elsewhere.
    """
    matches = (_CORE_JAR.fullmatch(path.name) for path in Path(spark_home, "jars").glob("spark-core_*.jar"))
    return next((match[1] for match in matches if match), None)


def require_same_version(python: str, java: str | None, pyspark_file: str) -> None:
    """Refuse the Python files of one Spark with the jars of another: what they say to each other carries no version.

    Args:
        python: ``pyspark.__version__``.
        java: Version of the jars; None when it is not known.
        pyspark_file: File from which pyspark came.

    Raises:
        ConfigError: They differ.
    """
    if java is None or _release(python) == _release(java):
        return
    raise ConfigError(
        "pyspark and Spark are of two versions",
        where=f"{pyspark_file} is {python}, the jars of SPARK_HOME={os.environ.get('SPARK_HOME', '')} are {java}",
        why="pyspark-client has replaced files of pyspark, or PYTHONPATH or PYSPARK_PYTHON leads to another pyspark",
        remedy="pip install --force-reinstall --no-deps pyspark=="
        f"{java} in that environment, or take pyspark out of it: spark-submit brings its own",
    )


def _release(version: str) -> str:
    """Return the minor release, 4.0 of 4.0.1-amzn-2: patches keep what both sides say to each other."""
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else version
