"""Operations that a task of a snapshot calls on its driver, in the order in which it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
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
class ViewReply:
    """Tell tasks that have opened their views what to do; without either member they end.

    Args:
        view: The view to read chunks in.
        reopen: How to open the views again.
    """

    view: OpenedView | None = None
    reopen: ReopenView | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        if self.view is not None:
            return {"offset": self.view.offset.to_json(), "ts_ms": self.view.ts_ms}
        if self.reopen is not None:
            return {"again": self.reopen.ready_point, "opened": self.reopen.opened_point}
        return {"over": True}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> ViewReply:
        """Read what ``to_json`` wrote."""
        if members.get("over"):
            return cls()
        if "again" in members:
            return cls(reopen=ReopenView(str(members["again"]), str(members["opened"])))
        return cls(OpenedView(BinlogOffset.from_json(members["offset"]), int(members["ts_ms"])))


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
class NextChunk:
    """Answer a task that asks for a chunk.

    Args:
        assigned: The chunk; None when all are assigned.
    """

    assigned: AssignedChunk | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        if self.assigned is None:
            return {"chunk": None}
        return {
            "chunk": self.assigned.chunk.to_json(),
            "first": self.assigned.first,
            "final": self.assigned.final,
            "place": self.assigned.list_entry,
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> NextChunk:
        """Read what ``to_json`` wrote."""
        if members["chunk"] is None:
            return cls()
        chunk = SnapshotChunk.from_json(members["chunk"])
        return cls(AssignedChunk(chunk, bool(members["first"]), bool(members["final"]), members["place"]))


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Report rows of a chunk.

    Args:
        chunk: Id of the chunk.
        rows: Rows that were read of it.
    """

    chunk: str
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"chunk": self.chunk, "rows": self.rows}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> ChunkRows:
        """Read what ``to_json`` wrote."""
        return cls(str(members["chunk"]), int(members["rows"]))


@dataclass(frozen=True, slots=True)
class LogLine:
    """Give a line for the job's log.

    Args:
        text: The line; the job writes it once, however many tasks send it.
    """

    text: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"once": self.text}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> LogLine:
        """Read what ``to_json`` wrote."""
        return cls(str(members["once"]))


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
