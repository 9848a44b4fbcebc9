"""A writer that applies a chain of transforms to each record before it is produced.

The source's side of a job knows nothing of it: decoders write JSON with schemas, events are counted as they are read,
and markers say how far that is. So a record that a transform drops or routes elsewhere disturbs no counting, and a
retry begins where the marker says. Topics are known when a record comes out of the chain: each is described, and
created if it is missing, when a batch first writes to it, and recorded in the ledger with the records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Protocol, cast

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic, topic_record, topics_changed_error
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.event_fields import BINARY_CONVERTERS, STRING_CONVERTER
from airflow_provider_mysql_cdc.cdc.emit import topic_names
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, TransformError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats.chain_converter import (
    AvroWriter,
    ConnectReader,
    JsonWriter,
    RecordHeaders,
    read_headers,
    write_binary,
    write_headers,
    write_text,
)
from airflow_provider_mysql_cdc.cdc.formats.record_format import LookupSchemaId
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.records import (
    HEADER,
    AddedHeaders,
    Headers,
    RowRecord,
    SideRecord,
    byte_count,
)
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.record_writer import RecordWriter
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicInfo,
    TopicSpec,
    describe_created,
    describe_topics,
    ensure_topics,
)
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema, TransformFault
from airflow_provider_mysql_cdc.cdc.transforms.topic_routers import RegexRouter
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainRecord, SchemaCache, StepFault

_HEADER = itemgetter(HEADER)
_NO_TIMESTAMP: Final = -1
_PART_REMEDY = (
    "keep such records from it with a predicate (RecordIsTombstone, TopicNameMatches), or correct its settings"
)


class ConvertPart(Protocol):
    """Serializes keys or values."""

    def __call__(
        self, topic: str, schema: RecordSchema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the bytes, and add what belongs to them to the record's headers; raises ``TransformFault``."""


class TopicCatalog(Protocol):
    """What a writer asks Kafka about topics."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        """Return the topics that exist."""

    def create(self, topic: str, spec: TopicSpec) -> TopicInfo:
        """Create a topic unless it exists, and describe it."""


class KafkaTopics:
    """The topics of a cluster.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._cfg = cfg

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        """Return the topics that exist."""
        settings = self._cfg.kafka_settings()
        return describe_topics(make_admin(settings), topics, broker_addresses(settings))

    def create(self, topic: str, spec: TopicSpec) -> TopicInfo:
        """Create a topic unless it exists, and describe it."""
        admin = make_admin(self._cfg.kafka_settings("admin"))
        ensure_topics(admin, {topic: spec})
        return describe_created(admin, [topic], broker_addresses(self._cfg.kafka_settings()))[topic]


