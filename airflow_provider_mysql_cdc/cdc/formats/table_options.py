"""Derive from the configuration how records of a table are written: decoder options, schemas, source block, headers."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.column_rules import BooleanConverter
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_types import type_expression
from airflow_provider_mysql_cdc.cdc.convert.custom_converters import custom_column
from airflow_provider_mysql_cdc.cdc.convert.treatment import column_treatments
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.emit import envelope
from airflow_provider_mysql_cdc.cdc.emit.envelope import context_headers
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock, source_block
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_destination
from airflow_provider_mysql_cdc.cdc.model.column_rule import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.records import Header
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import row_options
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes


def decoder_options(cfg: ConnectorConfig) -> DecoderOptions:
    """Return the decoder options that all tables share; ``table_options`` adds those of one table.

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
    """Return whether NULL is written as the column's default; each converter has its own property for this."""
    keep_null_field = F.VALUE_AVRO.keep_null
    return (
        not cfg[keep_null_field]
        if keep_null_field is not None and cfg.is_avro("value")
        else cfg[F.VALUE_REPLACE_NULL_WITH_DEFAULT]
    )


def table_options(cfg: ConnectorConfig, table: Table, base_options: DecoderOptions | None = None) -> DecoderOptions:
    """Return the decoder options of a table version.

    Args:
        cfg: The connector's configuration.
        table: The table.
        base_options: From ``decoder_options``, if the caller has them already.

    Raises:
        SchemaError: A column cannot be masked, hashed or truncated as the configuration says.
        ConfigError: A custom converter cannot be used for a column.
    """
    options = base_options or decoder_options(cfg)
    if not has_table_options(cfg):
        return options
    destination = table_destination(cfg, table.id)
    names = tuple(c.name for c in table.columns)
    has_column_filter = cfg[F.COLUMN_INCLUDE_LIST] or cfg[F.COLUMN_EXCLUDE_LIST]
    included = tuple(n for n in names if cfg.includes_column(table.id, n)) if has_column_filter else names
    conversions = tuple((c.name, custom) for c in table.columns if (custom := _custom_conversion(cfg, table, c)))
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
        schema_titles=tuple(destination.schema_names().items()),
        key_fields=destination.key_fields,
        conversions=conversions,
    )
    if cfg.has_column_rules:
        treatments_by_column = column_treatments(
            table,
            lambda c: cfg.column_rules(table.id, c.name, type_expression(c)) if c.name in included else (),
            options,
            comments=cfg[F.INCLUDE_SCHEMA_COMMENTS],
        )
        options = replace(options, treatments=treatments_by_column)
    return row_options(options, ticdc_modes(cfg)) if cfg.is_ticdc else options


def has_table_options(cfg: ConnectorConfig) -> bool:
    """Return whether the configuration has options for single tables or columns.

    Args:
        cfg: The connector's configuration.
    """
    has_column_lists = cfg[F.MESSAGE_KEY_COLUMNS] or cfg[F.COLUMN_INCLUDE_LIST] or cfg[F.COLUMN_EXCLUDE_LIST]
    has_column_options = has_column_lists or cfg.families.columns.converters or cfg.has_column_rules
    return bool(has_column_options or cfg.families.transforms.routers or cfg.is_ticdc)


def ticdc_modes(cfg: ConnectorConfig) -> TicdcModes:
    """Return the modes of TiCDC's protocol."""
    return TicdcModes(
        decimal=str(cfg[F.TICDC_DECIMAL]),
        bigint_unsigned=str(cfg[F.TICDC_BIGINT_UNSIGNED]),
        extension=cfg[F.TIDB_EXTENSION],
        namespace=cfg[F.TICDC_NAMESPACE],
    )


def _custom_conversion(cfg: ConnectorConfig, table: Table, column: Column) -> CustomColumn | None:
    """Return the conversion by the first converter that selects a column; None for the boolean converter or none."""
    for converter in cfg.families.columns.converters:
        if isinstance(converter, BooleanConverter):
            if converter.selects(f"{table.id}.{column.name}", type_expression(column), column.length):
                return None
        elif (conversion := custom_column(converter, table, column)) is not None:
            return conversion
    return None


def envelope_text(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> EnvelopeText:
    """Return the constant schema text around a table version's records; keys or values in Avro have none.

    Args:
        cfg: The connector's configuration.
        table: The table.
        options: From ``table_options``.
    """
    key = cfg[F.KEY_SCHEMAS_ENABLE] and not cfg.is_avro("key")
    return _envelope_text(cfg, table, options, key, cfg[F.VALUE_SCHEMAS_ENABLE] and not cfg.is_avro("value"))


def schema_text(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> EnvelopeText:
    """Return the schemas of a table version's records, for JSON and for Avro.

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


def table_source_block(cfg: ConnectorConfig, table: TableId) -> SourceBlock:
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
    """Return the headers of every record of a run; none if ``extended.headers.enabled`` is off or in contract 1.9."""
    if not cfg[F.EXTENDED_HEADERS_ENABLED] or str(cfg[F.EVENT_CONTRACT]) == "1.9":
        return []
    return context_headers(cfg[F.TOPIC_PREFIX], run_id)
