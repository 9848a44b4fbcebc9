"""Read what a connector has stored in Kafka or in files: offset, schema history, how far it has read signals.

The schema history of a Debezium connector: read its structures, and write those of this stream in its form.

The members are those of Debezium 1.9 to 3.x: ``source``, ``position``, ``databaseName``, ``ddl``, ``tableChanges``; of
a file each line is a record. The statements are used, because older versions describe columns otherwise; and they are
written, because Debezium for MySQL before 2.0 reads nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset, offset_in_file, stored_offset
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DdlParseError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number, same_base
from airflow_provider_mysql_cdc.cdc.model.records import history_prefix
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord, parse_history_json
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import build_snapshot_schema, history_records
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin, make_consumer
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import to_sink_error
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topics import existing_topics

_TIMEOUT_S = 15.0

Values = list[tuple[str, bytes | None]]
"""Where each record of a history is, and its value."""


def offset_of_topic(cfg: ConnectorConfig, topic: str, connector: str) -> DebeziumOffset:
    """Return a connector's offset from the topic in which Kafka Connect stores offsets.

    Args:
        cfg: The connector's configuration.
        topic: The topic.
        connector: The connector's name; empty for any.

    Raises:
        NoOffsetError: There is none, or its snapshot is not complete.
        SinkError: Kafka cannot be read.
    """
    records = offset_records(cfg, topic)
    return stored_offset(((r.key, r.value) for r in records), connector, cfg.topic_prefix, f"topic {topic}")


def offset_records(cfg: ConnectorConfig, topic: str) -> list[TopicRecord]:
    """Return the last record of each key in the topic in which Kafka Connect stores offsets, the newest last.

    Args:
        cfg: The connector's configuration.
        topic: The topic.

    Raises:
        SinkError: Kafka cannot be read.
    """
    # Within a partition the order counts, whatever the clocks of the workers said.
    last = {(r.partition, r.key): r for r in read_topic_committed(cfg.kafka_settings("consumer"), topic)}
    return sorted(last.values(), key=lambda r: r.timestamp_ms)


def read_file(path: str) -> bytes:
    """Return the content of a file.

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError("the file cannot be read", where=path, why=str(error), remedy="check its name") from None


def offset_of_file(cfg: ConnectorConfig, path: str, connector: str) -> DebeziumOffset:
    """Return a connector's offset from a file (``connect_offsets.offset_in_file``).

    Args:
        cfg: The connector's configuration.
        path: The file.
        connector: The connector's name; empty for any.

    Raises:
        ConfigError: It is something else.
        NoOffsetError: It has none of this connector, or its snapshot is not complete.
    """
    return offset_in_file(read_file(path), connector, cfg.topic_prefix, path)


def history_of_topic(cfg: ConnectorConfig, topic: str) -> Values | None:
    """Return the records of a connector's history topic; None where it does not exist, or is this stream's.

    Args:
        cfg: The connector's configuration.
        topic: The topic.

    Raises:
        SinkError: Kafka cannot be read.
    """
    settings = cfg.kafka_settings("consumer")
    info = existing_topics(make_admin(settings), [topic]).get(topic)
    if info is None:
        return None
    records = read_topic_committed(settings, topic, topic_info=info)
    values = [(f"topic {topic}, offset {record.offset}", record.value) for record in records]
    return None if not values or _is_own(values[0][1]) else values


def _is_own(value: bytes | None) -> bool:
    try:
        members: Any = parse_history_json(value or b"")
    except SchemaError:
        return False
    return isinstance(members, Mapping) and history_prefix(members) is not None


def history_of_file(path: str) -> Values:
    """Return the records of a connector's history file, of which each line is one.

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be read.
    """
    return list(_lines(path))


def _lines(path: str) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(read_file(path).splitlines(), 1):
        if line.strip():
            yield f"{path}, line {number}", line


def signals_read(cfg: ConnectorConfig) -> int | None:
    """Return how far a connector has read the Kafka signal topic, of which it reads one partition; None for not at all.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka cannot be read.
    """
    if not cfg.accepts_signals_from("kafka"):
        return None
    [partition] = _of_signal_group(cfg, lambda consumer, of: consumer.committed([of], timeout=_TIMEOUT_S))
    return partition.offset if partition.offset >= 0 else None


