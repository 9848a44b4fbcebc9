"""The partition counts that a plan pins."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job import wiring
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts


def topic_partitions(cfg: ConnectorConfig, tables: Iterable[TableId] = ()) -> dict[str, int]:
    """Return the partition count of every topic of the prefix, and of those to which transforms route tables.

    Args:
        cfg: The connector's configuration.
        tables: The captured tables; only looked at when there are transforms.
    """
    prefix = cfg[F.TOPIC_PREFIX] + "."
    counts = all_partition_counts(make_admin(cfg.kafka_settings()))
    routed = {wiring.topic_of(cfg, t) for t in tables if cfg.captures(t)} if cfg.families.transforms.routers else set()
    return {topic: count for topic, count in counts.items() if topic.startswith(prefix) or topic in routed}
