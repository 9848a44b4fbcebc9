"""Whole transactions of a drain through the native kernel: what it has walked is produced, and passed, here.

Nothing is committed inside of what one call walks, so a marker always names the end of a transaction whose records, and
those of all before it, are in Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source_marks as avro_marks
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource
from airflow_provider_mysql_cdc.cdc.binlog.constants import ANONYMOUS_GTID_LOG_EVENT
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import LEFT, Marked, NativeWalker, Walked
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer
from airflow_provider_mysql_cdc.cdc.drain.record_output import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.table_routes import Route
from airflow_provider_mysql_cdc.cdc.drain.writer_position import Position
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.emit.source_marks import marked
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_partition import ByTransaction
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source as flat_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import FlatSource

_KIND = 9
"""Offset of an event's type in its packet: behind the packet's header, the status and the timestamp."""


@dataclass(slots=True)
class WalkedTransactions:
    """Walk transactions for a writer, as long as nothing is asked of it that only the loop of events can do.

    Args:
        walker: The kernel's walker.
        output: Takes the records.
        at: Where the writer stands, which goes on changing.
        tracker: The GTIDs that the writer has passed.
        committer: Commits when enough has come together.
        passed: Told server id and GTID of the last transaction.
    """

    walker: NativeWalker
    output: RecordOutput
    at: Position
    tracker: GtidTracker
    committer: Committer
    passed: Callable[[int, str | None], None]

    def learn(self, event: Event, route: Route) -> None:
        """Take over what the rows behind a TABLE_MAP event become.

        Args:
            event: The event.
            route: The table's route.
        """
        table_map = event.buf[event.body + TABLE_ID_BYTES : event.end]
        # Records that are formed behind the decoder name the row event in their errors.
        flat = isinstance(route.source, FlatSource)
        if route.signals is None and (route.form is None or flat) and self.walker.wants(table_map):
            # Flat rows say their partition themselves.
            partitions = 1 if flat else max(1, route.share.partitions)
            self.walker.learn(table_map, route, decoder_of(route), around_of(route), partitions)

    def walk(self, chunk: bytes, at: int, file: str, pos: int, limit: int, tail: int) -> Walked:
        """Walk transactions and produce their records; arguments as for ``NativeWalker.walk``.

        Raises:
            CdcError: Kafka does not take a record, or refuses a commit.
        """
        place = self.at
        # Ids of records without a GTID are made of places, which the kernel does not tell.
        unnamed = self.walker.by_event and chunk[at + _KIND] == ANONYMOUS_GTID_LOG_EVENT
        if place.resume is not None or self.walker.failed or unnamed:
            return Walked(at, pos, LEFT, [], [], None)
        found = self.walker.walk(chunk, at, file, pos, limit, tail)
        if found.last is None:
            return found
        for route, records, partition, gtid, event, size in found.segments:
            # Ids of records tell them (RecordOutput).
            place.gtid, place.events = gtid, event
            self.output.walked(route, records, partition, size)
        for run in found.gtids:
            self.tracker.add_run(*run)
        server, place.gtid, place.commit_us, place.thread = found.last
        place.begun = True
        place.pass_to(file, found.pos)
        self.passed(server, place.gtid)
        self.committer.check()
        return found


def decoder_of(route: Route) -> Any:
    """Return what decodes a table's rows at once; None for rows that nobody wants.

    Args:
        route: The table's route.
    """
    return decoder_of_rows(None if route.source is None else route.decoder)


def decoder_of_rows(decoder: Any) -> Any:
    """Return what writes rows at once.

    Args:
        decoder: A route's.
    """
    return decoder.direct if isinstance(decoder, AvroRows) else decoder


def _known_ahead(decoder: Any) -> bool:
    """Return whether the partitions of flat rows do not depend on their transaction."""
    flat = getattr(decoder_of_rows(decoder), "flat", None)
    return flat is not None and not isinstance(flat.spread, ByTransaction)


def around_of(route: Route) -> Marked | None:
    """Return the texts around a table's rows; None where they cannot be told ahead.

    Args:
        route: The table's route.
    """
    source = route.source
    if isinstance(source, FlatSource):
        return flat_source.marked(source) if _known_ahead(route.decoder) else None
    if isinstance(source, AvroSource):
        return avro_marks.marked(source)
    return marked(source) if isinstance(source, SourceBlock) else None
