"""The thread that opens the view while the tasks of the stage wait for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import ConsistentView, TaskBarrier, open_view

INEXACT_VIEW_WARNING = (
    "WARNING: snapshot.locking.mode=none found no moment of which it is certain that nothing was committed. Rows may "
    "hold changes behind {} that come once more as events: such keys go back in time until the drain has passed them. "
    "Without GTIDs a commit in flight may even be missing. Use a locking mode where that matters"
)


@dataclass(frozen=True, slots=True)
class ViewCallbacks:
    """Say what the driver does with a view before the tasks read in it.

    Args:
        find_changes: Returns what lies between the tables' description and the view and keeps them from being one
            moment.
        record_view: Writes down what there is to be written about the view.
        log: Takes one line of text.
    """

    find_changes: Callable[[ConsistentView], list[str]]
    record_view: Callable[[ConsistentView], None]
    log: Log


class ViewOpener(threading.Thread):
    """Open the view beside the running stage: ``runner.run`` blocks the driver's main thread.

    Args:
        cfg: The connector's configuration.
        barrier: The meeting of the tasks.
        tables: Tables to lock where the global lock is refused.
        guard_conn: The connection that holds off changes of the tables until the view stands.
        callbacks: What to do with the view.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        barrier: TaskBarrier,
        tables: list[TableId],
        guard_conn: Any,
        callbacks: ViewCallbacks,
    ) -> None:
        super().__init__(name="cdc-view", daemon=True)
        self._cfg, self._barrier, self._tables, self._guard_conn, self._callbacks = (
            cfg,
            barrier,
            tables,
            guard_conn,
            callbacks,
        )
        self._stage_ended = threading.Event()
        self.error: CdcError | None = None
        self.changed_tables: list[str] = []

    def run(self) -> None:
        """Open the view, let the driver look at it, let the tasks go."""
        cfg = self._cfg
        try:
            self._barrier.wait("ready")
            with named_errors(cfg), connect(cfg.connection_settings()) as conn:
                view, unlock = open_view(
                    conn,
                    self._barrier,
                    self._tables,
                    str(cfg[F.SNAPSHOT_LOCKING_MODE]),
                    lock_seconds(cfg),
                    cfg.connection_settings(),
                )
                self._guard_conn.rollback()
                self._callbacks.log(str(view))
                if not view.exact:
                    self._callbacks.log(INEXACT_VIEW_WARNING.format(view.offset))
                stage = self._barrier.last_opened_stage()
                self.changed_tables = self._callbacks.find_changes(view)
                if self.changed_tables:
                    self._barrier.release(stage, {"over": True})
                else:
                    faults.fault_point("snapshot.view_open")
                    self._callbacks.record_view(view)
                    self._barrier.release(stage, {"offset": view.offset.to_json(), "ts_ms": view.ts_ms})
                    self._stage_ended.wait()
                unlock()
        except CdcError as error:
            self.error = error
            self._barrier.fail(error)
        except Exception as error:
            self.error = StateError("opening the consistent view failed", why=repr(error), retriable=True)
            self._barrier.fail(self.error)

    def finish(self) -> None:
        """End the thread; raise what it met."""
        self._stage_ended.set()
        with contextlib.suppress(RuntimeError):
            self.join(30)
        if self.error is not None:
            raise self.error


def lock_seconds(cfg: ConnectorConfig) -> int:
    """Return ``snapshot.lock.timeout.ms`` in whole seconds, at least one."""
    return max(1, cfg[F.SNAPSHOT_LOCK_TIMEOUT_MS] // 1000)


def lost_task_error(task: int) -> StateError:
    """Return the error for a task that is gone; -1 stands for the whole stage."""
    return StateError(
        f"snapshot task {task} was lost" if task >= 0 else "the snapshot stage failed",
        remedy="run the task again; finished chunks are kept",
        retriable=True,
    )
