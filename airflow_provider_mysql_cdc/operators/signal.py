"""The operator that sends a signal to a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.arguments import Properties
from airflow_provider_mysql_cdc.operators.common import (
    MaskedPropertiesMixin,
    generation_of,
    merge_properties,
    owner_of,
    task_config,
    with_registry,
)


class MySqlCdcSignalOperator(MaskedPropertiesMixin, BaseOperator):  # type: ignore[misc]
    """Send a signal, which the next drain executes: start, stop or pause a snapshot, or write a log line.

    A signal that the drain would refuse because of its format is refused here, before it is sent. Every try of a task
    sends the same id, so a retry requests nothing twice.

    Args:
        signal_type: ``execute-snapshot``, ``stop-snapshot``, ``pause-snapshot``, ``resume-snapshot``, ``log``,
            ``schema-changes`` or ``set-binlog-position``. (templated)
        data: The signal's parameters as a mapping, or its JSON text. (templated)
        channel: ``airflow`` (a record of the ledger), ``source`` (a row of signal.data.collection) or ``kafka`` (a
            record of signal.kafka.topic). (templated)
        signal_id: The signal's id; None derives one from the task instance. (templated)
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection's extra names Kafka. (templated)
        schema_registry_conn_id: Connection of type ``schema_registry``, as for ``MySqlCdcSparkOperator``. (templated)
        properties: Connector properties, as for ``MySqlCdcSparkOperator``. (templated)
        run_properties: As for ``MySqlCdcSparkOperator``.
        kwargs: Arguments of ``BaseOperator``.

    Raises:
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        "signal_type",
        "data",
        "channel",
        "signal_id",
        "mysql_cdc_conn_id",
        "kafka_conn_id",
        "schema_registry_conn_id",
        "properties",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"data": "json", "properties": "json"}
    ui_color = "#efe3f5"

    def __init__(
        self,
        *,
        signal_type: str,
        data: Mapping[str, Any] | str | None = None,
        channel: str = "airflow",
        signal_id: str | None = None,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        kafka_conn_id: str | None = None,
        schema_registry_conn_id: str | None = None,
        properties: Properties | Sequence[Properties] | None = None,
        run_properties: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.signal_type = signal_type
        self.data = data
        self.channel = channel
        self.signal_id = signal_id
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.schema_registry_conn_id = schema_registry_conn_id
        self.properties = properties
        self.run_properties = run_properties

    def execute(self, context: Any) -> str:
        """Check the signal and send it.

        Returns:
            The signal's id, also pushed as XCom.
        """
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import checked_signal, send_signal, signal_id

        data = self.data if isinstance(self.data, str) else self.data or {}
        id_ = self.signal_id or signal_id(owner_of(context), generation_of(context))
        with self.naming_errors():
            cfg = task_config(self, merge_properties(with_registry(self.properties, self.schema_registry_conn_id)))
            signal = checked_signal(cfg, self.signal_type, data, channel=self.channel, id_=id_)
            send_signal(cfg, signal)
        self.log.info("Sent signal %s (%s) over channel %s.", signal.id, signal.type, signal.channel)
        return signal.id
