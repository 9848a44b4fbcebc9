"""Create and describe topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.client_errors import await_result, client_errors
from airflow_provider_mysql_cdc.cdc.sink.clients import Admin, new_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import unwrap_error

log = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_CLUSTER_TIMEOUT_S = 10.0
_DESCRIBE_TIMEOUT_S = 2.0
_LEADER_TIMEOUT_S = 10.0
_BEHIND_S = 3.0
"""Seconds for which a broker may not have heard of a topic that another one has described."""
_NO_LEADER = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # Of a new leader that does not know yet how far the other replicas are (KIP-207).
    KafkaError.OFFSET_NOT_AVAILABLE,
    # "No leaders found": the client's own code.
    KafkaError._NOENT,
)
_DESCRIBE_BATCH = 1_000
_CREATE_BATCH = 500
"""Topics in one request: a broker needs some milliseconds for each, and all must exist within ``_TIMEOUT_S``."""
_POLL_INTERVAL_S, _MAX_POLL_INTERVAL_S = 0.05, 0.5
"""Seconds between checks whether new topics exist, at first and at most: hundreds of topics may take seconds."""
_UNASSIGNED_IDS = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")
"""Topic ids from brokers without topic ids: the zero UUID."""
_METADATA_TIMEOUT_S = 15.0
"""Seconds after which listing topics fails if no connection to the brokers has succeeded: the address may be wrong."""
_METADATA_SLOW_S = 60.0
"""The same if the brokers are slow or restart: a busy one needs some seconds to list 10,000 topics."""
_METADATA_TRY_S = 3.0
"""Timeout of the first request in seconds; each retry waits twice as long."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Describe a topic to create.

    Args:
        partitions: Number of partitions; -1 means the broker's default.
        replication: Replication factor; -1 means the broker's default.
        config: Topic settings such as ``cleanup.policy``.
    """

    partitions: int = -1
    replication: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Describe an existing topic.

    Args:
        partitions: Number of partitions.
        id: Kafka's topic id, which changes when a topic is deleted and created again; None from brokers without ids.
        replicas: Smallest number of replicas of a partition.
    """

    partitions: int
    id: str | None
    replicas: int = 0


def ensure_topics(admin: AdminClient, topics: Mapping[str, TopicSpec]) -> tuple[str, ...]:
    """Create the topics that do not exist, and leave the others unchanged. Concurrent calls are safe.

    Args:
        admin: From ``clients.make_admin``.
        topics: Spec by topic name.

    Returns:
        The names that this call created.

    Raises:
        SinkError: A topic cannot be created; the subclass says why.
    """
    existing = partition_counts(admin, topics)
    missing = [(name, spec) for name, spec in topics.items() if name not in existing]
    created: list[str] = []
    for start in range(0, len(missing), _CREATE_BATCH):
        created += _create(admin, dict(missing[start : start + _CREATE_BATCH]))
    return tuple(created)


def _create(admin: AdminClient, missing: Mapping[str, TopicSpec]) -> list[str]:
    created = []
    for name, future in admin.create_topics(new_topics(missing), operation_timeout=_TIMEOUT_S).items():
        try:
            await_result(admin, future, _TIMEOUT_S + 5)
            created.append(name)
        except KafkaException as error:
            if unwrap_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise client_errors(admin).to_error(error, "while creating a topic", where=f"topic {name}") from None
    _wait_visible(admin, missing)
    return created


def new_topics(topics: Mapping[str, TopicSpec]) -> list[NewTopic]:
    """Return topics as the client creates them.

    Args:
        topics: Spec by topic name.
    """
    return [
        NewTopic(name, spec.partitions, spec.replication, config={k: str(v) for k, v in spec.config.items()})
        for name, spec in topics.items()
    ]


def _wait_visible(admin: AdminClient, names: Collection[str]) -> None:
    deadline, pause = time.monotonic() + _TIMEOUT_S, _POLL_INTERVAL_S
    missing = set(names)
    while missing := missing - partition_counts(admin, missing).keys():
        if time.monotonic() > deadline:
            raise SinkConnectionError(
                "topics were created but do not appear",
                where=", ".join(sorted(missing)[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""),
                why=f"the brokers' metadata does not show them after {_TIMEOUT_S:.0f} s",
            )
        time.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_INTERVAL_S)


def partition_counts(admin: AdminClient, topics: Collection[str]) -> dict[str, int]:
    """Return the number of partitions of each topic that exists.

    Args:
        admin: From ``clients.make_admin``.
        topics: Topic names.

    Raises:
        SinkConnectionError: Kafka cannot be reached.
        SinkAuthorizationError: A topic may not be described.
    """
    return {name: info.partitions for name, info in existing_topics(admin, topics).items()}


