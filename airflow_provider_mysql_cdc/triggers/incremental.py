"""The trigger of ``MySqlIncrementalSnapshotSensor``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.hooks.airflow_metrics import snapshot_gauges
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


class MySqlIncrementalSnapshotTrigger(MySqlCdcTrigger):
    """Fire when the snapshot that a signal requested is done; one read of the ledger serves all signals of a stream.

    Args:
        signal_id: The signal's id; None for all snapshots.
        kwargs: As for ``MySqlCdcTrigger``.
    """

    def __init__(self, *, signal_id: str | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.signal_id = signal_id

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"signal_id": self.signal_id}

    def read(self, cfg: ConnectorConfig) -> LedgerState:
        """Read the ledger."""
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger

        return peek_ledger(cfg)

    def gauges(self, result: LedgerState) -> Iterable[tuple[str, float]]:
        """Return how much of the snapshot is left."""
        from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import snapshot_status

        return snapshot_gauges(snapshot_status(result, self.signal_id))

    def evaluate(self, result: LedgerState) -> dict[str, Any] | None:
        """Return the snapshot's status, when it is done.

        Raises:
            StateError: It was refused, stopped or aborted.
        """
        from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import snapshot_status
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import snapshot_done, status_json

        status = snapshot_status(result, self.signal_id)
        return status_json(status) if snapshot_done(status, self.signal_id) else None
