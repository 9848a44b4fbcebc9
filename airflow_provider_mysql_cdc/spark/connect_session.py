"""A session at a Spark Connect server: find or open that of a stream, and keep it usable for the time of a job.

A server starts a Python daemon for each session, which stays when the session ends (38 MB, Spark 4.3), and the first
task of a session imports everything again. So the jobs of a stream share a session: its id follows from the stream and
from all settings of the session. The server ends it when it is idle (``spark.connect.session.manager.*``), and does not
open one with the same id again as long as it remembers it: it remembers the last 1,000 ended sessions, however old. So
ended sessions of a stream are followed by one with the next number.
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
from contextlib import closing, suppress
from typing import Any

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings
from airflow_provider_mysql_cdc.spark.connect_channel import (
    ConnectParts,
    ServerAddress,
    connect_error,
    is_closed,
    is_session_lost,
    load_parts,
    missing_client,
)
from airflow_provider_mysql_cdc.spark.connect_client import ConnectClient

OWN_PREFIX = "spark.mysqlcdc."
"""Prefix of settings that only this provider reads."""
DRIVER_SETTINGS = ("spark.driver.host", "spark.driver.bindAddress")
"""Settings of Spark's own driver, which say here where this driver listens."""
IDLE_CHECK_S = 10.0
"""Seconds without a job after which a session is tried first: a server ends one without a call for an hour by default
(``spark.connect.session.manager.defaultSessionTimeout``)."""
_SESSION_CONF = {
    # Tasks and buckets have as many partitions as they are given.
    "spark.sql.adaptive.enabled": "false",
    # A block has up to 64 KB; Spark hands a task of a bucket so many at once, by default 10,000.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    # A task hands on nothing until it ends, and a server may end such ones (since 4.1).
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "false",
    # A server may report no progress: then no task would seem to run.
    "spark.connect.progress.reportInterval": "2s",
}
"""Settings that jobs need; those of a connection do not change them."""
OLDEST_SERVER = (4, 0)
"""Spark of the oldest server that is used: 3.5 writes whole operations into its event log, and with them the token by
which a task gets the key of the job's properties; 4.0 shortens them."""
_READY = OWN_PREFIX + "ready"
"""Setting of a session that is set up; Spark keeps names that it does not know."""
_OPENINGS = 5
"""Times that a session is looked for, when each one has ended before it was set up."""
PARTITIONS_SETTINGS = ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")
"""Settings of the server that replace its number of cores where Spark chooses a number of partitions."""
_READ_AT_ONCE = (
    "spark.master",
    "spark.app.id",
    "spark.speculation",
    "spark.dynamicAllocation.enabled",
    "spark.task.cpus",
)
"""Settings of the server that every job reads."""


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
        self._address = ServerAddress.parse(settings.url)
        chosen = self._address.session
        self._own = not stream and chosen is None
        self._family = session_family(settings, stream) if stream and chosen is None else None
        self._lock = threading.Lock()
        self.server = str(self._address)
        self._parts = _parts()
        self._read: dict[str, str] = {}
        self._client = self._open()
        self._used = time.monotonic()

    @property
    def client(self) -> ConnectClient:
        """Return the client for the next operation; that of a new session when the server has ended it meanwhile."""
        with self._lock:
            if time.monotonic() - self._used > IDLE_CHECK_S and not self._usable():
                self._client = self._open()
            self._used = time.monotonic()
            return self._client

    def setting(self, name: str) -> str | None:
        """Return a setting of the job's connection, else of the server.

        Args:
            name: Its name.
        """
        if name.startswith(OWN_PREFIX) or name in DRIVER_SETTINGS:
            return self._settings.conf.get(name)
        if name not in _READ_AT_ONCE:
            self._read |= self._client.settings(name)
        return self._read.get(name)

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
        """Leave the session to the stream's next job; one of its own is ended."""
        with suppress(Exception):
            if self._own:
                self._client.release_session()
        with suppress(Exception):
            self._client.close()

    def _usable(self) -> bool:
        try:
            self._client.settings("spark.master")
        except Exception as error:
            if connect_error(error, self.server) is None:
                raise
            return False
        return True

    def _open(self) -> ConnectClient:
        """Return the session of the stream, or one of its own; it is opened by its first call."""
        try:
            return self._opened()
        except Exception as error:
            if isinstance(error, CdcError) or (named := connect_error(error, self.server)) is None:
                raise
            if self._address.session is not None and is_closed(error):
                raise _chosen_session_ended(self.server, named.why) from None
            raise named from None

    def _opened(self) -> ConnectClient:
        number, left = 0, _OPENINGS
        while True:
            client = ConnectClient(self._parts, self._address, self._id(number))
            try:
                self._set_up(client)
                return client
            except Exception as error:
                left -= 1
                with closing(client):
                    if self._family is None or not left or not is_session_lost(error):
                        raise
                    number = first_not_ended(lambda at: client.has_ended(self._id(at)))  # noqa: B023 - called at once

    def _id(self, number: int) -> str:
        if self._family is None:
            return self._address.session or str(uuid.uuid4())
        return str(uuid.uuid5(self._family, str(number)))

    def _set_up(self, client: ConnectClient) -> None:
        self._read = client.settings(_READY, *_READ_AT_ONCE, opening=True)
        if self._read.get(_READY) == "true":
            return
        _require_version(client.server_version(), self.server)
        for name, value in {**self._settings.conf, **_SESSION_CONF}.items():
            if not name.startswith(OWN_PREFIX) and name not in DRIVER_SETTINGS:
                self._set(client, name, value)
        client.add_artifacts(self._settings.py_files, archives=False)
        client.add_artifacts(self._settings.archives, archives=True)
        client.set_setting(_READY, "true")

    def _set(self, client: ConnectClient, name: str, value: str) -> None:
        """Set a setting of the session.

        Raises:
            ConfigError: It is one of the server, which a session cannot change.
        """
        try:
            client.set_setting(name, value)
        except Exception as error:
            if "CANNOT_MODIFY" not in f"{error} {getattr(error, '_condition', '')}":
                raise
            raise ConfigError(
                "a job on a Spark Connect server cannot have this setting",
                where=f"{name} in conf of the task or of its Spark connection",
                why="it belongs to the server, which was started before",
                remedy="remove it there; set it where the server is started",
            ) from None


