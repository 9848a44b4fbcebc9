"""From the configuration to the parts: the only place that knows both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.column_rules import BooleanConverter
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.dispatch_rules import rule_for
from airflow_provider_mysql_cdc.cdc.config.field import Lookup
from airflow_provider_mysql_cdc.cdc.convert.custom_converters import custom_column
from airflow_provider_mysql_cdc.cdc.convert.treatment import treatments
from airflow_provider_mysql_cdc.cdc.convert.type_names import type_expression
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.emit import envelope, topic_names
from airflow_provider_mysql_cdc.cdc.emit.headers import Header, context_headers
from airflow_provider_mysql_cdc.cdc.emit.routed_keys import routed_key
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock, source_block
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.custom_column import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.routing import Destination
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec
from airflow_provider_mysql_cdc.cdc.sink.writer import SHORT_MS, TransactionalWriter
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import row_options
from airflow_provider_mysql_cdc.cdc.ticdc.tidb_types import TicdcModes


def decoder_options(cfg: ConnectorConfig) -> DecoderOptions:
    """Return the settings of all tables' decoders; ``table_options`` adds those of one table.

    Args:
        cfg: The connector's configuration.
    """
    return DecoderOptions(
        contract=str(cfg[F.EVENT_CONTRACT]),
        source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]),
        transaction=cfg[F.PROVIDE_TRANSACTION_METADATA],
        prefix=cfg[F.TOPIC_PREFIX],
        decimal_mode=str(cfg[F.DECIMAL_HANDLING_MODE]),
        bigint_unsigned_mode=str(cfg[F.BIGINT_UNSIGNED_HANDLING_MODE]),
        binary_mode=str(cfg[F.BINARY_HANDLING_MODE]),
        time_mode=str(cfg[F.TIME_PRECISION_MODE]),
        time_adjuster=cfg[F.ENABLE_TIME_ADJUSTER],
        tombstones=cfg[F.TOMBSTONES_ON_DELETE],
        skipped_ops=frozenset(str(o) for o in cfg[F.SKIPPED_OPERATIONS]),
        replace_null_with_default=_replaces_null(cfg),
        field_names=str(cfg[F.FIELD_NAME_ADJUSTMENT_MODE]),
        schema_names=str(cfg[F.SCHEMA_NAME_ADJUSTMENT_MODE]),
        unavailable=cfg[F.UNAVAILABLE_VALUE_PLACEHOLDER],
        unavailable_as_null=cfg[F.UNAVAILABLE_VALUE_AS_NULL],
        read_op="c" if cfg.families.transforms.read_is_create else "r",
    )


def _replaces_null(cfg: ConnectorConfig) -> bool:
    """Return whether NULL is written as the column's default; each converter has its own property for it."""
    keep = F.VALUE_AVRO.keep_null
    return not cfg[keep] if keep is not None and cfg.avro("value") else cfg[F.VALUE_REPLACE_NULL_WITH_DEFAULT]


def table_options(cfg: ConnectorConfig, table: Table, of_all: DecoderOptions | None = None) -> DecoderOptions:
    """Return what the decoder of a table version is compiled for.

    Args:
        cfg: The connector's configuration.
        table: The table.
        of_all: From ``decoder_options``, where somebody has them already.

    Raises:
        SchemaError: A column cannot be treated as the configuration says.
        ConfigError: A converter of one's own cannot be used for a column.
    """
    options = of_all or decoder_options(cfg)
    if not treats_tables(cfg):
        return options
    to = table_destination(cfg, table.id)
    names = tuple(c.name for c in table.columns)
    narrowed = cfg[F.COLUMN_INCLUDE_LIST] or cfg[F.COLUMN_EXCLUDE_LIST]
    included = tuple(n for n in names if cfg.includes_column(table.id, n)) if narrowed else names
    conversions = tuple((c.name, custom) for c in table.columns if (custom := _conversion(cfg, table, c)))
    converted = {name for name, _ in conversions}
    booleans = frozenset(
        c.name
        for c in (table.columns if cfg.families.columns.converters else ())
        if c.name not in converted and cfg.is_boolean(table.id, c.name, type_expression(c), c.length)
    )
    options = replace(
        options,
        key_columns=cfg[F.MESSAGE_KEY_COLUMNS].select(table.id, names) or None,
        included=None if included == names else included,
        booleans=booleans,
        schema_titles=tuple(to.schema_names().items()),
        key_fields=to.key_fields,
        conversions=conversions,
    )
    if cfg.has_column_rules:
        found = treatments(
            table,
            lambda c: cfg.column_rules(table.id, c.name, type_expression(c)) if c.name in included else (),
            options,
            comments=cfg[F.INCLUDE_SCHEMA_COMMENTS],
        )
        options = replace(options, treatments=found)
    return row_options(options, ticdc_modes(cfg)) if cfg.ticdc else options


