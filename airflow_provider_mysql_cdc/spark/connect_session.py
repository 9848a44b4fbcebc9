"""A session at a Spark Connect server: find or open that of a stream, and keep it usable for the time of a job.

A server starts a Python daemon for each session, which stays when the session ends (38 MB, Spark 4.3), and the first
task of a session imports everything again. So the jobs of a stream share a session: its id follows from the stream and
from all settings of the session. The server ends it when it is idle (``spark.connect.session.manager.*``).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.job.connect_settings import ConnectSettings
from airflow_provider_mysql_cdc.spark.connect_errors import connect_error, is_session_lost, missing_client

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
_READY = OWN_PREFIX + "ready"
"""Setting of a session that is set up; Spark keeps names that it does not know."""
MAX_GENERATIONS = 100
"""Ended sessions of a stream that are passed over; a server remembers them for some hours."""
_LAST_CALLS_RETRIES = {"max_retries": 1, "backoff_multiplier": 4.0, "initial_backoff": 50, "max_backoff": 50}


class ConnectSession:
    """Hold the session of a job.

    Args:
        settings: The server, and the settings of the session.
        stream: Name of the stream, whose jobs share the session; empty for a session of its own.

    Raises:
        ConfigError: The server refuses the client or a setting, or the client's packages are missing.
        StateError: The server cannot be reached.
    """

    def __init__(self, settings: ConnectSettings, stream: str = "") -> None:
        self._settings = settings
        self._ids = session_ids(settings, stream)
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

    def interrupt(self, spark: Any, tag: str) -> None:
        """End the operations with a tag; a server that is gone is not waited for.

        Args:
            spark: The session that they were started in.
            tag: Their tag.
        """
        self._try_once(spark, lambda: spark.client.interrupt_tag(tag))

    def close(self) -> None:
        """Leave the session to the stream's next job; one of its own is ended."""
        spark = self._spark
        if not self._ids:
            self._try_once(spark, spark.client.release_session)
        with suppress(Exception):
            spark.client.close()

    def _try_once(self, spark: Any, call: Callable[[], Any]) -> None:
        from pyspark.sql.connect.client.retries import DefaultPolicy

        policies = spark.client.get_retry_policies()
        spark.client.set_retry_policies([DefaultPolicy(**_LAST_CALLS_RETRIES)])
        with suppress(Exception):
            call()
        spark.client.set_retry_policies(policies)

    def _usable(self) -> bool:
        try:
            self._spark.conf.get("spark.master", None)
        except Exception as error:
            if connect_error(error, self.server) is None:
                raise
            return False
        return True

    def _open(self) -> Any:
        """Return the first session of the stream that has not ended; it is opened by its first call."""
        ids: list[str | None] = [*self._ids] if self._ids else [None]
        for id_ in ids:
            try:
                return self._set_up(id_)
            except ImportError as error:
                raise missing_client(error) from error
            except CdcError:
                raise
            except Exception as error:
                if is_session_lost(error) and id_ != ids[-1]:
                    continue
                if (named := connect_error(error, self.server)) is None:
                    raise
                raise named from None
        raise AssertionError("there is at least one id")

    def _set_up(self, id_: str | None) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        # Not through the builder, whose first call has no limit of ours.
        spark = SparkSession(with_session_id(self._settings.url, id_))
        spark.release_session_on_close = False  # it would also be ended when this object is forgotten
        spark.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        if spark.conf.get(_READY, "") == "true":
            return spark
        for name, value in {**_SESSION_CONF, **self._settings.conf}.items():
            if not name.startswith(OWN_PREFIX) and name not in DRIVER_SETTINGS:
                self._set(spark, name, value)
        if self._settings.py_files:
            spark.addArtifacts(*self._settings.py_files, pyfile=True)
        if self._settings.archives:
            spark.addArtifacts(*self._settings.archives, archive=True)
        spark.conf.set(_READY, "true")
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


def session_ids(settings: ConnectSettings, stream: str) -> tuple[str, ...]:
    """Return the ids of a stream's sessions, in the order in which they are tried; none for a session of its own.

    They depend on all that a session keeps: another version, setting or file leads to another session.

    Args:
        settings: The server; an id in its address is the user's choice.
        stream: Name of the stream.
    """
    if not stream or "session_id=" in settings.url:
        return ()
    files = [_identity(path) for path in (*settings.archives, *settings.py_files)]
    kept = json.dumps([__version__, stream, sorted(settings.conf.items()), files])
    digest = hashlib.sha256(kept.encode()).digest()
    base = uuid.UUID(bytes=digest[:16], version=5)
    return tuple(str(uuid.uuid5(base, str(generation))) for generation in range(MAX_GENERATIONS))


def with_session_id(url: str, id_: str | None) -> str:
    """Return an address with a session's id.

    Args:
        url: The address.
        id_: The id; None for one that the client makes.
    """
    if id_ is None:
        return url
    return f"{url if '/;' in url else url.rstrip('/') + '/'};session_id={id_}"


def _identity(path: str) -> list[Any]:
    """Return what changes with a file's content: a session cannot get another file of the same name."""
    try:
        status = os.stat(path.partition("#")[0].removeprefix("file://"))
    except OSError:
        return [path]
    return [path, status.st_size, status.st_mtime_ns]