def _require_version(version: tuple[int, ...], server: str) -> None:
    """Refuse a server of an older Spark.

    Raises:
        ConfigError: It is older.
    """
    if version < OLDEST_SERVER:
        raise ConfigError(
            "the Spark of this Spark Connect server is too old",
            where=f"Spark Connect server {server}",
            why=f"it is {_dotted(version)}, which writes secrets of the job into its event log",
            remedy=f"use a server of Spark {_dotted(OLDEST_SERVER)} or newer, or run the jobs with spark-submit",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _parts() -> ConnectParts:
    """Return pyspark's modules.

    Raises:
        ConfigError: A package of the client is missing.
    """
    try:
        return load_parts()
    except ImportError as error:
        raise missing_client(error) from error


def session_family(settings: ConnectSettings, stream: str) -> uuid.UUID:
    """Return from what the ids of a stream's sessions follow.

    It depends on all that a session keeps: another version, setting or file leads to other sessions.

    Args:
        settings: The server.
        stream: Name of the stream.
    """
    files = [_identity(path) for path in (*settings.archives, *settings.py_files)]
    kept = json.dumps([__version__, stream, sorted(settings.conf.items()), files])
    return uuid.UUID(bytes=hashlib.sha256(kept.encode()).digest()[:16], version=5)


def first_not_ended(has_ended: Callable[[int], bool]) -> int:
    """Return the number behind the last session that has ended, or 0.

    It takes two questions for each binary digit of the number. Where the server has forgotten some of those that have
    ended, the number may be one of theirs, which it opens again.

    Args:
        has_ended: Returns whether the server remembers that the session of a number has ended.
    """
    ended, beyond = -1, 0
    while has_ended(beyond):
        ended, beyond = beyond, 2 * beyond + 1
    while beyond - ended > 1:
        middle = (ended + beyond) // 2
        ended, beyond = (middle, beyond) if has_ended(middle) else (ended, middle)
    return beyond


def _chosen_session_ended(server: str, why: str) -> ConfigError:
    return ConfigError(
        "the session that the address of the Spark Connect server names has ended, and cannot be opened again",
        where=f"session_id in the Spark connection of {server}",
        why=why,
        remedy="remove session_id there: without it a stream has a session that its jobs share, and gets the next one",
    )


def _identity(path: str) -> list[Any]:
    """Return what changes with a file's content: a session cannot get another file of the same name."""
    try:
        status = os.stat(path.partition("#")[0].removeprefix("file://"))
    except OSError:
        return [path]
    return [path, status.st_size, status.st_mtime_ns]
