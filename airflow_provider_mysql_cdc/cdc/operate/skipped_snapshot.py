"""What is said if no snapshot is needed: Debezium's notification, and the tables that none has read."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, earlier_lists, unread_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import joined_tables, unread_lines
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import base_tables
from airflow_provider_mysql_cdc.cdc.signals.initial_notifications import snapshot_notification
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType, notification_records
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import partition_counts


def report_skipped(cfg: ConnectorConfig, ledger: LedgerState | None, log: Log) -> None:
    """Log the captured tables that were never read, and write a notification of type SKIPPED.

    It tells of no rows and is no part of a transaction: a running drain is not disturbed. So a task that is repeated
    writes it again, as Debezium does at each start.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
        log: Writes one line to the log.

    Raises:
        SourceError: The source cannot be asked for its tables.
        SinkError: Kafka refuses it, or cannot be reached.
    """
    for line in unread_lines(cfg, _never_read(cfg, ledger or LedgerState())):
        log(line)
    records = notification_records(cfg, [snapshot_notification(NotificationType.SKIPPED)])
    if not records:
        return
    if any(map(cfg.is_avro, F.PARTS)):
        log("the notification SKIPPED is not written: its Avro schemas are registered by jobs only")
    elif records[0].topic in partition_counts(make_admin(cfg.kafka_settings()), [records[0].topic]):
        write_plain(cfg.kafka_settings(), records)


def _never_read(cfg: ConnectorConfig, ledger: LedgerState) -> list[NeverReadTable]:
    """Return the tables that drains have found, and those that the next one will find."""
    unread = unread_tables(ledger)
    if (before := earlier_lists(cfg, ledger)) is not None:
        with connect(cfg.connection_settings()) as conn:
            joined = joined_tables(cfg, before, base_tables(conn), "the next drain")
        unread = {each.table: each for each in (*joined, *unread.values()) if cfg.captures(each.table)}
    return list(unread.values())
