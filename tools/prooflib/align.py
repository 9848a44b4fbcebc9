"""Which record of one capture corresponds to which of the other: by order within a partition, gaps found by
identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from prooflib.records import Record, show
from prooflib.volatile import is_transaction, transaction_number

Pair = tuple[Record | None, Record | None]
_ROW_MEMBERS = ("before", "after")
# What identifies a keyless record, in addition to its row.
_SCHEMA_CHANGE = ("databaseName", "ddl")


def identity(record: Record) -> str:
    """Return what makes a record the same one in two captures.

    A row event is known by its key and operation, one without key by its rows; a schema change by its statement.
    """
    payload = record.payload
    if not isinstance(payload, dict):
        return f"{show(record.key_payload, 10_000)} {payload is None}"
    parts: list[Any] = [record.key_payload, payload.get("op")]
    if record.key is None:
        parts += [payload.get(m) for m in _ROW_MEMBERS]
    if "ddl" in payload:
        parts += [payload.get(m) for m in _SCHEMA_CHANGE] + [record.snapshot]
    if is_transaction(record):
        parts = [payload["status"], transaction_number(str(payload.get("id")))]
    return show(parts, 10_000)


def align_records(ours: Sequence[Record], theirs: Sequence[Record]) -> Iterator[Pair]:
    """Yield pairs in the order of the recorded capture; a record without counterpart is paired with None.

    Args:
        ours: All records of our capture.
        theirs: All records of the recorded one.
    """
    mine, other = _by_partition(ours), _by_partition(theirs)
    for place in sorted({*mine, *other}):
        yield from _partition(mine.get(place, []), other.get(place, []))


def _by_partition(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    groups_found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups_found.setdefault((record.topic, record.partition), []).append(record)
    return groups_found


def _partition(ours: list[Record], theirs: list[Record]) -> Iterator[Pair]:
    matcher = SequenceMatcher(None, [identity(r) for r in ours], [identity(r) for r in theirs], autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind == "equal" or a1 - a0 == b1 - b0:
            yield from zip(ours[a0:a1], theirs[b0:b1], strict=True)
            continue
        for record in ours[a0:a1]:
            yield record, None
        for record in theirs[b0:b1]:
            yield None, record
