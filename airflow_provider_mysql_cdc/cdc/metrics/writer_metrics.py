"""What one writer of a batch says of its part: counts, and the last event that it has handled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.metrics.stream_counts import StreamCounts
from airflow_provider_mysql_cdc.cdc.model.offset import file_number
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record


@dataclass(frozen=True, slots=True)
class EventPlace(Record):
    """Say which row event a writer has handled last.

    Args:
        file: Its binlog file.
        pos: Where it begins; where whole transactions are decoded at once, where the last one ends.
        table: Its table.
        operation: ``c``, ``u`` or ``d``; empty where whole transactions are decoded at once.
        gtid: GTID of its transaction; empty without one.
        server_id: Server id of the server that it was written on.
        source_ms: When its transaction was committed, milliseconds since 1970 by the server's clock.
        handled_ms: When the writer noted it (at its reports and commits), milliseconds since 1970 by its host's clock.
    """

    file: str
    pos: Count
    table: str
    operation: str = ""
    gtid: str = ""
    server_id: Count = 0
    source_ms: Count = 0
    handled_ms: Count = 0

    @property
    def text(self) -> str:
        """Return the place in one line."""
        operation = f", op={self.operation}" if self.operation else ""
        gtid = f", gtid={self.gtid}" if self.gtid else ""
        return f"table={self.table}{operation}, file={self.file}, pos={self.pos}{gtid}"


@dataclass(frozen=True, slots=True)
class WriterMetrics(Record):
    """Say what a writer has read of its batch.

    Args:
        counts: What it has read; that which all writers read (filtered events, transactions) counts writer 0 alone.
        last_event: The last row event of which it has produced records; None when there was none.
        transaction: The last transaction that it has read, by GTID or else position; empty when there was none.
        schema_change: The last statement that has changed a structure; empty when there was none.
        schema_change_ms: When the writer applied it, milliseconds since 1970; 0 when there was none.
        position: Where it is in the binlog, file and position; empty and 0 when it has not begun.
        gtids: The GTID set at that position; empty without GTIDs.
        connected: Whether its connection to the source is up.
        bytes_pending: Bytes of records that are not committed.
        queued: Records in the queue of its Kafka client.
    """

    counts: StreamCounts = field(default_factory=StreamCounts)
    last_event: EventPlace | None = None
    transaction: str = ""
    schema_change: str = ""
    schema_change_ms: Count = 0
    position: tuple[str, Count] = ("", 0)
    gtids: str = ""
    connected: bool = False
    bytes_pending: Count = 0
    queued: Count = 0


def latest_event(writers: Sequence[WriterMetrics]) -> EventPlace | None:
    """Return the event that was committed last on the source, of those that the writers have handled last.

    Args:
        writers: What each writer says.
    """
    places = [writer.last_event for writer in writers if writer.last_event is not None]
    return max(places, key=lambda place: (place.source_ms, file_number(place.file), place.pos), default=None)


def add_writers(writers: Sequence[WriterMetrics]) -> StreamCounts:
    """Return the counts of all writers together.

    Args:
        writers: What each writer says.
    """
    total = StreamCounts()
    for writer in writers:
        total = total.add(writer.counts)
    return total
