"""Table structures after a part of a real binlog, from its statements alone; its row events are compared with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.binlog.query import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.hidden_columns import announces_hidden_columns, find_hidden_columns
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import has_hidden_members, with_members
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import read_create_statements

_SERVER_ID = 790_011


@dataclass
class StructureStream:
    """Follow the statements of some databases, as a drain does.

    Args:
        settings: How to reach the server.
        admin: A root connection.
        databases: The databases; others are somebody else's.
        state: Structures so far.
    """

    settings: ConnectionSettings
    admin: Any
    databases: tuple[str, ...]
    state: SchemaState

    def __post_init__(self) -> None:
        self._offset, self._variables = current_offset(self.admin), server_variables(self.admin)

    def follow(self) -> SchemaState:
        """Apply what was logged since the last call, and return the structures.

        Each statement goes through a record of the schema history, and each TABLE_MAP is compared with the structure.
        """
        end = current_offset(self.admin)
        with open_stream(self.settings, self._offset, server_id=_SERVER_ID, silence_timeout_s=20) as stream:
            for event in stream.events(end):
                if event.type == c.QUERY_EVENT:
                    query = parse_query(event)
                    if query.db in self.databases:
                        self._apply(query)
                elif event.type == c.TABLE_MAP_EVENT:
                    table_map = parse_table_map(event)
                    if table_map.db in self.databases:
                        table, hidden = self.state.tables[TableId(table_map.db, table_map.table)], None
                        if table.charset_assumed:
                            continue
                        if announces_hidden_columns(stream.server_version):
                            hidden = find_hidden_columns(table, table_map)
                        check_table_map(table, table_map if hidden is None else hidden.table_map)
        self._offset = end
        if assumed := [table for table in self.state.tables.values() if table.charset_assumed]:
            self._take_charsets(assumed)
        return self.state

    def _take_charsets(self, tables: list[Table]) -> None:
        """Take what the server left out of statements: character sets, and with sql_mode ANSI comments."""
        definitions, _ = read_create_statements(self.admin, [table.id for table in tables], lambda _: None)
        shown = captured_state(definitions).tables
        for table in tables:
            if (server := shown.get(table.id)) is None:
                continue
            pairs = zip(table.columns, server.columns, strict=True)
            columns = (
                replace(c, charset=s.charset, collation=s.collation, enum_values=_members(c, s)) for c, s in pairs
            )
            told = replace(
                table,
                columns=tuple(columns),
                charset=server.charset,
                collation=server.collation,
                comment=table.comment or server.comment,
                charset_assumed=False,
            )
            self.state = self.state.with_table(told, self.state.non_unique_indexes.get(table.id, ()))

    def _apply(self, query: Any) -> None:
        if query.written_by_server and has_hidden_members(query.sql):
            context = DdlContext.from_query(query)
            table = classify_ddl(query.sql, context, lambda _: True).tables[0]
            query = query._replace(sql=with_members(self.admin, table, query.sql) or query.sql)
        context = DdlContext.from_query(
            query,
            lower_case_table_names=self._variables["lower_case_table_names"],
            explicit_defaults_for_timestamp=bool(self._variables["explicit_defaults_for_timestamp"]),
            default_collation_for_utf8mb4=self._variables["default_collation_for_utf8mb4"],
            utf8mb4_after_collate=self._variables["utf8mb4_after_collate"] or None,
            keeps_written_sizes=bool(self._variables["before_8"]),
        )
        record = HistoryRecord.of_statement(self._offset, 1, 0, query, (), context=context)
        data = record.to_bytes()
        data.decode()  # no lone surrogate
        stored = HistoryRecord.from_bytes(data)
        self.state = apply_ddl(self.state, stored.ddl, stored.context).state


def _members(column: Column, server: Column) -> tuple[str, ...]:
    """Return the members of a column, as bytes where the statement left out that they are."""
    return server.enum_values if server.charset == "binary" else column.enum_values
