"""A batch that ends where the views of its tasks are, and the time that each of their statements gets.

A batch that ends where the views of its tasks are: what verification and repair begin with.

The views are opened under the short read lock that the view of a snapshot is opened with. So when the batch is written,
the topics hold exactly what the views show, while the source goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import QUERY_TIMEOUT
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_window_batch
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, begin_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, SCHEMA_REFUSED, DrainProgress, WriterReport
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceError, SourcePrivilegeError, StateError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable, low_watermark
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    OPENED,
    READY,
    PlanReply,
    ReadyReply,
    WindowStart,
)
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskHandler
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_recorded_history
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, split_table
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import GRANT_OF_LOCKS
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import open_replica_views

BARRIER_TIMEOUT_S = 600.0


def view_error(of_what: str, unavailable: WatermarkUnavailable) -> CdcError:
    """Return the error of a job that needs views at one position.

    Args:
        of_what: The job, for example ``a verification``.
        unavailable: Why there is no such position; its cause, if it has one, says what to do.
    """
    what, cause = f"the views of {of_what} cannot be opened at one position", unavailable.__cause__
    if not isinstance(cause, CdcError):
        return SourceError(what, why=str(unavailable), retriable=True)
    why = f"{cause.what}: {cause.why}" if cause.why else cause.what
    where, remedy = cause.where, cause.remedy
    if isinstance(cause, SourcePrivilegeError):  # the lock is taken whatever snapshot.locking.mode says
        where, remedy = "", GRANT_OF_LOCKS
    return type(cause)(what, where=where, why=why, remedy=remedy, retriable=cause.can_retry)


def written_before_error(of_what: str) -> StateError:
    """Return the error of a task that has read nothing: an earlier attempt of it has written its part of the batch."""
    return StateError(
        f"a task does not know the structures at the position of {of_what}",
        why="an earlier attempt of it had written its part of the batch",
        remedy="run the task again",
        retriable=True,
    )


class ViewBatch:
    """Lead the batch that ends where the tasks open their views.

    Args:
        context: The drain after a batch.
        tasks: Number of tasks.
        of_what: The job, for errors: ``a verification``.

    Raises:
        StateError: The last batch is incomplete, or the history is none that the ledger knows.
    """

    def __init__(self, context: BatchContext, tasks: int, of_what: str) -> None:
        self._context, self._of_what, self.ledger = context, of_what, context.job.latest()
        start = self.ledger.end()
        if start is None:
            raise StateError(f"{of_what} cannot begin while a batch is incomplete", retriable=True)
        require_recorded_history(context.cfg, self.ledger)
        self._start, self._epoch = start, self.ledger.plan_in_force().epoch + 1
        self.schema_state = load_schema_state(
            context.cfg, until=start, epoch=self._epoch, cache=context.job.history_cache
        )
        self.barrier = TaskBarrier(tasks, BARRIER_TIMEOUT_S)
        self._begun: tuple[StartedBatch, DrainProgress] | None = None

    @property
    def batch(self) -> StartedBatch:
        """Return the batch; a task writes after it has begun."""
        assert self._begun is not None
        return self._begun[0]

    @property
    def progress(self) -> DrainProgress:
        """Return how far the batch is."""
        assert self._begun is not None
        return self._begun[1]

    def handlers(self) -> list[TaskHandler]:
        """Return what answers the tasks until the batch is written."""
        return [
            self.barrier.handler(READY),
            self.barrier.handler(OPENED),
            PROGRESS.handled_by(self._report),
            # The batch is continued, and shortened, by a drain.
            SCHEMA_REFUSED.handled_by(lambda task, refusal: EMPTY),
        ]

    def begin(self, tables: Sequence[TableId], replica: ConnectionSettings | None = None) -> None:
        """Let the tasks open their views, and begin the batch that ends at their position; the tasks write it then.

        Args:
            tables: Tables that the tasks read.
            replica: How to reach the replica on which the tasks open their views; None for the source.

        Raises:
            CdcError: The views cannot be opened at one position, or the batch cannot be executed.
        """
        context, barrier, start = self._context, self.barrier, self._start
        position = (
            _open_views(context, barrier, tables, self._of_what)
            if replica is None
            else _open_on_replica(context, barrier, tables, start, replica)
        )
        plan = plan_window_batch(
            context.cfg,
            context.conn,
            (start, position),
            self._epoch,
            context.owner,
            context.weights,
            self.ledger.prepared(),
            barrier.tasks,
        )
        batch = begin_batch(context.cfg, context.job, plan, context.log, self.schema_state, offsets_checked=True)
        self._begun = batch, DrainProgress(batch.plan, context.log)
        barrier.release(OPENED, PlanReply(batch.plan))

    def _report(self, task: int, report: WriterReport) -> EmptyMessage:
        return self.progress.update(task, report)

    def note_error(self, error: CdcError) -> None:
        """Write that the batch has failed, if it has begun."""
        if self._begun is not None:
            self._context.job.write_outcome(self.batch.plan, error=error)


def _open_on_replica(
    context: BatchContext,
    barrier: TaskBarrier,
    tables: Sequence[TableId],
    start: BinlogOffset,
    replica: ConnectionSettings,
) -> BinlogOffset:
    """Return the position on the source at which the tasks have opened their views on a replica."""
    barrier.wait(READY)

    def open_views(server_uuid: str) -> None:
        barrier.release(READY, ReadyReply(WindowStart(tuple(tables), start, None, server_uuid)))
        barrier.wait(OPENED)

    return open_replica_views(context.cfg, context.conn, replica, tables, start, open_views, context.log)


def _open_views(
    context: BatchContext, barrier: TaskBarrier, tables: Sequence[TableId], of_what: str
) -> BinlogOffset | None:
    """Return the position at which the tasks have opened their views."""
    barrier.wait(READY)
    server_uuid = answering_server(context.conn)
    try:
        with low_watermark(context.cfg, context.conn, tables, lock=True) as low:
            barrier.release(READY, ReadyReply(WindowStart(tuple(tables), low.offset, None, server_uuid)))
            barrier.wait(OPENED)
    except WatermarkUnavailable as error:
        raise view_error(of_what, error) from error
    return low.offset


@contextlib.contextmanager
def time_limit(cfg: ConnectorConfig, conn: MySqlConnection) -> Iterator[None]:
    """Limit each SELECT of a connection, and name the error of one that the server has ended.

    Raises:
        SourceError: The server has ended a SELECT.
    """
    limit_ms = cfg[F.VERIFY_MAX_EXECUTION_TIME_MS]
    if not limit_ms:
        yield
        return
    fetch_all(conn, "SET SESSION max_execution_time = %s", (limit_ms,))
    try:
        yield
    except (SourceError, pymysql.MySQLError) as error:
        if not is_time_limit(error):
            raise
        raise SourceError(
            "MySQL ended a query of the verification, because it took longer than it may",
            where=f"{F.VERIFY_MAX_EXECUTION_TIME_MS.name}={limit_ms}" + _where_of(error),
            why="the time counts until the last row is sent, so it includes the waits of "
            f"{F.VERIFY_ROWS_PER_SECOND.name} and those for the task that encodes the rows",
            remedy="run the task again when the server has less to do; or raise "
            f"{F.VERIFY_MAX_EXECUTION_TIME_MS.name}, or lower {F.SNAPSHOT_CHUNK_ROWS.name}, the rows of one query; a "
            "table without a key is read by one query",
            retriable=True,
        ) from error
    finally:
        # The connection may be gone, or its result may be unread after another error.
        with contextlib.suppress(SourceError, pymysql.MySQLError, OSError):
            fetch_all(conn, "SET SESSION max_execution_time = 0")


def is_time_limit(error: BaseException) -> bool:
    """Return whether the server has ended a query because of its time.

    Args:
        error: An error of the client library, or the named error that it caused.
    """
    cause = error if isinstance(error, pymysql.MySQLError) else error.__cause__
    return isinstance(cause, pymysql.MySQLError) and cause.args[:1] == (QUERY_TIMEOUT,)


def rows_per_query(cfg: ConnectorConfig, tasks: int) -> int:
    """Return how many rows one query is to read: half as many as fit into its time where the rows are limited."""
    rows, limit_ms = cfg[F.SNAPSHOT_CHUNK_ROWS], cfg[F.VERIFY_MAX_EXECUTION_TIME_MS]
    per_second = cfg[F.VERIFY_ROWS_PER_SECOND]
    if not limit_ms or not per_second:
        return rows
    return max(1, min(rows, per_second * limit_ms // (2000 * tasks)))


def _where_of(error: BaseException) -> str:
    where = error.where if isinstance(error, SourceError) else ""
    return f", {where}" if where else ""


LOCK_WAIT_S = 2
"""Seconds that a statement waits for a table."""
_LOCK_WAIT_TIMEOUT = 1205


def split_tables(conn: MySqlConnection, tables: Iterable[Table], chunk_rows: int, log: Log) -> list[SnapshotChunk]:
    """Return the chunks of tables; a table for which DDL waits is one chunk.

    DDL waits for the views of the tasks, which wait for their chunks, and later statements wait behind the DDL: without
    a limit all would wait for each other, the writers of the table too. The views themselves can still read the table.
    """
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_S,))
    chunks: list[SnapshotChunk] = []
    for table in tables:
        try:
            chunks += split_table(conn, table, chunk_rows)
        except pymysql.err.OperationalError as error:
            if error.args[0] != _LOCK_WAIT_TIMEOUT:
                raise
            log(f"verification: a statement waits for {table.id}, which is therefore read in one piece")
            chunks.append(SnapshotChunk(table.id, 0))
    return chunks
