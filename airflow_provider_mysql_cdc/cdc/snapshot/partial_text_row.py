"""Find what can be read of a row of a snapshot that is left out, for its dead letter.

Each column is decoded alone, as it would be in an event: masked values stay masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_row_source import value_end
from airflow_provider_mysql_cdc.cdc.decode.row_functions import TextDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table


class PartialTextRows:
    """Describe rows that are left out.

    Args:
        cfg: The connector's configuration.
        table: Their table.
        columns: The columns of the SELECT in its order; None means those of ``select_list``.
    """

    def __init__(self, cfg: ConnectorConfig, table: Table, columns: tuple[Column, ...] | None = None) -> None:
        self._cfg, self._table, self._selected = cfg, table, columns

    def describe(self, row: int, error: ValueDecodeError, packet: bytes, ctx: EventContext) -> BadRow:
        """Return what can be read of a row.

        Args:
            row: Its number.
            error: Why it is left out.
            packet: The row in MySQL's text protocol.
            ctx: Text around the rows, of JSON records.
        """
        values = self._split(packet)
        key, key_json = self._key(values, ctx)
        after, failed = dict[str, Any](), list[tuple[str, str]]()
        for column, decode in self._value_decoders.items():
            try:
                after |= json.loads(_record(decode, values.get(column, b""), ctx)[1] or b"{}")["after"]
            except ValueDecodeError as cause:
                failed.append((column.name, self._cause(column, cause)))
        text = json.dumps(after, ensure_ascii=False, separators=(",", ":"))
        return BadRow(row, "r", error, key, key_json, after=text, failed=tuple(failed))

    def _split(self, packet: bytes) -> dict[Column, bytes]:
        """Return the part of the packet that each column has."""
        parts, pos = dict[Column, bytes](), 0
        for column in self._columns:
            end = value_end(packet, pos)
            parts[column], pos = packet[pos:end], end
        return parts

    def _cause(self, column: Column, error: ValueDecodeError) -> str:
        """Return why a value cannot be read; the text may contain the value, which a masked column does not show."""
        masked = any(name == column.name for name, _ in self._options.treatments)
        return error.why.partition(":")[0] if masked else error.why

    def _key(self, values: dict[Column, bytes], ctx: EventContext) -> tuple[bytes | None, str | None]:
        """Return the key that the record would have had, and its JSON text; None where it cannot be read."""
        if self._key_decoders is None:
            return None, None
        columns, decode, decode_payload = self._key_decoders
        packet = b"".join(values[column] for column in columns)
        try:
            key, payload = _record(decode, packet, ctx)[0], _record(decode_payload, packet, ctx)[0] or b""
        except ValueDecodeError:
            return None, None
        return key, payload.decode("utf-8", "replace")

    @cached_property
    def _options(self) -> DecoderOptions:
        return table_options.table_options(self._cfg, self._table)

    @cached_property
    def _envelope(self) -> EnvelopeText:
        return table_options.envelope_text(self._cfg, self._table, self._options)

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return selected_columns(self._table, self._options) if self._selected is None else self._selected

    @cached_property
    def _key_decoders(self) -> tuple[tuple[Column, ...], TextDecoder, TextDecoder] | None:
        """The key columns, and the decoders of the record's key and of its payload; None for a table without a key."""
        columns = key_columns(self._table, self._options)
        if not columns:
            return None
        options = replace(self._options, included=())
        record = self._compile(options, EnvelopeText(self._envelope.key_schema), columns)
        return columns, record, self._compile(options, EnvelopeText(), columns)

    @cached_property
    def _value_decoders(self) -> dict[Column, TextDecoder]:
        """The decoders of single columns; a column that the SELECT leaves out has a constant value."""
        texts = EnvelopeText(null_text=self._envelope.null_text)
        decoders = dict[Column, TextDecoder]()
        for column in value_columns(self._table, self._options):
            options = replace(self._options, included=(column.name,), key_columns=())
            decoders[column] = self._compile(options, texts, (column,) if column in self._columns else ())
        return decoders

    def _compile(self, options: DecoderOptions, envelope: EnvelopeText, columns: Iterable[Column]) -> TextDecoder:
        return compile_text_decoder(self._table, options, envelope, tuple(columns))


def _record(decode: TextDecoder, packet: bytes, ctx: EventContext) -> RowRecord:
    records: list[RowRecord] = []
    decode(packet, 0, ctx, records)
    return records[0]
