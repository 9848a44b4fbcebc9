"""The state of ad-hoc snapshots under any order of key ranges, crashes and signals: every key is read, none twice."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    done_range_key,
    read_incremental_state,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, queue_scans, set_paused, stop_scans
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import (
    DoneKeyRange,
    KeyRange,
    MissingRange,
    TableScan,
    advance_cursor,
    missing_ranges,
)
from airflow_provider_mysql_cdc.cdc.model.table import TableId

TABLE = TableId("shop", "orders")
LAST = 60


def scan_of(last: int = LAST, order: int = 0) -> TableScan:
    return TableScan(TABLE, "s", order).begin(("id",), ("SIGNED",), (last,), 1)


def written(
    books: IncrementalState, before: IncrementalState | None = None, ledger: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the ledger's other records behind a step, by way of JSON."""
    held = dict(ledger or {})
    for key, value in state_changes(before or IncrementalState(), books):
        if value is None:
            held.pop(key, None)
        else:
            held[key] = json.loads(json.dumps(value))
    return held


def read_back(records: dict[str, Any]) -> IncrementalState:
    return read_incremental_state(LedgerState(other_records=records))


def parts(draw: st.DataObject, missing: MissingRange) -> list[KeyRange]:
    """Cut a missing range into parts, as a window does where the chunk of a snapshot's view has many rows."""
    rest, cut = missing.key_range, list[KeyRange]()
    assert rest.high is not None
    while rest.number < missing.last_number and draw.draw(st.booleans(), "whether it is cut"):
        low, high = (int(rest.low[0]) if rest.low else 0), int(rest.high[0])
        if high - low < 2:
            break
        middle = (draw.draw(st.integers(low + 1, high - 1), "where it is cut"),)
        cut.append(replace(rest, high=middle))
        rest = replace(rest, number=rest.number + 1, low=middle)
    return [*cut, rest]


class Reader:
    """Read a table's keys in key ranges as windows do, with whatever the ledger holds when one begins."""

    def __init__(self, last: int) -> None:
        self.records = written(IncrementalState().with_scans([scan_of(last)]))
        self.read: list[int] = []

    def round(self, draw: st.DataObject, last: int) -> None:
        """Give out gaps and what lies behind; some key ranges are done, in any order, the state may stay."""
        before = read_back(self.records)
        folded = before.with_advanced_cursors()
        self.records = written(folded, before, self.records)
        scan = folded.scans[0]
        if scan.ended:
            return
        behind = folded.done_ranges_of(0)
        given_out = [part for missing in missing_ranges(scan, behind) for part in parts(draw, missing)]
        end = behind[-1].key_range if behind else None
        low, number = (end.high, end.number + 1) if end else (scan.cursor, scan.next_number)
        size = draw.draw(st.integers(1, 20), "rows of a stretch")
        while end is None or not end.final:
            top = min(last, (int(low[0]) if low else 0) + size)
            end = KeyRange(TABLE, 0, number, ("id",), ("SIGNED",), low, (top,), top == last)
            given_out.append(end)
            low, number = end.high, number + draw.draw(st.sampled_from([1, 4]), "numbers that fit between")
        done = draw.draw(st.lists(st.sampled_from(given_out), unique=True), "stretches that are done")
        for stretch in done:
            first, top = stretch.low[0] if stretch.low else 0, stretch.high[0] if stretch.high else last
            self.read += range(int(first) + 1, int(top) + 1)
            assert done_range_key(stretch) not in self.records, "the record of a stretch that is done is written over"
            self.records[done_range_key(stretch)] = json.loads(json.dumps(DoneKeyRange(stretch, 1).to_json()))
        if draw.draw(st.booleans(), "whether the driver closes the books"):
            before = read_back(self.records)
            self.records = written(before.with_advanced_cursors(), before, self.records)


@pytest.mark.req("INC-09", "INC-17", "INC-19")
@given(st.data(), st.integers(1, LAST))
def test_every_key_is_read_once_whatever_is_done_in_which_order(draw: st.DataObject, last: int) -> None:
    reader = Reader(last)
    for _ in range(6):
        reader.round(draw, last)
        scan = read_back(reader.records).with_advanced_cursors().scans[0]
        cursor = int(scan.cursor[0]) if scan.cursor else 0
        assert set(range(1, cursor + 1)) <= set(reader.read), "the cursor passed a key that nobody read"
        assert scan.ended == (set(reader.read) == set(range(1, last + 1)))
        assert len(reader.read) == len(set(reader.read)), "a key was read twice"
    assert set(reader.read) <= set(range(1, last + 1))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_gaps_are_exactly_what_is_missing(sizes: list[int], draw: st.DataObject) -> None:
    bounds = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    all_of_it = [
        KeyRange(TABLE, 0, n, ("id",), ("SIGNED",), (low,) if n else None, (high,), high == bounds[-1])
        for n, (low, high) in enumerate(itertools.pairwise(bounds))
    ]
    done = draw.draw(st.lists(st.sampled_from(all_of_it), unique=True))
    scan, rest = advance_cursor(scan_of(bounds[-1]), [DoneKeyRange(s, 1) for s in draw.draw(st.permutations(done))])
    keys = {k for s in done for k in range((s.low or (0,))[0] + 1, s.high[0] + 1)}  # type: ignore[index, operator]
    gaps = [gap.key_range for gap in missing_ranges(scan, rest)]
    open_keys = [k for s in gaps for k in range((s.low or (0,))[0] + 1, s.high[0] + 1)]  # type: ignore[index, operator]
    top = max(keys, default=0)
    assert open_keys == sorted(set(range(1, top + 1)) - keys)
    assert scan.rows + len(rest) == len(done)
    assert not any(gap.final for gap in gaps)


