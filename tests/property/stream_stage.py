"""Put the product's drivers on the stage: what they call of the outside leads into the world of the walk."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import greenlet
import pytest
from stream_oracle import value
from stream_source import Connection, binlog_event
from stream_world import StagedCondition, StagedLock, StagedThread, StagedTime, World
from window_stage import windows

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog import dump, position
from airflow_provider_mysql_cdc.cdc.binlog import file_fingerprint as origin
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import batch_run as one_batch
from airflow_provider_mysql_cdc.cdc.drain import drain_driver, reconnects
from airflow_provider_mysql_cdc.cdc.drain import topic_shares as topics_ahead
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer, WrittenTopics
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import WriterResult
from airflow_provider_mysql_cdc.cdc.drain.failover import failover
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.window_keys import EventRows
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats import record_topics as owner
from airflow_provider_mysql_cdc.cdc.incremental import drain_job, notifications
from airflow_provider_mysql_cdc.cdc.job import job_ledger, run_lock, stage_runner, task_barrier, topic_guard
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint, TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, TaskHandler, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.operate import interrupted_snapshot, moved_batch, reset_offset, source_server
from airflow_provider_mysql_cdc.cdc.operate import prepare_drain as before_drain
from airflow_provider_mysql_cdc.cdc.operate import prepare_job as preparing
from airflow_provider_mysql_cdc.cdc.operate import prepare_snapshot as before_snapshot
from airflow_provider_mysql_cdc.cdc.snapshot import (
    range_writer,
    row_emitter,
    snapshot_driver,
    snapshot_task,
)
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_checks as one_binlog
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import OpenedView, ViewReply

NO_ROWS: Any = None


def salt_of(cfg: ConnectorConfig) -> int:
    """Return what decides how keys look; one of the properties that a plan pins."""
    return int(not cfg[F.TOMBSTONES_ON_DELETE])


def key_of(key: int, salt: int) -> bytes:
    """Return the key of a record."""
    return json.dumps({"id": key, "salt": salt} if salt else {"id": key}).encode()


class ModelWriter:
    """Stand in for a ``DrainWriter``: one row for each transaction, and nothing to decode."""

    world: World

    def __init__(self, context: WriterContext) -> None:
        cfg, plan, index, sink, resume_marker = (
            context.cfg, context.plan, context.index, context.sink, context.resume_marker
        )  # fmt: skip
        self._cfg, self._plan, self._index, self._sink = cfg, plan, index, sink
        assert context.kept is not None
        self._window_keys, self._kept = context.window_keys, context.kept
        self._at = WriterPosition(plan.start, None if resume_marker is None else resume_marker.reached)
        self._counts = WriterCounts.resume(resume_marker, None)
        xa: Any = SimpleNamespace(prepared=(), searched=False)
        side_records: list[SideRecord] = []
        topics = WrittenTopics(cfg, plan, context.recorded_topics, self._counts.by_topic)
        self._shares = TopicShares(cfg, plan, index, side_records, topics.recorded, context.state.tables)
        self._committer = Committer(
            cfg,
            plan,
            index,
            sink,
            self._counts,
            self._at,
            xa=xa,
            progress=lambda _: None,
            topics=topics,
            side_records=side_records,
        )

    def run(self) -> WriterResult:
        plan, at = self._plan, self._at
        stream = self._kept.dump.take(plan.start) or self._open_stream()
        binlog = stream.binlog
        if binlog.end() < plan.end.pos:
            raise StateError("the server sends nothing more", where=str(plan.end), retriable=True)
        for end, change in binlog.between(plan.start.pos, plan.end.pos):
            at.begin(plan.start.file, 1, change.gtid, 0)
            at.add_rows(1)
            self._note(end, change)
            if not (at.resume is not None and at.rows_committed()):
                self._produce(change)
            at.end(plan.start.file, end)
        at.move_to(plan.end.file, plan.end.pos)
        self._committer.finish()
        stream.reached = plan.end.file, plan.end.pos
        self._kept.dump.keep(stream, plan.end)
        return WriterResult(self._counts.by_topic, self.world.source.schema(plan.end))

    def _open_stream(self) -> Any:
        """Stand in for ``open_stream``: the binlog that a server sends from, whatever becomes of its address."""
        plan, settings = self._plan, self._cfg.connection_settings()
        origin.require_same_file(settings, plan.start)
        connection = self.world.source.connect()
        dump.require_same_server(connection, plan.start)
        binlog = connection.server.binlog
        origin.require_creation_time(plan.start, binlog.made)  # as the dump's first event shows it
        return SimpleNamespace(binlog=binlog, reached=None, close=lambda: None)

    def _note(self, end: int, change: Any) -> None:
        """Tell a window of an event, as ``DrainWriter`` does: of each one, whoever produces it."""
        if self._window_keys is None:
            return
        event = binlog_event(end, [key for _, key, _, _ in change.records])
        if change.changed_tables:
            names: Any = [SimpleNamespace(id=table, previous_id=None) for table in change.changed_tables]
            self._window_keys.on_statement(names, event)
        for table in {table for table, *_ in change.records}:
            self._window_keys._decoders[table] = TOUCHED
            self._window_keys.add_rows(table, EventRows(event, 0, 0), event)

    def _produce(self, change: Any) -> None:
        salt = salt_of(self._cfg)
        for table, key, kind, n in change.records:
            if not self._cfg.captures(table):
                continue
            share, name = self._shares.ensure_share(table), key_of(key, salt)
            partition = owner.partition_of(name, share.partitions)
            if partition in share.assigned:
                self._sink.produce(share.topic, name, value(kind, n, self._plan, salt), partition)
                self._counts.add_side_record(share.topic)
        self._committer.after_rows()


def _touch(keys: Iterable[int], _: int, __: int, ___: Any, found: list[Any]) -> None:
    found.extend((key,) for key in keys)


TOUCHED: Any = SimpleNamespace(write=_touch, update=_touch, delete=_touch, partial_update=_touch)
"""Stand in for the decoder of touched keys: the event has them as they are."""


class ModelRangeWriter(range_writer.RangeWriter):
    """Stand in for the reading and producing of a chunk's rows; the rest of the task is the product's."""

    world: World

    def write_rows(self, row_range: range_writer.RowRange, _: dict[str, int]) -> range_writer.RowCounts:
        select, salt, source = row_range.select, salt_of(self.cfg), self.world.source
        table, part = select.table.id, select.sql  # what stands in for ``chunk_sql`` and ``rows_sql`` gives it
        of_snapshot = self.plan.kind == "snapshot"
        with row_range.read_errors():
            rows = source.rows_at(row_range.position().offset, table) if of_snapshot else None
            rows = source.rows_in_view(self.conn, table) if rows is None else rows
        low, high = (part.low or (-1,))[0], (part.high or (99,))[0]
        every = [key for key in rows if int(low) < key <= int(high)]
        keys: Any = select.unchanged_rows(every)  # type: ignore[arg-type]
        route, written = select.make_route(), 0
        for key in keys:
            name = key_of(key, salt)
            partition = owner.partition_of(name, route.partitions)
            self.sink.produce(route.topic, name, value("r", rows[key], self.plan, salt), partition)
            written += 1
        return range_writer.RowCounts(written, 0, len(every) - written)


class Coordinator:
    """Stand in for the coordinator: its address leads to it."""

    token = ""

    def __init__(self, handlers: Iterable[TaskHandler], *_: Any, on_lost: Any = None, **__: Any) -> None:
        self.handlers = {handler.operation: handler for handler in handlers}
        self.on_lost = on_lost
        self.address = (self,)

    def close(self) -> None:
        return None


class Channel:
    """Stand in for ``CoordinatorClient``."""

    def __init__(self, address: tuple[Coordinator], token: str, task: int) -> None:
        self._at, self._task = address[0], task

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if kind is not None and self._at.on_lost is not None:
            self._at.on_lost(self._task, error if isinstance(error, CdcError) else None)

    def call(self, operation: TaskOperation[Any, Any], request: Any) -> Any:
        members = self._at.handlers[operation.name].reply(self._task, request.to_json())
        return operation.reply.from_json(members)


class Meeting(TaskBarrier):
    """Stand in for the barrier: the view opens when the first task asks for it."""

    opener: Opener

    def arrive(self, point: BarrierPoint[Any], task: int) -> Any:
        return self.opener.opened() if point.name == "opened" else EMPTY

    def fail(self, error: Any) -> None:
        return None


class Leader:
    """Stand in for the ``StageLeader`` of a snapshot, whose part ``Opener`` does."""

    error = None

    def __init__(self, _: Any, barrier: Meeting, *__: Any) -> None:
        self.barrier = barrier

    def start(self) -> None:
        return None

    def finish(self) -> None:
        return None


class Opener:
    """Stand in for ``ViewOpener``."""

    def __init__(self, cfg: ConnectorConfig, meeting: Meeting, _: Any, guard_conn: Any, use: Any) -> None:
        self._cfg, self._guard_conn, self._use, self._reply = cfg, guard_conn, use, ViewReply()
        self.changed_tables: list[str] = []
        self._lock = StagedLock(ModelRangeWriter.world.pause)
        meeting.opener = self

    def lead(self, _: Any) -> None:
        return None

    def opened(self) -> ViewReply:
        with self._lock:
            if self._reply.view is None and not self.changed_tables:
                self._open()
            return self._reply

    def _open(self) -> None:
        with snapshot_driver.connect(self._cfg.connection_settings()) as conn:
            view: Any = SimpleNamespace(offset=position.end_of_binlog(conn, self._cfg.connection_settings()), ts_ms=0)
        view.ts_ms = ModelRangeWriter.world.source.now_ms
        self._guard_conn.rollback()
        self.changed_tables = self._use.find_changes(view)
        if not self.changed_tables:
            self._use.record_view(view)
            self._reply = ViewReply(OpenedView(view.offset, view.ts_ms))


class NoLock:
    """Stand in for the run lock: it keeps no second run away, as after a failover."""

    server_uuid = None

    def __enter__(self) -> NoLock:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def require(self) -> None:
        return None

    def release_prefix(self) -> None:
        return None


def require_drained(_: ConnectorConfig, start: BinlogOffset, end: BinlogOffset) -> None:
    """Stand in for the reading of a binlog between two places."""
    if ModelRangeWriter.world.source.life(start).between(start.pos, end.pos):
        raise StateError("a new snapshot would skip changes that are not drained")


def on_stage(patch: pytest.MonkeyPatch) -> None:
    """Lead the product's calls to the outside into ``ModelRangeWriter.world``.

    Args:
        patch: Takes it back.
    """

    _outside(patch)
    _jobs(patch)
    _failovers(patch)
    _snapshot_parts(patch)
    windows(patch, ModelRangeWriter)


def _of_world(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(ModelRangeWriter.world, name)(*args, **kwargs)

    return call


def _of_source(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(ModelRangeWriter.world.source, name)(*args, **kwargs)

    return call


def _nothing(*_: Any, **__: Any) -> Any:
    return ()


def _outside(patch: pytest.MonkeyPatch) -> None:
    """Lead to the world's source, Kafka and ledger."""
    patch.setattr(origin, "read_fingerprint", _of_source("read_origin"))
    # The first connection of a job: what happens before it is no step of the job.
    patch.setattr(source_server, "connect", lambda _: Connection(ModelRangeWriter.world.source.address))
    asking = (preparing, before_drain, before_snapshot, interrupted_snapshot, moved_batch, reset_offset, one_binlog)
    for module in (*asking, one_batch, reconnects, snapshot_driver, snapshot_task):
        patch.setattr(module, "connect", _of_source("connect"))
    patch.setattr(reconnects, "fetch_all", _nothing)  # connections of the model do not break
    for module in (before_drain, moved_batch):
        patch.setattr(module, "require_fit_server", _nothing)  # servers of the model have no filters
    patch.setattr(kafka_clients, "record_writer", _of_world("writer"))
    patch.setattr(kafka_clients, "ledger", lambda _: ModelRangeWriter.world.ledger)
    for module in (job_ledger, topic_guard, topics_ahead):
        patch.setattr(module, "make_admin", _nothing)
    for module in (job_ledger, topics_ahead):
        patch.setattr(module, "ensure_topics", _of_world("create"))
    for module in (topic_guard, topics_ahead):
        patch.setattr(module, "describe_topics", _of_world("describe"), raising=False)
        patch.setattr(module, "describe_created", _of_world("describe_made"), raising=False)
    patch.setattr(topic_guard, "all_partition_counts", _of_world("counts"))
    patch.setattr(topic_guard, "last_offsets_of_topics", _of_world("ends"))


