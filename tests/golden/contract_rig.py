"""From DDL, row bytes and the place in the binlog to whole records, as the pipeline makes them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from golden.golden_data import sample
from kit.decode_builder import body, image, packet, table_map

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock, fill, source_block
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table

OLD = DecoderOptions(contract="1.9", prefix="mysql-server-1")
"""Contract 1.9 with schema names as the samples show them: not adjusted."""
V1 = replace(OLD, source_struct="v1")
_WIRES = {"INT": (wt.LONG, 0), "VARCHAR": (wt.VARCHAR, 1020)}


def created(ddl: str, state: SchemaState | None = None) -> Table:
    """Return the table that a CREATE TABLE statement makes in database inventory."""
    found = apply_ddl(state or SchemaState(), ddl, DdlContext(default_db="inventory")).state
    (made,) = found.tables.values()
    return made


def customers() -> Table:
    """Return the samples' table from its statement (EX-50)."""
    statement: Any = sample("EX-50")
    return created(statement)


def row_image(table: Table, row: dict[str, Any]) -> bytes:
    """Return the row image of a table of INT and VARCHAR columns."""
    data = b""
    for column in table.columns:
        value = row[column.name]
        text = str(value).encode()
        data += struct.pack("<i", value) if column.type_name == "INT" else struct.pack("<H", len(text)) + text
    return image(len(table.columns), data)


def streamed(
    table: Table, options: DecoderOptions, ctx: EventContext, before: Any, after: Any, texts: EnvelopeText | None = None
) -> list[RowRecord]:
    """Return the records of one row of a row event: insert, update or delete by what is given."""
    texts = texts or envelope_text(table, options, transaction=options.transaction)
    decoder = compile_decoder(table, table_map(*(_WIRES[c.type_name] for c in table.columns)), options, texts)
    images = [row_image(table, row) for row in (before, after) if row is not None]
    buf, pos, end = body(*images, columns=len(table.columns), images=len(images))
    run = decoder.update if len(images) == 2 else decoder.write if before is None else decoder.delete
    out: list[RowRecord] = []
    run(buf, pos, end, ctx, out)
    return out


def read(
    table: Table,
    options: DecoderOptions,
    ctx: EventContext,
    values: Iterable[bytes | None],
    texts: EnvelopeText | None = None,
) -> RowRecord:
    """Return the record of one snapshot row, its values as MySQL's text protocol gives them."""
    texts = texts or envelope_text(table, options, transaction=options.transaction)
    out: list[RowRecord] = []
    compile_text_decoder(table, options, texts)(packet(*values), 0, ctx, out)
    return out[0]


def context_of(block: SourceBlock, theirs: dict[str, Any], ts_ms: int) -> EventContext:
    """Return the context of a streamed event at the place that a sample's source block names.

    Args:
        block: The table's source blocks.
        theirs: The sample's source block.
        ts_ms: The envelope's time.
    """
    ctx = EventContext()
    event = SimpleNamespace(
        timestamp=theirs["ts_ms"] // 1000, server_id=theirs["server_id"], file=theirs["file"], start_pos=theirs["pos"]
    )
    thread, query = theirs["thread"] or 0, theirs["query"]
    at = SimpleNamespace(gtid=theirs["gtid"], commit_us=theirs["ts_ms"] * 1000, thread=thread, query=query)
    fill(ctx, block, event, at)
    ctx.tail = block.op_tail(ts_ms * 1_000_000)
    return ctx


def customers_block(options: DecoderOptions = OLD, product_version: str | None = None) -> SourceBlock:
    """Return the writer of the source blocks of the samples' table."""
    return source_block(
        customers().id,
        prefix=options.prefix,
        version=options.contract,
        source_struct=options.source_struct,
        include_query=True,
        product_version=product_version,
    )


def customers_records(payload: dict[str, Any], product_version: str | None = None) -> list[RowRecord]:
    """Return the records of the change that a sample's payload describes."""
    ctx = context_of(customers_block(product_version=product_version), payload["source"], payload["ts_ms"])
    return streamed(customers(), OLD, ctx, payload["before"], payload["after"])


def parsed(data: bytes | None) -> Any:
    """Return JSON as Python values."""
    assert data is not None
    return json.loads(data)


def numbers(value: Any) -> Any:
    """Return a sample's values with numbers in place of the texts that some samples show (EVT-41, DIS-34)."""
    if isinstance(value, dict):
        return {k: numbers(v) for k, v in value.items()}
    return int(value) if isinstance(value, str) and value.isdecimal() else value
