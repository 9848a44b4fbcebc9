"""One task of a window: opens its view, drains as a writer of the window's batch, then reads key ranges in its view."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs, write_batch
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import with_chain
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.incremental.key_range_reader import KeyRangeReader
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import is_transient
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import DRAINED, OPENED, READY, ROWS_UNWRITTEN
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, named_errors, open_task
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import require_server, set_view_limits
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_rows


def run_window_task(index: int, arguments: StageArguments[WriterInputs]) -> dict[str, int]:
    """Run one task of a window; called in a Spark task of a barrier stage.

    Args:
        index: The task's index, which is its writer's index.
        arguments: The arguments that ``window_driver`` passes to all tasks.

    Returns:
        Records per topic of the key ranges; those of the batch are in the writer's marker.
    """
    with open_window_task(index, arguments, arguments.inputs) as reader:
        return {} if reader is None else reader.run()


@contextlib.contextmanager
def open_window_task(
    index: int, arguments: StageArguments[Any], inputs: WriterInputs
) -> Iterator[KeyRangeReader | None]:
    """Open a task's view and write its part of the batch; return what reads in the view, until the block ends.

    It is None where no window opens, or where an earlier attempt of the task has written its part of the batch.

    Args:
        index: The task's index.
        arguments: What the task was started with.
        inputs: What it needs as a writer.
    """
    with (
        open_task(index, arguments) as (cfg, channel),
        contextlib.closing(with_chain(cfg, kafka_clients.record_writer(cfg, index), ask_driver(channel))) as sink,
        named_errors(cfg),
        connect(cfg.connection_settings()) as conn,
    ):
        yield _drain_to_view(cfg, index, sink, channel, conn, inputs)


def _drain_to_view(
    cfg: ConnectorConfig,
    index: int,
    sink: TransactionalWriter,
    channel: CoordinatorClient,
    conn: MySqlConnection,
    inputs: WriterInputs,
) -> KeyRangeReader | None:
    touched_keys = open_window_view(conn, channel, table_options.decoder_options(cfg).skipped_ops)
    if touched_keys is None:
        return None
    plan = OPENED.arrive(channel).plan
    written = write_batch(cfg, index, sink, channel, plan, inputs, touched_keys)
    if touched_keys.unwritten:
        channel.call(ROWS_UNWRITTEN, touched_keys.unwritten)
    touched_keys.exclude_unwritten(DRAINED.arrive(channel))
    if written.state is None:
        return None
    reader = KeyRangeReader(
        cfg,
        plan,
        index,
        conn,
        sink,
        channel,
        written.state,
        touched_keys,
        inputs.run_id,
        written.last_transaction,
        written.commit_ts,
    )
    reader.avro_formats = RecordFormats.from_config(cfg, ask_driver(channel))
    return reader


def open_window_view(
    conn: MySqlConnection, channel: CoordinatorClient, skipped_ops: frozenset[str]
) -> WindowKeys | None:
    """Open this task's view after the low watermark and lock its tables against DDL; None if there is no window.

    The first query of a table takes a metadata lock that blocks DDL until the view is closed, so a name means the same
    table from the end of the batch on (MySQL manual, "Metadata Locking"). A statement before that is in the binlog
    before the end of the batch.
    """
    set_view_limits(conn)
    window = READY.arrive(channel).start
    if window is None:
        return None
    require_server(conn, window.server_uuid)
    touched_keys = WindowKeys(frozenset(window.tables), window.offset, window.row_id, skipped_ops=skipped_ops)
    with conn.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    for table in window.tables:
        try:
            for _ in stream_rows(conn, f"SELECT 1 FROM {table.quoted()} LIMIT 0", f"table {table}"):
                pass
        except (SchemaMismatchError, SourceError) as error:
            if isinstance(error, SourceConnectionError) and not is_transient(error.__cause__):
                raise
            touched_keys.unreadable[table] = error.why
    faults.fault_point("incremental.view_open")
    return touched_keys
