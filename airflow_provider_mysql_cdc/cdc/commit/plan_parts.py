"""Store a plan of very many topics: in the ledger in parts, in the offset store without its topics.

The partition counts and assignments of 10,000 topics are about a megabyte of JSON, more than a Kafka message may have
by default. A plan whose topics take more than ``PART_BYTES`` is written as a header, ``plan``, and parts, ``plan/0``,
``plan/1`` and so on, in one Kafka transaction; the header holds the number of parts and the digest of all topics, which
every part repeats. A part that is missing, changed or of another plan leads to a ``DamagedRecordError``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PART_PREFIX, PLAN_KEY
from airflow_provider_mysql_cdc.cdc.commit.plan import (
    BatchPlan,
    Owners,
    PartitionCount,
    WriterCount,
    decode,
    encode,
    topics_digest,
)
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Members, Record, damaged_record, record_location

PART_BYTES = 150_000
"""JSON of topics after which a record is full; it holds one topic more at most, so it stays below 200 KB."""
MAX_PARTS = 100_000
_PlanValues = tuple[bytes, tuple[tuple[int, bytes], ...]]
_LAST_PLAN: dict[_PlanValues, BatchPlan] = {}
"""The last plan: a job reads the ledger several times, and decoding 10,000 topics takes 50 ms."""


@dataclass(frozen=True, slots=True)
class PlanPart(Record):
    """Hold some topics of a plan.

    Args:
        of: Digest of all topics of the plan.
        part: Number of the part.
        partitions: Kafka partition count of each topic.
        assignment: The writer of each partition of a topic, or the one that writes all of them.
    """

    of: str
    part: Count
    partitions: Mapping[str, PartitionCount]
    assignment: Mapping[str, WriterCount | Owners]


def plan_records(plan: BatchPlan, old_parts: int = 0) -> dict[str, bytes | None]:
    """Return the ledger records of a plan by key, to be committed as one transaction; None deletes a key.

    Args:
        plan: The plan, with its topics.
        old_parts: Number of parts that the ledger holds now.
    """
    parts = list(_split_topics(plan)) if _needs_parts(plan) else []
    out: dict[str, bytes | None] = {PLAN_KEY: encode(plan.to_json())}
    if parts:
        digest = plan.topics_digest()
        out = {PLAN_KEY: encode(plan.without_topics().to_json() | {"parts": len(parts)})}
        for n, part in enumerate(parts):
            out[f"{PART_PREFIX}{n}"] = encode(PlanPart(digest, n, **part).to_json())
    for n in range(len(parts), old_parts):
        out[f"{PART_PREFIX}{n}"] = None
    return out


def stored_plan(plan: BatchPlan) -> BatchPlan:
    """Return a pending plan as the offset store holds it: without its topics when they need parts.

    Args:
        plan: The plan.
    """
    return plan.without_topics() if plan.omitted_topics is None and _needs_parts(plan) else plan


def part_number(key: str) -> int:
    """Return the number of a part by its ledger key.

    Args:
        key: A key that begins with ``PART_PREFIX``.

    Raises:
        DamagedRecordError: There is no such part.
    """
    text = key[len(PART_PREFIX) :]
    if not text.isascii() or not text.isdigit() or str(int(text[:9])) != text or int(text) >= MAX_PARTS:
        raise damaged_record("its key does not name a part of a plan")
    return int(text)


def decode_plan(header: bytes, parts: Mapping[int, bytes], where: Callable[[str], str]) -> BatchPlan:
    """Return the plan from the values of its header and its parts.

    Args:
        header: Value of the record ``plan``.
        parts: Values of the records ``plan/<n>``.
        where: Returns the location of a key's record, for errors.

    Raises:
        DamagedRecordError: As for ``assemble_plan``, or a record is not JSON.
    """
    key = header, tuple(sorted(parts.items()))
    plan = _LAST_PLAN.get(key)
    if plan is None:
        decoded_parts = {}
        for n, value in parts.items():
            with record_location(where(f"{PART_PREFIX}{n}")):
                decoded_parts[n] = decode(value)
        with record_location(where(PLAN_KEY)):
            plan = assemble_plan(decode(header), decoded_parts)
        _LAST_PLAN.clear()
        _LAST_PLAN[key] = plan
    return plan


def assemble_plan(header: Mapping[str, Any], parts: Mapping[int, Mapping[str, Any]]) -> BatchPlan:
    """Return the plan from its header and its parts.

    Args:
        header: The record ``plan``; it holds all topics itself where they need no parts.
        parts: The records ``plan/<n>``.

    Raises:
        DamagedRecordError: A part is missing, or belongs to another plan.
    """
    plan = BatchPlan.from_json(header)
    if plan.omitted_topics is None:
        return plan
    count = Members(header).integer("parts", high=MAX_PARTS)
    if missing := [n for n in range(count) if n not in parts]:
        raise damaged_record(
            f"{len(missing)} of the plan's {count} parts are missing, the first is {PART_PREFIX}{missing[0]}"
        )
    partitions: dict[str, int] = {}
    assignment: dict[str, tuple[int, ...]] = {}
    for n in sorted(parts):
        part = PlanPart.from_json(Members(parts[n], f"{PART_PREFIX}{n}"))
        if n >= count or (part.of, part.part) != (plan.omitted_topics, n):
            raise damaged_record(f"{PART_PREFIX}{n} is not a part of this plan")
        partitions.update(part.partitions)
        for topic, owners in part.assignment.items():
            if not isinstance(owners, int):
                assignment[topic] = owners
            elif topic in part.partitions:
                assignment[topic] = (owners,) * part.partitions[topic]
    if topics_digest(partitions, assignment) != plan.omitted_topics:
        raise damaged_record("the plan's parts were changed: their digest differs from the plan's")
    return plan.with_topics(partitions, assignment)


def _needs_parts(plan: BatchPlan) -> bool:
    """Return whether a plan's topics are too large for one record."""
    names = sum(map(len, plan.partitions)) + sum(map(len, plan.assignment))
    if names > PART_BYTES:
        return True
    owners = {topic: list(of) for topic, of in plan.assignment.items()}
    return len(encode({"partitions": dict(plan.partitions), "assignment": owners})) > PART_BYTES


def _split_topics(plan: BatchPlan) -> Iterator[dict[str, Any]]:
    """Yield the topics in parts; for a topic that one writer has alone, the assignment is that writer's number."""
    part: dict[str, dict[str, Any]] = {"partitions": {}, "assignment": {}}
    size = 0
    for topic in sorted({*plan.partitions, *plan.assignment}):
        if size >= PART_BYTES:
            yield part
            part, size = {"partitions": {}, "assignment": {}}, 0
        if (count := plan.partitions.get(topic)) is not None:
            part["partitions"][topic] = count
        single_writer = False
        if (owners := plan.assignment.get(topic)) is not None:
            single_writer = len(owners) == count and len(set(owners)) == 1
            part["assignment"][topic] = owners[0] if single_writer else owners
        size += 2 * _json_size(topic) + (1 if owners is None or single_writer else len(json.dumps(owners))) + 12
    if size:
        yield part


def _json_size(topic: str) -> int:
    # JSON holds every name that Kafka allows as it is; for other names this is an estimate.
    return len(topic) + 2 if topic.isascii() and topic.isprintable() else len(json.dumps(topic))
