"""The ends of topics up to which committed records can be read, and what an open transaction hides behind them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets_of_topics

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
