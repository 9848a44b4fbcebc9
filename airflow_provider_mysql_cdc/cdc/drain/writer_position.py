"""The position of a writer in the binlog."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, compare_offsets


@dataclass(slots=True)
class WriterPosition:
    """Track the writer's position in the binlog, and what an earlier attempt has committed.

    Args:
        start: The transaction boundary at which it begins.
        events: Row events seen in the transaction after the last boundary, of all tables.
        thread: Thread id of the transaction's session.
        gtid: GTID of the transaction, or None.
        commit_us: Commit time of the transaction in microseconds since the epoch, 0 when the server does not log it.
        query: The statement that caused the rows, when the server logs it.
        begun: Whether the transaction's BEGIN has passed; DDL inside it belongs to CREATE TABLE ... SELECT.
        statements: QUERY events seen in the transaction.
        last_transaction: Server id and GTID of the last transaction whose GTID event was read.
        resume: The position up to which an earlier attempt committed the batch; None once the writer is past it.
        file: Binlog file of the last transaction boundary passed.
        pos: Position of that boundary.
    """

    start: BinlogOffset
    events: int = 0
    thread: int = 0
    gtid: str | None = None
    commit_us: int = 0
    query: str | None = None
    begun: bool = False
    statements: int = 0
    last_transaction: tuple[int, str | None] = (0, None)
    resume: ResumePosition | None = None
    file: str = field(init=False)
    pos: int = field(init=False)
    _boundary: BinlogOffset | None = field(init=False)

    def __post_init__(self) -> None:
        self._boundary = self.start
        self.file, self.pos = self.start.file, self.start.pos

    @property
    def boundary(self) -> BinlogOffset:
        """Return the last transaction boundary passed; its GTID set is rendered at commits only."""
        boundary = self._boundary
        if boundary is None:
            # Built on demand: most transactions pass without a use of it.
            boundary = self._boundary = BinlogOffset(self.file, self.pos, None, self.start.server_uuid)
        return boundary

    def begin_transaction(self) -> None:
        """Reset the counts at a transaction's first event."""
        self.events = self.statements = 0
        self.query = None

    def move_to(self, file: str, pos: int) -> None:
        """Move to another transaction boundary, and reset the counts.

        Args:
            file: Binlog file.
            pos: Position after a transaction, or at the beginning of a file.
        """
        self.file, self.pos, self._boundary = file, pos, None
        self.events = self.statements = 0
        self.query = None

    def reached(self, gtids: str | None) -> ResumePosition:
        """Return the position after the last event.

        Args:
            gtids: GTID set executed up to the boundary.
        """
        boundary = self.boundary
        return ResumePosition(boundary.with_position(boundary.file, boundary.pos, gtids), self.events, self.statements)

    def is_before_resume(self) -> bool:
        """Return whether an earlier attempt committed more than was read so far; nothing may be committed then."""
        resume = self.resume
        if resume is None:
            return False
        comparison = compare_offsets(self.boundary, resume.offset)
        return comparison < 0 or (
            comparison == 0 and (self.events < resume.events or self.statements < resume.statements)
        )

    def transaction_committed(self) -> bool:
        """Return whether an earlier attempt committed the whole transaction."""
        return self.resume is not None and compare_offsets(self.boundary, self.resume.offset) < 0

    def rows_committed(self) -> bool:
        """Return whether an earlier attempt committed the row event that was counted last."""
        return self.resume is not None and self._is_committed(self.resume, self.events, self.resume.events)

    def statement_committed(self) -> bool:
        """Return whether an earlier attempt committed the QUERY event that was counted last."""
        return self.resume is not None and self._is_committed(self.resume, self.statements, self.resume.statements)

    def _is_committed(self, resume: ResumePosition, count: int, committed_count: int) -> bool:
        comparison = compare_offsets(self.boundary, resume.offset)
        if comparison < 0 or (comparison == 0 and count <= committed_count):
            return True
        self.resume = None
        return False
