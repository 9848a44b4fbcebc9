"""The operator that reads tables again beside the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_mysql_cdc.cdc.errors import CdcError, OffsetConflictError, RunInProgressError
from airflow_provider_mysql_cdc.operators.base import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.common import generation_of, owner_of, seconds

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.incremental.status import SnapshotStatus
    from airflow_provider_mysql_cdc.cdc.operate.around_job import PreparedJob

WAIT_S = 5.0
"""Seconds between two looks at the ledger while another run drives the snapshot, or while it rests."""
_OF_ANOTHER_RUN = (RunInProgressError, OffsetConflictError)


class MySqlCdcIncrementalSnapshotOperator(MySqlCdcSparkOperator):
    """Ask for tables to be read again, and drain until they are: beside the stream, without a lock, losing no change.

    The rows come as ``op: r`` events between the changes of the stream. While another run drains the same stream, for
    example ``mysql_cdc_drain``, that one reads the tables and this task waits. Every try of a task asks with the same
    signal id, so a retry goes on where the ledger says; a task that a person clears after it has succeeded asks anew.
    When the task is killed or its time is over the snapshot stays asked for: later drains go on with it, and the signal
    ``stop-snapshot`` gives it up.

    Args:
        tables: Names ``database.table`` or regular expressions for them; one, a list, or a list's JSON text.
            (templated)
        condition: SQL that the rows of these tables have to fulfil, with the rights of the connection's account.
            (templated)
        kind: ``incremental``, or ``blocking``: the stream waits until the tables are read. (templated)
        chunk_size: Rows of a chunk in the drains of this task; None leaves it to the properties. (templated)
        surrogate_key: Column to cut the tables by in place of the key. (templated)
        channel: How to ask: ``airflow``, ``source`` or ``kafka``. (templated)
        timeout: How long to go on, as timedelta or seconds; the task fails then, and is not retried. (templated)
        kwargs: As for ``MySqlCdcSparkOperator``.

    Raises:
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        *MySqlCdcSparkOperator.template_fields,
        "tables",
        "condition",
        "kind",
        "chunk_size",
        "surrogate_key",
        "channel",
        "timeout",
    )
    mode = "drain"
    job_file = "drain_binlog.py"

    def __init__(
        self,
        *,
        tables: Sequence[str] | str,
        condition: str | None = None,
        kind: str = "incremental",
        chunk_size: int | str | None = None,
        surrogate_key: str | None = None,
        channel: str = "airflow",
        timeout: timedelta | float | str = timedelta(hours=6),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.condition = condition
        self.kind = kind
        self.chunk_size = chunk_size
        self.surrogate_key = surrogate_key
        self.channel = channel
        self.timeout = timeout
        self._signal_id = ""
        self._rests = self._time_over = False

    def prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, run_for_s: float) -> PreparedJob | None:
        """Plan a drain whose rounds read the tables; there is one to plan as long as the snapshot is not done."""
        from airflow_provider_mysql_cdc.cdc.job import run_lock
        from airflow_provider_mysql_cdc.cdc.operate.around_job import prepare_drain

        run_lock.require_nobody_else(cfg.connection_settings(), cfg.topic_prefix, owner)
        # While it rests only what is new, or a signal, is worth a Spark job.
        return prepare_drain(cfg, store, owner, self.log.info, even_empty=not self._rests)

    def on_kill(self) -> None:
        """End the driver; what is read already stays read, and the snapshot stays asked for."""
        super().on_kill()
        self.log.info("%s", self._left())

    def _run(self, context: Any) -> dict[str, Any]:
        deadline = time.monotonic() + seconds(self.timeout, "timeout")
        cfg, store = self._open(context)
        request = self._request(cfg)
        self._check_spark()
        self._ask(cfg, context, request)
        result: dict[str, Any] = {}
        while not self._over(status := self._status(cfg)):
            if time.monotonic() >= deadline:
                raise self._time_is_over()
            self._rests = status.state == "paused"
            with self._until(deadline):
                result = self._drive(cfg, store, context) or result
        rows = {name: table.rows for name, table in status.tables.items()}
        self.log.info("The snapshot is done: %s rows of %s table(s).", sum(rows.values()), len(rows))
        return {**result, "signal_id": self._signal_id, "state": status.state, "rows": rows}

    def _properties(self) -> dict[str, Any]:
        merged = super()._properties()
        if self.chunk_size not in (None, "", "None"):
            merged["incremental.snapshot.chunk.size"] = self.chunk_size
        return merged

    def _request(self, cfg: ConnectorConfig) -> dict[str, Any]:
        """Return the signal's data, checked before anything starts."""
        from airflow_provider_mysql_cdc.cdc.operate.asked_snapshot import named_tables, snapshot_data
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import check_signal

        data = snapshot_data(
            named_tables(self.tables),
            kind=self.kind,
            condition=self.condition or "",
            surrogate_key=self.surrogate_key or "",
        )
        check_signal(cfg, "execute-snapshot", data, channel=self.channel)
        return data

    def _ask(self, cfg: ConnectorConfig, context: Any, data: dict[str, Any]) -> None:
        """Send the signal, unless an earlier try has done so."""
        from airflow_provider_mysql_cdc.cdc.incremental.status import status_in
        from airflow_provider_mysql_cdc.cdc.operate.asked_snapshot import asked_before, look_at_ledger
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import send_signal

        ledger = look_at_ledger(cfg)
        self._signal_id = asked_before(ledger, owner_of(context), generation_of(context))
        if (state := status_in(ledger, self._signal_id).state) != "unknown":
            self.log.info("Signal %s was sent before; its snapshot is %s.", self._signal_id, state)
            return
        send_signal(cfg, "execute-snapshot", data, channel=self.channel, id_=self._signal_id)
        self.log.info("Asked for a snapshot of %s: signal %s.", ", ".join(data["data-collections"]), self._signal_id)

    def _status(self, cfg: ConnectorConfig) -> SnapshotStatus:
        from airflow_provider_mysql_cdc.cdc.incremental.status import status_in
        from airflow_provider_mysql_cdc.cdc.operate.asked_snapshot import look_at_ledger

        return status_in(look_at_ledger(cfg), self._signal_id)

    def _over(self, status: SnapshotStatus) -> bool:
        from airflow_provider_mysql_cdc.cdc.operate.asked_snapshot import over

        return over(status, self._signal_id)

    def _drive(self, cfg: ConnectorConfig, store: OffsetStore, context: Any) -> dict[str, Any] | None:
        """Run one drain with its rounds; wait a little when another run does, or when there is nothing to do."""
        try:
            done = self._one_job(cfg, store, context, time.monotonic())
        except (AirflowException, CdcError) as error:
            if self._time_over:
                raise self._time_is_over() from error
            if not _of_another_run(error):
                raise
            self.log.info("Another run is at work and may read the tables meanwhile: %s", error)
            done = None
        else:
            if done is None:
                self.log.info("The snapshot %s.", "rests" if self._rests else "waits for a drain")
        if done is None:
            time.sleep(WAIT_S)
            self._stop_if_killed()
        return done

    def _time_is_over(self) -> AirflowFailException:
        return AirflowFailException(f"The time is over (timeout={self.timeout}). {self._left()}")

    @contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        """End the driver at the deadline: a round goes on as long as there is something to read."""
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._end_driver)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end_driver(self) -> None:
        self._time_over = True
        if self._hook is not None:
            self._hook.on_kill()

    def _left(self) -> str:
        if not self._signal_id:
            return "Nothing was asked for yet."
        return (
            f"Signal {self._signal_id}: what was read is kept, and the next drain goes on with the rest; the signal "
            "stop-snapshot gives it up."
        )


def _of_another_run(error: Exception) -> bool:
    """Return whether an error says that another run is at work; the driver's errors come as text."""
    names = tuple(kind.__name__ for kind in _OF_ANOTHER_RUN)
    return isinstance(error, _OF_ANOTHER_RUN) or (isinstance(error, AirflowException) and str(error).startswith(names))