def _search(_: Any, conn: Any, wanted: Any, purged: Any, former_server: str) -> Any:
    """Stand in for the search of a binlog, whose events the model does not have."""
    place, search = ModelRangeWriter.world.source.place_of(conn, wanted, purged)
    return failover._Search(place, place, search, None, {}, search.errant, GtidSet(), GtidSet())


def _with_gtids(conn: Any, _: Any, offset: BinlogOffset) -> BinlogOffset:
    """Stand in for ``requested_position.with_executed_gtids``, which reads events that the model does not have."""
    return replace(offset, gtids=str(conn.server.binlog.executed_at(offset.pos)))


def _failovers(patch: pytest.MonkeyPatch) -> None:
    """Find the place of a GTID set in the model's binlogs; there is no schema history to carry over."""
    patch.setattr(failover, "_search", _search)
    patch.setattr(failover, "read_history", _nothing)
    patch.setattr(notifications, "read_history", lambda _: ModelRangeWriter.world.source.history())
    patch.setattr(reset_offset, "with_executed_gtids", _with_gtids)
    patch.setattr(moved_batch, "fault_point", lambda *_: ModelRangeWriter.world.pause())
    for name in ("check_source", "log_warnings"):
        patch.setattr(moved_batch, name, _nothing)


def _jobs(patch: pytest.MonkeyPatch) -> None:
    """Leave out what is not of the protocol: lock, preflight, schema history, the decoding of rows, sockets."""
    patch.setattr(run_lock, "hold_run_lock", lambda *_: NoLock())
    patch.setattr(job_ledger, "threading", SimpleNamespace(Lock=lambda: StagedLock(ModelRangeWriter.world.pause)))
    for name in ("disable_idle_timeout", "require_no_other_run", "require_sole_run"):
        patch.setattr(run_lock, name, _nothing)
    patch.setattr(before_drain, "require_history", _nothing)
    for module in (before_drain, before_snapshot):
        for name in ("check_source", "log_warnings", "topic_warnings", "require_durable_topics"):
            patch.setattr(module, name, _nothing)
        for name in ("require_own_history", "require_new_history", "captured_tables"):
            patch.setattr(module, name, _nothing)
    patch.setattr(reset_offset, "history_covers", lambda *_: True)
    patch.setattr(one_batch, "load_schema_state", lambda *_, until, **__: ModelRangeWriter.world.source.schema(until))
    patch.setattr(interrupted_snapshot, "require_recorded_history", _nothing)
    patch.setattr(drain_driver, "server_variables", _nothing)
    patch.setattr(drain_driver, "describe_if_due", _nothing)
    patch.setattr(drain_driver, "check_structures", _nothing)
    for name in ("record_history_id", "require_recorded_history", "history_end"):
        patch.setattr(one_batch, name, _nothing)
    patch.setattr(reset_offset, "history_difference", _nothing)
    patch.setattr(one_batch, "create_writer", ModelWriter)
    patch.setattr(ConnectorConfig, "properties", lambda self: self.of_server(None))  # made once, and used again
    for module in (drain_driver, snapshot_driver, drain_job):
        patch.setattr(module, "ConnectorConfig", SimpleNamespace(from_properties=lambda given: given))
    patch.setattr(stage_runner, "Coordinator", Coordinator)
    patch.setattr(stage_runner, "CoordinatorClient", Channel)
    threads = SimpleNamespace(Condition=lambda: StagedCondition(ModelRangeWriter.world.pause), Thread=StagedThread)
    patch.setattr(task_barrier, "threading", threads)
    close_stage = task_barrier.LivingStage.close
    patch.setattr(task_barrier.LivingStage, "close", lambda stage: None if _is_killed() else close_stage(stage))
    patch.setattr(drain_driver, "time", _StagedTimes())
    # The encryption has tests of its own (unit/job/test_properties_encryption.py).
    patch.setattr(stage_runner, "encrypted_properties", lambda cfg: (cfg, TaskHandler("key", lambda *_: {})))
    patch.setattr(stage_runner, "load_task_config", lambda channel, properties: properties)


