"""What a writer needs for the rows of one table version, and what of it is kept from batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import common_headers
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.hidden_columns import HiddenColumns
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, RowFunctions, TolerantDecoder
from airflow_provider_mysql_cdc.cdc.emit import source_block as source_of
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.formats import table_options, unwrapped_decoder
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows, create_avro_rows
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, RecordFormat
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import TicdcRows, create_ticdc_rows
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_decoder import UnwrappedSource
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_rows import create_unwrapped_rows
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalRowReader
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

DecodeRows = Callable[[bytes, int, int, Any, list[RowRecord]], int]
NO_SHARE = TopicShare("", 0, frozenset(), False)
"""The share of a table that is not captured."""


@dataclass(frozen=True, slots=True)
class TableRoute:
    """Hold what one table version needs.

    Args:
        table: The table's name.
        topic: Its topic.
        share: The partitions of the topic that this writer produces.
        source: Writer of the source block; None when this writer skips the table.
        decoder: The generated decoder; None when this writer skips the table.
        decode: The decoder's functions for write, update and delete rows and for partial updates.
        signals: Reads rows of the signal table; None for other tables.
        path: The table's name as the record counts have it (``TableId.path``).
        record_format: Serializes the decoder's records; None when they need no serializing, except flat TiCDC rows,
            which carry their partition.
        id_headers: Headers with schema ids that records get in addition to their other ones, or None.
        write_source_block: Puts the source block of an event into the decoder's context.
        counts_values: Whether this writer counts values that are null in records for want of a type. Where writers
            decode the rows of all partitions, the one with the first partition does.
        headers: The bytes before the rows of most events, by event type (``common_headers``); empty where each event's
            header is parsed.
        hidden: Removes hidden columns from row events; None where they have none.
    """

    table: TableId
    topic: str
    share: TopicShare
    source: SourceBlock | AvroSource | TicdcSource | UnwrappedSource | None
    decoder: RowFunctions | None
    decode: tuple[DecodeRows, ...]
    signals: SignalRowReader | None = None
    path: str = ""
    record_format: RecordFormat | None = None
    id_headers: IdHeaders | None = None
    write_source_block: Callable[..., None] = source_of.fill
    counts_values: bool = True
    headers: Mapping[int, bytes] = field(default_factory=dict)
    hidden: HiddenColumns | None = None


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """Hold what all routes of a writer have in common.

    Args:
        cfg: The connector's configuration.
        options: Decoder options of all tables (``decoder_options``).
        has_table_options: Whether the configuration has options of single tables or columns.
        formats: Gives each table its record format; None when all records are JSON.
        tally: Counts what the native kernel decodes; None without the kernel.
        failed_rows: Gets the rows of an event that could not be decoded; None when such a row stops the run.
        needs_all_rows: Whether rows of other writers' partitions are decoded too: transactions are counted with all
            rows, and rows that fail are found by decoding them.
    """

    cfg: ConnectorConfig
    options: DecoderOptions
    has_table_options: bool
    formats: RecordFormats | None
    tally: Tally | None
    failed_rows: list[BadRow] | None
    needs_all_rows: bool

    @classmethod
    def for_writer(cls, cfg: ConnectorConfig, formats: RecordFormats | None = None) -> RouteSettings:
        """Return the settings of a writer.

        Args:
            cfg: The connector's configuration.
            formats: Gives each table its record format; None when all records are JSON.
        """
        tolerant = DeadLetterReporter.enabled(cfg)
        return cls(
            cfg=cfg,
            options=table_options.decoder_options(cfg),
            has_table_options=table_options.has_table_options(cfg),
            formats=formats,
            tally=kernel().new_tally(),
            failed_rows=[] if tolerant else None,
            needs_all_rows=tolerant or cfg[F.PROVIDE_TRANSACTION_METADATA],
        )

    def decoder_options(self, table: Table) -> DecoderOptions:
        """Return the decoder options of a table version.

        Args:
            table: The table.
        """
        return table_options.table_options(self.cfg, table, self.options) if self.has_table_options else self.options

    def owned_keys(self, share: TopicShare) -> OwnedKeys | None:
        """Return how the decoder recognizes rows of this writer's partitions; None where it decodes all rows.

        Args:
            share: The writer's share of the table's topic.
        """
        if share.all_assigned or self.needs_all_rows:
            return None
        return OwnedKeys(share.partitions, share.assigned, partition_of)


def skipped_route(table: TableId, share: TopicShare = NO_SHARE) -> TableRoute:
    """Return the route of a table of which this writer produces nothing.

    Args:
        table: The table.
        share: The writer's share of its topic.
    """
    return TableRoute(table, share.topic, share, None, None, ())


def make_route(settings: RouteSettings, table: Table, table_map: TableMap, share: TopicShare) -> TableRoute:
    """Build the route of a table version.

    Avro schemas are registered here, before the first record of the version.

    Args:
        settings: What all routes of the writer have in common.
        table: The table's structure; it matches the event (``check_table_map``).
        table_map: The TABLE_MAP event that announces the rows.
        share: The writer's share of the table's topic.

    Raises:
        SchemaError: A column cannot be converted as the configuration says.
        RegistryError: The schema registry does not accept a schema.
    """
    cfg, formats = settings.cfg, settings.formats
    options = (
        table_options.table_options(cfg, table, settings.options) if settings.has_table_options else settings.options
    )
    record_format = None if formats is None or not share.assigned else formats.table_format(table, options, share.topic)
    decoder_args = table, table_map, options, table_options.envelope_text(cfg, table, options)
    source_block = table_options.table_source_block(cfg, table.id)
    format_decoder = None if record_format is None else _format_decoder(settings, record_format, *decoder_args, share)
    source: SourceBlock | AvroSource | TicdcSource | UnwrappedSource
    source, write_source_block = _source_writer(cfg, table.id, source_block, format_decoder)
    if unwrapped := create_unwrapped_rows(cfg, *decoder_args, share.topic, source_block, settings.tally):
        format_decoder, source = unwrapped
        write_source_block = unwrapped_decoder.fill
    # Keys that a record format serializes after decoding are not the ones whose partition the decoder could compute.
    decoder = format_decoder or compile_decoder(
        *decoder_args, settings.tally, settings.owned_keys(share) if record_format is None else None
    )
    decodes_own_rows = settings.owned_keys(share) is not None and (record_format is None or format_decoder is not None)
    return TableRoute(
        table.id,
        share.topic,
        share,
        source,
        decoder,
        _decode_functions(settings, decoder),
        path=table.id.path(),
        record_format=record_format if format_decoder is None or isinstance(format_decoder, TicdcRows) else None,
        id_headers=None if record_format is None else record_format.id_headers(),
        write_source_block=write_source_block,
        counts_values=decodes_own_rows or 0 in share.assigned,
        headers=common_headers(len(table.columns)),
    )


def _format_decoder(
    settings: RouteSettings,
    record_format: RecordFormat,
    table: Table,
    table_map: TableMap,
    options: DecoderOptions,
    envelope: EnvelopeText,
    share: TopicShare,
) -> AvroRows | None:
    """Return what decodes a table's rows straight into their record format; None where that takes a second step."""
    decoder_args = table, table_map, options, envelope
    if isinstance(record_format, TicdcFormat):
        return create_ticdc_rows(record_format, *decoder_args, share.partitions, settings.tally)
    return create_avro_rows(settings.cfg, record_format, *decoder_args, settings.tally, settings.owned_keys(share))


