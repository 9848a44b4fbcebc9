"""What the text of a configuration makes of rows: drained by a real writer, and read as a snapshot reads them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pytest

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.table_map import _METADATA_BYTES
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode import native_kernel
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.drain import drain_writer as writer_module
from airflow_provider_mysql_cdc.cdc.drain.drain_writer import DrainWriter
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from kit.avro_rig import AVRO, stripped
from kit.binlog_bytes import Dump, stream_of
from kit.create_statement import parse_create
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.table_maps import full_table_map
from kit.table_records import SchemaTexts, TableRecords, config
from kit.transaction_bytes import begin_body, gtid_body, map_body, rows_body

START = BinlogOffset("binlog.000001", 4)
SERVER = {"lower_case_table_names": 0, "explicit_defaults_for_timestamp": 1, "default_collation_for_utf8mb4": 255}
WRITE, UPDATE, DELETE = c.WRITE_ROWS_EVENT_V2, c.UPDATE_ROWS_EVENT_V2, c.DELETE_ROWS_EVENT_V2
QUERY = b"INSERT INTO t ..."
IN_AVRO = {
    **{f"{part}.converter": AVRO for part in ("key", "value")},
    **{f"{part}.converter.schema.registry.url": "http://registry:1" for part in ("key", "value")},
}
Change = tuple[int, bytes]
"""Kind of an event, and its rows or its statement."""


@dataclass
class Written:
    """Hold what was written.

    Args:
        topic: The table's topic.
        schemas: The registry.
        topics: Records by topic, without those of the ledger.
        writer: The writer of a drain; None for a snapshot.
        asked: What the source was asked for a dump with.
    """

    topic: str
    schemas: SchemaTexts
    topics: dict[str, list[TopicRecord]]
    writer: DrainWriter | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> list[TopicRecord]:
        """Return the records of the table."""
        return self.topics.get(self.topic, [])

    def values(self) -> list[Any]:
        """Return the values of the table's records without their schemas."""
        return [payload(record.value, self.schemas) for record in self.records]

    def native_rows(self) -> int:
        """Return how many rows the kernel has decoded."""
        tally = None if self.writer is None else self.writer.routes._settings.tally
        return 0 if tally is None else tally.counts().rows


def choose_kernel(monkeypatch: pytest.MonkeyPatch, *, native: bool) -> None:
    """Let the native kernel decode, or Python."""
    monkeypatch.setenv(native_kernel.ENV_VARIABLE, "on" if native else "off")
    assert not native or native_kernel.kernel().module is not None


def table_map_text(table: Table) -> bytes:
    """Return the body of a table's TABLE_MAP event behind the table id, without optional metadata."""
    event = full_table_map(table)
    types, meta = event.column_types, event.column_meta
    sized = b"".join(m.to_bytes(_METADATA_BYTES[t], "little") for t, m in zip(types, meta, strict=True))
    names = b"".join(bytes([len(name)]) + name.encode() + b"\0" for name in (table.id.db, table.id.table))
    return b"\1\0" + names + bytes([len(types)]) + types + bytes([len(sized)]) + sized + event.null_bits


def drain(
    monkeypatch: pytest.MonkeyPatch,
    create: str,
    changes: Sequence[Change],
    properties: dict[str, str] | None = None,
    *,
    native: bool = False,
    present: bytes | None = None,
) -> Written:
    """Drain row events, each in a transaction of its own.

    Args:
        monkeypatch: Puts the events in the place of a server's.
        create: The table's CREATE TABLE.
        changes: The events.
        properties: Properties.
        native: Whether the native kernel decodes.
        present: Bits of the columns that row images have; None for all.
    """
    choose_kernel(monkeypatch, native=native)
    cfg = config({"connect.max.attempts": "1", **(properties or {})})
    table = parse_create(create, DdlContext(default_db="shop"))
    dump = Dump().begin()
    for number, (kind, rows) in enumerate(changes, 1):
        if kind == c.QUERY_EVENT:
            dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(
                kind, struct.pack("<IIBHH", 11, 0, 4, 0, 0) + b"shop\0" + rows
            )
            continue
        body = rows_body(1, kind, len(table.columns), rows)
        if present is not None:
            full = b"\xff" * len(present)
            body = body.replace(full, present, 2 if kind == UPDATE else 1)
        dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(c.QUERY_EVENT, begin_body())
        dump.add(c.ROWS_QUERY_LOG_EVENT, bytes([len(QUERY)]) + QUERY)
        dump.add(c.TABLE_MAP_EVENT, map_body(1, table_map_text(table))).add(kind, body).add(c.XID_EVENT, bytes(8))
    return _run(monkeypatch, cfg, table, dump)


def _run(monkeypatch: pytest.MonkeyPatch, cfg: ConnectorConfig, table: Table, dump: Dump) -> Written:
    kafka, schemas, topic = MemoryKafka(), SchemaTexts(), table_topic_name(cfg, table.id)
    sink = MemoryWriter(kafka, f"{cfg.topic_prefix}.0")
    sink.init()
    plan = BatchPlan(1, "drain", START, dump.offset(), 1, partitions={topic: 1})
    formats = RecordFormats.from_config(cfg, schemas.id_of)
    state = SchemaState().with_table(table, ())
    context = WriterContext(cfg, plan, 0, state, sink, SERVER, run_id="run", formats=formats)  # type: ignore[arg-type]
    written = Written(topic, schemas, {}, create_writer(context))
    with stream_of(dump.data, START) as stream:

        def open_stream(*given: Any, **named: Any) -> Any:
            written.asked = named
            return stream

        monkeypatch.setattr(writer_module, "open_stream", open_stream)
        assert written.writer is not None
        written.writer.run()
    written.topics = {name: kafka.committed(name) for name, _ in kafka.logs if name != cfg.ledger_topic}
    return written


def snapshot(
    monkeypatch: pytest.MonkeyPatch,
    create: str,
    values: Sequence[bytes | None],
    properties: dict[str, str] | None = None,
    *,
    native: bool = False,
) -> tuple[Written, TableRecords]:
    """Return what a snapshot writes of a row, and what has written it.

    Args:
        monkeypatch: Chooses the kernel.
        create: The table's CREATE TABLE.
        values: The row, as SELECT returns it; of columns that a snapshot does not read too.
        properties: Properties.
        native: Whether the native kernel decodes.
    """
    choose_kernel(monkeypatch, native=native)
    records = TableRecords(create, properties)
    written = Written(records.topic, records.schemas, {})
    read = selected_columns(records.table, table_options.table_options(records.cfg, records.table))
    texts = {column.name: value for column, value in zip(records.table.columns, values, strict=True)}
    for topic, (key, value, headers) in records.rows(*(texts[column.name] for column in read)):
        written.topics.setdefault(topic, []).append(TopicRecord(0, 0, key, value, 0, tuple(headers)))
    return written, records


def payload(data: bytes | None, schemas: SchemaTexts) -> Any:
    """Return what a record's part holds, in JSON or in Avro; bytes in Avro stay bytes."""
    if data is None:
        return None
    if data[:1] == b"\0":
        text = schemas.texts[str(struct.unpack(">I", data[1:5])[0])]
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(stripped(json.loads(text))))
    found = json.loads(data)
    return found["payload"] if found.keys() == {"schema", "payload"} else found
