"""The driver of a round: one batch of the drain, with stretches of tables read behind its end.

A round is an ordinary batch in the commit protocol's sense: it is complete when all its writers stand at its end, and a
retry finishes it without reading any stretch. What is read behind its end is committed stretch by stretch, each with
its own record, by writers that whoever comes next fences first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_round
from airflow_provider_mysql_cdc.cdc.drain.batch_run import BegunBatch, begin_batch, finish_batch
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import filters_in_force
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.incremental import notifications as notices
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import Books, books_of
from airflow_provider_mysql_cdc.cdc.incremental.key_range_queue import HOLD_S, StretchQueue, going_on
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import Basis, form_of
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import book_records
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import NoWatermark, take_high, take_low
from airflow_provider_mysql_cdc.cdc.incremental.window_task import round_task
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator
from airflow_provider_mysql_cdc.cdc.job.history_guard import require_known_history
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.progress import DrainProgress, JobLog
from airflow_provider_mysql_cdc.cdc.job.task_config import sealed_properties
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.schema.history import load_state
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import finished_chunks
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import Rendezvous
from airflow_provider_mysql_cdc.cdc.snapshot.view_opener import lost

Known = tuple[SchemaState, list[dict[str, Any]]]
"""Table structures and filters as of the batch's start."""
Wanted = tuple[list[TableScan], Basis]
"""The scans of a round, and what they rest on."""
TABLES_AT_ONCE = 100
"""Scans that one round works on; each task holds their tables while it lasts."""
READING_S = 10.0
"""Seconds after which a round gives out no more stretches, so that the stream goes on; blocking ones end otherwise."""
GANG_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """Say how a round ended.

    Args:
        counts: Records by topic.
        stretches: Number of stretches read.
        why: Why nothing could be read; empty when something was.
        blocked: Orders of scans that could not go on.
    """

    counts: dict[str, int]
    stretches: int
    why: str = ""
    blocked: frozenset[int] = frozenset()


