"""Interrupted snapshots and the windows that finish them, as interleavings of attempts (design, sections 4, 6 and 11).

Operators' work, both drivers, tasks, state of scans and queue of key ranges are the product's own code over memory
(``stream_stage``, ``window_stage``); the promises stand in ``snapshot_oracle``. Rows change, keys move and are used
again, and tables are renamed, swapped, dropped, made again, emptied and rebuilt between any two steps. Whatever
happened, undisturbed runs bring each topic to its table. Each protection is also taken away, one at a time, and then
the walks must find a violation. ``MODEL_WALKS`` sets how many interleavings are walked, here, in
test_commit_protocol.py and in test_stream_protocol.py together; ``scripts/model`` walks 100,000.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from first_seeds import WALKS, breaks_a_promise
from kit.cases import for_each
from memo import read_once
from snapshot_interleaving import SnapshotSimulation, random_walk
from snapshot_source import T, U, X
from stream_source import FILE
from stream_stage import ModelRangeWriter, ModelWriter, on_stage
from stream_world import StagedLedger

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.incremental import (
    key_range_reader,
    scan_bounds,
    scan_validity,
    window_driver,
)
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.job import config_guard
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate import interrupted_snapshot
from airflow_provider_mysql_cdc.cdc.snapshot import range_writer, table_lineage

BLOCK_WALKS = WALKS // 5
BLOCKS = 5
LOOKED_FOR = 1000
"""Walks in which a protection that is taken away has to be missed."""


@pytest.fixture(autouse=True)
def stage() -> Iterator[pytest.MonkeyPatch]:
    """Put the product on the stage; return what takes it back."""
    with pytest.MonkeyPatch.context() as patch:
        on_stage(patch)
        read_once(patch)
        yield patch


@pytest.mark.timeout(0 if BLOCK_WALKS > 1500 else 600)
@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_promises_hold_over_many_random_interleavings(block: int) -> None:
    for seed in range(block, BLOCK_WALKS, BLOCKS):
        try:
            random_walk(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def test_a_table_that_is_not_in_the_view_cannot_be_read() -> None:
    """As on a server, which has no such table then, or another definition of it."""
    source = SnapshotSimulation(random.Random(1)).world.source
    server = source.address
    view = BinlogOffset(FILE, server.binlog.place(0), None, server.uuid)
    assert source.rows_at(view, T) == source.now[T].rows
    assert source.create(X)
    with pytest.raises(SchemaMismatchError):
        source.rows_at(view, X)


def test_walks_of_the_suite_hand_snapshots_over_and_finish_them_in_windows() -> None:
    oracles = [random_walk(seed).world.oracle for seed in range(25)]
    assert sum(oracle.handed_over for oracle in oracles) >= 8
    assert sum(oracle.windows for oracle in oracles) >= 12


# -- some interleavings by name ----------------------------------------------------------------------------------------


def interrupted(chunks: int, ranges_per_window: int = 1) -> SnapshotSimulation:
    """Return a snapshot that died when it had read some chunks; t has four of two rows, u another one or two."""
    sim = SnapshotSimulation(random.Random(1))
    source = sim.world.source
    for key in range(8):
        source.change_row(T, key, key)
    sim.start_snapshot(0)
    sim.step_run(-1, 300)
    sim.start_task(0)
    while len(read_chunks(sim)) < chunks:
        sim.step_task(-1, 1)
    sim.stop_all()
    sim.world.ranges_per_window = ranges_per_window
    return sim


def read_chunks(sim: SnapshotSimulation) -> list[str]:
    ledger = sim.world.ledger.peek()
    return [name for name, record in ledger.chunks.items() if "offset" in record]


def run_for_a_while(sim: SnapshotSimulation, steps: int) -> None:
    """Go on with the snapshot for some steps, and end every process."""
    sim.start_snapshot(0)
    for _ in range(steps):
        sim.start_tasks()
        sim.step_all(1)
    sim.stop_all()


@pytest.mark.req("FAULT-01")
@for_each("chunks", range(1, 4))
@for_each("steps", [0, 60, 120, 180, 240, 300])
def test_a_key_that_moves_into_a_chunk_that_was_read_and_is_used_again_is_neither_lost_nor_kept(
    chunks: int, steps: int
) -> None:
    sim = interrupted(chunks)
    source = sim.world.source
    source.change_row(T, 0, None)
    run_for_a_while(sim, steps)
    source.change_row(T, 7, 0)  # from the last chunk into the first
    run_for_a_while(sim, steps)
    source.change_row(T, 7, 7)  # the old key is used again
    source.change_row(T, 6, None)
    run_for_a_while(sim, steps)
    source.change_row(T, 0, 6)  # and back, over another key
    sim.finish()


@for_each("steps", [0, 60, 120, 180, 240, 300])
def test_tables_that_swap_their_names_are_followed_once(steps: int) -> None:
    sim = interrupted(2)
    sim.world.source.rename((T, X), (U, T))
    run_for_a_while(sim, steps)
    sim.world.source.rename((X, U))
    sim.finish()


def test_a_table_is_followed_through_a_name_that_another_one_had_before() -> None:
    sim = interrupted(1)
    source = sim.world.source
    source.drop(U)
    source.rename((T, U))
    run_for_a_while(sim, 40)  # a window has found the new name, and may not have read it
    source.rename((U, X))
    sim.finish()


@for_each("chunks", range(1, 4))
@for_each("steps", range(10, 60, 5))
def test_a_hand_over_that_dies_somewhere_is_made_again(chunks: int, steps: int) -> None:
    sim = interrupted(chunks, 99)
    sim.start_snapshot(0)
    sim.step_run(-1, steps)
    sim.stop_all()
    sim.change_rows(3)
    sim.finish()


# -- without a protection ----------------------------------------------------------------------------------------------


def _handed_over_without_fencing(patch: pytest.MonkeyPatch) -> None:
    begin, fence = interrupted_snapshot.begin_pinned_plan, StagedLedger.fence

    def unfenced(cfg: Any, job: Any, plan: Any) -> Any:
        patch.setattr(StagedLedger, "fence", lambda *_: None)
        try:
            return begin(cfg, job, plan)
        finally:
            patch.setattr(StagedLedger, "fence", fence)

    patch.setattr(interrupted_snapshot, "begin_pinned_plan", unfenced)


def _record_before_the_scans(patch: pytest.MonkeyPatch) -> None:
    changes, delete = interrupted_snapshot.state_changes, interrupted_snapshot.delete_chunk_records
    kept: list[Any] = []

    def later(before: Any, after: Any) -> list[Any]:
        kept[:] = changes(before, after)
        return []

    def write(job: Any, ledger: Any) -> None:
        job.put_all(kept)
        delete(job, ledger)

    patch.setattr(interrupted_snapshot, "state_changes", later)
    patch.setattr(interrupted_snapshot, "delete_chunk_records", write)


def _touched_keys_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(key_range_reader.KeyRangeReader, "_unchanged_rows", lambda *_: range_writer.all_rows)


def _structure_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table_lineage, "_keeps_values", lambda *_: True)


def _renamed_tables_not_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(window_driver, "follow_renamed", lambda state, *_: state)


def _renamed_tables_followed_from_the_view(patch: pytest.MonkeyPatch) -> None:
    follow = window_driver.follow_renamed

    def from_the_view(state: Any, renamed: list[tuple[TableScan, Any]], _: Any) -> Any:
        for scan, name in renamed:
            assert scan.start_offset is not None
            state = follow(state, [(scan, name)], scan.start_offset)
        return state

    patch.setattr(window_driver, "follow_renamed", from_the_view)


def _empty_table_ended_at_once(patch: pytest.MonkeyPatch) -> None:
    begin = scan_bounds.begin_scan

    def ended(conn: Any, scan: TableScan, *given: Any, **named: Any) -> TableScan:
        begun = begin(conn, scan, *given, **named)
        return begun.finish() if begun.columns and begun.last_key is None else begun

    patch.setattr(scan_bounds, "begin_scan", ended)


def _replaced_rows_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scan_validity, "_replaced_tables", lambda _: frozenset())


def _statements_of_a_window_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowKeys, "on_statement", lambda *_: None)


def _restarted_ranges_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(window_driver.IncrementalState, "without_ranges", lambda self, _: self)


def _record_apart_from_its_rows(patch: pytest.MonkeyPatch) -> None:
    commit = range_writer.RangeWriter._commit

    def twice(self: Any, *given: Any) -> None:
        self.sink.commit()
        commit(self, *given)

    patch.setattr(ModelRangeWriter, "_commit", twice)


def _format_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(window_driver, "record_format_digest", lambda _: "")
    patch.setattr(interrupted_snapshot, "record_format_digest", lambda _: "")


def _not_fenced(patch: pytest.MonkeyPatch) -> None:
    def none(self: StagedLedger, writers: Iterable[int | str]) -> None:
        return None

    patch.setattr(StagedLedger, "fence", none)


def _attempts_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerState, "require_plan", lambda *_: None)


def _pins_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(config_guard, "require_same_pins", lambda *_: None)


def _events_of_unread_keys_left_out(patch: pytest.MonkeyPatch) -> None:
    """Leave an event out when a later view or window reads its key: the way before windows read the rest."""
    produce = ModelWriter._produce

    def filtered(self: ModelWriter, change: Any) -> None:
        seen = self.world.oracle.seen  # type: ignore[union-attr]
        read = tuple(r for r in change.records if r[1] in seen.get(r[0], {}) or r[0] not in (T, U))  # type: ignore[call-overload]
        produce(self, replace(change, records=read))

    patch.setattr(ModelWriter, "_produce", filtered)


WITHOUT: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    _handed_over_without_fencing,
    _record_before_the_scans,
    _touched_keys_read,
    _structure_not_compared,
    _renamed_tables_not_followed,
    _renamed_tables_followed_from_the_view,
    _empty_table_ended_at_once,
    _replaced_rows_not_noticed,
    _statements_of_a_window_ignored,
    _restarted_ranges_kept,
    _record_apart_from_its_rows,
    _format_not_compared,
    _not_fenced,
    _attempts_not_compared,
    _pins_not_compared,
    _events_of_unread_keys_left_out,
)
SHOWN_BY = {
    "handed_over_without_fencing": 363,
    "touched_keys_read": 27,
    "structure_not_compared": 19,
    "renamed_tables_followed_from_the_view": 78,
    "empty_table_ended_at_once": 526,
    "replaced_rows_not_noticed": 16,
    "statements_of_a_window_ignored": 128,
    "restarted_ranges_kept": 76,
    "record_apart_from_its_rows": 2,
    "format_not_compared": 77,
    "not_fenced": 48,
    "attempts_not_compared": 16,
    "pins_not_compared": 6,
}
"""Seeds whose walks miss a protection; the others show at once."""


@pytest.mark.parametrize("take_away", WITHOUT, ids=lambda f: f.__name__.strip("_"))
def test_without_a_protection_an_interleaving_finds_a_violation(
    take_away: Callable[[pytest.MonkeyPatch], None], stage: pytest.MonkeyPatch
) -> None:
    take_away(stage)
    shown_by = SHOWN_BY.get(take_away.__name__.strip("_"), 0)
    assert breaks_a_promise(random_walk, shown_by, range(LOOKED_FOR)), f"no promise was broken in {LOOKED_FOR} walks"
