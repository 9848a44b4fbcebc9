"""A writer with a chain of transforms, in memory: what comes out of the chain, and topics that exist."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import ChainWriter
from airflow_provider_mysql_cdc.cdc.formats.record_format import LookupSchemaId
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, TopicSpec
from kit.memory_kafka import MemoryKafka, MemoryWriter

GIVEN = {"topic.prefix": "cap", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
CONNECT, DEBEZIUM = "org.apache.kafka.connect.transforms.", "io.debezium.transforms."


class Produced(NamedTuple):
    """A record behind the chain, with key and value as they are."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    headers: list[tuple[str, bytes | None]]
    timestamp: int = 0


@dataclass
class MemoryTopics:
    """Topics that exist, and those that were created."""

    existing: dict[str, TopicInfo] = field(default_factory=dict)
    partitions: int = 1
    created: dict[str, TopicSpec] = field(default_factory=dict)

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        return {topic: self.existing[topic] for topic in topics if topic in self.existing}

    def create(self, topic: str, spec: TopicSpec) -> TopicInfo:
        self.created[topic] = spec
        info = self.existing[topic] = TopicInfo(self.partitions, f"id-{topic}")
        return info


class NotedWriter(MemoryWriter):
    """Note what is produced, the timestamp too."""

    def __init__(self, kafka: MemoryKafka | None = None) -> None:
        super().__init__(kafka or MemoryKafka(), "cap.0")
        self.produced: list[Produced] = []
        self.init()

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        headers: Any = None,
        timestamp: int = 0,
    ) -> None:
        self.produced.append(Produced(topic, key, value, partition, list(headers or ()), timestamp))
        super().produce(topic, key, value, partition, headers)


def chained(
    properties: Mapping[str, str], partitions: int = 1, lookup_id: LookupSchemaId | None = None
) -> tuple[ChainWriter, NotedWriter, MemoryTopics]:
    """Return a writer with the chain of properties, what it produces to, and the topics."""
    cfg, inner = ConnectorConfig.from_properties({**GIVEN, **properties}), NotedWriter()
    topics = MemoryTopics(partitions=partitions)
    return ChainWriter(cfg, inner, lookup_id, topics), inner, topics


def transforms(**steps: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of transforms: name to settings, in order."""
    given = {"transforms": ",".join(steps)}
    for name, settings in steps.items():
        given |= {f"transforms.{name}.{option}": text for option, text in settings.items()}
    return given


def compact(document: Any) -> bytes | None:
    """Return JSON as a converter writes it; None for null."""
    return None if document is None else json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def column(field_name: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a column; it is optional unless that is said."""
    return {"type": kind, "optional": True, **more, "field": field_name}


def row_event(
    columns: Sequence[Mapping[str, Any]],
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    table: str = "t",
    op: str = "",
) -> bytes:
    """Return the value of a change event."""
    images = [
        {"type": "struct", "fields": list(columns), "optional": True, "name": f"cap.d.{table}.Value", "field": part}
        for part in ("before", "after")
    ]
    texts = [{"type": "string", "optional": True, "field": name} for name in ("snapshot", "db", "table", "file")]
    texts.append({"type": "int64", "optional": False, "field": "pos"})
    source = {"type": "struct", "fields": texts, "optional": False, "name": "io.debezium.connector.mysql.Source"}
    members = [
        *images,
        {**source, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {"type": "struct", "fields": members, "optional": False, "name": f"cap.d.{table}.Envelope", "version": 2}
    block = {"snapshot": "false", "db": "d", "table": table, "file": "binlog.000001", "pos": 77}
    kind = op or ("d" if after is None else "c" if before is None else "u")
    payload = {"before": before, "after": after, "source": block, "op": kind, "ts_ms": 1_700_000_000_000}
    encoded = compact({"schema": schema, "payload": payload})
    assert encoded is not None
    return encoded


def row_key(table: str = "t", **members: int | str) -> bytes:
    """Return the key of a change event."""
    fields = [
        {"type": "int32" if isinstance(value, int) else "string", "optional": False, "field": name}
        for name, value in members.items()
    ]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": f"cap.d.{table}.Key"}
    encoded = compact({"schema": schema, "payload": members})
    assert encoded is not None
    return encoded


def payload(data: bytes | None) -> Any:
    """Return the payload of a key or value with its schema, or the whole without."""
    document = None if data is None else json.loads(data)
    return document["payload"] if isinstance(document, dict) and {"schema", "payload"} == document.keys() else document
