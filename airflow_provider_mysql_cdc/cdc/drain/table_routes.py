"""From a TABLE_MAP event to everything a writer needs for the rows that follow it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import check_rows, common_headers, rows_header
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, parse_table_map
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic, topic_record, topics_changed_error
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode import native_kernel, native_transactions
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import RowFunctions
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, TolerantDecoder
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import SnapshotFilter
from airflow_provider_mysql_cdc.cdc.drain.topic_precreation import TopicPrecreation
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.emit import source_block as source_of
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.emit.topic_names import TopicOwners
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options, topic_routing
from airflow_provider_mysql_cdc.cdc.formats.avro_format import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows, create_avro_rows
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.formats.partition_share import TopicShare, partition_of, topic_share
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, RecordFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import TicdcRows, create_ticdc_rows
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalRowReader, SignalRows
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

log = logging.getLogger(__name__)
MAX_UNCHECKED_ROUTES = 1_000
"""Routes that are kept without a look whether their tables are still there."""
DecodeRows = Callable[[bytes, int, int, Any, list[Any]], int]


@dataclass(frozen=True, slots=True)
class TableRoute:
    """Hold what one table version needs.

    Args:
        table: The table's name.
        topic: Its topic.
        share: What this writer owns of the topic.
        source: Writer of the source block.
        decoder: The generated decoder; None when this writer skips the table.
        decode: The decoder's functions for write, update and delete rows and for partial updates.
        signals: Reads rows of the signal table; None for other tables.
        path: The table's name as counts have it (``TableId.path``).
        record_format: The form of its records, but those that know their partition; None for what the decoder gives.
        id_headers: Headers that records get beside their other ones, or None.
        fill_source: Puts the source block of an event into the decoder's context.
        headers: What stands before the rows of most events, by event type (``common_headers``); empty where each event
            is looked at in full.
    """

    table: TableId
    topic: str
    share: TopicShare
    source: SourceBlock | AvroSource | TicdcSource | None
    decoder: RowFunctions | None
    decode: tuple[DecodeRows, ...]
    signals: SignalRowReader | None = None
    path: str = ""
    record_format: RecordFormat | None = None
    id_headers: IdHeaders | None = None
    fill_source: Callable[..., None] = source_of.fill
    headers: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _CachedRoute:
    """Hold a route, the structure that it was made for, and after how many statements that was last seen in force."""

    route: TableRoute
    table_version: Table | None
    statement_count: int


def _decode_functions(decoder: RowFunctions | TolerantDecoder) -> tuple[DecodeRows, ...]:
    return decoder.write, decoder.update, decoder.delete, decoder.partial_update


def _counting_functions(
    decode: tuple[DecodeRows, ...], decoder: RowFunctions, tally: native_kernel.Tally
) -> Iterator[DecodeRows]:
    """Yield a decoder's functions; those that never ask the native kernel count their events."""
    native = getattr(decoder, "native", False)
    default_reason = "table" if isinstance(decoder, RowDecoder) else "format"
    for function, partial in zip(decode, (False, False, False, True), strict=True):
        reason = "partial_update" if native and partial else default_reason
        yield function if native and not partial else tally.counting_fallbacks(function, reason)


def _source_writer(
    cfg: ConnectorConfig, table: TableId, source_block: SourceBlock, avro_rows: AvroRows | None
) -> tuple[SourceBlock | AvroSource | TicdcSource, Callable[..., None]]:
    """Return what writes the source block of a table's rows, and what puts it into a context."""
    if avro_rows is None:
        return source_block, source_of.fill_time if cfg.is_ticdc else source_of.fill
    if isinstance(avro_rows, TicdcRows):
        return TicdcSource(source_block, table_options.ticdc_modes(cfg).extension), ticdc_source.fill
    return avro_source.avro_source(table, cfg[F.TOPIC_PREFIX], source_block), avro_source.fill


def _named_tables(changes: Iterable[TableChange]) -> set[TableId] | None:
    """Return the tables that changes name; None where they do not name all: a database, or what was not understood."""
    tables: set[TableId] = set()
    for change in changes:
        if change.id is None:
            return None
        tables.add(change.id)
        if change.previous_id is not None:
            tables.add(change.previous_id)
    return tables or None


