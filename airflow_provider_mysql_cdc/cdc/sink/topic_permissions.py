"""Ask Kafka, without changing anything, whether topics could be created and what the account may do with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.sink.client_errors import await_result, client_errors
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, new_topics

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
