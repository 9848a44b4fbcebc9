"""Look at the ledger and the schema history before a job: do they keep what is written into them?"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import (
    HISTORY_RULE,
    LEDGER_RULE,
    durability_warnings,
    require_settings,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import broker_count, describe_topics


def require_durable_topics(cfg: ConnectorConfig, log: Log) -> None:
    """Check both topics, as far as they exist, and say what a failing broker would take away.

    Args:
        cfg: The connector's configuration.
        log: Takes one line of text.

    Raises:
        SinkError: A topic would lose records by its settings.
        SinkAuthorizationError: The account may not read them, and nobody has said that they are right.
    """
    admin = make_admin(cfg.kafka_settings())
    rules = {cfg.ledger_topic: LEDGER_RULE, cfg.history_topic: HISTORY_RULE}
    topics = describe_topics(admin, rules, broker_addresses(cfg.kafka_settings()))
    nodes = broker_count(admin) if topics else 0
    for topic, info in topics.items():
        config = require_settings(admin, topic, rules[topic], verified=cfg[F.TOPIC_SETTINGS_VERIFIED])
        for line in durability_warnings(topic, info, config or {}, nodes):
            log(f"WARNING: {line}")
