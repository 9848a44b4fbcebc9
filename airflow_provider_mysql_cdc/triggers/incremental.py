"""The trigger behind ``MySqlIncrementalSnapshotSensor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


class MySqlIncrementalSnapshotTrigger(MySqlCdcTrigger):
    """Fire when a snapshot that a signal asked for is done; one read of the ledger serves all signals of a stream.

    Args:
        signal_id: The signal's id; None for all snapshots.
        kwargs: As for ``MySqlCdcTrigger``.
    """

    def __init__(self, *, signal_id: str | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.signal_id = signal_id

    def more(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"signal_id": self.signal_id}

    def read(self, cfg: ConnectorConfig) -> LedgerState:
        """Read the ledger."""
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import look_at_ledger

        return look_at_ledger(cfg)

    def judge(self, found: LedgerState) -> dict[str, Any] | None:
        """Return how the snapshot stands, when it is done.

        Raises:
            StateError: It was refused, stopped or given up.
        """
        from airflow_provider_mysql_cdc.cdc.incremental.snapshot_status import status_in
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import over, told

        status = status_in(found, self.signal_id)
        return told(status) if over(status, self.signal_id) else None
