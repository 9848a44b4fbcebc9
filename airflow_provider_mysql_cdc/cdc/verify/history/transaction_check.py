"""Decide of which tables the events are compared with the transaction topic, and why of others not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.emit.topic_names import transaction_topic
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import topic_config
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.suspects import Bounds

_SUBJECT = "whether transactions are whole is not known"


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """Say what is compared with the transaction topic.

    Args:
        topic: The transaction topic; empty where nothing is compared.
        tables: Numbers of the tables.
        reasons: Why it is not done for other tables, one sentence each, by number.
    """

    topic: str = ""
    tables: frozenset[int] = frozenset()
    reasons: Mapping[int, str] = field(default_factory=dict)


def transaction_check(
    cfg: ConnectorConfig,
    request: VerifyRequest,
    tables: Collection[ComparedTable],
    rules: Mapping[int, HistoryRules],
    bounds_of: Callable[[str], Bounds],
) -> TransactionCheck:
    """Return what is compared; nothing where histories are not checked, or events carry no transactions.

    Args:
        cfg: The connector's configuration.
        request: What was asked for.
        tables: The tables of the verification.
        rules: What holds for the histories of their keys.
        bounds_of: Returns first offset and end of a topic's partitions; none of a topic that the stream does not know.

    Raises:
        SinkError: The settings of the transaction topic cannot be read.
    """
    if not request.history or not rules or not cfg[F.PROVIDE_TRANSACTION_METADATA]:
        return TransactionCheck()
    topic = cfg.route_topic(transaction_topic(cfg[F.TOPIC_PREFIX], cfg[F.TOPIC_TRANSACTION])).topic
    if not bounds_of(topic):  # the stream has written no transaction yet
        return TransactionCheck()
    if reason := _reason(cfg, request, topic, tables, bounds_of):
        return TransactionCheck(reasons={compared.number: f"{_SUBJECT}: {reason}" for compared in tables})
    reasons = {
        compared.number: f"{_SUBJECT}: {why}"
        for compared in tables
        if (why := _table_reason(rules[compared.number], bounds_of(compared.topic)))
    }
    return TransactionCheck(topic, frozenset(c.number for c in tables if c.number not in reasons), reasons)


def _reason(
    cfg: ConnectorConfig,
    request: VerifyRequest,
    topic: str,
    tables: Collection[ComparedTable],
    bounds_of: Callable[[str], Bounds],
) -> str:
    """Return why no transactions are compared; empty if they are."""
    if request.sample_percent < 100:
        return "not all keys were compared"
    if DeadLetterReporter.enabled(cfg):
        return "END records count events that were left out (event.processing.failure.handling.mode)"
    if any(compared.topic == topic for compared in tables):
        return "events of tables are in the transaction topic"
    config = topic_config(make_admin(cfg.kafka_settings()), topic)
    if config is None or "compact" in config.get("cleanup.policy", ""):
        return f"{topic} is compacted, or its settings may not be read"
    return _lost(bounds_of(topic))


def _table_reason(rules: HistoryRules, bounds: Bounds) -> str:
    return _lost(bounds) if rules.complete else "its topic is compacted, or its settings may not be read"


def _lost(bounds: Bounds) -> str:
    """Return that a partition has lost all of its records, so that no record is left that says since when."""
    lost = [str(partition) for partition, (first, end) in bounds.items() if first == end > 0]
    return f"all records of partition {', '.join(lost)} are gone" if lost else ""
