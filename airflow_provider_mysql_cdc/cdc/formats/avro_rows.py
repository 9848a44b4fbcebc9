"""Decode rows directly to Avro, and via JSON where that is not possible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.avro.native_avro import AVRO_TEXT, create_avro_decoder
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMapLike, wire_types
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED,
    DecoderOptions,
    EnvelopeText,
    EventContext,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_indexes, selected_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import PartialRowDecoder
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.native_rows import RowEventDecoder
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import CURRENT_TIME
from airflow_provider_mysql_cdc.cdc.decode.table_check import require_width
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import (
    AppendRows,
    Buffer,
    DecodeTextRow,
    RowFunctions,
    TextDecoder,
)
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, RecordFormat
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_decoder import SnapshotTexts
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

log = logging.getLogger(__name__)


class AvroRows:
    """Convert row events of one table version to records in Avro.

    Row images that lack columns, and rows that fail, are decoded to JSON first, which produces errors and dead letters
    as without Avro.

    Args:
        avro_decoder: Decodes rows directly to Avro.
        create_json_decoder: Creates the decoder that writes JSON.
        record_format: Converts the JSON to Avro; None in a subclass that leaves it as it is.
    """

    format_name = "Avro"

    def __init__(
        self,
        avro_decoder: RowEventDecoder,
        create_json_decoder: Callable[[], RowFunctions],
        record_format: RecordFormat | None,
    ) -> None:
        self.table, self.native = avro_decoder.table, avro_decoder.native
        self.avro_decoder, self._create_json_decoder, self._format = avro_decoder, create_json_decoder, record_format
        self._fallback_logged = False
        self.write, self.update, self.delete = map(self._avro_or_json, ("write", "update", "delete"))

    @cached_property
    def _json_decoder(self) -> RowFunctions:
        return self._create_json_decoder()

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a PARTIAL_UPDATE_ROWS event; arguments and errors as for ``RowDecoder.write``."""
        return self._append_via_json(self._json_decoder.partial_update, buf, pos, end, ctx, out)

    def key_bytes(self, key: str | None) -> bytes | None:
        """Return a record key in JSON, for dead letters."""
        return self._json_decoder.key_bytes(key)

    def partial_decoder(self) -> PartialRowDecoder:
        """Return the decoder that reads damaged rows of this table value by value."""
        return self._json_decoder.partial_decoder()

    def _avro_or_json(self, name: str) -> AppendRows:
        """Return the function that decodes one kind of event; arguments and errors as for ``RowDecoder.write``.

        Args:
            name: Name of the ``RowDecoder`` method for this kind of event.
        """
        append = self._direct(name)

        def rows(buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
            start = len(out)
            try:
                if ctx.plain is not None:
                    return append(buf, pos, end, ctx, out)
            except FallbackToJson as reason:
                del out[start:]
                NULLED.values.clear()
                self._log_fallback(reason)
            return self._append_via_json(getattr(self._json_decoder, name), buf, pos, end, ctx, out)

        return rows

    def _direct(self, name: str) -> AppendRows:
        append: AppendRows = getattr(self.avro_decoder, name)
        return append

    def _log_fallback(self, reason: FallbackToJson) -> None:
        if reason.error is not None and not self._fallback_logged:
            self._fallback_logged = True
            log.warning("rows of %s are converted to %s via JSON: %r", self.table.id, self.format_name, reason.error)

    def _append_via_json(
        self, decode: AppendRows, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]
    ) -> int:
        rows: list[RowRecord] = []
        count = decode(buf, pos, end, ctx.as_json(), rows)
        assert self._format is not None
        out.extend(self._format.records(rows, ctx.where))
        return count


