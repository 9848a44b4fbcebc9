"""Read what a connector has stored in Kafka or in files: offset, schema history, how far it has read signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset, offset_in_file, stored_offset
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.record_owner import history_prefix
from airflow_provider_mysql_cdc.cdc.schema.history_record import parse_history_json
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
