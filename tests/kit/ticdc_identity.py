"""Compare flat rows that are written at once with those that become JSON first: bytes, partitions and errors."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import fastavro

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.decoders import choose_decoder as decoder_of
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import format_rows
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import TicdcRows, ticdc_row_plan
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source as flat_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import row_options
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

EVENT = SimpleNamespace(timestamp=1_700_000_000, server_id=223344, file="binlog.000007", start_pos=4711)
AT = SimpleNamespace(gtid=None, commit_us=1_700_000_000_123_456, thread=9, query=None)
TICDC = {
    "topic.prefix": "shop",
    "database.hostname": "db",
    "database.user": "cdc",
    "kafka.bootstrap.servers": "kafka:9092",
    "value.format": "ticdc-avro",
    "schema-registry": "http://127.0.0.1:8081",
}
Outcome = tuple[str, Any]


class FlatSides:
    """Hold what writes one table version's flat rows in both ways.

    Args:
        table: The table.
        wires: Wire types of its columns.
        count: Partitions of its topic.
        rule: How rows are spread over them, as a dispatcher has it.
        options: Modes beside those of the protocol; None for those of the configuration.
        more: Properties.
    """

    def __init__(
        self,
        table: Table,
        wires: Any,
        count: int = 1,
        rule: dict[str, Any] | None = None,
        options: DecoderOptions | None = None,
        **more: str,
    ) -> None:
        given = TICDC | more
        if rule is not None:
            given |= {"dispatchers": json.dumps([{"matcher": ["*.*"], "topic": "{schema}{table}", **rule}])}
        cfg, self.schemas = ConnectorConfig.from_properties(given), list[Any]()
        self.table, self.count, self.wires = table, count, tuple(wires)
        found = table_options.table_options(cfg, table)
        self.options = found if options is None else row_options(options, table_options.ticdc_modes(cfg))
        self.form = TicdcFormat(cfg, table, self.options, "topic", self._ask)
        self.envelope = EnvelopeText()
        self.text = ticdc_row_plan(self.form, table, self.wires, self.options, self.envelope, count)
        self.block = table_options.table_source_block(cfg, table.id)
        self.source = TicdcSource(self.block, self.text.modes.extension)

    def _ask(self, part: str, subject: str, text: str, about: str) -> SchemaId:
        self.schemas.append(fastavro.parse_schema(_plain(json.loads(text))))
        return SchemaId(len(self.schemas))

    def context(self, order: str = "77", first_row: int = 0, at: Any = AT) -> EventContext:
        """Return the context of an event whose rows are written at once."""
        ctx = EventContext(transaction=order, first_row=first_row)
        flat_source.fill(ctx, self.source, EVENT, at)
        return ctx

    def event(
        self, decoder: Any, kind: str, buf: bytes, pos: int, end: int, ctx: EventContext | None = None
    ) -> Outcome | None:
        """Compare the records of a row event; return them, or the error's text.

        Args:
            decoder: Writes them at once.
            kind: The method of the decoder.
            buf: Holds the event.
            pos: Offset of the first row.
            end: Offset behind the last.
            ctx: From ``context``.
        """
        ctx = ctx or self.context()
        plain = decoder_of(self.table, self.wires, self.options, self.envelope)
        told = EventContext(transaction=ctx.transaction, first_row=ctx.first_row)
        source.fill_time(told, *(ctx.plain or ())[1:])
        wanted = self._outcome(plain, kind, (buf, pos, end), told)
        found = self._outcome(TicdcRows(decoder, lambda: plain, self.form), kind, (buf, pos, end), ctx)
        assert found == wanted
        if wanted[0] == "records":
            self._readable(wanted[1])
        return wanted

    def _outcome(self, decoder: Any, kind: str, event: tuple[bytes, int, int], ctx: EventContext) -> Outcome:
        share, out = TopicShare("topic", self.count, frozenset(range(self.count)), True), list[Any]()
        try:
            getattr(decoder, kind)(*event, ctx, out)
            return "records", format_rows(self.form, out, share, ctx.where, tolerant=False)[0]
        except CdcError as error:
            return type(error).__name__, error.message()

    def _readable(self, records: list[Any]) -> None:
        for key, value, *_ in records:
            for data in (key, value):
                if data is not None:
                    stream = io.BytesIO(data[5:])
                    fastavro.schemaless_reader(stream, self.schemas[data[4] - 1], None)
                    assert stream.read() == b""


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: _plain(v) for k, v in schema.items() if k not in ("logicalType", "connect.parameters")}


def rules(pick: random.Random, columns: tuple[Column, ...], keys: tuple[str, ...]) -> dict[str, Any] | None:
    """Return a rule for a made-up table."""
    named = pick.sample([column.name for column in columns], pick.randrange(1, min(3, len(columns)) + 1))
    return pick.choice(
        (
            None,
            {"partition": "table"},
            {"partition": "index-value"},
            {"partition": "index-value", "index": "primary"} if keys else {"partition": "index-value"},
            {"partition": "columns", "columns": named},
            {"partition": "ts"},
        )
    )


def sides(seed: Any) -> FlatSides | None:
    """Return both ways of a made-up table, or None for one that the protocol does not know.

    Args:
        seed: Makes it (``test_fuzz_native.Made``).
    """
    pick = seed.random
    columns = [seed.column(n) for n in range(1, pick.randrange(2, 12))]
    names = [column.name for column, _ in columns]
    keys = tuple(pick.sample(names, pick.randrange(min(3, len(names)) + 1)))
    table = Table(TableId(pick.choice(("db", "dé")), "t"), tuple(column for column, _ in columns), keys)
    return flat_sides(seed, table, tuple(wire for _, wire in columns))


def flat_sides(seed: Any, table: Table, wires: tuple[WireType, ...]) -> FlatSides | None:
    """Return both ways of a table, or None for one that the protocol does not know.

    Args:
        seed: Makes modes and dispatchers.
        table: The table.
        wires: Wire types of its columns.
    """
    pick = seed.random
    options = replace(seed.options(table.columns), contract="3.x", field_names="none", key_fields=(), transaction=False)
    # Only strings can be masked, and those of character set binary are bytes.
    masked = {name for name, _ in options.treatments}
    if any(c.name in masked and (c.family is not Family.TEXT or c.charset == "binary") for c in table.columns):
        options = replace(options, treatments=())
    try:
        return FlatSides(
            table,
            wires,
            pick.choice((1, 3, 61)),
            rules(pick, table.columns, table.primary_key),
            options,
            **{
                "avro-decimal-handling-mode": pick.choice(("precise", "string")),
                "avro-bigint-unsigned-handling-mode": pick.choice(("long", "string")),
                "enable-tidb-extension": pick.choice(("true", "false")),
            },
        )
    except (CdcError, Declined):
        return None