def existing_topics(admin: AdminClient, topics: Collection[str]) -> dict[str, TopicInfo]:
    """Return the descriptions of the topics that exist, or only their partition counts if describing fails.

    Args:
        admin: From ``clients.make_admin``.
        topics: Topic names.

    Raises:
        SinkConnectionError: Kafka cannot be reached.
        SinkAuthorizationError: A topic may not be described.
    """
    described = _describe_or_none(admin, topics)
    if described is not None:
        return described
    counts = all_partition_counts(admin)
    return {name: TopicInfo(counts[name], None) for name in topics if name in counts}


def _describe_or_none(admin: AdminClient, topics: Collection[str]) -> dict[str, TopicInfo] | None:
    """Return the topics that exist, or None if the brokers do not know this request or do not answer soon.

    Describing does not create a topic, and on a cluster of many topics it is much cheaper than listing them all.
    """
    from confluent_kafka import TopicCollection

    if not topics:
        return {}
    started = time.monotonic()
    futures = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_DESCRIBE_TIMEOUT_S)
    infos: dict[str, TopicInfo] = {}
    for name, future in futures.items():
        try:
            infos[name] = _topic_info(await_result(admin, future, _DESCRIBE_TIMEOUT_S + 1))
        except KafkaException as error:
            if unwrap_error(error).code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                errors = client_errors(admin)
                # A list leaves out topics that the account may not describe, as if they did not exist.
                denied = unwrap_error(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
                if denied or errors.is_refused(time.monotonic() - started):
                    raise errors.to_error(error, "while describing a topic", where=f"topic {name}") from None
                return None  # listing all topics reports the cause
        except TimeoutError:
            return None
    return {name: info for name, info in infos.items() if info.partitions}


def _topic_info(description: Any) -> TopicInfo:
    """Convert a description of the client."""
    id_text = str(description.topic_id)
    replicas = min((len(p.replicas) for p in description.partitions), default=0)
    return TopicInfo(len(description.partitions), None if id_text in _UNASSIGNED_IDS else id_text, replicas)


def all_partition_counts(admin: AdminClient) -> dict[str, int]:
    """Return the number of partitions of every topic that the account may see.

    Args:
        admin: From ``clients.make_admin``.

    Raises:
        SinkConnectionError: Kafka cannot be reached.
    """
    topics = cluster_metadata(admin, _METADATA_TIMEOUT_S, _METADATA_SLOW_S).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}


def cluster_metadata(admin: AdminClient, timeout_s: float, slow_s: float | None = None) -> Any:
    """Return the client's metadata of all brokers and of all topics that the account may see.

    Args:
        admin: From ``clients.make_admin``.
        timeout_s: Seconds after which this fails if no connection to the brokers has succeeded.
        slow_s: The same if the brokers are slow, or have answered before and restart; None for as long.

    Raises:
        SinkConnectionError: Kafka cannot be reached.
        SinkError: Kafka and the settings do not fit.
    """
    started, try_s = time.monotonic(), _METADATA_TRY_S
    while True:
        try:
            # All topics: a request for a topic that does not exist would create it if auto.create.topics.enable is on.
            metadata = admin.list_topics(timeout=try_s)
        except KafkaException as error:
            errors, waited_s = client_errors(admin), time.monotonic() - started
            limit = slow_s or timeout_s if errors.last is None or errors.has_answered else timeout_s
            if waited_s >= limit or errors.is_refused(waited_s):
                raise errors.to_error(error, "while listing topics", where=getattr(admin, "where", "")) from None
            try_s = min(2 * try_s, max(_METADATA_TRY_S, started + limit - time.monotonic()))
        else:
            client_errors(admin).note_answer()
            return metadata


def describe_topics(admin: AdminClient, topics: Collection[str], addresses: str) -> dict[str, TopicInfo]:
    """Return the descriptions of the topics that exist.

    Args:
        admin: From ``clients.make_admin``.
        topics: Topic names.
        addresses: Addresses of the brokers, for messages.

    Raises:
        SinkAuthorizationError: A topic may not be described.
        SinkConnectionError: Kafka cannot be reached.
    """
    from confluent_kafka import TopicCollection

    out: dict[str, TopicInfo] = {}
    names, errors, deadline = sorted(topics), client_errors(admin), time.monotonic() + _TIMEOUT_S
    while names:
        batch = TopicCollection(names[:_DESCRIBE_BATCH])
        for name, future in admin.describe_topics(batch, request_timeout=_TIMEOUT_S).items():
            try:
                out[name] = _topic_info(await_result(admin, future, _TIMEOUT_S + 5))
            except KafkaException as error:
                code = unwrap_error(error).code()
                if code == KafkaError._TRANSPORT and errors.has_answered and time.monotonic() < deadline:
                    break  # the broker restarts: this request ends with its connection, the next one waits for another
                if code not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                    raise errors.to_error(
                        error, "while describing a topic", where=f"topic {name} at {addresses}"
                    ) from None
        else:
            errors.note_answer()
            names = names[_DESCRIBE_BATCH:]
            continue
        time.sleep(_MAX_POLL_INTERVAL_S)
    return out


