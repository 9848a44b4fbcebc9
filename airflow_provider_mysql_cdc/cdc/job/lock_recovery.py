"""Take a run lock again that has gone with a restart of its server, if nobody else has taken it meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection

_SAME_START_S = 2.0
"""Difference of two start times that come from one: a server tells how long it runs in whole seconds."""


@dataclass(frozen=True, slots=True)
class ServerStart:
    """Identify a server process by a connection to it.

    Args:
        uuid: The server's uuid.
        started_s: When it was started, by the clock of ``time.monotonic``.
        connection_id: The connection's id; a process counts its connections upwards, from its start on.
    """

    uuid: str
    started_s: float
    connection_id: int

    def was_restarted(self, now: ServerStart) -> bool:
        """Return whether a server that answers later is this one, started again.

        Args:
            now: The server that answers.
        """
        started_later = now.started_s > self.started_s + _SAME_START_S
        return now.uuid == self.uuid and (started_later or now.connection_id <= self.connection_id)


def server_start(conn: MySqlConnection) -> ServerStart:
    """Return which server process answers.

    Args:
        conn: An open connection.

    Raises:
        SourceError: The server refuses or does not answer.
    """
    uptime_s = float(fetch_all(conn, "SHOW GLOBAL STATUS LIKE 'Uptime'")[0][1])
    uuid, connection_id = fetch_all(conn, "SELECT @@server_uuid, CONNECTION_ID()")[0]
    return ServerStart(str(uuid), time.monotonic() - uptime_s, int(connection_id))


@dataclass(slots=True)
class LockRecovery:
    """Connect again where the connection of a lock has broken because its server restarted.

    A connection that was killed on a server that runs on is not taken up: so a newer attempt, and a person, end a run.

    Args:
        settings: How to reach the source server.
        max_attempts: Attempts to connect again, after which the lock is lost.
        acquire: Takes the locks on a connection if they are free; returns whether it has them.
        held_on: The server process on which the lock was taken.
    """

    settings: ConnectionSettings
    max_attempts: int
    acquire: Callable[[Any], bool]
    held_on: ServerStart
    _conn: Any = field(default=None, init=False)

    def take_again(self, stopped: Callable[[float], bool]) -> Any:
        """Return a connection that holds the locks again; None where they are lost.

        Args:
            stopped: Waits some seconds; returns whether the run has ended meanwhile.
        """
        for attempt in range(self.max_attempts):
            if stopped(reconnect_delay_s(attempt)):
                return None
            self.close()
            try:
                self._conn = connect(self.settings)
                now = server_start(self._conn)
                if not self.held_on.was_restarted(now) or not self.acquire(self._conn):
                    return None
            except SourceConnectionError:
                continue
            except CdcError:
                return None
            self.held_on = now
            return self._conn
        return None

    def close(self) -> None:
        """Close the connection that holds the locks since they were taken again."""
        if self._conn is not None and self._conn.open:
            self._conn.close()
        self._conn = None
