"""Where records go: topics of tables and of side records, and the writers' partitions."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Lookup
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import rule_for
from airflow_provider_mysql_cdc.cdc.emit import topic_names
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import routed_key
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import Destination
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition as murmur2_partition
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import record_size_settings
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec


def table_destination(cfg: ConnectorConfig, table: TableId) -> Destination:
    """Return the topic of a table's events, and the changes that the transforms make to them."""
    return cfg.route_topic(unrouted_topic(cfg, table))


def unrouted_topic(cfg: ConnectorConfig, table: TableId) -> str:
    """Return a table's topic before the transforms; TiCDC's dispatchers choose it, if there are any.

    Raises:
        ConfigError: The table is captured, and no dispatcher matches it.
    """
    if rules := cfg[F.DISPATCHERS] if cfg.is_ticdc else ():
        try:
            return rule_for(rules, table).topic_of(table)
        except ConfigError:
            if cfg.captures(table):
                raise
    return topic_names.topic_name(cfg[F.TOPIC_PREFIX], table)


def table_topic_name(cfg: ConnectorConfig, table: TableId) -> str:
    """Return a table's topic."""
    return table_destination(cfg, table).topic


def schema_change_topic(cfg: ConnectorConfig) -> str:
    """Return the schema change topic."""
    return cfg.route_topic(topic_names.schema_change_topic(cfg[F.TOPIC_PREFIX])).topic


def routed_record(cfg: ConnectorConfig, topic: str, key: bytes | None, value: bytes | None) -> SideRecord:
    """Return a schema change, transaction, heartbeat or notification record after the transforms.

    Args:
        cfg: The connector's configuration.
        topic: Its topic before the transforms.
        key: Its key before the transforms.
        value: Its value; no transform changes it.
    """
    destination = cfg.route_topic(topic)
    return SideRecord(destination.topic, routed_key(destination, key, schema=cfg[F.KEY_SCHEMAS_ENABLE]), value)


def side_topics(cfg: ConnectorConfig) -> tuple[str, ...]:
    """Return the topics of schema changes, transactions, heartbeats and notifications, before transforms, if used."""
    prefix = cfg[F.TOPIC_PREFIX]
    names = [topic_names.schema_change_topic(prefix)]
    if cfg[F.PROVIDE_TRANSACTION_METADATA]:
        names.append(topic_names.transaction_topic(prefix, cfg[F.TOPIC_TRANSACTION]))
    if cfg[F.HEARTBEAT_INTERVAL_MS]:
        names.append(topic_names.heartbeat_topic(prefix, cfg[F.TOPIC_HEARTBEAT_PREFIX]))
    if notifications := F.notification_topic(Lookup(cfg.values)):
        names.append(notifications)
    return tuple(names)


def table_topic_spec(cfg: ConnectorConfig, topic: str) -> TopicSpec:
    """Return how a table's topic is created (topic.creation.*).

    Args:
        cfg: The connector's configuration.
        topic: The topic.
    """
    group, replication = cfg.topic_group(topic), cfg[F.TOPIC_CREATION_REPLICATION_FACTOR]
    if group is None:
        return TopicSpec(cfg[F.TOPIC_CREATION_PARTITIONS], replication, cfg.topic_creation_settings())
    limit = record_size_settings(cfg.kafka_settings(), cfg.topic_creation_settings())
    replicas = replication if group.replication is None else group.replication
    return TopicSpec(cfg.topic_partitions(topic), replicas, {**limit, **group.settings})


def side_topic_spec(cfg: ConnectorConfig) -> TopicSpec:
    """Return how the topic of schema changes, transactions, heartbeats or notifications is created."""
    limit = record_size_settings(cfg.kafka_settings(), cfg.topic_creation_settings())
    return TopicSpec(1, cfg[F.TOPIC_CREATION_REPLICATION_FACTOR], limit)


def history_topic_spec(cfg: ConnectorConfig) -> TopicSpec:
    """Return how the topic of the schema history is created: one partition, without deletion (SCH-05, SCH-06)."""
    side = side_topic_spec(cfg)
    retention = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    return TopicSpec(1, side.replication, {**retention, **side.config})


