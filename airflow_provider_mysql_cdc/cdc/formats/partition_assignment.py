"""Determine which writer produces which record."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition as murmur2_partition


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
