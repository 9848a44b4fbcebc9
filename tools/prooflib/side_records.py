"""Records of no table, heartbeats, notifications and transactions, and what differs in them in any two runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from prooflib.records import Record

Pair = tuple[Record | None, Record | None]
_NOTIFICATION = ("id", "type", "aggregate_type", "additional_data", "timestamp")
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_KAFKA_SIGNAL = re.compile(r"kafka-\d+-\d+-\w+")
"""What ours gives a Kafka signal without an id, whose notifications have a random id each in Debezium."""


def is_transaction(record: Record) -> bool:
    """Return whether the record marks the begin or the end of a transaction."""
    payload = record.payload
    return isinstance(payload, dict) and "status" in payload and "event_count" in payload


def is_heartbeat(record: Record) -> bool:
    """Return whether the record is a heartbeat."""
    key, payload = record.key_payload, record.payload
    return (
        isinstance(key, dict)
        and list(key) == ["serverName"]
        and isinstance(payload, dict)
        and list(payload) == ["ts_ms"]
    )


def heartbeat_pairs(ours: Sequence[Record], theirs: Sequence[Record]) -> Iterator[Pair]:
    """Yield the heartbeats of two captures by topic: how many there are depends on the clock, but not whether.

    Each is compared with one of the other capture, also where the other one has fewer.
    """
    topics: dict[str, tuple[list[Record], list[Record]]] = {}
    for number, side in enumerate((ours, theirs)):
        for record in side:
            topics.setdefault(record.topic, ([], []))[number].append(record)
    for mine, other in topics.values():
        for number in range(max(len(mine), len(other)) if mine and other else 1):
            a, b = (side[min(number, len(side) - 1)] if side else None for side in (mine, other))
            yield a, b


def is_notification(record: Record) -> bool:
    """Return whether the record is a notification."""
    return isinstance(record.payload, dict) and tuple(record.payload) == _NOTIFICATION


def notification_identity(record: Record) -> list[Any]:
    """Return what a notification is about, without the ids and progress that differ in each run."""
    data = record.payload.get("additional_data") or {}
    about = [data.get(name) for name in ("scanned_collection", "current_collection_in_progress")]
    return [record.payload["aggregate_type"], record.payload["type"], *about]


def may_be_one_id(ours: str, theirs: str) -> bool | None:
    """Return whether two ids that are not equal may be those of one notification; None if each has a random one."""
    random = [_RANDOM.fullmatch(id_) is not None for id_ in (ours, theirs)]
    if all(random):
        return None
    return random[1] and _KAFKA_SIGNAL.fullmatch(ours) is not None
