"""Ask Kafka about topics: settings that must not lose records, permissions, and the ends of committed records.

Check the settings of the two topics that must not lose records: the ledger and the schema history.

A topic that was created by others, or whose settings were changed, can lose records silently: by retention (a week is
the brokers' default), by compaction, or when a broker fails. Settings that lose records are refused; settings that lose
records only when a broker fails are logged, one line each.

Debezium 3.6.1 only warns about the first kind (``KafkaSchemaHistory.checkTopicSettings``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.client_errors import await_result, client_errors
from airflow_provider_mysql_cdc.cdc.sink.clients import MAX_RECORD_BYTES
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicInfo,
    TopicSpec,
    end_offsets_of_topics,
    new_topics,
    topic_config,
)

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


_TIMEOUT_S = 30.0


def validate_topics(admin: AdminClient, topics: Mapping[str, TopicSpec]) -> list[SinkError]:
    """Return why the brokers would not create topics; nothing is created.

    Args:
        admin: From ``clients.make_admin``.
        topics: Spec by topic name; none of them exists.
    """
    if not topics:
        return []
    errors = []
    answers = admin.create_topics(new_topics(topics), validate_only=True, request_timeout=_TIMEOUT_S)
    for name, future in answers.items():
        try:
            await_result(admin, future, _TIMEOUT_S + 5)
        except KafkaException as error:
            if unwrap_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                action = "while asking whether a topic can be created"
                errors.append(client_errors(admin).to_error(error, action, where=f"topic {name}"))
    return errors


def allow_command(settings: Mapping[str, Any], topic: str, operations: Sequence[str]) -> str:
    """Return the command that gives the account of a client operations on a topic.

    Args:
        settings: The client's settings.
        topic: The topic.
        operations: Names as in ``allowed_operations``.
    """
    names = " ".join(f"--operation {name.title().replace('_', '')}" for name in operations)
    user = settings.get("sasl.username", "NAME")
    return f"kafka-acls.sh --add --allow-principal User:{user} {names} --topic {topic}"


def allowed_operations(admin: AdminClient, topics: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the names of the operations that the account may do on topics; none for topics whose brokers do not say.

    Args:
        admin: From ``clients.make_admin``.
        topics: Names of topics that exist.

    Raises:
        SinkError: Kafka cannot be asked.
    """
    from confluent_kafka import TopicCollection

    if not topics:
        return {}
    allowed: dict[str, frozenset[str]] = {}
    request = TopicCollection(list(topics))
    answers = admin.describe_topics(request, include_authorized_operations=True, request_timeout=_TIMEOUT_S)
    for name, future in answers.items():
        try:
            operations = await_result(admin, future, _TIMEOUT_S + 5).authorized_operations
        except KafkaException as error:
            raise client_errors(admin).to_error(error, "while describing a topic", where=f"topic {name}") from None
        if operations:
            allowed[name] = frozenset(operation.name for operation in operations)
    return allowed


HIDDEN_WAIT_S = 20.0
"""Seconds to wait for the end of open transactions. Most end within the commit interval of their producer."""
_POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class CommittedEnds:
    """Hold the parts of topics that readers of committed records see.

    Args:
        bounds: First offset and the offset after the last record, by topic and partition.
        hidden: Why records of a topic cannot be seen, as the end of a sentence, by topic.
    """

    bounds: Mapping[str, dict[int, tuple[int, int]]]
    hidden: Mapping[str, str] = field(default_factory=dict)


def committed_ends(
    admin: AdminClient, topics: Mapping[str, Sequence[int]], wait_s: float = HIDDEN_WAIT_S
) -> CommittedEnds:
    """Return the ends of topics as they are now, once the transactions that are open now have ended.

    An open transaction hides all records behind its first one, those of other producers too. Of a transaction that was
    committed a moment ago, partitions may still have to learn that it was.

    Args:
        admin: From ``clients.make_admin``.
        topics: Partition numbers by topic.
        wait_s: Most seconds to wait; what is hidden then is named, and the bounds end before it.

    Raises:
        SinkError: Kafka cannot be asked.
    """
    deadline = time.monotonic() + wait_s
    ends = end_offsets_of_topics(admin, topics)
    while True:
        stable = end_offsets_of_topics(admin, topics, stable=True)
        hidden = {topic: text for topic in topics if (text := _hidden_text(ends[topic], stable[topic]))}
        if not hidden or time.monotonic() >= deadline:
            bounds = {
                topic: {p: (first, min(end, ends[topic][p][1])) for p, (first, end) in of_topic.items()}
                for topic, of_topic in stable.items()
            }
            return CommittedEnds(bounds, hidden)
        time.sleep(_POLL_INTERVAL_S)


def _hidden_text(ends: Mapping[int, tuple[int, int]], stable: Mapping[int, tuple[int, int]]) -> str:
    """Return which records of a topic are hidden; empty if none are."""
    for partition, (_, end) in sorted(ends.items()):
        if stable[partition][1] < end:
            return (
                f"an open transaction of another producer hides records of its topic, from offset "
                f"{stable[partition][1]:,} of partition {partition} on; verify again when it has ended"
            )
    return ""
