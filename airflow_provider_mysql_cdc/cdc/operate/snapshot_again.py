"""Plan a repeated snapshot of a running stream, so that the stream skips no change.

It is a blocking ad-hoc snapshot: a drain to the end of the binlog, and then, while the stream waits, the tables
(docs/adr/0012-ad-hoc-snapshots.md). So the lists of captured tables stay those of the stream, whatever tables are read
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.drain.failover.failover import place_on_server
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, ConfigError, SchemaError
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_recorded_history
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import snapshot_unstarted
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import undrained_start
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import reconcile_store
from airflow_provider_mysql_cdc.cdc.schema.history import require_history
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import base_tables, captured_tables
from airflow_provider_mysql_cdc.cdc.signals.actions import entry_for
from airflow_provider_mysql_cdc.cdc.signals.signal_table import watermark_obstacle
from airflow_provider_mysql_cdc.cdc.snapshot import recovery
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_checks import stream_filter

TABLE_LIST_FIELDS = (F.DATABASE_INCLUDE_LIST, F.DATABASE_EXCLUDE_LIST, F.TABLE_INCLUDE_LIST, F.TABLE_EXCLUDE_LIST)
ALL_TABLES = ".*"
_MAX_SHOWN_TABLES = 5


@dataclass(frozen=True, slots=True)
class RepeatedSnapshot:
    """Hold how the tables of an existing stream are read again.

    Args:
        collections: Tables of the blocking snapshot: names and expressions as in ``data-collections``.
        reason: Why no blocking snapshot is possible. The stream is then drained to its end, and the new snapshot that
            follows is refused if anything has changed meanwhile.
    """

    collections: tuple[str, ...] = ()
    reason: str = ""


def plan_repeated_snapshot(
    cfg: ConnectorConfig, chosen: ConnectorConfig, store: OffsetStore, owner: str, log: Log, *, again: bool
) -> RepeatedSnapshot | None:
    """Decide how to take a snapshot when a stream may exist.

    Args:
        cfg: The configuration of the stream.
        chosen: The same configuration, with the tables to read as its list of captured tables.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        again: Whether a snapshot is requested although an offset is stored.

    Returns:
        How to read the tables of the stream; None when there is no stream to keep, an interrupted snapshot continues,
        or no snapshot is due: ``prepare_snapshot`` then decides.

    Raises:
        ConfigError: No captured table is chosen, or this configuration captures fewer tables than the stream.
        CdcError: The server or Kafka cannot be reached.
    """
    if not again and str(cfg[F.SNAPSHOT_MODE]) != "always":
        return None
    cfg = at_one_server(cfg, store, log)
    result, ledger = reconcile_store(cfg, store, log, owner)
    state = result.state
    pending = state.pending
    if (
        pending is not None
        and pending.kind == "snapshot"
        and not (pending.gapless and snapshot_unstarted(pending, ledger))
    ):
        return None
    if state.committed is None or recovery.is_recovery(cfg) or str(cfg[F.SNAPSHOT_MODE]) == "initial_only":
        return None
    with connect(cfg.connection_settings()) as conn:
        if purged_reason := _purged_reason(cfg, conn, state):
            _require_all_tables(cfg, chosen, conn, purged_reason)
            return None
        if undrained_start(cfg, conn, state.committed, ledger, log) is None:
            return None
        tables = _chosen_tables(cfg, chosen, conn)
        _require_stream_tables(cfg, conn, ledger)
        if _history_lost(cfg, ledger, log):
            return None
        if reason := _blocking_obstacle(cfg, conn, tables):
            return RepeatedSnapshot(reason=reason)
        all_captured = len(tables) == len(captured_tables(conn, cfg))
    return RepeatedSnapshot((ALL_TABLES,) if all_captured else tuple(map(entry_for, tables)))


def capturing_only(cfg: ConnectorConfig, tables: Sequence[str]) -> ConnectorConfig:
    """Return a configuration that captures only certain tables.

    Args:
        cfg: The configuration of the stream.
        tables: Entries as in ``table.include.list``; an empty list leaves the configuration as it is.

    Raises:
        ConfigError: An entry is not a regular expression.
    """
    include_list = ",".join(entry.strip() for entry in tables if entry.strip())
    return (
        ConnectorConfig.from_properties(cfg.properties() | {F.TABLE_INCLUDE_LIST.name: include_list})
        if include_list
        else cfg
    )


def _purged_reason(cfg: ConnectorConfig, conn: MySqlConnection, state: StoredState) -> str:
    """Return why no drain can continue from the stored offset or finish the pending batch; empty when one can."""
    settings, pending = cfg.connection_settings(), state.pending
    try:
        if state.committed is not None:
            check_available(conn, settings, place_on_server(cfg, conn, state.committed))
        # An unfinished batch of another server is moved by the drain.
        if pending is not None and place_on_server(cfg, conn, pending.start) is pending.start:
            check_available(conn, settings, pending.start)
            check_available(conn, settings, pending.end)
    except BinlogPurgedError as error:
        if error.can_retry:
            raise
        return error.message()
    return ""


def _require_all_tables(cfg: ConnectorConfig, chosen: ConnectorConfig, conn: MySqlConnection, reason: str) -> None:
    """Refuse to read only some tables when changes of all tables are lost."""
    unchosen = [table for table in captured_tables(conn, cfg) if not chosen.captures(table)]
    if unchosen:
        raise ConfigError(
            "changes of the stream are lost, and some of its tables would not be read again",
            where=f"tables not chosen: {_list_tables(unchosen)}",
            why=reason,
            remedy="choose no tables, which reads all of them; or skip the lost changes deliberately: run "
            "mysql_cdc_reset_offset with current, then mysql_cdc_snapshot with again=true and the tables",
        )


def _list_tables(tables: Sequence[TableId]) -> str:
    return ", ".join(map(str, tables[:_MAX_SHOWN_TABLES])) + (
        f" and {len(tables) - _MAX_SHOWN_TABLES} more" if tables[_MAX_SHOWN_TABLES:] else ""
    )


def _chosen_tables(cfg: ConnectorConfig, chosen: ConnectorConfig, conn: MySqlConnection) -> list[TableId]:
    tables = [table for table in captured_tables(conn, cfg) if chosen.captures(table) and cfg.snapshots_rows(table)]
    if not tables:
        raise ConfigError(
            "no captured table is chosen",
            where=f"tables: {', '.join(map(str, chosen.texts.get(F.TABLE_INCLUDE_LIST.name, '').split(',')))[:200]}",
            why="no base table that the account can see is both captured by this stream and matched by an entry",
            remedy="name captured tables as database.table; to capture more tables, change table.include.list of the "
            "connection and read them with mysql_cdc_adhoc_snapshot",
        )
    return tables


def _require_stream_tables(cfg: ConnectorConfig, conn: MySqlConnection, ledger: LedgerState | None) -> None:
    """Refuse table lists that differ from the last batch and exclude tables that have a topic of the stream.

    The tables to read again must not change what the stream captures: the drain before the snapshot would skip the
    changes of all other tables.
    """
    pins_before = ledger.plan.pins if ledger is not None and ledger.plan is not None else {}
    pins_now = property_pins(cfg, snapshot=False)
    if all(pins_before.get(name.name) == pins_now.get(name.name) for name in TABLE_LIST_FIELDS):
        return
    has_topic = stream_filter(cfg)
    excluded = [table for table in base_tables(conn) if not cfg.captures(table) and has_topic(table)]
    if excluded:
        raise ConfigError(
            "the lists of captured tables exclude tables of the stream",
            where=", ".join(
                sorted(name.name for name in TABLE_LIST_FIELDS if pins_before.get(name.name) != pins_now.get(name.name))
            ),
            why=f"they differ from those of the last batch; changes of {_list_tables(excluded)} would be skipped",
            remedy="choose the tables to read in the argument (or form field) tables, not by these properties; to "
            "remove tables from the stream, run mysql_cdc_drain with these properties first",
        )


def _blocking_obstacle(cfg: ConnectorConfig, conn: MySqlConnection, tables: list[TableId]) -> str:
    """Return why no blocking snapshot is possible; empty when one is."""
    if not cfg[F.SNAPSHOT_MODE].reads_rows:
        return f"snapshot.mode={cfg[F.SNAPSHOT_MODE]} reads only structures"
    overridden = [str(table) for table in tables if cfg.select_override(table) is not None]
    if overridden:
        return f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name} defines SELECT statements for {', '.join(overridden)}"
    return watermark_obstacle(conn, cfg) or ""


def _history_lost(cfg: ConnectorConfig, ledger: LedgerState | None, log: Log) -> bool:
    """Return whether the schema history is lost, so that no batch can be planned; a new snapshot rewrites it."""
    try:
        require_history(cfg)
        require_recorded_history(cfg, ledger)
    except SchemaError as error:
        log(f"no batch can be drained before the snapshot: {error.message()}")
        return True
    return False
