"""Put the windows of the drain on the stage: driver, tasks, queue of key ranges and state are the product's own code.

Stand-ins: the wait at a barrier, the search for bounds, the reading of rows, the schema history, the low watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from stream_world import StagedLock

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.incremental import (
    drain_job,
    key_range_assignment,
    key_range_metrics,
    key_range_reader,
    scan_bounds,
    scan_validity,
    signal_processor,
    window_driver,
    window_task,
)
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.key_range_assignment import KeyRangeQueue
from airflow_provider_mysql_cdc.cdc.incremental.notifications import state_records
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import TableUnreadable
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import LowWatermark
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import NextKeyRange
from airflow_provider_mysql_cdc.cdc.job import stage_runner
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.operate import prepare_drain
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import SnapshotRoute

RANGE_ROWS = 2
"""Rows of a key range."""


@dataclass(frozen=True, slots=True)
class Part:
    """Stand in for the SELECT of a key range.

    Args:
        low: Exclusive lower bound.
        high: Inclusive upper bound.
    """

    low: Bound | None
    high: Bound | None


class _Condition:
    """Stand in for the barrier's condition: whoever waits lets others go on."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause

    def __enter__(self) -> _Condition:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def notify_all(self) -> None:
        """Do nothing: who waits looks itself."""

    def wait_for(self, holds: Callable[[], bool], _: float | None = None) -> bool:
        """Let others go on until it holds."""
        while not holds():
            self._pause()
        return True


def windows(patch: pytest.MonkeyPatch, stage: Any) -> None:
    """Lead the windows' calls to the outside into ``stage.world``.

    Args:
        patch: Takes it back.
        stage: Has the world.
    """

    def barrier(tasks: int, timeout_s: float) -> TaskBarrier:
        made = TaskBarrier(tasks, timeout_s)
        made._cond = _Condition(stage.world.pause)  # type: ignore[assignment]
        return made

    class Leader(stage_runner.StageLeader):
        """The product's leader; the runner of the stage runs it."""

        def start(self) -> None:
            stage.world.lead(self)

        def finish(self) -> None:
            return None

    patch.setattr(window_driver, "TaskBarrier", barrier)
    patch.setattr(window_driver, "StageLeader", Leader)
    for name in ("require_recorded_history", "server_variables"):
        patch.setattr(window_driver, name, lambda *_: {})
    patch.setattr(window_driver, "needs_lock", lambda *_: False)
    _source(patch, stage)
    _reader(patch)
    for module in (prepare_drain, signal_processor):
        patch.setattr(module, "has_new_signals", lambda *_: False, raising=False)
    patch.setattr(drain_job, "process_signals", _without_signals)


def _without_signals(cfg: ConnectorConfig, conn: Any, job: Any, ledger: Any, *_: Any) -> tuple[Any, bool]:
    """Return the state after no signal, as it is stored then."""
    before = read_incremental_state(ledger)
    after = before.with_advanced_cursors()
    if records := state_records(cfg, job, before, after, []):
        job.commit(records)
    return after, False


