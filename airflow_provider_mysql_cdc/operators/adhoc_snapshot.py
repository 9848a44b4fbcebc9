"""An ad-hoc snapshot that a task requests by a signal and drives with drains until its tables are read."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.operators.common import generation_of
from airflow_provider_mysql_cdc.operators.task_error import (
    TaskFailedError,
    TaskRetryError,
    airflow_error,
    is_other_run_error,
)

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import SnapshotStatus
    from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
    from airflow_provider_mysql_cdc.cdc.signals.signal import Signal
    from airflow_provider_mysql_cdc.operators.job_run import JobRun

LEDGER_POLL_S = 5.0
"""Seconds between two reads of the ledger while another run drives the snapshot, or while it is paused."""


class AdhocSnapshot:
    """Request an ad-hoc snapshot, and drain until its tables are read.

    Args:
        run: The task's jobs.
        timeout: The operator's argument, for the error when it has passed.
        stop_hint: How to cancel the snapshot, for the text about an unfinished one.
    """

    def __init__(self, run: JobRun, *, timeout: Any = None, stop_hint: str = "") -> None:
        self._run, self._timeout, self._stop_hint = run, timeout, stop_hint
        self._signal_id = ""
        self._paused = False
        run.handle.kill_note = "No signal was sent, so no snapshot is requested."

    def send_signal(self, signal: Signal, tables: Sequence[str], *, check_tables: bool = False) -> None:
        """Send the signal, unless an earlier try has done so.

        A cleared task that still has an active snapshot of the same tables and conditions follows that one, and sends
        nothing; one whose tables or conditions were corrected sends a signal of its own.

        Args:
            signal: The signal, with the id of this task instance.
            tables: The tables that it names.
            check_tables: Whether to refuse tables that the stream does not capture.

        Raises:
            ConfigError: A table is not captured.
        """
        from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import snapshot_status
        from airflow_provider_mysql_cdc.cdc.operate import send_signal as snapshot_request
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import send_signal

        run = self._run
        ledger = snapshot_request.peek_ledger(run.cfg)
        content = snapshot_request.signal_content(signal)
        self._signal_id = id_ = snapshot_request.task_signal_id(ledger, run.owner, generation_of(run.context), content)
        run.handle.kill_note = self._resume_hint()
        if (state := snapshot_status(ledger, id_).state) != "unknown":
            run.log("An earlier try has sent signal %s; its snapshot is %s.", id_, state)
            return
        if check_tables:
            snapshot_request.require_captured(run.cfg, tables)
        send_signal(run.cfg, replace(signal, id=id_))
        run.log("Requested a snapshot of %s with signal %s.", ", ".join(tables), id_)

    def follow(self, request_id: str) -> None:
        """Follow a request that no signal of this task has made.

        Args:
            request_id: Its id.
        """
        self._signal_id = request_id
        self._run.handle.kill_note = self._resume_hint()

    def drain_until_done(self, deadline: float = math.inf) -> dict[str, Any]:
        """Drain until the snapshot is done; return the task's result, with the rows read of each table.

        Args:
            deadline: In seconds of ``time.monotonic``.

        Raises:
            TaskFailedError: The deadline has passed.
            StateError: The snapshot was refused, stopped or aborted; or none of the tables that are left can be read.
        """
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import require_readable, snapshot_done

        result: dict[str, Any] = {}
        status = self._status()
        while not snapshot_done(status, self._signal_id):
            if time.monotonic() >= deadline:
                raise self._timeout_error()
            self._paused = status.state == "paused"
            with self._run.handle.kill_at(deadline):
                drained = self._drain_once()
            before, status = status, self._status()
            if drained is not None:
                result = drained
                require_readable(status, self._signal_id)
                if status == before:
                    self._run.log("The drain could not continue the snapshot; its log says why. It is tried again.")
                    wait_for_other_run(self._run)
                    status = self._status()
        rows = {name: table.rows for name, table in status.tables.items()}
        self._run.log("The snapshot is done: %s rows of %s table(s).", sum(rows.values()), len(rows))
        return {**result, "signal_id": self._signal_id, "state": status.state, "rows": rows}

    def _status(self) -> SnapshotStatus:
        from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import snapshot_status
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger

        return snapshot_status(peek_ledger(self._run.cfg), self._signal_id)

    def _plan_drain(self, run_for_s: float) -> PreparedJob | None:
        """Plan a drain that reads the tables; there is one to plan until the snapshot is done."""
        from airflow_provider_mysql_cdc.cdc.job import run_lock
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
        from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server

        store, owner, log = self._run.store, self._run.owner, self._run.log
        cfg = at_one_server(self._run.cfg, store, log)
        run_lock.require_sole_run(cfg.connection_settings(), cfg.topic_prefix, owner)
        # While it is paused, only changes or another signal are worth a Spark job.
        return prepare_drain(cfg, store, owner, log, even_empty=not self._paused)

    def _drain_once(self) -> dict[str, Any] | None:
        """Run one drain that reads tables; wait a little when another run does, or when there is nothing to do."""
        try:
            result = self._run.run_attached(self._plan_drain)
        except (AirflowException, CdcError) as error:
            if self._run.handle.deadline_passed:
                raise self._timeout_error() from error
            if not is_other_run_error(error):
                raise
            self._run.log("Another run is active and may read the tables: %s; waiting for it", error)
            result = None
        else:
            if result is None:
                self._run.log("The snapshot %s.", "is paused" if self._paused else "waits for a drain")
        if result is None:
            wait_for_other_run(self._run)
        return result

    def _timeout_error(self) -> TaskRetryError | TaskFailedError:
        return airflow_error(
            StateError(
                "the snapshot was not finished in time",
                where=f"timeout={self._timeout}",
                remedy=self._resume_hint(),
            )
        )

    def _resume_hint(self) -> str:
        hint = f"Signal {self._signal_id}: what was read is kept, and the next drain continues with the rest"
        return f"{hint}{self._stop_hint}."


def wait_for_other_run(run: JobRun) -> None:
    """Wait a little while another run is active.

    Args:
        run: The task's jobs.

    Raises:
        TaskRetryError: The task was killed meanwhile.
    """
    time.sleep(LEDGER_POLL_S)
    run.handle.raise_if_killed()
