"""Defer a task while its driver works: start it apart, let a trigger follow it, and judge from the ledger."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, conf

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json
from airflow_provider_mysql_cdc.hooks.spec_carrier import carried
from airflow_provider_mysql_cdc.operators.arguments import flag
from airflow_provider_mysql_cdc.operators.common import airflow_error, owner_of, shown_properties
from airflow_provider_mysql_cdc.operators.detached import Submission, not_detachable, start, why_attached
from airflow_provider_mysql_cdc.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

LOOK_S = 1.0
"""Seconds between two looks whether a driver has come to work."""


class DefersJob(SparkJobOperator):
    """Let a job's driver outlive the task's process, and follow it in the triggerer.

    The truth about the driver is the stream's lock on the source server, which it holds while it works, and the ledger,
    which says what it has done. So whatever dies, worker, triggerer or scheduler, the driver goes on; a later try that
    finds it at work follows it and starts none; and where the driver itself is dead, its lock is free, and the next try
    goes on from its markers.

    Args:
        deferrable: Whether to defer; None takes ``[operators] default_deferrable`` where it can be done. (templated)
        poll_interval: Seconds between two looks of the triggerer.
        kwargs: As for ``SparkJobOperator``.
    """

    mysql_cdc_conn_id: str
    kafka_conn_id: str | None
    properties: Any

    def __init__(self, *, deferrable: bool | str | None = None, poll_interval: float = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.poll_interval = poll_interval

    def resume(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on when the driver has ended.

        Args:
            context: Airflow's context.
            event: The trigger's event.

        Returns:
            As ``execute``.
        """
        if event["status"] == "failed":
            raise airflow_error(from_json(event["error"]))
        from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

        try:
            cfg, store = self._open(context)
            earlier = Submission.of(context)
            if earlier is not None:
                earlier.relay(self.log.info)
            spec = JobSpec(self.mode, {}, {}, owner_of(context), id=earlier.job if earlier is not None else "")
            return self._judged(cfg, store, spec, None, context)
        except CdcError as error:
            raise airflow_error(error) from error

    def _open(self, context: Any) -> tuple[ConnectorConfig, OffsetStore]:
        raise NotImplementedError

    def _judged(
        self, cfg: ConnectorConfig, store: OffsetStore, spec: JobSpec, failure: Exception | None, context: Any
    ) -> dict[str, Any]:
        raise NotImplementedError

    def _defers(self) -> bool:
        """Return whether to defer; say why not where nobody has asked for it by name."""
        asked = self.deferrable not in (None, "", "None")
        wanted = (
            flag(self.deferrable, "deferrable")
            if asked
            else conf.getboolean("operators", "default_deferrable", fallback=False)
        )
        if not wanted:
            return False
        why = why_attached(self._get_hook(), self.executor)
        if why and asked:
            raise not_detachable(why)
        if why:
            self.log.info("The task is not deferred (%s).", why)
        return not why

    def _follow_earlier(self, cfg: ConnectorConfig, context: Any) -> None:
        """Follow a driver of an earlier try, if there is one at work or about to be."""
        owner, earlier = owner_of(context), Submission.of(context)
        while earlier is not None and earlier.runs() and not _at_work(cfg, owner):
            time.sleep(LOOK_S)
            self._stop_if_killed()
        if _at_work(cfg, owner):
            self.log.info("A driver of an earlier try is at work; this try follows it and starts none.")
            self._defer(owner)

    def _run_detached(self, cfg: ConnectorConfig, store: OffsetStore, spec: JobSpec, context: Any) -> dict[str, Any]:
        """Start the driver and defer as soon as it is at work; judge it here when it has ended before."""
        self._hook = self._get_hook()
        with carried(spec, self._hook.route) as given:
            self._hook.carry(given)
            process, output = start(self._hook, self.application, spec.id)
            made = Submission(spec.id, str(self.name), socket.gethostname(), process.pid, output)
            made.remember(context)
            while (code := process.poll()) is None and not _at_work(cfg, spec.owner):
                time.sleep(LOOK_S)
                self._stop_if_killed()
        if code is None:
            self._defer(spec.owner)
        self._hook._last_submit_log_lines = deque(made.relay(self.log.info))
        failure = AirflowException(f"spark-submit ended. Error code is: {code}.") if code else None
        return self._judged(cfg, store, spec, failure, context)

    def _defer(self, owner: str) -> None:
        from airflow_provider_mysql_cdc.triggers.job import MySqlCdcJobTrigger

        self.log.info("The driver works on its own; the task is deferred until it has ended.")
        self.defer(
            trigger=MySqlCdcJobTrigger(
                owner=owner,
                mysql_cdc_conn_id=self.mysql_cdc_conn_id,
                kafka_conn_id=self.kafka_conn_id or None,
                properties=shown_properties(self.properties, self.mysql_cdc_conn_id),
                poll_interval=max(float(self.poll_interval), 0.1),
            ),
            method_name="resume",
            timeout=self.execution_timeout,
        )


def _at_work(cfg: ConnectorConfig, owner: str) -> bool:
    from airflow_provider_mysql_cdc.cdc.operate.end_run import at_work

    return at_work(cfg, owner)
