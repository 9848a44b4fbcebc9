"""The driver of a snapshot: definitions, chunks, the consistent view, and the books."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset, settled_offset
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import new_run
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import SKIPPED
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.config_guard import begin_pinned
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator
from airflow_provider_mysql_cdc.cdc.job.history_guard import history_id_record, require_known_history
from airflow_provider_mysql_cdc.cdc.job.job_ledger import CHUNK_PREFIX, SNAPSHOT_KEY, VIEW_KEY, JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.progress import JobLog
from airflow_provider_mysql_cdc.cdc.job.task_config import sealed_properties
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.job.topic_guard import ready_topics, topic_partitions
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, lowest, order
from airflow_provider_mysql_cdc.cdc.model.stored_record import members
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import (
    Described,
    describe,
    history_records,
    schema_change_records,
    state_of,
)
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import Definitions, captured_tables, guard, read_definitions
from airflow_provider_mysql_cdc.cdc.snapshot import recovery
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import ChunkQueue, ends_of
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    Place,
    done_record,
    forget_chunks,
    gone_record,
    held_back,
    list_chunks,
    listed_chunks,
    rows_by_table,
)
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import Rendezvous, View
from airflow_provider_mysql_cdc.cdc.snapshot.ddl_between import born_unseen
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import Left, PlacedChunk
from airflow_provider_mysql_cdc.cdc.snapshot.resumption import Resumption, require_readable
from airflow_provider_mysql_cdc.cdc.snapshot.same_binlog import offsets_of_views, require_one_binlog
from airflow_provider_mysql_cdc.cdc.snapshot.select import check_override, read_whole
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_task import snapshot_task
from airflow_provider_mysql_cdc.cdc.snapshot.splitter import split
from airflow_provider_mysql_cdc.cdc.snapshot.undrained_changes import require_drained
from airflow_provider_mysql_cdc.cdc.snapshot.view_opener import ViewOpener, ViewUse, lock_seconds, lost

GANG_TIMEOUT_S = 120.0
LOOKS = 5
"""How often tables, definitions and view are looked at anew before the run gives up."""


def run_snapshot(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Take the snapshot the spec asks for, or what is left of it; return records by topic.

    Args:
        spec: The job; its plan has kind ``snapshot``.
        runner: Runs the tasks, all at once.
        log: Takes one line of text.

    Raises:
        CdcError: The snapshot could not be completed; finished chunks are kept and a retry goes on from them.
    """
    cfg, log = ConnectorConfig.from_properties(spec.properties), JobLog(log)
    faults.set_this_driver()
    plan = BatchPlan.from_json(spec.plan)
    with (
        run_lock.held(cfg.connection_settings(), cfg.topic_prefix, spec.owner) as lock,
        JobLedger(cfg, spec.run or new_run()) as job,
    ):
        try:
            with named_errors(cfg):
                rows, offset = _Snapshot(cfg, plan, job, runner, log).run()
        except CdcError as error:
            job.write_outcome(plan, error=error)
            raise
        faults.fault_point("driver.before_outcome")
        lock.require()
        job.write_outcome(plan, counts=rows)
        log(f"snapshot {plan.epoch} done: {sum(rows.values()):,} rows in {len(rows)} topic(s), offset {offset}")
        return rows


