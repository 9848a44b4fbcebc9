import random
from collections.abc import Sequence

import pytest

from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.folding import BucketFold, BucketResult, RowDifference, merge_results
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

A, B, NEW = b'{"v":1}', b'{"v":2}', b'{"v":3}'


def row(key: bytes, value: bytes = A, partition: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.ROW, partition, 0, 0, key, value)


def alive(key: bytes, offset: int, value: bytes = A, partition: int = 0, order: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.ALIVE, partition, offset, order or offset, key, value)


def dead(key: bytes, offset: int, partition: int = 0, order: int = 0) -> FoldEntry:
    return FoldEntry(0, EntryKind.DEAD, partition, offset, order or offset, key, b"")


def fold(entries: Sequence[FoldEntry], max_found: int = 100) -> BucketResult:
    """Fold the entries; in any order the result is the same."""
    results = []
    for seed in range(5):
        shuffled = list(entries)
        random.Random(seed).shuffle(shuffled)
        folded = BucketFold(lambda table, a, b: RowDifference(("v",) if a["v"] != b["v"] else ()), max_found)
        folded.add(shuffled)
        results.append(folded.result())
    first = results[0]
    for other in results[1:]:
        assert other.counts == first.counts
        assert sorted(map(repr, other.found)) == sorted(map(repr, first.found)) or max_found < 100
    return first


def kinds(result: BucketResult) -> dict[Kind, int]:
    return result.counts[0].differences if 0 in result.counts else {}


@pytest.mark.parametrize(
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
    def keyless(kind: EntryKind, key: bytes, times: int = 1) -> list[FoldEntry]:
        return [FoldEntry(0, kind, 0, offset, 0, key, b"") for offset in range(times)]

    equal = [*keyless(EntryKind.ADDED, A, 3), *keyless(EntryKind.REMOVED, A), *keyless(EntryKind.KEYLESS_ROW, A, 2)]
    assert kinds(fold(equal)) == {}
    assert kinds(fold([*equal, *keyless(EntryKind.KEYLESS_ROW, B, 2)])) == {Kind.MISSING: 2}
    assert kinds(fold([*equal, *keyless(EntryKind.ADDED, B, 2)])) == {Kind.GHOST: 2}


@pytest.mark.req("EVT-08")
def test_rows_without_a_key_are_counted_from_their_last_view_on() -> None:
    def event(offset: int, key: bytes, view: bytes = b"", kind: EntryKind = EntryKind.ADDED) -> FoldEntry:
        return FoldEntry(0, kind, 0, offset, 0, key, view)

    kept = [FoldEntry(0, EntryKind.KEYLESS_ROW, 0, 0, 0, A, b"")] * 2
    first, change = [event(1, A, b"5/1"), event(2, A, b"5/1"), event(3, A, b"5/1")], event(5, A, b"", EntryKind.REMOVED)
    second = [event(7, A, b"5/9"), event(8, A, b"5/9")]
    assert kinds(fold([*kept, *first, change])) == {}
    assert kinds(fold([*kept, *first, change, *second])) == {}
    assert kinds(fold([*kept, *first, *second, event(9, A)])) == {Kind.GHOST: 1}
    assert kinds(fold([*kept, *first, *second, second[0]._replace(offset=9)])) == {Kind.GHOST: 1}
    assert kinds(fold([*kept, *first, event(4, B), *second])) == {Kind.GHOST: 1}


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
    assert kinds(fold([row(b"k"), alive(b"k", 1), tombstone(2, partition=1)])) == {}


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
