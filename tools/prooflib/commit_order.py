"""Transactions of sessions that ran at the same time, and committed in another order in each capture.

They are the same if their sessions are others in both captures and they have no row in common. Then ours are compared
in the recorded order, and the number and the place of each is that of the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prooflib.adhoc import CaptureSide, op_of, source_of
from prooflib.records import Record, show
from prooflib.side_records import is_heartbeat, is_transaction

Row = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """Say which transactions of ours are in another order.

    Args:
        moved: The recorded place of each that has another one, by our place.
        between: Our places at which lengths of transactions before them differ.
    """

    moved: Mapping[int, int] = field(default_factory=dict)
    between: frozenset[int] = frozenset()

    def place(self, ours: int) -> int:
        """Return the recorded place of a transaction of ours."""
        return self.moved.get(ours, ours)


@dataclass(slots=True)
class _Transaction:
    place: int
    identities: list[tuple[str, str, str]] = field(default_factory=list)
    rows: set[Row] = field(default_factory=set)
    threads: set[str | None] = field(default_factory=set)
    begins: list[tuple[str, int]] = field(default_factory=list)


def _transactions(side: CaptureSide, stream: Sequence[Record]) -> list[_Transaction]:
    found: dict[int, _Transaction] = {}
    for record, place in zip(stream, _places(side, stream), strict=True):
        if place < 0 or record.value is None or is_transaction(record):
            continue
        transaction = found.setdefault(place, _Transaction(place))
        row = show(record.key_payload if record.key is not None else _images(record), 10_000)
        transaction.identities.append((record.topic, str(op_of(record)), row))
        transaction.rows.add((record.topic, row))
        source = source_of(record)
        transaction.begins.append((str(source.get("file")), int(source.get("pos") or 0)))
        thread = source.get("thread")
        transaction.threads.add(None if thread is None else str(thread))
    for transaction in found.values():
        transaction.identities.sort()
    return [found[place] for place in sorted(found)]


def _images(record: Record) -> list[Any]:
    payload = record.payload if isinstance(record.payload, dict) else {}
    return [payload.get("before"), payload.get("after"), payload.get("ddl")]


def _places(side: CaptureSide, stream: Sequence[Record]) -> Iterator[int]:
    """Yield the place of each record's transaction; a tombstone has that of the record before it, -1 without one."""
    last: dict[Row, int] = {}
    for record in stream:
        partition = record.topic, record.partition
        if record.value is None:
            yield last.get(partition, -1)
            continue
        last[partition] = -1 if op_of(record) == "r" or is_heartbeat(record) else side.transaction_index_of(record)
        yield last[partition]


def commit_order(ours: CaptureSide, theirs: CaptureSide) -> CommitOrder:
    """Return which transactions of ours are in another order; none if one of them could not be."""
    mine, other = _transactions(ours, ours.stream()), _transactions(theirs, theirs.stream())
    begins = [min(t.begins) for t in mine]
    if [t.identities for t in mine] == [t.identities for t in other]:
        return CommitOrder()
    if begins != sorted(begins) or not _written_in_order(ours):
        return CommitOrder()
    waiting: dict[str, list[int]] = {}
    for number, transaction in enumerate(other):
        waiting.setdefault(str(transaction.identities), []).append(number)
    for numbers in waiting.values():
        numbers.reverse()
    twins = [(t, waiting[text].pop()) for t in mine if waiting.get(text := str(t.identities))]
    moved, between = dict[int, int](), set[int]()
    for block in _blocks(twins):
        if not _independent([(t, other[n]) for t, n in block]):
            return CommitOrder()
        moved |= {t.place: other[n].place for t, n in block if t.place != other[n].place}
        between |= {t.place for t, _ in block}
    return CommitOrder(moved, frozenset(between))


def _written_in_order(side: CaptureSide) -> bool:
    """Return whether each partition has the transactions in the order of their commits."""
    last: dict[Row, int] = {}
    stream = side.stream()
    for record, place in zip(stream, _places(side, stream), strict=True):
        partition = record.topic, record.partition
        if 0 <= place < last.get(partition, -1):
            return False
        last[partition] = max(place, last.get(partition, -1))
    return True


def _blocks(twins: Sequence[tuple[_Transaction, int]]) -> Iterator[list[tuple[_Transaction, int]]]:
    """Yield the shortest stretches of our transactions that are in another order."""
    ranks = {number: rank for rank, number in enumerate(sorted(number for _, number in twins))}
    begin, highest = 0, -1
    for at, (_, number) in enumerate(twins):
        highest = max(highest, ranks[number])
        if highest == at:
            if at > begin:
                yield list(twins[begin : at + 1])
            begin = at + 1


def _independent(block: Sequence[tuple[_Transaction, _Transaction]]) -> bool:
    """Return whether those that changed places are of different sessions and of different rows."""
    for at, (mine, twin) in enumerate(block):
        for later, later_twin in block[at + 1 :]:
            if twin.place > later_twin.place and (
                mine.rows & later.rows or _one_session(mine, later) or _one_session(twin, later_twin)
            ):
                return False
    return True


def _one_session(one: _Transaction, other: _Transaction) -> bool:
    return None in one.threads | other.threads or bool(one.threads & other.threads)


def in_recorded_order(side: CaptureSide, order: CommitOrder) -> list[Record]:
    """Return the stream of ours with the transactions of each partition in the recorded order."""
    stream = side.stream()
    if not order.moved:
        return stream
    ranks, last = list[tuple[int, int]](), dict[Row, int]()
    for record, place in zip(stream, _places(side, stream), strict=True):
        partition = record.topic, record.partition
        last[partition] = order.place(place) if place >= 0 else last.get(partition, -1)
        ranks.append((last[partition], len(ranks)))
    return [stream[number] for _, number in sorted(ranks)]