def treats_tables(cfg: ConnectorConfig) -> bool:
    """Return whether anything is said of single tables or columns; otherwise all have the same options.

    Args:
        cfg: The connector's configuration.
    """
    of_columns = cfg[F.MESSAGE_KEY_COLUMNS] or cfg[F.COLUMN_INCLUDE_LIST] or cfg[F.COLUMN_EXCLUDE_LIST]
    treated = of_columns or cfg.families.columns.converters or cfg.has_column_rules
    return bool(treated or cfg.families.transforms.routers or cfg.ticdc)


def ticdc_modes(cfg: ConnectorConfig) -> TicdcModes:
    """Return how values of TiCDC's protocol are written."""
    return TicdcModes(
        decimal=str(cfg[F.TICDC_DECIMAL]),
        bigint_unsigned=str(cfg[F.TICDC_BIGINT_UNSIGNED]),
        extension=cfg[F.TIDB_EXTENSION],
        namespace=cfg[F.TICDC_NAMESPACE],
    )


def _conversion(cfg: ConnectorConfig, table: Table, column: Column) -> CustomColumn | None:
    """Return what the first converter that takes a column says of it; None when that is the boolean one, or none is."""
    for converter in cfg.families.columns.converters:
        if isinstance(converter, BooleanConverter):
            if converter.selects(f"{table.id}.{column.name}", type_expression(column), column.length):
                return None
        elif (found := custom_column(converter, table, column)) is not None:
            return found
    return None


def envelope_text(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> EnvelopeText:
    """Return the constant schema text around a table version's records; what becomes Avro has none around it.

    Args:
        cfg: The connector's configuration.
        table: The table.
        options: From ``table_options``.
    """
    key = cfg[F.KEY_SCHEMAS_ENABLE] and not cfg.avro("key")
    return _envelope_text(cfg, table, options, key, cfg[F.VALUE_SCHEMAS_ENABLE] and not cfg.avro("value"))


def schema_text(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> EnvelopeText:
    """Return the schemas of a table version's records, wherever they are to stand.

    Args:
        cfg: The connector's configuration.
        table: The table.
        options: From ``table_options``.
    """
    return _envelope_text(cfg, table, options, cfg[F.KEY_SCHEMAS_ENABLE], cfg[F.VALUE_SCHEMAS_ENABLE])


def _envelope_text(cfg: ConnectorConfig, table: Table, options: DecoderOptions, key: bool, value: bool) -> EnvelopeText:
    return envelope.envelope_text(
        table,
        options,
        key=key,
        value=value,
        comments=cfg[F.INCLUDE_SCHEMA_COMMENTS],
        transaction=cfg[F.PROVIDE_TRANSACTION_METADATA],
    )


def table_source(cfg: ConnectorConfig, table: TableId) -> SourceBlock:
    """Return the writer of a table's source blocks."""
    return source_block(
        table,
        prefix=cfg[F.TOPIC_PREFIX],
        version=str(cfg[F.EVENT_CONTRACT]),
        source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]),
        include_query=cfg[F.INCLUDE_QUERY],
        typed=cfg[F.VALUE_SCHEMAS_ENABLE],
    )


def headers(cfg: ConnectorConfig, run_id: str) -> list[Header]:
    """Return the headers of every record of a run; none with ``extended.headers.enabled`` off and in contract 1.9."""
    if not cfg[F.EXTENDED_HEADERS_ENABLED] or str(cfg[F.EVENT_CONTRACT]) == "1.9":
        return []
    return context_headers(cfg[F.TOPIC_PREFIX], run_id)


def table_destination(cfg: ConnectorConfig, table: TableId) -> Destination:
    """Return where a table's events go, and what the transforms change in them."""
    return cfg.route(own_topic(cfg, table))


