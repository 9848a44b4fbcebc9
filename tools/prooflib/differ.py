"""Every difference of two captures, by topic, key and JSON path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prooflib.adhoc import AdhocSnapshots, Fault
from prooflib.align import align_records
from prooflib.around import NO_CONTEXT, RecordContext, record_contexts
from prooflib.records import Path, Record, names_of, schema_text, show, text_difference
from prooflib.volatile import VolatileValues


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
RECORD, REPEATED = "record", "repeated"


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold one difference.

    Args:
        topic: Topic.
        key: The record's key, as text.
        number: The record's place in its partition.
        path: Where in the record: members, ``[name]`` for elements; ``record`` and its key when it is missing as a
            whole, ``repeated`` and its key when ours has it twice; ``stale``, ``last`` or ``watermark`` and its key for
            a read that is not its row's state there, another last value, or half of a pair of watermarks.
        ours: Our value, or ABSENT.
        theirs: The recorded value, or ABSENT.
        pair: The two records, None for one that is missing.
        context: Their context.
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
    """

    records: int
    equal: int
    differences: tuple[Difference, ...]
    shifted: tuple[tuple[tuple[str, int], str, int], ...]


def compare(ours: Sequence[Record], theirs: Sequence[Record]) -> Result:
    """Compare two captures.

    Args:
        ours: Our records.
        theirs: The recorded ones.
    """
    adhoc = AdhocSnapshots.from_captures(ours, theirs)
    pairs = list(align_records(adhoc.ours.stream(), adhoc.theirs.stream()))
    volatile = VolatileValues(adhoc)
    volatile.note_runs(ours, theirs)
    volatile.note_positions((a, b) for a, b in pairs if a is not None and b is not None)
    every = list(zip(pairs, record_contexts(pairs), strict=True))
    every += [(pair, NO_CONTEXT) for pair in adhoc.watermarks()]
    every += [(pair, RecordContext(read=read, repeated=twice)) for pair, read, twice in adhoc.reads()]
    found: list[Difference] = []
    equal = 0
    for (mine, other), context in every:
        new = list(_pair(mine, other, volatile, context))
        equal += not new
        found += new
    found += [_fault_difference(fault) for fault in adhoc.faults()]
    return Result(len(every), equal, tuple(found), tuple(volatile.steps))


def _fault_difference(fault: Fault) -> Difference:
    record = fault.record
    key = show(record.key_payload, 120)
    return Difference(record.topic, key, record.number, (fault.what, key), fault.ours, fault.expected, (record, None))


def _pair(
    our_record: Record | None, other: Record | None, volatile: VolatileValues, context: RecordContext
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
    for path, a, b in _leaves(our_record, other):
        if ABSENT in (a, b) or not volatile.is_expected(path, a, b, (our_record, other)):
            yield difference(path, a, b)
    # Equal schema texts contain most of the tokens.
    same = _same_schema(our_record, other)
    texts = (
        ("key", our_record.key_text, other.key_text),
        ("value", our_record.value_text[same:], other.value_text[same:]),
    )
    for part, text, recorded in texts:
        written = text_difference(text, recorded)
        if written is not None:
            yield difference((part, "(text)"), *written)


def _leaves(mine: Record, other: Record) -> Iterator[tuple[Path, Any, Any]]:
    if mine.key_text != other.key_text:
        yield from _walk(("key",), mine.key, other.key)
    if mine.value_text != other.value_text:
        if _same_schema(mine, other):
            yield from _walk(("value", "payload"), mine.payload, other.payload)
        else:
            yield from _walk(("value",), mine.value, other.value)
    yield from _headers(mine.headers, other.headers)


def _same_schema(mine: Record, other: Record) -> int:
    """Return by how many characters with the same schema both values begin; most of a record is skipped then."""
    if mine.payload is mine.value or other.payload is other.value:
        return 0
    head = schema_text(mine.value_text)
    return len(head) if other.value_text.startswith(head) else 0


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
