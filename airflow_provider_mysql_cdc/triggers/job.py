"""The trigger that follows a driver while its task is deferred."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.log import redact

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.submission import OutputTail, Submission
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger
from airflow_provider_mysql_cdc.triggers.task_state import TRIGGER_QUERY_TIMEOUT_S, UNFINISHED_STATES, UNKNOWN, state_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

FREE_POLLS = 2
"""Consecutive polls with a free lock after which the driver counts as ended."""
UNKNOWN_POLLS = 60
"""Consecutive polls in which the server is unreachable before the trigger fires and the task checks itself."""
NO_HOLDER = 0
"""In place of a connection id: no driver holds the lock."""


class MySqlCdcJobTrigger(MySqlCdcTrigger):
    """Fire when the driver of a run has ended: when it no longer holds the stream's lock on the source server.

    The trigger keeps no state that it needs, so it may be restarted on another host. However the driver ends, the
    server frees the lock with the driver's connection. The task reads from the ledger how the driver ended.

    Meanwhile the driver's lines go into the task's log, if its output is a file that this host can read; a trigger that
    starts again repeats the last ones.

    Args:
        owner: ``dag_id/run_id/task_id/map_index``.
        submission: What is known about the driver (``hooks.submission.Submission``); None when nothing is known.
        kwargs: As for ``MySqlCdcTrigger``.
    """

    def __init__(self, *, owner: str, submission: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.owner = owner
        self.submission = dict(submission or {})
        self._free_polls = self._unknown_polls = 0
        self._holder: int | None = None
        made = Submission.from_json(self.submission) if self.submission else None
        self._output = OutputTail(Path(made.output), made.shown) if made is not None and not made.cluster else None

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"owner": self.owner, "submission": self.submission}

    def poll_scope(self) -> tuple[str, ...]:
        """Return the run whose lock is polled."""
        return (self.owner,)

    def read(self, cfg: ConnectorConfig) -> int | None:
        """Return the driver's connection that holds the lock, or ``NO_HOLDER``; None when the server is unreachable."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import lock_connection

        try:
            return lock_connection(cfg, self.owner) or NO_HOLDER
        except CdcError as error:
            if not error.can_retry:
                raise
            return None

    def evaluate(self, result: int | None) -> dict[str, Any] | None:
        """Return the event when the driver has ended, or the server has been unreachable for long."""
        if result and self._holder is None:
            self._holder = result
            self.log.info("Following the driver of %s.", self.owner)
        self._unknown_polls = self._unknown_polls + 1 if result is None else 0
        if result is not None:
            self._free_polls = 0 if result else self._free_polls + 1
        if self._free_polls < FREE_POLLS and self._unknown_polls < UNKNOWN_POLLS:
            return None
        return {"ended": True, "shown": self._output.position if self._output is not None else 0}

    async def report(self) -> None:
        """Write the driver's new lines into the task's log, without secrets."""
        if self._output is None:
            return
        for line in await asyncio.to_thread(self._output.new_lines):
            self.log.info("%s", redact(line))

    async def on_kill(self) -> None:
        """End the driver when the task was ended: marked failed, succeeded or skipped, cleared or deleted.

        Airflow also calls this in a triggerer whose triggers were assigned to another one; the task is still deferred
        then, and the driver keeps running.
        """
        await asyncio.to_thread(self._end_driver)

    def _end_driver(self) -> None:
        state = UNKNOWN if self.task_instance is None else state_of(self.task_instance, TRIGGER_QUERY_TIMEOUT_S)
        if state == "deferred":
            self.log.info(
                "The task is still deferred, so its driver keeps running and another triggerer follows it: %s.",
                self.owner,
            )
            return
        # A driver has another connection behind one that broke; but a task that goes on may have another driver.
        self._end(self._holder if state in (*UNFINISHED_STATES, UNKNOWN) else None)

    def _end(self, only_connection: int | None = None) -> None:
        from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run

        if self.submission:
            Submission.from_json(self.submission).kill()
        cfg = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self.properties)
        end_run(cfg, self.owner, self.log.info, only_connection)
