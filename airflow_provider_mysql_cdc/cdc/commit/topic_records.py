"""Topics as the last batch left them: one ledger record each, compared before the next batch writes into them.

A topic that was deleted is made anew, empty, by whoever writes first; with partitions added, a key's later events stand
in another partition than its earlier ones. Kafka says neither to a producer, so it is found out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import MAX_PARTITIONS, BatchPlan, decode, encode
from airflow_provider_mysql_cdc.cdc.errors import TopicChangedError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, members
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

TOPIC_KEY_PREFIX = "topic/"
_LISTED = 10
_READ = 32_768
"""Records whose meaning is remembered: a job reads the ledger several times, one of each topic each time."""


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """Remember a topic.

    Args:
        partitions: Its number of partitions.
        id: Kafka's id of it; None when the brokers give none (before Kafka 3.1).
        epoch: Epoch of the batch that learned it.
    """

    partitions: int
    id: str | None
    epoch: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"partitions": self.partitions, "id": self.id, "epoch": self.epoch}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> KnownTopic:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        return cls(
            given.whole("partitions", low=1, high=MAX_PARTITIONS), given.text_or_none("id"), given.whole("epoch")
        )

    def difference(self, found: TopicInfo | None) -> str:
        """Return what is different about the topic now; empty when nothing is."""
        if found is None:
            return "it was deleted"
        if self.id is not None and found.id is not None and self.id != found.id:
            return "it was deleted and made anew"
        if self.partitions != found.partitions:
            return f"it has {found.partitions} partitions in place of {self.partitions}"
        return ""


@lru_cache(maxsize=_READ)
def known_topic(value: bytes) -> KnownTopic:
    """Read the ledger record of a topic.

    Args:
        value: The record's value.

    Raises:
        DamagedRecordError: It is something else.
    """
    return KnownTopic.from_json(decode(value))


def topic_record(ledger: str, topic: str, known: KnownTopic | None) -> tuple[str, bytes, bytes | None]:
    """Return the ledger record of a topic, or the one that forgets it.

    Args:
        ledger: The ledger topic.
        topic: The topic.
        known: What to remember; None forgets it.
    """
    key = f"{TOPIC_KEY_PREFIX}{topic}".encode()
    return ledger, key, None if known is None else encode(known.to_json())


def differences(
    known: Mapping[str, KnownTopic],
    found: Mapping[str, TopicInfo],
    needed: Iterable[str],
    plan: BatchPlan,
) -> dict[str, str]:
    """Return what is different about topics into which a batch may write.

    Args:
        known: What the ledger remembers.
        found: What Kafka says of the topics that exist.
        needed: Topics of the tables captured at the batch's start, and those beside them.
        plan: The batch; its partition counts decide which writer owns what.

    Returns:
        Topic to what is different, in order.
    """
    out: dict[str, str] = {}
    # A table born inside the batch is not among the tables at its start; its topic is as its first record says.
    begun = {topic for topic, k in known.items() if k.epoch == plan.epoch}
    for topic in sorted({*needed, *begun}):
        if topic in known and (text := known[topic].difference(found.get(topic))):
            out[topic] = text
        elif topic in found and plan.partitions.get(topic, found[topic].partitions) != found[topic].partitions:
            planned = KnownTopic(plan.partitions[topic], None, plan.epoch)
            out[topic] = f"{planned.difference(found[topic])} since the batch was planned"
    return out


def changed_error(changed: Mapping[str, str], plan: BatchPlan, *, begun: bool) -> TopicChangedError:
    """Return the error for topics that are not as they were.

    Args:
        changed: From ``differences``.
        plan: The batch or snapshot.
        begun: Whether a part of it is committed.
    """
    shown = [f"{topic}: {text}" for topic, text in list(changed.items())[:_LISTED]]
    more = [f"and {len(changed) - _LISTED} more"] if len(changed) > _LISTED else []
    remedy = (
        "find out who did it, and keep others from it. To go on with the topics as they are now: DAG "
        "mysql_cdc_reset_offset with offset=stored"
    )
    if plan.kind == "snapshot":
        remedy = remedy.replace("stored", "current") + ", then mysql_cdc_snapshot with again=true"
    else:
        remedy += " (what this unfinished batch has already committed comes again)" if begun else ""
        remedy += "; to fill the topics again, trigger mysql_cdc_snapshot with again=true after it"
    return TopicChangedError(
        "topics were changed from outside" if len(changed) > 1 else "a topic was changed from outside",
        where="; ".join([*shown, *more]),
        why="what a deleted topic held is gone; and where partitions were added, a key's later events would stand in "
        "another partition than its earlier ones",
        remedy=remedy,
    )
