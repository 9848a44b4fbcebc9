"""The trigger that follows a driver which outlives its task's process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger
from airflow_provider_mysql_cdc.triggers.task_state import ASK_IN_TRIGGER_S, state_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

GONE = 2
"""Looks at which the lock is free before the driver counts as ended."""
UNKNOWN = 60
"""Looks at which the server cannot be asked before the task looks itself."""
FREE = 0
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
        self._free = self._unknown = 0
        self._holder: int | None = None

    def more(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"owner": self.owner, "submission": self.submission}

    def wanted(self) -> tuple[str, ...]:
        """Return the run, whose lock nobody else asks for."""
        return (self.owner,)

    def read(self, cfg: ConnectorConfig) -> int | None:
        """Return the connection by which the driver holds the lock, or ``FREE``; None while nobody can be asked."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import holder_of

        try:
            return holder_of(cfg, self.owner) or FREE
        except CdcError as error:
            if not error.can_retry:
                raise
            return None

    def judge(self, found: int | None) -> dict[str, Any] | None:
        """Return the event when the driver has ended, or nobody can tell for long."""
        if found and self._holder is None:
            self._holder = found
            self.log.info("Following the driver of %s.", self.owner)
        self._unknown = self._unknown + 1 if found is None else 0
        if found is not None:
            self._free = 0 if found else self._free + 1
        return {"ended": True} if self._free >= GONE or self._unknown >= UNKNOWN else None

    async def on_kill(self) -> None:
        """End the driver, when somebody has ended the task: failed, succeeded, skipped, cleared or deleted it.

        A triggerer that has lost its triggers to another one is told the same, and then the task is still deferred.
        """
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        if self.task_instance is not None and state_of(self.task_instance, ASK_IN_TRIGGER_S) == "deferred":
            self.log.info("The task is deferred as before; another triggerer follows the driver of %s.", self.owner)
            return
        from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run

        if self.submission:
            Submission.read(self.submission).end()
        cfg = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self.properties)
        end_run(cfg, self.owner, self.log.info, self._holder)
