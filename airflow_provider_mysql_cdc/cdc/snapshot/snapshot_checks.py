"""What must hold before a snapshot goes on: the interrupted plan's binlog, and no change that is not drained.

Check that a repeated snapshot does not skip changes that are not drained.

The drain after a snapshot begins at the position of its view. If the stream already had a position, the changes between
it and the view would be lost: deletes, single changes of a row, and all changes of tables that are not part of this
snapshot.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.binlog.query import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import changes_rows, classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, ServerChangedError, StateError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts


def require_drained(cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset) -> None:
    """Check that the binlog has no change of a captured table between two positions.

    Args:
        cfg: The connector's configuration; its lists may name fewer tables than the stream captures.
        start: The position of the stream.
        end: The position at which it would continue.

    Raises:
        StateError: There is such a change; the error names its position.
        ServerChangedError: The positions belong to two servers; a retry plans the snapshot on the one that answers.
        SourceError: The binlog cannot be read.
    """
    if not comparable(start, end):
        raise ServerChangedError(
            "another server answers than the one on which the snapshot was planned",
            where=f"{start} of server {start.server_uuid}",
            why=f"server {end.server_uuid} answers",
            remedy="run the task again: it plans the snapshot on this server, behind what the stream has drained",
            retriable=True,
        )
    first_change = _first_change(cfg, start, end)
    if first_change is not None:
        raise StateError(
            "a new snapshot would skip changes that are not drained",
            where=f"{first_change}, after {start}",
            why="the drain continues at the position of the snapshot's view, so these changes would be lost for "
            "good, also "
            "those of tables that the snapshot does not read",
            remedy="read the tables with a blocking snapshot after a drain, which needs gtid_mode=ON or a signal table "
            "(signal.data.collection) and no snapshot.select.statement.overrides for them; or run the task again when "
            "no changes are pending; or decide to skip the changes: mysql_cdc_reset_offset with current, then "
            "mysql_cdc_snapshot with again=true",
            retriable=False,
        )


def _first_change(cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset) -> str | None:
    if compare_offsets(end, start) <= 0:
        return None
    is_streamed = stream_filter(cfg)
    for event in BinlogScan(cfg.connection_settings(), start, end, cfg.server_id(0)):
        if event.type == c.TABLE_MAP_EVENT:
            table_map = parse_table_map(event)
            table = TableId(table_map.db, table_map.table)
            if is_streamed(table):
                return f"rows of {table} at {event.where()}"
        elif event.type == c.QUERY_EVENT:
            query = parse_query(event)
            # The rows of an XA transaction may have been logged before the range.
            if query.sql.lstrip()[:9].upper() == "XA COMMIT":
                return f"XA COMMIT at {event.where()}"
            if changes_rows(query.sql, query.sql_mode or 0, query.updated_dbs, cfg.captures_database):
                return f"{event.where()}: {query.sql[:200]}"
            classified = classify_ddl(query.sql, DdlContext.from_query(query), in_any_case(is_streamed))
            # The character set of a database only matters to tables created later, which are found themselves.
            if classified.relevant and not {"DATABASE", "SCHEMA"} & set(classified.leading_words.split()[:2]):
                return f"{event.where()}: {query.sql[:200]}"
    return None


def stream_filter(cfg: ConnectorConfig) -> Callable[[TableId], bool]:
    """Return a filter of tables that the stream captures: those of the current lists, and others that have a topic.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: Kafka does not respond.
    """
    topics = all_partition_counts(make_admin(cfg.kafka_settings()))
    has_routers = bool(cfg.families.transforms.routers) or cfg.chain is not None

    def is_streamed(table: TableId) -> bool:
        if cfg.captures(table):
            return True
        # Transforms may route every table of the server into one topic.
        return (not has_routers or cfg.captures_database(table.db)) and record_topics.table_topic_name(
            cfg, table
        ) in topics

    return is_streamed


def require_view_binlog(cfg: ConnectorConfig, conn: MySqlConnection, ledger: LedgerState, epoch: int) -> None:
    """Refuse to continue a snapshot whose rows were read from another binlog than the server has now.

    The stream begins at the position of the snapshot's view.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        ledger: The ledger.
        epoch: The snapshot's epoch.

    Raises:
        BinlogPurgedError: The binlog was reset or purged since, or the connection leads to another server.
    """
    view = ledger.other_records.get(VIEW_KEY, {})
    if view.get("epoch") != epoch:
        return
    try:
        check_available(conn, cfg.connection_settings(), BinlogOffset.from_json(view["offset"]))
    except BinlogPurgedError as error:
        raise BinlogPurgedError(
            f"snapshot {epoch} cannot be finished: {error.what}",
            where=error.where,
            why=error.why,
            remedy="abandon it (DAG mysql_cdc_reset_offset with current), then take a new one (mysql_cdc_snapshot with "
            "again=true); or set database.hostname to the server that still has the earlier binlog",
        ) from error


def require_plan_binlog(cfg: ConnectorConfig, plan: BatchPlan, ledger: LedgerState | None) -> None:
    """Refuse to continue a plan on a server that cannot carry it out, before any writer is fenced.

    The run lock is held on the source, so it does not protect against two servers: of two connections with the same
    topic.prefix, the wrong one would end the attempts of the right one repeatedly.

    Args:
        cfg: The connector's configuration.
        plan: The plan, which is not finished.
        ledger: The ledger.

    Raises:
        BinlogPurgedError: The server's binlog is not the one of the plan.
    """
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        if plan.kind == "snapshot":
            require_view_binlog(cfg, conn, ledger or LedgerState(), plan.epoch)
            return
        for offset in (plan.start, plan.end):
            check_available(conn, settings, offset)
