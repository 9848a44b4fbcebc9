"""A session at a Spark Connect server: open it, keep it usable for the time of a job, and end it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.connect_settings import ConnectSettings
from airflow_provider_mysql_cdc.spark.connect_errors import connect_error, missing_client

DEFAULT_PORT = 15002
OWN_PREFIX = "spark.mysqlcdc."
"""Prefix of settings that only this provider reads."""
DRIVER_SETTINGS = ("spark.driver.host", "spark.driver.bindAddress")
"""Settings of Spark's own driver, which say here where this driver listens."""
IDLE_CHECK_S = 60.0
"""Seconds without a job after which a session is tried first: a server ends one without a call for an hour
(``spark.connect.session.manager.defaultSessionTimeout``)."""
_SESSION_CONF = {
    # Tasks and buckets have as many partitions as they are given.
    "spark.sql.adaptive.enabled": "false",
    # A block has up to 64 KB; Spark hands a task of a bucket so many at once, by default 10,000.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
}
# A connection that is cut is tried again for 45 s; pyspark's client would do so for ten minutes.
_RETRIES = {"max_retries": 11, "backoff_multiplier": 4.0, "initial_backoff": 50, "max_backoff": 5000}
_LAST_CALLS_RETRIES = {"max_retries": 1, "backoff_multiplier": 4.0, "initial_backoff": 50, "max_backoff": 50}


class ConnectSession:
    """Hold the session of a job.

    Args:
        settings: The server, and the settings of the session.

    Raises:
        ConfigError: The server refuses the client or a setting, or the client's packages are missing.
        StateError: The server cannot be reached.
    """

    def __init__(self, settings: ConnectSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.server = server_address(settings.url)
        self._spark = self._open()
        self._used = time.monotonic()

    @property
    def spark(self) -> Any:
        """Return the session for the next operation; a new one when the server has ended it meanwhile."""
        with self._lock:
            if time.monotonic() - self._used > IDLE_CHECK_S and not self._usable():
                self._spark = self._open()
            self._used = time.monotonic()
            return self._spark

    def setting(self, name: str) -> str | None:
        """Return a setting of the job's connection, else of the server.

        Args:
            name: Its name.
        """
        if name.startswith(OWN_PREFIX) or name in DRIVER_SETTINGS:
            return self._settings.conf.get(name)
        value = self._spark.conf.get(name, None)
        return None if value is None else str(value)

    def local_host(self) -> str:
        """Return the address of this host on the network of the server."""
        host, _, port = self.server.rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host.strip("[]"), int(port)))  # sends nothing
            except OSError:
                return "127.0.0.1"
            return str(probe.getsockname()[0])

    def close(self) -> None:
        """End the session with everything that still runs in it; a server that is gone is not waited for."""
        from pyspark.sql.connect.client.retries import DefaultPolicy

        with suppress(Exception):
            self._spark.client.set_retry_policies([DefaultPolicy(**_LAST_CALLS_RETRIES)])
            self._spark.client.release_session()
            self._spark.client.close()

    def _usable(self) -> bool:
        try:
            self._spark.conf.get("spark.master", None)
        except Exception as error:
            if connect_error(error, self.server) is None:
                raise
            return False
        return True

    def _open(self) -> Any:
        try:
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession
        except ImportError as error:
            raise missing_client(error) from error
        try:
            # Not through the builder, whose first call has no limit of ours.
            spark = SparkSession(self._settings.url)
            spark.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
            for name, value in {**_SESSION_CONF, **self._settings.conf}.items():
                if not name.startswith(OWN_PREFIX) and name not in DRIVER_SETTINGS:
                    self._set(spark, name, value)
            if self._settings.py_files:
                spark.addArtifacts(*self._settings.py_files, pyfile=True)
            if self._settings.archives:
                spark.addArtifacts(*self._settings.archives, archive=True)
        except Exception as error:
            if (named := connect_error(error, self.server)) is None:
                raise
            raise named from None
        return spark

    def _set(self, spark: Any, name: str, value: str) -> None:
        """Set a setting of the session.

        Raises:
            ConfigError: It is one of the server, which a session cannot change.
        """
        try:
            spark.conf.set(name, value)
        except Exception as error:
            if "CANNOT_MODIFY" not in str(error):
                raise
            raise ConfigError(
                "a job on a Spark Connect server cannot have this setting",
                where=f"{name} in conf of the task or of its Spark connection",
                why="it belongs to the server, which was started before",
                remedy="remove it there; set it where the server is started",
            ) from None


def server_address(url: str) -> str:
    """Return host and port of a server, without the token.

    Args:
        url: ``sc://host:port/;...``.
    """
    parts = urlsplit(url)
    return f"{parts.hostname or ''}:{parts.port or DEFAULT_PORT}"
