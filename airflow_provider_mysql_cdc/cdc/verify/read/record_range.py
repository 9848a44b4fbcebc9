"""Read the records of a topic up to an offset that the stream has reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Message

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.message_lists import read_message_lists
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord, read_between

READ_TIMEOUT_S = 120.0
"""Seconds without a record after which reading fails."""


def read_records(cfg: ConnectorConfig, topic: str, bounds: Mapping[int, tuple[int, int]]) -> Iterator[TopicRecord]:
    """Yield committed records, in order within each partition.

    Args:
        cfg: The connector's configuration.
        topic: The topic.
        bounds: First offset and the offset after the last record, by partition; no open transaction is before that.

    Raises:
        SinkError: Kafka refuses, or gives nothing for ``READ_TIMEOUT_S``.
    """
    with _naming_silence(cfg, topic):
        yield from read_between(cfg.kafka_settings(), topic, bounds, timeout_s=READ_TIMEOUT_S)


def read_messages(cfg: ConnectorConfig, topic: str, partition: int, bounds: tuple[int, int]) -> Iterator[list[Message]]:
    """Yield committed records of a partition in order, as lists of the client's messages.

    Args:
        cfg: The connector's configuration.
        topic: The topic.
        partition: The partition.
        bounds: First offset and the offset after the last record; no open transaction is before that.

    Raises:
        RecordsDeleted: The first offset is not there any more.
        SinkError: Kafka refuses, or gives nothing for ``READ_TIMEOUT_S``.
    """
    with _naming_silence(cfg, topic):
        yield from read_message_lists(cfg.kafka_settings(), topic, partition, bounds, READ_TIMEOUT_S)


@contextmanager
def _naming_silence(cfg: ConnectorConfig, topic: str) -> Iterator[None]:
    try:
        yield
    except HiddenByTransaction as blocked:
        # No transaction hides what is before the last stable offset: the brokers have stopped answering.
        raise SinkConnectionError(
            "a topic cannot be read on",
            where=f"topic {topic} at {broker_addresses(cfg.kafka_settings())}",
            why=f"the brokers gave nothing for {READ_TIMEOUT_S:.0f} s; reading stopped at {blocked}",
            remedy="look at the brokers, then run the task again",
        ) from None
