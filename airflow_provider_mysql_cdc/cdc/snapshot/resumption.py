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
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, order
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.ddl_between import Between, follow, statements
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import REMEDY, Left, place, require_same_keys
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import TableLives

log = logging.getLogger(__name__)


class Resumption:
    """Find what is left of a snapshot, again and again while the binlog goes on.

    Args:
        cfg: The connector's configuration.
        conn: An open connection.
        chunks: All chunks of the snapshot.
        done: Ids of those that are done.
        view: Position of the snapshot's first view.
        standing: The captured base tables, read not before the position that is looked at first.

    Raises:
        BinlogPurgedError: The server no longer holds the binlog since that view.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        conn: Any,
        chunks: list[SnapshotChunk],
        done: set[str],
        view: BinlogOffset,
        standing: Collection[TableId],
    ) -> None:
        self._cfg, self._at, self._standing = cfg, view, frozenset(standing)
        self._left = [c for c in chunks if c.id not in done]
        self._lives = TableLives.of(dict.fromkeys(c.table for c in chunks))
        if self._left:
            check_available(conn, cfg.connection_settings(), view)
            self._names_in = int(fetch_all(conn, "SELECT @@lower_case_table_names")[0][0])

    def until(self, end: BinlogOffset) -> Left:
        """Return what is left, as the tables stand at a later position.

        Args:
            end: The position.

        Raises:
            SchemaError: It cannot be read exactly.
            DdlParseError: A statement in between is not understood.
        """
        if not self._left:
            return Left()
        found = statements(self._cfg, self._at, end, self._names_in)
        follow(self._lives, found, self._cfg.captures, self._unread)
        if order(end, self._at) > 0:
            self._at = end
        return place(self._left, self._lives, self._cfg.captures, self._standing)

    @property
    def at(self) -> BinlogOffset:
        """Return the position up to which the tables were followed."""
        return self._at

    def _unread(self, statement: Between) -> None:
        if self._cfg[F.SKIP_UNPARSEABLE_DDL]:
            log.warning("a statement is passed over at %s: %s", statement.where, statement.sql[:200])
            return
        raise DdlParseError(
            "a statement since the snapshot's first view is not understood",
            where=f"{statement.where}: {statement.sql[:500]}",
            why="it can be about a table that is not read yet",
            remedy=f"report the statement; {REMEDY}",
        )


def require_readable(cfg: ConnectorConfig, left: Left, tables: dict[TableId, Table]) -> None:
    """Check that the chunks that are left mean the same rows as before.

    Args:
        cfg: The connector's configuration.
        left: The chunks.
        tables: The tables as they are now.

    Raises:
        SchemaError: The key of a table was changed.
        ConfigError: A renamed table is read by a statement of the user's own, which names it.
    """
    require_same_keys(left.placed, tables)
    for item in left.placed:
        if item.source != item.chunk.table and cfg.select_override(item.chunk.table) is not None:
            raise ConfigError(
                f"the snapshot statement for {item.chunk.table} cannot be used any more",
                where=f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{item.chunk.table}",
                why=f"the table is called {item.source} since the snapshot began",
                remedy=f"rename the table back, or {REMEDY}",
            )
