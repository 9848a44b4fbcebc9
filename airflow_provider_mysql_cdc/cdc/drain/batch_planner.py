"""Plan a batch: fix its end before anything is read, and have its topics assigned to writers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import is_complete, with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import (
    BinlogEnd,
    binary_logs,
    binlog_status,
    bytes_between,
    check_available,
    current_offset,
    stated_end,
)
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.drain.failover.server_transactions import with_unread_purged
from airflow_provider_mysql_cdc.cdc.errors import SourceSettingError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats.record_topics import assign_partitions
from airflow_provider_mysql_cdc.cdc.job.topic_guard import has_routed_topics, topic_partitions
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import standard_text
from airflow_provider_mysql_cdc.cdc.model.offset import (
    BinlogOffset,
    PreparedXa,
    compare_offsets,
    file_number,
    same_base,
    same_position,
)
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables


def choose_end(
    conn: MySqlConnection, start: BinlogOffset, max_bytes: int, reached: BinlogOffset | None = None
) -> BinlogOffset:
    """Return the batch's end: the server's current position, or the end of an earlier file.

    Transactions never span binlog files, so the end of a file is a transaction boundary.

    Args:
        conn: An open connection to the source.
        start: The batch's start, which the server still has.
        max_bytes: ``max.batch.bytes``; 0 means no limit.
        reached: The server's position if it was read a moment ago; None reads it.

    Raises:
        SourceSettingError: The server's binlog goes on under another base name, and ``start`` is where it changed.
    """
    current = last_offset_of_base(conn, start, reached)
    if max_bytes <= 0:
        return current
    first_number, total = file_number(start.file), 0
    logs = [(name, size) for name, size in binary_logs(conn) if same_base(name, start.file)]
    files = sorted(((file_number(name), name, size) for name, size in logs), key=lambda f: f[0])
    for (number, _, size), next_file in pairwise(files):
        if number < first_number:
            continue
        total += size - (start.pos if number == first_number else 0)
        if total >= max_bytes and next_file[0] <= file_number(current.file):
            return BinlogOffset(next_file[1], 4, None, current.server_uuid)
    return current


def last_offset_of_base(
    conn: MySqlConnection, start: BinlogOffset, reached: BinlogOffset | None = None
) -> BinlogOffset:
    """Return the end of the server's binlog, or of its last file before ``log_bin`` was changed behind an offset.

    The files of the new base name are numbered from 1 again, while the index may still list the former ones. A server
    restarts for such a change, so the last file before it ends with a whole transaction.

    Args:
        conn: An open connection to the source.
        start: The offset.
        reached: The server's position if it was read a moment ago; None reads it.

    Raises:
        SourceSettingError: Everything before the change was read.
    """
    current = reached or current_offset(conn)
    if same_base(start.file, current.file):
        return current
    logs = binary_logs(conn)
    first = next((n for n, (name, _) in enumerate(logs) if name == start.file), None)
    if first is None:
        return current  # refused by ``check_available``
    changed = next(n for n in range(first, len(logs)) if not same_base(logs[n][0], start.file))
    end = BinlogOffset(*logs[changed - 1], None, current.server_uuid)
    if not same_position(end, start):
        return end
    place = f"{logs[changed][0]}:{FILE_START}"
    raise SourceSettingError(
        "the server's binlog files have another base name",
        where=str(start),
        why=f"everything before the change of log_bin was read, and the binlog goes on at {place}; positions of files "
        "with different base names have no order",
        remedy=f"trigger mysql_cdc_reset_offset with offset={place}, from which the stream goes on without a gap",
    )


def new_end(conn: MySqlConnection, start: BinlogOffset) -> BinlogEnd | None:
    """Return the end of the server's binlog, or None if it is the position that a stream has reached.

    As long as there is nothing new it takes one query. Another server, or a file that was replaced by another one of
    the same name and length, is not noticed then; ``plan_drain`` notices it.

    Args:
        conn: An open connection to the source.
        start: The committed offset.
    """
    rows = binlog_status(conn)
    if rows:
        gtids = None if start.gtids is None else standard_text(rows[0]["Executed_Gtid_Set"])
        if (rows[0]["File"], int(rows[0]["Position"]), gtids) == (start.file, start.pos, start.gtids):
            return None
    return stated_end(conn, rows)


def range_bytes(conn: MySqlConnection, start: BinlogOffset, end: BinlogOffset) -> int:
    """Return the size of a range of the binlog in bytes."""
    files = binary_logs(conn) if start.file != end.file else []
    return bytes_between(files, start, end)


def plan_drain(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    start: BinlogOffset,
    epoch: int,
    owner: str,
    weights: Mapping[str, int],
    prepared: tuple[PreparedXa, ...] = (),
    *,
    reached: BinlogEnd | None = None,
    even_empty: bool = False,
    continued_from: BinlogOffset | None = None,
    start_checked: bool = False,
) -> BatchPlan | None:
    """Return the plan of the next batch, or None when nothing was logged since ``start``.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        start: The committed offset.
        epoch: The new batch's epoch.
        owner: The run (``dag_id/run_id/task_id/map_index``).
        weights: Records per topic in earlier batches.
        prepared: XA transactions that were prepared and not decided when the last batch ended.
        reached: The end of the server's binlog if it was read a moment ago; None reads it.
        even_empty: Whether to plan a batch even when nothing was logged, because the job has other work.
        continued_from: The committed offset, where ``start`` is its place in another server's binlog.
        start_checked: Whether this driver has compared the start's file a moment ago, over the same connection. A
            batch that ends in the same file is then planned without comparing it again.

    Raises:
        BinlogPurgedError: The start is no longer on the server.
    """
    reached = reached or stated_end(conn, binlog_status(conn))
    # The file's fingerprint is read after the end, so that it is also that of the end's file.
    end = choose_end(conn, start, cfg[F.MAX_BATCH_BYTES], reached.offset)
    if not (start_checked and _in_one_file(start, end)):
        start = check_available(conn, cfg.connection_settings(), start)
    if compare_offsets(end, start) <= 0:
        if not even_empty:
            return None
        end = start
    writers = cfg[F.DRAIN_WRITERS]
    if writers > 1 and range_bytes(conn, start, end) < cfg[F.DRAIN_SMALL_BATCH_BYTES]:
        writers = 1
    start = with_unread_purged(start, reached.purged)
    plan = _build_plan(cfg, conn, (start, end), epoch, owner, prepared, writers)
    if writers > 1:  # one writer has all topics, and the ledger their partition counts
        plan = with_assignments(cfg, conn, plan, weights)
    return plan if continued_from is None else replace(plan, continued_from=continued_from)


def _in_one_file(start: BinlogOffset, end: BinlogOffset) -> bool:
    """Return whether an end that was just read names the file of a start whose fingerprint is complete.

    The end gets the start's fingerprint then. If the file was replaced meanwhile, the next comparison finds that out.
    """
    return (end.server_uuid, end.file) == (start.server_uuid, start.file) and is_complete(start.origin)


def plan_window_batch(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    offsets: tuple[BinlogOffset, BinlogOffset | None],
    epoch: int,
    owner: str,
    weights: Mapping[str, int],
    prepared: tuple[PreparedXa, ...],
    writers: int,
) -> BatchPlan:
    """Return the plan of a batch that ends at the end of the binlog, even if nothing was logged since its start.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        offsets: The committed offset, and the position at which the batch ends; None for the end of the binlog.
        epoch: The new batch's epoch.
        owner: The run (``dag_id/run_id/task_id/map_index``).
        weights: Records per topic in earlier batches.
        prepared: XA transactions that were prepared and not decided when the last batch ended.
        writers: Number of writers.

    Raises:
        BinlogPurgedError: The start is no longer on the server.
    """
    reached = stated_end(conn, binlog_status(conn))
    end = offsets[1] or last_offset_of_base(conn, offsets[0], reached.offset)  # as in plan_drain
    start = check_available(conn, cfg.connection_settings(), offsets[0])
    if compare_offsets(end, start) <= 0:
        end = start
    start = with_unread_purged(start, reached.purged)
    return with_assignments(cfg, conn, _build_plan(cfg, conn, (start, end), epoch, owner, prepared, writers), weights)


def _build_plan(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    offsets: tuple[BinlogOffset, BinlogOffset],
    epoch: int,
    owner: str,
    prepared: tuple[PreparedXa, ...],
    writers: int,
) -> BatchPlan:
    return BatchPlan(
        epoch=epoch,
        kind="drain",
        start=offsets[0],
        end=_with_fingerprint(conn, cfg, *offsets),
        writers=writers,
        owner=owner,
        created_ms=time.time_ns() // 1_000_000,
        server_id=cfg.server_id(0),
        prepared=prepared,
        pins=property_pins(cfg, snapshot=False),
    )


def _with_fingerprint(
    conn: MySqlConnection, cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset
) -> BinlogOffset:
    """Return the end with its file's fingerprint: the start's, where that is complete and of the same file."""
    if end.file == start.file and is_complete(start.origin):
        return replace(end, origin=start.origin)
    return with_fingerprint(conn, cfg.connection_settings(), end)


def with_end(cfg: ConnectorConfig, conn: MySqlConnection, plan: BatchPlan, end: BinlogOffset) -> BatchPlan:
    """Return a plan that ends earlier.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        plan: The plan.
        end: A transaction boundary inside of it.
    """
    return replace(plan, end=_with_fingerprint(conn, cfg, plan.start, end))


def with_assignments(
    cfg: ConnectorConfig, conn: MySqlConnection, plan: BatchPlan, weights: Mapping[str, int]
) -> BatchPlan:
    """Return a plan with the topics that exist now, assigned to its writers; the batch has not begun yet.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        plan: The plan.
        weights: Records per topic in earlier batches.
    """
    has_routers = bool(cfg.families.transforms.routers)
    counts = topic_partitions(cfg, captured_tables(conn, cfg) if has_routed_topics(cfg) else ())
    first_writer_topics = (
        {cfg.route_topic(topic).topic for topic in record_topics.side_topics(cfg)} if has_routers else set()
    )
    return plan.with_topics(counts, assign_partitions(counts, weights, plan.writers, first_writer_topics))