class TableRoutes:
    """Make and remember routes, each as long as its table has the structure that it was made for.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        writer: This writer's index.
        run_id: Id of the run, for the context headers.
        snapshot_filter: Gets to know each table version; None when there are none.
        recorded_topics: Topics as the ledger knows them.
        window_keys: Gets to know each version of a table under snapshot; None outside of a round.
        formats: The forms of records; None when all is JSON.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        plan: BatchPlan,
        writer: int,
        run_id: str,
        snapshot_filter: SnapshotFilter | None = None,
        recorded_topics: Mapping[str, RecordedTopic] = MappingProxyType({}),
        window_keys: WindowKeys | None = None,
        formats: RecordFormats | None = None,
    ) -> None:
        self._formats = formats
        # Called before a route is made, which can mean a question to the registry.
        self.before_build: Callable[[], None] = lambda: None
        self._snapshot_filter, self._recorded_topics, self._window_keys = snapshot_filter, recorded_topics, window_keys
        self._cfg, self._plan, self._writer = cfg, plan, writer
        self._cache: dict[bytes, _CachedRoute] = {}
        self._statements, self._cache_limit = 0, MAX_UNCHECKED_ROUTES
        # Rows of the last event that could not be decoded; None when such a row stops the run.
        self.failed_rows: list[BadRow] | None = [] if DeadLetterReporter.enabled(cfg) else None
        self.options, self._has_table_options = table_options.decoder_options(cfg), table_options.has_table_options(cfg)
        self._created_topics: dict[str, int] = {}
        self._precreation = TopicPrecreation(cfg, self._missing_topic)
        self._owners: TopicOwners | None = None
        # Ledger records of topics born inside the batch and of signals, for the next commit.
        self.side_records: list[SideRecord] = []
        awaits_watermark = window_keys is not None and window_keys.low_watermark_id is not None
        on_watermark = window_keys.on_watermark if window_keys is not None and awaits_watermark else None
        self.signals = SignalRows.for_writer(cfg, plan.epoch, writer, self.side_records, on_watermark)
        self.has_id_header: bool = cfg[F.CDC_ID_HEADER]
        self._tally = native_kernel.kernel().new_tally()
        self.headers: list[tuple[str, bytes]] = table_options.headers(cfg, run_id)

    def on_schema_change(
        self, before: SchemaState, after: SchemaState, where: str, changes: Iterable[TableChange] = ()
    ) -> None:
        """Look at the structures anew, because a statement changed tables.

        Args:
            before: Structures before it.
            after: Structures behind it.
            where: Its place, for the error.
            changes: What it did.

        Raises:
            ConfigError: A table that came with it would share its topic with another (FAULT-32).
        """
        self._statements += 1
        if self._owners is None:
            self._owners = topic_routing.topic_owners(self._cfg, before.tables)
        self._owners.update_tables(after.tables.keys(), where, _named_tables(changes))

    def native_counts(self) -> NativeCounts:
        """Return what the native kernel has decoded of the batch."""
        return NativeCounts() if self._tally is None else self._tally.counts()

    def walker(self) -> native_transactions.NativeTransactionDecoder | None:
        """Return what walks whole transactions; None where each event is looked at in Python."""
        if self._tally is None or self._snapshot_filter is not None or self._window_keys is not None:
            return None
        if self._cfg[F.PROVIDE_TRANSACTION_METADATA] or self._cfg[F.INCLUDE_QUERY]:
            return None
        return native_transactions.NativeTransactionDecoder(
            native_kernel.kernel().module, self._tally, by_event=self.has_id_header
        )

    def of_table_map(self, event: Event, state: SchemaState) -> tuple[int, TableRoute]:
        """Return the table id and the route of a TABLE_MAP event.

        Args:
            event: The event.
            state: Table structures as of this event.
        """
        buf, body = event.buf, event.body
        table_id = int.from_bytes(buf[body : body + 6], "little")
        raw = buf[body + 6 : event.end]
        cached = self._cache.get(raw)
        if cached is None or (cached.statement_count != self._statements and not self._is_current(cached, state)):
            table_map = parse_table_map(event)
            self.before_build()
            route = self._build_route(table_map, state, event)
            table_version = state.tables.get(route.table)
            if (
                self.signals is not None
                and (reader := self.signals.row_reader(table_version, table_map, event.where())) is not None
            ):
                route = replace(route, signals=reader, headers={})
            self._evict_stale(state)
            cached = self._cache[raw] = _CachedRoute(route, table_version, self._statements)
        return table_id, cached.route

    def of_rows(self, event: Event, tables: Mapping[int, TableRoute]) -> tuple[TableRoute, int]:
        """Return the route of a row event and the offset of its first row, whatever its header looks like.

        Args:
            event: The event.
            tables: Routes by the numbers that TABLE_MAP events announced.

        Raises:
            BinlogCorruptError: No TABLE_MAP event stands before it, or it cannot belong to its table.
        """
        header = rows_header(event)
        route = tables.get(header.table_id)
        if route is None:
            raise self.unknown_table_error(event, header.table_id)
        if route.signals is not None:
            # Also of events that are committed: the transaction's end may not be.
            route.signals.read_event(event, header, c.ROW_EVENT_KINDS[event.type])
        if route.decoder is not None:
            check_rows(event, header, len(route.decoder.table.columns))
        return route, header.pos

    def _evict_stale(self, state: SchemaState) -> None:
        """Drop routes of tables that are gone or changed, before there are twice as many as tables."""
        if len(self._cache) >= self._cache_limit:
            self._cache = {raw: kept for raw, kept in self._cache.items() if self._is_current(kept, state)}
            self._cache_limit = max(MAX_UNCHECKED_ROUTES, 2 * len(self._cache))

    def _is_current(self, cached: _CachedRoute, state: SchemaState) -> bool:
        """Return whether a table has still the structure that a route was made for."""
        if state.tables.get(cached.route.table) is not cached.table_version:
            return False
        cached.statement_count = self._statements
        return True

    def _build_route(self, table_map: TableMap, state: SchemaState, event: Event) -> TableRoute:
        cfg = self._cfg
        table_id = TableId(table_map.db, table_map.table)
        if not cfg.captures(table_id):
            return TableRoute(table_id, "", TopicShare("", 0, frozenset(), False), None, None, ())
        if self._window_keys is not None and (table_version := state.tables.get(table_id)) is not None:
            self._window_keys.prepare_table(table_version, table_map)
        share = self.ensure_topic_share(table_id)
        topic = share.topic
        if not share.assigned and not cfg[F.PROVIDE_TRANSACTION_METADATA]:
            return TableRoute(table_id, topic, share, None, None, ())
        table = state.tables.get(table_id)
        if table is None and self._skips_unknown_table(table_id, event):
            return TableRoute(table_id, topic, share, None, None, ())
        if table is None:
            raise SchemaError(
                "rows of a table that the schema history does not know",
                where=f"{event.file}:{event.start_pos}, table {table_id}",
                why="the table was not captured when its CREATE TABLE passed, or the history topic is incomplete",
                remedy="take a snapshot of the table (snapshot.mode=recovery rebuilds the schema history)",
            )
        check_table_map(table, table_map)
        options = table_options.table_options(cfg, table, self.options) if self._has_table_options else self.options
        # Both schemas are registered here, before the first record of this version.
        record_format = (
            None if self._formats is None or not share.assigned else self._formats.table_format(table, options, topic)
        )
        envelope, source_block = (
            table_options.envelope_text(cfg, table, options),
            table_options.table_source_block(cfg, table_id),
        )
        decoder_args = table, table_map, options, envelope
        avro_rows = None if record_format is None else self._direct_rows(record_format, *decoder_args, share)
        source, fill = _source_writer(cfg, table_id, source_block, avro_rows)
        # Keys that are formed behind the decoder are not those that it makes.
        decoder = avro_rows or compile_decoder(
            *decoder_args, self._tally, self._owned_keys(share) if record_format is None else None
        )
        if self._snapshot_filter is not None:
            self._snapshot_filter.prepare_table(table, table_map)
        decode = _decode_functions(decoder if self.failed_rows is None else TolerantDecoder(decoder, self.failed_rows))
        return TableRoute(
            table_id,
            topic,
            share,
            source,
            decoder,
            decode if self._tally is None else tuple(_counting_functions(decode, decoder, self._tally)),
            path=table_id.path(),
            record_format=record_format if avro_rows is None or isinstance(avro_rows, TicdcRows) else None,
            id_headers=None if record_format is None else record_format.id_headers(),
            fill_source=fill,
            headers=common_headers(len(table.columns)),
        )

    def _owned_keys(self, share: TopicShare) -> OwnedKeys | None:
        """Return what tells this writer's rows; None where it has all, or where something looks at those of others.

        Transactions are counted with all rows, and rows that fail, or that chunks may hold, are told by each writer.
        """
        needs_all_rows = (
            self.failed_rows is not None,
            self._snapshot_filter is not None,
            self._cfg[F.PROVIDE_TRANSACTION_METADATA],
        )
        if share.all_assigned or any(needs_all_rows):
            return None
        return OwnedKeys(share.partitions, share.assigned, partition_of)

    def _direct_rows(
        self,
        record_format: RecordFormat,
        table: Table,
        table_map: TableMap,
        options: DecoderOptions,
        envelope: EnvelopeText,
        share: TopicShare,
    ) -> AvroRows | None:
        """Return what writes a table's rows in their form at once, or None."""
        decoder_args = table, table_map, options, envelope
        if isinstance(record_format, TicdcFormat):
            return create_ticdc_rows(record_format, *decoder_args, share.partitions, self._tally)
        return create_avro_rows(self._cfg, record_format, *decoder_args, self._tally, self._owned_keys(share))

    def ensure_topic_share(self, table: TableId) -> TopicShare:
        """Return what this writer owns of a captured table's topic; what it owns something of exists then.

        Args:
            table: The table.

        Raises:
            SinkError: The topic cannot be made.
            TopicChangedError: An earlier attempt at this batch found another topic of that name.
        """
        share = self.share_of_table(table)
        if self._is_missing(share):
            # A table created inside the batch, or one whose topic did not exist when the batch was planned.
            return self._create_topic(table, share.topic)
        return share

    def _create_topic(self, table: TableId, topic: str) -> TopicShare:
        """Create a topic, unless an earlier attempt, a transform or somebody else did; it is as large as it is found.

        The commit of its first record takes along what the topic is, so that the rest of the batch finds it the same.
        """
        topic_info, recorded = self._precreation.create(topic), self._recorded_topics.get(topic)
        # Spark may start a writer again within one attempt of the driver, which has compared the topics before.
        if (
            recorded is not None
            and recorded.epoch == self._plan.epoch
            and (difference := recorded.difference(topic_info))
        ):
            raise topics_changed_error({topic: difference}, self._plan, has_commits=True)
        self._created_topics[topic] = topic_info.partitions
        recorded_topic = RecordedTopic(topic_info.partitions, topic_info.id, self._plan.epoch)
        self.side_records.append(topic_record(self._cfg.ledger_topic, topic, recorded_topic))
        return self.share_of_table(table)

    def _missing_topic(self, table: TableId) -> str | None:
        """Return a captured table's topic when this writer owns something of it and it is not made; None otherwise."""
        share = self.share_of_table(table)
        return share.topic if self._is_missing(share) else None

    def _is_missing(self, share: TopicShare) -> bool:
        return (
            bool(share.assigned)
            and share.topic not in self._plan.partitions
            and share.topic not in self._created_topics
        )

    def _skips_unknown_table(self, table: TableId, event: Event) -> bool:
        """Return whether rows of an unknown table are left out (inconsistent.schema.handling.mode, STRM-24)."""
        mode = self._cfg[F.INCONSISTENT_SCHEMA_HANDLING_MODE]
        if mode == "warn":
            log.warning("rows of %s are left out from %s on: its structure is not known", table, event.where())
        return mode != "fail"

    def share_of_table(self, table: TableId) -> TopicShare:
        """Return what this writer owns of a captured table's topic."""
        topic = topic_routing.table_topic_name(self._cfg, table)
        return topic_share(
            self._plan, self._writer, topic, self._created_topics.get(topic, self._cfg[F.TOPIC_CREATION_PARTITIONS])
        )

    def unknown_table_error(self, event: Event, table_id: int) -> BinlogCorruptError:
        """Return the error for rows without a TABLE_MAP before them."""
        return BinlogCorruptError(
            f"a row event refers to table id {table_id}, which no TABLE_MAP event announced",
            where=f"{event.file}:{event.start_pos}",
            why="the start position is not a transaction boundary, or the binlog is damaged",
            remedy="check the binlog with mysqlbinlog --verify-binlog-checksum around this position",
        )
