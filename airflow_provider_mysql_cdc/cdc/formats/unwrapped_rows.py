"""Decode rows directly to what ``ExtractNewRecordState`` makes of their change events ("unwrap").

This is done where the transform alone, or with routers, has its usual options, and both converters write JSON. What is
written is asked of the chain itself, once for each table version; events that are unusual pass it as always.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMapLike, wire_types
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.event_fields import JSON_CONVERTER
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder, native_row_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.native_rows import RowEventDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import AppendRows, Buffer, RowFunctions
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows, TextRows
from airflow_provider_mysql_cdc.cdc.formats.chain_converter import schema_text, write_headers
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_decoder import (
    NATIVE_ROWS,
    NATIVE_TEXT,
    SnapshotTexts,
    UnwrappedForm,
    UnwrappedRowDecoder,
    UnwrappedSource,
    unwrapped_source,
)
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, AddedHeaders, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.transforms import unwrap
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import parse_schema
from airflow_provider_mysql_cdc.cdc.transforms.topic_routers import RegexRouter, TopicNameMatches
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainRecord, StepFault
from airflow_provider_mysql_cdc.cdc.transforms.unwrap import ExtractNewRecordState

log = logging.getLogger(__name__)
_OPERATIONS = {"write": "c", "update": "u", "delete": "d"}


def unwrap_step(cfg: ConnectorConfig) -> ExtractNewRecordState | None:
    """Return the transform whose rows are decoded directly; None where all records pass the chain.

    Args:
        cfg: The connector's configuration.
    """
    if cfg.chain is None or cfg[F.PROVIDE_TRANSACTION_METADATA] or cfg[F.CDC_ID_HEADER]:
        return None
    behind, steps = cfg.behind_chain(), cfg.chain.steps
    if any(behind[F.CONVERTER_CLASS_FIELD[part]] != JSON_CONVERTER for part in F.PARTS):
        return None
    if any(step.predicate is not None and not isinstance(step.predicate, TopicNameMatches) for step in steps):
        return None
    found = [step.transform for step in steps if not isinstance(step.transform, RegexRouter)]
    alone = found[0] if len(found) == 1 else None
    return alone if isinstance(alone, ExtractNewRecordState) and alone.is_usual else None


def whole_transactions_unwrap(cfg: ConnectorConfig) -> bool:
    """Return whether rows may be decoded without their events: no header of theirs tells about these.

    Args:
        cfg: The connector's configuration, which has a chain.
    """
    step = unwrap_step(cfg)
    return step is not None and not step.has_headers


def _form(cfg: ConnectorConfig, topic: str, step: ExtractNewRecordState, value_schema: str) -> UnwrappedForm:
    """Return what the chain makes of a table's events, by what it makes of events without values.

    Raises:
        Declined: The chain drops them, leaves them as they are, or stops.
    """
    schema, chain = parse_schema(json.loads(value_schema)), cfg.chain
    assert chain is not None

    def made(**images: Any) -> ChainRecord | None:
        event = {"before": None, "after": None, "source": {}, **images}
        return chain.apply(ChainRecord(topic, None, None, None, schema, event))

    try:
        row, deleted = made(after={}), made(before={})
    except StepFault as fault:
        raise Declined(f"{fault.step} stops: {fault.why}") from fault
    if row is None or row.value_schema is None or row.value_schema is schema:
        raise Declined("the chain leaves events as they are")
    try:
        if row.topic != topic:
            cfg.require_for_events(row.topic, topic)
    except ConfigError as error:
        raise Declined(error.what) from error
    fields, headers = step.members(schema)
    value = None
    if deleted is not None and deleted.value_schema is not None:
        with_schema = cfg.behind_chain()[F.VALUE_SCHEMAS_ENABLE]
        text = schema_text(deleted.value_schema)
        value = f'{{"schema":{text},"payload":null}}'.encode() if with_schema else b"null"
    tombstone = AddedHeaders(write_headers(step.tombstone_headers()))
    return UnwrappedForm(row.value_schema, step.mode, value, fields, headers, tombstone, step.replaces_null)


class UnwrappedRows(AvroRows):
    """Convert row events of one table version to records with ``AddedHeaders``, or to JSON records for the chain.

    Args:
        decoder: Decodes rows directly.
        create_json_decoder: Creates the decoder that writes change events.
        form: What rows become.
        make_headers: Returns the headers that they get, as ``UnwrappedSource.headers``.
    """

    format_name = "unwrapped records"

    def __init__(
        self,
        decoder: RowEventDecoder,
        create_json_decoder: Callable[[], RowFunctions],
        form: UnwrappedForm,
        make_headers: Callable[..., AddedHeaders] | None,
    ) -> None:
        self._form, self._make_headers = form, make_headers
        super().__init__(decoder, create_json_decoder, None)

    def _direct(self, name: str) -> AppendRows:
        append, form, op = super()._direct(name), self._form, _OPERATIONS[name]
        make_headers, letter = self._make_headers, op.encode()

        def rows(buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
            if op == "d" and form.mode == unwrap.DROP:
                raise FallbackToJson
            made: list[RowRecord] = []
            count = append(buf, pos, end, ctx, made)
            added: Any = _NO_HEADERS if make_headers is None else make_headers(letter, *ctx.headers)
            if op == "d" and form.mode == unwrap.REWRITE_WITH_TOMBSTONE:
                of_tombstone: Any = form.tombstone_headers
                out.extend((k, v, row, n, of_tombstone if v is None else added, None) for k, v, row, n, _, _ in made)
            else:
                for key, value, row, _, _, _ in made:  # of most events it is one
                    out.append((key, value, row, CHANGE, added, None))
            return count

        return rows

    def _append_via_json(
        self, decode: AppendRows, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]
    ) -> int:
        return decode(buf, pos, end, ctx.as_json(), out)


_NO_HEADERS = AddedHeaders()


def create_unwrapped_rows(
    cfg: ConnectorConfig,
    table: Table,
    table_map: TableMapLike,
    options: DecoderOptions,
    envelope: EnvelopeText,
    topic: str,
    source: Any,
    tally: Tally | None = None,
) -> tuple[UnwrappedRows, UnwrappedSource] | None:
    """Return the direct decoder of a table version's rows, and what writes their texts; None if they pass the chain.

    Args:
        cfg: The connector's configuration.
        table: The table.
        table_map: The TABLE_MAP event that announced the rows.
        options: From ``table_options.table_options``.
        envelope: From ``table_options.envelope_text``.
        topic: The table's topic before the chain.
        source: The writer of the table's source blocks.
        tally: Counts what the native kernel decodes.
    """
    step = unwrap_step(cfg)
    if step is None:
        return None
    try:
        form, direct_options, texts = _prepare(cfg, step, table, options, envelope, topic)
        block = unwrapped_source(source, table.id, cfg[F.TOPIC_PREFIX], form.fields, form.headers)
        wires = wire_types(table_map)
        python = UnwrappedRowDecoder(table, wires, direct_options, texts, form)
    except Declined as reason:
        _log_declined(table, reason)
        return None
    decoder = native_row_decoder(python, wires, NATIVE_ROWS, tally)
    fallback = partial(compile_decoder, table, table_map, options, envelope)
    return UnwrappedRows(decoder, fallback, form, block.headers), block


def create_unwrapped_text(
    cfg: ConnectorConfig,
    table: Table,
    options: DecoderOptions,
    topic: str,
    columns: tuple[Column, ...] | None = None,
    tally: Tally | None = None,
) -> TextRows | None:
    """Return what converts a table's rows in the text protocol directly; None if they pass the chain.

    Args:
        cfg: The connector's configuration.
        table: The table.
        options: From ``table_options.table_options``.
        topic: The table's topic before the chain.
        columns: The columns that the SELECT returns, in its order; None means those of ``select_list``.
        tally: Counts what the native kernel decodes.
    """
    step = unwrap_step(cfg)
    if step is None or step.has_headers:
        return None
    try:
        envelope = table_options.envelope_text(cfg, table, options)
        form, direct_options, texts = _prepare(cfg, step, table, options, envelope, topic)
        plain = table_options.table_source_block(cfg, table.id)
        block = unwrapped_source(plain, table.id, cfg[F.TOPIC_PREFIX], form.fields, ())
    except Declined as reason:
        _log_declined(table, reason)
        return None
    decode = compile_text_decoder(table, direct_options, texts, columns, NATIVE_TEXT[form.dialect], tally=tally)
    return TextRows(decode, None, unwrapped=SnapshotTexts(block))


def _log_declined(table: Table, reason: Declined) -> None:
    log.info("change events of %s pass the transforms one by one: %s", table.id, reason)


def _prepare(
    cfg: ConnectorConfig,
    step: ExtractNewRecordState,
    table: Table,
    options: DecoderOptions,
    envelope: EnvelopeText,
    topic: str,
) -> tuple[UnwrappedForm, DecoderOptions, EnvelopeText]:
    """Return what a table's rows become, and how they are decoded.

    Raises:
        Declined: Only the chain can do it.
    """
    if options.conversions or not value_columns(table, options) or envelope.value_schema is None:
        raise Declined("a converter handles a column, or rows have none")
    form, behind = _form(cfg, topic, step, envelope.value_schema), cfg.behind_chain()
    with_defaults = replace(options, replace_null_with_default=True)
    null_text = table_options.envelope_text(cfg, table, with_defaults).null_text
    replaces_null = form.replaces_null or behind[F.VALUE_REPLACE_NULL_WITH_DEFAULT]
    if not replaces_null and any(
        column.nullable and column.name in null_text for column in key_columns(table, options)
    ):
        raise Declined("NULL in keys is written as the column's default, in values it is not")
    texts = EnvelopeText(
        envelope.key_schema if behind[F.KEY_SCHEMAS_ENABLE] else None,
        schema_text(form.schema) if behind[F.VALUE_SCHEMAS_ENABLE] else None,
        null_text if replaces_null else {},
    )
    keeps_tombstone = form.mode == unwrap.REWRITE_WITH_TOMBSTONE and options.tombstones
    direct = replace(
        options,
        replace_null_with_default=replaces_null,
        tombstones=keeps_tombstone or form.mode == unwrap.DELETE_TO_TOMBSTONE,
        # The kernel leaves transactions with deletes to Python, which counts those that are dropped.
        skipped_ops=options.skipped_ops | {"d"} if form.mode == unwrap.DROP else options.skipped_ops,
    )
    return form, direct, texts
