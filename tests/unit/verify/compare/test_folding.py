import random
from collections.abc import Sequence
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.verify.compare.folding import BucketFold, BucketResult, RowDifference, merge_results
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules, step_bytes
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

A, B, NEW = b'{"v":1}', b'{"v":2}', b'{"v":3}'


def row(key: bytes, value: bytes = A, partition: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.ROW, partition, 0, 0, key, value)


def alive(key: bytes, offset: int, value: bytes = A, partition: int = 0, order: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.ALIVE, partition, offset, order or offset, key, value)


def dead(key: bytes, offset: int, partition: int = 0, order: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.DEAD, partition, offset, order or offset, key, b"")


def tombstone(offset: int, partition: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.TOMBSTONE, partition, offset, 0, b"k", b"")


def fold(entries: Sequence[FoldEntry], max_found: int = 100) -> BucketResult:
    """Fold the entries; in any order the result is the same."""
    results = []
    for seed in range(5):
        shuffled = list(entries)
        random.Random(seed).shuffle(shuffled)
        rules = {0: HistoryRules(tombstones=True, complete=True)}
        folded = BucketFold(lambda table, a, b: RowDifference(("v",) if a["v"] != b["v"] else ()), max_found, rules)
        folded.add(shuffled)
        results.append(folded.result())
    first = results[0]
    for other in results[1:]:
        assert other.counts == first.counts
        assert sorted(map(repr, other.found)) == sorted(map(repr, first.found)) or max_found < 100
    return first


def kinds(result: BucketResult) -> dict[Kind, int]:
    return result.counts[0].differences if 0 in result.counts else {}


@for_each(
    ("entries", "found"),
    [
        ([row(b"k"), alive(b"k", 1)], {}),
        ([row(b"k", B), alive(b"k", 1), alive(b"k", 5, B), alive(b"k", 3, NEW)], {}),
        ([dead(b"k", 2), alive(b"k", 1)], {}),
        ([row(b"k")], {Kind.MISSING: 1}),
        ([row(b"k"), alive(b"k", 1), dead(b"k", 2)], {Kind.MISSING: 1}),
        ([alive(b"k", 1)], {Kind.GHOST: 1}),
        ([row(b"k", B), alive(b"k", 1)], {Kind.DIFFERING: 1}),
        ([row(b"k", partition=1), alive(b"k", 1, partition=0)], {Kind.WRONG_PARTITION: 1}),
        ([row(b"k"), alive(b"k", 9), alive(b"k", 1, partition=2, order=1)], {Kind.WRONG_PARTITION: 1}),
        ([row(b"k"), alive(b"k", 9, order=1), dead(b"k", 1, 2, order=8)], {Kind.MISSING: 1, Kind.WRONG_PARTITION: 1}),
    ],
)
def test_the_last_event_of_a_key_is_compared_with_its_row(entries: list[FoldEntry], found: dict[Kind, int]) -> None:
    assert kinds(fold(entries)) == found


def test_a_truncate_deletes_what_was_written_before_it() -> None:
    truncate = FoldEntry(0, EntryKind.TRUNCATE, 0, 5, 5, b"", b"")
    assert kinds(fold([alive(b"a", 1), truncate, alive(b"b", 6), row(b"b")])) == {}
    assert kinds(fold([alive(b"a", 1), truncate, row(b"a")])) == {Kind.MISSING: 1}
    # Another server numbers its files from 1 again.
    assert kinds(fold([truncate, alive(b"a", 6, order=1), row(b"a")])) == {}
    # In another partition only the place in the binlog tells.
    assert kinds(fold([alive(b"a", 9, partition=1, order=4), truncate])) == {}
    assert kinds(fold([alive(b"a", 9, partition=1, order=6), truncate])) == {Kind.GHOST: 1}


def test_rows_without_a_key_are_counted() -> None:
    def keyless(kind: EntryKind, key: bytes, times: int = 1, first: int = 0) -> list[FoldEntry]:
        return [FoldEntry(0, kind, 0, first + offset, 0, key, b"\0") for offset in range(times)]

    equal = [
        *keyless(EntryKind.ADDED, A, 3),
        *keyless(EntryKind.REMOVED, A, 1, 3),
        *keyless(EntryKind.KEYLESS_ROW, A, 2),
    ]
    assert kinds(fold(equal)) == {}
    assert kinds(fold([*equal, *keyless(EntryKind.KEYLESS_ROW, B, 2)])) == {Kind.MISSING: 2}
    assert kinds(fold([*equal, *keyless(EntryKind.ADDED, B, 2)])) == {Kind.GHOST: 2}


