"""One task of a verification: opens its view, drains to the view's position, then reads parts of tables and topics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_run import write_batch
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import OPENED
from airflow_provider_mysql_cdc.cdc.incremental.window_task import open_window_view
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, named_errors, open_task
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.part_readers import RowReader, TaskTables, TopicReader
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import (
    ComparedTable,
    compared_table,
    shared_topics,
)
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import COMPARE, NEXT_PART, VerifyInputs
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import connect_views
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import time_limit, written_before_error


def run_verify_task(index: int, arguments: StageArguments[VerifyInputs]) -> Iterator[Block]:
    """Run one task of a verification; called in a Spark task of a barrier stage.

    Yields:
        Blocks of entries (``entries``), with their buckets.
    """
    inputs = arguments.inputs
    with open_task(index, arguments) as (cfg, channel), named_errors(cfg), connect_views(cfg) as conn:
        view = open_window_view(conn, channel, table_options.decoder_options(cfg).skipped_ops)
        if view is None:
            return
        plan = OPENED.arrive(channel).plan
        with contextlib.closing(kafka_clients.record_writer(cfg, index)) as sink:
            state = write_batch(cfg, index, sink, channel, plan, inputs.writer).state
        COMPARE.arrive(channel)
        if state is None:
            raise written_before_error("the verification")
        tables = compared_tables(cfg, inputs.tables, state.tables)
        with time_limit(cfg, conn):
            of_task = TaskTables(cfg, plan, channel, inputs, tables)
            yield from _read_parts(of_task, RowReader(of_task, conn, view.unreadable), TopicReader(of_task))


def _read_parts(of_task: TaskTables, rows: RowReader, topics: TopicReader) -> Iterator[Block]:
    """Yield the blocks of all parts that this task gets, until the driver has none left."""
    while True:
        part = of_task.channel.call(NEXT_PART, EMPTY)
        if part.chunk is not None:
            yield from rows.read(part.chunk)
        elif part.records is not None:
            yield from topics.read(part.records)
        else:
            yield from of_task.take_rest()
            return


def compared_tables(
    cfg: ConnectorConfig,
    names: Sequence[TableId],
    structures: Mapping[TableId, Any],
) -> dict[TableId, ComparedTable]:
    """Return the tables to compare.

    Args:
        cfg: The connector's configuration.
        names: Their names, in the order of their numbers.
        structures: Structures of all tables; one that is missing was dropped meanwhile.
    """
    shared = shared_topics(cfg, structures)
    return {
        name: compared_table(cfg, number, structures[name], shared=shared)
        for number, name in enumerate(names)
        if name in structures
    }
