"""Whole transactions through the native kernel: their records are produced here, and the writer's position moves on.

Nothing is committed within the transactions of one call, so a marker always names the end of a transaction whose
records, and those of all transactions before it, are in the same Kafka transaction or in earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource
from airflow_provider_mysql_cdc.cdc.binlog.constants import ANONYMOUS_GTID_LOG_EVENT
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode import native_transactions
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import (
    DECLINED,
    MarkedContext,
    NativeTransactionDecoder,
    NativeTransactions,
)
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.table_route import NO_SHARE, TableRoute
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.emit.source_marks import marked_context
from airflow_provider_mysql_cdc.cdc.formats import unwrapped_decoder
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import TransactionPartitioner
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_decoder import UnwrappedSource
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_rows import whole_transactions_unwrap
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitClock
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

_EVENT_TYPE_OFFSET = 9
"""Offset of an event's type in its packet: after the packet's header, the status and the timestamp."""


@dataclass(slots=True)
class WholeTransactions:
    """Decode whole transactions for a writer, except those that only its loop over events can handle.

    Args:
        walker: The native kernel's decoder of transactions.
        commit_clock: Gives transactions TiCDC's commit timestamps; None in other formats.
        has_chain: Whether records pass a chain of transforms, unless their table's rows are unwrapped directly.
    """

    walker: NativeTransactionDecoder
    output: RecordOutput
    position: WriterPosition
    committer: Committer
    commit_clock: CommitClock | None = None
    has_chain: bool = False

    def add_route(self, event: Event, route: TableRoute) -> None:
        """Give the kernel what it needs for the rows that follow a TABLE_MAP event."""
        if self.has_chain and route.source is not None and not isinstance(route.source, UnwrappedSource):
            return
        table_map = event.buf[event.body + TABLE_ID_BYTES : event.end]
        # Errors of records that are serialized after decoding name the row event, which the kernel does not report.
        flat = isinstance(route.source, TicdcSource)
        if route.signals is None and (route.record_format is None or flat) and self.walker.needs_table(table_map):
            partitions = 0 if route.share is NO_SHARE else max(1, route.share.partitions)
            self.walker.learn(table_map, route, decoder_of(route), row_context(route), partitions)

    def decode_transactions(
        self, chunk: bytes, chunk_offset: int, file: str, pos: int, limit: int, tail: int
    ) -> NativeTransactions:
        """Decode transactions and produce their records; arguments as for
        ``NativeTransactionDecoder.decode_transactions``.

        Raises:
            CdcError: Kafka does not accept a record, or refuses a commit.
        """
        position = self.position
        # Ids of records without a GTID contain positions, which the kernel does not report.
        without_gtid = self.walker.by_event and chunk[chunk_offset + _EVENT_TYPE_OFFSET] == ANONYMOUS_GTID_LOG_EVENT
        by_event = position.resume is not None or self.output.taken_over is not None
        if by_event or self.walker.failed or without_gtid:
            return NativeTransactions(chunk_offset, pos, DECLINED, [], [], None)
        clock = self.commit_clock
        self.walker.sign(position.signers)
        if clock is not None:
            self.walker.commit_ts = clock.last
        decoded = self.walker.decode_transactions(chunk, chunk_offset, file, pos, limit, tail)
        if clock is not None:
            clock.last = self.walker.commit_ts
        if decoded.last_transaction is None:
            return decoded
        for segment in decoded.segments:
            self.output.produce_decoded(*segment)
        self._count(decoded)
        position.add_executed(decoded.gtids)
        server_id, gtid, commit_us, thread = decoded.last_transaction
        position.begin(file, server_id, gtid, commit_us)
        position.begin_statement(thread)
        position.end(file, decoded.pos)
        self.committer.check()
        return decoded

    def _count(self, decoded: NativeTransactions) -> None:
        """Count what the kernel has decoded, of the partitions that are the writer's."""
        meter = self.output.counts.meter
        meter.add_decoded(*decoded.totals)
        for (route, _, partition, *_), changes in zip(decoded.segments, decoded.changes, strict=False):
            if partition in route.share.assigned:
                meter.add_changes(*changes)
                if decoded.last_transaction is not None:
                    _, gtid, commit_us, _ = decoded.last_transaction
                    meter.last_rows = route.path, None, gtid, commit_us


def create_transaction_decoder(
    cfg: ConnectorConfig,
    tally: Tally | None,
    window_keys: WindowKeys | None = None,
) -> NativeTransactionDecoder | None:
    """Return what decodes whole transactions; None where each event is handled in Python."""
    # Where a transform cannot take a record, the position has to tell its transaction.
    if tally is None or window_keys is not None or (cfg.chain is not None and not whole_transactions_unwrap(cfg)):
        return None
    if cfg[F.PROVIDE_TRANSACTION_METADATA] or cfg[F.INCLUDE_QUERY] or cfg.filters_gtid_sources:
        return None
    return native_transactions.NativeTransactionDecoder(kernel().module, tally, by_event=cfg[F.CDC_ID_HEADER])


def decoder_of(route: TableRoute) -> Any:
    """Return what the kernel decodes a table's rows with; None for rows of which no record is produced."""
    return decoder_of_rows(None if route.source is None else route.decoder)


def decoder_of_rows(decoder: Any) -> Any:
    """Return the decoder that writes rows in their record format in one step."""
    return decoder.avro_decoder if isinstance(decoder, AvroRows) else decoder


def _has_fixed_partition(decoder: Any) -> bool:
    """Return whether the partitions of flat TiCDC rows do not depend on their transaction."""
    flat = getattr(decoder_of_rows(decoder), "row_plan", None)
    return flat is not None and not isinstance(flat.partitioner, TransactionPartitioner)


def row_context(route: TableRoute) -> MarkedContext | None:
    """Return the texts around a table's rows; None where they are not known in advance."""
    source = route.source
    if isinstance(source, TicdcSource):
        return ticdc_source.marked_context(source) if _has_fixed_partition(route.decoder) else None
    if isinstance(source, AvroSource):
        return avro_source.marked_context(source)
    if isinstance(source, UnwrappedSource):
        return unwrapped_decoder.marked_context(source)
    return marked_context(source) if isinstance(source, SourceBlock) else None