@dataclass(slots=True)
class _Snapshot:
    cfg: ConnectorConfig
    plan: BatchPlan
    job: JobLedger
    runner: TaskRunner
    log: JobLog
    run_id: str = field(default_factory=new_run_id)

    def run(self) -> tuple[dict[str, int], BinlogOffset]:
        ledger, self.plan = begin_pinned(self.cfg, self.job, self.plan)
        if ledger.complete():
            self.log(f"snapshot {self.plan.epoch} was completed by another attempt")
            outcome = ledger.outcome or {}
            counts = outcome.get("counts", {}) if outcome.get("epoch") == self.plan.epoch else {}
            return dict(counts), BinlogOffset.from_json((ledger.snapshot or {})["offset"])
        if self._schemas_written(ledger):
            require_known_history(self.cfg, ledger, snapshot=True)
        for _ in range(LOOKS):
            chunks, moved = self._look(ledger)
            if not moved:
                return self._close_books(chunks)
            self.log(f"tables changed before the view stood, so all is looked at anew: {', '.join(moved[:5])}")
        raise StateError(
            "the tables did not keep still long enough to be described and seen at one moment",
            where=", ".join(moved[:5]),
            why=f"captured tables were created, dropped or renamed in each of {LOOKS} tries",
            remedy="run the task again when these statements are over, or leave short-lived tables out of the stream "
            "(table.exclude.list)",
            retriable=True,
        )

    def _look(self, ledger: LedgerState) -> tuple[list[SnapshotChunk], list[str]]:
        """Find the tables, read what is left of them in one view; return the chunks, or what changed meanwhile."""
        with connect(self.cfg.connection_settings()) as conn:
            require_one_binlog(self.cfg, conn, ledger, self.plan.epoch)
            begin, _ = settled_offset(conn, lock_seconds(self.cfg))
            tables = self._tables(conn)
            resumption = self._resumption(conn, ledger, tables)
            left = resumption.until(begin)
            held = list(dict.fromkeys([*tables, *left.sources]))
            if gone := guard(conn, held, lock_seconds(self.cfg)):
                return [], [f"{gone} is gone"]
            # Now nothing of what is left can move any more before the view stands.
            if resumption.until(settled_offset(conn, lock_seconds(self.cfg))[0]) != left:
                return [], ["a table that is not read yet"]
            # The statements are read again under the guard: now they cannot change before the view stands.
            definitions = read_definitions(conn, self.cfg, held)
            state = state_of(definitions)
            require_readable(self.cfg, left, dict(state.tables))
            if recovery.is_recovery(self.cfg) and not self._schemas_written(ledger):
                self.job.require(self.plan)
                recovery.replace_history(self.cfg, self.plan.start, current_offset(conn))
            ready_topics(self.cfg, self.job, self.plan, ledger, state, self.log)
            if self.cfg[F.SNAPSHOT_MODE].rows:
                # One that the registry refuses stops the run here, not after hours of other tables.
                self.job.ready_schemas(state.tables[t] for t in tables if self.cfg.reads_rows(t))
            chunks, places = self._chunks(conn, ledger, {t: state.tables[t] for t in tables})
            waiting = list(left.placed)
            if not self._schemas_written(ledger):
                waiting = [PlacedChunk.at_home(c) for c in chunks]
            self._pass_over(left, resumption.at, ledger)
            if waiting or not self._schemas_written(ledger):
                finished = {c: int(r["rows"]) for c, r in ledger.done_chunks(self.plan.epoch).items()}
                ends = ends_of(conn, chunks, {p.chunk.id: p.source for p in waiting}, state)
                queue = ChunkQueue(waiting, finished, self.log, len(chunks), ends, places)
                return chunks, self._read(queue, chunks, begin, state, definitions, conn, ledger)
        return chunks, []

    def _resumption(self, conn: Any, ledger: LedgerState, tables: list[TableId]) -> Resumption:
        """Return what follows the tables of an interrupted snapshot; of one that begins nothing is left."""
        if not self._schemas_written(ledger):
            return Resumption(self.cfg, conn, [], set(), self.plan.end, tables)
        view = BinlogOffset.from_json(ledger.others[VIEW_KEY]["offset"])
        chunks, _ = self._chunks(conn, ledger, {})
        return Resumption(self.cfg, conn, chunks, set(ledger.done_chunks(self.plan.epoch)), view, tables)

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

    def _chunks(
        self, conn: Any, ledger: LedgerState, tables: dict[TableId, Table]
    ) -> tuple[list[SnapshotChunk], dict[str, Place]]:
        """Return the chunks listed by the first attempt and their places, or plan and list them."""
        if self._schemas_written(ledger):
            return listed_chunks(ledger, self.plan.epoch)
        chunks = []
        for table in tables.values():
            if self.cfg[F.SNAPSHOT_MODE].rows and self.cfg.reads_rows(table.id):
                check_override(self.cfg, conn, table)
                whole = read_whole(self.cfg, table)
                chunks += split(conn, table, self.cfg[F.SNAPSHOT_CHUNK_ROWS], whole=whole)
        places = list_chunks(self.job, self.plan.epoch, chunks)
        faults.fault_point("plan.after_store")
        return chunks, places

    def _pass_over(self, left: Left, here: BinlogOffset, ledger: LedgerState) -> None:
        """Take the chunks of tables that are gone as read in the first view, without rows.

        The drain begins there at the latest, because it tells all of tables that took their names. Of the rows that
        were gone before anybody was shown them it tells nothing: an UPDATE or DELETE of a row that never came has no
        meaning for a consumer.
        """
        for reason in left.reasons:
            self.log(reason)
        if left.over:
            offset = ledger.others[VIEW_KEY]["offset"]
            read = {"offset": offset, "rows": 0}
            self.job.put_all(
                (CHUNK_PREFIX + c.chunk.id, ledger.chunks[c.chunk.id] | read | gone_record(here, c)) for c in left.over
            )

    def _schemas_written(self, ledger: LedgerState) -> bool:
        view = ledger.others.get(VIEW_KEY)
        return view is not None and view["epoch"] == self.plan.epoch

    def _read(
        self,
        queue: ChunkQueue,
        chunks: list[SnapshotChunk],
        begin: BinlogOffset,
        state: SchemaState,
        definitions: Definitions,
        guard_conn: Any,
        ledger: LedgerState,
    ) -> list[str]:
        """Read the waiting chunks in one view; return what made the view useless."""
        wanted = min(self.cfg[F.SNAPSHOT_PARALLELISM], len(queue.waiting))
        slots = self.runner.slots(wanted)
        tasks = max(1, min(wanted or slots, slots, len(queue.waiting)))
        self.job.allow_writers(tasks, ledger)
        self.log(f"snapshot {self.plan.epoch}: {len(queue.waiting)} chunk(s) to read with {tasks} task(s)")
        if tasks < wanted:
            self.log(f"{F.SNAPSHOT_PARALLELISM.name} asks for {wanted} tasks; Spark has {slots} slot(s)")
        rendezvous = Rendezvous(tasks, GANG_TIMEOUT_S)
        sealed, hand_over = sealed_properties(self.cfg)
        coordinator = Coordinator(
            {
                **hand_over,
                **self.job.schemas.handlers(),
                "ready": lambda task, request: rendezvous.arrive(request["stage"], task),
                "opened": lambda task, request: rendezvous.arrive(request["stage"], task),
                "next": queue.next,
                "note": self._note,
                "progress": queue.progress,
                "done": queue.done,
            },
            self.runner.endpoint,
            on_lost=lambda task, cause: rendezvous.fail(cause or lost(task)),
        )
        # Before the view opens: a server may have thousands of tables, and the tasks wait meanwhile.
        described = None if self._schemas_written(ledger) else describe(definitions)
        listed = list(definitions.tables)

        def moved(view: View) -> list[str]:
            names_in = definitions.lower_case_table_names
            if described is not None and self.plan.gapless:
                require_drained(self.cfg, self.plan.start, view.offset)
            return [] if described is None else born_unseen(self.cfg, listed, begin, view.offset, names_in)

        def record(view: View) -> None:
            if described is not None:
                self.write_schemas(view, described, queue.ends[1] == "")

        opener = ViewOpener(self.cfg, rendezvous, listed, guard_conn, ViewUse(moved, record, self.log))
        opener.start()
        arguments = {
            "properties": sealed,
            "plan": self.plan.to_json(),
            "partitions": topic_partitions(self.cfg, {*state.tables, *(p.table for p in queue.waiting)}),
            "run_id": self.run_id,
            "tables": dict(state.tables),
            "address": coordinator.address,
            "token": coordinator.token,
            "driver": faults.driver_pids(),
        }
        try:
            self.runner.run(snapshot_task, tasks, arguments, gang=True)
        except BaseException:
            rendezvous.fail(lost(-1))
            opener.finish()
            raise
        finally:
            coordinator.close()
        opener.finish()
        return opener.moved

    def _note(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take a line of text that the job says once."""
        self.log.once(request["once"])
        return {}

    def _close_books(self, chunks: list[SnapshotChunk]) -> tuple[dict[str, int], BinlogOffset]:
        """Check that every chunk is committed, and write where the drain begins."""
        faults.fault_point("snapshot.before_books")
        ledger = self.job.read()
        done = ledger.done_chunks(self.plan.epoch)
        missing = [c.id for c in chunks if c.id not in done]
        view = ledger.others.get(VIEW_KEY)
        if missing or view is None:
            raise StateError(
                f"{len(missing)} of {len(chunks)} chunks are not committed",
                where=", ".join(missing[:5]),
                remedy="run the task again; it reads only what is missing",
                retriable=True,
            )
        offsets = offsets_of_views(ledger, self.plan.epoch)
        if len(offsets) > 1:
            with connect(self.cfg.connection_settings()) as conn:
                require_one_binlog(self.cfg, conn, ledger, self.plan.epoch)
        first = lowest(offsets)
        repeated = self.plan.gapless
        rows = self._rows(ledger)
        if native := self.job.native.text():
            self.log(f"snapshot {self.plan.epoch}: {native}")
        self.job.put_counted(SNAPSHOT_KEY, done_record(self.plan.epoch, first, repeated=repeated), self.plan, rows)
        later = [r for r in done.values() if order(BinlogOffset.from_json(held_back(r)["offset"]), first) > 0]
        forget_chunks(self.job, ledger, [] if repeated else later)
        return rows, first

    def _rows(self, ledger: LedgerState) -> dict[str, int]:
        """Return the rows of each topic, and those left out; take note of those of each table."""
        counts: dict[str, int] = {}
        tables: dict[str, int] = {}
        for record in ledger.done_chunks(self.plan.epoch).values():
            for table, (rows, left_out) in rows_by_table(record).items():
                topic = wiring.topic_of(self.cfg, table)
                for counted, name, n in (
                    (counts, topic, rows),
                    (counts, topic + SKIPPED, left_out),
                    (tables, table.path(), rows),
                ):
                    if n:
                        counted[name] = counted.get(name, 0) + n
            self.job.note_native(NativeCounts.of_members(members(record)))
        self.job.note_tables(tables)
        return counts

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
        records += [self.job.record(VIEW_KEY, record), history_id_record(cfg, self.job)]
        self.job.commit(records, {wiring.schema_topic(cfg): wiring.headers(cfg, self.run_id)})
