"""Operations that a task of a window calls on its driver, in the order in which it does; ``drain_operations`` has one
more.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record
from airflow_provider_mysql_cdc.cdc.model.table import TableId


@dataclass(frozen=True, slots=True)
class WindowStart:
    """Tell tasks what to open their views for.

    Args:
        tables: Tables to hold until the window is closed.
        offset: The low watermark as a position; None where it is a row of the signal table.
        row_id: Id of that row; None where it is a position.
        server_uuid: The driver's server.
    """

    tables: tuple[TableId, ...]
    offset: BinlogOffset | None
    row_id: str | None
    server_uuid: str


@dataclass(frozen=True, slots=True)
class ReadyReply(Record):
    """Tell tasks whether a window opens.

    Args:
        start: The window; None when the tasks end.
    """

    start: WindowStart | None = None


@dataclass(frozen=True, slots=True)
class PlanReply(Record):
    """Tell tasks which batch they write.

    Args:
        plan: The plan in force.
    """

    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class RangeReadOptions(Record):
    """Hold the options with which a key range is read.

    Args:
        kind: ``incremental`` or ``blocking``.
        condition: SQL condition of the rows, or None.
        first_table: Whether the table is the first one of a blocking snapshot.
        last_table: Whether it is the last one.
        cut_by_key: Whether the table is split by its own key.
        initial: Whether the scan finishes an interrupted snapshot, whose statements of the configuration read tables.
    """

    kind: str
    condition: str | None
    first_table: bool
    last_table: bool
    cut_by_key: bool = True
    initial: bool = False

    def snapshot_marker(self, key_range: KeyRange, *, first: bool, last: bool) -> str:
        """Return ``source_block.snapshot`` of a row.

        Args:
            key_range: The key range.
            first: Whether the row is its first one.
            last: Whether it is its last one.
        """
        if self.kind == "incremental":
            return "incremental"
        return source_block.snapshot_marker(
            first_row=first and key_range.number == 0,
            last_row=last and key_range.final,
            first_table=self.first_table,
            last_table=self.last_table,
        )


@dataclass(frozen=True, slots=True)
class AssignedKeyRange:
    """Assign a key range to a task.

    Args:
        key_range: The key range.
        options: How it is read.
    """

    key_range: KeyRange
    options: RangeReadOptions


@dataclass(frozen=True, slots=True)
class NextKeyRange(Record):
    """Answer a task that asks for a key range.

    Args:
        assigned: The key range; None when the window ends.
    """

    assigned: AssignedKeyRange | None = None


@dataclass(frozen=True, slots=True)
class RangeDone(Record):
    """Report a key range that is committed.

    Args:
        done_range: The key range and its rows.
    """

    done_range: DoneKeyRange


@dataclass(frozen=True, slots=True)
class RangeReturned(Record):
    """Return a key range that cannot be read in this window.

    Args:
        key_range: The key range.
        reason: Why it cannot be read.
        permanent: Whether no later window can read it either.
    """

    key_range: KeyRange
    reason: str
    permanent: bool


READY = BarrierPoint.declare("ready", ReadyReply)
"""A task is connected to the source and waits for the low watermark."""
OPENED = BarrierPoint.declare("opened", PlanReply)
"""A task has opened its view and waits for the batch's plan."""
ROWS_UNWRITTEN = TaskOperation("unwritten", UnwrittenRows, EmptyMessage)
"""A task has written its part of the batch, except changes of some rows."""
DRAINED = BarrierPoint.declare("drained", UnwrittenRows)
"""A task has written its part of the batch, and waits for the others and for the changes that no task has written."""
NEXT_RANGE = TaskOperation("next", EmptyMessage, NextKeyRange)
"""A task asks for a key range."""
RANGE_DONE = TaskOperation("done", RangeDone, EmptyMessage)
"""A task has committed a key range."""
RANGE_RETURNED = TaskOperation("back", RangeReturned, EmptyMessage)
"""A task cannot read a key range."""
