"""What is folded as bytes comes to the same as what is folded key by key."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from kit.cases import for_each
from kit.fold_entries import read_entries

from airflow_provider_mysql_cdc.cdc.verify.avro_slices import RAW_ROW
from airflow_provider_mysql_cdc.cdc.verify.carried_rows import CarriedRows
from airflow_provider_mysql_cdc.cdc.verify.entries import (
    EVENT_RUN,
    PLACE,
    ROW_RUN,
    EntryBlocks,
    EntryKind,
    FoldEntry,
)
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord
from airflow_provider_mysql_cdc.cdc.verify.folding import BucketFold, BucketResult
from airflow_provider_mysql_cdc.cdc.verify.key_history import HistoryRules, step_bytes
from airflow_provider_mysql_cdc.cdc.verify.plain_fold import PlainFold
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import RowDifference
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

A, B, DAMAGED = b'{"v":1}', b'{"v":2}', b'{"v":'
KINDS = (EntryKind.ROW, EntryKind.ALIVE, EntryKind.ALIVE, EntryKind.ALIVE, EntryKind.DEAD, EntryKind.TOMBSTONE,
         EntryKind.UNREADABLE, EntryKind.REPAIRED, EntryKind.ALIVE_UNDER_OTHER_KEY)  # fmt: skip
WITH_VALUE = (EntryKind.ROW, EntryKind.ALIVE, EntryKind.ALIVE_UNDER_OTHER_KEY)
STEP = step_bytes(EventRecord("c", {"id": 1}, None, {"v": 1}, {}), 1, (), lambda name, value: False)


def bucket_fold(followed: Sequence[int]) -> BucketFold:
    rules = {number: HistoryRules(tombstones=True, complete=True) for number in followed}
    return BucketFold(lambda table, a, b: RowDifference(("v",) if a != b else ()), 1000, rules)


def both(entries: Sequence[FoldEntry], followed: Sequence[int] = ()) -> tuple[BucketResult, BucketResult]:
    """Return what a fold as bytes finds, and what a fold by keys does."""
    by_keys = bucket_fold(followed)
    by_keys.add(entries)
    blocks = EntryBlocks(1)
    for entry in entries:
        blocks.add(entry)
    plain = PlainFold(bucket_fold(followed), CarriedRows({}), followed)
    for _, block in blocks.take_rest():
        plain.add(block)
    return plain.result(), by_keys.result()


def drawn(draw: random.Random, offset: int) -> FoldEntry:
    kind, key, table = draw.choice(KINDS), b'{"k":%d}' % draw.randrange(6), draw.randrange(2)
    partition = 0 if draw.random() < 0.9 else 1
    value = (
        draw.choice((A, A, A, B)) if kind in (EntryKind.ROW, EntryKind.ALIVE, EntryKind.ALIVE_UNDER_OTHER_KEY) else b""
    )
    if kind is EntryKind.ROW:
        return FoldEntry(table, kind, partition, 0, 0, key, value)
    return FoldEntry(table, kind, partition, offset, draw.choice((offset, 0)), key, value)


@for_each("seed", range(300))
def test_any_entries_come_to_the_same(seed: int) -> None:
    draw = random.Random(seed)
    entries = [drawn(draw, offset) for offset in range(1, draw.randrange(2, 25))]
    rows = set[tuple[int, bytes]]()
    entries = [
        e
        for e in entries
        if e.kind is not EntryKind.ROW or not ((e.table, e.key) in rows or rows.add((e.table, e.key)))
    ]
    if draw.random() < 0.2:
        entries.append(FoldEntry(0, EntryKind.TRUNCATE, 0, 9, 9, b"", b""))
    followed = (1,) if draw.random() < 0.3 else ()
    if followed:
        entries += [FoldEntry(1, EntryKind.STEP, 0, n, n, b'{"k":1}', STEP) for n in (1, 2)]
    draw.shuffle(entries)
    plain, by_keys = both(entries, followed)
    assert sorted(map(repr, plain.found)) == sorted(map(repr, by_keys.found))
    assert {n: c for n, c in plain.counts.items() if c.rows or c.events or c.differences} == {
        n: c for n, c in by_keys.counts.items() if c.rows or c.events or c.differences
    }
    assert plain.truncated == by_keys.truncated


@for_each("seed", range(200))
def test_runs_come_to_the_same_as_single_entries(seed: int) -> None:
    draw = random.Random(seed)
    values = (A, A, A, B, DAMAGED)
    entries = [
        FoldEntry(0, kind, draw.choice((0, 0, 0, 1)), offset, offset, b"%d" % draw.randrange(9), value)
        for offset in range(1, draw.randrange(2, 25))
        for kind, value in [draw.choice(((EntryKind.ALIVE, draw.choice(values)), (EntryKind.DEAD, b"")))]
    ]
    entries += [FoldEntry(0, EntryKind.ROW, draw.choice((0, 0, 1)), 0, 0, b"%d" % n, A) for n in range(9)]
    draw.shuffle(entries)
    # Each part is what one task has read: runs of it are in one block, those of another one in another block.
    blocks, runs = list[bytes](), PlainFold(bucket_fold(()), CarriedRows({}))
    while entries:
        part, entries = entries[:10], entries[10:]
        written = EntryBlocks(1)
        for partition in (0, 1):
            chosen = [entry for entry in part if entry.partition == partition]
            rows, events = ([e for e in chosen if (e.kind is EntryKind.ROW) is is_row] for is_row in (True, False))
            written.put_run(0, ROW_RUN, partition, [e.key for e in rows], [e.value for e in rows])
            places = [e.value + PLACE.pack(e.offset, e.order) for e in events]
            written.put_run(0, EVENT_RUN, partition, [e.key for e in events], places)
        blocks += [block for _, block in written.take_rest()]
    for block in blocks:
        runs.add(block)
    found = runs.result()
    given = list(read_entries(blocks))
    expected, _ = both(sorted(given, key=lambda entry: entry.offset))
    assert sorted(map(repr, found.found)) == sorted(map(repr, expected.found)) and found.counts == expected.counts
    damaged = sum(entry.value == DAMAGED for entry in given)
    assert found.counts[0].differences.get(Kind.UNREADABLE, 0) == damaged
    assert found.counts[0].rows == 9


def alive(offset: int, value: bytes, partition: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.ALIVE, partition, offset, offset, b"{}", value)


ROW = FoldEntry(0, EntryKind.ROW, 0, 0, 0, b"{}", A)


@for_each("order", [1, -1])
@for_each(
    ("entries", "found", "events"),
    [
        ([ROW, alive(1, A)], {}, 1),
        ([ROW, alive(1, B), alive(2, A), alive(3, A)], {}, 3),
        ([ROW, alive(1, DAMAGED), alive(2, A)], {Kind.UNREADABLE: 1}, 1),
        ([ROW, alive(1, A), alive(2, DAMAGED)], {Kind.UNREADABLE: 1}, 1),
        (
            [ROW, alive(1, A), alive(2, b"[1]"), alive(3, B)],
            {Kind.UNREADABLE: 1, Kind.DIFFERING: 1},
            2,
        ),
        (
            [ROW, alive(1, DAMAGED), alive(2, A, 1)],
            {Kind.UNREADABLE: 1, Kind.WRONG_PARTITION: 1},
            1,
        ),
        ([alive(1, DAMAGED)], {Kind.UNREADABLE: 1}, 0),
        ([ROW, alive(1, A, 1)], {Kind.WRONG_PARTITION: 1}, 1),
        ([ROW, ROW, alive(1, A)], {Kind.MISSING: 1}, 1),
        ([ROW, alive(1, A), FoldEntry(0, EntryKind.TRUNCATE, 0, 5, 5, b"", b"")], {Kind.MISSING: 1}, 1),
    ],
)
def test_damaged_rows_after_events_are_no_events(
    entries: list[FoldEntry], found: dict[Kind, int], events: int, order: int
) -> None:
    plain, _ = both(entries[::order])
    assert plain.counts[0].differences == found
    assert plain.counts[0].events == events
    assert plain.counts[0].rows == entries.count(ROW)


SCHEMA = '{"type":"record","name":"Row","fields":[{"name":"v","type":["null","bytes"]}]}'
RAW, RAW_NULL, RAW_DAMAGED = RAW_ROW + b"\x02\x04\x00\xff", RAW_ROW + b"\x00", RAW_ROW + b"\x02\x08\x00"
ROW_OF_RAW = b'{"v":"AP8="}'


@for_each("followed", [(), (0,)])
@for_each(
    ("row", "event", "found"),
    [
        (RAW, RAW, {}),
        (RAW, ROW_OF_RAW, {}),
        (RAW, RAW_NULL, {Kind.DIFFERING: 1}),
        (RAW, RAW_DAMAGED, {Kind.MISSING: 1, Kind.UNREADABLE: 1}),
        (RAW, RAW + b"\x00", {Kind.MISSING: 1, Kind.UNREADABLE: 1}),
        (RAW, b"", {Kind.MISSING: 1}),
    ],
)
def test_rows_that_were_carried_as_avro_are_read_where_their_bytes_differ(
    row: bytes, event: bytes, found: dict[Kind, int], followed: tuple[int, ...]
) -> None:
    fold = bucket_fold(followed)
    plain, blocks = PlainFold(fold, CarriedRows({0: SCHEMA}), followed), EntryBlocks(1)
    blocks.put(0, EntryKind.ROW, 0, 0, 0, b"{}", row)
    blocks.put(0, EntryKind.ALIVE if event else EntryKind.DEAD, 0, 1, 1, b"{}", event)
    for _, block in blocks.take_rest():
        plain.add(block)
    result = plain.result()
    assert result.counts[0].differences == found
    assert all(each.row in (None, ROW_OF_RAW) for each in result.found)
    assert all(each.event_row in (None, b'{"v":null}') for each in result.found)
