"""Where a driver listens for its tasks, from Spark's settings."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint

COORDINATOR_PREFIX = "spark.mysqlcdc.coordinator."
"""``host``, ``bindAddress`` and ``port`` of the channel from tasks to driver; by default those of Spark's driver."""


def endpoint(setting: Callable[[str], str | None], default_host: str = "127.0.0.1") -> Endpoint:
    """Return where the driver listens for its tasks.

    Args:
        setting: Returns the value of one of Spark's settings; those of the coordinator default to the driver's.
        default_host: The host when no setting names one.

    Raises:
        ConfigError: The port is no port.
    """
    host = setting(COORDINATOR_PREFIX + "host") or setting("spark.driver.host") or default_host
    bind = setting(COORDINATOR_PREFIX + "bindAddress") or setting("spark.driver.bindAddress") or ""
    port = setting(COORDINATOR_PREFIX + "port") or "0"
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            "the port of the coordinator is invalid",
            where=COORDINATOR_PREFIX + "port",
            why=repr(port),
            remedy="use a number from 0 to 65535",
        )
    return Endpoint(host, bind, int(port))
