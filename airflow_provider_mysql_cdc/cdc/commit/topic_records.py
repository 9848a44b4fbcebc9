"""What the ledger remembers of topics and of Avro key schemas, compared before the next batch writes.

Topics as the last batch left them: one ledger record each, compared before the next batch writes to them.

A topic that was deleted is created again, empty, by the first producer; after partitions were added, a key's later
events go to another partition than its earlier ones. Kafka reports neither to a producer, so it is checked here.

The ids of Avro key schemas with which earlier records were written: one ledger record for each schema.

The bytes of an Avro key begin with the id of its schema in the registry, and the partition is computed from the bytes.
With another id for the same schema (a registry that was wiped or restored, or another registry) equal keys would be in
two partitions, without an order between them; inside a batch, also in partitions of writers that have already passed
these rows, or that read them again. So an id is recorded before its first use and compared afterwards (docs/adr/0017).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SCHEMA_KEY_PREFIX, TOPIC_KEY_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, PartitionCount, decode, encode
from airflow_provider_mysql_cdc.cdc.errors import SchemaIdChangedError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

_MAX_LISTED = 10
_CACHE_SIZE = 32_768
"""Decoded records that are cached: a job reads the ledger several times, with one record for each topic."""


@dataclass(frozen=True, slots=True)
class RecordedTopic(Record):
    """Hold what is recorded of a topic.

    Args:
        partitions: Its number of partitions.
        id: Kafka's topic id; None for brokers without topic ids (before Kafka 3.1).
        epoch: Epoch of the batch that recorded it.
    """

    partitions: PartitionCount
    id: str | None
    epoch: Count

    def difference(self, current: TopicInfo | None) -> str:
        """Return how the topic differs now; empty when it is the same."""
        if current is None:
            return "it was deleted"
        if self.id is not None and current.id is not None and self.id != current.id:
            return "it was deleted and created again"
        if self.partitions != current.partitions:
            return f"it has {current.partitions} partitions instead of {self.partitions}"
        return ""


@lru_cache(maxsize=_CACHE_SIZE)
def read_topic_record(value: bytes) -> RecordedTopic:
    """Read the ledger record of a topic.

    Args:
        value: The record's value.

    Raises:
        DamagedRecordError: It is something else.
    """
    return RecordedTopic.from_json(decode(value))


def topic_record(ledger: str, topic: str, recorded: RecordedTopic | None) -> SideRecord:
    """Return the ledger record of a topic, or the one that deletes it.

    Args:
        ledger: The ledger topic.
        topic: The topic.
        recorded: What to record; None deletes the record.
    """
    key = f"{TOPIC_KEY_PREFIX}{topic}".encode()
    return SideRecord(ledger, key, None if recorded is None else encode(recorded.to_json()))


def topic_differences(
    recorded: Mapping[str, RecordedTopic],
    current: Mapping[str, TopicInfo],
    required: Iterable[str],
    plan: BatchPlan,
) -> dict[str, str]:
    """Return how the topics differ to which a batch may write.

    Args:
        recorded: The topics in the ledger.
        current: The topics that exist in Kafka.
        required: Topics of the tables captured at the batch's start, and the stream's other topics.
        plan: The batch; its partition counts decide the assignment of writers.

    Returns:
        The difference by topic, in order.
    """
    changed: dict[str, str] = {}
    # A table created inside the batch is not among those at its start; its topic is compared with its first record.
    batch_topics = {topic for topic, k in recorded.items() if k.epoch == plan.epoch}
    for topic in sorted({*required, *batch_topics}):
        if topic in recorded and (text := recorded[topic].difference(current.get(topic))):
            changed[topic] = text
        elif topic in current and plan.partitions.get(topic, current[topic].partitions) != current[topic].partitions:
            planned = RecordedTopic(plan.partitions[topic], None, plan.epoch)
            changed[topic] = f"{planned.difference(current[topic])} since the batch was planned"
    return changed


def topics_changed_error(changed: Mapping[str, str], plan: BatchPlan, *, has_commits: bool) -> TopicChangedError:
    """Return the error for topics that were changed.

    Args:
        changed: The differences, from ``topic_differences``.
        plan: The batch or snapshot.
        has_commits: Whether a part of it is committed.
    """
    listed = [f"{topic}: {text}" for topic, text in list(changed.items())[:_MAX_LISTED]]
    more = [f"and {len(changed) - _MAX_LISTED} more"] if len(changed) > _MAX_LISTED else []
    remedy = (
        "find out who changed them, and prevent it in the future. To continue with the topics as they are now, run DAG "
        "mysql_cdc_reset_offset with offset=stored"
    )
    if plan.kind == "snapshot":
        remedy = remedy.replace("stored", "current") + ", then mysql_cdc_snapshot with again=true"
    else:
        remedy += (
            " (records that this unfinished batch has already committed are written a second time)"
            if has_commits
            else ""
        )
        remedy += "; to fill the topics again, trigger mysql_cdc_snapshot with again=true after it"
    return TopicChangedError(
        "topics were changed outside of this stream"
        if len(changed) > 1
        else "a topic was changed outside of this stream",
        where="; ".join([*listed, *more]),
        why="the records of a deleted topic are lost; and where partitions were added, a key's later events would go "
        "to another partition than its earlier ones",
        remedy=remedy,
    )


@dataclass(frozen=True, slots=True)
class RecordedSchemaId(Record):
    """Hold the recorded id of a key schema.

    Args:
        id: Its id in the registry.
        epoch: Epoch of the batch that asked for it.
    """

    id: Count
    epoch: Count


def schema_key_name(subject: str, text: str) -> str:
    """Return the name of a schema in the ledger, after ``schema/``.

    Args:
        subject: Its subject.
        text: Its text.
    """
    return f"{subject}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def schema_id_record(ledger: str, name: str, recorded: RecordedSchemaId | None) -> SideRecord:
    """Return the ledger record of a schema, or the one that deletes it.

    Args:
        ledger: The ledger topic.
        name: From ``schema_key_name``.
        recorded: Its id; None deletes the record.
    """
    key = f"{SCHEMA_KEY_PREFIX}{name}".encode()
    return SideRecord(ledger, key, None if recorded is None else encode(recorded.to_json()))


def schema_id_changed_error(
    about: str, subject: str, url: str, recorded: RecordedSchemaId, new_id: int
) -> SchemaIdChangedError:
    """Return the error for a key schema whose id differs from the recorded one.

    Args:
        about: Whose keys they are.
        subject: The schema's subject.
        url: The registry, without credentials.
        recorded: The recorded id.
        new_id: The id that the registry returns.
    """
    return SchemaIdChangedError(
        "the schema registry returns another id for a key schema than before",
        where=f"{about}, subject {subject}, registry {url}",
        why=f"earlier keys were written with id {recorded.id}, now it is {new_id}: the registry was wiped or restored, "
        "or it is another one, or (with use.latest.version) the subject has a newer version; equal keys would be in "
        "two partitions, without an order between them",
        remedy="restore the registry's schemas with their ids, or configure the registry with which the keys were "
        "written. To continue with the new id, run DAG mysql_cdc_reset_offset with offset=stored (records that an "
        "unfinished batch has already committed are written a second time); to fill the topics again, trigger "
        "mysql_cdc_snapshot with again=true after it",
    )
