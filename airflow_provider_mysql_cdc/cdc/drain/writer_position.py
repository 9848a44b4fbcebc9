"""The position of a writer in the binlog."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.local_gtids import LocalGtids
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.model.gtid import MOST_READ_EMPTY, GtidTracker, gtid_source
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, compare_offsets

_HEADER_AND_CHECKSUM = 23
_BEGIN_AND_COMMIT = 2


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
        row_bytes: Sum of the lengths of its row events' bodies.
        last_transaction: Server id and GTID of the last transaction whose GTID event was read.
        last_commit: GTID and commit time of the transaction before the last boundary; None where it has no GTID, or
            none was read.
        resume: The position up to which an earlier attempt committed the batch; None once the writer is past it.
        is_lent: Whether the transaction has a GTID of another server than the ones before it with its server id.
        is_text: Whether it has a statement that changes no structure.
        signers: server_uuid of the last GTID by server id.
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
    row_bytes: int = 0
    last_transaction: tuple[int, str | None] = (0, None)
    resume: ResumePosition | None = None
    last_commit: tuple[str | None, int] = (None, 0)
    is_lent: bool = False
    is_text: bool = False
    signers: dict[int, str] = field(default_factory=dict)
    file: str = field(init=False)
    pos: int = field(init=False)
    _boundary: BinlogOffset | None = field(init=False)
    _read_empty: GtidTracker = field(init=False)
    _read_as_text: GtidTracker = field(init=False)
    _local_gtids: LocalGtids = field(default_factory=LocalGtids)

    def __post_init__(self) -> None:
        self._boundary, self._read_empty = self.start, GtidTracker(self.start.read_empty or "")
        self._read_as_text = GtidTracker(self.start.read_as_text or "")
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
        self.events = self.statements = self.row_bytes = 0
        self.query = None

    def add_row_event(self, event: Event) -> None:
        """Count a row event of the transaction.

        Args:
            event: The event.

        Raises:
            ServerChangedError: The row events that an earlier attempt has committed were others.
        """
        self.events += 1
        held = event.end - event.body
        # A row event that nobody reads may be held only in part; one of a compressed transaction has no position.
        # A server with another binlog_checksum has the same rows in a longer or shorter event.
        self.row_bytes += held if event.inner else max(held, event.end_pos - event.start_pos - _HEADER_AND_CHECKSUM)
        resume = self.resume
        if resume is not None and self.events == resume.events and resume.gtid is not None:
            self._require_same_rows(resume)

    def _require_same_rows(self, resume: ResumePosition) -> None:
        """Refuse a transaction whose row events are not those of which an earlier attempt has committed some."""
        read = self.last_transaction[1], self.row_bytes
        if compare_offsets(self.boundary, resume.offset) == 0 and read != (resume.gtid, resume.row_bytes):
            raise self._other_rows_error(
                f"{resume.events} row events of {resume.gtid} had {resume.row_bytes} bytes, "
                f"and those of {read[0]} here have {read[1]}"
            )

    def _other_rows_error(self, why: str) -> ServerChangedError:
        return ServerChangedError(
            "a transaction that is committed in part has other row events on this server",
            where=str(self.boundary),
            why=f"{why}: servers with other values of binlog_row_event_max_size or binlog_row_image divide rows "
            "differently, so it cannot be told which of them are committed",
            remedy="trigger mysql_cdc_reset_offset with offset=stored, which gives the batch up, and "
            "mysql_cdc_drain; records of the batch that are committed already are written a second time",
        )

    def move_to(self, file: str, pos: int) -> None:
        """Move to another transaction boundary, and reset the counts.

        Args:
            file: Binlog file.
            pos: Position after a transaction, or at the beginning of a file.

        Raises:
            ServerChangedError: The transaction that ends has fewer row events than an earlier attempt has committed.
        """
        resume = self.resume
        if resume is not None and self.events < resume.events and compare_offsets(self.boundary, resume.offset) == 0:
            raise self._other_rows_error(f"it has {self.events} row events, and {resume.events} are committed")
        self.last_commit = self.gtid, self.commit_us
        self.file, self.pos, self._boundary = file, pos, None
        self.events = self.statements = self.row_bytes = 0
        self.query = None

    def reached(self, gtids: str | None) -> ResumePosition:
        """Return the position after the last event.

        Args:
            gtids: GTID set executed up to the boundary.
        """
        boundary = self.boundary
        gtid, commit_us = self.last_commit
        last_commit = f"{gtid}@{commit_us}" if gtid is not None and commit_us > 0 else self.start.last_commit
        read_empty, read_as_text = (
            str(tracker.gtid_set().newest(MOST_READ_EMPTY)) for tracker in (self._read_empty, self._read_as_text)
        )
        self._read_empty, self._read_as_text = GtidTracker(read_empty), GtidTracker(read_as_text)
        boundary = boundary.with_position(boundary.file, boundary.pos, gtids)
        offset = replace(
            boundary, last_commit=last_commit, read_empty=read_empty or None, read_as_text=read_as_text or None
        )
        if not self.events and not self.statements:
            return ResumePosition(offset)
        return ResumePosition(offset, self.events, self.statements, self.last_transaction[1], self.row_bytes)

    @property
    def local_gtids(self) -> LocalGtids:
        """How the server that is read signs its own transactions."""
        return self._local_gtids

    @local_gtids.setter
    def local_gtids(self, local_gtids: LocalGtids) -> None:
        self._local_gtids = local_gtids
        self.signers = {**local_gtids.sources, local_gtids.server_id: local_gtids.server_uuid}

    def sign(self, server_id: int, gtid: str | None) -> None:
        """Take the server id and the GTID of a transaction; only then it is known whether the GTID is lent."""
        self.last_transaction, self.is_lent, self.is_text = (server_id, gtid), False, False
        if gtid is None:
            return
        local, uuid = self._local_gtids, gtid_source(gtid)
        is_own = server_id == local.server_id
        if uuid not in local.group_uuids and not (is_own and uuid == local.server_uuid):
            self.is_lent = bool(known := self.signers.get(server_id)) and known != uuid
        if not (is_own and self.is_lent):
            self.signers[server_id] = uuid

    def note_empty(self) -> None:
        """Remember the transaction that ends if it has nothing but BEGIN and COMMIT."""
        if self.gtid is not None and not self.events and self.statements == _BEGIN_AND_COMMIT:
            self._read_empty.add(self.gtid)

    def note_unchanged(self) -> None:
        """Remember the transaction that ends if it has a lent GTID and no captured table was changed, or no rows."""
        if self.gtid is not None and self.is_lent:
            self._read_empty.add(self.gtid)
        elif self.gtid is not None and self.is_text and not self.events:
            self._read_as_text.add(self.gtid)

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

    def partly_committed(self) -> tuple[str, int] | None:
        """Return file and position before the transaction that begins, if a part of it is committed; else None."""
        resume = self.resume
        if resume is None or resume.is_boundary or compare_offsets(self.boundary, resume.offset) != 0:
            return None
        return self.file, self.pos

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