@dataclass(slots=True)
class Round:
    """Carry out one round.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger.
        runner: Runs the tasks.
        owner: Who runs.
        log: The job's log.
        weights: Records per topic in earlier batches.
        late: Orders of scans that could not go on in the rounds before; the others come first.
    """

    cfg: ConnectorConfig
    conn: Any
    job: JobLedger
    runner: TaskRunner
    owner: str
    log: JobLog
    weights: dict[str, int] = field(default_factory=dict)
    late: frozenset[int] = frozenset()
    _begun: BegunBatch | None = None
    _progress: DrainProgress | None = None
    _queue: StretchQueue | None = None
    _why: str = ""
    _waiting: dict[int, str] = field(default_factory=dict)

    def run(self, ledger: LedgerState, books: Books) -> RoundEnd:
        """Run the round; the ledger's last batch is complete.

        Args:
            ledger: The ledger.
            books: Its books, folded; they have work.

        Raises:
            CdcError: The round failed; the outcome record says so when its batch was in force.
        """
        try:
            with named_errors(self.cfg):
                return self._run(ledger, books)
        except CdcError as error:
            if self._begun is not None:
                self.job.write_outcome(self._begun.plan, error=error)
            raise

    def _run(self, ledger: LedgerState, books: Books) -> RoundEnd:
        start, last = ledger.end(), ledger.plan_in_force()
        if start is None:
            raise StateError("a round cannot begin inside a batch", where=f"epoch {last.epoch}", retriable=True)
        scans = chosen(books.work, self.late)
        require_known_history(self.cfg, ledger)
        basis = Basis(start, form_of(self.cfg), scans)
        # Scans that go on look at the whole history; where all of them begin, what the job has read of it is enough.
        kept = None if basis.scans else self.job.history
        state = load_state(self.cfg, until=start, epoch=last.epoch + 1, look=basis.look, kept=kept)
        filters = filters_in_force(self.cfg, self.conn, finished_chunks(ledger), start, self.log)
        tasks = self._tasks()
        meet = Rendezvous(tasks, GANG_TIMEOUT_S)
        sealed, hand_over = sealed_properties(self.cfg)
        coordinator = Coordinator(
            {**self._handlers(meet), **hand_over, **self.job.schemas.handlers()},
            self.runner.endpoint,
            on_lost=lambda t, c: meet.fail(c or lost(t)),
        )
        opener = threading.Thread(
            target=self._lead,
            args=(meet, ledger, (scans, basis), (state, filters), tasks),
            name="cdc-round",
            daemon=True,
        )
        arguments = {
            "properties": sealed,
            "state": state,
            "filters": filters,
            "address": coordinator.address,
            "token": coordinator.token,
            "driver": faults.driver_pids(),
            "run_id": new_run_id(),
            "server": server_variables(self.conn),
        }
        opener.start()
        try:
            read = self.runner.run(round_task, tasks, arguments, gang=True)
        except BaseException:
            meet.fail(lost(-1))
            raise
        finally:
            opener.join(GANG_TIMEOUT_S)
            coordinator.close()
        return self._finish(read)

    def _tasks(self) -> int:
        wanted = self.cfg[F.SNAPSHOT_PARALLELISM]
        slots = self.runner.slots(wanted)
        return max(1, min(wanted or slots, slots))

    def _handlers(self, meet: Rendezvous) -> dict[str, Callable[[int, dict[str, Any]], dict[str, Any]]]:
        def arrive(task: int, request: dict[str, Any]) -> dict[str, Any]:
            return meet.arrive(request["stage"], task)

        def queue(name: str) -> Callable[[int, dict[str, Any]], dict[str, Any]]:
            def call(task: int, request: dict[str, Any]) -> dict[str, Any]:
                found: dict[str, Any] = getattr(self._queue, name)(task, request)
                return found

            return call

        def progress(task: int, request: dict[str, Any]) -> dict[str, Any]:
            return {} if self._progress is None else self._progress.update(task, request)

        return {
            **dict.fromkeys(("ready", "opened", "drained"), arrive),
            "progress": progress,
            "next": queue("next"),
            "done": queue("take_done"),
            "back": queue("take_back"),
        }

    def _lead(
        self,
        meet: Rendezvous,
        ledger: LedgerState,
        wanted: Wanted,
        known: Known,
        tasks: int,
    ) -> None:
        """Take the tasks from stage to stage, beside the running job."""
        try:
            with named_errors(self.cfg):
                self._stages(meet, ledger, wanted, known, tasks)
        except CdcError as error:
            meet.fail(error)
        except Exception as error:
            meet.fail(StateError("leading a round failed", why=repr(error), retriable=True))

    def _stages(
        self,
        meet: Rendezvous,
        ledger: LedgerState,
        wanted: Wanted,
        known: Known,
        tasks: int,
    ) -> None:
        meet.wait("ready")
        try:
            low = take_low(self.cfg, self.conn)
        except NoWatermark as error:
            self._why = str(error)
            meet.release("ready", {"over": True})
            return
        offset = None if low.offset is None else low.offset.to_json()
        names = [[table.db, table.table] for table in dict.fromkeys(scan.table for scan in wanted[0])]
        server = str(fetch_all(self.conn, "SELECT @@server_uuid")[0][0])
        meet.release("ready", {"tables": names, "offset": offset, "row": low.row, "server": server})
        meet.wait("opened")
        take_high(self.cfg, self.conn, low)
        start, epoch = ledger.end(), ledger.plan_in_force().epoch + 1
        assert start is not None
        plan = plan_round(self.cfg, self.conn, start, epoch, self.owner, self.weights, ledger.prepared(), tasks)
        self._begun = begin_batch(self.cfg, self.conn, self.job, plan, self.log, known, looked_at=True)
        self._progress = DrainProgress(self._begun.plan, self.log)
        self._queue = self._make_queue(self._begun.ledger, wanted, known[0])
        meet.release("opened", {"plan": self._begun.plan.to_json()})
        meet.wait("drained", long=True)
        blocking = any(scan.kind == "blocking" for scan in wanted[0])
        self._queue.deadline = float("inf") if blocking else time.monotonic() + READING_S
        meet.release("drained", {})

    def _make_queue(self, ledger: LedgerState, wanted: Wanted, state: SchemaState) -> StretchQueue:
        """Find the range of scans that wait for theirs, write it down, and return the queue of those that go on.

        What counts is the ledger behind the fence: until then a task of an earlier attempt may have committed.
        """
        books = books_of(ledger)
        left = {scan.order: scan for scan in books.folded().active}
        scans = [left[scan.order] for scan in wanted[0] if scan.order in left]
        # A statement that waits for the tasks' views to close keeps everybody who comes after it from the table. A
        # condition that takes for ever is to be the server's to end (error 3024), before the client gives the
        # connection up and with it the run.
        longest_ms = self.cfg[F.DATABASE_QUERY_TIMEOUT_MS] * 9 // 10
        with self.conn.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {HOLD_S}, max_execution_time = {longest_ms}")
        begun = [self._going_on(scan, wanted[1], state) for scan in scans]
        anew = {scan.order for scan, now in zip(scans, begun, strict=True) if now is not scan}
        after = books.folded().without_stretches(anew).with_scans(begun).folded()
        self._write(books, after)
        going = [scan for scan in begun if scan.state == "running"]
        return StretchQueue.of(
            self.conn, after, going, self.cfg[F.INCREMENTAL_SNAPSHOT_CHUNK_SIZE], float("inf"), self.log
        )

    def _going_on(self, scan: TableScan, basis: Basis, state: SchemaState) -> TableScan:
        why = basis.found.get(scan.order)
        if why is not None:
            self.log(f"snapshot of {scan.table} is read from its beginning again: {why}")
        table, captured = state.tables.get(scan.table), self.cfg.captures(scan.table)

        def tell(reason: str) -> None:
            self.log(f"snapshot of {scan.table} begins in a later round: {reason}")
            self._waiting[scan.order] = reason

        now = going_on(self.conn, scan, table, captured=captured, void=why is not None, tell=tell)
        return now if now is scan or now.state != "running" else now.resting_on(basis.at, basis.form)

    def _write(self, before: Books, after: Books) -> None:
        """Write the books in one transaction with what there is to tell."""
        for notice in (told := list(notices.ended(before, after))):
            if notice.additional:
                self.log(f"snapshot {notice.id}: " + ", ".join(f"{k}={v}" for k, v in notice.additional.items()))
        done = self._queue.done if self._queue is not None else []
        told = [*notices.progress(after, done), *told]
        if records := book_records(self.cfg, self.job, before, after, told):
            self.job.commit(records)

    def _finish(self, read: list[dict[str, int]]) -> RoundEnd:
        """Close the books of the round; what its tasks committed stands in the ledger already."""
        if self._begun is None or self._queue is None or self._progress is None:
            return RoundEnd({}, 0, self._why)
        totals = finish_batch(self.job, self.cfg, self._begun)
        for counts in read:
            for topic, n in counts.items():
                totals[topic] = totals.get(topic, 0) + n
        faults.fault_point("incremental.before_books")
        before = books_of(self.job.read(chunks=False))
        for done in self._queue.done:
            if done.rows and (scan := before.scans.get(done.stretch.scan)) is not None:
                self.job.note_tables({scan.table.path(): done.rows})
        hopeless = self._queue.blocked(hopeless=True)
        folded = before.folded()
        given_up = [s.abort(hopeless[s.order]) for s in folded.scans.values() if s.order in hopeless and not s.ended]
        self._write(before, folded.with_scans(given_up).folded())
        self.log(self._progress.summary(totals, self.job.native.text()))
        self.job.write_outcome(self._begun.plan, counts=totals)
        blocked = self._waiting | self._queue.blocked(hopeless=False)
        why = "; ".join(sorted(set(blocked.values())))
        return RoundEnd(totals, len(self._queue.done), why, frozenset(blocked))


def chosen(work: Sequence[TableScan], late: frozenset[int]) -> list[TableScan]:
    """Return the scans that a round works on; those that could not go on before do not keep others from it.

    Args:
        work: What there is to do, in its order.
        late: Orders of scans that could not go on.
    """
    return sorted(work, key=lambda scan: scan.order in late)[:TABLES_AT_ONCE]
