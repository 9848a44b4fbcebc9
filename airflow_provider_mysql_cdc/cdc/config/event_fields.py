"""Properties of the events: values, keys, serialisation, topics, schema history."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import (
    BigIntUnsignedHandlingMode,
    BinaryHandlingMode,
    DecimalHandlingMode,
    EventContract,
    FailureHandlingMode,
    Operation,
    SourceStructVersion,
    TimePrecisionMode,
)
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field, Group, Lookup, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.signal_fields import signal_topics
from airflow_provider_mysql_cdc.cdc.config.sink_fields import DEAD_LETTER_TOPIC
from airflow_provider_mysql_cdc.cdc.config.source_fields import TOPIC_PREFIX

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
AVRO_CONVERTER = "io.confluent.connect.avro.AvroConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BINARY_CONVERTERS = (
    "org.apache.kafka.connect.converters.ByteArrayConverter",
    "io.debezium.converters.BinaryDataConverter",
)
PLAIN_CONVERTERS = (STRING_CONVERTER, *BINARY_CONVERTERS)
"""Converters of texts and bytes, which records are only behind transforms."""
_PREFIX_PLACEHOLDERS = ("${database.server.name}.", "${topic.prefix}.")


def _flag(
    name: str,
    default: bool,
    doc: str,
    group: Group,
    *refs: str,
    provider_specific: bool = False,
    pin_scope: PinScope = PinScope.EVENTS,
    set_by: SetBy = SetBy.AUTHOR,
) -> Field[bool]:
    return Field(
        name,
        parse_value.boolean,
        default,
        doc,
        group,
        provider_specific=provider_specific,
        refs=refs,
        pin_scope=pin_scope,
        set_by=set_by,
    )


DECIMAL_HANDLING_MODE: Field[DecimalHandlingMode] = Field(
    "decimal.handling.mode",
    parse_value.choice(DecimalHandlingMode),
    DecimalHandlingMode.PRECISE,
    "How DECIMAL and NUMERIC are represented.",
    Group.EVENTS,
    enum=DecimalHandlingMode.docs(),
    refs=("CFG-23",),
    set_by=SetBy.RUN,
)
BIGINT_UNSIGNED_HANDLING_MODE: Field[BigIntUnsignedHandlingMode] = Field(
    "bigint.unsigned.handling.mode",
    parse_value.choice(BigIntUnsignedHandlingMode),
    BigIntUnsignedHandlingMode.LONG,
    "How BIGINT UNSIGNED is represented.",
    Group.EVENTS,
    enum=BigIntUnsignedHandlingMode.docs(),
    refs=("CFG-24",),
    set_by=SetBy.RUN,
)
EVENT_CONTRACT: Field[EventContract] = Field(
    "event.contract",
    parse_value.choice(EventContract),
    EventContract.CURRENT,
    "Version of the event format, for consumers that were written for older Debezium. With `1.9` a column that a "
    "statement of the stream declares as REAL becomes a 4-byte float, though MySQL stores a double: digits are lost, "
    "and a value beyond the range fails (`event.processing.failure.handling.mode`). A snapshot reads the structure "
    "from SHOW CREATE TABLE, which says double, so there nothing is lost.",
    Group.EVENTS,
    provider_specific=True,
    enum=EventContract.docs(),
    refs=("TYPE-11", "TYPE-12"),
    set_by=SetBy.RUN,
)
SOURCE_STRUCT_VERSION: Field[SourceStructVersion] = Field(
    "source.struct.version",
    parse_value.choice(SourceStructVersion),
    SourceStructVersion.V2,
    "Version of the `source` block of events. `v1` goes with `event.contract=1.9` only.",
    Group.EVENTS,
    enum=SourceStructVersion.docs(),
    refs=("EVT-39", "SCH-31"),
    set_by=SetBy.RUN,
)
BINARY_HANDLING_MODE: Field[BinaryHandlingMode] = Field(
    "binary.handling.mode",
    parse_value.choice(BinaryHandlingMode),
    BinaryHandlingMode.BYTES,
    "How binary columns are represented.",
    Group.EVENTS,
    enum=BinaryHandlingMode.docs(),
    refs=("CFG-40",),
    set_by=SetBy.RUN,
)
TIME_PRECISION_MODE: Field[TimePrecisionMode] = Field(
    "time.precision.mode",
    parse_value.choice(TimePrecisionMode),
    TimePrecisionMode.ADAPTIVE_TIME_MICROSECONDS,
    "How temporal values other than TIMESTAMP are represented.",
    Group.EVENTS,
    enum=TimePrecisionMode.docs(),
    refused={
        "structured": "choose another mode",
    },
    refs=("CFG-22",),
    set_by=SetBy.RUN,
)
ENABLE_TIME_ADJUSTER = _flag(
    "enable.time.adjuster",
    True,
    "Take the years 1 to 99 of DATE and DATETIME as 1970 to 2069; `false` keeps them as the server stored them.",
    Group.EVENTS,
    "STRM-39",
    "TYPE-70",
    "CFG-63",
    set_by=SetBy.RUN,
)
TOMBSTONES_ON_DELETE = _flag(
    "tombstones.on.delete",
    True,
    "Follow each delete event by a record with a null value.",
    Group.EVENTS,
    "CFG-38",
    set_by=SetBy.RUN,
)
SKIPPED_OPERATIONS: Field[frozenset[Operation]] = Field(
    "skipped.operations",
    parse_value.operations,
    frozenset({Operation.TRUNCATE}),
    "Kinds of change that are not emitted while streaming: a list of c, u, d, t, or none.",
    Group.EVENTS,
    refs=("STRM-15", "CFG-66"),
    set_by=SetBy.RUN,
)
INCLUDE_QUERY = _flag(
    "include.query",
    False,
    "Put the original statement into `source.query`; the server needs binlog_rows_query_log_events=ON. It can show "
    "tables and columns that are left out otherwise.",
    Group.EVENTS,
    "STRM-17",
    "STRM-18",
    "CFG-27",
)
PROVIDE_TRANSACTION_METADATA = _flag(
    "provide.transaction.metadata",
    False,
    "Emit transaction boundaries and enrich events with their transaction.",
    Group.EVENTS,
    "CFG-71",
    set_by=SetBy.RUN,
)
EXTENDED_HEADERS_ENABLED = _flag(
    "extended.headers.enabled",
    True,
    "Give each event the headers `__debezium.context.*`.",
    Group.EVENTS,
    set_by=SetBy.RUN,
)
CDC_ID_HEADER = _flag(
    "cdc.id.header",
    False,
    "Give each event a header `cdc-id` with its identity: transaction, ordinal of the event and row, and which of its "
    "records it is (an update that changes the key has two).",
    Group.EVENTS,
    provider_specific=True,
    set_by=SetBy.RUN,
)
HEARTBEAT_INTERVAL_MS: Field[int] = Field(
    "heartbeat.interval.ms",
    parse_value.integer(0, parse_value.INT32_MAX),
    0,
    "Milliseconds between heartbeat records; 0 for none. The first batch of a job writes one, and a job that waits for "
    "events (`run_for`) writes them too.",
    Group.EVENTS,
    refs=("CFG-56",),
    set_by=SetBy.RUN,
)
INCONSISTENT_SCHEMA_HANDLING_MODE: Field[FailureHandlingMode] = Field(
    "inconsistent.schema.handling.mode",
    parse_value.choice(FailureHandlingMode),
    FailureHandlingMode.FAIL,
    "Reaction to events of tables whose structure is not known.",
    Group.EVENTS,
    enum=FailureHandlingMode.docs(),
    refs=("CFG-29", "STRM-24", "FAULT-14"),
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
HEARTBEAT_ACTION_QUERY: Field[str] = Field(
    "heartbeat.action.query",
    str.strip,
    "",
    "Statement that is run on the source after a batch and while a job waits for events, at most once in "
    "`heartbeat.interval.ms`; the account needs the privilege for it.",
    Group.EVENTS,
    refs=("CFG-58", "STRM-30"),
    pin_scope=PinScope.NOTHING,
)


def _converter_class(value: str) -> str:
    name = value.strip()
    if name.startswith("io.apicurio."):
        raise ValueError(
            f"not supported: use {AVRO_CONVERTER} with the registry's Confluent-compatible address (/apis/ccompat/v7)"
        )
    if name not in (JSON_CONVERTER, AVRO_CONVERTER, *PLAIN_CONVERTERS):
        raise ValueError(f"not supported yet: this release writes JSON ({JSON_CONVERTER}) and Avro ({AVRO_CONVERTER})")
    return name


_CONVERTERS = (
    f"`{JSON_CONVERTER}` or `{AVRO_CONVERTER}`, with the wire format and the schemas of Confluent's (docs/avro.md); "
    f"behind transforms also {', '.join(f'`{name}`' for name in PLAIN_CONVERTERS)}."
)
KEY_CONVERTER: Field[str] = Field(
    "key.converter",
    _converter_class,
    JSON_CONVERTER,
    f"Serialisation of record keys: {_CONVERTERS}",
    Group.SERIALIZATION,
    refs=("CFG-106",),
)
VALUE_CONVERTER: Field[str] = Field(
    "value.converter",
    _converter_class,
    JSON_CONVERTER,
    f"Serialisation of record values: {_CONVERTERS}",
    Group.SERIALIZATION,
    refs=("CFG-107",),
)
KEY_SCHEMAS_ENABLE = _flag(
    "key.converter.schemas.enable",
    True,
    "Write each key with its schema (JSON only).",
    Group.SERIALIZATION,
    set_by=SetBy.RUN,
)
VALUE_SCHEMAS_ENABLE = _flag(
    "value.converter.schemas.enable",
    True,
    "Write each value with its schema (JSON only).",
    Group.SERIALIZATION,
    set_by=SetBy.RUN,
)
VALUE_REPLACE_NULL_WITH_DEFAULT = _flag(
    "value.converter.replace.null.with.default",
    False,
    "Write the column's default in place of NULL (JSON only). Kafka Connect's default is `true`; here it is `false`, "
    "because a value must not change on its way.",
    Group.SERIALIZATION,
    set_by=SetBy.RUN,
)


def _nonzero(number: int) -> None:
    if number == 0:
        raise ValueError("must be at least 1, or -1 for the broker's default")


TOPIC_CREATION_PARTITIONS: Field[int] = Field(
    "topic.creation.default.partitions",
    parse_value.integer(1, 100_000),
    1,
    "Partitions of topics this provider creates. (-1, the broker's default, is not accepted: the plan of a batch fixes "
    "the partition count beforehand.)",
    Group.TOPICS,
)
TOPIC_CREATION_REPLICATION_FACTOR: Field[int] = Field(
    "topic.creation.default.replication.factor",
    parse_value.integer(-1, 32_767),
    -1,
    "Replicas of topics this provider creates; -1 takes the broker's default.",
    Group.TOPICS,
    validators=(_nonzero,),
    pin_scope=PinScope.NOTHING,
)
TOPIC_CREATION_GROUPS: Field[tuple[str, ...]] = Field(
    "topic.creation.groups",
    lambda value: tuple(dict.fromkeys(parse_value.split_list(value))),
    (),
    "Groups of topics that are created otherwise than `topic.creation.default.*` says, each with "
    "`topic.creation.NAME.include`, `.exclude`, `.partitions`, `.replication.factor` and settings of Kafka. As in "
    "Kafka Connect the first group that matches counts. It is about topics of tables; the others have one partition.",
    Group.TOPICS,
)
TOPIC_SETTINGS_VERIFIED: Field[bool] = Field(
    "topic.settings.verified",
    parse_value.boolean,
    False,
    "Confirms that a person has checked the settings of the ledger (`cleanup.policy=compact`) and of the schema "
    "history "
    "(`cleanup.policy=delete`, `retention.ms=-1`, `retention.bytes=-1`), for an account that may not read them "
    "(DescribeConfigs). Settings that can be read are checked in any case.",
    Group.TOPICS,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    refs=("SCH-06",),
    set_by=SetBy.RUN,
)
TOPIC_HEARTBEAT_PREFIX: Field[str] = Field(
    "topic.heartbeat.prefix",
    parse_value.topic_part,
    "__debezium-heartbeat",
    "Prefix of the heartbeat topic; a dot and `topic.prefix` follow.",
    Group.TOPICS,
    aliases=("heartbeat.topics.prefix",),
    refs=("CFG-57",),
)


def _legacy_transaction_topic(value: str) -> str:
    for placeholder in _PREFIX_PLACEHOLDERS:
        if value.startswith(placeholder):
            return value.removeprefix(placeholder)
    raise ValueError(
        "only `${database.server.name}.` followed by a name is supported; use topic.transaction, which is the part "
        "after topic.prefix"
    )


TOPIC_TRANSACTION: Field[str] = Field(
    "topic.transaction",
    parse_value.topic_part,
    "transaction",
    "Name of the transaction topic, after `topic.prefix` and a dot.",
    Group.TOPICS,
    aliases=(Alias("transaction.topic", _legacy_transaction_topic),),
    refs=("CFG-72",),
)
LEDGER_TOPIC: Field[str] = Field(
    "ledger.topic",
    parse_value.topic_part,
    "",
    "Compacted topic that proves how far each writer got.",
    Group.TOPICS,
    derive=lambda get: f"ledger.{get[TOPIC_PREFIX]}",
    derived_from="`ledger.` and `topic.prefix`",
    provider_specific=True,
)

HISTORY_KAFKA_TOPIC: Field[str] = Field(
    "schema.history.internal.kafka.topic",
    parse_value.topic_part,
    "",
    "Topic of the schema history.",
    Group.HISTORY,
    derive=lambda get: f"schemahistory.{get[TOPIC_PREFIX]}",
    derived_from="`schemahistory.` and `topic.prefix`",
    refs=("CFG-74",),
)
SKIP_UNPARSEABLE_DDL = _flag(
    "schema.history.internal.skip.unparseable.ddl",
    False,
    "Pass over a statement that may touch a captured table and cannot be understood, instead of stopping.",
    Group.HISTORY,
    "CFG-79",
    "FAULT-15",
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
INCLUDE_SCHEMA_CHANGES = _flag(
    "include.schema.changes",
    True,
    "Publish schema changes to the topic named `topic.prefix`.",
    Group.HISTORY,
    "CFG-25",
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
STORE_ONLY_CAPTURED_TABLES_DDL: Field[bool] = Field(
    "schema.history.internal.store.only.captured.tables.ddl",
    parse_value.boolean,
    False,
    "Leave tables that are not captured out of the schema history and the schema change topic; when such a table is "
    "captured later, renamed to a captured name or copied with `CREATE TABLE ... LIKE`, its structure is not known.",
    Group.HISTORY,
    pin_scope=PinScope.NOTHING,
    aliases=("schema.history.internal.store.only.monitored.tables.ddl",),
    refs=("SCH-10", "CFG-81"),
    set_by=SetBy.RUN,
)
STORE_ONLY_CAPTURED_DATABASES_DDL = _flag(
    "schema.history.internal.store.only.captured.databases.ddl",
    False,
    "The same for tables of databases that are not captured; advisable where they are many, because every batch begins "
    "with the whole history.",
    Group.HISTORY,
    "SCH-10",
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
HISTORY_DESCRIPTION_STATEMENTS: Field[int] = Field(
    "schema.history.description.statements",
    parse_value.integer(0, parse_value.INT32_MAX),
    250,
    "After this many statements, a drain writes a full description of all structures into the schema history, so that "
    "the next start reads only the statements after it; 0 for never. Where the structures have more than ten times as "
    "many tables, it waits for a tenth as many statements as there are tables.",
    Group.HISTORY,
    provider_specific=True,
    pin_scope=PinScope.NOTHING,
    set_by=SetBy.RUN,
)
INCLUDE_SCHEMA_COMMENTS = _flag(
    "include.schema.comments",
    False,
    "Keep the comments of tables and columns.",
    Group.HISTORY,
    "CFG-26",
    set_by=SetBy.RUN,
)


def source_struct_problem(get: Lookup) -> str | None:
    """Return why ``source.struct.version`` does not go with ``event.contract``, or None."""
    if get[SOURCE_STRUCT_VERSION] is SourceStructVersion.V2 or get[EVENT_CONTRACT] is EventContract.OLD:
        return None
    return f"does not go with {EVENT_CONTRACT.name}={get[EVENT_CONTRACT]}: Debezium 2 removed this source block"


def topics_problem(get: Lookup) -> str | None:
    """Return which of the topics with a fixed name coincide, or None."""
    names = {
        "ledger.topic": get[LEDGER_TOPIC],
        "schema.history.internal.kafka.topic": get[HISTORY_KAFKA_TOPIC],
        "the schema change topic (topic.prefix)": get[TOPIC_PREFIX],
    }
    if dead_letter_topic := get[DEAD_LETTER_TOPIC]:
        names["errors.deadletterqueue.topic.name"] = dead_letter_topic
    if get[PROVIDE_TRANSACTION_METADATA]:
        names["the transaction topic (topic.transaction)"] = f"{get[TOPIC_PREFIX]}.{get[TOPIC_TRANSACTION]}"
    names |= signal_topics(get)
    for what, name in names.items():
        for other, its in names.items():
            if what < other and name == its:
                return f"{what} and {other} are the same topic {name!r}"
    return None