def topics_of_tables(cfg: ConnectorConfig, tables: Iterable[TableId]) -> dict[TableId, str]:
    """Return the topic of each captured table.

    Args:
        cfg: The connector's configuration.
        tables: The tables.

    Raises:
        ConfigError: Two tables would share a topic, and no transform is configured to do so; or a table would share one
            with the ledger or another topic of the stream (FAULT-32).
    """
    return topic_names.table_topics(
        cfg[F.TOPIC_PREFIX],
        [table for table in tables if cfg.captures(table)],
        reserved=reserved_topics(cfg),
        route_topic=lambda topic: cfg.route_topic(topic).topic,
        name=lambda table: unrouted_topic(cfg, table),
    )


def topic_owners(cfg: ConnectorConfig, tables: Iterable[TableId]) -> topic_names.TopicOwners:
    """Return the tracker of which table uses which topic.

    Args:
        cfg: The connector's configuration.
        tables: The tables at the start.
    """
    return topic_names.TopicOwners(
        lambda table: unrouted_topic(cfg, table),
        lambda topic: cfg.route_topic(topic).topic,
        cfg.captures,
        reserved_topics(cfg),
        tables,
    )


def reserved_topics(cfg: ConnectorConfig) -> tuple[str, ...]:
    """Return the topics that no table may use; names before the transforms."""
    names = [*side_topics(cfg), cfg.history_topic, cfg.ledger_topic]
    if cfg[F.DEAD_LETTER_TOPIC]:
        names.append(cfg[F.DEAD_LETTER_TOPIC])
    return tuple(names)


def assign_partitions(
    partitions: Mapping[str, int], weights: Mapping[str, int], writers: int, first_writer_topics: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
    """Assign topics to writers by the record counts of earlier batches.

    Whole topics go to the writer with the least load; only a topic that is larger than one writer's share is split by
    partition, because its writers then also read each other's rows.

    Args:
        partitions: Topic -> partition count.
        weights: Topic -> records in earlier batches.
        writers: Number of writers.
        first_writer_topics: Topics of which the first writer gets all partitions: it alone writes schema changes,
            transactions and heartbeats, and transforms may route tables into their topics.

    Returns:
        Topic -> one writer index for each partition.
    """
    load = [0.0] * writers
    total = sum(max(weights.get(t, 0), 1) for t in partitions)
    assignment: dict[str, tuple[int, ...]] = {}
    for topic in sorted(partitions, key=lambda t: (-weights.get(t, 0), t)):
        weight, count = float(max(weights.get(topic, 0), 1)), partitions[topic]
        if topic in first_writer_topics:
            load[0] += weight
            assignment[topic] = (0,) * count
            continue
        if writers > 1 and count > 1 and weight > total / writers:
            partition_writers = []
            for _ in range(count):
                writer = min(range(writers), key=lambda w: (load[w], w))
                load[writer] += weight / count
                partition_writers.append(writer)
            assignment[topic] = tuple(partition_writers)
            continue
        writer = min(range(writers), key=lambda w: (load[w], w))
        load[writer] += weight
        assignment[topic] = (writer,) * count
    return assignment


@dataclass(frozen=True, slots=True)
class TopicShare:
    """Hold the partitions of a topic that are assigned to one writer.

    Args:
        topic: Topic name.
        partitions: The topic's partition count in this batch.
        assigned: Partitions that this writer produces; if empty, it skips the topic's tables.
        all_assigned: Whether all partitions are assigned to it, so that keys need not be hashed to find out.
    """

    topic: str
    partitions: int
    assigned: frozenset[int]
    all_assigned: bool


def topic_share(plan: BatchPlan, writer: int, topic: str, default_partitions: int) -> TopicShare:
    """Return one writer's share of a topic.

    Args:
        plan: The batch plan.
        writer: Writer index, from 0.
        topic: Topic name; a topic that is not in the plan (of a table created inside the batch) is assigned as a whole
            to ``crc32(name) % writers``, which every writer computes in the same way.
        default_partitions: Partition count of topics that are not in the plan.
    """
    count = plan.partitions.get(topic, default_partitions)
    assignment = plan.assignment.get(topic)
    if assignment is None:
        assignment = (zlib.crc32(topic.encode()) % plan.writers,) * count
    assigned = frozenset(p for p in range(count) if assignment[p % len(assignment)] == writer)
    return TopicShare(topic, count, assigned, len(assigned) == count)


def partition_of(key: bytes | None, count: int) -> int:
    """Return the partition of a key exactly as Kafka's Java client computes it; without a key it is 0."""
    return 0 if count == 1 else murmur2_partition(key, count)
