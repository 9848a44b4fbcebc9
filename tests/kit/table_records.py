"""Records of table rows as a snapshot writes them: from values in the text protocol to key, value and headers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import snapshot_source
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import EmitTarget, RowEmitter, make_snapshot_route
from kit.create_statement import parse_create
from kit.decode_builder import packet

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
TICDC = {"value.format": "ticdc-avro", "schema-registry": "http://registry:1"}
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


def config(properties: dict[str, str] | None = None) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | (properties or {}))


class SchemaTexts:
    """Give ids to schemas, or GUIDs, and their texts by id; count how often each text is asked for."""

    def __init__(self, *, guids: bool = False) -> None:
        self._guids = guids
        self.texts: dict[str, str] = {}
        self.asked: list[str] = []
        self.subjects: list[str] = []

    def id_of(self, part: str, subject: str, text: str, about: str) -> SchemaId:
        self.subjects.append(subject)
        for known, old in self.texts.items():
            if old == text:
                return SchemaId(1, known) if self._guids else SchemaId(int(known))
        number = len(self.texts) + 7
        guid = f"00000000-0000-0000-0000-{number:012}" if self._guids else None
        self.texts[str(number) if guid is None else guid] = text
        return SchemaId(number, guid)

    def lookup(self, part: str, schema_id: str) -> str | None:
        self.asked.append(schema_id)
        return self.texts.get(schema_id)


class _Sink:
    def __init__(self) -> None:
        self.records: list[tuple[str, Record]] = []

    def produce(self, topic: str, key: Any, value: Any, partition: int, headers: Any) -> None:
        self.records.append((topic, (key, value, list(headers))))

    def produce_all(self, topic: str, records: Sequence[Any], headers: Any) -> None:
        self.records += [(topic, (key, value, list(headers))) for key, value, *_ in records]


class TableRecords:
    """Write rows and events of one table.

    Args:
        create: Its CREATE TABLE.
        properties: Properties.
        schemas: The registry; None for one of its own.
    """

    def __init__(
        self, create: str, properties: dict[str, str] | None = None, schemas: SchemaTexts | None = None
    ) -> None:
        self.cfg, self.schemas = config(properties), schemas or SchemaTexts()
        self.table = parse_create(create, DdlContext(default_db="shop"))
        self.topic = record_topics.table_topic_name(self.cfg, self.table.id)
        self.formats = RecordFormats.from_config(self.cfg, self.schemas.id_of)
        route = make_snapshot_route(self.cfg, self.formats, self.table, 1)
        rows, self._sink = route.text_rows, _Sink()
        texts = snapshot_source(self.cfg, self.table.id, writes_avro=rows.writes_avro)

        def fill(context: EventContext, marker: str) -> None:
            texts.fill(context, BinlogOffset("binlog.000007", 4711), 1_700_000_000_123, marker, (0, None))
            if self.cfg.is_ticdc:
                context.transaction = "445644800000000000"

        self._emitter = RowEmitter(
            cfg=self.cfg,
            table=self.table,
            decode=rows.decode,
            partial_rows=route.partial_rows,
            fill=fill,
            source_texts=texts,
            where="a test",
            target=EmitTarget(self._sink, route.topic, 1, [], 0, rows.record_format, rows.id_headers),  # type: ignore
            counts={},
            id_prefix="",
            row_id_prefix="",
        )

    def row(self, *values: str | bytes | None) -> Record:
        """Return the record of a row, given the values that SELECT returns."""
        ((_, record),) = self.rows(*values)
        return record

    def rows(self, *values: str | bytes | None) -> list[tuple[str, Record]]:
        """Return what is written of a row with its topics: its record, or a dead letter, or nothing."""
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        self._emitter.emit_row(packet(*texts), "true")
        written, self._sink.records = self._sink.records, []
        return written

    def event(self, key: dict[str, Any] | None, **members: Any) -> Record:
        """Return the record of an event, whose members are given as JsonConverter writes them."""
        event = {"before": None, "after": None, "source": SOURCE, "ts_ms": 1, **members}
        options = table_options.table_options(self.cfg, self.table)
        text = table_options.envelope_text(self.cfg, self.table, options)
        if text.value_schema is not None:
            fields = {field["field"]: field for field in json.loads(text.value_schema)["fields"]}
            event = {name: event.get(name) for name in (*fields, *members)}
            known = event["source"] | {"ts_sec": event["source"].get("ts_ms", 0) // 1000}
            source = {field["field"]: known.get(field["field"]) for field in fields["source"]["fields"]}
            event["source"] = source | {n: v for n, v in event["source"].items() if n not in SOURCE}
        record = None if key is None else _wrapped(text.key_schema, key), _wrapped(text.value_schema, event)
        if self.formats is None:
            return (*record, [])
        form = self.formats.table_format(self.table, options, self.topic)
        ids = form.id_headers()
        data = form.key_bytes(record[0]), form.value_bytes(record[1])
        return (*data, [] if ids is None else list(ids.append_to([], *data)))  # type: ignore[list-item]


def _wrapped(schema: str | None, payload: dict[str, Any]) -> bytes:
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return (text if schema is None else f'{{"schema":{schema},"payload":{text}}}').encode()


SOURCE = {
    "version": "3.6.1.Final", "connector": "mysql", "name": "p", "ts_ms": 1_700_000_000_000, "snapshot": "false",
    "db": "shop", "sequence": None, "ts_us": 1_700_000_000_000_000, "ts_ns": 1_700_000_000_000_000_000, "table": "t",
    "server_id": 1, "gtid": None, "file": "binlog.000007", "pos": 4711, "row": 0, "thread": None, "query": None,
}  # fmt: skip