def describe_created(admin: AdminClient, topics: Collection[str], addresses: str) -> dict[str, TopicInfo]:
    """Return the descriptions of topics that were just created, which a broker may learn later than another.

    Args:
        admin: From ``clients.make_admin``.
        topics: Topic names.
        addresses: Addresses of the brokers, for messages.

    Raises:
        SinkError: A topic no longer exists.
        SinkAuthorizationError: A topic may not be described.
        SinkConnectionError: Kafka cannot be reached.
    """
    deadline = time.monotonic() + _LEADER_TIMEOUT_S
    while True:
        infos = describe_topics(admin, topics, addresses)
        missing = sorted(set(topics) - infos.keys())
        if not missing:
            return infos
        if time.monotonic() >= deadline:
            raise SinkError(
                "a topic that was just created no longer exists",
                where=f"topic {', '.join(missing[:5])} at {addresses}",
                why=f"it existed, and for {_LEADER_TIMEOUT_S:.0f} s the brokers have not known it: it was deleted",
                remedy="find out who deletes the topic, then run the task again, which creates it again",
                retriable=True,
            )
        time.sleep(0.1)


def broker_ids(admin: Admin) -> tuple[int, ...]:
    """Return the ids of the cluster's brokers; none if they cannot be determined. A client asks for them once.

    Args:
        admin: From ``clients.make_admin``.
    """
    if not admin.broker_ids:
        try:
            cluster = admin.describe_cluster(request_timeout=_CLUSTER_TIMEOUT_S)
            nodes = await_result(admin, cluster, _CLUSTER_TIMEOUT_S + 5).nodes
        except KafkaException as error:
            log.info("the brokers of the cluster cannot be determined: %s", unwrap_error(error).str())
            return ()
        admin.broker_ids = tuple(node.id for node in nodes)
    return admin.broker_ids


def accepts_clients(settings: Mapping[str, Any], timeout_s: float) -> bool:
    """Return whether Kafka answers a new client with these settings.

    Args:
        settings: Client settings.
        timeout_s: Seconds to wait.
    """
    admin = new_admin(settings)
    try:
        await_result(admin, admin.describe_cluster(request_timeout=timeout_s), timeout_s)
    except (KafkaException, TimeoutError):
        return False
    return True


def topic_id(admin: AdminClient, topic: str) -> str | None:
    """Return Kafka's id of a topic, or None if it does not exist or the brokers have no topic ids.

    A topic deleted and created again has another id.

    Args:
        admin: From ``clients.make_admin``.
        topic: Topic name.
    """
    from confluent_kafka import TopicCollection

    future: Future[Any] = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[topic]
    try:
        return str(await_result(admin, future, _TIMEOUT_S + 5).topic_id)
    except KafkaException as error:
        if unwrap_error(error).code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise client_errors(admin).to_error(error, "while describing a topic", where=f"topic {topic}") from None


