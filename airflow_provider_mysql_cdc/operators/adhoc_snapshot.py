"""What the operators share that ask for an ad-hoc snapshot and drain until it is done."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_mysql_cdc.cdc.errors import CdcError, OffsetConflictError, RunInProgressError
from airflow_provider_mysql_cdc.operators.arguments import reject_arguments
from airflow_provider_mysql_cdc.operators.base import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.common import generation_of, owner_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.incremental.snapshot_status import SnapshotStatus
    from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import PreparedJob
    from airflow_provider_mysql_cdc.cdc.signals.signal import Signal

LEDGER_POLL_S = 5.0
"""Seconds between two looks at the ledger while another run drives the snapshot, or while it rests."""
OTHER_RUN_ERRORS = (RunInProgressError, OffsetConflictError)


class MySqlCdcAdhocSnapshotOperator(MySqlCdcSparkOperator):
    """Ask for an ad-hoc snapshot, and drain until its tables are read; base of the operators that do so.

    Args:
        kwargs: As for ``MySqlCdcSparkOperator``.
    """

    rejected_arguments: ClassVar[Mapping[str, str]] = {
        **MySqlCdcSparkOperator.rejected_arguments,
        "run_for": "it goes on until its tables are read",
    }
    channel: str = "airflow"
    stop_hint: ClassVar[str] = ""

    def __init__(self, **kwargs: Any) -> None:
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        super().__init__(**kwargs)
        self._signal_id = ""
        self._paused = self._deadline_passed = False

    def prepare_snapshot_drain(self, cfg: ConnectorConfig, store: OffsetStore, owner: str) -> PreparedJob | None:
        """Plan a drain whose rounds read the tables; there is one to plan as long as the snapshot is not done.

        Args:
            cfg: The connector's configuration.
            store: Where the offset is kept.
            owner: ``dag_id/run_id/task_id/map_index``.
        """
        from airflow_provider_mysql_cdc.cdc.job import run_lock
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain

        run_lock.require_sole_run(cfg.connection_settings(), cfg.topic_prefix, owner)
        # While it rests only what is new, or a signal, is worth a Spark job.
        return prepare_drain(cfg, store, owner, self.log.info, even_empty=not self._paused)

    def on_kill(self) -> None:
        """End the driver; what is read already stays read, and the snapshot stays asked for."""
        super().on_kill()
        self.log.info("%s", self._resume_hint())

    def _drain_until_done(
        self, cfg: ConnectorConfig, store: OffsetStore, context: Any, deadline: float = math.inf
    ) -> dict[str, Any]:
        """Drain until the snapshot that was asked for is done; return what it has read."""
        result: dict[str, Any] = {}
        while not self._is_done(status := self._status(cfg)):
            if time.monotonic() >= deadline:
                raise self._timeout_error()
            self._paused = status.state == "paused"
            with self._end_driver_at(deadline):
                result = self._drain_once(cfg, store, context) or result
        rows = {name: table.rows for name, table in status.tables.items()}
        self.log.info("The snapshot is done: %s rows of %s table(s).", sum(rows.values()), len(rows))
        return {**result, "signal_id": self._signal_id, "state": status.state, "rows": rows}

    def _send_signal(self, cfg: ConnectorConfig, context: Any, signal: Signal, tables: Sequence[str]) -> None:
        """Send the signal of ``signal_id``, unless an earlier try has done so.

        A cleared task that still has an active snapshot follows that one, and sends nothing.
        """
        from airflow_provider_mysql_cdc.cdc.incremental.snapshot_status import snapshot_status
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import send_signal
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import peek_ledger, task_signal_id

        ledger = peek_ledger(cfg)
        self._signal_id = task_signal_id(ledger, owner_of(context), generation_of(context))
        if (state := snapshot_status(ledger, self._signal_id).state) != "unknown":
            self.log.info("Signal %s was sent before; its snapshot is %s.", self._signal_id, state)
            return
        self._check_tables(cfg, tables)
        send_signal(cfg, signal)
        self.log.info("Asked for a snapshot of %s: signal %s.", ", ".join(tables), self._signal_id)

    def _check_tables(self, cfg: ConnectorConfig, tables: Sequence[str]) -> None:
        """Refuse what no driver could read, before it is asked for."""

    def _status(self, cfg: ConnectorConfig) -> SnapshotStatus:
        from airflow_provider_mysql_cdc.cdc.incremental.snapshot_status import snapshot_status
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import peek_ledger

        return snapshot_status(peek_ledger(cfg), self._signal_id)

    def _is_done(self, status: SnapshotStatus) -> bool:
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import snapshot_done

        return snapshot_done(status, self._signal_id)

    def _drain_once(self, cfg: ConnectorConfig, store: OffsetStore, context: Any) -> dict[str, Any] | None:
        """Run one drain with its rounds; wait a little when another run does, or when there is nothing to do."""
        try:
            result = self._run_job(cfg, store, context, time.monotonic())
        except (AirflowException, CdcError) as error:
            if self._deadline_passed:
                raise self._timeout_error() from error
            if not is_other_run_error(error):
                raise
            self.log.info("Another run is at work and may read the tables meanwhile: %s", error)
            result = None
        else:
            if result is None:
                self.log.info("The snapshot %s.", "rests" if self._paused else "waits for a drain")
        if result is None:
            self._wait()
        return result

    def _wait(self) -> None:
        time.sleep(LEDGER_POLL_S)
        self._stop_if_killed()

    def _timeout_error(self) -> AirflowFailException:
        return AirflowFailException(f"The time is over. {self._resume_hint()}")

    @contextmanager
    def _end_driver_at(self, deadline: float) -> Iterator[None]:
        """End the driver at the deadline: a round goes on as long as there is something to read."""
        if deadline == math.inf:
            yield
            return
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._end_driver)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end_driver(self) -> None:
        self._deadline_passed = True
        if self._hook is not None:
            self._hook.on_kill()

    def _resume_hint(self) -> str:
        if not self._signal_id:
            return "Nothing was asked for yet."
        hint = f"Signal {self._signal_id}: what was read is kept, and the next drain goes on with the rest"
        return f"{hint}{self.stop_hint}."


def is_other_run_error(error: Exception) -> bool:
    """Return whether an error says that another run is at work; the driver's errors come as text.

    Args:
        error: What a job ended with.
    """
    names = tuple(kind.__name__ for kind in OTHER_RUN_ERRORS)
    return isinstance(error, OTHER_RUN_ERRORS) or (isinstance(error, AirflowException) and str(error).startswith(names))
