"""The notification that no snapshot is needed, which Debezium writes when it starts with a stored offset."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.signals.initial_notifications import snapshot_notification
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType, notification_records
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import partition_counts


def report_skipped(cfg: ConnectorConfig, log: Log) -> None:
    """Write a notification of type SKIPPED.

    It tells of no rows and is no part of a transaction: a running drain is not disturbed. So a task that is repeated
    writes it again, as Debezium does at each start.

    Args:
        cfg: The connector's configuration.
        log: Writes one line to the log.

    Raises:
        SinkError: Kafka refuses it, or cannot be reached.
    """
    records = notification_records(cfg, [snapshot_notification(NotificationType.SKIPPED)])
    if not records:
        return
    if any(map(cfg.is_avro, F.PARTS)):
        log("the notification SKIPPED is not written: its Avro schemas are registered by jobs only")
    elif records[0].topic in partition_counts(make_admin(cfg.kafka_settings()), [records[0].topic]):
        write_plain(cfg.kafka_settings(), records)
