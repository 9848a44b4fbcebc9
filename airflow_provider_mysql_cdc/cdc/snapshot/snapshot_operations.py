"""Operations that a task of a snapshot calls on its driver, in the order in which it does."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import ListEntry


@dataclass(frozen=True, slots=True)
class OpenedView:
    """Hold the position and time of the view that all tasks have opened.

    Args:
        offset: The binlog position.
        ts_ms: Server time in milliseconds since the epoch.
    """

    offset: BinlogOffset
    ts_ms: int


@dataclass(frozen=True, slots=True)
class ReopenView:
    """Tell tasks to open their views again, because something was committed meanwhile.

    Args:
        ready_point: Point to arrive at before opening it.
        opened_point: Point to arrive at afterwards.
    """

    ready_point: str
    opened_point: str


@dataclass(frozen=True, slots=True)
class ViewReply(Record):
    """Tell tasks that have opened their views what to do; without either member they end.

    Args:
        view: The view to read chunks in.
        reopen: How to open the views again.
    """

    view: OpenedView | None = None
    reopen: ReopenView | None = None


@dataclass(frozen=True, slots=True)
class AssignedChunk:
    """Assign a chunk to a task.

    Args:
        chunk: The chunk.
        first: Whether it holds the snapshot's first row.
        final: Whether it holds the snapshot's last row.
        list_entry: The members of the chunk's record that name its list and its order there.
    """

    chunk: SnapshotChunk
    first: bool
    final: bool
    list_entry: ListEntry


@dataclass(frozen=True, slots=True)
class NextChunk(Record):
    """Answer a task that asks for a chunk.

    Args:
        assigned: The chunk; None when all are assigned.
    """

    assigned: AssignedChunk | None = None


@dataclass(frozen=True, slots=True)
class ChunkRows(Record):
    """Report rows of a chunk.

    Args:
        chunk: Id of the chunk.
        rows: Rows that were read of it.
    """

    chunk: str
    rows: int


@dataclass(frozen=True, slots=True)
class LogLine(Record):
    """Give a line for the job's log.

    Args:
        text: The line; the job writes it once, however many tasks send it.
    """

    text: str


READY = BarrierPoint.declare("ready", EmptyMessage)
"""A task is connected to the source and waits for the moment to open its view."""
OPENED = BarrierPoint.declare("opened", ViewReply)
"""A task has opened its view."""
HELD = BarrierPoint.declare("held", EmptyMessage)
"""A task holds the tables of the snapshot against statements that change their structure."""
NOTE = TaskOperation("note", LogLine, EmptyMessage)
"""A task has a line for the job's log."""
NEXT_CHUNK = TaskOperation("next", EmptyMessage, NextChunk)
"""A task asks for a chunk."""
CHUNK_PROGRESS = TaskOperation("progress", ChunkRows, EmptyMessage)
"""A task reports how many rows of its chunk it has read."""
CHUNK_DONE = TaskOperation("done", ChunkRows, EmptyMessage)
"""A task has committed its chunk."""
