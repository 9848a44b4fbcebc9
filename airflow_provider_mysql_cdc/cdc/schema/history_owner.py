"""Check that the schema history topic holds this stream's records only.

A topic with records of others (Debezium's own history, another stream's) is neither appended to nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.records import describe_record, history_prefix
from airflow_provider_mysql_cdc.cdc.model.stored_record import require_version
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord, parse_history_json
from airflow_provider_mysql_cdc.cdc.sink.client_pool import ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import (
    HiddenByTransaction,
    TopicRecord,
    read_between,
    read_topic_committed,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, end_offsets

SAMPLE_RECORDS = 500
"""Offsets at the beginning and at the end of the topic that are read before a batch. The batch reads all records on
which its structures depend."""
_SAMPLE_TIMEOUT_S = 30.0


def require_own_records(cfg: ConnectorConfig, admin: AdminClient, info: TopicInfo, *, sample: bool) -> None:
    """Check that every record of the history topic is this stream's.

    Args:
        cfg: The connector's configuration.
        admin: From ``clients.make_admin``.
        info: The topic.
        sample: Whether to read only the beginning and the end of a long topic.

    Raises:
        SchemaError: A record is another connector's or another program's (TOPIC-08).
        StoredVersionError: A record is of another version.
        SinkError: Kafka cannot be read.
    """
    if sample:
        records = _sampled(cfg, admin, info)
    else:
        records = read_topic_committed(cfg.kafka_settings("consumer"), cfg.history_topic, admin=admin, topic_info=info)
    for record in records:
        require_own_record(cfg, record)


def require_first_among_open(cfg: ConnectorConfig, admin: AdminClient, info: TopicInfo) -> None:
    """Check that no open transaction of others has records before those of this stream's own open transaction.

    Of two streams that begin in one topic at the same moment, the one whose first record comes first goes on.

    Args:
        cfg: The connector's configuration.
        admin: From ``clients.make_admin``.
        info: The topic, which has one partition.

    Raises:
        SchemaError: Another connector or program is writing into the topic (TOPIC-08).
        SinkError: Kafka cannot be read.
    """
    topic, settings = cfg.history_topic, cfg.kafka_settings("consumer")
    stable_end = end_offsets(admin, topic, [0], stable=True)[0][1]
    bounds = {0: (stable_end, end_offsets(admin, topic, [0])[0][1])}
    try:
        records = read_between(settings, topic, bounds, timeout_s=_SAMPLE_TIMEOUT_S, committed=False, topic_id=info.id)
        first = next(iter(records), None)
    except HiddenByTransaction:  # Kafka does not answer in time; the next batch reads the whole topic
        return
    if first is not None:
        require_own_record(cfg, first)


def begins_with_description(cfg: ConnectorConfig, first: int, info: TopicInfo) -> bool:
    """Return whether the records that are still in a topic begin with a full description.

    Args:
        cfg: The connector's configuration.
        first: Offset of the first record that was not deleted.
        info: The topic.

    Raises:
        SinkError: Kafka cannot be read.
    """
    bounds, where = {0: (first, first + 1)}, f"topic {cfg.history_topic}, offset {first}"
    try:
        records = read_between(
            cfg.kafka_settings("consumer"), cfg.history_topic, bounds, timeout_s=_SAMPLE_TIMEOUT_S, topic_id=info.id
        )
        record = next(iter(records), None)
        return record is not None and HistoryRecord.from_bytes(record.value or b"", where).starts_description
    except (HiddenByTransaction, SchemaError):
        return False


def require_own_record(cfg: ConnectorConfig, record: TopicRecord) -> None:
    """Check that a record of the history topic is this stream's, and of this version; a damaged one counts as its own.

    Args:
        cfg: The connector's configuration.
        record: The record.

    Raises:
        SchemaError: It is another connector's or another program's.
        StoredVersionError: It is of another version.
    """
    where = f"topic {cfg.history_topic}, partition {record.partition}, offset {record.offset}"
    members = _members(record.value)
    prefix = None if members is None else history_prefix(members)
    if prefix == cfg.topic_prefix:
        require_version(members, where)
    if prefix in ("", cfg.topic_prefix):
        return
    own_topic = (
        f"give this stream a topic of its own: set {F.HISTORY_KAFKA_TOPIC.name} to a new name. If the stream has run "
        "already, then run mysql_cdc_snapshot once with snapshot.mode=recovery, which writes the structures into the "
        "new topic. This topic was not changed and will not be deleted"
    )
    if prefix is not None:
        raise SchemaError(
            f"the schema history belongs to topic.prefix={prefix}, not to {cfg.topic_prefix}",
            where=where,
            why=f"topic.prefix was changed, or two connectors use the same {F.HISTORY_KAFKA_TOPIC.name}",
            remedy=f"if topic.prefix was changed, set it back to {prefix}; otherwise {own_topic}",
        )
    raise SchemaError(
        "the schema history topic holds records that are not this stream's",
        where=where,
        why=f"it is {describe_record(record.key, record.value)}",
        remedy=own_topic,
    )


def _members(value: bytes | None) -> Mapping[str, Any] | None:
    try:
        data = parse_history_json(value or b"")
    except DamagedRecordError:
        return None
    return data if isinstance(data, Mapping) else None


def _sampled(cfg: ConnectorConfig, admin: AdminClient, info: TopicInfo) -> Iterator[TopicRecord]:
    """Yield records of the beginning and the end; records that an open transaction hides are read by the batch."""
    topic, settings = cfg.history_topic, cfg.kafka_settings("consumer")
    bounds = end_offsets(admin, topic, range(info.partitions), stable=True)
    heads = {p: (first, min(end, first + SAMPLE_RECORDS)) for p, (first, end) in bounds.items()}
    tails = {p: (max(heads[p][1], end - SAMPLE_RECORDS), end) for p, (_, end) in bounds.items()}
    with ConsumerCache() as cache:
        for part in (heads, tails):
            try:
                yield from read_between(
                    settings, topic, part, timeout_s=_SAMPLE_TIMEOUT_S, consumer_cache=cache, topic_id=info.id
                )
            except HiddenByTransaction:
                return
