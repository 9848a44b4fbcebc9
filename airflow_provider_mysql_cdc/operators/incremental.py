"""The operator that reads tables again while the stream continues."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mysql_cdc.operators.adhoc_snapshot import AdhocSnapshot
from airflow_provider_mysql_cdc.operators.arguments import reject_arguments
from airflow_provider_mysql_cdc.operators.common import generation_of, parse_seconds
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.signals.signal import Signal


def read_tables(task: MySqlCdcIncrementalSnapshotOperator, run: JobRun) -> dict[str, Any]:
    """Request the snapshot by a signal, and drain until it is done.

    Args:
        task: The operator, with rendered arguments.
        run: Its jobs.
    """
    deadline = time.monotonic() + parse_seconds(task.timeout, "timeout")
    snapshot = AdhocSnapshot(run, timeout=task.timeout, stop_hint="; the signal stop-snapshot cancels the snapshot")
    snapshot.send_signal(*_snapshot_signal(task, run), check_tables=True)
    return snapshot.drain_until_done(deadline)


def _snapshot_signal(task: MySqlCdcIncrementalSnapshotOperator, run: JobRun) -> tuple[Signal, list[str]]:
    """Return the signal, checked before Kafka or MySQL is used, and the tables that it names."""
    from airflow_provider_mysql_cdc.cdc.operate.send_signal import parse_tables, signal_id, snapshot_signal

    tables = parse_tables(task.tables)
    signal = snapshot_signal(
        run.cfg,
        tables,
        kind=task.kind,
        condition=task.condition or "",
        surrogate_key=task.surrogate_key or "",
        channel=task.channel,
        id_=signal_id(run.owner, generation_of(run.context)),
    )
    return signal, tables


class MySqlCdcIncrementalSnapshotOperator(MySqlCdcSparkOperator):
    """Request that tables are read again, and drain until they are: without a lock and without losing a change.

    The rows come as ``op: r`` events between the changes of the stream. While another run drains the same stream, for
    example ``mysql_cdc_drain``, that run reads the tables and this task waits. Every try of a task sends the same
    signal id, so a retry continues from the ledger; a task that is cleared after it has succeeded sends a new one. When
    the task is killed or its timeout passes, the request remains: later drains continue with it, and the signal
    ``stop-snapshot`` cancels it.

    Args:
        tables: Names ``database.table`` or regular expressions for them; one, a list, or a list's JSON text.
            (templated)
        condition: SQL condition for the rows of these tables; it runs with the privileges of the connection's account.
            (templated)
        kind: ``incremental``, or ``blocking``: the stream waits until the tables are read. (templated)
        chunk_size: Rows of a chunk in the drains of this task; None uses the properties. (templated)
        surrogate_key: Column that divides the tables into chunks in place of the primary key. (templated)
        channel: Channel of the signal: ``airflow``, ``source`` or ``kafka``. (templated)
        timeout: How long the task may take, as timedelta or seconds; then it fails and is not retried. (templated)
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
    rejected_arguments: ClassVar[Mapping[str, str]] = {
        **MySqlCdcSparkOperator.rejected_arguments,
        "run_for": "the task runs until its tables are read; timeout limits it",
        "deferrable": "send the signal with MySqlCdcSignalOperator, and wait with "
        "MySqlIncrementalSnapshotSensor(deferrable=True)",
    }
    job_kind = JobKind("drain", "drain_binlog.py", read_tables)

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
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        super().__init__(**kwargs)
        self.tables = tables
        self.condition = condition
        self.kind = kind
        self.chunk_size = chunk_size
        self.surrogate_key = surrogate_key
        self.channel = channel
        self.timeout = timeout

    def _properties(self) -> dict[str, Any]:
        merged = super()._properties()
        if self.chunk_size not in (None, "", "None"):
            merged["incremental.snapshot.chunk.size"] = self.chunk_size
        return merged
