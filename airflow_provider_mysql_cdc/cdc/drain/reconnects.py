"""A writer's connection to the source that breaks inside a batch: wait, and go on behind what was read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.reconnect_delay import reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError

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
