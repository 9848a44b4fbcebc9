"""Properties of signals, of incremental snapshots, and of the notifications that tell of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import NewTablesMode, UnloggedChangesMode, WatermarkStrategy
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, Lookup, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.sink_fields import KAFKA_BOOTSTRAP_SERVERS, bootstrap_servers
from airflow_provider_mysql_cdc.cdc.config.source_fields import TOPIC_PREFIX
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_NAME_PART = r'(?:"((?:[^"]|"")+)"|([^".,\s]+))'
_TABLE_NAME = re.compile(rf"{_NAME_PART}\.{_NAME_PART}")


def _table_id(value: str) -> TableId | None:
    if not value.strip():
        return None
    match = _TABLE_NAME.fullmatch(value.strip())
    if match is None:
        raise ValueError('must name one table as database.table; put a part that holds a dot or blank into "quotes"')
    quoted_db, db, quoted_table, table = match.groups()
    return TableId(*((q.replace('""', '"') if q else plain) for q, plain in ((quoted_db, db), (quoted_table, table))))


def _channels(accepted: tuple[str, ...], unsupported: Mapping[str, str]) -> Callable[[str], frozenset[str]]:
    def read(value: str) -> frozenset[str]:
        names = [n.strip().lower() for n in value.split(",") if n.strip()]
        for name in names:
            if name in unsupported:
                others = ",".join(n for n in names if n in accepted)
                instead = f"write {others}" if others else "leave the property out"
                raise ValueError(f"the channel {name} is not supported: {unsupported[name]}; {instead}")
            if name not in accepted:
                raise ValueError(f"must be a list of {', '.join(accepted)}; {name!r} is none")
        return frozenset(names)

    return read


_SIGNAL_CHANNELS = ("source", "kafka", "airflow")
_UNSUPPORTED_CHANNELS = {
    "jmx": "there are no JMX beans here; send signals with MySqlCdcSignalOperator",
    "file": "tasks run on whatever machine there is; send signals with MySqlCdcSignalOperator",
    "in-process": "there is no embedded engine; send signals with MySqlCdcSignalOperator",
}

SIGNAL_DATA_COLLECTION: Field[TableId | None] = Field(
    "signal.data.collection",
    _table_id,
    None,
    "Signal table, as database.table: rows inserted into it are signals, and the watermarks of incremental snapshots "
    "are written into it. Its first three columns are id, type and data, whatever their names. It need not be "
    "captured; then it has no events, but its structure is in the schema history. Put a part of the name that "
    "contains a dot into double quotes.",
    Group.SIGNALS,
    refs=("CFG-67", "INC-33"),
)
SIGNAL_DATA_COLLECTION_CREATE: Field[bool] = Field(
    "signal.data.collection.create",
    parse_value.boolean,
    False,
    "Create the signal table when it is missing; the account needs the privilege CREATE for that.",
    Group.SIGNALS,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
SIGNAL_ENABLED_CHANNELS: Field[frozenset[str]] = Field(
    "signal.enabled.channels",
    _channels(_SIGNAL_CHANNELS, _UNSUPPORTED_CHANNELS),
    frozenset({"source"}),
    "Channels that signals are read from: `source` (rows inserted into `signal.data.collection`), `kafka` "
    "(`signal.kafka.topic`). Signals from Airflow are always processed. Debezium's channels `jmx`, `file` and "
    "`in-process` are refused.",
    Group.SIGNALS,  # rows of the signal table may tell structures (schema-changes), so the channel decides about events
)
SIGNAL_TRUSTED_CHANNELS: Field[frozenset[str]] = Field(
    "signal.trusted.channels",
    _channels(_SIGNAL_CHANNELS, _UNSUPPORTED_CHANNELS),
    frozenset({"source", "airflow"}),
    "Channels whose signals may hold SQL (`additional-conditions`, `surrogate-key`), structures of tables "
    "(`schema-changes`) or a place in the binlog (`set-binlog-position`). SQL runs with the rights of the account. "
    "`source` and `airflow` are always among them: who may write there has such rights. Name `kafka` when that holds "
    "for everybody who may write into `signal.kafka.topic`.",
    Group.SIGNALS,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
)
SIGNAL_KAFKA_TOPIC: Field[str] = Field(
    "signal.kafka.topic",
    parse_value.topic_part,
    "",
    "Topic of signals; all its partitions are read. A signal's key is `topic.prefix`, its value a JSON object with "
    "`type` and `data`, and perhaps `id`.",
    Group.SIGNALS,
    derive=lambda get: f"{get[TOPIC_PREFIX]}-signal",
    derived_from="`topic.prefix` and `-signal`",
    refs=("CFG-96", "INC-40"),
    pin_scope=PinScope.NOTHING,
)
SIGNAL_KAFKA_BOOTSTRAP_SERVERS: Field[str] = Field(
    "signal.kafka.bootstrap.servers",
    bootstrap_servers,
    "",
    "Kafka cluster of the signal topic, as a list of host:port.",
    Group.SIGNALS,
    derive=lambda get: get[KAFKA_BOOTSTRAP_SERVERS],
    derived_from="`kafka.bootstrap.servers`",
    refs=("CFG-97", "INC-44"),
    pin_scope=PinScope.NOTHING,
)
SIGNAL_KAFKA_GROUP_ID: Field[str] = Field(
    "signal.kafka.groupId",
    parse_value.as_text,
    "kafka-signal",
    "Group id that the consumer of signals names to the brokers. The place in the topic is kept in `ledger.topic`; "
    "nothing is stored under the group.",
    Group.SIGNALS,
    pin_scope=PinScope.NOTHING,
)
SIGNAL_KAFKA_POLL_TIMEOUT_MS: Field[int] = Field(
    "signal.kafka.poll.timeout.ms",
    parse_value.integer(0, parse_value.INT32_MAX),
    100,
    "Longest wait of one poll for signals, in milliseconds. Records that are in the topic when a poll begins are "
    "always "
    "read.",
    Group.SIGNALS,
    refs=("CFG-98", "INC-44"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
READ_ONLY: Field[bool] = Field(
    "read.only",
    parse_value.boolean,
    False,
    "Take the watermarks of incremental snapshots from the server's executed GTID set in place of rows in the signal "
    "table: nothing is written to the source. GTIDs must be on; a multi-threaded replica must keep the commit order.",
    Group.SIGNALS,
    refs=("CFG-70", "INC-36"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
INCREMENTAL_SNAPSHOT_CHUNK_SIZE: Field[int] = Field(
    "incremental.snapshot.chunk.size",
    parse_value.integer(1, parse_value.INT32_MAX),
    1024,
    "Rows of a chunk of an incremental snapshot: with more there are fewer queries, larger Kafka transactions and more "
    "memory is needed. A task reads 16 chunks in one go and commits them together.",
    Group.SIGNALS,
    refs=("CFG-69", "INC-11", "INC-12"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
INCREMENTAL_SNAPSHOT_ALLOW_SCHEMA_CHANGES: Field[bool] = Field(
    "incremental.snapshot.allow.schema.changes",
    parse_value.boolean,
    False,
    "Both values mean what `true` means in Debezium, which without it may give rows of a wrong structure: a part of a "
    "table that was changed meanwhile is always read again, and a table whose key was changed is read from its "
    "beginning. A statement that changes a table waits for the end of a round that reads it.",
    Group.SIGNALS,
    refs=("CFG-68", "INC-35"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
INCREMENTAL_SNAPSHOT_WATERMARKING_STRATEGY: Field[WatermarkStrategy] = Field(
    "incremental.snapshot.watermarking.strategy",
    parse_value.choice(WatermarkStrategy),
    WatermarkStrategy.INSERT_INSERT,
    "How the high watermark of a window is written into the signal table.",
    Group.SIGNALS,
    enum=WatermarkStrategy.docs(),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
SNAPSHOT_AFTER_UNLOGGED_CHANGES: Field[UnloggedChangesMode] = Field(
    "snapshot.after.unlogged.changes",
    parse_value.choice(UnloggedChangesMode),
    UnloggedChangesMode.WARN,
    "What happens after a statement that adds, removes or fills rows without events in the binlog. Such are EXCHANGE "
    "PARTITION, IMPORT TABLESPACE, DROP or TRUNCATE of a partition or table, a rename to the name of a captured table, "
    "or an ADD COLUMN whose values the server computes. The snapshot needs what every incremental snapshot needs (a "
    "key, and GTIDs or `signal.data.collection`), and publishes no deletes of rows that are gone.",
    Group.SIGNALS,
    enum=UnloggedChangesMode.docs(),
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
SNAPSHOT_NEW_TABLES: Field[NewTablesMode] = Field(
    "snapshot.new.tables",
    parse_value.choice(NewTablesMode, {"parallel": "incremental"}),
    NewTablesMode.OFF,
    "What happens if a table with older rows joins a running stream: by another list of captured tables, or by a "
    "rename to a captured name. A table that is created meanwhile has no rows without an event. The snapshot needs "
    "what every incremental snapshot needs.",
    Group.SIGNALS,
    enum=NewTablesMode.docs(),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
NOTIFICATION_ENABLED_CHANNELS: Field[frozenset[str]] = Field(
    "notification.enabled.channels",
    _channels(("sink", "log"), {"jmx": "there are no JMX beans here"}),
    frozenset(),
    "Where notifications of snapshots go: `sink` (`notification.sink.topic.name`), `log` (the log of the run).",
    Group.SIGNALS,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
NOTIFICATION_SINK_TOPIC_NAME: Field[str] = Field(
    "notification.sink.topic.name",
    lambda value: parse_value.topic_part(value) if value.strip() else "",
    "",
    "Topic of notifications, in Debezium's form; required where `notification.enabled.channels` has `sink`.",
    Group.SIGNALS,
    pin_scope=PinScope.NOTHING,
)


def notification_topic(get: Lookup) -> str:
    """Return the topic of notifications, before the transforms; empty when none are written."""
    return get[NOTIFICATION_SINK_TOPIC_NAME] if "sink" in get[NOTIFICATION_ENABLED_CHANNELS] else ""


def signal_topics(get: Lookup) -> dict[str, str]:
    """Return the topics of signals and notifications in the cluster of the events, by the property that names them."""
    names = {NOTIFICATION_SINK_TOPIC_NAME.name: notification_topic(get)}
    if "kafka" in get[SIGNAL_ENABLED_CHANNELS] and get[SIGNAL_KAFKA_BOOTSTRAP_SERVERS] == get[KAFKA_BOOTSTRAP_SERVERS]:
        names[SIGNAL_KAFKA_TOPIC.name] = get[SIGNAL_KAFKA_TOPIC]
    return {what: name for what, name in names.items() if name}
