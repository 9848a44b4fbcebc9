"""The operator that reads tables again beside the stream."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_mysql_cdc.operators.adhoc_snapshot import MySqlCdcAdhocSnapshotOperator
from airflow_provider_mysql_cdc.operators.base import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.common import generation_of, owner_of, parse_seconds

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import PreparedJob
    from airflow_provider_mysql_cdc.cdc.signals.signal import Signal


class MySqlCdcIncrementalSnapshotOperator(MySqlCdcAdhocSnapshotOperator):
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
    rejected_arguments: ClassVar[Mapping[str, str]] = {
        **MySqlCdcAdhocSnapshotOperator.rejected_arguments,
        "deferrable": "ask with MySqlCdcSignalOperator and wait with MySqlIncrementalSnapshotSensor(deferrable=True)",
    }
    stop_hint = "; the signal stop-snapshot gives it up"
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

    def prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, run_for_s: float) -> PreparedJob | None:
        """Plan a drain whose rounds read the tables."""
        return self.prepare_snapshot_drain(cfg, store, owner)

    def _run(self, context: Any) -> dict[str, Any]:
        deadline = time.monotonic() + parse_seconds(self.timeout, "timeout")
        cfg, store = self._config_and_store(context)
        signal, tables = self._snapshot_signal(cfg, context)
        self._check_spark()
        self._send_signal(cfg, context, signal, tables)
        return self._drain_until_done(cfg, store, context, deadline)

    def _properties(self) -> dict[str, Any]:
        merged = super()._properties()
        if self.chunk_size not in (None, "", "None"):
            merged["incremental.snapshot.chunk.size"] = self.chunk_size
        return merged

    def _snapshot_signal(self, cfg: ConnectorConfig, context: Any) -> tuple[Signal, list[str]]:
        """Return the signal, checked before anything starts, and the tables that it names."""
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import parse_tables, signal_id, snapshot_signal

        tables = parse_tables(self.tables)
        signal = snapshot_signal(
            cfg,
            tables,
            kind=self.kind,
            condition=self.condition or "",
            surrogate_key=self.surrogate_key or "",
            channel=self.channel,
            id_=signal_id(owner_of(context), generation_of(context)),
        )
        return signal, tables

    def _check_tables(self, cfg: ConnectorConfig, tables: Sequence[str]) -> None:
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import require_captured

        require_captured(cfg, tables)

    def _timeout_error(self) -> AirflowFailException:
        return AirflowFailException(f"The time is over (timeout={self.timeout}). {self._resume_hint()}")