def topic_config(admin: AdminClient, topic: str) -> dict[str, str] | None:
    """Return the settings of a topic, or None when the account may not read them.

    Args:
        admin: From ``clients.make_admin``.
        topic: Topic name; the topic existed a moment ago.

    Raises:
        SinkError: The topic no longer exists, or Kafka refuses for another reason.
        SinkConnectionError: Kafka cannot be reached.
    """
    resource, started = ConfigResource(ResourceType.TOPIC, topic), time.monotonic()
    try:
        while True:
            answer = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource]
            try:
                entries = await_result(admin, answer, _TIMEOUT_S + 5)
                break
            except KafkaException as error:
                unknown = unwrap_error(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not unknown or time.monotonic() - started > _BEHIND_S:
                    raise
                time.sleep(_POLL_INTERVAL_S)
    except KafkaException as error:
        if unwrap_error(error).code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            log.info("this account may not read the settings of topic %s, so they were not checked", topic)
            return None
        if unwrap_error(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SinkError(
                "a topic was deleted while its settings were read",
                where=f"topic {topic}",
                why="the brokers listed it a moment ago, and no longer know it",
                remedy="find out who deletes it; the next attempt reports what is lost with it, and how to continue",
                retriable=True,
            ) from None
        raise client_errors(admin).to_error(error, "while reading topic settings", where=f"topic {topic}") from None
    return {name: str(entry.value) for name, entry in entries.items()}


def end_offsets(
    admin: AdminClient, topic: str, partitions: Sequence[int], *, stable: bool = False
) -> dict[int, tuple[int, int]]:
    """Return (first offset, high watermark) of partitions; the records of open transactions are included.

    Args:
        admin: From ``clients.make_admin``.
        topic: Topic name.
        partitions: Partition numbers.
        stable: Return the last stable offset instead, which is where the oldest open transaction begins.
    """
    return end_offsets_of_topics(admin, {topic: partitions}, stable=stable)[topic]


def end_offsets_of_topics(
    admin: AdminClient, topics: Mapping[str, Sequence[int]], *, stable: bool = False
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return (first offset, high watermark) of the partitions of topics, asked for together; see ``end_offsets``.

    Args:
        admin: From ``clients.make_admin``.
        topics: Partition numbers by topic.
        stable: Return the last stable offset instead of the high watermark.
    """
    first = _offsets(admin, topics, OffsetSpec.earliest())
    end = _offsets(admin, topics, OffsetSpec.latest(), stable=stable)
    return {topic: {p: (first[topic][p], end[topic][p]) for p in numbers} for topic, numbers in topics.items()}


def last_offsets(admin: AdminClient, topic: str, partitions: Sequence[int], *, stable: bool = False) -> dict[int, int]:
    """Return the high watermarks of partitions.

    Args:
        admin: From ``clients.make_admin``.
        topic: Topic name.
        partitions: Partition numbers.
        stable: Return the last stable offsets instead.
    """
    return _offsets(admin, {topic: partitions}, OffsetSpec.latest(), stable=stable)[topic]


def last_offsets_of_topics(admin: AdminClient, topics: Mapping[str, Sequence[int]]) -> dict[str, dict[int, int]]:
    """Return the high watermarks of the partitions of topics, asked for together.

    Args:
        admin: From ``clients.make_admin``.
        topics: Partition numbers by topic.
    """
    return _offsets(admin, topics, OffsetSpec.latest())


def first_offsets(admin: AdminClient, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Return the first offsets of partitions.

    Args:
        admin: From ``clients.make_admin``.
        topic: Topic name.
        partitions: Partition numbers.
    """
    return _offsets(admin, {topic: partitions}, OffsetSpec.earliest())[topic]


def _offsets(
    admin: AdminClient, topics: Mapping[str, Sequence[int]], spec: OffsetSpec, *, stable: bool = False
) -> dict[str, dict[int, int]]:
    """Return the offsets of all partitions, which one request per broker asks for."""
    from confluent_kafka import IsolationLevel

    isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
    started, pause_s = time.monotonic(), _POLL_INTERVAL_S
    requests = {TopicPartition(topic, p): spec for topic, partitions in topics.items() for p in partitions}
    while True:
        futures = (
            admin.list_offsets(requests, isolation_level=isolation, request_timeout=_TIMEOUT_S) if requests else {}
        )
        found: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        topic = ""
        try:
            for partition, future in futures.items():
                topic = partition.topic
                found[topic][partition.partition] = await_result(admin, future, _TIMEOUT_S + 5).offset
            return found
        except KafkaException as error:
            # A topic that was just created is described before its partitions have leaders.
            code = unwrap_error(error).code()
            has_no_leader, waited_s = code in _NO_LEADER, time.monotonic() - started
            is_behind = code == KafkaError.UNKNOWN_TOPIC_OR_PART and waited_s < _BEHIND_S
            if is_behind or (has_no_leader and waited_s < _LEADER_TIMEOUT_S):
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_POLL_INTERVAL_S)
                # Once another topic was deleted, librdkafka 2.16 does not look for the leaders of a new one by itself.
                all_partition_counts(admin)
                continue
            if has_no_leader:  # the client's answer also for a topic that may not be described
                describe_topics(admin, [topic], getattr(admin, "where", ""))
            raise client_errors(admin).to_error(error, "while asking for offsets", where=f"topic {topic}") from None
    return {topic: {} for topic in topics}


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    """Delete the records of a topic's partition 0 before an offset.

    Args:
        admin: From ``clients.make_admin``.
        topic: Topic name.
        offset: The first offset that is kept.

    Raises:
        SinkError: Kafka refuses or does not answer.
    """
    futures = admin.delete_records([TopicPartition(topic, 0, offset)], request_timeout=_TIMEOUT_S)
    for future in futures.values():
        try:
            await_result(admin, future, _TIMEOUT_S + 5)
        except KafkaException as error:
            errors = client_errors(admin)
            raise errors.to_error(error, "while deleting records of a topic", where=f"topic {topic}") from None
