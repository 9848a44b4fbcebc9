"""The remaining chunks of an interrupted snapshot, and the tables from which they are read now.

Between two views, tables may be dropped, truncated, renamed and swapped. The remaining chunks belong to the tables that
had their names in the first view. Each of these tables is followed through the binlog by its identity, not its name:

=====================================  =================================================================================
state of the table now                 its remaining chunks
=====================================  =================================================================================
exists, possibly renamed               are read from it; their rows get the name of the table in the new view, or its
                                       last captured name if the current one is not captured
dropped; no table has its name         are skipped: no consumer has seen the rows, and none gets their deletes
dropped or truncated, and a table of   are skipped: the drain publishes all rows of the new table, from the TRUNCATE on,
the same name was created              and none of the old table
dropped, and another table was         are read from that table, whose rows are in no event (online schema changes),
renamed to its name                    unless it is a table of this snapshot, which has chunks of its own
renamed, and another table was         are read from both tables, each under its own name, so that the topic of the old
renamed to the old name                name has all rows in the end (online schema changes between captured names)
rows were added or removed by          cannot be read exactly: the snapshot is refused
EXCHANGE PARTITION or tablespaces
=====================================  =================================================================================

A chunk that is read in a later view contains the events of its keys up to that view, under every name that the table
had until then; ``spans`` holds these.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START, FilePosition, TableLineage, TableLineages

NameSpan = tuple[TableId, FilePosition, FilePosition | None]
"""A name, the position after which the table had it, and the last such position; None stands for the view."""
REMEDY = (
    "abandon the snapshot (DAG mysql_cdc_reset_offset with current), then take a new one (mysql_cdc_snapshot with "
    "again=true)"
)


@dataclass(frozen=True, slots=True)
class ResolvedChunk:
    """Describe from which tables a chunk's rows are read.

    Args:
        chunk: The chunk, under the name of its table in the first view.
        source: The table to read.
        table: The name that its rows get.
        spans: The names and binlog ranges of the events that the chunk's rows contain.
        successors: Tables that were renamed to former names of the chunk's table; their rows are read as well, under
            these names.
    """

    chunk: SnapshotChunk
    source: TableId
    table: TableId
    spans: tuple[NameSpan, ...] = ()
    successors: tuple[TableId, ...] = ()

    @property
    def table_reads(self) -> list[tuple[TableId, TableId]]:
        """Return the tables to read, each with the name that its rows get."""
        return [(self.source, self.table), *((name, name) for name in self.successors)]

    @classmethod
    def unmoved(cls, chunk: SnapshotChunk) -> ResolvedChunk:
        """Return a chunk whose table still has its name."""
        return cls(chunk, chunk.table, chunk.table)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "chunk": self.chunk.to_json(),
            "source": [self.source.db, self.source.table],
            "table": [self.table.db, self.table.table],
            "spans": spans_to_json(self.spans),
            "heirs": [[h.db, h.table] for h in self.successors],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ResolvedChunk:
        """Read what ``to_json`` wrote."""
        chunk = SnapshotChunk.from_json(data["chunk"])
        successors = tuple(TableId(*h) for h in data["heirs"])
        return cls(chunk, TableId(*data["source"]), TableId(*data["table"]), spans_from_json(data["spans"]), successors)


def spans_to_json(spans: Iterable[NameSpan]) -> list[list[Any]]:
    """Return spans as plain JSON."""
    return [[t.db, t.table, list(since), None if until is None else list(until)] for t, since, until in spans]


def spans_from_json(data: Iterable[list[Any]]) -> tuple[NameSpan, ...]:
    """Read what ``spans_to_json`` wrote."""

    def position(pair: Any) -> FilePosition:
        return int(pair[0]), int(pair[1])

    return tuple(
        (TableId(db, table), position(since), None if until is None else position(until))
        for db, table, since, until in data
    )


@dataclass(frozen=True, slots=True)
class DroppedChunk:
    """Name a chunk whose rows were dropped before they were read.

    Args:
        chunk: The chunk.
        spans: The names and binlog ranges of events of these rows, which no consumer has seen.
    """

    chunk: SnapshotChunk
    spans: tuple[NameSpan, ...]


@dataclass(frozen=True, slots=True)
class RemainingChunks:
    """Hold the remaining chunks of a snapshot.

    Args:
        to_read: Chunks to be read, in order.
        dropped: Chunks whose rows were dropped.
        reasons: Lines for the log, one for each table that was renamed, replaced or dropped.
    """

    to_read: tuple[ResolvedChunk, ...] = ()
    dropped: tuple[DroppedChunk, ...] = ()
    reasons: tuple[str, ...] = field(default=())

    @property
    def sources(self) -> list[TableId]:
        """Return the tables to be read, each once."""
        return list(dict.fromkeys(source for p in self.to_read for source, _ in p.table_reads))


def resolve_chunks(
    chunks: Iterable[SnapshotChunk],
    lineages: TableLineages,
    captures: Callable[[TableId], bool],
    base_tables: Container[TableId] | None = None,
) -> RemainingChunks:
    """Find the tables from which the remaining chunks are read.

    Args:
        chunks: The chunks.
        lineages: The tables of the first view, followed up to now.
        captures: Returns whether a name is captured.
        base_tables: The captured base tables, as RENAME TABLE renames views as well; None for all names.

    Raises:
        SchemaError: Rows of such a table were added or removed without row events.
    """
    by_name = {lineage.names[0][0]: lineage for lineage in lineages.lineages if lineage.is_initial}
    to_read, dropped, reasons = [], [], []
    for chunk in chunks:
        life = by_name[chunk.table]
        if life.rows_moved_by is not None:
            raise SchemaError(
                "the snapshot cannot be resumed: rows of a table that is not fully read were moved without row events",
                where=f"table {chunk.table}; {life.rows_moved_by}",
                why="EXCHANGE PARTITION, DISCARD and IMPORT TABLESPACE log no row events, and the finished part of the "
                "snapshot is older than the statement",
                remedy=REMEDY,
            )
        resolved = _resolve_chunk(chunk, life, lineages, captures, base_tables)
        if isinstance(resolved, str):
            dropped.append(DroppedChunk(chunk, tuple(s for s in life.spans(START) if captures(s[0]))))
            reasons.append(resolved)
        else:
            to_read.append(resolved)
            if resolved.source != chunk.table:
                reasons.append(
                    f"{chunk.table} is now read from {resolved.source}; its rows are written as {resolved.table}"
                )
            reasons += [
                f"{name} was replaced by another table since the snapshot began, which is read as well"
                for name in resolved.successors
            ]
    return RemainingChunks(tuple(to_read), tuple(dropped), tuple(dict.fromkeys(reasons)))


def _resolve_chunk(
    chunk: SnapshotChunk,
    lineage: TableLineage,
    lineages: TableLineages,
    captures: Callable[[TableId], bool],
    base_tables: Container[TableId] | None,
) -> ResolvedChunk | str:
    captured_names = [(name, since) for name, since in lineage.names if captures(name)]
    name, since = captured_names[-1]
    successors = [
        (n, s)
        for n, s in reversed(captured_names)
        if (base_tables is None or n in base_tables) and _is_successor_name(n, lineage, lineages)
    ]
    if lineage.ended_at is not None and successors:
        name, since = successors[0]
    other_successors = list(dict.fromkeys(n for n, _ in successors if n != name))
    inherited: list[NameSpan] = [(n, lineages.by_name[n].names[-1][1], None) for n in other_successors]
    if lineage.ended_at is None:
        *earlier_spans, (current_name, since_now, _) = lineage.spans(START)
        spans: list[NameSpan] = [s for s in [*earlier_spans, (current_name, since_now, None)] if captures(s[0])]
        return ResolvedChunk(chunk, lineage.name, name, (*spans, *inherited), tuple(other_successors))
    if successors:
        # Events of tables that had this name in between are filtered: the successor's rows precede the drain.
        earlier = [(n, s, e) for n, s, e in lineage.spans(START) if captures(n) and n != name and s < since]
        return ResolvedChunk(chunk, name, name, (*earlier, (name, since, None), *inherited), tuple(other_successors))
    successor = lineages.by_name.get(name)
    if successor is None or (base_tables is not None and name not in base_tables):
        return f"{chunk.table} was dropped since the snapshot began"
    if successor.is_initial:
        return f"{chunk.table} was dropped since the snapshot began; {name} is now another table of the snapshot"
    return f"{chunk.table} was truncated or created again since the snapshot began"


def _is_successor_name(name: TableId, lineage: TableLineage, lineages: TableLineages) -> bool:
    """Return whether a table with that name was renamed to it, so that no event contains its rows.

    A table of the first view has chunks of its own.
    """
    successor = lineages.by_name.get(name)
    return not (
        successor is None
        or successor is lineage
        or successor.is_initial
        or (successor.created and successor.names[0][0] == name)
    )


def require_same_keys(to_read: Iterable[ResolvedChunk], tables: dict[TableId, Table]) -> None:
    """Check that the bounds of chunks mean the same as in the first view.

    Args:
        to_read: The chunks to be read.
        tables: The tables as they are now.

    Raises:
        SchemaError: The name, type or collation of a column that bounds chunks was changed.
    """
    table_reads = [(item.chunk, source) for item in to_read for source, _ in item.table_reads]
    for chunk, source in table_reads:
        table = tables[source]
        for name, kind in zip(chunk.columns, chunk.kinds, strict=True):
            if table.column(name) is None or key_kind(table, name) != kind:
                raise SchemaError(
                    "the snapshot cannot be resumed: the key of a partly read table was changed",
                    where=f"table {source}, column {name}",
                    why=f"the finished chunks are bounded by {name} as {kind}"
                    + (
                        "; the column does not exist any more"
                        if table.column(name) is None
                        else f"; its type is now {key_kind(table, name)}"
                    ),
                    remedy=REMEDY,
                )