@pytest.mark.req("EVT-08")
def test_rows_without_a_key_are_counted_from_their_last_view_on() -> None:
    def event(offset: int, key: bytes, view: bytes = b"", kind: EntryKind = EntryKind.ADDED) -> FoldEntry:
        return FoldEntry(0, kind, 0, offset, 0, key, b"\0" + view)

    kept = [FoldEntry(0, EntryKind.KEYLESS_ROW, 0, 0, 0, A, b"")] * 2
    first, change = [event(1, A, b"5/1"), event(2, A, b"5/1"), event(3, A, b"5/1")], event(5, A, b"", EntryKind.REMOVED)
    second = [event(7, A, b"5/9"), event(8, A, b"5/9")]
    assert kinds(fold([*kept, *first, change])) == {}
    assert kinds(fold([*kept, *first, change, *second])) == {}
    assert kinds(fold([*kept, *first, *second, event(9, A)])) == {Kind.GHOST: 1}
    assert kinds(fold([*kept, *first, *second, second[0]._replace(offset=9)])) == {Kind.GHOST: 1}
    assert kinds(fold([*kept, *first, event(4, B), *second])) == {Kind.GHOST: 1}


def test_an_event_that_none_follows_under_its_record_key_leaves_a_row_unjudged() -> None:
    def kept(offset: int, record_key: bytes, partition: int = 0, *, exists: bool = True) -> FoldEntry:
        mark = b"\1" if exists else b"\0"
        return FoldEntry(0, EntryKind.KEPT, partition, offset, offset, b"k", mark + record_key)

    first, moved = [alive(b"k", 1), kept(1, b"a")], [alive(b"k", 5, B, 1), kept(5, b"b", 1)]
    gone = kept(3, b"a", exists=False)
    rows = [row(b"k", B, 1)]
    deleted = [dead(b"k", 5, order=5), kept(5, b"b", exists=False), tombstone(6)]
    cases = [
        ([*first, *deleted], 1),
        ([row(b"k"), *first], 0),
        ([*rows, *first, *moved], 1),
        ([*rows, *first, gone, *moved], 0),
        ([*rows, *first, gone, *moved, kept(4, b"a")], 1),
        ([*rows, *first, kept(3, b"a"), gone._replace(partition=2), *moved], 1),
        ([*rows, *first, FoldEntry(0, EntryKind.TRUNCATE, 0, 4, 4, b"", b""), *moved], 0),
    ]
    for entries, number in cases:
        assert fold(entries).counts[0].kept == number, entries


def test_a_record_under_another_key_may_be_in_any_partition() -> None:
    old = FoldEntry(0, EntryKind.ALIVE_UNDER_OTHER_KEY, 2, 9, 4, b"k", A)
    assert kinds(fold([row(b"k"), old])) == {}
    assert kinds(fold([row(b"k", B), old, alive(b"k", 1, B, order=7)])) == {}
    assert kinds(fold([row(b"k", B), old, alive(b"k", 1, B, 1, order=7)])) == {Kind.WRONG_PARTITION: 1}
    assert kinds(fold([old, dead(b"k", 1, order=7)])) == {}
    assert kinds(fold([old._replace(kind=EntryKind.DEAD_UNDER_OTHER_KEY, order=9), alive(b"k", 1, order=7)])) == {}


def test_a_tombstone_deletes_the_row_before_it() -> None:
    def tombstone(offset: int, partition: int = 0) -> FoldEntry:
        return FoldEntry(0, EntryKind.TOMBSTONE, partition, offset, 0, b"k", b"")

    assert kinds(fold([row(b"k"), alive(b"k", 1), tombstone(2)])) == {Kind.MISSING: 1}
    assert kinds(fold([row(b"k"), dead(b"k", 1), tombstone(2), alive(b"k", 3)])) == {}
    assert kinds(fold([alive(b"k", 1), dead(b"k", 2), tombstone(3)])) == {}
    assert kinds(fold([row(b"k"), tombstone(2)])) == {Kind.MISSING: 1}
    assert kinds(fold([row(b"k"), alive(b"k", 1), tombstone(2, partition=1)])) == {Kind.WRONG_PARTITION: 1}


