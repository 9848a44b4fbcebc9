"""What every task does about its errors, and about a driver of another version."""

from __future__ import annotations

import json

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.spark.errors import ERROR_MARK


def marked_error(error: CdcError) -> RuntimeError:
    """Return the exception with which a task ends: Spark passes its text to the driver, and nothing else.

    Args:
        error: The named error; ``errors.named_error`` finds it in the text.
    """
    return RuntimeError(ERROR_MARK + json.dumps(error.to_json()))


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
