"""A batch that ends where the views of its tasks are: what verification and repair begin with.

The views are opened under the short read lock that the view of a snapshot is opened with. So when the batch is written,
the topics hold exactly what the views show, while the source goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_window_batch
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, begin_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, SCHEMA_REFUSED, WriterReport
from airflow_provider_mysql_cdc.cdc.drain.drain_progress import DrainProgress
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceError, SourcePrivilegeError, StateError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable, low_watermark
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    OPENED,
    READY,
    PlanReply,
    ReadyReply,
    WindowStart,
)
from airflow_provider_mysql_cdc.cdc.job.history_guard import require_recorded_history
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskHandler
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
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
