"""The driver of a snapshot: definitions, chunks, the consistent view, and the books."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.pipeline import recovery, runlock, wiring
from airflow_provider_mysql_cdc.cdc.pipeline.batch import topic_partitions
from airflow_provider_mysql_cdc.cdc.pipeline.coordinator import Coordinator
from airflow_provider_mysql_cdc.cdc.pipeline.dead_letter import SKIPPED
from airflow_provider_mysql_cdc.cdc.pipeline.job import CHUNK_PREFIX, SNAPSHOT_KEY, VIEW_KEY, JobLedger
from airflow_provider_mysql_cdc.cdc.pipeline.named import named_errors
from airflow_provider_mysql_cdc.cdc.pipeline.runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.pipeline.snapshot_select import check_override, read_whole
from airflow_provider_mysql_cdc.cdc.pipeline.snapshot_task import snapshot_task
from airflow_provider_mysql_cdc.cdc.pipeline.spec import JobSpec
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import (
    Described,
    describe,
    history_records,
    schema_change_records,
    state_of,
)
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.discover import captured_tables, guard, read_definitions
from airflow_provider_mysql_cdc.cdc.snapshot.splitter import split
from airflow_provider_mysql_cdc.cdc.snapshot.view import Rendezvous, View, open_view
from airflow_provider_mysql_cdc.cdc.state.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.state.plan import BatchPlan

Log = Callable[[str], None]
GANG_TIMEOUT_S = 120.0


@dataclass(slots=True)
class ChunkQueue:
    """Hand out chunks to the tasks and count what they report.

    Args:
        waiting: Chunks nobody reads yet, in the order of the snapshot.
        finished: Rows of chunks that are done, this attempt's and earlier ones'.
        log: Takes one line of text.
        total: Chunks in all.
        ends: Ids of the first chunk of the first table with rows, and of the last chunk of the last one.
    """

    waiting: list[SnapshotChunk]
    finished: dict[str, int]
    log: Log
    total: int = 0
    ends: tuple[str, str] = ("", "")
    _running: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float = field(default_factory=time.monotonic)
    _said: float = 0.0

    def next(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Reply with the next chunk, or with none."""
        with self._lock:
            if not self.waiting:
                return {"chunk": None}
            chunk = self.waiting.pop(0)
            return {
                "chunk": chunk.to_json(),
                "first": chunk.id == self.ends[0],
                "final": chunk.id == self.ends[1],
            }

    def progress(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take a task's count of rows in its chunk."""
        with self._lock:
            self._running[request["chunk"]] = int(request["rows"])
            self._say()
        return {}

    def done(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take note that a chunk is committed."""
        with self._lock:
            self._running.pop(request["chunk"], None)
            self.finished[request["chunk"]] = int(request["rows"])
            self._say()
        return {}

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said < 5.0:
            return
        self._said = now
        rows = sum(self.finished.values()) + sum(self._running.values())
        seconds = max(now - self._began, 0.001)
        done = len(self.finished)
        left = f", about {seconds * (self.total - done) / done:.0f} s left" if done else ""
        self.log(f"snapshot: {rows:,} rows, {rows / seconds:,.0f}/s, {done} of {self.total} chunks{left}")


def run_snapshot(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Take the snapshot the spec asks for, or what is left of it; return rows per chunk.

    Args:
        spec: The job; its plan has kind ``snapshot``.
        runner: Runs the tasks, all at once.
        log: Takes one line of text.

    Raises:
        CdcError: The snapshot could not be completed; finished chunks are kept and a retry goes on from them.
    """
    cfg = ConnectorConfig.from_properties(spec.properties)
    faults.set_this_driver()
    plan = BatchPlan.from_json(spec.plan)
    with connect(cfg.connection_settings()) as conn:
        runlock.acquire(conn, cfg.topic_prefix, spec.owner)
        with JobLedger(cfg) as job:
            try:
                with named_errors(cfg):
                    rows, offset = _Snapshot(cfg, plan, job, runner, log).run()
            except CdcError as error:
                job.write_outcome(plan, error=error)
                raise
            faults.fault_point("driver.before_outcome")
            job.write_outcome(plan, counts=rows)
            log(f"snapshot {plan.epoch} done: {sum(rows.values()):,} rows of {len(rows)} chunk(s), offset {offset}")
            return rows


@dataclass(slots=True)
class _Snapshot:
    cfg: ConnectorConfig
    plan: BatchPlan
    job: JobLedger
    runner: TaskRunner
    log: Log
    run_id: str = field(default_factory=new_run_id)

    def run(self) -> tuple[dict[str, int], BinlogOffset]:
        ledger = self.job.begin(self.plan)
        with connect(self.cfg.connection_settings()) as conn:
            tables = self._tables(conn)
            guard(conn, list(tables), _lock_seconds(self.cfg))
            # The statements are read again under the guard: now they cannot change before the view stands.
            definitions = read_definitions(conn, self.cfg, list(tables))
            state = state_of(definitions)
            if recovery.is_recovery(self.cfg) and not self._schemas_written(ledger):
                recovery.replace_history(self.cfg, self.plan.start, current_offset(conn))
            self.job.ensure_topics(state)
            chunks = self._chunks(conn, ledger, {t: state.tables[t] for t in tables})
            done = {c: r for c, r in ledger.chunks.items() if r["epoch"] == self.plan.epoch}
            left = [c for c in chunks if c.id not in done]
            waiting = [c for c in left if c.table in state.tables]
            self._pass_over([c for c in left if c.table not in state.tables], ledger)
            finished = {c: int(r["rows"]) for c, r in done.items()}
            if waiting or not self._schemas_written(ledger):
                queue = ChunkQueue(
                    waiting,
                    finished,
                    self.log,
                    len(chunks),
                    _ends(conn, [c for c in chunks if c.table in state.tables]),
                )
                self._read(queue, chunks, state, definitions, conn, ledger)
        return self._close_books(chunks)

    def _tables(self, conn: Any) -> list[TableId]:
        tables = captured_tables(conn, self.cfg)
        if not tables:
            raise ConfigError(
                "no table is captured",
                where="table.include.list, database.include.list",
                why="no base table the account can see matches the include and exclude lists",
                remedy="check the lists (regular expressions on database.table) and the account's SELECT grant",
            )
        overrides = self.cfg[F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES]
        for name in sorted(set(overrides) - set(map(str, tables))):
            self.log(f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{name} has no effect: no captured table is {name}")
        return tables

    def _chunks(self, conn: Any, ledger: LedgerState, tables: dict[TableId, Table]) -> list[SnapshotChunk]:
        """Return the chunks planned by the first attempt, or plan them and write the plan down."""
        known = ledger.snapshot or {}
        if known.get("epoch") == self.plan.epoch and known.get("chunks") and self._schemas_written(ledger):
            return [SnapshotChunk.from_json(c) for c in known["chunks"]]
        chunks = []
        for table in tables.values():
            if self.cfg[F.SNAPSHOT_MODE].rows and self.cfg.reads_rows(table.id):
                check_override(self.cfg, conn, table)
                whole = read_whole(self.cfg, table)
                chunks += split(conn, table, self.cfg[F.SNAPSHOT_CHUNK_ROWS], whole=whole)
        self._note_tasks(chunks, 0)
        faults.fault_point("plan.after_store")
        return chunks

    def _pass_over(self, gone: list[SnapshotChunk], ledger: LedgerState) -> None:
        """Take the chunks of tables that were dropped since the first view as read in that view, without rows.

        So nothing filters the events of these tables: the drain produces them as they are, up to the DROP TABLE.
        """
        if gone:
            offset = ledger.others[VIEW_KEY]["offset"]
            records = [
                self.job.record(
                    CHUNK_PREFIX + c.id,
                    {"epoch": self.plan.epoch, "chunk": c.to_json(), "offset": offset, "rows": 0},
                )
                for c in gone
            ]
            self.job.commit(records)
            self.log("dropped since the snapshot began: " + ", ".join(sorted({str(c.table) for c in gone})))

    def _note_tasks(self, chunks: list[SnapshotChunk], tasks: int) -> None:
        """Write down the chunks and how many tasks may have something open, for whoever has to fence them."""
        record = {
            "epoch": self.plan.epoch,
            "status": "planned",
            "chunks": [c.to_json() for c in chunks],
            "tasks": tasks,
        }
        self.job.put(SNAPSHOT_KEY, record)

    def _schemas_written(self, ledger: LedgerState) -> bool:
        view = ledger.others.get(VIEW_KEY)
        return view is not None and view["epoch"] == self.plan.epoch

    def _read(
        self,
        queue: ChunkQueue,
        chunks: list[SnapshotChunk],
        state: Any,
        definitions: Any,
        guard_conn: Any,
        ledger: LedgerState,
    ) -> None:
        wanted = self.cfg[F.SNAPSHOT_PARALLELISM] or self.runner.slots()
        tasks = max(1, min(wanted, self.runner.slots(), len(queue.waiting)))
        self._note_tasks(chunks, max(tasks, int((ledger.snapshot or {}).get("tasks", 0))))
        self.log(f"snapshot {self.plan.epoch}: {len(queue.waiting)} chunk(s) to read with {tasks} task(s)")
        rendezvous = Rendezvous(tasks, GANG_TIMEOUT_S)
        coordinator = Coordinator(
            {
                "ready": lambda task, request: rendezvous.arrive(request["stage"], task),
                "opened": lambda task, request: rendezvous.arrive(request["stage"], task),
                "next": queue.next,
                "progress": queue.progress,
                "done": queue.done,
            },
            self.runner.host,
            on_lost=lambda task, cause: rendezvous.fail(cause or _lost(task)),
        )
        # Before the view opens: a server may have thousands of tables, and the tasks wait meanwhile.
        described = None if self._schemas_written(ledger) else describe(definitions)
        opener = _Opener(self, rendezvous, list(definitions.tables), guard_conn, described, queue.ends[1] == "")
        opener.start()
        arguments = {
            "properties": self.cfg.properties(),
            "plan": self.plan.to_json(),
            "partitions": topic_partitions(self.cfg, state.tables),
            "run_id": self.run_id,
            "tables": dict(state.tables),
            "address": coordinator.address,
            "token": coordinator.token,
            "driver": faults.driver_pids(),
        }
        try:
            self.runner.run(snapshot_task, tasks, arguments, gang=True)
        except BaseException:
            rendezvous.fail(_lost(-1))
            opener.finish()
            raise
        finally:
            coordinator.close()
        opener.finish()

    def _close_books(self, chunks: list[SnapshotChunk]) -> tuple[dict[str, int], BinlogOffset]:
        """Check that every chunk is committed, and write where the drain begins."""
        ledger = self.job.read()
        done = {c: r for c, r in ledger.chunks.items() if r["epoch"] == self.plan.epoch}
        missing = [c.id for c in chunks if c.id not in done]
        view = ledger.others.get(VIEW_KEY)
        if missing or view is None:
            raise StateError(
                f"{len(missing)} of {len(chunks)} chunks are not committed",
                where=", ".join(missing[:5]),
                remedy="run the task again; it reads only what is missing",
                retriable=True,
            )
        offsets = [BinlogOffset.from_json(r["offset"]) for r in done.values()]
        offsets.append(BinlogOffset.from_json(view["offset"]))
        lowest = min(offsets, key=BinlogOffset.key)
        filters = [
            {"chunk": r["chunk"], "offset": r["offset"]}
            for r in done.values()
            if BinlogOffset.from_json(r["offset"]).key() > lowest.key()
        ]
        record = {"epoch": self.plan.epoch, "status": "done", "offset": lowest.to_json(), "filters": filters}
        self.job.put(SNAPSHOT_KEY, record)
        counts = {c: int(r["rows"]) for c, r in done.items()}
        counts |= {c + SKIPPED: int(r["left_out"]) for c, r in done.items() if r.get("left_out")}
        return counts, lowest

    def write_schemas(self, view: View, described: Described, rowless: bool) -> None:
        """Write schema changes and history of the view, once for each snapshot."""
        cfg, plan = self.cfg, self.plan
        records: list[tuple[str, bytes | None, bytes | None]] = []
        offset = view.offset
        if recovery.is_recovery(cfg):
            recovery.require_no_ddl(cfg, plan.start, offset)
            offset = plan.start
        elif cfg[F.INCLUDE_SCHEMA_CHANGES]:
            changes = schema_change_records(cfg, described, offset, view.ts_ms, final=rowless)
            records += [wiring.routed(cfg, *change) for change in changes]
        records += history_records(cfg, described, offset, plan.epoch)
        record = {"epoch": plan.epoch, "offset": offset.to_json(), "ts_ms": view.ts_ms}
        records.append(self.job.record(VIEW_KEY, record))
        self.job.commit(records, {wiring.schema_topic(cfg): wiring.headers(cfg, self.run_id)})


def _lock_seconds(cfg: ConnectorConfig) -> int:
    return max(1, cfg[F.SNAPSHOT_LOCK_TIMEOUT_MS] // 1000)


def _ends(conn: Any, chunks: list[SnapshotChunk]) -> tuple[str, str]:
    """Return the ids of the chunks that hold the snapshot's first and last row.

    The first is the first table's, and no row is marked when that table is empty; the last is that of the last table
    with rows (read from Debezium 3.6.1).
    """

    def filled(table: TableId) -> bool:
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 1")
            return cursor.fetchone() is not None

    last = next((c for c in reversed(chunks) if c.last and filled(c.table)), None)
    return (chunks[0].id if chunks else "", last.id if last else "")


class _Opener(threading.Thread):
    """Open the view beside the running stage: ``runner.run`` blocks the driver's main thread."""

    def __init__(
        self,
        snapshot: _Snapshot,
        rendezvous: Rendezvous,
        tables: list[TableId],
        guard_conn: Any,
        described: Described | None,
        rowless: bool,
    ) -> None:
        super().__init__(name="cdc-view", daemon=True)
        self._s, self._meet = snapshot, rendezvous
        self._tables, self._guard, self._described = tables, guard_conn, described
        self._rowless = rowless
        self._ended = threading.Event()
        self.error: CdcError | None = None

    def run(self) -> None:
        """Open the view, write the schemas, let the tasks go."""
        cfg = self._s.cfg
        try:
            self._meet.wait("ready")
            with named_errors(cfg), connect(cfg.connection_settings()) as conn:
                view, unlock = open_view(
                    conn,
                    self._meet,
                    self._tables,
                    str(cfg[F.SNAPSHOT_LOCKING_MODE]),
                    _lock_seconds(cfg),
                )
                self._guard.rollback()
                self._s.log(f"consistent view at {view.offset}, lock={view.lock}, held {view.locked_ms:.1f} ms")
                faults.fault_point("snapshot.view_open")
                if self._described is not None:
                    self._s.write_schemas(view, self._described, self._rowless)
                stage = self._meet.last_opened()
                self._meet.release(stage, {"offset": view.offset.to_json(), "ts_ms": view.ts_ms})
                self._ended.wait()
                unlock()
        except CdcError as error:
            self.error = error
            self._meet.fail(error)
        except Exception as error:
            self.error = StateError("opening the consistent view failed", why=repr(error), retriable=True)
            self._meet.fail(self.error)

    def finish(self) -> None:
        """End the thread; raise what it met."""
        self._ended.set()
        with contextlib.suppress(RuntimeError):
            self.join(30)
        if self.error is not None:
            raise self.error


def _lost(task: int) -> StateError:
    return StateError(
        f"snapshot task {task} was lost" if task >= 0 else "the snapshot stage failed",
        remedy="run the task again; finished chunks are kept",
        retriable=True,
    )
