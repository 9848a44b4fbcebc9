"""The ledger's records, read into one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.ledger_validation import check_form
from airflow_provider_mysql_cdc.cdc.commit.plan import (
    CHUNK_PREFIX,
    MAX_WRITERS,
    OUTCOME_KEY,
    PLAN_KEY,
    SIGNAL_PREFIX,
    SNAPSHOT_KEY,
    WRITER_PREFIX,
    WRITERS_KEY,
    BatchPlan,
    Marker,
    decode,
)
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import PART_PREFIX, part_number, written_plan
from airflow_provider_mysql_cdc.cdc.commit.schema_id_records import SCHEMA_KEY_PREFIX, KnownSchema
from airflow_provider_mysql_cdc.cdc.commit.topic_records import TOPIC_KEY_PREFIX, KnownTopic, known_topic
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, damaged, stored_at

Where = Callable[[str], str]
"""Says for a key where its record stands, for errors."""


def ledger_state(
    records: Mapping[str, bytes | None],
    topic_id: str | None = None,
    where: Where = lambda key: f"key {key}",
    *,
    chunks: bool = True,
    whole: bool = True,
) -> LedgerState:
    """Build the state from the last value of each key; None is a deleted key.

    Args:
        records: Key to value.
        topic_id: Kafka's id of the topic.
        where: Says for a key where its record stands, for errors.
        chunks: Whether the chunks of a snapshot are wanted.
        whole: Whether the topics of a plan in parts are wanted. What is not committed may lack a part.

    Raises:
        DamagedRecordError: A record is not ours.
    """
    topics, others = _topics(records, where)
    read = _Reading()
    for key, value in others:
        if chunks or not key.startswith(CHUNK_PREFIX):
            with stored_at(where(key)):
                read.take(key, value)
    listed, signals = _by_prefix(read.values, CHUNK_PREFIX), _by_prefix(read.values, SIGNAL_PREFIX)
    return LedgerState(
        plan=_plan(records.get(PLAN_KEY), read.parts, where, whole=whole),
        markers={m.writer: m for m in read.markers},
        chunks=listed,
        snapshot=read.values.pop(SNAPSHOT_KEY, None),
        outcome=read.values.pop(OUTCOME_KEY, None),
        signals=signals,
        topics=topics,
        schemas=read.schemas,
        others=read.values,
        topic_id=topic_id,
        ids=read.ids,
        parts=max(read.parts, default=-1) + 1,
    )


class _Reading:
    """Gather what the records say, but for topics and the plan."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.parts: dict[int, bytes] = {}
        self.markers: list[Marker] = []
        self.schemas: dict[str, KnownSchema] = {}
        self.ids = 0

    def take(self, key: str, value: bytes) -> None:
        """Take one record.

        Raises:
            DamagedRecordError: It is not of its form.
        """
        if key == PLAN_KEY:
            return
        if key.startswith(PART_PREFIX):
            self.parts[part_number(key)] = value
            return
        data = decode(value)
        if key.startswith(WRITER_PREFIX):
            self.markers.append(Marker.from_json(data))
        elif key.startswith(SCHEMA_KEY_PREFIX):
            self.schemas[key[len(SCHEMA_KEY_PREFIX) :]] = KnownSchema.from_json(data)
        elif key == WRITERS_KEY:
            self.ids = Members(data).whole("count", high=MAX_WRITERS)
        else:
            check_form(key, Members(data))
            self.values[key] = data


def _plan(head: bytes | None, parts: Mapping[int, bytes], where: Where, *, whole: bool) -> BatchPlan | None:
    """Return the plan of its first record and its parts.

    Raises:
        DamagedRecordError: It is not of its form, or parts stand without it.
    """
    if head is None:
        if parts and whole:
            raise damaged("the ledger holds parts of a plan without the plan", f"key {PART_PREFIX}{min(parts)}")
        return None
    if whole:
        return written_plan(head, parts, where)
    with stored_at(where(PLAN_KEY)):
        return BatchPlan.from_json(decode(head))


def _topics(records: Mapping[str, bytes | None], where: Where) -> tuple[dict[str, KnownTopic], list[tuple[str, bytes]]]:
    """Return the topics, of which there may be 10,000 and one record each, and the records that are none.

    Raises:
        DamagedRecordError: One is not of its form.
    """
    topics: dict[str, KnownTopic] = {}
    others: list[tuple[str, bytes]] = []
    size = len(TOPIC_KEY_PREFIX)
    for key, value in records.items():
        if value is None:
            continue
        if not key.startswith(TOPIC_KEY_PREFIX):
            others.append((key, value))
            continue
        try:
            topics[key[size:]] = known_topic(value)
        except DamagedRecordError:
            with stored_at(where(key)):
                raise
    return topics, others


def _by_prefix(values: dict[str, dict[str, Any]], prefix: str) -> dict[str, dict[str, Any]]:
    """Take the records of a prefix out of others; their keys lose it."""
    return {key[len(prefix) :]: values.pop(key) for key in list(values) if key.startswith(prefix)}
