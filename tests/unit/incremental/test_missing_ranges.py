"""Keys between key ranges that are done: they are read in parts of the usual size, and no number is given twice."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.incremental import key_range_assignment
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.key_range_assignment import CHUNKS_PER_RANGE, KeyRangeQueue
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import (
    DoneKeyRange,
    KeyRange,
    TableScan,
    advance_cursor,
    missing_ranges,
)
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.table import TableId

T = TableId("d", "t")
SCAN = TableScan(T, "s", 0, "blocking", state="running", columns=("id",), kinds=("SIGNED",), initial=True)
PART = CHUNKS_PER_RANGE  # rows of a key range with chunks of one row


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the keys of the table; a test adds some."""
    found: set[int] = set()

    def find_bound(*_: Any, low: Any, high: Any, skip: int, **__: Any) -> tuple[int] | None:
        inside = sorted(k for k in found if (low is None or k > low[0]) and (high is None or k <= high[0]))
        return (inside[skip],) if skip < len(inside) else None

    monkeypatch.setattr(key_range_assignment, "find_bound", find_bound)
    return found


def done(number: int, low: int | None, high: int | None) -> DoneKeyRange:
    bounds = [None if bound is None else (bound,) for bound in (low, high)]
    return DoneKeyRange(KeyRange(T, 0, number, ("id",), ("SIGNED",), *bounds, final=high is None), 1)


def assigned(*ranges: DoneKeyRange, most: int = 10**6) -> list[KeyRange]:
    """Return the key ranges of one window."""
    state = IncrementalState({0: SCAN}, tuple(ranges)).with_advanced_cursors()
    if state.scans[0].ended:
        return []
    queue = KeyRangeQueue.for_scans(None, state, [state.scans[0]], 1, float("inf"), lambda line: None)
    found: list[KeyRange] = []
    while len(found) < most and (answer := queue.next(0, EMPTY).assigned) is not None:
        found.append(answer.key_range)
    return found


def shown(ranges: list[KeyRange]) -> list[tuple[Any, Any, int]]:
    return [(r.low and r.low[0], r.high and r.high[0], r.number) for r in ranges]


def test_a_gap_is_read_in_parts_of_the_usual_size(keys: set[int]) -> None:
    keys |= set(range(1, 101))
    found = assigned(done(0, None, 10), done(200, 60, None))
    assert shown(found) == [(10, 26, 1), (26, 42, 2), (42, 58, 3), (58, 60, 4)]
    assert not any(part.final for part in found)


def test_the_last_part_ends_where_the_gap_does(keys: set[int]) -> None:
    """The row at its end is the last one of a full part, or no row has the key any more."""
    keys |= set(range(1, 101))
    assert shown(assigned(done(0, None, 10), done(200, 10 + 2 * PART, None))) == [(10, 26, 1), (26, 42, 2)]
    keys -= set(range(27, 101))
    assert shown(assigned(done(0, None, 10), done(200, 60, None))) == [(10, 26, 1), (26, 60, 2)]


def test_a_gap_for_which_one_number_is_left_is_one_part(keys: set[int]) -> None:
    """Key ranges of the usual size leave such gaps, where a task has returned one."""
    keys |= set(range(1, 1001))
    assert shown(assigned(done(0, None, 10), done(2, 900, None))) == [(10, 900, 1)]
    assert shown(assigned(done(0, None, 10), done(3, 900, None))) == [(10, 26, 1), (26, 900, 2)]


def test_a_gap_before_the_first_range_and_several_gaps(keys: set[int]) -> None:
    keys |= set(range(1, 101))
    found = assigned(done(1000, 20, 30), done(3000, 40, None))
    assert shown(found) == [(None, 16, 0), (16, 20, 1), (30, 40, 1001)]


def test_behind_the_last_range_the_table_is_read_to_its_end(keys: set[int]) -> None:
    keys |= set(range(1, 41))
    found = assigned(done(0, None, 10))
    assert shown(found) == [(10, 26, 1), (26, None, 2)]
    assert [r.final for r in found] == [False, True]


@for_each("seed", range(30))
def test_whatever_a_window_leaves_later_ones_read_every_key_once_under_a_number_of_its_own(
    keys: set[int], seed: int
) -> None:
    """Parts are ended in any order, some not at all; rows come and go meanwhile."""
    chance = random.Random(seed)
    keys.clear()
    keys |= set(range(1, 401))
    step = chance.choice([10, 1000, 10**6])
    edges = [None, *(n * 50 for n in range(1, 8)), None]
    chunks = [done(n * step, low, high) for n, (low, high) in enumerate(itertools.pairwise(edges))]
    read = [chunk for chunk in chunks if chance.random() < 0.4]
    for _ in range(200):
        found = assigned(*read, most=chance.randint(1, 6))
        if not found:
            break
        read += [DoneKeyRange(part, 1) for part in found if chance.random() < 0.7]
        keys ^= {chance.randint(1, 400) for _ in range(5)}
        numbers = [d.key_range.number for d in read]
        assert len(numbers) == len(set(numbers))
        in_order = sorted(read, key=lambda d: d.key_range.number)
        lows = [d.key_range.low or (0,) for d in in_order]
        assert lows == sorted(lows), "a higher number has greater keys"
    scan, rest = advance_cursor(SCAN, read)
    assert scan.state == "done" and rest == [] and scan.rows == len(read)
    bounds = [(d.key_range.low, d.key_range.high) for d in sorted(read, key=lambda d: d.key_range.number)]
    assert bounds[0][0] is None and bounds[-1][1] is None
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds)), "without a gap, and without overlap"


def test_parts_that_are_done_survive_the_cursor(keys: set[int]) -> None:
    keys |= set(range(1, 101))
    scan, pending = advance_cursor(SCAN, [done(0, None, 10), done(1, 10, 26), done(3, 42, 58), done(200, 60, None)])
    assert (scan.cursor, scan.next_number, scan.rows) == ((26,), 2, 2)
    assert [d.key_range.number for d in pending] == [3, 200]
    gaps = missing_ranges(scan, pending)
    assert [(m.key_range.low, m.key_range.high, m.key_range.number, m.last_number) for m in gaps] == [
        ((26,), (42,), 2, 2),
        ((58,), (60,), 4, 199),
    ]
