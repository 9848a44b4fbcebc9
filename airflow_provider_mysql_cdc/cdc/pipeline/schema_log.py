"""DDL met in the stream: apply it, and make the records of the schema change topic and of the schema history."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.events import QueryEvent
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import Applied, TableChange, apply
from airflow_provider_mysql_cdc.cdc.ddl.classify import leading_words
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.pipeline import wiring
from airflow_provider_mysql_cdc.cdc.schema.history import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import change_format

_DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH"})
Record = tuple[str, bytes | None, bytes | None]


def server_variables(conn: Any) -> dict[str, int]:
    """Return the variables of the source that decide what a statement means and that the binlog does not tell.

    Args:
        conn: An open connection.
    """
    names = ("lower_case_table_names", "explicit_defaults_for_timestamp")
    with conn.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"@@global.{name}" for name in names))
        return {name: int(value) for name, value in zip(names, cursor.fetchone(), strict=True)}


def statement_format_error(where: str, statement: str) -> SourceSettingError:
    """Return the error for changes of rows that were logged as a statement."""
    return SourceSettingError(
        "rows were changed by a statement that was logged as text",
        where=f"{where}: {statement}",
        why="the session had binlog_format=STATEMENT or MIXED, so the changed rows are not in the binlog",
        remedy="set binlog_format=ROW for every session, then take a new snapshot of the tables it changed",
    )


class SchemaLog:
    """Keep table structures in step with the stream.

    Args:
        cfg: The connector's configuration.
        epoch: The batch's epoch, written into each history record.
        server: Variables of the source (``server_variables``).
    """

    def __init__(self, cfg: ConnectorConfig, epoch: int, server: Mapping[str, int]) -> None:
        self._cfg, self._epoch, self._server = cfg, epoch, server
        self._format = change_format(cfg)

    def apply(self, state: SchemaState, query: QueryEvent, where: str) -> Applied:
        """Apply one statement of the binlog.

        Args:
            state: Structures before it.
            query: The QUERY event.
            where: ``file:position`` for errors.

        Raises:
            DdlParseError: The statement can change a captured table and was not understood (FAULT-15).
        """
        self._refuse_statement_format(query, where)
        try:
            return apply(state, query.sql, self.context(query), self._cfg.captures)
        except DdlParseError as error:
            if self._cfg[F.SKIP_UNPARSEABLE_DDL]:
                return Applied(state, (), "ignored")
            raise DdlParseError(
                error.what,
                where=f"{where}, database {query.db or '(none)'}: {query.sql[:500]}",
                why=error.why,
                remedy="report the statement; to go on without it set "
                "schema.history.internal.skip.unparseable.ddl=true, then take a snapshot of the table",
            ) from error

    def _refuse_statement_format(self, query: QueryEvent, where: str) -> None:
        """Refuse changes of rows that were logged as a statement: their rows are nowhere in the binlog (SETUP-16)."""
        if leading_words(query.sql, query.sql_mode or 0).partition(" ")[0] not in _DML:
            return
        # The session's own database says nothing about the tables named in the statement. More than 16 databases are
        # logged as none.
        if not query.updated_dbs or any(map(self._cfg.captures_database, query.updated_dbs)):
            raise statement_format_error(f"{where}, database {query.db or '(none)'}", query.sql[:200])

    def context(self, query: QueryEvent) -> DdlContext:
        """Return the session context that the binlog recorded with the statement."""
        return DdlContext.from_query(
            query,
            lower_case_table_names=self._server["lower_case_table_names"],
            explicit_defaults_for_timestamp=bool(self._server["explicit_defaults_for_timestamp"]),
        )

    def records(self, applied: Applied, event: Event, query: QueryEvent, at: Any) -> Iterator[Record]:
        """Yield the records of a statement that changed something: schema changes, then the history record.

        Args:
            applied: What the statement did.
            event: Its binlog event.
            query: The parsed event.
            at: The writer's position (GTID and commit time).
        """
        cfg = self._cfg
        now_ms = time.time_ns() // 1_000_000
        if cfg[F.INCLUDE_SCHEMA_CHANGES]:
            topic = wiring.schema_topic(cfg)
            for record in self._format.streamed(self._captured(applied), event, at, in_transaction=at.begun):
                yield topic, record.key, record.value
        position = BinlogOffset(event.file, event.end_pos, at.gtid, at.boundary.server_uuid)
        context = self.context(query)
        entry = HistoryRecord.of_statement(
            position, self._epoch, now_ms, query, applied.changes, prefix=cfg[F.TOPIC_PREFIX], context=context
        )
        yield cfg.history_topic, None, entry.to_bytes()

    def _captured(self, applied: Applied) -> list[TableChange]:
        cfg = self._cfg
        return [c for c in applied.changes if (cfg.captures(c.id) if c.id is not None else cfg.captures_database(c.db))]