def _source_writer(
    cfg: ConnectorConfig, table: TableId, source_block: SourceBlock, format_decoder: AvroRows | None
) -> tuple[SourceBlock | AvroSource | TicdcSource, Callable[..., None]]:
    """Return what writes the source block of a table's rows, and what puts it into a context."""
    if format_decoder is None:
        return source_block, source_of.fill_time if cfg.is_ticdc else source_of.fill
    if isinstance(format_decoder, TicdcRows):
        return TicdcSource(source_block, table_options.ticdc_modes(cfg).extension), ticdc_source.fill
    return avro_source.avro_source(table, cfg[F.TOPIC_PREFIX], source_block), avro_source.fill


def _decode_functions(settings: RouteSettings, decoder: RowFunctions) -> tuple[DecodeRows, ...]:
    """Return a decoder's functions, which collect rows that fail and count their events where that is wanted."""
    chosen = decoder if settings.failed_rows is None else TolerantDecoder(decoder, settings.failed_rows)
    decode = chosen.write, chosen.update, chosen.delete, chosen.partial_update
    return decode if settings.tally is None else tuple(_counting_functions(decode, decoder, settings.tally))


def _counting_functions(decode: tuple[DecodeRows, ...], decoder: RowFunctions, tally: Tally) -> Iterator[DecodeRows]:
    """Yield a decoder's functions; those that never call the native kernel count their events as fallbacks."""
    native = getattr(decoder, "native", False)
    default_reason = "table" if isinstance(decoder, RowDecoder) else "format"
    for function, partial in zip(decode, (False, False, False, True), strict=True):
        reason = "partial_update" if native and partial else default_reason
        yield function if native and not partial else tally.counting_fallbacks(function, reason)


MAX_KEPT_ROUTES = 10_000
"""Routes that are kept at most; each holds compiled decoders."""


@dataclass(slots=True)
class KeptRoutes:
    """Hold the routes of tables that a writer has built last, with what they were built from.

    A table's version is the same object as long as nothing has changed it: the tasks of a stage begin each batch with
    the same structures.

    Attributes:
        settings: What all routes have in common; None until the first is built.
    """

    settings: RouteSettings | None = None
    _routes: dict[TableId, tuple[TableMap, Table, TopicShare, TableRoute]] = field(default_factory=dict)

    def find(self, table_map: TableMap, table: Table, share: TopicShare) -> TableRoute | None:
        """Return the route of a table version; None where it was not built, or from something else.

        Args:
            table_map: The TABLE_MAP event.
            table: The table's structure.
            share: The writer's share of its topic.
        """
        built = self._routes.get(table.id)
        if built is None or built[1] is not table or (built[0], built[2]) != (table_map, share):
            return None
        return built[3]

    def keep(self, table_map: TableMap, table: Table, share: TopicShare, route: TableRoute) -> None:
        """Keep a route.

        Args:
            table_map: The TABLE_MAP event.
            table: The table's structure.
            share: The writer's share of its topic.
            route: The route.
        """
        if len(self._routes) >= MAX_KEPT_ROUTES:
            self._routes.clear()
        self._routes[table.id] = table_map, table, share, route
