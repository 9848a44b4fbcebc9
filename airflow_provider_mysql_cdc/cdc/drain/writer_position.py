"""The position of a writer in the binlog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError, UnsupportedEventError
from airflow_provider_mysql_cdc.cdc.model.gtid import MOST_READ_EMPTY, GtidTracker, gtid_source
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, compare_offsets

_HEADER_AND_CHECKSUM = 23
_BEGIN_AND_COMMIT = 2


def row_event_size(event: Event) -> int:
    """Return the length of a row event's body.

    A row event that nobody reads may be held only in part; one of a compressed transaction has no position. A server
    with another binlog_checksum has the same rows in a longer or shorter event.
    """
    held = event.end - event.body
    return held if event.inner else max(held, event.end_pos - event.start_pos - _HEADER_AND_CHECKSUM)


@dataclass(slots=True)
class WriterPosition:
    """Track the writer's position in the binlog, and what an earlier attempt has committed.

    Its methods alone change it: ``begin``, ``begin_statement``, ``add_statement``, ``add_rows``, ``end_statement`` and
    ``end`` in the order of a transaction's events, ``move_to`` between two of them. What is asked changes nothing.

    Args:
        resume: The position up to which an earlier attempt committed the batch; None once a later row event is read.
        events: Row events seen in the transaction after the last boundary, of all tables.
        commit_us: Its commit time in microseconds since the epoch, 0 when the server does not log it.
        query: The statement that caused the rows, when the server logs it.
        begun: Whether its BEGIN has passed; DDL inside it belongs to CREATE TABLE ... SELECT.
        statements: Its QUERY events, and structures that its TABLE_MAP events have corrected.
        row_bytes: Sum of the lengths of its row events' bodies.
        last_transaction: Server id and GTID of the last transaction whose GTID event was read.
        last_commit: GTID, or None, and commit time of the transaction before the last boundary.
        is_lent: Whether the transaction has a GTID of another server than the ones before it with its server id, and
            has changed no captured table so far.
        is_text: Whether it has a statement that changes no structure.
        signers: server_uuid of the last GTID by server id.
        tracker: GTIDs executed up to the boundary.
        file, pos: The last boundary.
    """

    start: BinlogOffset
    resume: ResumePosition | None = None
    events: int = 0
    thread: int = 0
    gtid: str | None = None
    commit_us: int = 0
    query: str | None = None
    begun: bool = False
    statements: int = 0
    row_bytes: int = 0
    last_transaction: tuple[int, str | None] = (0, None)
    last_commit: tuple[str | None, int] = (None, 0)
    is_lent: bool = False
    is_text: bool = False
    signers: dict[int, str] = field(default_factory=dict)
    tracker: GtidTracker = field(init=False)
    file: str = field(init=False)
    pos: int = field(init=False)
    _boundary: BinlogOffset | None = field(init=False)
    _read_empty: GtidTracker = field(init=False)
    _read_as_text: GtidTracker = field(init=False)
    _local_gtids: LocalGtids = field(default_factory=LocalGtids)

    def __post_init__(self) -> None:
        self._boundary, self._read_empty = self.start, GtidTracker(self.start.read_empty or "")
        self._read_as_text, self.tracker = GtidTracker(self.start.read_as_text or ""), GtidTracker(self.start.gtids)
        self.file, self.pos = self.start.file, self.start.pos

    # -- what changes it ----------------------------------------------------------------------------------------------

    def connect(self, local_gtids: LocalGtids) -> None:
        """Read from a server that signs its own transactions in some way."""
        self._local_gtids = local_gtids
        self.signers = {**local_gtids.sources, local_gtids.server_id: local_gtids.server_uuid}

    def begin(self, file: str, server_id: int, gtid: str | None, commit_us: int) -> None:
        """Begin a transaction at its GTID event."""
        if file != self.file:
            # A file that ended because the server stopped or crashed has no ROTATE event that names the next one.
            self.move_to(file, FILE_START)
        self.events = self.statements = self.row_bytes = self.thread = 0
        self.query, self.begun, self.is_lent, self.is_text = None, False, False, False
        self.gtid, self.commit_us, self.last_transaction = gtid, commit_us, (server_id, gtid)
        if gtid is not None and not gtid.startswith(self.signers.get(server_id, "-")):
            self._sign(server_id, gtid_source(gtid))

    def _sign(self, server_id: int, uuid: str) -> None:
        local = self._local_gtids
        is_own = server_id == local.server_id
        if uuid not in local.group_uuids and not (is_own and uuid == local.server_uuid):
            self.is_lent = bool(known := self.signers.get(server_id)) and known != uuid
        if not (is_own and self.is_lent):
            self.signers[server_id] = uuid

    def begin_statement(self, thread: int) -> None:
        """Pass the BEGIN of the transaction, or its XA START, which shows no thread."""
        self.statements += 1
        self.thread, self.begun = thread, True

    def add_statement(self, thread: int | None = None) -> None:
        """Count another QUERY event, with the thread that its records show, or a corrected structure."""
        self.statements += 1
        if thread is not None:
            self.thread = thread

    def note_query(self, text: str | None) -> None:
        """Take the statement that causes the next rows."""
        self.query = text

    def note_change(self) -> None:
        """Note that the transaction changes a captured table."""
        self.is_lent = False

    def note_text(self, *, is_text: bool) -> None:
        """Note whether the last statement of the transaction changes no structure."""
        self.is_text = is_text

    def show(self, gtid: str | None, commit_us: int) -> None:
        """Let rows show another transaction: the one that has prepared them, or again the one that commits them."""
        self.gtid, self.commit_us = gtid, commit_us

    def add_rows(self, size: int) -> None:
        """Count a row event of the transaction, with the length of its body (``row_event_size``).

        Raises:
            ServerChangedError: The row events that an earlier attempt has committed were others.
        """
        self.events += 1
        self.row_bytes += size
        resume = self.resume
        if resume is None:
            return
        if self.events == resume.events and resume.gtid is not None:
            self._require_same_rows(resume)
        if not self.rows_committed():
            self.resume = None

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

    def end_statement(self) -> None:
        """Count the COMMIT or ROLLBACK that ends the transaction; remember one that has nothing but that and BEGIN."""
        self.statements += 1
        if self.gtid is not None and not self.events and self.statements == _BEGIN_AND_COMMIT:
            self._read_empty.add(self.gtid)

    def end(self, file: str, pos: int) -> None:
        """End the transaction: its GTID is executed, and the position after it is a boundary (``move_to``)."""
        gtid = self.gtid
        if gtid is not None:
            self.tracker.add(gtid)
            if self.is_lent:  # and no captured table was changed
                self._read_empty.add(gtid)
            elif self.is_text and not self.events:
                self._read_as_text.add(gtid)
        self.move_to(file, pos)

    def add_executed(self, runs: Iterable[tuple[str, int, int]]) -> None:
        """Pass whole transactions by their GTIDs: a server's UUID, the first number and the one after the last."""
        for run in runs:
            self.tracker.add_range(*run)

    def move_to(self, file: str, pos: int) -> None:
        """Move to another transaction boundary, or to the beginning of a file, and reset the counts.

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

    def read_again(self, reached: ResumePosition) -> None:
        """Go back to the boundary before the transaction that the connection broke in; it is produced up to there."""
        if not self.is_before_resume():
            self.resume = reached
        self.events = self.statements = self.row_bytes = 0
        self.query, self.begun = None, False
        self.gtid, self.commit_us = self.last_commit

    # -- what is asked ------------------------------------------------------------------------------------------------

    @property
    def boundary(self) -> BinlogOffset:
        """Return the last transaction boundary passed; its GTID set is rendered at commits only."""
        boundary = self._boundary
        if boundary is None:
            # Built on demand: most transactions pass without a use of it.
            boundary = self._boundary = BinlogOffset(self.file, self.pos, None, self.start.server_uuid)
        return boundary

    def reached(self) -> ResumePosition:
        """Return the position after the last event."""
        boundary = self.boundary
        gtid, commit_us = self.last_commit
        last_commit = f"{gtid}@{commit_us}" if gtid is not None and commit_us > 0 else self.start.last_commit
        read_empty, read_as_text = (
            str(tracker.gtid_set().newest(MOST_READ_EMPTY)) for tracker in (self._read_empty, self._read_as_text)
        )
        # Older ones are never asked for.
        self._read_empty, self._read_as_text = GtidTracker(read_empty), GtidTracker(read_as_text)
        boundary = boundary.with_position(boundary.file, boundary.pos, self.tracker.text())
        offset = replace(
            boundary, last_commit=last_commit, read_empty=read_empty or None, read_as_text=read_as_text or None
        )
        if not self.events and not self.statements:
            return ResumePosition(offset)
        return ResumePosition(offset, self.events, self.statements, self.last_transaction[1], self.row_bytes)

    @property
    def has_moved(self) -> bool:
        """Whether an event of the batch was read."""
        moved = (self.file, self.pos) != (self.start.file, self.start.pos)
        return moved or self.gtid is not None or bool(self.events or self.statements)

    @property
    def is_torn(self) -> bool:
        """Whether a transaction lacks its end if nothing of it follows, and no earlier attempt has seen that."""
        return bool(self.events) and not self.transaction_committed()

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
        return comparison < 0 or (comparison == 0 and count <= committed_count)


def require_no_rows(position: WriterPosition, sql: str, event: Event) -> None:
    """Refuse ``ROLLBACK`` and ``ROLLBACK TO`` behind row events.

    MySQL writes a transaction that it rolls back only where it changed tables without transactions as well: their rows
    stay, and those of the others do not (MySQL manual, "Replication and Transactions"). With row events each kind is
    written by itself, so neither statement is expected behind rows.

    Args:
        position: Where the writer is.
        sql: The statement.
        event: Its event.

    Raises:
        UnsupportedEventError: Rows came before it in its transaction.
    """
    if not position.events:
        return
    raise UnsupportedEventError(
        "a transaction with rows was rolled back in the binlog",
        where=f"{event.where()}: {sql[:200]}, transaction since {position.file}:{position.pos}",
        why=f"which of its {position.events} row events are valid depends on the engines of its tables",
        remedy="look at the transaction with mysqlbinlog; to go on behind it trigger mysql_cdc_reset_offset with the "
        "position after it (offset=file:position), and then mysql_cdc_verify with repair=yes",
    )
