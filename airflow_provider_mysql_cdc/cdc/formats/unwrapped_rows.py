"""Decode rows directly to what ``ExtractNewRecordState`` makes of their change events ("unwrap").

This is done where the transform alone, or with routers, has its usual options, and both converters write JSON. What is
written is asked of the chain itself, once for each table version; events that are unusual pass it as always.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_row_decoder import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike, WireType, wire_types
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.event_fields import JSON_CONVERTER
from airflow_provider_mysql_cdc.cdc.decode import native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decode_error import RowPosition
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import AfterRow, Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, ObjectDelimiters
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.null_bitmap_functions import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder, native_row_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.native_rows import (
    ColumnPlan,
    NativeRowFormat,
    RowEventDecoder,
    event_plan,
    json_column_plan,
)
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextFormat
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import JSON_MARK
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import AppendRows, Buffer, RowFunctions
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows, TextRows
from airflow_provider_mysql_cdc.cdc.formats.chain_converter import schema_text, write_headers
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_source import (
    NO_VALUE,
    OPERATION,
    SEPARATOR,
    SnapshotTexts,
    UnwrappedSource,
    unwrapped_source,
)
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, TOMBSTONE, AddedHeaders, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.transforms import unwrap
from airflow_provider_mysql_cdc.cdc.transforms.chain import StepFault
from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.predicates import TopicNameMatches
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema, parse_schema
from airflow_provider_mysql_cdc.cdc.transforms.topic_routers import RegexRouter
from airflow_provider_mysql_cdc.cdc.transforms.unwrap import EventMember, ExtractNewRecordState

log = logging.getLogger(__name__)
_OPERATIONS = {"write": "c", "update": "u", "delete": "d"}


def _refuse_null() -> str:
    raise ValueError("NULL in a column that must not be NULL, at which a converter stops")


def _column_codes(columns: tuple[Column, ...], *given: Any) -> tuple[ColumnCode, ...]:
    """Return the code of columns; arguments as for ``MakeColumnCodes``."""
    codes = zip(columns, JSON.codes(columns, *given), strict=True)
    return tuple(code if column.nullable else replace(code, refuse_null=_refuse_null) for column, code in codes)


def _column_plan(column: Column, wire: WireType, code: ColumnCode, options: DecoderOptions) -> ColumnPlan:
    """Return how the kernel reads and writes a column; arguments as for ``json_column_plan``."""
    label, null, *others = json_column_plan(column, wire, replace(code, refuse_null=None), options)
    return label, null if column.nullable else None, *others  # type: ignore[return-value]


def _dialect(*, rewrites: bool) -> Dialect:
    def after_row(ctx: EventContext, op: str) -> str:
        deleted = f',"{unwrap.DELETED_FIELD}":"{"true" if op == "d" else "false"}"' if rewrites else ""
        return f"{deleted}{(ctx.src_tail + ctx.tail).replace(OPERATION, op)}}}"

    after: AfterRow = after_row
    image = ObjectDelimiters("{", ",", "")
    texts = dict.fromkeys(("before", "after", "null", "source", "row"), "")
    return replace(JSON, codes=_column_codes, after_row=lambda options: after, image=image, **texts)  # type: ignore[arg-type]


_UNWRAPPED, _REWRITTEN = _dialect(rewrites=False), _dialect(rewrites=True)
_NATIVE_TEXT = {
    dialect: NativeTextFormat(dialect, JSON_MARK, native_text.json_column_plan, "table", "unwrapped")
    for dialect in (_UNWRAPPED, _REWRITTEN)
}
_NATIVE_ROWS = NativeRowFormat(lambda *given: event_plan(_column_plan, *given), "unwrapped")


@dataclass(frozen=True, slots=True)
class UnwrappedForm:
    """Say what a chain makes of the events of one table version.

    Args:
        schema: Schema of rows.
        mode: What becomes of deletes (``delete.tombstone.handling.mode``).
        deleted: Value of a delete where that is no row.
        fields: Members of the event that become fields.
        headers: Members that become headers.
        tombstone_headers: Headers of tombstones.
        replaces_null: Whether the transform writes NULL as the column's default.
    """

    schema: RecordSchema
    mode: str
    deleted: bytes | None
    fields: tuple[EventMember, ...]
    headers: tuple[EventMember, ...]
    tombstone_headers: AddedHeaders
    replaces_null: bool

    @property
    def rewrites(self) -> bool:
        """Whether deletes are rows."""
        return self.mode in (unwrap.REWRITE, unwrap.REWRITE_WITH_TOMBSTONE)

    @property
    def dialect(self) -> Dialect:
        """How records are assembled."""
        return _REWRITTEN if self.rewrites else _UNWRAPPED


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


class UnwrappedRowDecoder(RowDecoder):
    """Decode complete row images with unchanged keys; other events are refused.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes; ``tombstones`` is about those that are left behind the transform.
        envelope: Constant text around rows.
        form: What rows become.
    """

    def __init__(
        self, table: Table, wires: tuple[WireType, ...], options: DecoderOptions, envelope: EnvelopeText,
        form: UnwrappedForm,
    ) -> None:  # fmt: skip
        super().__init__(table, wires, options, envelope, form.dialect, refusal=FallbackToJson)
        self.unwrapped, self.writes_deletes = form.rewrites, form.mode != unwrap.DELETE_TO_TOMBSTONE
        self._deleted = form.deleted or b""

    def row_texts(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return the texts after a row; see ``RowDecoder``."""
        if op == "d" and not self.unwrapped:
            return self._deleted.decode("latin-1"), ""
        return "", super().row_texts(ctx, op)[1]  # the context's head is of headers

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        return self._decode_keyed("u", buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        decode = super().delete if self.unwrapped else self._decode_deletes
        return decode(buf, pos, end, ctx, out)

    def _decode_deletes(self, *event: Any) -> int:
        return self._decode_keyed("d", *event)

    def _decode_keyed(self, op: str, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
        """Append the records of rows of whose first image only the key is read."""
        if op in self.options.skipped_ops:
            return 0
        data, images = bytes(buf[pos:end]), 2 if op == "u" else 1
        if not self._images_complete(buf, pos, images):
            raise FallbackToJson
        text, size, keys, rows = data.decode("latin-1"), self._size, self._shape.key_images, self._images
        prefix, tail = self.value_wrapper[0], self.row_texts(ctx, op)[1]
        row = first = ctx.first_row
        p = before = 0
        try:
            while p < len(data):
                before = p
                p, old_key = keys[data[p : p + size]](data, text, p)
                key = self.key_bytes(old_key) if self.keys else None
                if images == 2:
                    p, new_key, image = rows[data[p : p + size]](data, text, p)
                    if new_key != old_key:
                        raise FallbackToJson
                    out.append((key, f"{prefix}{image}{tail}".encode("latin-1"), row, CHANGE, None, None))
                elif self.writes_deletes:
                    out.append((key, self._deleted, row, CHANGE, None, None))
                else:
                    out.append((key, None, row, TOMBSTONE, None, None))
                row += 1
            if p != len(data):
                raise ValueError("the rows do not end where the event ends")
        except ROW_ERRORS as error:
            raise self._failure(error, data, RowPosition(before, row, images), ctx) from error
        return row - first


class UnwrappedRows(AvroRows):
    """Convert row events of one table version to records with ``AddedHeaders``, or to JSON records for the chain.

    Args:
        decoder: Decodes rows directly.
        create_json_decoder: Creates the decoder that writes change events.
        form: What rows become.
    """

    format_name = "unwrapped records"

    def __init__(
        self, decoder: RowEventDecoder, create_json_decoder: Callable[[], RowFunctions], form: UnwrappedForm
    ) -> None:
        self._form = form
        super().__init__(decoder, create_json_decoder, None)

    def _direct(self, name: str) -> AppendRows:
        append, form, op = super()._direct(name), self._form, _OPERATIONS[name]

        def rows(buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]) -> int:
            if op == "d" and form.mode == unwrap.DROP:
                raise FallbackToJson
            made: list[RowRecord] = []
            count = append(buf, pos, end, ctx, made)
            added: Any = _NO_HEADERS if not form.headers else _added_headers(form.headers, ctx.src_head, op)
            if op == "d" and form.mode == unwrap.REWRITE_WITH_TOMBSTONE:
                of_tombstone: Any = form.tombstone_headers
                out.extend((k, v, row, n, of_tombstone if v is None else added, None) for k, v, row, n, _, _ in made)
            else:
                out.extend([(k, v, row, CHANGE, added, None) for k, v, row, _, _, _ in made])
            return count

        return rows

    def _append_via_json(
        self, decode: AppendRows, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[RowRecord]
    ) -> int:
        return decode(buf, pos, end, ctx.as_json(), out)


_NO_HEADERS = AddedHeaders()


def _added_headers(members: tuple[EventMember, ...], text: str, op: str) -> AddedHeaders:
    values = text.replace(OPERATION, op).split(SEPARATOR)
    return AddedHeaders(
        [
            (member.new_name, None if value == NO_VALUE else value.encode())
            for member, value in zip(members, values, strict=True)
        ]
    )


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
    decoder = native_row_decoder(python, wires, _NATIVE_ROWS, tally)
    return UnwrappedRows(decoder, lambda: compile_decoder(table, table_map, options, envelope), form), block


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
    decode = compile_text_decoder(table, direct_options, texts, columns, _NATIVE_TEXT[form.dialect], tally=tally)
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