def test_all_differences_are_counted_and_some_are_returned() -> None:
    result = fold([row(b"%d" % i) for i in range(20)], max_found=3)
    assert kinds(result) == {Kind.MISSING: 20} and len(result.found) == 3
    merged = merge_results([result, result], 5)
    assert kinds(merged) == {Kind.MISSING: 40} and len(merged.found) == 5 and merged.counts[0].rows == 40


def test_a_change_of_the_key_moves_a_row_to_another_partition() -> None:
    entries = [row(b"k"), alive(b"k", 9), dead(b"k", 10, order=20), alive(b"k", 1, partition=2, order=20)]
    assert kinds(fold(entries)) == {Kind.WRONG_PARTITION: 1}
    folded = BucketFold(lambda table, a, b: RowDifference(), 10, moving=frozenset({0}))
    folded.add(entries)
    assert kinds(folded.result()) == {}


def repaired(offset: int, partition: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.REPAIRED, partition, offset, 0, b"k", b"")


def unreadable(offset: int, partition: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.UNREADABLE, partition, offset, 0, b"k", b"it is no event")


def step(op: str, offset: int, partition: int = 0) -> FoldEntry:
    images = {"u": (A, A), "r": (None, A), "d": (A, None), "c": (None, A), "": (None, None)}[op]
    before, after = (None if image is None else {"v": 1} for image in images)
    value = step_bytes(EventRecord(op, {"id": 1}, before, after, {}), 0, [("cdc-id", b"%d" % offset)])
    return FoldEntry(0, EntryKind.STEP, partition, offset, 0, b"k", value)


@for_each(
    ("damaged", "found"),
    [
        ([unreadable(3)], {Kind.UNREADABLE: 1}),
        ([unreadable(3), unreadable(4)], {Kind.UNREADABLE: 2}),
        ([alive(b"k", 3, partition=1, order=1)], {Kind.WRONG_PARTITION: 1}),
        ([step("c", 1), step("d", 2), step("c", 3)], {Kind.NO_TOMBSTONE: 1}),
    ],
)
def test_a_repair_settles_what_is_before_it_in_its_partition(damaged: list[FoldEntry], found: dict[Kind, int]) -> None:
    where = damaged[0].partition
    whole = [row(b"k"), alive(b"k", 1, order=2), *damaged]
    mended = [alive(b"k", 9, order=9), *([step("r", 9)] if damaged[0].kind is EntryKind.STEP else [])]
    assert kinds(fold(whole)) == found
    assert kinds(fold([*whole, *mended])) == found, "only a repair settles"
    assert kinds(fold([*whole, *mended, repaired(9)])) == ({} if where == 0 else found)
    assert kinds(fold([*whole, *mended, repaired(9), repaired(8, where)])) == {}
    assert kinds(fold([*whole, repaired(0), repaired(0, where)])) == found, "it settles nothing behind it"


def test_a_row_that_a_repair_has_deleted_elsewhere_is_in_no_wrong_partition() -> None:
    ghost = [alive(b"k", 3, partition=1, order=1), dead(b"k", 4, 1, 5)]
    assert kinds(fold([*ghost, repaired(4, 1)])) == {}
    assert kinds(fold([*ghost, row(b"k"), alive(b"k", 0, order=9)])) == {Kind.WRONG_PARTITION: 1}
    assert kinds(fold([*ghost, row(b"k"), alive(b"k", 0, order=9), repaired(4, 1)])) == {}
    # The delete is still the last event of a row that has other ones elsewhere.
    assert kinds(fold([*ghost, alive(b"k", 0, order=2), repaired(4, 1), repaired(5, 1)])) == {}


def test_differences_name_what_a_repair_needs() -> None:
    (found,) = fold([row(b"k"), alive(b"k", 7), unreadable(3, 2)]).found
    assert (found.kind, found.record, found.last, found.places) == (Kind.UNREADABLE, (2, 3), (0, 7), ((2, 3),))
    assert found.reason == "it is no event"
    (found,) = fold([row(b"k"), alive(b"k", 7), alive(b"k", 3, partition=2, order=1)]).found
    assert (found.last, found.places) == ((0, 7), ((0, 7), (2, 3)))
    (found,) = fold([row(b"k"), alive(b"k", 4), step("c", 1), step("d", 2), step("c", 3)]).found
    assert (found.kind, found.record, found.last) == (Kind.NO_TOMBSTONE, (0, 2), (0, 4))


