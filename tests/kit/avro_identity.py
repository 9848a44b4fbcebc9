"""Compare rows that are written as Avro at once with those that become JSON first, byte for byte."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import fastavro

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import AVRO, avro_row_decoder
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import compiled_encoder
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.avro.native_avro import AVRO_ROWS, AVRO_TEXT
from airflow_provider_mysql_cdc.cdc.binlog.table_map import wire_types
from airflow_provider_mysql_cdc.cdc.decode import native_rows, native_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_row_source import TextRowPlan
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.decode.native_text import NativeTextDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import PythonTextDecoder, compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import DecodeTextRow
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaError
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows, FallbackToJson, ViaJsonText
from airflow_provider_mysql_cdc.cdc.formats.record_formats import AvroFormat, AvroSerializer
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table

KEY_HEAD, VALUE_HEAD = "\x00\x00\x00\x00\x07", "\x00\x00\x00\x01\xff"
EVENT = SimpleNamespace(timestamp=1_700_000_000, server_id=223344, file="binlog.000007", start_pos=4711)
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:77"
AT = SimpleNamespace(gtid=GTID, commit_us=1_700_000_000_123_456, thread=9, query=None)
NS = 1_795_246_498_881_590_461
Outcome = tuple[str, Any]


class Sides:
    """Hold what writes one table version's rows in both ways.

    Args:
        table: The table.
        options: Modes.
        texts: Texts of defaults; None for those of the table.
        at: The transaction.
        include_query: Whether events tell their statement.
    """

    def __init__(
        self,
        table: Table,
        options: DecoderOptions,
        texts: EnvelopeText | None = None,
        at: Any = AT,
        include_query: bool = False,
    ) -> None:
        named = replace(options, prefix=options.prefix or "p")
        found = envelope_text(replace(table), replace(named, field_names="avro", schema_names="avro"))
        plain = envelope_text(table, named)
        self.table, self.options, self.at = table, named, at
        self.texts = texts or replace(plain, key_schema=None, value_schema=None)
        self.schemas = [None if s is None else json.loads(s) for s in (plain.key_schema, plain.value_schema)]
        self.avro = [None if s is None else avro_schema(json.loads(s)) for s in (found.key_schema, found.value_schema)]
        key, value = (
            None if s is None else AvroSerializer(head, compiled_encoder(s), "table")
            for s, head in zip(self.schemas, (KEY_HEAD, VALUE_HEAD), strict=True)
        )
        self.form = AvroFormat(key, value)
        self.block = source.source_block(
            table.id,
            prefix="p",
            version=options.contract,
            source_struct=options.source_struct,
            include_query=include_query,
        )
        self.avro_block = avro_source.avro_source(table.id, "p", self.block)

    def heads(self) -> tuple[str, str]:
        heads = self.form.prefixes(keyed=self.form.key is not None)
        assert heads is not None
        return heads

    def contexts(self, snapshot: str | None = None, first_row: int = 0) -> tuple[EventContext, EventContext]:
        """Return the context of JSON and that of Avro for one event."""
        plain, direct = EventContext(first_row=first_row), EventContext(first_row=first_row)
        if snapshot is None:
            source.fill(plain, self.block, EVENT, self.at)
            avro_source.fill(direct, self.avro_block, EVENT, self.at)
        else:
            place = (BinlogOffset("binlog.000007", 4711), 1_700_000_000_123, snapshot, (5, GTID))
            source.fill_snapshot(plain, self.block, *place)
            avro_source.fill_snapshot(direct, self.avro_block, *place)
        plain.tail, direct.tail = self.block.op_tail(NS), self.avro_block.op_tail(NS)
        direct.plain = self._refill, direct.plain
        return plain, direct

    def _refill(self, ctx: EventContext, plain: Any) -> None:
        fill, *given = plain
        fill(ctx, *given)
        ctx.tail = self.block.op_tail(NS)

    def event(self, kind: str, table_map: Any, buf: bytes, pos: int, end: int, first_row: int = 0) -> Outcome | None:
        """Compare the records of a row event; return them, or the error's text; None when the table is declined."""
        try:
            direct = avro_row_decoder(self.table, wire_types(table_map), self.options, self.texts, self.heads())
        except Declined:
            return None
        decoder = compile_decoder(self.table, table_map, self.options, self.texts)
        plain, ctx = self.contexts(first_row=first_row)
        wanted = _outcome(lambda out: getattr(decoder, kind)(buf, pos, end, plain, out), self.form, plain)
        found = _outcome(
            lambda out: getattr(AvroRows(direct, lambda: decoder, self.form), kind)(buf, pos, end, ctx, out)
        )
        self._compare(wanted, found)
        self._natively(kind, table_map, buf, pos, end, ctx, wanted)
        if wanted[0] == "records":
            try:
                at_once = _outcome(lambda out: getattr(direct, kind)(buf, pos, end, ctx, out))
                self._compare(wanted, at_once)
            except FallbackToJson as reason:
                assert reason.error is None, f"by way of JSON, and not by intent: {reason.error!r}"
        return wanted

    def _natively(
        self, kind: str, table_map: Any, buf: bytes, pos: int, end: int, ctx: EventContext, wanted: Outcome
    ) -> None:
        """Compare what the native kernel writes, where there is one and it writes the event."""
        module, out = kernel().module, list[Any]()
        if module is None:
            return
        try:
            wires = wire_types(table_map)
            python = avro_row_decoder(self.table, wires, self.options, self.texts, self.heads())
            native = native_rows.NativeRowDecoder(python, wires, AVRO_ROWS, module)
        except Declined:
            return
        if (
            native.decode_natively({"write": "c", "update": "u", "delete": "d"}.get(kind, ""), buf, pos, end, ctx, out)
            >= 0
        ):
            self._compare(wanted, ("records", out))

    def row(self, packet: bytes, snapshot: str = "true") -> Outcome | None:
        """Compare the record of a row of the text protocol, as ``event``."""

        def never(*_: Any) -> None:
            raise AssertionError("by way of JSON, and not by intent")

        plain_decode = compile_text_decoder(self.table, self.options, self.texts)
        plain, ctx = self.contexts(snapshot)
        wanted = _outcome(lambda out: plain_decode(packet, 0, plain, out), self.form, plain, numbered=False)
        rescue = never if wanted[0] == "records" else ViaJsonText(lambda: plain_decode, self.form)
        try:
            decode = PythonTextDecoder(self.text_plan(), rescue)
        except Declined:
            return None
        found = _outcome(lambda out: decode(packet, 0, ctx, out))
        self._compare(wanted, found)
        native = self.native_text(decode)
        if native is not None:
            self._compare(wanted, _outcome(lambda out: native(packet, 0, ctx, out)))
        return wanted

    def text_plan(self) -> TextRowPlan:
        """Return how rows of the text protocol become records in Avro."""
        columns = selected_columns(self.table, self.options)
        return TextRowPlan(self.table, self.options, self.texts, columns, AVRO, self.heads())

    def native_text(self, plain: DecodeTextRow) -> NativeTextDecoder | None:
        """Return what writes rows of the text protocol natively; None without a kernel that knows the table.

        Args:
            plain: What writes them in Python.
        """
        module = kernel().module
        if module is None:
            return None
        try:
            return native_text.NativeTextDecoder(plain, self.text_plan(), AVRO_TEXT, module)
        except Declined:
            return None

    def _compare(self, wanted: Outcome, found: Outcome) -> None:
        assert found == wanted
        for key, value, *_ in wanted[1] if wanted[0] == "records" else ():
            for data, schema in zip((key, value), self.avro, strict=True):
                if data is not None:
                    self.read(data, schema)

    def read(self, data: bytes, schema: Any) -> Any:
        """Return what fastavro reads, to the last byte."""
        stream = io.BytesIO(data[5:])
        found = fastavro.schemaless_reader(stream, fastavro.parse_schema(_plain(schema)))
        assert stream.read() == b""
        return found


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: _plain(v) if k in ("type", "items", "fields") else v for k, v in schema.items() if k != "logicalType"}


def _outcome(run: Any, form: AvroFormat | None = None, ctx: EventContext | None = None, **more: bool) -> Outcome:
    out: list[Any] = []
    try:
        run(out)
        return "records", out if form is None or ctx is None else list(form.records(out, ctx.where, **more))
    except CdcError as error:
        return type(error).__name__, error.message()


def sides(table: Table, options: DecoderOptions, texts: EnvelopeText | None = None, **more: Any) -> Sides | None:
    """Return both ways of a table, or None for one that has no schema."""
    try:
        return Sides(table, options, texts, **more)
    except SchemaError:
        return None