def create_avro_rows(
    cfg: ConnectorConfig,
    record_format: RecordFormat,
    table: Table,
    table_map: TableMapLike,
    options: DecoderOptions,
    envelope: EnvelopeText,
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> AvroRows | None:
    """Return the decoder of a table version's rows directly to Avro, or None if they are converted via JSON.

    Args:
        cfg: The connector's configuration.
        record_format: The format of the table's records.
        table: The table.
        table_map: The TABLE_MAP event that announced the rows.
        options: From ``table_options.table_options``.
        envelope: From ``table_options.envelope_text``.
        tally: Counts what the native kernel decodes.
        owned: Selects the rows whose records are wanted; None for all rows.

    Raises:
        SchemaMismatchError: The TABLE_MAP contradicts the table.
    """
    require_width(table, len(table_map.column_types))
    try:
        prefixes = _direct_prefixes(cfg, record_format, table, options)
        avro_decoder = create_avro_decoder(table, wire_types(table_map), options, envelope, prefixes, tally, owned)
    except Declined as reason:
        _log_declined(table, reason)
        return None
    log.debug("rows of %s are decoded directly to Avro", table.id)
    return AvroRows(avro_decoder, lambda: compile_decoder(table, table_map, options, envelope), record_format)


def _direct_prefixes(
    cfg: ConnectorConfig, record_format: RecordFormat, table: Table, options: DecoderOptions
) -> tuple[str, str]:
    """Return the prefixes of keys and values.

    Raises:
        Declined: The rows cannot be decoded directly to Avro.
    """
    if cfg[F.PROVIDE_TRANSACTION_METADATA]:
        raise Declined("provide.transaction.metadata is on")
    prefixes = record_format.prefixes(keyed=bool(key_indexes(table, options)))
    if prefixes is None:
        raise Declined("keys or values are not Confluent's Avro")
    return prefixes


def _log_declined(table: Table, reason: Declined) -> None:
    log.info("rows of %s are converted to Avro via JSON: %s", table.id, reason)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Hold what converts a table's rows in the text protocol to records.

    Args:
        decode: Decodes the rows.
        record_format: Converts the decoded records; None if ``decode`` writes the final format.
        writes_avro: Whether ``decode`` writes Avro.
        id_headers: Headers with schema GUIDs that are added to records, or None.
        unwrapped: Writes the texts of rows that are decoded to what a chain makes of them; None for other rows.
    """

    decode: TextDecoder
    record_format: RecordFormat | None
    writes_avro: bool = False
    id_headers: IdHeaders | None = None
    unwrapped: SnapshotTexts | None = None


def create_text_rows(
    cfg: ConnectorConfig,
    record_format: RecordFormat | None,
    table: Table,
    options: DecoderOptions,
    columns: tuple[Column, ...] | None = None,
    tally: Tally | None = None,
) -> TextRows:
    """Return what converts a table's rows in the text protocol to records.

    Args:
        cfg: The connector's configuration.
        record_format: The format of the table's records; None if all is JSON.
        table: The table.
        options: From ``table_options.table_options``.
        columns: The columns that the SELECT returns, in its order; None means those of ``select_list``.
        tally: Counts what the native kernel decodes.

    Raises:
        SchemaError: A column's type is unknown.
    """
    envelope = table_options.envelope_text(cfg, table, options)
    selected = selected_columns(table, options) if columns is None else columns

    create_json = partial(compile_text_decoder, table, options, envelope, selected)
    if record_format is None:
        return TextRows(create_json(tally=tally), None)
    try:
        prefixes = _direct_prefixes(cfg, record_format, table, options)
        if cfg[F.CDC_ID_HEADER]:
            raise Declined("cdc.id.header contains keys in JSON")
        fallback = ViaJsonText(create_json, record_format)
        decode = compile_text_decoder(table, options, envelope, selected, AVRO_TEXT, prefixes, fallback, tally)
        return TextRows(decode, None, writes_avro=True, id_headers=record_format.id_headers())
    except Declined as reason:
        _log_declined(table, reason)
        return TextRows(create_json(tally=tally), record_format, id_headers=record_format.id_headers())


class ViaJsonText:
    """Decode rows of the text protocol to JSON, and convert their records to another format.

    Args:
        create_json: Creates the decoder that writes JSON; called at the first row.
        record_format: Converts its records to that format.
    """

    def __init__(self, create_json: Callable[[], DecodeTextRow], record_format: RecordFormat) -> None:
        self._create_json, self._format = create_json, record_format

    @cached_property
    def _decode_json(self) -> DecodeTextRow:
        return self._create_json()

    def __call__(self, packet: bytes, pos: int, ctx: EventContext, out: list[RowRecord]) -> None:
        """Append the record of a row; see ``TextDecoder``."""
        rows: list[RowRecord] = []
        self._decode_json(packet, pos, ctx.as_json(), rows)
        out.extend(self._format.records(rows, ctx.where, numbered=False))


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """Write the text around the rows of a snapshot.

    Args:
        fill: Writes the source block into a context; its other arguments are those of ``source_block.fill_snapshot``.
        op_tail: Returns the text after the operation, at a time in nanoseconds.
        marked_tail: The same with marks in place of times, for the native kernel.
    """

    fill: Callable[..., None]
    op_tail: Callable[[int], str]
    marked_tail: str


def snapshot_source(cfg: ConnectorConfig, table: TableId, *, writes_avro: bool) -> SnapshotSource:
    """Return the writer of the text around a table's rows in a snapshot.

    Args:
        cfg: The connector's configuration.
        table: The table.
        writes_avro: Whether rows are decoded directly to Avro.
    """
    plain = table_options.table_source_block(cfg, table)
    if not writes_avro:
        marked = plain.op_tail(CURRENT_TIME)  # type: ignore[arg-type]
        return SnapshotSource(lambda ctx, *given: source_block.fill_snapshot(ctx, plain, *given), plain.op_tail, marked)
    block = avro_source.avro_source(table, cfg[F.TOPIC_PREFIX], plain)
    return SnapshotSource(
        lambda ctx, *given: avro_source.fill_snapshot(ctx, block, *given),
        block.op_tail,
        avro_source.op_tail(block),
    )
