"""Which transactions of a stream the rows of a snapshot's chunk contain, also after a failover or a reset.

The stream of the snapshot's own binlog is compared by file and position. On another server only GTIDs mean the same.
After a reset of the same server even those come again, so nothing is compared: all that it logs since then is newer.
They come again on its replicas, too, where nothing shows the reset; so the time at which a transaction was committed
first has to fit as well (``original_commit_timestamp``, MySQL 8.0.1 and later, the same on every server).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, order
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import held_back

_SECOND_MS = 1000


class CommittedBy(NamedTuple):
    """Name the transaction that commits rows.

    Args:
        gtid: Its GTID, or None.
        us: When it was committed first, microseconds since 1970; 0 when the server does not tell.
    """

    gtid: str | None = None
    us: int = 0


NOT_KNOWN = CommittedBy()


@dataclass(frozen=True, slots=True)
class ReadAt:
    """Say which transactions of a stream the rows of a chunk contain.

    Args:
        offset: Where the binlog stood when the chunk's view opened.
        gtids: The set executed then, where the stream is read on another server: only GTIDs mean the same there. None
            where file and position do.
        until_us: Beside ``gtids``: no transaction committed later is contained, microseconds since 1970.
    """

    offset: BinlogOffset
    gtids: GtidSet | None = None
    until_us: int = 0

    @classmethod
    def after(cls, start: BinlogOffset, offset: BinlogOffset, ts_ms: int = 0) -> ReadAt | None:
        """Return what tells the transactions behind ``start`` that a chunk contains; None when it contains none.

        After a reset of one server nothing tells, and nothing needs to: what it logs since then is newer than the rows.

        Args:
            start: Where the stream begins.
            offset: Where the binlog stood when the chunk was read.
            ts_ms: When that was, in whole seconds; 0 when it is not known, then GTIDs tell nothing.
        """
        if comparable(offset, start):
            return cls(offset) if order(offset, start) > 0 else None
        gtids = GtidSet.parse(offset.gtids)
        same_server = (offset.server_uuid or "").lower() == (start.server_uuid or "").lower()
        if same_server or (start.gtids is not None and GtidSet.parse(start.gtids).contains(gtids)):
            return None
        return cls(offset, gtids, (ts_ms + _SECOND_MS) * 1000) if gtids and ts_ms else None

    def contains(self, event: Event, by: CommittedBy) -> bool:
        """Return whether the chunk's rows contain a transaction.

        Args:
            event: An event of it.
            by: The transaction.
        """
        if self.gtids is not None:
            return by.gtid is not None and 0 < by.us < self.until_us and self.gtids.contains(by.gtid)
        return self.offset.covers(event.file, event.end_pos)


def filters_in_force(
    cfg: ConnectorConfig,
    conn: Any,
    entries: Sequence[dict[str, Any]],
    start: BinlogOffset,
    log: Log,
) -> list[dict[str, Any]]:
    """Return the filters of a snapshot that still mean something for a stream, as the writers take them.

    Where a chunk's binlog is not the stream's any more, its position is worth nothing: nothing is held back then, so
    that nothing is lost.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        entries: Ledger records of the snapshot's chunks (``chunk_books.finished_chunks``).
        start: The batch's start, which was compared with the server.
        log: Takes one line of text.

    Raises:
        SourceError: What the server says.
    """
    views = [(BinlogOffset.from_json(held_back(entry)["offset"]), view_ms(entry)) for entry in entries]
    wanted = {view: _in_force(cfg, conn, view, start, log) for view in dict.fromkeys(views)}
    return [entry for entry, view in zip(entries, views, strict=True) if wanted[view]]


def view_ms(record: Mapping[str, Any]) -> int:
    """Return when the view opened in which a chunk was read, milliseconds since 1970; 0 when its record does not say.

    Args:
        record: The chunk's ledger record.
    """
    return int(held_back(record).get("ts_ms", 0))


def passed(record: Mapping[str, Any], end: BinlogOffset) -> bool:
    """Return whether no stream from an offset on can repeat what a chunk contains, so that its record may go.

    Args:
        record: The chunk's ledger record.
        end: Where the next batch begins.
    """
    offset = BinlogOffset.from_json(held_back(record)["offset"])
    if comparable(offset, end):
        return order(offset, end) <= 0
    return (
        bool(offset.gtids) and end.gtids is not None and GtidSet.parse(end.gtids).contains(GtidSet.parse(offset.gtids))
    )


def _in_force(cfg: ConnectorConfig, conn: Any, view: tuple[BinlogOffset, int], start: BinlogOffset, log: Log) -> bool:
    offset, ts_ms = view
    read = ReadAt.after(start, offset, ts_ms)
    note = f"rows that the snapshot read at {offset} of server {offset.server_uuid}"
    if read is None:
        if not comparable(offset, start):
            log(f"{note}: nothing of this stream is taken as contained in them, it is another server's or was reset")
        return False
    if read.gtids is not None:
        log(f"{note}: transactions that they contain are told by their GTIDs and times")
        return True
    try:
        check_available(conn, cfg.connection_settings(), offset)
    except BinlogPurgedError as error:
        log(f"{note}: nothing of this stream is taken as contained in them: {error.why}")
        return False
    return True
