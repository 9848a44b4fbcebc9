"""Check before a job that the ledger topic and the schema history topic do not lose records."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.schema.history import require_own_history
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import (
    HISTORY_RULE,
    LEDGER_RULE,
    durability_warnings,
    require_settings,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import broker_ids, describe_topics


def require_durable_topics(cfg: ConnectorConfig, log: Log) -> None:
    """Check the settings of both topics, if they exist, and warn about records that a broker failure would lose.

    Args:
        cfg: The connector's configuration.
        log: Receives one line of text.

    Raises:
        SinkError: A topic would lose records with its settings.
        ForeignLedgerError, SchemaError: A topic would lose records, and has those of others (TOPIC-08).
        SinkAuthorizationError: The account may not read the settings, and they are not declared as verified.
    """
    admin = make_admin(cfg.kafka_settings())
    rules = {cfg.ledger_topic: LEDGER_RULE, cfg.history_topic: HISTORY_RULE}
    owner_checks: dict[str, Callable[[], object]] = {
        cfg.ledger_topic: lambda: kafka_clients.ledger(cfg).peek(),
        cfg.history_topic: lambda: require_own_history(cfg, sample=True),
    }
    topics = describe_topics(admin, rules, broker_addresses(cfg.kafka_settings()))
    nodes = len(broker_ids(admin)) if topics else 0
    for topic, info in topics.items():
        try:
            config = require_settings(admin, topic, rules[topic], verified=cfg[F.TOPIC_SETTINGS_VERIFIED])
        except SinkError:
            owner_checks[topic]()  # the remedy would change the settings of others
            raise
        for line in durability_warnings(topic, info, config or {}, nodes):
            log(f"WARNING: {line}")
