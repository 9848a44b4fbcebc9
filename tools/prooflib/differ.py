"""Every difference between two captures, with its place; records are paired by order and identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from prooflib.adhoc import AdhocSnapshots
from prooflib.adhoc_faults import Fault, faults
from prooflib.around import NO_CONTEXT, RecordContext, record_contexts
from prooflib.canonical import with_types
from prooflib.clock import IN_UTC, SessionZones
from prooflib.commit_order import commit_order, in_recorded_order
from prooflib.records import ABSENT, Path, Record, lack_schemas, names_of, schema_text, show, text_difference
from prooflib.side_records import (
    heartbeat_pairs,
    is_heartbeat,
    is_notification,
    is_transaction,
    notification_identity,
)
from prooflib.volatile import VolatileValues, transaction_number

Pair = tuple[Record | None, Record | None]
_ROW_MEMBERS = ("before", "after")
# What identifies a keyless record, in addition to its row.
_SCHEMA_CHANGE = ("databaseName", "ddl")


def identity(record: Record, place: int = -1) -> str:
    """Return what makes a record the same one in two captures.

    A row event is known by its key and operation, one without key by its rows; a schema change by its statement.

    Args:
        record: The record.
        place: The place of the transaction whose begin or end it marks, in the recorded order; -1 if it is not known.
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
        parts = [payload["status"], place if place >= 0 else transaction_number(str(payload.get("id")))]
    if is_notification(record):
        parts = notification_identity(record)
    return show(parts, 10_000)


Identity = Callable[[Record], str]


def align_records(
    ours: Sequence[Record], theirs: Sequence[Record], identities: tuple[Identity, Identity] = (identity, identity)
) -> Iterator[Pair]:
    """Yield pairs in the order of the recorded capture; a record without counterpart is paired with None."""
    mine, other = _by_partition(ours), _by_partition(theirs)
    for place in sorted({*mine, *other}):
        yield from _partition(mine.get(place, []), other.get(place, []), identities)


