"""Pass a job's configuration from the driver to its tasks.

Spark writes a broadcast to files in ``spark.local.dir`` of the driver and the executors, and leaves them there when the
process is killed. So the arguments of a task hold the properties encrypted. The task asks the driver for their key over
the coordinator's connection, which is authenticated by the job's token, and keeps it in memory only. Reading one of the
two channels alone reveals nothing (Spark's can be encrypted as well: ``spark.network.crypto.enabled``).
"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.properties_encryption import decrypt_properties, encrypt_properties
from airflow_provider_mysql_cdc.cdc.job.shared_operations import PROPERTIES_KEY, PropertiesKey
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, TaskHandler


def encrypted_properties(cfg: ConnectorConfig) -> tuple[str, TaskHandler]:
    """Return the properties for the tasks' arguments, encrypted, and the coordinator's handler that hands out the key.

    Args:
        cfg: The connector's configuration.
    """
    text, key = encrypt_properties(cfg.properties())
    return text, PROPERTIES_KEY.handled_by(lambda task, request: PropertiesKey(key, cfg.server_uuid))


def load_task_config(channel: CoordinatorClient, properties: str) -> ConnectorConfig:
    """Return the configuration in a task.

    Args:
        channel: Calls to the driver.
        properties: The encrypted properties (``encrypted_properties``).

    Raises:
        ConfigError: This host cannot read it, for example a converter's module is missing.
        StateError: The driver is gone.
    """
    reply = channel.call(PROPERTIES_KEY, EMPTY)
    return ConnectorConfig.from_properties(decrypt_properties(properties, reply.key)).of_server(reply.server_uuid)
