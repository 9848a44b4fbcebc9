"""The trigger that follows a driver which outlives its task's process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger
from airflow_provider_mysql_cdc.triggers.task_state import TRIGGER_QUERY_TIMEOUT_S, state_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

FREE_POLLS = 2
"""Looks at which the lock is free before the driver counts as ended."""
UNKNOWN_POLLS = 60
"""Looks at which the server cannot be asked before the task looks itself."""
NO_HOLDER = 0
"""Stands for the connection of a driver that holds no lock."""


class MySqlCdcJobTrigger(MySqlCdcTrigger):
    """Fire when the driver of a run has ended: when it no longer holds the stream's lock on the source server.

    Nothing is kept here, so the trigger may die and begin again on another host; and the driver, in whatever way it
    ends, frees the lock with its connection. How it ended stands in the ledger, which the task reads.

    Args:
        owner: ``dag_id/run_id/task_id/map_index``.
        submission: What is known about the driver (``hooks.submission.Submission``); None for nothing.
        kwargs: As for ``MySqlCdcTrigger``.
    """

    def __init__(self, *, owner: str, submission: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.owner = owner
        self.submission = dict(submission or {})
        self._free_polls = self._unknown_polls = 0
        self._holder: int | None = None

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"owner": self.owner, "submission": self.submission}

    def poll_scope(self) -> tuple[str, ...]:
        """Return the run, whose lock nobody else asks for."""
        return (self.owner,)

    def read(self, cfg: ConnectorConfig) -> int | None:
        """Return the connection by which the driver holds the lock, or ``NO_HOLDER``; None while nobody can be
        asked.
        """
        from airflow_provider_mysql_cdc.cdc.operate.end_run import lock_connection

        try:
            return lock_connection(cfg, self.owner) or NO_HOLDER
        except CdcError as error:
            if not error.can_retry:
                raise
            return None

    def evaluate(self, result: int | None) -> dict[str, Any] | None:
        """Return the event when the driver has ended, or nobody can tell for long."""
        if result and self._holder is None:
            self._holder = result
            self.log.info("Following the driver of %s.", self.owner)
        self._unknown_polls = self._unknown_polls + 1 if result is None else 0
        if result is not None:
            self._free_polls = 0 if result else self._free_polls + 1
        return {"ended": True} if self._free_polls >= FREE_POLLS or self._unknown_polls >= UNKNOWN_POLLS else None

    async def on_kill(self) -> None:
        """End the driver, when somebody has ended the task: failed, succeeded, skipped, cleared or deleted it.

        A triggerer that has lost its triggers to another one is told the same, and then the task is still deferred.
        """
        await asyncio.to_thread(self._end_driver)

    def _end_driver(self) -> None:
        if self.task_instance is not None and state_of(self.task_instance, TRIGGER_QUERY_TIMEOUT_S) == "deferred":
            self.log.info("The task is deferred as before; another triggerer follows the driver of %s.", self.owner)
            return
        from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run

        if self.submission:
            Submission.from_json(self.submission).kill()
        cfg = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self.properties)
        end_run(cfg, self.owner, self.log.info, self._holder)
