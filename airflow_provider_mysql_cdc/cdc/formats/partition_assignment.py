"""Assign Kafka partitions to the writers of a batch, and return a writer's share of a topic."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition as murmur2_partition


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
