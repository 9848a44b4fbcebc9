"""Read rows that entries carry as the Avro that they are, where they have to be compared by value."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import EXTENSION_FIELDS, key_schema, value_schema
from airflow_provider_mysql_cdc.cdc.verify.avro_schemas import ReadableSchema, readable_schema
from airflow_provider_mysql_cdc.cdc.verify.avro_slices import RAW_ROW, row_schema
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes


class DamagedRow(Exception):
    """Raised where the bytes of a row cannot be read."""


def record_schemas(cfg: ConnectorConfig, table: Table) -> tuple[str, str] | None:
    """Return the Avro schemas that a table's keys and values are written with; None where one is not Avro.

    Args:
        cfg: The connector's configuration.
        table: The table.
    """
    options = table_options.table_options(cfg, table)
    if cfg.is_ticdc:
        modes = table_options.ticdc_modes(cfg)
        key = key_schema(table, key_columns(table, options), modes)
        return None if key is None else (key, value_schema(table, value_columns(table, options), modes))
    text = table_options.schema_text(cfg, table, options)
    if text.key_schema is None or text.value_schema is None or not all(map(cfg.is_avro, F.PARTS)):
        return None
    schemas = {"key": text.key_schema, "value": text.value_schema}
    return tuple(dumps(avro_schema(json.loads(schemas[p]), meta=_has_meta(cfg, p))) for p in F.PARTS)  # type: ignore


def _has_meta(cfg: ConnectorConfig, part: F.ConverterPart) -> bool:
    part_fields = F.CONVERTER_FIELDS[part]
    return bool(cfg[part_fields.meta_data] or cfg[part_fields.use_latest])


def carried_row_schema(cfg: ConnectorConfig, table: Table) -> str:
    """Return the Avro schema of the rows that entries of a table carry; empty where they carry JSON alone.

    Args:
        cfg: The connector's configuration.
        table: The table.
    """
    schemas = record_schemas(cfg, table)
    if schemas is None:
        return ""
    value: dict[str, Any] = json.loads(schemas[1])
    if cfg.is_ticdc:
        names = {name for name, _ in EXTENSION_FIELDS} if table_options.ticdc_modes(cfg).extension else set()
        return json.dumps({**value, "fields": [field for field in value["fields"] if field["name"] not in names]})
    try:
        return json.dumps(row_schema(value))
    except (ValueError, KeyError, TypeError):
        return ""


@dataclass(slots=True)
class CarriedRows:
    """Read the rows of tables.

    Args:
        schemas: Schemas of rows, by the table's number (``carried_row_schema``).
    """

    schemas: Mapping[int, str]
    _readable: dict[int, ReadableSchema] | None = None

    def canonical(self, table: int, value: bytes) -> bytes:
        """Return the canonical bytes of a row (``row_text``), or its JSON as it is.

        Args:
            table: The table's number.
            value: What an entry carries.

        Raises:
            DamagedRow: It cannot be read.
        """
        if not value.startswith(RAW_ROW):
            return value
        import fastavro

        schema, stream = self._schema(table), io.BytesIO(value)
        stream.seek(len(RAW_ROW))
        try:
            row: Any = fastavro.schemaless_reader(stream, schema.parsed, None)
            row = row if schema.convert is None else schema.convert(row)
            if stream.tell() == len(value):
                return row_bytes(row)
        except Exception as error:  # fastavro has many for damaged bytes
            raise DamagedRow(f"{type(error).__name__}: {error}") from error
        raise DamagedRow("it has bytes behind it")

    def _schema(self, table: int) -> ReadableSchema:
        if self._readable is None:
            self._readable = {}
        found = self._readable.get(table)
        if found is None:
            found = self._readable[table] = readable_schema(self.schemas[table])
        return found
