"""A batch that ends where the views of its tasks are: what verification and repair begin with.

The views are opened under the short read lock that the view of a snapshot is opened with. So when the batch is written,
the topics hold exactly what the views show, while the source goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_window_batch
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, begin_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable, low_watermark
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    OPENED,
    READY,
    PlanReply,
    ReadyReply,
    WindowStart,
)
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import GRANT_OF_LOCKS
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import open_replica_views


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


def begin_view_batch(
    context: BatchContext,
    barrier: TaskBarrier,
    ledger: LedgerState,
    tables: Sequence[TableId],
    start_schema: SchemaState,
    of_what: str,
    on_begun: Callable[[StartedBatch], None],
    replica: ConnectionSettings | None = None,
) -> None:
    """Let the tasks open their views, and begin the batch that ends at their position; the tasks write it then.

    Args:
        context: The drain after a batch.
        barrier: The barrier of the tasks.
        ledger: The ledger; its last batch is complete.
        tables: Tables that the tasks read.
        start_schema: Table structures at the end of the last batch.
        of_what: The job, for errors: ``a verification``.
        on_begun: Takes the batch before the tasks are released to write it.
        replica: How to reach the replica on which the tasks open their views; None for the source.

    Raises:
        CdcError: The views cannot be opened at one position, or the batch cannot be executed.
    """
    start, epoch = ledger.end(), ledger.plan_in_force().epoch + 1
    assert start is not None  # the last batch is complete
    position = (
        _open_views(context, barrier, tables, of_what)
        if replica is None
        else _open_on_replica(context, barrier, tables, start, replica)
    )
    plan = plan_window_batch(
        context.cfg,
        context.conn,
        (start, position),
        epoch,
        context.owner,
        context.weights,
        ledger.prepared(),
        barrier.tasks,
    )
    batch = begin_batch(context.cfg, context.job, plan, context.log, start_schema, offsets_checked=True)
    on_begun(batch)
    barrier.release(OPENED, PlanReply(batch.plan))


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
