"""Follow the tables of an interrupted snapshot through the binlog, from its first view to the next one."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.ddl_between import LoggedStatement, follow_tables, statements_between
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import (
    REMEDY,
    RemainingChunks,
    require_same_keys,
    resolve_chunks,
)
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import TableLineages

log = logging.getLogger(__name__)


class Resumption:
    """Find the remaining chunks of a snapshot, repeatedly as the binlog grows.

    Args:
        cfg: The connector's configuration.
        conn: An open connection.
        chunks: All chunks of the snapshot.
        done: Ids of the finished chunks.
        first_view: Position of the snapshot's first view.
        base_tables: The captured base tables, read no earlier than the first position given to ``remaining_at``.

    Raises:
        BinlogPurgedError: The server no longer has the binlog since that view.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        conn: Any,
        chunks: list[SnapshotChunk],
        done: set[str],
        first_view: BinlogOffset,
        base_tables: Collection[TableId],
    ) -> None:
        self._cfg, self._position, self._base_tables = cfg, first_view, frozenset(base_tables)
        self._unfinished = [c for c in chunks if c.id not in done]
        self._lineages = TableLineages.of(dict.fromkeys(c.table for c in chunks))
        if self._unfinished:
            check_available(conn, cfg.connection_settings(), first_view)
            self._lower_case_table_names = int(fetch_all(conn, "SELECT @@lower_case_table_names")[0][0])

    def remaining_at(self, end: BinlogOffset) -> RemainingChunks:
        """Return the remaining chunks for the tables at a later position.

        Args:
            end: The position.

        Raises:
            SchemaError: A table cannot be read exactly.
            DdlParseError: A statement in between cannot be parsed.
        """
        if not self._unfinished:
            return RemainingChunks()
        logged_statements = statements_between(self._cfg, self._position, end, self._lower_case_table_names)
        follow_tables(self._lineages, logged_statements, self._cfg.captures, self._on_unparsed)
        if compare_offsets(end, self._position) > 0:
            self._position = end
        return resolve_chunks(self._unfinished, self._lineages, self._cfg.captures, self._base_tables)

    @property
    def position(self) -> BinlogOffset:
        """Return the position up to which the tables were followed."""
        return self._position

    def _on_unparsed(self, statement: LoggedStatement) -> None:
        if self._cfg[F.SKIP_UNPARSEABLE_DDL]:
            log.warning("skipping a statement that cannot be parsed at %s: %s", statement.where, statement.sql[:200])
            return
        raise DdlParseError(
            "the snapshot cannot be resumed: a statement since its first view cannot be parsed",
            where=f"{statement.where}: {statement.sql[:500]}",
            why="the statement may concern a table that is not fully read",
            remedy=f"report the statement as a bug; to continue, {REMEDY}",
        )


def require_readable(cfg: ConnectorConfig, remaining: RemainingChunks, tables: dict[TableId, Table]) -> None:
    """Check that the remaining chunks mean the same rows as before.

    Args:
        cfg: The connector's configuration.
        remaining: The chunks.
        tables: The tables as they are now.

    Raises:
        SchemaError: The key of a table was changed.
        ConfigError: A renamed table has a snapshot.select.statement.overrides, which contains its old name.
    """
    require_same_keys(remaining.to_read, tables)
    for item in remaining.to_read:
        if item.source != item.chunk.table and cfg.select_override(item.chunk.table) is not None:
            raise ConfigError(
                f"the snapshot statement for {item.chunk.table} can no longer be used",
                where=f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{item.chunk.table}",
                why=f"the table was renamed to {item.source} since the snapshot began",
                remedy=f"rename the table back, or {REMEDY}",
            )
