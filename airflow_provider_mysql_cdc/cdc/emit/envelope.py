"""Key and value schemas of a table's messages as constant JSON text, and their headers."""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema, default_value, field_schema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.emit.contracts import Contract, Member, contract, struct
from airflow_provider_mysql_cdc.cdc.emit.topic_names import sanitised
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model import avro_names
from airflow_provider_mysql_cdc.cdc.model.records import Header
from airflow_provider_mysql_cdc.cdc.model.table import Column, Interned, Table, TableId, UniqueIndex, interned

_RECENT_PARAMETER = "__debezium.source.column.name"


def schema_name(table: Table, options: DecoderOptions, part: str) -> str:
    """Return the name of a schema: the table's topic name and the part, adjusted (EVT-04).

    Debezium 1.9 replaced what topics cannot hold in the envelope's name only, and a leading digit without keeping it.

    Args:
        table: The table.
        options: Prefix and mode.
        part: ``Key``, ``Value`` or ``Envelope``.
    """
    title = dict(options.schema_titles).get(part)
    if title is not None:
        return title
    name = f"{options.prefix}.{table.id.db}.{table.id.table}"
    old = options.contract == "1.9"
    if not old or part == "Envelope":
        name = sanitised(name)
    return avro_names.schema_name(f"{name}.{part}", options.schema_names, keep_leading_digit=not old)


def require_distinct_fields(table: Table, options: DecoderOptions) -> None:
    """Refuse columns whose names become equal by ``field.name.adjustment.mode``.

    Raises:
        SchemaError: Two columns of the value or of the key have one field name.
    """
    added = [name for name, _ in options.key_fields if key_columns(table, options)]
    for columns in (value_columns(table, options), key_columns(table, options)):
        column_by_field: dict[str, str] = {}
        for column in columns:
            name = avro_names.field_name(column.name, options.field_names)
            if name in column_by_field:
                raise SchemaError(
                    f"columns {column_by_field[name]} and {column.name} would have the same field name {name}",
                    where=str(table.id),
                    why=f"field.name.adjustment.mode is {options.field_names}",
                    remedy="leave one of them out (column.exclude.list) or use another mode, and run the task again; "
                    "renaming one helps a snapshot, but not a stream that has rows with both names",
                )
            column_by_field[name] = column.name
    for name in added:
        if name in column_by_field or added.count(name) > 1:
            raise SchemaError(
                f"the key already has a field {name}",
                where=str(table.id),
                why="a transform adds a field of this name to keys",
                remedy="set key.field.name of the transform to another name",
            )


def key_schema(
    table: Table, options: DecoderOptions, layout: Contract, *, comments: bool = False
) -> ConnectSchema | None:
    """Return the key schema, or None for a table without a key."""
    columns = key_columns(table, options)
    if not columns:
        return None
    comments = comments and layout.recent
    fields = [field_schema(c, options, comments=comments, names=options.field_names) for c in columns]
    fields += [Member(name).to_schema() for name, _ in options.key_fields]
    order = layout.key_field_order
    if order:
        fields = [{**{k: f[k] for k in order}, **f} for f in fields]
    return struct(fields, schema_name(table, options, "Key"), order=layout.key_order)


def _type_parameters(parameters: tuple[tuple[str, str], ...], layout: Contract) -> tuple[tuple[str, str], ...]:
    """Return the parameters that describe a column's type; Debezium 1.9 did not write its name there."""
    return tuple(p for p in parameters if layout.recent or p[0] != _RECENT_PARAMETER)


def value_schema(
    table: Table, options: DecoderOptions, layout: Contract, *, comments: bool = False, transaction: bool = False
) -> ConnectSchema:
    """Return the envelope schema.

    Args:
        table: The table.
        options: Type settings, prefix and key.
        layout: The event contract.
        comments: Whether column comments become ``doc``; not in contract 1.9.
        transaction: Whether transaction metadata is on; events before Debezium 0.10 have its member only then.
    """
    row = [
        field_schema(
            c,
            options,
            comments=comments and layout.recent,
            parameters=_type_parameters(options.treatment(c).parameters, layout),
            names=options.field_names,
        )
        for c in value_columns(table, options)
    ]
    images = [
        {**struct(row, schema_name(table, options, "Value"), optional=True), "field": field}
        for field in ("before", "after")
    ]
    tail = list(layout.tail)
    if transaction and layout.transaction not in tail:
        tail.append(layout.transaction)
    members: list[dict[str, Any]] = [*images, layout.source_schema(), *(m.to_schema() for m in tail)]
    return struct(members, schema_name(table, options, "Envelope"), version=layout.envelope_version)