def test_a_tombstone_that_names_no_table_settles_only_what_is_misplaced() -> None:
    def of_any(partition: int) -> FoldEntry:
        return repaired(9, partition)._replace(value=b"any")

    whole = [row(b"k"), alive(b"k", 3, order=3)]
    assert kinds(fold([*whole, of_any(0)])) == {}
    misplaced = [*whole, alive(b"k", 4, partition=1, order=1)]
    assert kinds(fold([*misplaced, of_any(0)])) == {Kind.WRONG_PARTITION: 1}
    assert kinds(fold([*misplaced, of_any(1)])) == {}


def test_a_tombstone_of_a_repair_or_before_one_is_in_no_wrong_partition() -> None:
    misplaced = [row(b"k"), alive(b"k", 1), tombstone(2, partition=1)]
    repaired = FoldEntry(0, EntryKind.REPAIRED, 1, 3, 0, b"k", b"")
    assert kinds(fold([*misplaced, repaired, tombstone(3, partition=1)])) == {}
    assert kinds(fold([*misplaced, repaired, tombstone(4, partition=1)])) == {Kind.WRONG_PARTITION: 1}
    (found,) = fold(misplaced).found
    assert found.places == ((0, 1), (1, 2))


def test_a_record_without_a_key_is_settled_by_a_repair_that_names_it() -> None:
    unreadable = FoldEntry(0, EntryKind.UNREADABLE, 1, 7, 0, b"k", b"no key")
    of_place = FoldEntry(0, EntryKind.REPAIRED, 1, 7, 0, b"k", b"place")
    events = [row(b"k"), alive(b"k", 1), unreadable]
    assert kinds(fold(events)) == {Kind.UNREADABLE: 1} and kinds(fold([*events, of_place])) == {}
    later = unreadable._replace(offset=8)
    assert kinds(fold([*events, of_place, later])) == {Kind.UNREADABLE: 1}


def test_a_delete_without_a_place_may_be_the_last_event_of_a_row_in_several_partitions() -> None:
    spread = [alive(b"k", 1), dead(b"k", 9, partition=1)._replace(order=0)]
    for moving, found in ((frozenset({0}), {}), (frozenset[int](), {Kind.GHOST: 1, Kind.WRONG_PARTITION: 1})):
        folded = BucketFold(lambda table, a, b: RowDifference(), 10, moving=moving)
        folded.add(spread)
        counts = folded.result().counts[0]
        assert (counts.differences, counts.undecided) == (found, len(moving))


def test_of_rows_of_one_time_in_several_partitions_none_is_known_to_be_the_last() -> None:
    def undecided(*values: bytes, order: int = 7) -> tuple[Any, int]:
        events = [alive(b"k", 1, partition=p)._replace(order=order, value=v) for p, v in enumerate(values)]
        folded = BucketFold(lambda table, a, b: RowDifference(("v",)), 10, moving=frozenset({0}))
        folded.add([row(b"k")._replace(value=b'{"v":1}'), *events])
        counts = folded.result().counts[0]
        return counts.differences, counts.undecided

    for values in ((b'{"v":1}', b'{"v":2}'), (b'{"v":2}', b'{"v":1}')):
        assert undecided(*values) == ({}, 1), values
    assert undecided(b'{"v":1}', b'{"v":1}') == ({}, 0)
    assert undecided(b'{"v":2}', b'{"v":3}') == ({Kind.DIFFERING: 1}, 0)


def test_events_that_do_not_say_the_present_key_may_be_of_any_row_until_the_key_was_changed() -> None:
    unplaced = FoldEntry(0, EntryKind.UNPLACED, 0, 3, 50, b"", b"")
    ghost, older = alive(b"g", 9, order=50), alive(b"o", 2, order=49)
    counts = fold([row(b"m"), ghost, older, unplaced]).counts[0]
    assert (counts.differences, counts.unplaced) == ({Kind.GHOST: 1}, 2)
    assert kinds(fold([row(b"m"), ghost, older])) == {Kind.GHOST: 2, Kind.MISSING: 1}
