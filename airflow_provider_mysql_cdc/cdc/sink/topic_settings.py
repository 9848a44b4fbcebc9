"""Settings of the two topics that nothing may be lost from: the ledger and the schema history.

A topic that somebody else created, or whose settings were changed, can lose records in silence: by retention (a week is
the brokers' default), by compaction, or with a broker. What loses records by its settings is refused; what loses them
only when a broker fails is said in one line each.

Debezium 3.6.1 warns about the first kind (``KafkaSchemaHistory.checkTopicSettings``) and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, topic_config

_UNLIMITED = ("-1", str(2**63 - 1))


@dataclass(frozen=True, slots=True)
class TopicSettingsRule:
    """Say what a topic must be set to.

    Args:
        name: What the topic is, for messages.
        accepted: Accepted values by setting; the first is the one to set.
    """

    name: str
    accepted: Mapping[str, tuple[str, ...]]

    def violations(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that are not as they must be, with their values."""
        return {name: config[name] for name, good in self.accepted.items() if config.get(name, good[0]) not in good}


LEDGER_RULE = TopicSettingsRule("the ledger topic", {"cleanup.policy": ("compact",)})
HISTORY_RULE = TopicSettingsRule(
    "the schema history topic",
    {"cleanup.policy": ("delete",), "retention.ms": _UNLIMITED, "retention.bytes": _UNLIMITED},
)


def require_settings(
    admin: AdminClient, topic: str, rule: TopicSettingsRule, *, verified: bool
) -> Mapping[str, str] | None:
    """Check that a topic loses no records by its settings.

    Args:
        admin: From ``clients.make_admin``.
        topic: The topic; it exists.
        rule: What it must be set to.
        verified: Whether a person has looked, so that an account that may not read settings can go on.

    Returns:
        Its settings, or None when the account may not read them.

    Raises:
        SinkError: It would lose records.
        SinkAuthorizationError: The account may not read its settings, and nobody has said that they are right.
    """
    config = topic_config(admin, topic)
    required = ", ".join(f"{name}={good[0]}" for name, good in rule.accepted.items())
    if config is None:
        if verified:
            return None
        raise SinkAuthorizationError(
            f"the settings of {rule.name} may not be read",
            where=f"topic {topic}",
            why="with other settings it can lose records, and what stands in it is needed",
            remedy=f"grant DescribeConfigs on the topic to the account; or look at it with another one "
            f"({required}), and "
            "set topic.settings.verified=true",
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
    """Yield a line for each thing by which a topic loses records when a broker fails.

    Args:
        topic: The topic.
        info: What it is.
        config: Its settings; those that are missing are not looked at.
        brokers: Brokers of the cluster; one alone can keep nothing twice.
    """
    if info.replicas == 1 and brokers > 1:
        yield f"topic {topic} has one replica on a cluster of {brokers} brokers: it is lost with that broker's disk"
    isr = config.get("min.insync.replicas", "")
    if info.replicas >= 3 and isr.isdecimal() and int(isr) < 2:
        yield (
            f"topic {topic} has min.insync.replicas={isr} with {info.replicas} replicas: what one broker alone "
            "acknowledged is lost with it; set 2"
        )
    if config.get("unclean.leader.election.enable", "").lower() == "true":
        yield (
            f"topic {topic} has unclean.leader.election.enable=true: a replica that lags behind can become the leader, "
            "and what it does not have is lost"
        )
