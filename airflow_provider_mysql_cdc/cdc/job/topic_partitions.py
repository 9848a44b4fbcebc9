"""The partition counts that a plan pins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts


def is_elsewhere(cfg: ConnectorConfig) -> bool:
    """Return whether tables may have topics whose names do not begin with the prefix: by transforms or dispatchers."""
    return bool(cfg.families.transforms.routers) or (cfg.ticdc and bool(cfg[F.DISPATCHERS]))


def topic_partitions(cfg: ConnectorConfig, tables: Iterable[TableId] = ()) -> dict[str, int]:
    """Return the partition count of every topic of the prefix, and of those elsewhere to which tables go.

    Args:
        cfg: The connector's configuration.
        tables: The captured tables; only looked at when their topics may be elsewhere.
    """
    prefix = cfg[F.TOPIC_PREFIX] + "."
    counts = all_partition_counts(make_admin(cfg.kafka_settings()))
    others = set(_topics(cfg, tables)) if is_elsewhere(cfg) else set()
    return {topic: count for topic, count in counts.items() if topic.startswith(prefix) or topic in others}


def _topics(cfg: ConnectorConfig, tables: Iterable[TableId]) -> Iterator[str]:
    for table in filter(cfg.captures, tables):
        with suppress(ConfigError):  # no dispatcher fits it, which is told when it is read or written
            yield wiring.topic_of(cfg, table)
