"""Which writer produces which record."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition as murmur2_partition


@dataclass(frozen=True, slots=True)
class TopicShare:
    """Say what one writer owns of a topic.

    Args:
        topic: Topic name.
        partitions: The topic's partition count in this batch.
        assigned: Partitions this writer produces; empty means it skips the topic's tables.
        all_assigned: Whether all partitions are its own, so that no key has to be hashed to find out.
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
        topic: Topic name; a topic the plan does not know (a table created inside the batch) goes whole to
            ``crc32(name) % writers``, which every writer computes alike.
        default_partitions: Partition count of topics the plan does not know.
    """
    count = plan.partitions.get(topic, default_partitions)
    assignment = plan.assignment.get(topic)
    if assignment is None:
        assignment = (zlib.crc32(topic.encode()) % plan.writers,) * count
    assigned = frozenset(p for p in range(count) if assignment[p % len(assignment)] == writer)
    return TopicShare(topic, count, assigned, len(assigned) == count)


def partition_of(key: bytes | None, count: int) -> int:
    """Return the partition of a key exactly as Kafka's Java client computes it; no key goes to partition 0."""
    return 0 if count == 1 else murmur2_partition(key, count)
