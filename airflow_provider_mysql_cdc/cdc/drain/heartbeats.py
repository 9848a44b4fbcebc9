"""Heartbeats at their interval: within batches, and while a job waits for events between them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors


@dataclass(slots=True)
class HeartbeatTimer:
    """Say when the next heartbeat of a job is due; the first one is due at once.

    Args:
        interval_s: Seconds between two heartbeats; 0 for none.
        clock: Seconds of a clock that is never set back.
    """

    interval_s: float
    clock: Callable[[], float] = time.monotonic
    _due: float = -math.inf

    def seconds_left(self) -> float:
        """Return the seconds until the next heartbeat is due."""
        return max(0.0, self._due - self.clock())

    def take(self) -> bool:
        """Return whether a heartbeat is due; the next one is due an interval later."""
        if not self.interval_s or self.seconds_left() > 0:
            return False
        self.restart()
        return True

    def restart(self) -> None:
        """Let the next heartbeat be due an interval from now."""
        self._due = self.clock() + self.interval_s


class Heartbeats:
    """Write a job's heartbeats between its batches, and run ``heartbeat.action.query``.

    Args:
        cfg: The connector's configuration.
        connection: Returns an open connection.
        job: The ledger; its producer writes the records.
        require_lock: Raises an error when the run has lost its lock.
    """

    def __init__(
        self, cfg: ConnectorConfig, connection: Callable[[], Any], job: JobLedger, require_lock: Callable[[], None]
    ) -> None:
        self._cfg, self._connection, self._job, self._require_lock = cfg, connection, job, require_lock
        interval_s = cfg[F.HEARTBEAT_INTERVAL_MS] / 1000
        self.timer = HeartbeatTimer(interval_s)
        self._action_timer = HeartbeatTimer(interval_s if cfg[F.HEARTBEAT_ACTION_QUERY] else 0)

    def while_waiting(self) -> None:
        """Write a heartbeat and run the statement, if they are due (STRM-27).

        Raises:
            RunInProgressError: The lock is lost, which also happens when a person ends this run.
            ConfigError: The statement cannot be run.
        """
        self._require_lock()
        if self.timer.take():
            self._job.commit([heartbeat(self._cfg)])
        self.run_action()

    def run_action(self) -> None:
        """Run heartbeat.action.query on the source if it is due (STRM-30); its change is part of a later batch.

        Raises:
            ConfigError: The statement cannot be run.
        """
        if not self._action_timer.take():
            return
        try:
            with named_errors(self._cfg), self._connection().cursor() as cursor:
                cursor.execute(self._cfg[F.HEARTBEAT_ACTION_QUERY])
        except SourceConnectionError:
            raise
        except SourceError as error:
            raise ConfigError(
                f"{F.HEARTBEAT_ACTION_QUERY.name} cannot be run",
                where=error.where,
                why=error.why,
                remedy="name tables with their database, and grant the account the privilege that the statement needs; "
                "the batch before it is complete",
            ) from error
