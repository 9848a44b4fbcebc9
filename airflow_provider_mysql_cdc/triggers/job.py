"""The trigger that follows a driver which outlives its task's process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

GONE = 2
"""Looks at which the lock is free before the driver counts as ended."""
UNKNOWN = 60
"""Looks at which the server cannot be asked before the task looks itself."""


class MySqlCdcJobTrigger(MySqlCdcTrigger):
    """Fire when the driver of a run has ended: when it no longer holds the stream's lock on the source server.

    Nothing is kept here, so the trigger may die and begin again on another host; and the driver, in whatever way it
    ends, frees the lock with its connection. How it ended stands in the ledger, which the task reads.

    Args:
        owner: ``dag_id/run_id/task_id/map_index``.
        kwargs: As for ``MySqlCdcTrigger``.
    """

    def __init__(self, *, owner: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.owner = owner
        self._free = self._unknown = 0
        self._looked = False

    def more(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"owner": self.owner}

    def wanted(self) -> tuple[str, ...]:
        """Return the run, whose lock nobody else asks for."""
        return (self.owner,)

    def read(self, cfg: ConnectorConfig) -> bool | None:
        """Return whether the driver is at work; None while the server cannot be asked."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import at_work

        try:
            return at_work(cfg, self.owner)
        except CdcError as error:
            if not error.can_retry:
                raise
            return None

    def judge(self, found: bool | None) -> dict[str, Any] | None:
        """Return the event when the driver has ended, or nobody can tell for long."""
        if not self._looked:
            self._looked = True
            self.log.info("Following the driver of %s.", self.owner)
        self._unknown = self._unknown + 1 if found is None else 0
        if found is not None:
            self._free = 0 if found else self._free + 1
        return {"ended": True} if self._free >= GONE or self._unknown >= UNKNOWN else None

    async def on_kill(self) -> None:
        """End the driver, because a person has ended the task."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        from airflow_provider_mysql_cdc.cdc.operate.end_run import end_run

        cfg = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self.properties)
        end_run(cfg, self.owner, self.log.info)
