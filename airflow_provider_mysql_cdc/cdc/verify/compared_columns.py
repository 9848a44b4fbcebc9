"""Derive from configuration and structure how the values of a table's columns are compared."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_types import connect_type
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import placeholder_text
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import avro_name, key_schema, value_schema
from airflow_provider_mysql_cdc.cdc.verify.avro_schemas import readable_schema
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import ComparedColumns, placeholder_texts
from airflow_provider_mysql_cdc.cdc.verify.value_form import NUMBER_TEXT, Forms, ValueForm, row_forms, struct_forms

_NUMBER_FAMILIES = (Family.DECIMAL, Family.INTEGER)


def compared_columns(cfg: ConnectorConfig, table: Table) -> ComparedColumns:
    """Return how the values of a table's columns are compared.

    Args:
        cfg: The connector's configuration.
        table: The table.

    Raises:
        SchemaError: A column cannot be represented.
    """
    options = table_options.table_options(cfg, table)
    columns = {column_field(cfg, column): column for column in value_columns(table, options)}
    forms = record_forms(cfg, table, options)[1]
    as_null = cfg[F.UNAVAILABLE_VALUE_AS_NULL] and not cfg.is_ticdc
    nulls = {name for name, column in columns.items() if column.nullable and placeholder_text(column, options) is None}
    return ComparedColumns(
        forms,
        {name: _declared_form(cfg, column, options, forms[name]) for name, column in columns.items()},
        frozenset(nulls if as_null else ()),
        placeholder_texts(cfg[F.UNAVAILABLE_VALUE_PLACEHOLDER]),
        cfg.is_avro("value") or cfg[F.VALUE_SCHEMAS_ENABLE],
    )


def column_field(cfg: ConnectorConfig, column: Column) -> str:
    """Return the name of a column's field in keys and values.

    Args:
        cfg: The connector's configuration.
        column: The column.
    """
    return avro_name(column.name) if cfg.is_ticdc else field_name(column.name, str(cfg[F.FIELD_NAME_ADJUSTMENT_MODE]))


def record_forms(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> tuple[Forms, Forms]:
    """Return the forms of the fields of keys and of rows, as the schemas of records say them.

    Args:
        cfg: The connector's configuration.
        table: The table.
        options: From ``table_options.table_options``.

    Raises:
        SchemaError: A column cannot be represented.
    """
    if cfg.is_ticdc:
        modes = table_options.ticdc_modes(cfg)
        key = key_schema(table, key_columns(table, options), modes)
        value = value_schema(table, value_columns(table, options), modes)
        return {} if key is None else readable_schema(key).forms, readable_schema(value).forms
    text = envelope_text(table, options)
    key_document, value_document = (None if s is None else json.loads(s) for s in (text.key_schema, text.value_schema))
    return _part_forms(cfg, "key", key_document), _part_forms(cfg, "value", value_document)


def _part_forms(cfg: ConnectorConfig, part: F.ConverterPart, schema: Any) -> Forms:
    if schema is None:
        return {}
    if not cfg.is_avro(part):
        return struct_forms(schema) if part == "key" else row_forms(schema)
    part_fields = F.CONVERTER_FIELDS[part]
    meta = cfg[part_fields.meta_data] or cfg[part_fields.use_latest]
    readable = readable_schema(dumps(avro_schema(schema, meta=meta)))
    return readable.forms if part == "key" else readable.row_forms


def _declared_form(cfg: ConnectorConfig, column: Column, options: DecoderOptions, form: ValueForm) -> ValueForm:
    """Return a column's form with what its schema may not say: that a text is a number, or a semantic type."""
    custom = options.custom(column) is not None
    if form.type == "string" and not form.name and column.family in _NUMBER_FAMILIES and not custom:
        return ValueForm("string", NUMBER_TEXT)
    if form.name or cfg.is_ticdc:
        return form
    kind = connect_type(column, options)
    return ValueForm(kind.type, kind.name or "", form.scale)
