"""The base of this provider's sensors: configuration, deferral and errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
    timezone,
)

from airflow_provider_mysql_cdc.cdc.errors import from_json
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.arguments import Properties, parse_bool
from airflow_provider_mysql_cdc.operators.common import (
    MaskedPropertiesMixin,
    merge_properties,
    task_config,
    trigger_properties,
)

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger


class MySqlCdcSensor(MaskedPropertiesMixin, BaseSensorOperator):  # type: ignore[misc]
    """Wait for a condition of a stream.

    In the modes ``poke`` and ``reschedule`` a worker checks it; with ``deferrable=True`` the triggerer does, where all
    sensors of one server share one poll. When the trigger fires, the task checks again itself, and defers again when
    the condition no longer holds, for example because a scheduled drain has run meanwhile.

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection's extra names Kafka. (templated)
        properties: Connector properties, as for ``MySqlCdcSparkOperator``. (templated)
        run_properties: As for ``MySqlCdcSparkOperator``.
        deferrable: Whether to wait in the triggerer; the default is ``[operators] default_deferrable``.
        kwargs: Arguments of ``BaseSensorOperator``; ``poke_interval`` is the triggerer's interval as well.

    Raises:
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
        AirflowSensorTimeout: ``timeout`` has passed.
    """

    template_fields: Sequence[str] = ("mysql_cdc_conn_id", "kafka_conn_id", "properties")
    ui_color = "#dbe7f3"

    def __init__(
        self,
        *,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        kafka_conn_id: str | None = None,
        properties: Properties | Sequence[Properties] | None = None,
        run_properties: Sequence[str] = (),
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.properties = properties
        self.run_properties = run_properties
        default = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = default if deferrable is None else parse_bool(deferrable, "deferrable")

    @abstractmethod
    def check(self, cfg: ConnectorConfig, context: Any) -> PokeReturnValue:
        """Check the condition once.

        Args:
            cfg: The connector's configuration.
            context: Airflow's context.

        Raises:
            CdcError: The condition can never hold, or it cannot be checked.
        """

    @abstractmethod
    def trigger(self, arguments: Mapping[str, Any]) -> MySqlCdcTrigger:
        """Return the trigger that continues to wait after ``check``.

        Args:
            arguments: The arguments that every trigger takes.
        """

    def poke(self, context: Any) -> PokeReturnValue:
        """Check the condition once; the XCom holds what was found."""
        with self.naming_errors():
            return self.check(self._config(), context)

    def execute(self, context: Any) -> Any:
        """Wait until the condition holds.

        Returns:
            What the last check found, also pushed as XCom.
        """
        if not self.deferrable:
            return super().execute(context)
        try:
            return self._check_or_defer(context, timezone.utcnow() + timedelta(seconds=self.timeout))
        except AirflowException as error:
            # Once deferred, BaseSensorOperator.resume_execution does the same.
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise

    def resume(self, context: Any, event: Mapping[str, Any], until: str | None = None) -> Any:
        """Continue after the trigger has fired.

        Args:
            context: Airflow's context.
            event: The trigger's event.
            until: End of the timeout, ISO 8601; ``dag.test`` does not pass it.

        Returns:
            What the last check found, also pushed as XCom.
        """
        if event["status"] == "failed":
            with self.naming_errors():
                raise from_json(event["error"])
        end = datetime.fromisoformat(until) if until else timezone.utcnow() + timedelta(seconds=self.timeout)
        return self._check_or_defer(context, end)

    def _check_or_defer(self, context: Any, until: datetime) -> Any:
        result = self.poke(context)
        if result.is_done:
            return result.xcom_value
        remaining = until - timezone.utcnow()
        if remaining <= timedelta(0):
            raise AirflowSensorTimeout(f"Sensor has timed out; it waited for {self.timeout} seconds.")
        return self.defer(
            trigger=self.trigger(
                {
                    "mysql_cdc_conn_id": self.mysql_cdc_conn_id,
                    "kafka_conn_id": self.kafka_conn_id or None,
                    "properties": trigger_properties(self.properties, self.mysql_cdc_conn_id),
                    "poll_interval": max(self.poke_interval, 1.0),
                }
            ),
            method_name="resume",
            kwargs={"until": until.isoformat()},
            timeout=remaining,
        )

    def _config(self) -> ConnectorConfig:
        return task_config(self, merge_properties(self.properties))
