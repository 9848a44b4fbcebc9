"""Build a snapshot's records of table structures: schema change records and schema history records."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, REAL_AS_FLOAT
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import (
    SchemaChangeFormat,
    SnapshotStatement,
    change_dict,
    snapshot_statements,
)
from airflow_provider_mysql_cdc.cdc.emit.topic_names import schema_change_topic
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.java import java_sort_key
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions

# The modes that affect how a statement is parsed. SHOW CREATE TABLE escapes with backslashes in every mode, so
# NO_BACKSLASH_ESCAPES is not among them. Source: MySQL 9.7 manual, "Server SQL Modes"; bits of sql_mode.
_SQL_MODE_BITS = {
    "ANSI_QUOTES": ANSI_QUOTES,
    "REAL_AS_FLOAT": REAL_AS_FLOAT,
    "ANSI": ANSI_QUOTES | REAL_AS_FLOAT,
}


def ddl_context(definitions: TableDefinitions, db: str = "") -> DdlContext:
    """Return the session settings with which the source's own statements are parsed.

    Args:
        definitions: The statements.
        db: Database for names without one.
    """
    mode_names = definitions.sql_mode.upper().split(",")
    bits = 0
    for name in mode_names:
        bits |= _SQL_MODE_BITS.get(name.strip(), 0)
    return DdlContext(
        default_db=db,
        sql_mode=bits,
        lower_case_table_names=definitions.lower_case_table_names,
        default_collation_for_utf8mb4=definitions.default_collation_for_utf8mb4,
    )


def captured_state(definitions: TableDefinitions) -> SchemaState:
    """Return the structures of the captured tables, from the source's statements.

    Args:
        definitions: The statements.

    Raises:
        DdlParseError: A statement cannot be parsed.
    """
    state = SchemaState(server_defaults=DefaultCharset(definitions.server_charset, definitions.server_collation))
    for db, statement in definitions.databases.items():
        state = apply_ddl(state, statement, ddl_context(definitions, db)).state
    for table_id, statement in definitions.tables.items():
        state = apply_ddl(state, statement, ddl_context(definitions, table_id.db)).state
    return state


@dataclass(frozen=True, slots=True)
class SnapshotSchema:
    """Hold the structures that the records of a snapshot describe.

    Args:
        definitions: The source's statements.
        state: The structures of all tables.
        create_statements: The statements of all tables, in the order of the records.
    """

    definitions: TableDefinitions
    state: SchemaState
    create_statements: dict[TableId, str]


def build_snapshot_schema(definitions: TableDefinitions) -> SnapshotSchema:
    """Read the structures of all tables; uncaptured tables whose statement cannot be parsed are skipped.

    When there are uncaptured tables, all tables are sorted by name (read from Debezium 3.6.1).

    Args:
        definitions: The source's statements.

    Raises:
        DdlParseError: The statement of a captured table cannot be parsed.
    """
    state, create_statements = captured_state(definitions), dict(definitions.tables)
    for table_id, statement in definitions.uncaptured.items():
        with contextlib.suppress(DdlParseError):
            state = apply_ddl(state, statement, ddl_context(definitions, table_id.db)).state
            create_statements[table_id] = statement
    if definitions.uncaptured:
        create_statements = {
            t: create_statements[t] for t in sorted(create_statements, key=lambda t: java_sort_key(str(t)))
        }
    return SnapshotSchema(definitions, state, create_statements)


def change_format(cfg: ConnectorConfig) -> SchemaChangeFormat:
    """Return the writer of schema change records.

    Args:
        cfg: The connector's configuration.
    """
    return SchemaChangeFormat(
        cfg[F.TOPIC_PREFIX],
        str(cfg[F.EVENT_CONTRACT]),
        key_schema=cfg[F.KEY_SCHEMAS_ENABLE],
        value_schema=cfg[F.VALUE_SCHEMAS_ENABLE],
        comments=cfg[F.INCLUDE_SCHEMA_COMMENTS],
        source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]),
        describes=cfg.needs_schema,
    )


def _snapshot_statements(schema: SnapshotSchema, *, empty: bool = True) -> list[SnapshotStatement]:
    """Return the statements of a snapshot; ``empty`` includes those of databases without tables."""
    state, nonempty_databases = schema.state, {table.db for table in schema.create_statements}
    databases = {db: defaults for db, defaults in state.database_defaults.items() if empty or db in nonempty_databases}
    return snapshot_statements(state.server_defaults, databases, schema.create_statements)


def schema_change_records(
    cfg: ConnectorConfig, schema: SnapshotSchema, offset: BinlogOffset, ts_ms: int, *, final: bool = False
) -> list[SideRecord]:
    """Return the snapshot's records of the schema change topic (SNAP-15, SCH-26); an empty database has none.

    Args:
        cfg: The connector's configuration.
        schema: From ``build_snapshot_schema``.
        offset: Position of the consistent view.
        ts_ms: Not used: Debezium writes the time of each record, not that of the consistent view.
        final: Whether the snapshot reads no rows.
    """
    statements = [s for s in _snapshot_statements(schema, empty=False) if cfg.publishes_database_ddl(s.db)]
    change_records = change_format(cfg).snapshot_records(statements, schema.state.tables, offset, final=final)
    topic = schema_change_topic(cfg[F.TOPIC_PREFIX])
    return [SideRecord(topic, r.key, r.value) for r in change_records]


def history_records(cfg: ConnectorConfig, schema: SnapshotSchema, offset: BinlogOffset, epoch: int) -> list[SideRecord]:
    """Return the snapshot's records of the schema history (SCH-02).

    Args:
        cfg: The connector's configuration.
        schema: From ``build_snapshot_schema``.
        offset: Position of the consistent view.
        epoch: The snapshot's epoch.
    """
    definitions, tables = schema.definitions, schema.state.tables
    now_ms = time.time_ns() // 1_000_000
    records: list[SideRecord] = []
    for s in _snapshot_statements(schema):
        # For tables that are not captured only the statement is used (see ``replay``).
        changes = tuple(
            change_dict(c) | ({} if c.id in definitions.tables else {"table": None}) for c in s.changes(tables)
        )
        context = ddl_context(definitions, s.db)
        record = HistoryRecord(cfg[F.TOPIC_PREFIX], offset, epoch, now_ms, s.db, s.ddl, context, changes, True)
        records.append(SideRecord(cfg.history_topic, None, record.to_bytes()))
    return records
