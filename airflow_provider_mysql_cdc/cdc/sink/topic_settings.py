"""Check the settings of the two topics that must not lose records: the ledger and the schema history.

A topic that was created by others, or whose settings were changed, can lose records silently: by retention (a week is
the brokers' default), by compaction, or when a broker fails. Settings that lose records are refused; settings that lose
records only when a broker fails are logged, one line each.

Debezium 3.6.1 only warns about the first kind (``KafkaSchemaHistory.checkTopicSettings``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.clients import MAX_RECORD_BYTES
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, topic_config

_BATCH_OVERHEAD = 128
"""Bytes of a batch beside its only record, whose size the client overestimates by a few bytes."""
_UNLIMITED = ("-1", str(2**63 - 1))


@dataclass(frozen=True, slots=True)
class TopicSettingsRule:
    """Describe the settings that a topic must have.

    Args:
        name: What the topic is, for error messages.
        accepted: Accepted values by setting; the error message recommends the first one.
    """

    name: str
    accepted: Mapping[str, tuple[str, ...]]

    def violations(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings with values that are not accepted."""
        return {name: config[name] for name, good in self.accepted.items() if config.get(name, good[0]) not in good}


LEDGER_RULE = TopicSettingsRule("the ledger topic", {"cleanup.policy": ("compact",)})
HISTORY_RULE = TopicSettingsRule(
    "the schema history topic",
    {"cleanup.policy": ("delete",), "retention.ms": _UNLIMITED, "retention.bytes": _UNLIMITED},
)


def record_size_settings(kafka_settings: Mapping[str, Any], creation_settings: Mapping[str, str]) -> dict[str, str]:
    """Return ``max.message.bytes`` of a new topic of the package's own; nothing where Kafka's default is enough.

    A statement in the schema history or a schema change can be as large as any record that the client sends.

    Args:
        kafka_settings: Client settings under their librdkafka names.
        creation_settings: The settings of ``topic.creation.default.*``; a smaller limit is for the tables' topics.
    """
    texts = [str(kafka_settings.get("message.max.bytes")), str(creation_settings.get("max.message.bytes"))]
    largest = max((int(text) for text in texts if text.isdecimal()), default=0)
    return {"max.message.bytes": str(largest + _BATCH_OVERHEAD)} if largest > MAX_RECORD_BYTES else {}


def require_settings(
    admin: AdminClient, topic: str, rule: TopicSettingsRule, *, verified: bool
) -> Mapping[str, str] | None:
    """Check that a topic loses no records because of its settings.

    Args:
        admin: From ``clients.make_admin``.
        topic: The topic; it exists.
        rule: The settings that it must have.
        verified: Whether a person has checked the settings (topic.settings.verified), so that an account that may not
            read them can continue.

    Returns:
        Its settings, or None if the account may not read them.

    Raises:
        SinkError: It would lose records.
        SinkAuthorizationError: The account may not read the settings, and topic.settings.verified is false.
    """
    config = topic_config(admin, topic)
    required = ", ".join(f"{name}={good[0]}" for name, good in rule.accepted.items())
    if config is None:
        if verified:
            return None
        raise SinkAuthorizationError(
            f"the settings of {rule.name} may not be read",
            where=f"topic {topic}",
            why="with wrong settings the topic can lose records that are needed",
            remedy=f"grant DescribeConfigs on the topic to the account; or check its settings with another account "
            f"({required}), then set topic.settings.verified=true",
        )
    if violations := rule.violations(config):
        raise SinkError(
            f"{rule.name} would lose records",
            where=f"topic {topic}",
            why="its settings are " + ", ".join(f"{name}={value}" for name, value in violations.items()),
            remedy=f"set {required} for it (kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
            f"--add-config {required.replace(' ', '')})",
        )
    return config


def durability_warnings(topic: str, info: TopicInfo, config: Mapping[str, str], brokers: int) -> Iterator[str]:
    """Yield a line for each reason why a topic could lose records when a broker fails.

    Args:
        topic: The topic.
        info: Its description.
        config: Its settings; missing ones are not checked.
        brokers: Number of brokers of the cluster; a single one cannot hold two replicas.
    """
    if info.replicas == 1 and brokers > 1:
        yield f"topic {topic} has one replica on a cluster of {brokers} brokers: it is lost with that broker's disk"
    isr = config.get("min.insync.replicas", "")
    if info.replicas >= 3 and isr.isdecimal() and int(isr) < 2:
        yield (
            f"topic {topic} has min.insync.replicas={isr} with {info.replicas} replicas: records that only one broker "
            "has acknowledged are lost with it; set 2"
        )
    if config.get("unclean.leader.election.enable", "").lower() == "true":
        yield (
            f"topic {topic} has unclean.leader.election.enable=true: a replica that lags behind can become the leader, "
            "and the records that it lacks are lost"
        )
