"""Create the transactional producers and the ledger of a topic.prefix from its configuration."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id
from airflow_provider_mysql_cdc.cdc.sink.request_limit import request_max_bytes
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import record_size_settings
from airflow_provider_mysql_cdc.cdc.sink.writer import SHORT_TIMEOUT_MS, TransactionalWriter


def record_writer(cfg: ConnectorConfig, writer: int | str, *, single_partition: bool = False) -> TransactionalWriter:
    """Return a transactional producer that is not yet initialised.

    Args:
        cfg: The connector's configuration.
        writer: Writer index, or the driver's name.
        single_partition: Whether the records of a transaction go to one partition.
    """
    settings = cfg.kafka_settings()
    return TransactionalWriter(
        settings,
        transactional_id(cfg[F.TOPIC_PREFIX], writer),
        transaction_timeout_ms=cfg[F.TRANSACTION_TIMEOUT_MS],
        commit_bytes=cfg[F.COMMIT_BYTES],
        commit_interval_s=cfg[F.COMMIT_INTERVAL_MS] / 1000,
        single_partition=single_partition,
        request_max_bytes=request_max_bytes(settings),
    )


def ledger(cfg: ConnectorConfig) -> Ledger:
    """Return the ledger of a topic.prefix."""
    return Ledger(
        cfg.kafka_settings(),
        cfg.ledger_topic,
        cfg[F.TOPIC_PREFIX],
        cfg[F.TOPIC_CREATION_REPLICATION_FACTOR],
        verified=cfg[F.TOPIC_SETTINGS_VERIFIED],
        transaction_timeout_ms=min(SHORT_TIMEOUT_MS, cfg[F.TRANSACTION_TIMEOUT_MS]),
        topic_settings=record_size_settings(cfg.kafka_settings(), cfg.topic_creation_settings()),
        admin_settings=cfg.kafka_settings("admin"),
    )