def write_signals_read(cfg: ConnectorConfig, offset: int) -> None:
    """Store how far the Kafka signal topic is read, where a connector looks for it.

    Args:
        cfg: The connector's configuration.
        offset: The next offset to read.

    Raises:
        SinkError: Kafka refuses.
    """

    def commit(consumer: Any, of: TopicPartition) -> Any:
        of.offset = offset
        return consumer.commit(offsets=[of], asynchronous=False)

    _of_signal_group(cfg, commit)


def _of_signal_group(cfg: ConnectorConfig, call: Callable[[Any, TopicPartition], Any]) -> Any:
    group = str(cfg[F.SIGNAL_KAFKA_GROUP_ID])
    consumer = make_consumer(cfg.signal_kafka_settings(), group, lambda error: None)
    try:
        return call(consumer, TopicPartition(str(cfg[F.SIGNAL_KAFKA_TOPIC]), 0))
    except KafkaException as error:
        raise to_sink_error(error.args[0], "while asking for a group's offset", where=f"group {group}") from None
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True)
class ConnectorStatement:
    """Hold a statement of the history.

    Args:
        db: Its database.
        ddl: Its text.
        file: Binlog file of its position.
        pos: Position behind it.
        gtids: What the server had executed before it; None without GTIDs.
        in_snapshot: Whether a snapshot has read it.
        where: Topic and offset, or file and line.
        changes: Tables that a signal has described, without a text.
    """

    db: str
    ddl: str
    file: str
    pos: int
    gtids: str | None
    in_snapshot: bool
    where: str
    changes: tuple[dict[str, Any], ...] = ()

    def apply_to(self, cfg: ConnectorConfig, state: SchemaState, context: DdlContext) -> SchemaState:
        """Return the structures behind it.

        Args:
            cfg: The connector's configuration.
            state: Structures before it.
            context: Settings of the server's sessions; the history does not have those of each statement.

        Raises:
            DdlParseError: It is about a captured table, and not understood.
            SchemaError: A description is damaged.
        """
        at, session = BinlogOffset(self.file, self.pos), replace(context, default_db=self.db)
        record = HistoryRecord(cfg.topic_prefix, at, 0, 0, self.db, self.ddl, session, self.changes)
        return record.apply_to(state, cfg.needs_schema)

    def is_before(self, cfg: ConnectorConfig, offset: BinlogOffset) -> bool:
        """Return whether it is part of the structures at an offset (Debezium 3.6.1, ``HistoryRecordComparator``).

        The history goes on over failovers, so GTIDs decide. A statement without them is earlier than an offset with
        them, and so is one whose file has another base name.

        Args:
            cfg: The connector's configuration.
            offset: The offset, a boundary of transactions.
        """
        if offset.gtids:
            before, there = (
                GtidSet.parse(text).of_sources(cfg.counts_gtid_source) for text in (self.gtids, offset.gtids)
            )
            return there.contains(before) and (self.in_snapshot or before != there)
        if not same_base(self.file, offset.file):
            return True
        return (file_number(self.file), self.pos) <= (file_number(offset.file), offset.pos)


def read_statements(values: Iterable[tuple[str, bytes | None]], prefix: str) -> Iterator[ConnectorStatement]:
    """Yield the statements of a connector's history, in its order.

    Args:
        values: Where each record is, and its value.
        prefix: ``topic.prefix``; records of other connectors in the topic are passed over.

    Raises:
        ConfigError: A record is something else.
    """
    for where, value in values:
        if value is None:
            continue
        try:
            record = json.loads(value)
            source, position = record["source"], record["position"]
            server, file, pos = source["server"], str(position["file"]), int(position["pos"])
            file_number(file)
            gtids, in_snapshot = position.get("gtids"), bool(position.get("snapshot"))
            changes = tuple(dict(change) for change in record.get("tableChanges") or ())
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                "this is not the schema history of a Debezium connector for MySQL",
                where=where,
                why=f"{type(error).__name__}: {error}",
                remedy="give the topic of schema.history.internal.kafka.topic (Debezium 1.9: "
                "database.history.kafka.topic), or the file of schema.history.internal.file.filename",
            ) from None
        if server == prefix and isinstance(ddl := record.get("ddl"), str):
            db = str(record.get("databaseName") or "")
            yield ConnectorStatement(db, ddl, file, pos, gtids, in_snapshot, where, () if ddl else changes)


