"""What a snapshot writes about structures: schema change records and the schema history."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, REAL_AS_FLOAT
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import (
    ChangeFormat,
    SnapshotStatement,
    change_dict,
    snapshot_statements,
)
from airflow_provider_mysql_cdc.cdc.emit.topic_names import schema_change_topic
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.java_order import java_order
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import Definitions

Record = tuple[str, bytes | None, bytes | None]
# The modes that decide how a statement's text reads. SHOW CREATE TABLE escapes with backslashes in every mode, so
# NO_BACKSLASH_ESCAPES is not among them. Source: MySQL 9.7 manual, "Server SQL Modes"; bits of sql_mode.
_MODES = {
    "ANSI_QUOTES": ANSI_QUOTES,
    "REAL_AS_FLOAT": REAL_AS_FLOAT,
    "ANSI": ANSI_QUOTES | REAL_AS_FLOAT,
}


def context_of(definitions: Definitions, db: str = "") -> DdlContext:
    """Return the context in which the source's own statements read.

    Args:
        definitions: The statements.
        db: Database of names without one.
    """
    names = definitions.sql_mode.upper().split(",")
    bits = 0
    for name in names:
        bits |= _MODES.get(name.strip(), 0)
    return DdlContext(default_db=db, sql_mode=bits, lower_case_table_names=definitions.lower_case_table_names)


def state_of(definitions: Definitions) -> SchemaState:
    """Return the structures that the source's statements describe, those of captured tables only.

    Args:
        definitions: The statements.

    Raises:
        DdlParseError: A statement is not understood.
    """
    state = SchemaState(server=DbDefaults(definitions.server_charset, definitions.server_collation))
    for db, statement in definitions.databases.items():
        state = apply(state, statement, context_of(definitions, db)).state
    for table_id, statement in definitions.tables.items():
        state = apply(state, statement, context_of(definitions, table_id.db)).state
    return state


@dataclass(frozen=True, slots=True)
class Described:
    """Hold what the records of a snapshot describe.

    Args:
        definitions: The source's statements.
        state: The structures of all tables.
        creates: The statements of all tables, in the order of the records.
    """

    definitions: Definitions
    state: SchemaState
    creates: dict[TableId, str]


def describe(definitions: Definitions) -> Described:
    """Read the structures of all tables; others than captured ones only if they are understood.

    Beside others the captured tables stand in the order of their names (read from Debezium 3.6.1).

    Args:
        definitions: The source's statements.

    Raises:
        DdlParseError: A captured table's statement is not understood.
    """
    state, creates = state_of(definitions), dict(definitions.tables)
    for table_id, statement in definitions.others.items():
        with contextlib.suppress(DdlParseError):
            state = apply(state, statement, context_of(definitions, table_id.db)).state
            creates[table_id] = statement
    if definitions.others:
        creates = {t: creates[t] for t in sorted(creates, key=lambda t: java_order(str(t)))}
    return Described(definitions, state, creates)


def change_format(cfg: ConnectorConfig) -> ChangeFormat:
    """Return the writer of schema change records.

    Args:
        cfg: The connector's configuration.
    """
    return ChangeFormat(
        cfg[F.TOPIC_PREFIX],
        str(cfg[F.EVENT_CONTRACT]),
        key_schema=cfg[F.KEY_SCHEMAS_ENABLE],
        value_schema=cfg[F.VALUE_SCHEMAS_ENABLE],
        comments=cfg[F.INCLUDE_SCHEMA_COMMENTS],
        source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]),
    )


def _statements(described: Described, *, empty: bool = True) -> list[SnapshotStatement]:
    """Return the statements of a snapshot, with those of databases without tables or without."""
    state, filled = described.state, {table.db for table in described.creates}
    databases = {db: defaults for db, defaults in state.databases.items() if empty or db in filled}
    return snapshot_statements(state.server, databases, described.creates)


def schema_change_records(
    cfg: ConnectorConfig, described: Described, offset: BinlogOffset, ts_ms: int, *, final: bool = False
) -> list[Record]:
    """Return the snapshot's records of the schema change topic (SNAP-15, SCH-26); an empty database has none.

    Args:
        cfg: The connector's configuration.
        described: From ``describe``.
        offset: Position of the view.
        ts_ms: Not used: Debezium writes the time of each record, not that of the view.
        final: Whether the snapshot reads no rows.
    """
    statements = _statements(described, empty=False)
    written = change_format(cfg).snapshot(statements, described.state.tables, offset, final=final)
    topic = schema_change_topic(cfg[F.TOPIC_PREFIX])
    return [(topic, r.key, r.value) for r in written]


def history_records(cfg: ConnectorConfig, described: Described, offset: BinlogOffset, epoch: int) -> list[Record]:
    """Return the snapshot's records of the schema history (SCH-02).

    Args:
        cfg: The connector's configuration.
        described: From ``describe``.
        offset: Position of the view.
        epoch: The snapshot's epoch.
    """
    definitions, tables = described.definitions, described.state.tables
    now_ms = time.time_ns() // 1_000_000
    records: list[Record] = []
    for s in _statements(described):
        # The statement says it all; of tables that are not captured nobody reads more (see ``replay``).
        changes = tuple(
            change_dict(c) | ({} if c.id in definitions.tables else {"table": None}) for c in s.changes(tables)
        )
        context = context_of(definitions, s.db)
        record = HistoryRecord(cfg[F.TOPIC_PREFIX], offset, epoch, now_ms, s.db, s.ddl, context, changes, True)
        records.append((cfg.history_topic, None, record.to_bytes()))
    return records
