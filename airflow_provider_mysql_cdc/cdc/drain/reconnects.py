"""Connections of a drain that break inside a batch: the writer's, and the driver's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

_CHECK_S = 0.25


@dataclass(slots=True)
class Reconnects:
    """Count attempts to reconnect, and wait before each of them.

    Args:
        max_attempts: Attempts without an event in between, after which the error stands; 0 for none.
        check: Called every quarter of a second while this waits.
        note: Sends a line of text to the job's log.
    """

    max_attempts: int
    check: Callable[[], None]
    note: Callable[[str], None]
    _attempts: int = 0
    _broken_at: object = field(default=None)

    def wait(self, error: SourceConnectionError, place: object) -> None:
        """Wait before another attempt, twice as long as before the last one at this place.

        Args:
            error: What broke the connection, or refused a new one.
            place: How far the writer has read; another place than before begins the count again.

        Raises:
            SourceConnectionError: There were as many attempts as are allowed.
        """
        if place != self._broken_at:
            self._broken_at, self._attempts = place, 0
        if self._attempts >= self.max_attempts:
            raise error
        delay_s = reconnect_delay_s(self._attempts)
        self._attempts += 1
        self.note(
            f"the connection to the source broke ({error}); attempt {self._attempts} of {self.max_attempts} to go on "
            f"behind what was read, in {delay_s:.1f} s"
        )
        until = time.monotonic() + delay_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(_CHECK_S, left_s))
            self.check()


FILE_CHECK_INTERVAL_S = 5.0
"""Seconds for which a binlog file that was compared counts as the same, over the same connection (ADR 0027)."""


class DriverConnection:
    """Hold the connection.

    Args:
        cfg: The connector's configuration.
        require_lock: Raises an error when the run has lost its lock.
        log: Takes one line of text.

    Raises:
        SourceError: The server cannot be reached.
    """

    def __init__(self, cfg: ConnectorConfig, require_lock: Callable[[], None], log: Log) -> None:
        self._cfg, self._require_lock, self._log = cfg, require_lock, log
        self._settings, self._file_checked_at = cfg.connection_settings(), -math.inf
        self.conn = self._open()

    def _open(self) -> Any:
        conn = connect(self._settings)
        self._file_checked_at = -math.inf
        run_lock.disable_idle_timeout(conn)
        return conn

    def begin_file_check(self) -> bool:
        """Return whether the binlog file of the stream's position is to be compared with the server's now.

        Whoever is told so compares it; then nobody is for some seconds, unless the connection is renewed.
        """
        now = time.monotonic()
        if now - self._file_checked_at < FILE_CHECK_INTERVAL_S:
            return False
        self._file_checked_at = now
        return True

    def close(self) -> None:
        """Close it, unless it is closed: the error that it has broken with counts, not that of closing it twice."""
        if self.conn.open:
            self.conn.close()

    def renew_if_broken(self, reached: Callable[[], BinlogOffset | None]) -> bool:
        """Open the connection again if it does not answer any more, with backoff; return whether it did not.

        Args:
            reached: Returns where the stream stands; the server has to hold what follows.

        Raises:
            SourceConnectionError: The server does not come back within ``connect.max.attempts``.
            ServerChangedError: Another server answers.
            RunInProgressError: The lock is lost.
        """
        try:
            fetch_all(self.conn, "SELECT 1")
            return False
        except SourceConnectionError as error:
            broken = error
        self.close()
        reconnects = Reconnects(self._cfg[F.CONNECT_MAX_ATTEMPTS], lambda: None, self._log)
        while True:
            reconnects.wait(broken, None)
            try:
                self.conn = self._open()
                break
            except SourceConnectionError as refused:
                broken = refused
        self._require_lock()
        offset = reached()
        if offset is not None:
            check_available(self.conn, self._settings, offset)
        return True