def envelope_text(
    table: Table,
    options: DecoderOptions,
    *,
    connector: str = "mysql",
    key: bool = True,
    value: bool = True,
    comments: bool = False,
    transaction: bool = False,
) -> EnvelopeText:
    """Return the constant schema text of a table version.

    Args:
        table: The table; only the columns it holds become fields.
        options: Type settings, contract, prefix and key.
        connector: ``mysql`` or ``db2``.
        key: ``key.converter.schemas.enable``.
        value: ``value.converter.schemas.enable``.
        comments: ``include.schema.comments``.
        transaction: ``provide.transaction.metadata``.

    Raises:
        SchemaError: A column's type or a key column is not known.
        ConfigError: There is no such contract.
    """
    settings = _EnvelopeSettings(connector, key, value, comments, transaction)
    try:
        text = _shared_text(
            interned(table.columns), table.primary_key, table.unique_keys, _marked_options(options), settings
        )
    except (SchemaError, TypeError):
        # The error names the table; and what a custom converter returned may not be comparable.
        return _envelope_text(table, options, settings)
    if text.key_schema is None and text.value_schema is None:
        return text
    names = [(quote(mark), quote(schema_name(table, options, part))) for part, mark in _MARKS]
    return replace(
        text, key_schema=_replace_marks(text.key_schema, names), value_schema=_replace_marks(text.value_schema, names)
    )


@dataclass(frozen=True, slots=True)
class _EnvelopeSettings:
    """Hold the arguments of ``envelope_text`` other than table and options."""

    connector: str
    key: bool
    value: bool
    comments: bool
    transaction: bool


# Titles of schemas that no table has; each table's own titles replace them.
_MARKS = tuple((part, f"{part}-{secrets.token_hex(16)}") for part in ("Key", "Value", "Envelope"))
_UNNAMED_TABLE = TableId("", "")
_MAX_SHAPES = 256


def _replace_marks(text: str | None, names: Sequence[tuple[str, str]]) -> str | None:
    for mark, name in names if text is not None else ():
        text = text.replace(mark, name) if text is not None else None
    return text


def _envelope_text(table: Table, options: DecoderOptions, settings: _EnvelopeSettings) -> EnvelopeText:
    key, value, comments, transaction = settings.key, settings.value, settings.comments, settings.transaction
    layout = contract(options.contract, settings.connector, options.source_struct)
    require_distinct_fields(table, options)
    key_part = key_schema(table, options, layout, comments=comments) if key else None
    value_part = value_schema(table, options, layout, comments=comments, transaction=transaction) if value else None
    return EnvelopeText(
        None if key_part is None else dumps(key_part),
        None if value_part is None else dumps(value_part),
        _null_text(table, options) if options.replace_null_with_default else {},
    )


@lru_cache(maxsize=_MAX_SHAPES)
def _marked_options(options: DecoderOptions) -> DecoderOptions:
    return replace(options, schema_titles=_MARKS)


@lru_cache(maxsize=_MAX_SHAPES)
def _shared_text(
    columns: Interned[tuple[Column, ...]],
    primary_key: tuple[str, ...],
    unique_keys: tuple[UniqueIndex, ...],
    options: DecoderOptions,
    settings: _EnvelopeSettings,
) -> EnvelopeText:
    return _envelope_text(Table(_UNNAMED_TABLE, columns.value, primary_key, unique_keys), options, settings)


def _null_text(table: Table, options: DecoderOptions) -> dict[str, str]:
    defaults = {c.name: default_value(c, options) for c in table.columns}
    return {name: dumps(value) for name, value in defaults.items() if value is not None}


def new_run_id(now_ms: int | None = None) -> str:
    """Return a new UUID of version 7 (RFC 9562: milliseconds first, so that run ids sort by time).

    Args:
        now_ms: Milliseconds since the epoch; the current time when None.
    """
    timestamp_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    raw = bytearray(timestamp_ms.to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(raw)))


def context_headers(prefix: str, run_id: str, *, connector: str = "mysql", task_id: str = "0") -> list[Header]:
    """Return the four headers of row events, tombstones and schema changes (``extended.headers.enabled``).

    Transaction metadata and heartbeats do not have them.

    Args:
        prefix: ``topic.prefix``.
        run_id: Id of the run, the same in all its records.
        connector: Connector kind.
        task_id: Always ``0`` with Debezium's MySQL connector.
    """
    names = ("connectorLogicalName", "taskId", "connectorName", "runId")
    values = (prefix, task_id, connector, run_id)
    return [(f"__debezium.context.{n}", v.encode()) for n, v in zip(names, values, strict=True)]
