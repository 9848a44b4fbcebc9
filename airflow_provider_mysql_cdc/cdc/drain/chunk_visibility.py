"""Which transactions of a stream the rows of a snapshot chunk contain, also after a failover or a reset.

In the snapshot's own binlog, transactions are compared by file and position. On another server only GTIDs identify
them. After a reset of the same server even GTIDs are reused, so nothing is compared: all that it logs since then is
newer. They are reused on its replicas too, where nothing shows the reset; so the time at which a transaction was first
committed has to match as well (``original_commit_timestamp``, MySQL 8.0.1 and later, the same on every server).
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
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import contained_event_range

_SECOND_MS = 1000


class CommittingTransaction(NamedTuple):
    """Identify the transaction that commits rows.

    Args:
        gtid: Its GTID, or None.
        commit_us: When it was first committed, microseconds since 1970; 0 when the server does not log it.
    """

    gtid: str | None = None
    commit_us: int = 0


UNKNOWN_TRANSACTION = CommittingTransaction()


@dataclass(frozen=True, slots=True)
class ChunkVisibility:
    """Decide which transactions of a stream the rows of a chunk contain.

    Args:
        offset: End of the binlog when the chunk's view opened.
        gtids: The set executed then, where the stream is read from another server; None where file and position are
            compared.
        until_us: With ``gtids``: no transaction committed later is contained, microseconds since 1970.
    """

    offset: BinlogOffset
    gtids: GtidSet | None = None
    until_us: int = 0

    @classmethod
    def for_stream(cls, start: BinlogOffset, offset: BinlogOffset, ts_ms: int = 0) -> ChunkVisibility | None:
        """Return what identifies the transactions after ``start`` that a chunk contains; None when it contains none.

        After a reset of the same server it contains none: what the server logs since then is newer than the rows.

        Args:
            start: Where the stream begins.
            offset: End of the binlog when the chunk was read.
            ts_ms: Milliseconds since 1970 then, a whole second; 0 when it is not known, and GTIDs are not used then.
        """
        if comparable(offset, start):
            return cls(offset) if compare_offsets(offset, start) > 0 else None
        gtids = GtidSet.parse(offset.gtids)
        same_server = (offset.server_uuid or "").lower() == (start.server_uuid or "").lower()
        if same_server or (start.gtids is not None and GtidSet.parse(start.gtids).contains(gtids)):
            return None
        return cls(offset, gtids, (ts_ms + _SECOND_MS) * 1000) if gtids and ts_ms else None

    def contains(self, event: Event, transaction: CommittingTransaction) -> bool:
        """Return whether the chunk's rows contain a transaction.

        Args:
            event: An event of it.
            transaction: The transaction.
        """
        if self.gtids is not None:
            return (
                transaction.gtid is not None
                and 0 < transaction.commit_us < self.until_us
                and self.gtids.contains(transaction.gtid)
            )
        return self.offset.covers(event.file, event.end_pos)


def active_filters(
    cfg: ConnectorConfig,
    conn: Any,
    chunk_records: Sequence[dict[str, Any]],
    start: BinlogOffset,
    log: Log,
) -> list[dict[str, Any]]:
    """Return the chunk records of a snapshot that may still contain events of a stream.

    Where a chunk's binlog is no longer the stream's, its position cannot be compared: no event is dropped then, so that
    none is lost.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        chunk_records: Ledger records of the snapshot's chunks (``chunk_records.filtering_chunk_records``).
        start: The batch's start, which the server has.
        log: Takes one line of text.

    Raises:
        SourceError: The server refuses a query, or cannot be reached.
    """
    views = [
        (BinlogOffset.from_json(contained_event_range(entry)["offset"]), view_time_ms(entry)) for entry in chunk_records
    ]
    active = {view: _is_active(cfg, conn, view, start, log) for view in dict.fromkeys(views)}
    return [entry for entry, view in zip(chunk_records, views, strict=True) if active[view]]


def view_time_ms(record: Mapping[str, Any]) -> int:
    """Return when the view opened in which a chunk was read, milliseconds since 1970; 0 when its record does not say.

    Args:
        record: The chunk's ledger record.
    """
    return int(contained_event_range(record).get("ts_ms", 0))


def is_passed(record: Mapping[str, Any], end: BinlogOffset) -> bool:
    """Return whether a stream from an offset on contains no event of a chunk, so that its record may be deleted.

    Args:
        record: The chunk's ledger record.
        end: Where the next batch begins.
    """
    offset = BinlogOffset.from_json(contained_event_range(record)["offset"])
    if comparable(offset, end):
        return compare_offsets(offset, end) <= 0
    return (
        bool(offset.gtids) and end.gtids is not None and GtidSet.parse(end.gtids).contains(GtidSet.parse(offset.gtids))
    )


def _is_active(cfg: ConnectorConfig, conn: Any, view: tuple[BinlogOffset, int], start: BinlogOffset, log: Log) -> bool:
    offset, ts_ms = view
    visibility = ChunkVisibility.for_stream(start, offset, ts_ms)
    prefix = f"rows that the snapshot read at {offset} of server {offset.server_uuid}"
    if visibility is None:
        if not comparable(offset, start):
            log(f"{prefix}: no event is dropped for them; the stream is another server's, or the server was reset")
        return False
    if visibility.gtids is not None:
        log(f"{prefix}: transactions that they contain are recognized by their GTIDs and commit times")
        return True
    try:
        check_available(conn, cfg.connection_settings(), offset)
    except BinlogPurgedError as error:
        log(f"{prefix}: no event is dropped for them: {error.why}")
        return False
    return True
