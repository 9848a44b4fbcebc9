"""The routes of a writer: one for each table version, found again at each of its TABLE_MAP events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import TABLE_ID_BYTES, check_rows, rows_header
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, parse_table_map
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.hidden_columns import (
    HiddenColumns,
    announces_hidden_columns,
    find_hidden_columns,
)
from airflow_provider_mysql_cdc.cdc.decode.table_correction import TableCorrection, find_correction
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import TouchedTables, unknown_structure_error
from airflow_provider_mysql_cdc.cdc.drain.table_route import (
    KeptRoutes,
    RouteSettings,
    TableRoute,
    make_route,
    skipped_route,
)
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    CdcError,
    ConfigError,
    RegistryAuthError,
    RegistryConnectionError,
    RegistryError,
    SchemaError,
    SchemaIdChangedError,
)
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import unshown_members_warning
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalRows

log = logging.getLogger(__name__)
CorrectTable = Callable[[TableCorrection, Event], SchemaState]
"""Records a corrected structure, and returns all structures with it."""
MAX_UNCHECKED_ROUTES = 1_000
"""Routes that are cached before the cache is searched for tables that no longer exist."""

_REFUSALS = (SchemaError, RegistryError, ConfigError)
_REFUSALS_OF_ALL_TABLES = (RegistryAuthError, RegistryConnectionError, SchemaIdChangedError)
"""Errors of a schema registry that say nothing about one table version."""


@dataclass(slots=True)
class _CachedRoute:
    """Hold a route, the structure that it was built for, and the statement count when that was last checked."""

    route: TableRoute
    table_version: Table | None
    statement_count: int
    has_names: bool


class TableRoutes:
    """Find the route of each TABLE_MAP event, and build it where the table has a new structure.

    Args:
        settings: What all routes of the writer have in common.
        shares: Gives the writer's share of each table's topic.
        signals: Reads the signal table; None where no signal or watermark comes from it.
        window_keys: Is prepared for each version of a table under incremental snapshot; None outside of a window.
        before_build: Called before a route is built, which may wait for the schema registry.
        on_refused: Called when records of a table version cannot be written as configured, with the error.
        touched_tables: Gets the tables of which rows come; None where another writer does that.
        note: Sends a line of text to the job's log, which has it once.
        skipped: Tables that skipped statements touched, with ``file:position`` of the statement.
        kept: Routes that earlier batches have built; None for none.

    Attributes:
        by_id: Routes by the table ids that TABLE_MAP events announced.
        server_version: Returns the version of the server that wrote the current binlog file.
    """

    def __init__(
        self,
        settings: RouteSettings,
        shares: TopicShares,
        signals: SignalRows | None = None,
        window_keys: WindowKeys | None = None,
        before_build: Callable[[], None] = lambda: None,
        on_refused: Callable[[CdcError], None] = lambda error: None,
        touched_tables: TouchedTables | None = None,
        note: Callable[[str], None] = lambda text: None,
        skipped: Mapping[TableId, str] = MappingProxyType({}),
        kept: KeptRoutes | None = None,
    ) -> None:
        self._settings, self._shares, self._signals = settings, shares, signals
        self._window_keys, self._before_build, self._on_refused = window_keys, before_build, on_refused
        self._touched_tables, self._note, self._skipped = touched_tables, note, dict(skipped)
        self._kept = KeptRoutes() if kept is None else kept
        self._cache: dict[bytes, _CachedRoute] = {}
        self._statements, self._cache_limit = 0, MAX_UNCHECKED_ROUTES
        self.by_id: dict[int, TableRoute] = {}
        self.server_version: Callable[[], str] = lambda: ""

    def on_schema_change(self) -> None:
        """Forget which table each id stands for, and check each cached route's structure before its next use."""
        self._statements += 1
        self.by_id.clear()

    def on_correction(self) -> None:
        """Check each cached route's structure before its next use; the ids in the statement stand for their tables."""
        self._statements += 1

    def on_skipped_statement(self, tables: Iterable[TableId], where: str) -> None:
        """Refuse rows of tables from here on, unless they name their columns (``statement_reports``).

        Args:
            tables: The tables that the statement may have changed.
            where: ``file:position`` of the statement.
        """
        self._skipped.update(dict.fromkeys(tables, where))
        self._statements += 1

    def of_table_map(self, event: Event, state: SchemaState, correct: CorrectTable) -> TableRoute:
        """Return the route of a TABLE_MAP event, and use it for the rows of its table id from now on.

        Args:
            event: The event.
            state: Table structures as of this event.
            correct: Called with the structure in the event where the table has another one.

        Raises:
            SchemaError: The schema history does not know the table, or knows another structure, which the event cannot
                correct.
            SinkError: The table's topic cannot be created.
            RegistryError: The schema registry does not accept a schema.
        """
        buf, body = event.buf, event.body
        table_id = int.from_bytes(buf[body : body + 6], "little")
        raw = buf[body + 6 : event.end]
        cached = self._cache.get(raw)
        if cached is None or (cached.statement_count != self._statements and not self._is_current(cached, state)):
            table_map = parse_table_map(event)
            route, state = self._build_route(table_map, event, state, correct)
            self._evict_stale(state)
            cached = self._cache[raw] = _CachedRoute(
                route, state.tables.get(route.table), self._statements, table_map.names is not None
            )
            self._note_rows(cached)
        route = self.by_id[table_id] = cached.route
        return route

    def announce(self, table_id: int, table_map: bytes) -> bool:
        """Use the route of a TABLE_MAP event that was met before, unless structures may have changed since.

        Args:
            table_id: The id in it.
            table_map: The event's body after the id.

        Returns:
            Whether there is one; ``of_table_map`` looks at any other event.
        """
        cached = self._cache.get(table_map)
        if cached is None or cached.statement_count != self._statements:
            return False
        self.by_id[table_id] = cached.route
        return True

    def of_rows(self, event: Event) -> tuple[TableRoute, Event, int]:
        """Return the route of a row event, the event and the offset of its first row, whatever its header looks like.

        Args:
            event: The event.

        Returns:
            The route, the event without hidden columns, and the offset in it; 0 where nothing is read of the rows.

        Raises:
            BinlogCorruptError: No TABLE_MAP event announced its table id, or it cannot belong to its table.
            SchemaMismatchError: It is not known which of its columns are hidden.
        """
        table_id = int.from_bytes(event.buf[event.body : event.body + TABLE_ID_BYTES], "little")
        if self.is_unused(table_id):
            return self.by_id[table_id], event, 0
        header = rows_header(event)
        route = self.by_id.get(header.table_id)
        if route is None:
            raise _unknown_table_error(event, header.table_id)
        if route.hidden is not None:
            event, header = route.hidden.visible_rows(event, header)
        if route.signals is not None:
            # Also for events that an earlier attempt committed: the end of their transaction may not be committed.
            route.signals.read_event(event, header, c.ROW_EVENT_KINDS[event.type])
        if route.decoder is not None:
            check_rows(event, header, len(route.decoder.table.columns))
        return route, event, header.pos

    def is_unused(self, table_id: int) -> bool:
        """Return whether nothing is read of the rows of a table.

        Args:
            table_id: The id that a TABLE_MAP event announced.
        """
        route = self.by_id.get(table_id)
        if route is None or route.decoder is not None or route.signals is not None or route.hidden is not None:
            return False  # with hidden columns, a row that no writer can read stops all before one of them commits
        return self._window_keys is None or route.table not in self._window_keys.tables

    def _evict_stale(self, state: SchemaState) -> None:
        """Drop routes of tables that are gone or changed, before there are twice as many as tables."""
        if len(self._cache) >= self._cache_limit:
            self._cache = {raw: kept for raw, kept in self._cache.items() if self._is_current(kept, state)}
            self._cache_limit = max(MAX_UNCHECKED_ROUTES, 2 * len(self._cache))

    def _is_current(self, cached: _CachedRoute, state: SchemaState) -> bool:
        """Return whether a table still has the structure that a route was built for."""
        if state.tables.get(cached.route.table) is not cached.table_version:
            return False
        if cached.route.table in self._skipped and not cached.has_names:
            return False
        cached.statement_count = self._statements
        self._note_rows(cached)
        return True

    def _note_rows(self, cached: _CachedRoute) -> None:
        """Note the first rows of a table after a statement, if nothing but the schema history says what they are."""
        if self._touched_tables is not None and not cached.has_names:
            self._touched_tables.on_rows(cached.route.table)

    def _build_route(
        self, table_map: TableMap, event: Event, state: SchemaState, correct: CorrectTable
    ) -> tuple[TableRoute, SchemaState]:
        """Build the route of a TABLE_MAP event, with a reader of signals where the table is the signal table.

        Returns:
            The route, and the structures, in which the table's is the one in the event.
        """
        self._before_build()
        hidden = self._find_hidden_columns(table_map, state)
        if hidden is not None:
            table_map = hidden.table_map
        correction = self._find_correction(table_map, state)
        if correction is not None:
            state = correct(correction, event)
        route = self._table_route(table_map, state, event)
        if hidden is not None:
            route = replace(route, hidden=hidden, headers={})
        if self._signals is not None:
            reader = self._signals.row_reader(state.tables.get(route.table), table_map, event.where())
            if reader is not None:
                return replace(route, signals=reader, headers={}), state
        return route, state

    def _find_hidden_columns(self, table_map: TableMap, state: SchemaState) -> HiddenColumns | None:
        """Return the hidden columns in a TABLE_MAP event; None where it has none."""
        table = state.tables.get(TableId(table_map.db, table_map.table))
        if table is None or not announces_hidden_columns(self.server_version()) or self._waits_for_structure(table_map):
            return None
        return find_hidden_columns(table, table_map)

    def _find_correction(self, table_map: TableMap, state: SchemaState) -> TableCorrection | None:
        """Return the structure in a TABLE_MAP event where the table has another one.

        Each writer looks at all captured tables, also at those of which it produces nothing, so that all writers have
        the same structures.
        """
        cfg, table_id = self._settings.cfg, TableId(table_map.db, table_map.table)
        table = state.tables.get(table_id)
        if table is None or not cfg.needs_schema(table_id):
            return None
        if self._waits_for_structure(table_map):
            return None  # whoever needs its rows refuses them, and says why
        # A signal table that is not captured is read without the schema history if need be (``matching_structure``).
        return find_correction(table, table_map) if table_map.names is not None or cfg.captures(table_id) else None

    def _table_route(self, table_map: TableMap, state: SchemaState, event: Event) -> TableRoute:
        """Build a table's route, and prepare the window's keys for its rows."""
        cfg, table_id = self._settings.cfg, TableId(table_map.db, table_map.table)
        if not cfg.captures(table_id):
            return skipped_route(table_id)
        table = state.tables.get(table_id)
        share = self._shares.ensure_share(table_id)
        # Transaction metadata counts the rows of all captured tables.
        is_written = bool(share.assigned) or cfg[F.PROVIDE_TRANSACTION_METADATA]
        if table is not None and (is_written or self._window_keys is not None) and self._waits_for_structure(table_map):
            error = unknown_structure_error(table_id, event.where(), self._skipped[table_id])
            self._on_refused(error)
            raise error
        if self._window_keys is not None and table is not None:
            self._window_keys.prepare_table(table, table_map)
        if not is_written:
            return skipped_route(table_id, share)
        if table is None:
            self._pass_unknown_table(table_id, event)
            return skipped_route(table_id, share)
        if table_map.names is None and (text := unshown_members_warning(table, self.server_version())) is not None:
            self._note(text)
        try:
            return self._make_route(table_map, table, share)
        except _REFUSALS as error:
            if not isinstance(error, _REFUSALS_OF_ALL_TABLES):
                self._on_refused(error)
            raise

    def _waits_for_structure(self, table_map: TableMap) -> bool:
        """Return whether a skipped statement may have changed what the rows of a TABLE_MAP event mean."""
        return table_map.names is None and TableId(table_map.db, table_map.table) in self._skipped

    def _make_route(self, table_map: TableMap, table: Table, share: TopicShare) -> TableRoute:
        """Return a table's route, as an earlier batch has built it if it would be built from the same now."""
        route = self._kept.find(table_map, table, share)
        if route is None:
            route = make_route(self._settings, table, table_map, share)
            self._kept.keep(table_map, table, share, route)
        return route

    def _pass_unknown_table(self, table: TableId, event: Event) -> None:
        """Refuse rows of an unknown table, unless ``inconsistent.schema.handling.mode`` skips them (STRM-24)."""
        mode = self._settings.cfg[F.INCONSISTENT_SCHEMA_HANDLING_MODE]
        if mode == "fail":
            raise SchemaError(
                "rows of a table that the schema history does not know",
                where=f"{event.file}:{event.start_pos}, table {table}",
                why="the table was not captured when its CREATE TABLE was read, or the history topic is incomplete",
                remedy="take a snapshot of the table (snapshot.mode=recovery rebuilds the schema history)",
            )
        if mode == "warn":
            log.warning(
                "rows of %s are skipped from %s on: the schema history does not know the table", table, event.where()
            )


def _unknown_table_error(event: Event, table_id: int) -> BinlogCorruptError:
    """Return the error for rows without a TABLE_MAP before them."""
    return BinlogCorruptError(
        f"a row event refers to table id {table_id}, which no TABLE_MAP event announced",
        where=f"{event.file}:{event.start_pos}",
        why="the start position is not a transaction boundary, or the binlog is damaged",
        remedy="check the binlog with mysqlbinlog --verify-binlog-checksum around this position",
    )
