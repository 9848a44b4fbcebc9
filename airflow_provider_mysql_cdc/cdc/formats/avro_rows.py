"""Rows that are written as Avro at once, and by way of JSON where that cannot be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro import avro_source_marks as avro_marks
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO
from airflow_provider_mysql_cdc.cdc.avro.avro_row_decoder import DirectDecoder, NotDirect
from airflow_provider_mysql_cdc.cdc.avro.native_avro_rows import direct_decoder
from airflow_provider_mysql_cdc.cdc.avro.native_avro_text import avro_text_decoder
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike, wire_types
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import Salvage
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import NOW
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder, key_indexes
from airflow_provider_mysql_cdc.cdc.decode.row_functions import AppendRows, Buffer, TextDecoder
from airflow_provider_mysql_cdc.cdc.decode.selected_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.decode.table_check import require_width
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, TableForm
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

log = logging.getLogger(__name__)


class AvroRows:
    """Turn row events of one table version into records in Avro.

    Row images that leave columns out, updates that change the key, and rows that fail become JSON first, which then
    tells errors, headers and dead letters as without Avro.

    Args:
        direct: Writes Avro at once.
        plain: Makes the decoder that writes JSON.
        form: Turns that into Avro.
    """

    def __init__(self, direct: DirectDecoder, plain: Callable[[], RowDecoder], form: TableForm) -> None:
        self.table, self.native = direct.table, direct.native
        self.direct, self._make, self._form = direct, plain, form
        self._told = False
        self.write, self.update, self.delete = map(self._at_once, ("write", "update", "delete"))

    @cached_property
    def _plain(self) -> RowDecoder:
        return self._make()

    def partial_update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of a PARTIAL_UPDATE_ROWS event; arguments and errors as for ``RowDecoder.write``."""
        return self._slowly(self._plain.partial_update, buf, pos, end, ctx, out)

    def key_bytes(self, key: str | None) -> bytes | None:
        """Return a record key in JSON, as dead letters have it."""
        return self._plain.key_bytes(key)

    def salvage(self) -> Salvage:
        """Return what reads rows of this table value by value."""
        return self._plain.salvage()

    def _at_once(self, name: str) -> AppendRows:
        """Return what appends the records of one kind of event; arguments and errors as for ``RowDecoder.write``.

        Args:
            name: The method of ``RowDecoder`` for this kind.
        """
        direct: AppendRows = getattr(self.direct, name)

        def rows(buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
            made = len(out)
            try:
                if ctx.plain is not None:
                    return direct(buf, pos, end, ctx, out)
            except NotDirect as reason:
                del out[made:]
                self._tell(reason)
            return self._slowly(getattr(self._plain, name), buf, pos, end, ctx, out)

        return rows

    def _tell(self, reason: NotDirect) -> None:
        if reason.error is not None and not self._told:
            self._told = True
            log.warning("rows of %s are written by way of JSON: %r", self.table.id, reason.error)

    def _slowly(self, decode: AppendRows, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        rows: list[Any] = []
        count = decode(buf, pos, end, ctx.as_json(), rows)
        out.extend(self._form.records(rows, ctx.where))
        return count


def direct_rows(
    cfg: ConnectorConfig,
    form: TableForm,
    table: Table,
    table_map: TableMapLike,
    options: DecoderOptions,
    envelope: EnvelopeText,
    tally: Tally | None = None,
    owned: OwnedKeys | None = None,
) -> AvroRows | None:
    """Return what writes the rows of a table version as Avro at once, or None where they go by way of JSON.

    Args:
        cfg: The connector's configuration.
        form: The form of the table's records.
        table: The table.
        table_map: The TABLE_MAP event that announced the rows.
        options: From ``wiring.table_options``.
        envelope: From ``wiring.envelope_text``.
        tally: Counts what the native kernel decodes.
        owned: Tells rows whose records are wanted; None for all.

    Raises:
        SchemaMismatchError: The TABLE_MAP contradicts the table.
    """
    require_width(table, len(table_map.column_types))
    try:
        heads = _heads(cfg, form, table, options)
        direct = direct_decoder(table, wire_types(table_map), options, envelope, heads, tally, owned)
    except Declined as reason:
        _declined(table, reason)
        return None
    log.debug("rows of %s are written as Avro at once", table.id)
    return AvroRows(direct, lambda: compile_decoder(table, table_map, options, envelope), form)


def _heads(cfg: ConnectorConfig, form: TableForm, table: Table, options: DecoderOptions) -> tuple[str, str]:
    """Return what keys and values begin with.

    Raises:
        Declined: They are not written at once.
    """
    if cfg[F.PROVIDE_TRANSACTION_METADATA]:
        raise Declined("provide.transaction.metadata is on")
    heads = form.heads(keyed=bool(key_indexes(table, options)))
    if heads is None:
        raise Declined("keys or values are not Confluent's Avro")
    return heads


def _declined(table: Table, reason: Declined) -> None:
    log.info("rows of %s are written as Avro by way of JSON: %s", table.id, reason)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Hold what makes records of a table's rows in the text protocol.

    Args:
        decode: Makes them.
        form: The form that they are given then; None for what ``decode`` gives.
        direct: Whether ``decode`` writes Avro.
        ids: Headers that records get beside their other ones, or None.
    """

    decode: TextDecoder
    form: TableForm | None
    direct: bool = False
    ids: IdHeaders | None = None


def text_rows(
    cfg: ConnectorConfig,
    form: TableForm | None,
    table: Table,
    options: DecoderOptions,
    columns: tuple[Column, ...] | None = None,
    tally: Tally | None = None,
) -> TextRows:
    """Return what makes records of a table's rows in the text protocol.

    Args:
        cfg: The connector's configuration.
        form: The form of the table's records; None when all is JSON.
        table: The table.
        options: From ``wiring.table_options``.
        columns: The columns that the SELECT gives, in its order; None means those of ``select_list``.
        tally: Counts what the native kernel decodes.

    Raises:
        SchemaError: A column's type is not known.
    """
    envelope = wiring.envelope_text(cfg, table, options)
    chosen = selected_columns(table, options) if columns is None else columns

    def plain(counts: Tally | None = None) -> TextDecoder:
        return compile_text_decoder(table, options, envelope, chosen, tally=counts)

    if form is None:
        return TextRows(plain(tally), None)
    try:
        heads = _heads(cfg, form, table, options)
        if cfg[F.CDC_ID_HEADER]:
            raise Declined("cdc.id.header shows keys in JSON")
        slowly = by_way_of_json(_when_needed(plain), form)
        direct = compile_text_decoder(table, options, envelope, chosen, AVRO, heads, slowly)
        direct = avro_text_decoder(direct, table, options, envelope, chosen, heads, tally)
        return TextRows(direct, None, direct=True, ids=form.ids())
    except Declined as reason:
        _declined(table, reason)
        return TextRows(plain(tally), form, ids=form.ids())


def _when_needed(make: Callable[[], TextDecoder]) -> TextDecoder:
    """Return a decoder that is compiled when the first row comes."""
    made = cache(make)

    def decode(packet: bytes, pos: int, ctx: EventContext, out: list[Any]) -> None:
        made()(packet, pos, ctx, out)

    return decode


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """Write what stands around the rows of a snapshot.

    Args:
        fill: Puts the source block into a context; its other arguments are those of ``source.fill_snapshot``.
        op_tail: Gives what stands behind the operation at a time in nanoseconds.
        marked_tail: The same with marks in place of times, for the native kernel.
    """

    fill: Callable[..., None]
    op_tail: Callable[[int], str]
    marked_tail: str


def snapshot_source(cfg: ConnectorConfig, table: TableId, *, direct: bool) -> SnapshotSource:
    """Return what writes the texts around the rows of a table in a snapshot.

    Args:
        cfg: The connector's configuration.
        table: The table.
        direct: Whether rows are written as Avro at once.
    """
    plain = wiring.table_source(cfg, table)
    if not direct:
        marked = plain.op_tail(NOW)  # type: ignore[arg-type]
        return SnapshotSource(lambda ctx, *given: source.fill_snapshot(ctx, plain, *given), plain.op_tail, marked)
    block = avro_source.avro_source(table, cfg[F.TOPIC_PREFIX], plain)
    return SnapshotSource(
        lambda ctx, *given: avro_source.fill_snapshot(ctx, block, *given), block.op_tail, avro_marks.op_tail(block)
    )


def by_way_of_json(plain: TextDecoder, form: TableForm) -> TextDecoder:
    """Return what reads rows of the text protocol with a decoder that writes JSON.

    Args:
        plain: The decoder.
        form: Turns its records into Avro.
    """

    def decode(packet: bytes, pos: int, ctx: EventContext, out: list[Any]) -> None:
        rows: list[Any] = []
        plain(packet, pos, ctx.as_json(), rows)
        out.extend(form.records(rows, ctx.where, numbered=False))

    return decode
