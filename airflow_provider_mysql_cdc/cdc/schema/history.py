"""The schema history: every statement with its position, and where its full descriptions are.

The schema history: every statement with its position, from which the structures at any earlier offset are rebuilt.

Records are JSON with the member names of Debezium's history topic (``source``, ``position``, ``ts_ms``,
``databaseName``, ``ddl``, ``tableChanges``). ``epoch`` and ``context`` are added, because the same statement has
different effects in different sessions. Source: SCH-01 to SCH-06.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SinkError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.schema.full_description import complete_descriptions, starts_complete_description
from airflow_provider_mysql_cdc.cdc.schema.history_owner import (
    begins_with_description,
    require_first_among_open,
    require_own_record,
    require_own_records,
)
from airflow_provider_mysql_cdc.cdc.schema.history_record import REBUILD_REMEDY, HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import HistoryCache, Replay, TopicEnd, replay
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_from_last, read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import HISTORY_RULE, require_settings
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, existing_topics, first_offsets, last_offsets


def covers_offset(records: Iterable[HistoryRecord], offset: BinlogOffset) -> bool:
    """Return whether a history has the structures at an offset within the drained range.

    A full description after the offset may have been written because the stream skipped something; the statements
    before it are then not known. One that a drain wrote after many statements continues the history before it.

    Args:
        records: The history in the order of its topic.
        offset: The offset.
    """
    has_description = covered = False
    for record in records:
        if record.starts_description:
            has_description = True
            if comparable(record.position, offset):
                is_before = compare_offsets(record.position, offset) <= 0
                covered = is_before or (covered and record.continues_history)
    return covered or not has_description


def require_history(cfg: ConnectorConfig) -> TopicInfo:
    """Check that the history topic exists and has its one partition, before a batch is planned on top of it.

    Returns:
        Id and partition count of the topic.

    Raises:
        SchemaError: The topic is missing, has more partitions (SCH-05), or its first records were deleted.
        SinkError: The topic would lose records with its settings (SCH-06).
    """
    return _require_history(cfg)[0]


def _require_history(cfg: ConnectorConfig) -> tuple[TopicInfo, bool]:
    """Check the history topic; return it, and whether earlier records were deleted (``history trim``)."""
    topic = cfg.history_topic
    admin = make_admin(cfg.kafka_settings("consumer"))
    info = existing_topics(admin, [topic]).get(topic)
    if info is None:
        raise SchemaError("the schema history topic does not exist", where=f"topic {topic}", remedy=REBUILD_REMEDY)
    if info.partitions != 1:
        raise _partition_count_error(topic, info.partitions)
    require_settings(admin, topic, HISTORY_RULE, verified=cfg[F.TOPIC_SETTINGS_VERIFIED])
    return info, _require_first_records(cfg, admin, info)


def _require_first_records(cfg: ConnectorConfig, admin: AdminClient, info: TopicInfo) -> bool:
    """Check that nothing is missing at the beginning; return whether records before a description were deleted."""
    topic = cfg.history_topic
    first = first_offsets(admin, topic, [0])[0]
    if first and not begins_with_description(cfg, first, info):
        raise SchemaError(
            "the first records of the schema history were deleted",
            where=f"topic {topic}, which now begins with offset {first}",
            why="the topic's retention was limited, or records were deleted by hand",
            remedy=f"{REBUILD_REMEDY}; before the first snapshot, set {F.HISTORY_KAFKA_TOPIC.name} to a new name "
            "instead",
        )
    return first > 0


def _partition_count_error(topic: str, partitions: int) -> SchemaError:
    return SchemaError(
        "the schema history has no single order of its records",
        where=f"topic {topic}",
        why=f"the topic has {partitions} partitions instead of 1",
        remedy=f"{REBUILD_REMEDY}; before the first snapshot, delete the topic instead: it is recreated",
    )


def history_end(cfg: ConnectorConfig, described: TopicInfo | None = None) -> TopicEnd:
    """Return the id of the current history topic, and where it ends.

    Args:
        cfg: The connector's configuration.
        described: The topic, if it was described a moment ago; None describes it.

    Raises:
        SinkError: Kafka cannot be reached.
    """
    topic, admin = cfg.history_topic, make_admin(cfg.kafka_settings("consumer"))
    info = described or existing_topics(admin, [topic]).get(topic)
    return TopicEnd(None, 0) if info is None else TopicEnd(info.id, last_offsets(admin, topic, [0])[0])


def unmoved_end(cfg: ConnectorConfig, cache: HistoryCache) -> TopicEnd | None:
    """Return where the history ends if a job has read it to there; None where the topic has to be described again.

    Args:
        cfg: The connector's configuration.
        cache: The records that the job has read.
    """
    if cache.end.id is None:
        return None
    try:
        offset = last_offsets(make_admin(cfg.kafka_settings("consumer")), cfg.history_topic, [0])[0]
    except SinkError:  # the description says what is wrong
        return None
    return cache.end if offset == cache.end.offset else None


def read_history(cfg: ConnectorConfig, first: int = 0, bases: Sequence[BinlogOffset] = ()) -> Iterator[HistoryRecord]:
    """Yield the committed records of the history topic in order.

    Args:
        cfg: The connector's configuration.
        first: Offset of the first record to read.
        bases: If these are given, and ``first`` is not, the records before the last full description that is at or
            before each of them are omitted: no replay to one of them, or to a later offset, depends on those. Such a
            description of the first of them must exist if records of the topic were deleted.

    Raises:
        SchemaError: The topic does not exist, has more than one partition (SCH-05), a record is damaged or another
            program's (TOPIC-08), or the records that describe ``bases`` were deleted.
        SinkError: Kafka cannot be read.
    """
    settings, topic = cfg.kafka_settings("consumer"), cfg.history_topic
    admin = make_admin(settings)
    info, is_trimmed = _require_history(cfg)
    if first or not bases:
        records = read_topic_committed(settings, topic, admin=admin, since={0: first}, topic_info=info)
    else:
        is_start = partial(starts_complete_description, bases=bases, prefix=cfg.topic_prefix)
        records = read_from_last(settings, topic, admin, info, is_start)
    is_first = is_trimmed and not first
    is_described = not (is_first and bases)
    for record in complete_descriptions(_own_record(cfg, each) for each in records):
        is_described = is_described or record.is_base_for(bases[0])
        if is_first and record.part is not None:  # what it continues is not in the topic
            yield replace(record, part=replace(record.part, records=0))
        else:
            yield record
        is_first = False
    if not is_described:
        raise _trimmed_error(cfg, bases[0])


def _trimmed_error(cfg: ConnectorConfig, offset: BinlogOffset) -> SchemaError:
    return SchemaError(
        "the schema history does not have the structures at this position any more",
        where=f"topic {cfg.history_topic}, {offset}",
        why="the records before its first full description were deleted (mysql-cdc history trim), and that "
        "description is of a later position or of another server",
        remedy=REBUILD_REMEDY,
    )


def read_history_records(cfg: ConnectorConfig) -> Iterator[tuple[int, HistoryRecord]]:
    """Yield all committed records of the history topic with their offsets.

    Args:
        cfg: The connector's configuration.

    Raises:
        SchemaError: See ``read_history``.
        SinkError: Kafka cannot be read.
    """
    settings, topic = cfg.kafka_settings("consumer"), cfg.history_topic
    for record in read_topic_committed(settings, topic, admin=make_admin(settings), topic_info=require_history(cfg)):
        yield record.offset, _own_record(cfg, record)


def _own_record(cfg: ConnectorConfig, record: TopicRecord) -> HistoryRecord:
    try:
        where = f"topic {cfg.history_topic}, offset {record.offset}"
        history_record = HistoryRecord.from_bytes(record.value or b"", where)
    except SchemaError:
        require_own_record(cfg, record)
        raise
    if history_record.prefix != cfg.topic_prefix:
        require_own_record(cfg, record)
    return history_record


def require_own_history(cfg: ConnectorConfig, *, sample: bool = False) -> None:
    """Check that the history topic, if it exists, has one partition, its first record, and only records of this stream.

    Args:
        cfg: The connector's configuration.
        sample: Whether to read only the beginning and the end of a long topic: before a batch, which reads all of it.

    Raises:
        SchemaError: It has more partitions (SCH-05), records of another connector or program (TOPIC-08), or its first
            records were deleted.
        StoredVersionError: A record is of another version.
        SinkError: Kafka cannot be read.
    """
    topic, admin = cfg.history_topic, make_admin(cfg.kafka_settings("consumer"))
    info = existing_topics(admin, [topic]).get(topic)
    if info is None:
        return
    recreated = str(cfg[F.SNAPSHOT_MODE]) == "recovery"
    require_own_records(cfg, admin, info, sample=sample)  # first: the other remedies would delete the topic of others
    if info.partitions != 1 and not recreated:
        raise _partition_count_error(topic, info.partitions)
    if not recreated:
        _require_first_records(cfg, admin, info)


def require_first_in_history(cfg: ConnectorConfig) -> None:
    """Check, while this stream's first records are in an open transaction, that no others stand before them.

    Args:
        cfg: The connector's configuration.

    Raises:
        SchemaError: The topic is another connector's or another program's (TOPIC-08).
        SinkError: Kafka cannot be read.
    """
    topic, admin = cfg.history_topic, make_admin(cfg.kafka_settings("consumer"))
    info = existing_topics(admin, [topic]).get(topic)
    if info is not None:
        require_own_records(cfg, admin, info, sample=True)
        require_first_among_open(cfg, admin, info)


def require_new_history(cfg: ConnectorConfig) -> None:
    """Check that a stream without any plan has no history: streams with one topic.prefix may differ in their ledger.

    Args:
        cfg: The connector's configuration.

    Raises:
        SchemaError: The topic has records.
        SinkError: Kafka cannot be read.
    """
    topic, settings = cfg.history_topic, cfg.kafka_settings("consumer")
    admin = make_admin(settings)
    info = existing_topics(admin, [topic]).get(topic)
    if info is not None and any(True for _ in read_topic_committed(settings, topic, admin=admin, topic_info=info)):
        raise SchemaError(
            f"a stream with topic.prefix={cfg.topic_prefix} exists already, and has another ledger",
            where=f"topic {topic}",
            why=f"it holds that stream's schema history, and {cfg.ledger_topic} holds no plan: a second stream would "
            "write each event once more, into the same topics",
            remedy="set ledger.topic to the name that the stream had before; or give this stream another topic.prefix. "
            "To start again, with all rows once more in the topics that exist, stop the other stream and set "
            f"{F.HISTORY_KAFKA_TOPIC.name} to a new name",
        )


def load_schema_state(
    cfg: ConnectorConfig,
    *,
    until: BinlogOffset,
    epoch: int,
    on_record: Callable[[HistoryRecord], None] = lambda record: None,
    since: Sequence[BinlogOffset] = (),
    cache: HistoryCache | None = None,
    end: TopicEnd | None = None,
) -> SchemaState:
    """Rebuild the structures as of an offset from the history topic (SCH-03).

    Args:
        cfg: The connector's configuration.
        until: The offset.
        epoch: The epoch that starts at it.
        on_record: Called with each record of the history that is read, also with those after the offset.
        since: Offsets after which ``on_record`` needs all statements.
        cache: The records that this job has read before; they are not read again, and ``on_record`` is not called for
            them.
        end: Where the history ends, if it is known; saves requests where there is a cache.

    Raises:
        SchemaError: See ``read_history`` and ``replay``; or the records that describe the offset were deleted.
        SinkError: Kafka cannot be read.
    """

    def records(first: int = 0) -> Iterator[HistoryRecord]:
        for record in read_history(cfg, first, (until, *since)):
            on_record(record)
            yield record

    skip_unparseable = cfg[F.SKIP_UNPARSEABLE_DDL]
    if cache is None:
        return replay(records(), until=until, epoch=epoch, skip_unparseable=skip_unparseable, captures=cfg.needs_schema)
    return cache.structures(end or history_end(cfg), records, Replay(until, epoch, skip_unparseable, cfg.needs_schema))


@dataclass(frozen=True, slots=True)
class DescriptionPlace:
    """Hold the first record of a full description.

    Args:
        offset: Its offset in the topic.
        record: The record.
    """

    offset: int
    record: HistoryRecord


def description_places(cfg: ConnectorConfig) -> Iterator[DescriptionPlace]:
    """Yield the complete descriptions in the order of the topic.

    Args:
        cfg: The connector's configuration.

    Raises:
        SchemaError: A record is damaged, or another program's (TOPIC-08).
        SinkError: Kafka cannot be read.
    """
    starts: dict[int, DescriptionPlace] = {}

    def records() -> Iterator[HistoryRecord]:
        for offset, record in read_history_records(cfg):
            if record.starts_description:
                starts[id(record)] = DescriptionPlace(offset, record)
            yield record

    for record in complete_descriptions(records()):
        if id(record) in starts:
            yield starts[id(record)]
