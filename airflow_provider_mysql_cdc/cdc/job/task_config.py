"""A job's configuration on its way from the driver to its tasks.

Spark writes what it broadcasts to files of the driver's and the executors' ``spark.local.dir``, and leaves them there
when their process is killed. So the arguments of a task hold the properties sealed; their key is asked of the driver
over the coordinator's connection, which has shown the job's token, and lives in memory only. Whoever overhears one of
the two ways (Spark's may be encrypted: ``spark.network.crypto.enabled``) learns nothing.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient, Handler
from airflow_provider_mysql_cdc.cdc.job.sealed_properties import seal, unseal

_OPERATION = "key"


def sealed_properties(cfg: ConnectorConfig) -> tuple[str, dict[str, Handler]]:
    """Return the properties for the tasks' arguments, sealed, and the coordinator's handler that hands out the key.

    Args:
        cfg: The connector's configuration.
    """
    text, key = seal(cfg.properties())
    return text, {_OPERATION: lambda task, request: {"key": key}}


def handed_config(channel: CoordinatorClient, arguments: dict[str, Any]) -> ConnectorConfig:
    """Return the configuration in a task.

    Args:
        channel: Calls to the driver.
        arguments: The task's arguments; ``properties`` is what ``sealed_properties`` returned.

    Raises:
        ConfigError: This host cannot read it, for example a converter's module is missing.
        StateError: The driver is gone.
    """
    key = str(channel.call(_OPERATION)["key"])
    return ConnectorConfig.from_properties(unseal(arguments["properties"], key))