def _by_partition(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    groups_found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups_found.setdefault((record.topic, record.partition), []).append(record)
    return groups_found


def _partition(ours: list[Record], theirs: list[Record], of: tuple[Identity, Identity]) -> Iterator[Pair]:
    matcher = SequenceMatcher(None, [of[0](r) for r in ours], [of[1](r) for r in theirs], autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind == "equal" or a1 - a0 == b1 - b0:
            yield from zip(ours[a0:a1], theirs[b0:b1], strict=True)
            continue
        for record in ours[a0:a1]:
            yield record, None
        for record in theirs[b0:b1]:
            yield None, record


RECORD, REPEATED = "record", "repeated"


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold one difference.

    Args:
        key: The record's key, as text.
        number: The record's place in its partition.
        path: Where in the record: members, ``[name]`` for elements; ``record`` and its key when it is missing as a
            whole, ``repeated`` and its key when ours has it twice; ``stale``, ``last`` or ``watermark`` and its key for
            a read that is not its row's state there, another last value (and the column, if both have the row), or
            half of a pair of watermarks.
        ours: Our value, or ABSENT.
        theirs: The recorded value, or ABSENT.
        pair: The two records, None for one that is missing.
    """

    topic: str
    key: str
    number: int
    path: Path
    ours: Any
    theirs: Any
    pair: tuple[Record | None, Record | None]
    context: RecordContext = NO_CONTEXT

    @property
    def where(self) -> str:
        """Return the path as text."""
        return ".".join(self.path).replace(".[", "[")

    def values(self) -> str:
        """Return both values as text."""
        return f"ours {_shown(self.ours)}, theirs {_shown(self.theirs)}"


def _shown(value: Any) -> str:
    return repr(value) if value is ABSENT else show(value)


@dataclass(frozen=True, slots=True)
class Result:
    """Hold the outcome of a comparison.

    Args:
        records: Pairs of records compared.
        equal: Pairs without a difference.
        differences: All differences in order.
        shifted: When positions are not equal: (recorded position, our file, distance) wherever the distance changes.
        without_schemas: Parts (``key``, ``value``) that one capture has without schemas; their payloads were compared.
        moved: Transactions of ours that sessions of their own have committed in another order.
    """

    records: int
    equal: int
    differences: tuple[Difference, ...]
    shifted: tuple[tuple[tuple[str, int], str, int], ...]
    without_schemas: frozenset[str] = frozenset()
    moved: int = 0


def compare(ours: Sequence[Record], theirs: Sequence[Record], zones: SessionZones = IN_UTC) -> Result:
    """Compare two captures.

    Args:
        ours: Our records.
        theirs: The recorded ones.
        zones: The zones in which the recorded snapshots read TIMESTAMP.
    """
    ours, theirs = with_types(ours, theirs)
    heartbeats = list(heartbeat_pairs(*([r for r in side if is_heartbeat(r)] for side in (ours, theirs))))
    volatile = VolatileValues()
    volatile.note_runs(ours, theirs)
    ours, theirs = ([r for r in side if not is_heartbeat(r)] for side in (ours, theirs))
    adhoc = AdhocSnapshots.from_captures(ours, theirs, zones)
    order = commit_order(adhoc.ours, adhoc.theirs)
    identities = (
        lambda record: identity(record, order.place(adhoc.ours.transaction_index_of(record))),
        lambda record: identity(record, adhoc.theirs.transaction_index_of(record)),
    )
    pairs = list(align_records(in_recorded_order(adhoc.ours, order), adhoc.theirs.stream(), identities))
    volatile.adhoc, volatile.order = adhoc, order
    volatile.note_positions((a, b) for a, b in pairs if a is not None and b is not None)
    every = list(zip(pairs, record_contexts(pairs), strict=True))
    every += [(pair, NO_CONTEXT) for pair in heartbeats]
    every += [(pair, NO_CONTEXT) for pair in adhoc.watermarks()]
    every += [(pair, RecordContext(read=read, repeated=twice)) for pair, read, twice in adhoc.reads()]
    found: list[Difference] = []
    equal = 0
    skipped = _without_schemas(ours, theirs)
    for (mine, other), context in every:
        new = list(_pair(mine, other, volatile, context, skipped))
        equal += not new
        found += new
    found += [_fault_difference(fault) for fault in faults(adhoc)]
    return Result(len(every), equal, tuple(found), tuple(volatile.steps), skipped, len(order.moved))


def _without_schemas(ours: Sequence[Record], theirs: Sequence[Record]) -> frozenset[str]:
    """Return the parts of records that have schemas in one capture only, because a converter wrote none."""
    found = set()
    for part in ("key", "value"):
        for side, other in ((ours, theirs), (theirs, ours)):
            if lack_schemas(side, part) and not any(part in record.bare for record in other):
                found.add(part)
    return frozenset(found)


def _fault_difference(fault: Fault) -> Difference:
    record = fault.record
    key = show(record.key_payload, 120)
    path = (fault.what, key) if fault.column is None else (fault.what, key, fault.column)
    context = RecordContext(read=fault.read)
    return Difference(
        record.topic, key, record.number, path, fault.ours, fault.expected, (record, fault.other), context
    )


def _pair(
    our_record: Record | None,
    other: Record | None,
    volatile: VolatileValues,
    context: RecordContext,
    skipped: frozenset[str],
) -> Iterator[Difference]:
    schemas_equal = other or our_record
    assert schemas_equal is not None
    key = show(schemas_equal.key_payload, 120)

    def difference(path: Path, a: Any, b: Any) -> Difference:
        return Difference(schemas_equal.topic, key, schemas_equal.number, path, a, b, (our_record, other), context)

    if context.repeated and our_record is not None:
        yield difference((REPEATED, key), our_record.payload, ABSENT)
    if our_record is None or other is None:
        yield difference((RECORD, key), *(ABSENT if r is None else r.payload for r in (our_record, other)))
        return
    for path, a, b in _leaves(our_record, other, skipped):
        if ABSENT in (a, b) or not volatile.is_expected(path, a, b, (our_record, other)):
            yield difference(path, a, b)
    for part in ("key", "value"):
        written = text_difference(*_texts(part, our_record, other, skipped))
        if written is not None:
            yield difference((part, "(text)"), *written)


def _texts(part: str, mine: Record, other: Record, skipped: frozenset[str]) -> tuple[str, str]:
    """Return how both wrote a key or a value; what is not compared, or equal in most records, is cut off."""
    if part in skipped:
        return mine.payload_text(part), other.payload_text(part)
    if part == "key":
        return mine.key_text, other.key_text
    same = _same_schema(mine, other)
    return mine.value_text[same:], other.value_text[same:]


def _leaves(mine: Record, other: Record, skipped: frozenset[str]) -> Iterator[tuple[Path, Any, Any]]:
    if mine.key_text != other.key_text:
        if _payloads_only("key", mine, other, skipped):
            yield from _walk(("key", "payload"), mine.key_payload, other.key_payload)
        else:
            yield from _walk(("key",), mine.key, other.key)
    if mine.value_text != other.value_text:
        if _payloads_only("value", mine, other, skipped) or _same_schema(mine, other):
            yield from _walk(("value", "payload"), mine.payload, other.payload)
        else:
            yield from _walk(("value",), mine.value, other.value)
    yield from _headers(mine.headers, other.headers)


def _payloads_only(part: str, mine: Record, other: Record, skipped: frozenset[str]) -> bool:
    """Return whether a part is compared without its schemas."""
    return part in skipped and mine.has(part) and other.has(part)


def _same_schema(mine: Record, other: Record) -> int:
    """Return by how many characters with the same schema both values begin; most of a record is skipped then."""
    if any("value" in record.bare or not _is_envelope(record.value) for record in (mine, other)):
        return 0
    head = schema_text(mine.value_text)
    return len(head) if other.value_text.startswith(head) else 0


def _is_envelope(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["schema", "payload"]


def _headers(ours: Sequence[tuple[str, Any]], theirs: Sequence[tuple[str, Any]]) -> Iterator[tuple[Path, Any, Any]]:
    mine, other = [n for n, _ in ours], [n for n, _ in theirs]
    if mine != other:
        yield ("headers", "(names)"), mine, other
        return
    for (name, a), (_, b) in zip(ours, theirs, strict=True):
        if a != b:
            yield ("headers", name), a, b


def _walk(path: Path, ours: Any, theirs: Any) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        yield from _objects(path, ours, theirs)
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield from _lists(path, ours, theirs)
    elif type(ours) is not type(theirs) or ours != theirs:
        yield path, ours, theirs


def _objects(path: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[tuple[Path, Any, Any]]:
    for name, value in theirs.items():
        if name not in ours:
            yield (*path, name), ABSENT, value
        else:
            yield from _walk((*path, name), ours[name], value)
    for name, value in ours.items():
        if name not in theirs:
            yield (*path, name), value, ABSENT
    mine, other = [n for n in ours if n in theirs], [n for n in theirs if n in ours]
    if mine != other:
        yield (*path, "(order)"), mine, other


def _by_name(names: list[str], values: list[Any]) -> dict[str, Any]:
    return {f"[{name}]": value for name, value in zip(names, values, strict=True)}


def _lists(path: Path, ours: list[Any], theirs: list[Any]) -> Iterator[tuple[Path, Any, Any]]:
    mine, other = names_of(ours), names_of(theirs)
    if mine is not None and other is not None:
        yield from _objects(path, _by_name(mine, ours), _by_name(other, theirs))
        return
    for number in range(max(len(ours), len(theirs))):
        a, b = (v[number] if number < len(v) else ABSENT for v in (ours, theirs))
        if a is ABSENT or b is ABSENT:
            yield (*path, f"[{number}]"), a, b
        else:
            yield from _walk((*path, f"[{number}]"), a, b)
