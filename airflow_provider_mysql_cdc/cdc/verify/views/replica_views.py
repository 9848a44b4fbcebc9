"""Open the views of a verification on a replica, and find their position in the binlog of the source.

The replica has to have applied what the stream has read. Then its commits are stopped by the short read lock that is
taken on the source otherwise: what it has executed by then is what all views show. In the binlog of the source this set
has one position, if the replica has committed in the order of the source; without ``replica_preserve_commit_order`` the
set may have gaps for a moment, and then the replica is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset, wait_for_visible_offset
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.requested_position import position_of_gtids
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError, SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import SETTLE_TIMEOUT_S
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import read_lock
from airflow_provider_mysql_cdc.cdc.verify.views.replica import connect_replica
from airflow_provider_mysql_cdc.cdc.verify.views.replica_checks import (
    executed_gtids,
    require_no_errant_transactions,
    require_usable_replica,
)

_WAIT_STEP_S = 5
_SHOWN_LENGTH = 200


def open_replica_views(
    cfg: ConnectorConfig,
    source: Any,
    settings: ConnectionSettings,
    tables: Sequence[TableId],
    start: BinlogOffset,
    open_views: Callable[[str], None],
    log: Log,
) -> BinlogOffset:
    """Let the tasks open their views on the replica; return their position on the source.

    Args:
        cfg: The connector's configuration.
        source: An open connection to the source, autocommit.
        settings: How to reach the replica.
        tables: Tables that the tasks read.
        start: The position that the stream has reached.
        open_views: Returns when all tasks have opened their views; takes the server_uuid of the replica.
        log: Takes one line of text.

    Raises:
        SourceError: The replica cannot be used, or has not applied in time what the stream has read.
    """
    with connect_replica(settings) as replica:
        require_usable_replica(source, replica, settings.address(), tables)
        deadline = time.monotonic() + cfg[F.VERIFY_REPLICA_TIMEOUT_MS] / 1000
        _wait_for_stream(source, replica, settings.address(), deadline, log)
        server_uuid = answering_server(replica)
        with _read_lock(cfg, replica, settings.address(), tables):
            executed = executed_gtids(replica)
            open_views(server_uuid)
    position = _position_on_source(cfg, source, settings.address(), executed)
    if compare_offsets(position, start) < 0:
        raise SourceError(
            "the replica is behind the stream",
            where=f"replica {settings.address()}",
            why=f"its transactions end at {position} of the source, and the stream has reached {start}",
            remedy="run the task again",
            retriable=True,
        )
    log(f"verification: the views are open on the replica {settings.address()}, at {position} of the source")
    return position


def _wait_for_stream(source: Any, replica: Any, address: str, deadline: float, log: Log) -> None:
    """Wait until the replica has applied everything that the source has committed by now.

    A transaction stands in the binlog, from which the stream reads it, before it counts as executed.
    """
    wait_for_visible_offset(source, SETTLE_TIMEOUT_S)
    wanted, logged = executed_gtids(source), False
    while missing := wanted.subtract(executed_gtids(replica)):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise SourceError(
                "the replica has not applied in time what the stream has read",
                where=f"replica {address}, {F.VERIFY_REPLICA_TIMEOUT_MS.name}",
                why=f"it lacks {str(missing)[:_SHOWN_LENGTH]}",
                remedy="look at SHOW REPLICA STATUS there; when it has caught up, run the task again; or raise "
                f"{F.VERIFY_REPLICA_TIMEOUT_MS.name}, or leave replica_conn_id out: then the source is read",
                retriable=True,
            )
        if not logged:
            log(f"verification: waiting for the replica {address}, which lacks {str(missing)[:_SHOWN_LENGTH]}")
            logged = True
        step_s = min(_WAIT_STEP_S, left_s)
        fetch_all(replica, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(wanted), step_s))


@contextmanager
def _read_lock(cfg: ConnectorConfig, replica: Any, address: str, tables: Sequence[TableId]) -> Iterator[None]:
    lock = read_lock(replica, cfg, list(tables))
    try:
        lock.__enter__()
    except (SourcePrivilegeError, SourceConnectionError) as error:
        raise type(error)(
            f"the replica: {error.what}",
            where=f"replica {address}, {error.where}",
            why=error.why,
            remedy=error.remedy,
            retriable=error.can_retry,
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _position_on_source(cfg: ConnectorConfig, source: Any, address: str, executed: GtidSet) -> BinlogOffset:
    require_no_errant_transactions(source, executed, address)
    try:
        return position_of_gtids(cfg, source, current_offset(source), executed)
    except ConfigError as error:
        raise SourceError(
            "what the replica has executed has no position in the binlog of the source",
            where=f"replica {address}",
            why=error.why or error.what,
            remedy="set replica_preserve_commit_order=ON there, and run the task again; or leave replica_conn_id out: "
            "then the source is read",
            retriable=True,
        ) from error
