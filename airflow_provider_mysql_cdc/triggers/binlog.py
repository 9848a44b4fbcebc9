"""The trigger of ``MySqlBinlogSensor``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.hooks.airflow_metrics import lag_gauges
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.lag import BinlogState, Lag


class MySqlBinlogTrigger(MySqlCdcTrigger):
    """Fire when the lag of an offset reaches a threshold.

    The offset store can only be read inside a task, so the offset is the one that the sensor read before it deferred.

    Args:
        drained: The offset, ``DrainedOffset.to_json()``.
        thresholds: The thresholds, ``Thresholds.to_json()``.
        kwargs: As for ``MySqlCdcTrigger``.
    """

    def __init__(self, *, drained: Mapping[str, Any], thresholds: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drained = dict(drained)
        self.thresholds = dict(thresholds)

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {"drained": self.drained, "thresholds": self.thresholds}

    def poll_scope(self) -> tuple[str, ...]:
        """Return the server of the offset; of several in ``database.hostname``, it decides which one is asked."""
        return ((self.drained.get("offset") or {}).get("server_uuid") or "",)

    def read(self, cfg: ConnectorConfig) -> BinlogState:
        """Read the state of the server's binlog."""
        from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, read_binlog_state

        return read_binlog_state(cfg, DrainedOffset.from_json(self.drained))

    def gauges(self, result: BinlogState) -> Iterable[tuple[str, float]]:
        """Return the lag of the offset."""
        return lag_gauges(self._lag(result))

    def evaluate(self, result: BinlogState) -> dict[str, Any] | None:
        """Return the lag of the offset, when it reaches a threshold."""
        current_lag = self._lag(result)
        return {"behind": current_lag.to_json()} if current_lag.reached else None

    def _lag(self, state: BinlogState) -> Lag:
        from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag

        return measure_lag(DrainedOffset.from_json(self.drained), state, Thresholds.from_json(self.thresholds))