class ChainWriter:
    """Apply a chain to records, and produce what comes out of it; everything else the inner writer does.

    Args:
        cfg: The connector's configuration, which has a chain.
        inner: The transactional producer.
        lookup_id: Returns the id of a schema; only Avro needs it.
        topics: The cluster's topics.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        inner: RecordWriter,
        lookup_id: LookupSchemaId | None = None,
        topics: TopicCatalog | None = None,
    ) -> None:
        assert cfg.chain is not None
        self._cfg, self._inner, self._chain = cfg, inner, cfg.chain
        self._topics = KafkaTopics(cfg) if topics is None else topics
        self._internal = {cfg.ledger_topic, cfg.history_topic, cfg[F.DEAD_LETTER_TOPIC]}
        self._side_topics = frozenset(record_topics.side_topics(cfg))
        prefix = cfg[F.TOPIC_PREFIX]
        # Debezium gives these records their partition; that of others is for the producer to choose.
        self._fixed = {
            topic_names.schema_change_topic(prefix),
            topic_names.heartbeat_topic(prefix, cfg[F.TOPIC_HEARTBEAT_PREFIX]),
        }
        self._keys, self._values = ConnectReader(), ConnectReader()
        self._write_key, self._write_value = converter(cfg, "key", lookup_id), converter(cfg, "value", lookup_id)
        self._plan: BatchPlan | None = None
        self._recorded: dict[str, RecordedTopic] = {}
        self._infos: dict[str, TopicInfo] = {}
        self._new: dict[str, RecordedTopic] = {}
        self._counts: dict[str, int] = {}
        self._routed = SchemaCache(self._route)
        self._source: tuple[str, Any, Any] = ("", None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def begin(self, plan: BatchPlan | None, recorded: Mapping[str, RecordedTopic]) -> None:
        """Prepare for a batch or snapshot: topics are described again.

        Args:
            plan: The batch; None for the driver's own records.
            recorded: Topics as the ledger knows them.
        """
        self._plan, self._recorded = plan, dict(recorded)
        self._forget()

    def init(self, timeout_s: float = 60.0) -> None:
        """Fence older attempts; what was not committed is forgotten."""
        self._forget()
        self._inner.init(timeout_s)

    def abort(self) -> None:
        """Abort the current transaction."""
        self._forget()
        self._inner.abort()

    def _forget(self) -> None:
        self._infos, self._new, self._counts = {}, {}, {}

    def take_counts(self) -> dict[str, int]:
        """Return the records by topic since the last call, and count from 0 again."""
        counts, self._counts = self._counts, {}
        return counts

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        """Apply the chain to a record and produce it; one of the ledger, history or dead letters stays as it is.

        Args:
            topic: Its topic before the chain.
            key: Its key, JSON with its schema.
            value: Its value, likewise.
            partition: Of a record that stays as it is.
            headers: Its headers.

        Raises:
            TransformError: A transform or converter cannot take it, or the topic that it goes to is not for events.
            TopicChangedError: That topic was deleted or changed since the ledger recorded it.
            SinkError: Kafka does not accept it.
        """
        if topic in self._internal:
            self._inner.produce(topic, key, value, partition, headers)
            return
        record = self._transformed(topic, key, value, headers or ())
        if record is not None:
            self._produce(record, topic)

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Apply the chain to records of rows, except those with ``AddedHeaders``; see ``produce``."""
        if len(records) == 1 and isinstance(records[0][HEADER], AddedHeaders):
            ((key, value, row, number, added, partition_or_none),) = records
            one = [(key, value, row, number, None, partition_or_none)]
            size = len(key or b"") + len(value or b"")
            self._produce_made(topic, one, [*headers, *added] if added else headers, size)
            return
        for header, group in groupby(records, _HEADER):
            if isinstance(header, AddedHeaders):
                made = [(k, v, row, n, None, p) for k, v, row, n, _, p in group]
                self._produce_made(topic, made, [*headers, *header] if header else headers)
            else:
                own = headers if header is None else [header, *headers]
                for key, value, *_ in group:
                    self.produce(topic, key, value, partition, own)

    def produce_plain(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int, size: int
    ) -> None:
        """Produce records of whole transactions, which the decoder has unwrapped."""
        self._produce_made(topic, records, headers, size)

    def _produce_made(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, size: int | None = None
    ) -> None:
        """Produce records that are as the chain makes them, but for their topic and partition."""
        if not records:
            return
        routed = self._routed(topic)
        info = self._infos.get(routed) or self._find_topic(routed, topic)
        self._counts[routed] = self._counts.get(routed, 0) + len(records)
        count = info.partitions
        if count == 1:
            self._inner.produce_plain(routed, records, headers, 0, byte_count(records) if size is None else size)
        else:
            made = [(k, v, row, n, None, partition_of(k, count)) for k, v, row, n, _, _ in records]
            self._inner.produce_all(routed, made, headers)

    def send(self, records: Sequence[SideRecord]) -> None:
        """Apply the chain to side records, and wait until Kafka has them."""
        self._inner.send(self._sides(records))

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        """Apply the chain to side records, and commit together with the ledger records of topics met first."""
        sides = self._sides(records)
        ledger = self._cfg.ledger_topic
        self._inner.commit([*(topic_record(ledger, topic, known) for topic, known in self._new.items()), *sides])
        self._recorded |= self._new
        self._new = {}

    def register_schemas(self, records: Sequence[SideRecord]) -> None:
        """Let Avro's converters ask for the ids of the schemas that records have behind the chain.

        Args:
            records: The records, which are neither produced nor counted.

        Raises:
            TransformError: A transform or converter cannot take one.
            RegistryError: The registry does not return an id.
        """
        if any(isinstance(write, AvroWriter) for write in (self._write_key, self._write_value)):
            for record in records:
                if record.topic not in self._internal:
                    made = self._transformed(record.topic, record.key, record.value, record.headers or ())
                    if made is not None:
                        self._written(made)

    def _sides(self, records: Sequence[SideRecord]) -> list[SideRecord]:
        """Produce the records that are for the chain; return the others."""
        internal = []
        for record in records:
            if record.topic in self._internal:
                internal.append(record)
            else:
                self.produce(record.topic, record.key, record.value, 0, record.headers)
        return internal

    def _transformed(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> ChainRecord | None:
        key_schema, key_value = self._keys.read(topic, key)
        value_schema, event = self._values.read(topic, value)
        partition = 0 if topic in self._fixed else None
        record = ChainRecord(topic, partition, key_schema, key_value, value_schema, event, read_headers(headers))
        self._source = topic, key_value, event
        try:
            return self._chain.apply(record)
        except StepFault as fault:
            raise TransformError(
                f"the transform {fault.step} cannot take a record" + (f": {fault.hint}" if fault.hint else ""),
                where=f"{self._where()}, {F.TRANSFORMS.name}.{fault.step}",
                why=fault.why,
                remedy=f"{_PART_REMEDY}; Kafka Connect would stop here too",
            ) from fault

    def _produce(self, record: ChainRecord, source: str) -> None:
        topic = record.topic
        info = self._infos.get(topic) or self._find_topic(topic, source)
        key, value, headers = self._written(record)
        partition = partition_of(key, info.partitions) if record.partition is None else record.partition
        if not 0 <= partition < info.partitions:
            raise TransformError(
                f"a transform chooses partition {partition} of a topic that has {info.partitions}",
                where=self._where(record.topic),
                remedy="give the topic as many partitions as the transform says, or correct the transform",
            )
        self._counts[topic] = self._counts.get(topic, 0) + 1
        produced = topic, key, value, partition, headers
        timestamp = record.timestamp
        if timestamp is None or timestamp in (0, _NO_TIMESTAMP):
            self._inner.produce(*produced)
        elif timestamp > 0:
            cast(TransactionalWriter, self._inner).produce(*produced, timestamp)
        else:
            raise TransformError(
                f"a record has the timestamp {timestamp}, before 1970, which Kafka does not store",
                where=self._where(record.topic),
                remedy="correct the row's time, or remove table.field.event.timestamp; Kafka Connect would stop too",
            )

    def _where(self, topic: str | None = None) -> str:
        """Return the place of the record in hand as it came, and the topic that it goes to."""
        source_topic, key, event = self._source
        parts = [f"topic {source_topic}", f"key {json.dumps(key, ensure_ascii=False, default=str)}"]
        source = event.get("source") if isinstance(event, dict) else None
        if isinstance(source, dict) and source.get("file"):
            parts.insert(0, f"{source['file']}:{source.get('pos')}")
        return ", ".join(parts if topic in (None, source_topic) else [*parts, f"written to topic {topic}"])

    def _written(self, record: ChainRecord) -> tuple[bytes | None, bytes | None, RecordHeaders]:
        """Return a record's key, value and headers as the converters write them.

        Raises:
            TransformError: A converter cannot take it.
            RegistryError: The registry does not return the id of a schema.
        """
        headers = write_headers(record.headers)
        try:
            key = self._write_key(record.topic, record.key_schema, record.key, headers)
            value = self._write_value(record.topic, record.value_schema, record.value, headers)
        except TransformFault as fault:
            raise TransformError(
                "a record behind the transforms cannot be converted",
                where=self._where(record.topic),
                why=str(fault),
                remedy="correct the transforms, or choose another key.converter or value.converter; Kafka Connect "
                "would stop here too",
            ) from fault
        return key, value, headers

    def _route(self, topic: str) -> str:
        """Return the topic of unwrapped records, which nothing but their own topic decides."""
        record = ChainRecord(topic, None, None, None, None, None)
        for step in self._chain.steps:
            if isinstance(step.transform, RegexRouter) and step.applies(record):
                step.transform.apply(record)
        return record.topic

    def _find_topic(self, topic: str, source: str) -> TopicInfo:
        """Return a topic that a batch writes to for the first time; it is created if it is missing.

        Raises:
            TransformError: Records may not go there.
            TopicChangedError: It was deleted or changed since the ledger recorded it.
        """
        if topic != source:
            try:
                self._cfg.require_for_events(topic, source)
            except ConfigError as error:
                raise TransformError(error.what, where=self._where(topic), remedy=error.remedy) from error
        if not self._infos:
            self._infos = dict(self._topics.describe(sorted({topic, *self._recorded})))
        info, recorded = self._infos.get(topic), self._recorded.get(topic)
        if recorded is not None and self._plan is not None and (difference := recorded.difference(info)):
            raise topics_changed_error({topic: difference}, self._plan, has_commits=True)
        if info is None:
            side = source == topic and topic in self._side_topics
            cfg = self._cfg
            spec = record_topics.side_topic_spec(cfg) if side else record_topics.table_topic_spec(cfg, topic)
            info = self._topics.create(topic, spec)
        self._infos[topic] = info
        if recorded is None or recorded.difference(info):
            self._new[topic] = RecordedTopic(info.partitions, info.id, 0 if self._plan is None else self._plan.epoch)
        return info


def converter(cfg: ConnectorConfig, part: F.ConverterPart, lookup_id: LookupSchemaId | None = None) -> ConvertPart:
    """Return what serializes the keys or values behind a chain.

    Args:
        cfg: The connector's configuration.
        part: ``key`` or ``value``.
        lookup_id: Returns the id of a schema; only Avro needs it.
    """
    behind = cfg.behind_chain()
    name = behind[F.CONVERTER_CLASS_FIELD[part]]
    if behind.is_avro(part):
        assert lookup_id is not None
        part_fields = F.CONVERTER_FIELDS[part]
        replace_null = part_fields.keep_null is None or not behind[part_fields.keep_null]
        by_topic = behind[part_fields.subjects] == F.SUBJECT_STRATEGIES[0]
        return AvroWriter(part, RecordFormats(behind, lookup_id), replace_null=replace_null, by_topic=by_topic)
    if name == STRING_CONVERTER:
        return write_text
    if name in BINARY_CONVERTERS:
        return write_binary
    if part == "key":
        return JsonWriter(schemas=behind[F.KEY_SCHEMAS_ENABLE], replace_null=True)
    return JsonWriter(
        schemas=behind[F.VALUE_SCHEMAS_ENABLE],
        replace_null=behind[F.VALUE_REPLACE_NULL_WITH_DEFAULT],
        keep_marker=not behind.is_set(F.VALUE_REPLACE_NULL_WITH_DEFAULT),
    )


def with_chain(cfg: ConnectorConfig, writer: TransactionalWriter, lookup_id: LookupSchemaId) -> TransactionalWriter:
    """Return a writer that applies the configuration's chain; the writer itself where there is none.

    Args:
        cfg: The connector's configuration.
        writer: The transactional producer.
        lookup_id: Returns the id of a schema.
    """
    return writer if cfg.chain is None else cast(TransactionalWriter, ChainWriter(cfg, writer, lookup_id))


def begin_batch(writer: object, plan: BatchPlan | None, recorded: Mapping[str, RecordedTopic]) -> None:
    """Tell a writer with a chain which batch begins; nothing for others.

    Args:
        writer: The writer.
        plan: The batch; None for the driver's own records.
        recorded: Topics as the ledger knows them.
    """
    if isinstance(writer, ChainWriter):
        writer.begin(plan, recorded)


def register_schemas(writer: object, records: Sequence[SideRecord]) -> None:
    """Let a writer with a chain ask for the ids of the schemas of records, before it is locked for their transaction.

    Args:
        writer: The writer.
        records: The records, before the chain.
    """
    if isinstance(writer, ChainWriter):
        writer.register_schemas(records)


def output_counter(writer: object) -> Callable[[], dict[str, int]] | None:
    """Return what takes the records by topic from a writer with a chain; None for others.

    Args:
        writer: The writer.
    """
    return writer.take_counts if isinstance(writer, ChainWriter) else None
