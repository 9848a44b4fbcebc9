"""A writer's connection to the source that breaks inside a batch: wait, and go on behind what was read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
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
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2**self._attempts)
        self._attempts += 1
        self.note(
            f"the connection to the source broke ({error}); attempt {self._attempts} of {self.max_attempts} to go on "
            f"behind what was read, in {delay_s:.1f} s"
        )
        until = time.monotonic() + delay_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(_CHECK_S, left_s))
            self.check()


def require_same_server(settings: ConnectionSettings, start: BinlogOffset) -> None:
    """Refuse to go on inside a batch at another server, which a proxy or a name may lead to now.

    Args:
        settings: How to reach the source.
        start: The start of the batch.

    Raises:
        SourceConnectionError: Another server answers, or none.
    """
    if start.server_uuid is None:
        return
    with connect(settings) as conn:
        server_uuid = str(fetch_all(conn, "SELECT @@server_uuid")[0][0])
    if server_uuid != start.server_uuid:
        raise SourceConnectionError(
            "another server answers in place of the source",
            where=settings.address(),
            why=f"the batch was begun at server {start.server_uuid}, and this one is {server_uuid}",
            remedy="nothing: the next try looks at the server first",
        )
