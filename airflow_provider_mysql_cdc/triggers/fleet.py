"""The trigger that follows the driver of a fleet while its task is deferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.hooks.submission import Submission
from airflow_provider_mysql_cdc.triggers.job import NO_HOLDER, MySqlCdcJobTrigger

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

NOTHING: Mapping[str, Any] = MappingProxyType({})


class MySqlCdcFleetTrigger(MySqlCdcJobTrigger):
    """Fire when the driver of a fleet has ended: when it holds the lock of none of its streams.

    Servers that cannot be reached say nothing; the driver counts as ended when it holds no lock on all others.

    Args:
        mysql_cdc_conn_ids: Connections of type ``mysql_cdc``.
        kept: What the task has to know again when it continues; the event has it.
        stream_properties: Connector properties that single streams have of their own, by connection.
        kwargs: As for ``MySqlCdcJobTrigger``, without ``mysql_cdc_conn_id``.
    """

    def __init__(
        self,
        *,
        mysql_cdc_conn_ids: Sequence[str],
        kept: Mapping[str, Any] = NOTHING,
        stream_properties: Mapping[str, Mapping[str, Any]] = NOTHING,
        **kwargs: Any,
    ) -> None:
        kwargs["mysql_cdc_conn_id"] = ""
        super().__init__(**kwargs)
        self.kept, self.stream_properties = dict(kept), dict(stream_properties)
        self.mysql_cdc_conn_ids = list(mysql_cdc_conn_ids)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments in the form that Airflow stores."""
        path, arguments = super().serialize()
        del arguments["mysql_cdc_conn_id"]
        return path, arguments

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {
            "mysql_cdc_conn_ids": self.mysql_cdc_conn_ids,
            "kept": self.kept,
            "stream_properties": self.stream_properties,
            **super().extra_arguments(),
        }

    def evaluate(self, result: int | None) -> dict[str, Any] | None:
        """Return the event when the driver has ended."""
        event = super().evaluate(result)
        return None if event is None else {**event, "kept": self.kept}

    def poll_scope(self) -> tuple[str, ...]:
        """Return the run and the streams whose locks are polled."""
        return (self.owner, *self.mysql_cdc_conn_ids)

    def _configs(self) -> list[ConnectorConfig]:
        """Return the configurations that can be read."""
        configs: list[ConnectorConfig] = []
        errors: list[CdcError] = []
        for conn_id in self.mysql_cdc_conn_ids:
            try:
                properties = {**self.properties, **self.stream_properties.get(conn_id, NOTHING)}
                configs.append(MySqlCdcHook(conn_id, self.kafka_conn_id).get_config(properties))
            except CdcError as error:
                errors.append(error)
        if not configs:
            raise errors[0]
        return configs

    def _read(self) -> int | None:
        """Return 1 while the driver holds a lock, else ``NO_HOLDER``; None when no server can be reached."""
        from airflow_provider_mysql_cdc.cdc.operate.end_run import any_driver_running

        try:
            return 1 if any_driver_running(self._configs(), self.owner) else NO_HOLDER
        except CdcError as error:
            if not error.can_retry:
                raise
            return None

    def _end(self, only_connection: int | None = None) -> None:
        from airflow_provider_mysql_cdc.cdc.operate.end_run import end_runs

        if self.submission:
            Submission.from_json(self.submission).kill()
        end_runs(self._configs(), self.owner, self.log.info)
