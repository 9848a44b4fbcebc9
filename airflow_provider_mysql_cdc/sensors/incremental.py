"""The sensor that waits for ad-hoc snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import PokeReturnValue

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import send_gauges, snapshot_gauges
from airflow_provider_mysql_cdc.operators.common import REQUIRED_FIELDS
from airflow_provider_mysql_cdc.sensors.base import MySqlCdcSensor

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.triggers.incremental import MySqlIncrementalSnapshotTrigger


class MySqlIncrementalSnapshotSensor(MySqlCdcSensor):
    """Wait until the snapshot that a signal requested is done, or until no snapshot is active; fail when it is aborted.

    The sensor only reads the ledger; a drain that runs at the same time reads the tables (``mysql_cdc_drain``). A
    signal that no drain has read yet is waited for as well.

    Args:
        signal_id: The signal's id, for example the result of ``MySqlCdcSignalOperator``; None waits until no snapshot
            is waiting or running. (templated)
        kwargs: As for ``MySqlCdcSensor``.
    """

    template_fields: Sequence[str] = (*MySqlCdcSensor.template_fields, "signal_id")
    # A missing id would mean all snapshots.
    required_fields: Sequence[str] = (*REQUIRED_FIELDS, "signal_id")

    def __init__(self, *, signal_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.signal_id = signal_id

    def check(self, cfg: ConnectorConfig, context: Any) -> PokeReturnValue:
        """Read the ledger.

        Raises:
            ConfigError: The template of the signal's id rendered as empty.
            StateError: The snapshot was refused, stopped or aborted.
        """
        from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import snapshot_status
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger, snapshot_done, status_json

        if self.signal_id is not None and self.signal_id.strip() in ("", "None"):
            # As "all snapshots" the wait would end at once.
            raise ConfigError(
                "the signal's id is empty",
                where=f"signal_id={self.signal_id!r}",
                remedy="pass the id that the upstream task returned, or remove signal_id to wait for all snapshots",
            )
        status = snapshot_status(peek_ledger(cfg), self.signal_id)
        send_gauges(cfg.topic_prefix, lambda: snapshot_gauges(status))
        done = snapshot_done(status, self.signal_id)
        self.log.info("Signal %s: %s.", self.signal_id or "(all)", status.state)
        return PokeReturnValue(done, status_json(status) if done else None)

    def trigger(self, arguments: Mapping[str, Any]) -> MySqlIncrementalSnapshotTrigger:
        """Return the trigger that continues to read the ledger."""
        from airflow_provider_mysql_cdc.triggers.incremental import MySqlIncrementalSnapshotTrigger

        return MySqlIncrementalSnapshotTrigger(signal_id=self.signal_id, **arguments)
