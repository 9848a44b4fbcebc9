"""Check the Kafka signal topic before a run: it exists, it may be read, and its signals have one order."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topic_permissions import allow_command, allowed_operations
from airflow_provider_mysql_cdc.cdc.sink.topics import describe_topics

_NEEDED = ("DESCRIBE", "READ")
_UNREAD = "no Kafka signals are read until then; the stream goes on"


def signal_topic_findings(cfg: ConnectorConfig) -> list[Finding]:
    """Return why signals of the Kafka topic are not read or have no order, as warnings, since the stream goes on.

    Args:
        cfg: The connector's configuration.
    """
    if not cfg.accepts_signals_from("kafka"):
        return []
    try:
        return list(_problems(cfg))
    except SinkError as error:
        what = f"the signal topic {cfg[F.SIGNAL_KAFKA_TOPIC]} cannot be checked: {error.what}"
        return [Finding(WARNING, what, error.why or _UNREAD, error.remedy or error.advice)]


def _problems(cfg: ConnectorConfig) -> Iterator[Finding]:
    topic, settings = cfg[F.SIGNAL_KAFKA_TOPIC], cfg.signal_kafka_settings()
    admin, brokers = make_admin(settings), broker_addresses(settings)
    info = describe_topics(admin, [topic], brokers).get(topic)
    if info is None:
        yield Finding(
            WARNING,
            f"the signal topic {topic} does not exist at {brokers}",
            _UNREAD,
            "create it with one partition, or correct signal.kafka.topic and signal.kafka.bootstrap.servers; or take "
            "kafka out of signal.enabled.channels",
        )
        return
    allowed = allowed_operations(admin, [topic]).get(topic)
    lacking = [name for name in _NEEDED if allowed is not None and name not in allowed]
    if lacking:
        yield Finding(
            WARNING,
            f"the account may not read the signal topic {topic}",
            _UNREAD,
            allow_command(settings, topic, lacking),
        )
    if info.partitions > 1:
        yield Finding(
            WARNING,
            f"the signal topic {topic} has {info.partitions} partitions",
            "signals in different partitions have no order among them, and Debezium reads the first one only",
            "use a topic with one partition",
        )
