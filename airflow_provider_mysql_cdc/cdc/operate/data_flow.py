"""Describe what a run has moved: from which tables and columns into which topics and fields; for lineage.

Rows and topics come from the run's result. Structures are the source's at the end of the run (``read_structures``);
the fields of a topic are those of the schemas that its records have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_types import type_expression
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import value_columns
from airflow_provider_mysql_cdc.cdc.emit.contracts import contract
from airflow_provider_mysql_cdc.cdc.emit.envelope import value_schema
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.formats.table_options import table_options, ticdc_modes
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.column_rule import ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import literal_table, read_create_statements
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_schema

MAX_STRUCTURES = 50
"""Tables whose structures are read; those with the most rows."""
_TIMEOUT_S = 3.0
"""Longest wait for the server, in seconds: the event of the run must not wait, and OpenLineage gives up after ten."""
_DEADLINE_S = 4.0
"""Seconds after which no more structures are read."""
_AT_ONCE = 10
"""Tables that are read between two looks at the deadline."""
_TRUNCATIONS = frozenset({ValueChangeKind.TRUNCATE_TEXT, ValueChangeKind.TRUNCATE_BYTES})


@dataclass(frozen=True, slots=True)
class FlowField:
    """Describe a field of a record's value, or a column of a table.

    Args:
        name: Its name.
        type: MySQL's type of a column (``INT UNSIGNED``); Connect's or Avro's of a field, the logical one if there is
            one.
        doc: The column's comment; empty for none.
        fields: The fields inside of it.
    """

    name: str
    type: str
    doc: str = ""
    fields: tuple[FlowField, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnFlow:
    """Say into which fields of a record's value a column goes.

    Args:
        column: The column.
        fields: The fields, as paths with dots (``after.id``).
        change: How values are changed; empty if they are not.
        hidden: Whether the values cannot be told from the field any more.
    """

    column: str
    fields: tuple[str, ...]
    change: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class TableFlow:
    """Say what of a table went where.

    Args:
        table: The table.
        topic: The topic of its events.
        rows: Records of its rows; None if nothing is known of them.
        columns: Its columns; none where its structure is not known.
        fields: The fields of its events.
        mapping: Which column goes into which fields.
    """

    table: TableId
    topic: str
    rows: int | None = None
    columns: tuple[FlowField, ...] = ()
    fields: tuple[FlowField, ...] = ()
    mapping: tuple[ColumnFlow, ...] = ()


def named_flows(cfg: ConnectorConfig, entries: Iterable[str]) -> list[TableFlow]:
    """Return the flows of tables that are named without a regular expression, before anything has moved.

    Args:
        cfg: The connector's configuration.
        entries: Names and regular expressions, as in ``table.include.list``.
    """
    named = (table for entry in entries if (table := literal_table(entry)) is not None)
    return [TableFlow(table, table_topic_name(cfg, table)) for table in dict.fromkeys(named) if cfg.captures(table)]


def moved_flows(
    cfg: ConnectorConfig, rows: Mapping[str, int], log: Log, max_structures: int = MAX_STRUCTURES
) -> list[TableFlow]:
    """Return the flows of the tables that a run has moved rows of, the one with the most rows first.

    Args:
        cfg: The connector's configuration.
        rows: Records of rows, by table (``TableId.path``).
        log: Takes one line of text when structures are missing.
        max_structures: Most tables whose structures are read; 0 asks no server.
    """
    counted = {TableId.from_path(path): count for path, count in rows.items() if count and path != OTHERS_LABEL}
    tables = sorted(counted, key=lambda table: -counted[table])
    structures = read_structures(cfg, tables[:max_structures], log)
    flows = []
    for table in tables:
        try:
            flow = TableFlow(table, table_topic_name(cfg, table), counted[table])
            flows.append(flow)
            if table in structures:
                flows[-1] = _with_structure(cfg, flow, structures[table])
        except CdcError as error:
            log(f"{table} is described in part only: {error.message()}")
    return flows


def read_structures(cfg: ConnectorConfig, tables: Sequence[TableId], log: Log) -> dict[TableId, Table]:
    """Return the source's structures of tables, as far as it answers in a few seconds.

    Args:
        cfg: The connector's configuration.
        tables: The tables.
        log: Takes one line of text when it does not.
    """
    found: dict[TableId, Table] = {}
    if not tables:
        return found
    deadline = time.monotonic() + _DEADLINE_S
    try:
        settings = replace(
            at_server_of_ledger(cfg).connection_settings(),
            connect_timeout_s=_TIMEOUT_S,
            query_timeout_s=_TIMEOUT_S,
            silence_timeout_s=_TIMEOUT_S,
        )
        with connect(settings) as conn:
            with conn.cursor() as cursor:
                cursor.execute("SET SESSION lock_wait_timeout = 1")
            for first in range(0, len(tables), _AT_ONCE):
                if time.monotonic() > deadline:
                    break
                definitions, _ = read_create_statements(conn, tables[first : first + _AT_ONCE], lambda _: None)
                for table, statement in definitions.tables.items():
                    state = captured_state(replace(definitions, tables={table: statement}))
                    if (structure := state.tables.get(table)) is not None:
                        found[table] = structure
    except (CdcError, pymysql.MySQLError) as error:
        log(f"The source's structures could not be read: {type(error).__name__}")
    return found


def _with_structure(cfg: ConnectorConfig, flow: TableFlow, table: Table) -> TableFlow:
    columns = tuple(_column_field(column) for column in table.columns)
    options = table_options(cfg, table)
    fields = (_ticdc_fields if cfg.is_ticdc else _envelope_fields)(cfg, table, options)
    mapping = tuple(
        ColumnFlow(column.name, _value_fields(cfg, column, options), *_change(column, options))
        for column in value_columns(table, options)
    )
    return replace(flow, columns=columns, fields=fields, mapping=mapping)


def _value_fields(cfg: ConnectorConfig, column: Column, options: DecoderOptions) -> tuple[str, ...]:
    """Return the fields of a value that have a column, as paths."""
    if cfg.is_ticdc:
        return (ticdc_schema.avro_name(column.name),)
    name = field_name(column.name, options.field_names)
    return f"before.{name}", f"after.{name}"


def _column_field(column: Column) -> FlowField:
    return FlowField(column.name, _mysql_type(column), column.comment or "")


def _mysql_type(column: Column) -> str:
    arguments = [str(number) for number in (column.length, column.scale) if number is not None]
    return type_expression(column) + (f"({','.join(arguments)})" if arguments else "")


def _change(column: Column, options: DecoderOptions) -> tuple[str, bool]:
    """Return how a column's values are changed, and whether that hides them."""
    change = options.treatment(column).change
    if change is not None:
        return ("truncated", False) if change.kind in _TRUNCATIONS else ("masked", True)
    if column.name in options.booleans:
        return "converted to boolean", False
    return ("converted", False) if column.name in dict(options.conversions) else ("", False)


def _envelope_fields(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> tuple[FlowField, ...]:
    layout = contract(options.contract, "mysql", options.source_struct)
    comments, transaction = cfg[F.INCLUDE_SCHEMA_COMMENTS], cfg[F.PROVIDE_TRANSACTION_METADATA]
    schema = value_schema(table, options, layout, comments=comments, transaction=transaction)
    return tuple(map(_connect_field, schema["fields"]))


def _connect_field(schema: Mapping[str, Any]) -> FlowField:
    fields = tuple(map(_connect_field, schema.get("fields", ())))
    kind = schema["type"] if schema["type"] == "struct" else schema.get("name", schema["type"])
    return FlowField(schema["field"], kind, schema.get("doc", ""), fields)


def _ticdc_fields(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> tuple[FlowField, ...]:
    schema = json.loads(ticdc_schema.value_schema(table, value_columns(table, options), ticdc_modes(cfg)))
    return tuple(FlowField(field["name"], _avro_type(field["type"])) for field in schema["fields"])


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        return _avro_type(next(member for member in kind if member != "null"))
    return str(kind.get("logicalType", kind["type"])) if isinstance(kind, Mapping) else str(kind)