def test_key_ranges_of_another_scan_or_cut_by_another_key_move_no_cursor() -> None:
    theirs = KeyRange(TABLE, 7, 0, ("id",), ("SIGNED",), None, (5,), True)
    other = replace(theirs, scan_number=0, kinds=("UNSIGNED",))
    scan, rest = advance_cursor(scan_of(), [DoneKeyRange(theirs, 1), DoneKeyRange(other, 1)])
    assert (scan, rest) == (scan_of(), [])


# -- the records -------------------------------------------------------------------------------------------------------

KEYS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=8).filter(lambda t: t.isprintable()))


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=9), st.sampled_from(["incremental", "blocking"])), max_size=5),
    st.booleans(),
)
def test_state_is_read_as_it_was_written(asked: list[tuple[str, Any]], paused: bool) -> None:
    books = IncrementalState()
    for name, kind in asked:
        books = queue_scans(
            books, SnapshotRequest(name, kind, [TABLE, TableId("shop", name)], {TABLE: "v > '\\'"}, "v"), 5
        )
    books = set_paused(books, paused=paused)
    assert read_back(written(books)) == books
    assert state_changes(books, books) == []


def test_no_record_grows_with_tables_and_key_ranges() -> None:
    tables = [TableId("shop", f"orders_{n}" + "x" * 40) for n in range(1000)]
    books = queue_scans(IncrementalState(), SnapshotRequest("all", "incremental", tables, {}), 5)
    wide = tuple(f"column_{n}" for n in range(16))
    begun = [
        s.begin(wide, ("utf8mb4 utf8mb4_0900_ai_ci",) * 16, ("\u20ac" * 190,) * 16, 1) for s in books.scans.values()
    ]
    books = books.with_scans(begun)
    done = [
        DoneKeyRange(
            KeyRange(begun[0].table, 0, n, wide, begun[0].kinds, begun[0].last_key, begun[0].last_key, False), 1
        )
        for n in range(1, 10_001)
    ]
    records = [
        json.dumps(value) for _, value in state_changes(IncrementalState(), replace(books, done_ranges=tuple(done)))
    ]
    assert len(records) == 1000 + 10_000 + 2
    assert max(map(len, records)) < 1_000_000 // 8


@given(st.data())
def test_a_record_with_one_member_spoiled_is_refused_or_harmless(draw: st.DataObject) -> None:
    record = json.loads(json.dumps(scan_of().to_json()))
    name = draw.draw(st.sampled_from(sorted(record)))
    record[name] = draw.draw(st.sampled_from([None, True, -1, "x", 1.5, [], {}, ["a", 1], "DROP TABLE t"]))
    try:
        scan = TableScan.from_json(record)
    except DamagedRecordError:
        return
    assert len(scan.columns) == len(scan.kinds)
    assert scan.kinds in ((), ("SIGNED",))
    assert TableScan.from_json(json.loads(json.dumps(scan.to_json()))) == scan


def test_a_lost_state_record_gives_no_scan_the_number_of_another() -> None:
    books = queue_scans(IncrementalState(), SnapshotRequest("a", "incremental", [TABLE, TableId("shop", "b")], {}), 5)
    records = written(books)
    records[done_range_key(KeyRange(TABLE, 6, 0))] = DoneKeyRange(KeyRange(TABLE, 6, 0), 1).to_json()
    del records["incremental/state"]
    again = queue_scans(read_back(records), SnapshotRequest("b", "incremental", [TABLE], {}), 6)
    assert sorted(again.scans) == [0, 1, 7]


# -- what signals ask for ----------------------------------------------------------------------------------------------


def test_the_same_id_again_asks_for_nothing() -> None:
    once = queue_scans(IncrementalState(), SnapshotRequest("a", "incremental", [TABLE], {}), 5)
    assert queue_scans(once, SnapshotRequest("a", "blocking", [TableId("shop", "b")], {}), 6) == once


def test_a_request_is_remembered_as_long_as_a_scan_of_it_is_left() -> None:
    books = IncrementalState()
    for n in range(1500):
        books = queue_scans(books, SnapshotRequest(f"r{n}", "incremental", [TABLE], {}), n)
    assert len(books.requests) == 1500
    books = queue_scans(stop_scans(books, None), SnapshotRequest("last", "incremental", [TABLE], {}), 5000)
    assert len(books.requests) == 1000
    assert "last" in books.requests


@given(st.lists(st.sampled_from(["ask", "stop one", "stop", "pause", "resume"]), max_size=12))
def test_stops_and_pauses_leave_no_scan_half(steps: list[str]) -> None:
    books, other = IncrementalState(), TableId("shop", "b")
    for n, step in enumerate(steps):
        books = {
            "ask": lambda b, n=n: queue_scans(b, SnapshotRequest(f"r{n}", "incremental", [TABLE, other], {}), n),
            "stop one": lambda b: stop_scans(b, [TABLE]),
            "stop": lambda b: stop_scans(b, None),
            "pause": lambda b: set_paused(b, paused=True),
            "resume": lambda b: set_paused(b, paused=False),
        }[step](books)
        if step.startswith("stop"):
            assert all(scan.table == other for scan in books.active_scans)
        assert not (books.paused and books.runnable_scans)
        assert read_back(written(books)) == books