def _is_killed() -> bool:
    """Return whether a process is being ended, which tells nobody."""
    return isinstance(sys.exception(), greenlet.GreenletExit)


class _StagedTimes:
    """Stand in for ``time``: each driver has its own."""

    def __init__(self) -> None:
        self._times: WeakKeyDictionary[Any, StagedTime] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        times = self._times.setdefault(greenlet.getcurrent(), StagedTime(ModelRangeWriter.world.pause))
        return getattr(times, name)


def _route(cfg: ConnectorConfig, _: Any, table: Table, partitions: int, **__: Any) -> row_emitter.SnapshotRoute:
    return row_emitter.SnapshotRoute(record_topics.table_topic_name(cfg, table.id), partitions, NO_ROWS, NO_ROWS)


def _snapshot_parts(patch: pytest.MonkeyPatch) -> None:
    """Leave out of a snapshot what reads tables, definitions and statements."""
    for module in (before_snapshot, snapshot_driver):
        patch.setattr(module, "require_drained", require_drained)
    patch.setattr(snapshot_task, "RangeWriter", ModelRangeWriter)
    patch.setattr(snapshot_task, "chunk_sql", lambda *given: given[3])
    patch.setattr(faults, "fault_point", lambda *_: ModelRangeWriter.world.pause())
    patch.setattr(snapshot_task, "make_snapshot_route", _route)
    patch.setattr(snapshot_driver, "TaskBarrier", Meeting)
    patch.setattr(snapshot_driver, "StageLeader", Leader)
    patch.setattr(snapshot_driver, "ViewOpener", Opener)
    patch.setattr(snapshot_driver, "history_id_record", lambda *_: SideRecord("history", b"", b""))
    for name in (
        "build_snapshot_schema",
        "history_records",
        "check_override",
        "require_own_history",
        "require_first_in_history",
        "wait_for_next_second",
    ):
        patch.setattr(snapshot_driver, name, _nothing)
    patch.setattr(snapshot_driver, "lock_metadata", _lock)
    patch.setattr(snapshot_task, "hold_tables", _lock)
    patch.setattr(snapshot_driver, "tables_created_since", _created)
    patch.setattr(snapshot_driver, "captured_tables", lambda _, cfg: _captured(cfg))
    patch.setattr(snapshot_driver, "read_definitions", lambda _, __, tables, ___: _definitions(tables))
    patch.setattr(snapshot_driver, "captured_state", lambda found: found.state)
    patch.setattr(snapshot_driver, "split_table", lambda _, table, *__, **___: _of_source("split")(table.id))


def _captured(cfg: ConnectorConfig) -> list[TableId]:
    return [table for table in ModelRangeWriter.world.source.schema().tables if cfg.captures(table)]


def _definitions(tables: list[TableId]) -> Any:
    state = ModelRangeWriter.world.source.schema()
    return SimpleNamespace(tables=dict.fromkeys(tables, ""), lower_case_table_names=0, state=state)


def _lock(conn: Any, tables: Iterable[TableId], _: int = 0) -> TableId | None:
    for table in tables:
        ModelRangeWriter.world.source.lock(conn, table)
    return None


def _created(cfg: ConnectorConfig, listed: list[TableId], *_: Any) -> list[str]:
    return [str(table) for table in _captured(cfg) if table not in listed]