def _source(patch: pytest.MonkeyPatch, stage: Any) -> None:
    """Lead to the world's source: schema history, watermark, views, bounds."""

    def load(_: ConnectorConfig, *, until: BinlogOffset, on_record: Callable[[Any], None], **__: Any) -> SchemaState:
        stage.world.pause()
        for record in stage.world.source.history():
            on_record(record)
        found: SchemaState = stage.world.source.schema(until)
        return found

    @contextmanager
    def low_watermark(_: Any, conn: Any, *__: Any, **___: Any) -> Iterator[LowWatermark]:
        stage.world.pause()
        yield LowWatermark(window_driver_offset(conn), None)

    def touch(conn: Any, sql: str, _: str) -> tuple[()]:
        stage.world.pause()
        db, table = sql.split("`")[1:4:2]
        stage.world.source.lock(conn, TableId(db, table))
        return ()

    def find_bound(conn: Any, table: TableId, columns: tuple[str, ...], _: Any, **given: Any) -> Bound | None:
        stage.world.pause()
        rows = stage.world.source.rows_now(table, columns)
        if rows is None:
            raise TableUnreadable("no such table or column", transient=True)
        low, high = (given.get("low") or (-1,))[0], (given.get("high") or (99,))[0]
        keys = sorted(key for key in rows if low < key <= high)[given.get("skip", 0) :]
        return None if not keys else (keys[-1] if given.get("last") else keys[0],)

    def next_range(self: KeyRangeQueue, task: int, request: Any) -> NextKeyRange:
        given = getattr(stage.world, "given", (None, 0))
        count = given[1] if given[0] is self else 0
        if count >= stage.world.ranges_per_window:  # the window's time is over
            return NextKeyRange()
        stage.world.given = self, count + 1
        return assign(self, task, request)

    assign = KeyRangeQueue.next
    patch.setattr(KeyRangeQueue, "next", next_range)
    patch.setattr(window_driver, "load_schema_state", load)
    patch.setattr(window_driver, "low_watermark", low_watermark)
    patch.setattr(window_task, "connect", lambda *_, **__: stage.world.source.connect())
    patch.setattr(window_task, "stream_rows", touch)
    patch.setattr(key_range_assignment, "find_bound", find_bound)
    patch.setattr(scan_bounds, "find_bound", find_bound)
    patch.setattr(key_range_metrics, "find_bound", lambda *_: None)  # for the metrics alone
    patch.setattr(scan_bounds, "table_exists", lambda _, table: stage.world.source.rows_now(table, ()) is not None)
    patch.setattr(key_range_assignment, "CHUNKS_PER_RANGE", 1)
    for_scans = KeyRangeQueue.for_scans

    def small_ranges(conn: Any, state: Any, scans: Any, _: int, deadline: float, log: Any) -> KeyRangeQueue:
        queue = for_scans(conn, state, scans, RANGE_ROWS, deadline, log)
        queue._lock = StagedLock(stage.world.pause)  # type: ignore[assignment]
        return queue

    patch.setattr(KeyRangeQueue, "for_scans", small_ranges)
    patch.setattr(key_range_reader, "RangeWriter", stage)


def window_driver_offset(conn: Any) -> BinlogOffset:
    """Return the end of the binlog, which every view that is opened later contains."""
    server = conn.server
    return BinlogOffset("binlog.000001", server.binlog.end(), str(server.executed), server.uuid)


def _reader(patch: pytest.MonkeyPatch) -> None:
    """Leave out of a task what makes records of rows."""

    def untouched(keys: Iterable[int], _: Any, touched: set[int], *_unwritten: Any) -> list[int]:
        return [key for key in keys if key not in touched]

    def compile_table(self: key_range_reader.KeyRangeReader, table: Table) -> Any:
        topic = key_range_reader.record_topics.table_topic_name(self.cfg, table.id)
        partitions = self.plan.partitions.get(topic)
        if partitions is None:
            raise key_range_reader.RangeUnreadable("its topic was created during this batch")
        route: Any = SnapshotRoute(topic, partitions, None, None)  # type: ignore[arg-type]
        return key_range_reader.CompiledTable(table, table.columns, route, object())  # type: ignore[arg-type]

    patch.setattr(key_range_reader, "untouched_rows", untouched)
    patch.setattr(key_range_reader, "range_condition", lambda _, __, low, high, ___: Part(low, high))
    patch.setattr(key_range_reader, "rows_sql", lambda _, __, part, ___: part)
    patch.setattr(key_range_reader, "override_sql", lambda *_: None)
    patch.setattr(key_range_reader.KeyRangeReader, "_compile_table", compile_table)
    patch.setattr(WindowKeys, "prepare_table", lambda *_: None)
    patch.setattr(scan_validity, "statement_effects", _remembered(scan_validity.statement_effects))


def _remembered(effects: Callable[..., Any]) -> Callable[..., Any]:
    seen: dict[str, Any] = {}

    def once(sql: str, context: Any) -> Any:
        if sql not in seen:
            seen[sql] = effects(sql, context)
        return seen[sql]

    return once
