"""What the writers of a batch say of their parts, and the families ``streaming`` and ``schema-history`` made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import (
    StreamCounts,
    StreamMetrics,
    bounded_names,
    bounded_text,
)
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


LAST_EVENT, BEHIND = "last_event_ms", "MilliSecondsBehindSource"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Say what bounds the records between decoding and Kafka, in place of the queue to Debezium's main loop.

    Args:
        records: Records that a Kafka client of a writer queues at most.
        bytes: Bytes of records that a writer commits together at most, roughly (``commit.bytes``).
    """

    records: int = 0
    bytes: int = 0


def streaming_metrics(
    writers: Sequence[WriterMetrics], tables: list[str] | None, limits: QueueLimits | None, now_ms: int
) -> StreamMetrics:
    """Return what the writers of a batch say together.

    Args:
        writers: What each writer says; none before their first report.
        tables: The captured tables, ``database.table``; None where they are not known.
        limits: The limits of what is between decoding and Kafka; None where they are not known.
        now_ms: The time, milliseconds since 1970.
    """
    return StreamMetrics(
        add_writers(writers),
        streaming={
            **({} if tables is None else {"CapturedTables": bounded_names(tables)}),
            **({} if limits is None else _queue(writers, limits)),
            **_position(writers),
            **_last_event(writers),
            "Connected": bool(writers) and all(writer.connected for writer in writers),
        },
        history=_schema_change(writers),
        at_ms=now_ms,
    )


def _queue(writers: Sequence[WriterMetrics], limits: QueueLimits) -> dict[str, Any]:
    return {
        "QueueTotalCapacity": limits.records,
        "QueueRemainingCapacity": max(0, limits.records - max((writer.queued for writer in writers), default=0)),
        "MaxQueueSizeInBytes": limits.bytes,
        "CurrentQueueSizeInBytes": sum(writer.bytes_pending for writer in writers),
    }


def _position(writers: Sequence[WriterMetrics]) -> dict[str, Any]:
    """Return the coordinates of the writer that is the least far."""
    begun = [writer for writer in writers if writer.position[0]]
    if not begun:
        return {}
    slowest = min(begun, key=lambda writer: (file_number(writer.position[0]), writer.position[1]))
    return {
        "BinlogFilename": slowest.position[0],
        "BinlogPosition": slowest.position[1],
        "IsGtidModeEnabled": bool(slowest.gtids),
        "GtidSet": slowest.gtids,
        **({"LastTransactionId": slowest.transaction} if slowest.transaction else {}),
    }


def _last_event(writers: Sequence[WriterMetrics]) -> dict[str, Any]:
    """Return what is known of the last event; nothing of it in a batch without events, which keeps the one before."""
    place = latest_event(writers)
    if place is None:
        return {}
    coordinates = {"file": place.file, "pos": str(place.pos), "server_id": str(place.server_id)}
    return {
        "LastEvent": place.text,
        LAST_EVENT: place.handled_ms,
        BEHIND: place.handled_ms - place.source_ms,
        "SourceEventPosition": {**coordinates, **({"gtid": place.gtid} if place.gtid else {})},
    }


def last_change_ms(streaming: Mapping[str, Any]) -> int | None:
    """Return when the change of the last event was committed, in milliseconds since 1970; None where there is none.

    Args:
        streaming: The attributes of the family ``streaming``.
    """
    handled_ms, behind_ms = streaming.get(LAST_EVENT), streaming.get(BEHIND)
    return None if handled_ms is None or behind_ms is None else int(handled_ms) - int(behind_ms)


def _schema_change(writers: Sequence[WriterMetrics]) -> dict[str, Any]:
    """Return the last change of a structure; all writers apply it, so the first one that has any is asked."""
    changed = [writer for writer in writers if writer.schema_change]
    if not changed:
        return {}
    latest = max(changed, key=lambda writer: writer.schema_change_ms)
    return {"LastAppliedChange": bounded_text(latest.schema_change), "applied_ms": latest.schema_change_ms}
