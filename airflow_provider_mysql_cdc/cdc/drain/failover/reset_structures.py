"""Table structures at the position to which a person moves the offset.

Table structures at the position to which a person moves the offset.

The schema history contains the statements that were drained. A position after them, before them, in another binlog or
after something that was skipped needs structures of its own: those that the server has now, when no captured table was
changed between that position and now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available, current_offset
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.topic_guard import history_id_record
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.schema.history import covers_offset, read_history
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import build_snapshot_schema, history_records
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import (
    TableDefinitions,
    captured_tables,
    lock_metadata,
    read_definitions,
)
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import partition_counts
from airflow_provider_mysql_cdc.cdc.snapshot.recovery import replace_history, require_no_ddl
from airflow_provider_mysql_cdc.cdc.snapshot.view_coordinator import lock_seconds

MAX_ATTEMPTS = 5


def history_covers(
    cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset, drained_to: BinlogOffset | None
) -> bool:
    """Return whether the schema history gives the structures at an offset.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        offset: The offset, just read from the server.
        drained_to: How far the stream was drained, or None when that is not known.

    Raises:
        SchemaError: A record of the history is damaged, or is another connector's; or a schema-changes signal set
            structures between the offset and what was drained.
        SinkError: Kafka cannot be read.
    """
    if drained_to is None or not partition_counts(make_admin(cfg.kafka_settings()), [cfg.history_topic]):
        return False
    try:
        drained_to = check_available(conn, cfg.connection_settings(), drained_to)
    except BinlogPurgedError:
        return False  # in another binlog, or before everything that the server still has
    if not comparable(offset, drained_to) or compare_offsets(offset, drained_to) > 0:
        return False
    signaled: list[HistoryRecord] = []

    def records() -> Iterator[HistoryRecord]:
        for record in read_history(cfg):
            if record.between and comparable(record.position, offset) and compare_offsets(record.position, offset) > 0:
                signaled.append(record)
            yield record

    if not covers_offset(records(), offset):
        return False
    if signaled:
        raise SchemaError(
            "the stream cannot move back before structures that a schema-changes signal set between two batches",
            where=f"schema-changes signal at {signaled[-1].position}",
            why="the binlog does not contain them, so the stream would not have them when it gets there again",
            remedy=f"move to {signaled[-1].position} or a later position; or read the tables again (execute-snapshot)",
        )
    return True


def definitions_at(cfg: ConnectorConfig, offset: BinlogOffset) -> TableDefinitions:
    """Return the server's definitions of the captured tables, which are those at an offset.

    Args:
        cfg: The connector's configuration.
        offset: The offset.

    Raises:
        SchemaError: A captured table was changed after the offset; names the statement and its position.
        StateError: Tables are created or dropped too quickly.
    """
    definitions, end = _read_definitions(cfg)
    require_no_ddl(cfg, offset, end)
    return definitions


def schema_records(
    cfg: ConnectorConfig, job: JobLedger, offset: BinlogOffset, epoch: int
) -> tuple[list[SideRecord], int]:
    """Return the records that describe the captured tables in the schema history, as of an offset.

    Args:
        cfg: The connector's configuration.
        job: The ledger, open for writing.
        offset: The offset.
        epoch: The epoch of the reset.

    Returns:
        The records, and the number of captured tables.

    Raises:
        SchemaError: A captured table was changed after the offset; names the statement and its position.
        StateError: Tables are created or dropped too quickly.
    """
    try:
        definitions = definitions_at(cfg, offset)
    except SchemaError as error:
        raise SchemaError(
            "the table structures at this position are not known: a captured table was changed after it",
            where=error.where,
            why="the schema history does not cover this position, and the server's structures are those after the "
            "statement",
            remedy="move to a position after the statement (current always is one) or to one that the stream has "
            "drained without a gap; or take a new snapshot (mysql_cdc_snapshot with again=true)",
        ) from error
    return _history_records(cfg, job, definitions, offset, epoch), len(definitions.tables)


def write_schemas(cfg: ConnectorConfig, job: JobLedger, offset: BinlogOffset, epoch: int) -> int:
    """Write the structures of the captured tables into the schema history, as of an offset.

    Args:
        cfg: The connector's configuration.
        job: The ledger, open for writing.
        offset: The offset.
        epoch: The epoch of the reset.

    Returns:
        The number of captured tables.

    Raises:
        SchemaError: A captured table was changed after the offset; names the statement and its position.
        StateError: Tables are created or dropped too quickly.
    """
    records, table_count = schema_records(cfg, job, offset, epoch)
    job.commit(records)
    return table_count


def rebuild_history(cfg: ConnectorConfig, owner: str, plan: BatchPlan, log: Log) -> None:
    """Rebuild a lost schema history for a batch that is not finished, so that the drain can continue the batch.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.
        plan: The batch.
        log: Takes one line of text.

    Raises:
        SchemaError: A captured table was changed since the batch's start; names the statement and its position.
        RunInProgressError: Another run is in progress.
        StateError: Tables are created or dropped too quickly.
    """
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, owner) as lock, JobLedger(cfg) as job:
        job.begin(replace(plan, owner=owner))  # fences the writers: none can add to the history from here on
        definitions, end = _read_definitions(cfg)
        lock.require()
        replace_history(cfg, plan.start, end)
        job.commit(_history_records(cfg, job, definitions, plan.start, plan.epoch))
    log(f"the schema history is rebuilt as of {plan.start}, the start of batch {plan.epoch}; the drain continues it")


def _history_records(
    cfg: ConnectorConfig, job: JobLedger, definitions: TableDefinitions, offset: BinlogOffset, epoch: int
) -> list[SideRecord]:
    job.create_topics({})
    return [*history_records(cfg, build_snapshot_schema(definitions), offset, epoch), history_id_record(cfg, job)]


def _read_definitions(cfg: ConnectorConfig) -> tuple[TableDefinitions, BinlogOffset]:
    """Return the definitions of the captured tables and a position at which they are valid."""
    missing_table = None
    for _ in range(MAX_ATTEMPTS):
        with connect(cfg.connection_settings()) as conn:
            tables = captured_tables(conn, cfg)
            missing_table = lock_metadata(conn, tables, lock_seconds(cfg))
            if missing_table is None:
                # No table of the list changes while its metadata is locked; other tables are found in the binlog.
                return read_definitions(conn, cfg, tables), current_offset(conn)
    raise StateError(
        "the definitions of the captured tables could not be read, because statements keep dropping or renaming tables",
        where=str(missing_table),
        remedy="run the task again when those statements are over",
        retriable=True,
    )
