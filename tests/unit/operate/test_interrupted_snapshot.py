"""What becomes of an interrupted snapshot, over the in-memory twins: it is handed over, finished, or begins again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.incremental_rig import unfinished_request
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX, SNAPSHOT_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import interrupted_snapshot as interrupted
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import snapshot_unstarted
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import record_chunks

A, B = TableId("d", "a"), TableId("d", "b")
CHUNKS = [
    SnapshotChunk(table, n, ("id",), (n * 10,) if n else None, None if n else (10,), n == 1, 10, ("SIGNED",))
    for table in (A, B)
    for n in (0, 1)
]
A0, A1, B0, B1 = (chunk.id for chunk in CHUNKS)
OWNER = "dag/run/task/-1"


class Lock:
    """A run lock that is held."""

    def require(self) -> None:
        return None


class Rig:
    """A snapshot that was interrupted.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cfg: ConnectorConfig) -> None:
        self.cfg, self.kafka, self.lines = cfg.of_server("u"), MemoryKafka(), list[str]()
        self.store, self.checked = MemoryOffsetStore(), list[str]()
        self.job = memory_job(monkeypatch, cfg, self.kafka)
        self.obstacle: str | None = None
        batch = replace(plan(writers=1), kind="snapshot")
        self.store.save(StoredState().with_plan(batch), None)
        self.job.begin(batch)
        self.entries = record_chunks(self.job, 1, CHUNKS, {})
        monkeypatch.setattr(interrupted, "connect", lambda settings: contextlib.nullcontext())
        monkeypatch.setattr(interrupted, "watermark_obstacle", lambda conn, cfg: self.obstacle)
        monkeypatch.setattr(interrupted, "require_recorded_history", lambda *_, **__: None)
        monkeypatch.setattr(interrupted, "require_snapshot_binlog", lambda *_: self.checked.append("binlog"))
        monkeypatch.setattr(interrupted, "require_same_snapshot_mode", lambda *_: self.checked.append("mode"))
        monkeypatch.setattr(run_lock, "hold_run_lock", lambda *_: contextlib.nullcontext(Lock()))

    def read(self, *ids: str, view: BinlogOffset | None = END) -> Rig:
        """Write the records of a view and of chunks that were read in it."""
        if view is not None:
            self.job.put(VIEW_KEY, {"epoch": 1, "offset": view.to_json(), "ts_ms": 7})
        for chunk in CHUNKS:
            if chunk.id in ids:
                record = {"chunk": chunk.to_json(), "offset": END.to_json(), "rows": 10, "left_out": 0, "ts_ms": 7}
                self.job.put(CHUNK_PREFIX + chunk.id, {"epoch": 1, **self.entries[chunk.id], **record})
        return self

    def finish(self) -> str | None:
        return interrupted.finish_interrupted(self.cfg, self.store, OWNER, self.lines.append)

    @property
    def ledger(self) -> LedgerState:
        return self.job.read()

    @property
    def scans(self) -> list[tuple[str, str]]:
        state = read_incremental_state(self.ledger).with_advanced_cursors()
        return [(scan.table.table, scan.state) for scan in state.scans.values()]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch, config())


def test_what_is_read_stays_and_the_rest_becomes_scans_of_the_drain(rig: Rig) -> None:
    rig.read(A0)
    assert rig.finish() == "snapshot-1" == unfinished_request(rig.cfg)
    assert rig.checked == ["mode", "binlog"]
    assert rig.scans == [("a", "running"), ("b", "waiting")]
    ledger = rig.ledger
    assert ledger.complete() and ledger.end() == END and ledger.chunks == {}
    stored = rig.store.load()
    assert stored is not None and (stored.committed, stored.pending) == (END, None)
    assert (ledger.outcome or {})["counts"] == {"p.d.a": 10}
    assert "1 of 4 chunks are read" in rig.lines[-1] or any("1 of 4 chunks are read" in line for line in rig.lines)
    assert rig.finish() == "snapshot-1" and rig.scans == [("a", "running"), ("b", "waiting")], "nothing is left to do"


def test_a_snapshot_whose_every_chunk_was_read_is_finished_as_it_is(rig: Rig) -> None:
    rig.read(A0, A1, B0, B1)
    assert rig.finish() is None and rig.scans == []
    assert rig.ledger.end() == END and (rig.ledger.outcome or {})["counts"] == {"p.d.a": 20, "p.d.b": 20}


def test_a_retry_after_the_scans_are_queued_queues_them_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.read(A0)
    real = JobLedger.put_with_counts

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JobLedger, "put_with_counts", die)
    with pytest.raises(KeyboardInterrupt):
        rig.finish()
    assert not rig.ledger.complete() and rig.scans == [("a", "running"), ("b", "waiting")]
    monkeypatch.setattr(JobLedger, "put_with_counts", real)
    assert rig.finish() == "snapshot-1"
    assert rig.scans == [("a", "running"), ("b", "waiting")] and rig.ledger.end() == END