def structures_at(
    cfg: ConnectorConfig, statements: Iterable[ConnectorStatement], offset: BinlogOffset, context: DdlContext
) -> SchemaState:
    """Return the structures at an offset, from a connector's history.

    Args:
        cfg: The connector's configuration.
        statements: From ``read_statements``.
        offset: The offset.
        context: Settings of the server's sessions; the history does not have those of each statement.

    Raises:
        DdlParseError: A statement about a captured table is not understood.
    """
    state = SchemaState()
    for statement in statements:
        if not statement.is_before(cfg, offset):
            continue
        try:
            state = statement.apply_to(cfg, state, context)
        except DdlParseError as error:
            if not cfg[F.SKIP_UNPARSEABLE_DDL]:
                raise DdlParseError(
                    error.what, where=f"{statement.where}: {statement.ddl[:200]}", why=error.why, remedy=error.remedy
                ) from error
    return state


def all_tables(
    cfg: ConnectorConfig, statements: Iterable[ConnectorStatement], context: DdlContext
) -> dict[TableId, None]:
    """Return the tables that a connector's history ever had: the topics of those that are gone have records, too.

    Args:
        cfg: The connector's configuration.
        statements: From ``read_statements``.
        context: Settings of the server's sessions.
    """
    state, found = SchemaState(), dict[TableId, None]()
    for statement in statements:
        with suppress(DdlParseError):
            after = statement.apply_to(cfg, state, context)
            found |= dict.fromkeys(after.tables.keys() - state.tables.keys())
            state = after
    return found


def different_tables(cfg: ConnectorConfig, stored: SchemaState, server: SchemaState) -> dict[TableId, str]:
    """Return the captured tables whose structures differ between a history and the server, and how.

    Args:
        cfg: The connector's configuration.
        stored: From the history.
        server: From the server.
    """
    found: dict[TableId, str] = {}
    for table, structure in server.tables.items():
        if not cfg.captures(table):
            continue
        known = stored.tables.get(table)
        if known is None:
            found[table] = "it is not in the connector's history"
            continue
        mine = [(c.name, c.type_name, c.length, c.scale, c.unsigned, c.charset, c.enum_values) for c in known.columns]
        others = [
            (c.name, c.type_name, c.length, c.scale, c.unsigned, c.charset, c.enum_values) for c in structure.columns
        ]
        if mine != others:
            names = {c[0] for c in mine} ^ {c[0] for c in others} or {
                a[0] for a, b in zip(mine, others, strict=False) if a != b
            }
            found[table] = f"columns {', '.join(sorted(names)[:10])}"
        elif known.key_columns() != structure.key_columns():
            found[table] = f"its key is {known.key_columns()} there and {structure.key_columns()} on the server"
    return found


def history_values(cfg: ConnectorConfig, definitions: TableDefinitions, offset: BinlogOffset) -> list[bytes]:
    """Return records that describe all structures as a connector's snapshot does, for one that goes on at an offset.

    Args:
        cfg: The connector's configuration.
        definitions: The server's statements, as of the offset.
        offset: The offset.

    Raises:
        DdlParseError: A statement cannot be parsed.
    """
    records = history_records(cfg, build_snapshot_schema(definitions), offset, 0)
    return [json.dumps(_record(json.loads(record.value or b""), offset)).encode() for record in records]


def _record(record: Mapping[str, Any], offset: BinlogOffset) -> dict[str, Any]:
    position = {"file": offset.file, "pos": offset.pos, "gtids": offset.gtids, "snapshot": True}
    return {
        "source": record["source"],
        "position": {name: value for name, value in position.items() if value is not None},
        "ts_ms": record["ts_ms"],
        "databaseName": record["databaseName"],
        "ddl": record["ddl"],
        "tableChanges": record["tableChanges"],
    }
