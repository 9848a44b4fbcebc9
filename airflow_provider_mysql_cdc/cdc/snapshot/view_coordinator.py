"""Open the view, in a second of its own, while the tasks of the stage wait for it.

Wait until the view of a snapshot has a time of its own.

Rows of a snapshot have the position and time of its view, in whole seconds as Debezium writes it. Of a table without a
key nothing else tells that a row was read once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import ConsistentView, open_view
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import HELD, OPENED, READY, OpenedView, ViewReply

INEXACT_VIEW_WARNING = (
    "WARNING: with snapshot.locking.mode=none, transactions may have been committed while the view was opened. Rows "
    "may contain changes after {} that are published again as events, so their keys show older states until the drain "
    "has passed them. Without GTIDs a running commit may even be missing. Use another locking mode if that matters"
)


@dataclass(frozen=True, slots=True)
class ViewCallbacks:
    """Hold what the driver does with a view before the tasks read in it.

    Args:
        find_changes: Returns the changes between reading the table definitions and opening the view.
        record_view: Writes the records about the view.
        log: Writes one line to the log.
        on_lock: Called with whether the lock is held, when that changes.
    """

    find_changes: Callable[[ConsistentView], list[str]]
    record_view: Callable[[ConsistentView], None]
    log: Log
    on_lock: Callable[[bool], None] = lambda held: None


@dataclass(slots=True)
class ViewOpener:
    """Open the view: the driver's part of the stage.

    Args:
        cfg: The connector's configuration.
        barrier: The barrier of the tasks.
        tables: Tables to lock if the account may not take the global lock.
        guard_conn: The connection whose metadata locks block DDL until the tasks hold the tables themselves.
        callbacks: What to do with the view.
        changed_tables: Changes that made the view unusable.
    """

    cfg: ConnectorConfig
    barrier: TaskBarrier
    tables: list[TableId]
    guard_conn: Any
    callbacks: ViewCallbacks
    changed_tables: list[str] = field(default_factory=list)

    def lead(self, stage_ended: threading.Event) -> None:
        """Open the view, let the driver check it, and let the tasks read in it.

        Args:
            stage_ended: Set when the tasks have ended.

        Raises:
            CdcError: The view cannot be opened.
        """
        cfg = self.cfg
        self.barrier.wait(READY)
        with connect(cfg.connection_settings()) as conn:
            view, unlock = open_view(
                conn,
                self.barrier,
                self.tables,
                str(cfg[F.SNAPSHOT_LOCKING_MODE]),
                lock_seconds(cfg),
                cfg.connection_settings(),
                self.callbacks.on_lock,
            )
            self.callbacks.log(str(view))
            if not view.exact:
                self.callbacks.log(INEXACT_VIEW_WARNING.format(view.offset))
            opened = self.barrier.last_reached(OPENED)
            self.changed_tables = self.callbacks.find_changes(view)
            if self.changed_tables:
                self.guard_conn.rollback()
                self.barrier.release(opened, ViewReply())
            else:
                faults.fault_point("snapshot.view_open")
                self.callbacks.record_view(view)
                self.barrier.release(opened, ViewReply(OpenedView(view.offset, view.ts_ms)))
                self.barrier.wait(HELD)
                self.guard_conn.rollback()
                self.barrier.release(HELD, EMPTY)
                stage_ended.wait()
            unlock()


def lock_seconds(cfg: ConnectorConfig) -> int:
    """Return ``snapshot.lock.timeout.ms`` in whole seconds, at least one."""
    return max(1, cfg[F.SNAPSHOT_LOCK_TIMEOUT_MS] // 1000)


_PAUSE_S = 0.05


def wait_for_next_second(conn: MySqlConnection, ledger: LedgerState) -> None:
    """Return when the server's second is another one than that of the last view; that takes a second at most.

    Args:
        conn: An open connection.
        ledger: The ledger, with the view of the last snapshot if there was one.
    """
    last_ms = ledger.other_records.get(VIEW_KEY, {}).get("ts_ms")
    while last_ms is not None and last_ms // 1000 == fetch_all(conn, "SELECT UNIX_TIMESTAMP()")[0][0]:
        time.sleep(_PAUSE_S)
