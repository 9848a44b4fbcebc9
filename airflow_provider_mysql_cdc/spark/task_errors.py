"""What every task does about its errors, and about a driver of another version."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.spark.errors import ERROR_MARK

SHOW_VARIABLES = "SPARK_TRACEBACK_WITH_LOCALS"
"""Variable of a Python worker by which Spark (4.3) adds the values of all variables to the text of an error:
``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled``."""


@contextmanager
def marking_errors() -> Iterator[None]:
    """End a task with the text of a named error: Spark passes it to the driver, and nothing else of an exception.

    The values of variables, passwords among them, never become part of the text of any error.

    Raises:
        RuntimeError: A named error was raised inside; ``errors.named_error`` finds it in the text.
    """
    os.environ.pop(SHOW_VARIABLES, None)
    try:
        yield
    except CdcError as error:
        raise RuntimeError(ERROR_MARK + json.dumps(error.to_json())) from error


def require_version(driver: str) -> None:
    """Refuse a driver of another version, which may plan tasks differently.

    Raises:
        ConfigError: The versions differ.
    """
    if driver != __version__:
        raise ConfigError(
            "driver and executors run different versions of airflow-provider-mysql-cdc",
            why=f"the driver has {driver}, the executor {__version__}",
            remedy="pack the executors' environment again with the driver's version (docs/spark.md)",
        )