@pytest.mark.parametrize("view", [None, "of another epoch"])
def test_a_snapshot_without_a_view_is_left_to_its_plan(rig: Rig, view: str | None) -> None:
    if view is not None:
        rig.job.put(VIEW_KEY, {"epoch": 7, "offset": END.to_json(), "ts_ms": 7})
    assert rig.finish() is None and rig.scans == [] and len(rig.ledger.chunks) == 4
    assert rig.checked == [] and not rig.ledger.complete()


def test_a_snapshot_whose_binlog_is_gone_is_not_taken_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.read(A0)

    def gone(*_: Any) -> None:
        raise BinlogPurgedError("gone")

    monkeypatch.setattr(interrupted, "require_snapshot_binlog", gone)
    monkeypatch.setattr(run_lock, "hold_run_lock", lambda *_: pytest.fail("no writer is fenced"))
    with pytest.raises(BinlogPurgedError):
        rig.finish()


# -- when it begins again ----------------------------------------------------------------------------------------------


def reason(rig: Rig, *done: str) -> str | None:
    snapshot = interrupted.InterruptedSnapshot(1, tuple(CHUNKS), {id_: {} for id_ in done}, END, "f")
    return interrupted._restart_reason(rig.cfg, snapshot)


@for_each(
    ("properties", "done", "obstacle", "expected"),
    [
        ({}, (A0,), None, None),
        ({}, (A0,), "no GTIDs", None),
        ({}, (), None, "no row of it is committed"),
        ({"snapshot__locking__mode": "extended"}, (A0,), "no GTIDs", None),
        ({"snapshot__locking__mode": "none"}, (A0,), None, None),
        ({"snapshot__locking__mode": "none"}, (A0,), "no GTIDs", "snapshot.locking.mode=none, and no GTIDs"),
        ({"snapshot__mode": "initial_only"}, (A0,), None, "snapshot.mode=initial_only drains no changes"),
        ({"snapshot__mode": "initial_only"}, (), None, "snapshot.mode=initial_only drains no changes"),
    ],
)
def test_a_snapshot_begins_again_where_no_window_can_finish_it(
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    done: tuple[str, ...],
    obstacle: str | None,
    expected: str | None,
) -> None:
    rig = Rig(monkeypatch, config(**properties))
    rig.obstacle = obstacle
    found = reason(rig, *done)
    assert found == expected or (expected is not None and found is not None and found.startswith(expected))


def test_the_server_is_asked_only_where_nothing_is_locked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lock a window needs no watermark."""
    monkeypatch.setattr(interrupted, "connect", lambda settings: pytest.fail("it is not needed"))
    assert reason(rig, A0) is None


def test_without_a_committed_row_it_begins_again(rig: Rig) -> None:
    rig.read()
    assert rig.finish() is None and rig.scans == []
    ledger = rig.ledger
    assert ledger.chunks == {} and VIEW_KEY not in ledger.other_records and ledger.snapshot is None
    assert not ledger.complete() and snapshot_unstarted(ledger.plan_in_force(), ledger)
    assert any("begins again" in line for line in rig.lines)
    assert rig.finish() is None, "its plan is carried out as one that has read nothing"


@for_each(("done", "kept"), [((A0, A1, B0), {A0, A1}), ((A0, B1), set()), ((B0, B1), {B0, B1}), ((), set())])
def test_initial_only_keeps_the_tables_that_were_read_completely(
    monkeypatch: pytest.MonkeyPatch, done: tuple[str, ...], kept: set[str]
) -> None:
    rig = Rig(monkeypatch, config(snapshot__mode="initial_only")).read(*done)
    assert rig.finish() is None and rig.scans == []
    assert set(rig.ledger.chunks) == kept and not rig.ledger.complete()
    assert VIEW_KEY not in rig.ledger.other_records


def test_of_another_mode_nothing_is_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position of the new view is another one, and the stream begins there."""
    rig = Rig(monkeypatch, config(snapshot__locking__mode="none")).read(A0, A1)
    rig.obstacle = "no GTIDs"
    assert rig.finish() is None and rig.ledger.chunks == {}


def test_the_records_view_is_deleted_before_any_chunk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in between, the plan counts as one that has not begun; with chunks missing it could not be finished."""
    rig.read()
    deleted: list[str] = []
    monkeypatch.setattr(JobLedger, "put_all", lambda self, values: deleted.extend(key for key, value in values))
    monkeypatch.setattr(JobLedger, "commit", lambda self, records: deleted.extend(r.key.decode() for r in records))
    interrupted._begin_again(rig.cfg, rig.job, rig.ledger, ())
    assert deleted[:2] == [VIEW_KEY, SNAPSHOT_KEY]
    assert sorted(deleted[2:]) == sorted(CHUNK_PREFIX + chunk.id for chunk in CHUNKS)


def test_no_drain_goes_on_before_a_snapshot_that_is_to_begin(rig: Rig) -> None:
    """A drain would refuse to run before it, so the snapshot that waits for that drain would never come to its end."""
    assert rig.read(A0, A1, B0).finish() is not None
    with JobLedger(rig.cfg) as job:
        job.begin(replace(plan(writers=1), kind="snapshot", epoch=2))
    assert rig.finish() is None