def own_topic(cfg: ConnectorConfig, table: TableId) -> str:
    """Return a table's topic before the transforms: TiCDC's dispatchers name it, where there are some.

    Raises:
        ConfigError: The table is captured, and no dispatcher gives it a topic.
    """
    if rules := cfg[F.DISPATCHERS] if cfg.ticdc else ():
        try:
            return rule_for(rules, table).topic_of(table)
        except ConfigError:
            if cfg.captures(table):
                raise
    return topic_names.topic_name(cfg[F.TOPIC_PREFIX], table)


def topic_of(cfg: ConnectorConfig, table: TableId) -> str:
    """Return a table's topic."""
    return table_destination(cfg, table).topic


def schema_topic(cfg: ConnectorConfig) -> str:
    """Return the schema change topic."""
    return cfg.route(topic_names.schema_change_topic(cfg[F.TOPIC_PREFIX])).topic


def routed(
    cfg: ConnectorConfig, topic: str, key: bytes | None, value: bytes | None
) -> tuple[str, bytes | None, bytes | None]:
    """Return topic, key and value of a schema change, transaction or heartbeat record behind the transforms.

    Args:
        cfg: The connector's configuration.
        topic: Its topic before them.
        key: Its key before them.
        value: Its value; no transform changes it.
    """
    to = cfg.route(topic)
    return to.topic, routed_key(to, key, schema=cfg[F.KEY_SCHEMAS_ENABLE]), value


def side_topics(cfg: ConnectorConfig) -> tuple[str, ...]:
    """Return the topics of schema changes, transactions, heartbeats and notifications, before transforms, if used."""
    prefix = cfg[F.TOPIC_PREFIX]
    names = [topic_names.schema_change_topic(prefix)]
    if cfg[F.PROVIDE_TRANSACTION_METADATA]:
        names.append(topic_names.transaction_topic(prefix, cfg[F.TOPIC_TRANSACTION]))
    if cfg[F.HEARTBEAT_INTERVAL_MS]:
        names.append(topic_names.heartbeat_topic(prefix, cfg[F.TOPIC_HEARTBEAT_PREFIX]))
    if notifications := F.notification_topic(Lookup(cfg.values)):
        names.append(notifications)
    return tuple(names)


def table_topic(cfg: ConnectorConfig) -> TopicSpec:
    """Return how a table's topic is created (topic.creation.default.*)."""
    return TopicSpec(
        cfg[F.TOPIC_CREATION_PARTITIONS], cfg[F.TOPIC_CREATION_REPLICATION_FACTOR], cfg.topic_creation_settings()
    )


def topic_owners(cfg: ConnectorConfig, tables: Iterable[TableId]) -> topic_names.TopicOwners:
    """Return what follows which table has which topic.

    Args:
        cfg: The connector's configuration.
        tables: The tables at the start.
    """
    return topic_names.TopicOwners(
        lambda table: own_topic(cfg, table),
        lambda topic: cfg.route(topic).topic,
        cfg.captures,
        reserved_topics(cfg),
        tables,
    )


def record_writer(cfg: ConnectorConfig, writer: int | str, *, alone: bool = False) -> TransactionalWriter:
    """Return a transactional producer that is not yet initialised.

    Args:
        cfg: The connector's configuration.
        writer: Writer index, or the driver's name.
        alone: Whether the records of a transaction go to one partition.
    """
    return TransactionalWriter(
        cfg.kafka_settings(),
        transactional_id(cfg[F.TOPIC_PREFIX], writer),
        transaction_timeout_ms=cfg[F.TRANSACTION_TIMEOUT_MS],
        commit_bytes=cfg[F.COMMIT_BYTES],
        commit_interval_s=cfg[F.COMMIT_INTERVAL_MS] / 1000,
        alone=alone,
    )


def ledger(cfg: ConnectorConfig) -> Ledger:
    """Return the ledger of a topic.prefix."""
    return Ledger(
        cfg.kafka_settings(),
        cfg.ledger_topic,
        cfg[F.TOPIC_PREFIX],
        cfg[F.TOPIC_CREATION_REPLICATION_FACTOR],
        verified=cfg[F.TOPIC_SETTINGS_VERIFIED],
        transaction_timeout_ms=min(SHORT_MS, cfg[F.TRANSACTION_TIMEOUT_MS]),
    )


def reserved_topics(cfg: ConnectorConfig) -> tuple[str, ...]:
    """Return the topics that no table may use; names before the transforms."""
    names = [*side_topics(cfg), cfg.history_topic, cfg.ledger_topic]
    if cfg[F.DEAD_LETTER_TOPIC]:
        names.append(cfg[F.DEAD_LETTER_TOPIC])
    return tuple(names)
