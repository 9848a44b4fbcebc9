"""A notifier of Airflow that says what is wrong with a stream, and hands it on to other notifiers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.common import merge_properties, parse_seconds
from airflow_provider_mysql_cdc.operators.task_error import NamedTaskError

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.operate.stream_report import AlarmLimits, StreamAlarm

NOTHING: Mapping[str, Any] = MappingProxyType({})


class MySqlCdcStreamNotifier(BaseNotifier):  # type: ignore[misc]
    """Say what is wrong with a stream: a task that failed, a run that is late, lag, nobody who drains, weak settings.

    As ``on_failure_callback`` (or ``on_retry_callback``) of a task it says what the error says. With limits it looks at
    the stream as well, wherever it is called: in a task of a small DAG that watches streams, or as the callback of a
    deadline. When there is nothing to say, nobody is notified.

    The alarms go to the log as warnings, and to other notifiers, whose templates have ``mysql_cdc_alarm_text`` (a
    line for each) and ``mysql_cdc_alarms`` (mappings with ``kind``, ``stream``, ``text`` and ``remedy``).

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection names Kafka. (templated)
        properties: Connector properties that the connection does not have; no secrets.
        max_lag: Age of the first change that is not in Kafka from which on it is an alarm, as timedelta or seconds.
        max_idle: Time since the last batch after which changes that wait mean that nobody drains the stream.
        settings: Whether weak settings, as ``mysql-cdc preflight`` finds them, are alarms.
        notifiers: Who is told: notifiers; or for a deadline, whose arguments Airflow stores, mappings with the ``path``
            of a notifier's class and its ``kwargs``.
        context: Airflow's context, where Airflow awaits the notifier.
    """

    template_fields: Sequence[str] = ("mysql_cdc_conn_id", "kafka_conn_id")

    def __init__(
        self,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        *,
        kafka_conn_id: str | None = None,
        properties: Mapping[str, Any] = NOTHING,
        max_lag: timedelta | float | None = None,
        max_idle: timedelta | float | None = None,
        settings: bool = False,
        notifiers: Sequence[Any] = (),
        context: Any = None,
    ) -> None:
        super().__init__(context)
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.properties = properties
        self.max_lag, self.max_idle, self.settings = max_lag, max_idle, settings
        self.notifiers = notifiers

    def notify(self, context: Any) -> None:
        """Find the alarms, and hand them on.

        Args:
            context: Airflow's context; ``exception`` in it is what a task has failed with.
        """
        alarms = self.alarms(context)
        for alarm in alarms:
            self.log.warning("%s", alarm)
        if not alarms:
            return
        told = {
            **context,
            "mysql_cdc_alarms": [alarm.to_json() for alarm in alarms],
            "mysql_cdc_alarm_text": "\n".join(map(str, alarms)),
        }
        for notifier in self.notifiers:
            try:
                _as_notifier(notifier)(told)
            except Exception as error:  # the others are told all the same
                self.log.error("A notifier could not be told: %s", type(error).__name__)

    async def async_notify(self, context: Any) -> None:
        """Find the alarms, and hand them on, in a thread: for the triggerer, which awaits callbacks of deadlines.

        Args:
            context: Airflow's context.
        """
        await asyncio.to_thread(self.notify, context)

    def alarms(self, context: Any) -> list[StreamAlarm]:
        """Return what is wrong; empty if nothing is.

        Args:
            context: Airflow's context.
        """
        from airflow_provider_mysql_cdc.cdc.operate.stream_report import error_alarm, find_alarms

        found, limits = list(self._run_alarms(context)), self._limits()
        if limits.any:
            try:
                hook = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id or None)
                found += find_alarms(hook.get_config(merge_properties(self.properties)), limits)
            except CdcError as error:
                found.append(error_alarm("unreachable", self.mysql_cdc_conn_id, error))
        return found

    def _run_alarms(self, context: Any) -> Sequence[StreamAlarm]:
        """Return the alarm of a task that failed, or of a run that is late."""
        from airflow_provider_mysql_cdc.cdc.operate.stream_report import StreamAlarm, error_alarm

        ti, raised = context.get("ti"), context.get("exception")
        if raised is not None:
            place = f"{self.mysql_cdc_conn_id}, task {ti.dag_id}.{ti.task_id}" if ti else self.mysql_cdc_conn_id
            if isinstance(raised, NamedTaskError):
                return [error_alarm("failure", place, raised.error)]
            return [StreamAlarm("failure", place, f"the task failed: {type(raised).__name__}", "read its log")]
        if context.get("deadline") is not None:
            run = context.get("dag_run") or {}
            name = run.get("dag_id", "") if isinstance(run, Mapping) else getattr(run, "dag_id", "")
            text = f"a run of {name or 'its DAG'} is late"
            return [StreamAlarm("deadline", self.mysql_cdc_conn_id, text, "see what the run waits for")]
        return []

    def _limits(self) -> AlarmLimits:
        from airflow_provider_mysql_cdc.cdc.operate.stream_report import AlarmLimits

        lag, idle = (
            None if value is None else parse_seconds(value, name)
            for name, value in (("max_lag", self.max_lag), ("max_idle", self.max_idle))
        )
        return AlarmLimits(lag, idle, self.settings)


def _as_notifier(entry: Any) -> Any:
    """Return a notifier, also where it is described by path and arguments."""
    from airflow.sdk._shared.module_loading import import_string

    return import_string(entry["path"])(**entry.get("kwargs", {})) if isinstance(entry, Mapping) else entry
