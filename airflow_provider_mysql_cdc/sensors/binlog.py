"""The sensor that waits until the binlog has events after the stored offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import PokeReturnValue
from airflow.sdk import Asset

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import lag_gauges, send_gauges
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.asset_events import (
    DEFAULT_ASSET,
    accessor_of,
    reference_asset,
    with_offset_asset,
)
from airflow_provider_mysql_cdc.operators.common import parse_seconds
from airflow_provider_mysql_cdc.sensors.base import MySqlCdcSensor

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds
    from airflow_provider_mysql_cdc.triggers.binlog import MySqlBinlogTrigger


class MySqlBinlogSensor(MySqlCdcSensor):
    """Wait until the server's binlog has events after the stored offset, so that a drain has something to do.

    Without a threshold any new event ends the wait, exactly what the next drain would find; of several thresholds the
    first one reached ends it. It ends at once when only a run can continue: there is no offset yet, a batch is
    unfinished, or the server's binlog no longer holds the offset.

    Args:
        bytes_behind: Bytes of binlog after the offset. (templated)
        transactions_behind: Transactions after it, counted by GTIDs; needs gtid_mode=ON. (templated)
        seconds_behind: Seconds (or a timedelta) since the last batch was settled, when there are new events.
            (templated)
        offset_asset: Asset whose state stores the offset; it becomes an inlet of the task.
        offset_conn_id: Connection of a database that stores the offset instead. (templated)
        kwargs: As for ``MySqlCdcSensor``.
    """

    template_fields: Sequence[str] = (
        *MySqlCdcSensor.template_fields,
        "offset_conn_id",
        "bytes_behind",
        "transactions_behind",
        "seconds_behind",
    )

    def __init__(
        self,
        *,
        bytes_behind: int | str | None = None,
        transactions_behind: int | str | None = None,
        seconds_behind: timedelta | float | str | None = None,
        offset_asset: Asset | str = DEFAULT_ASSET,
        offset_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.offset_asset = reference_asset(offset_asset, kwargs)
        super().__init__(**kwargs)
        self.bytes_behind = bytes_behind
        self.transactions_behind = transactions_behind
        self.seconds_behind = seconds_behind
        self.offset_conn_id = offset_conn_id
        self._drained: DrainedOffset | None = None

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the sensor with some of its arguments, to be expanded; see ``BaseOperator.partial``.

        Args:
            arguments: Arguments that are the same for all mapped tasks; ``asset_events`` is always one of them.
        """
        return super().partial(**with_offset_asset(arguments, emits_events=False))

    def check(self, cfg: ConnectorConfig, context: Any) -> PokeReturnValue:
        """Compare the stored offset with the server's binlog."""
        from airflow_provider_mysql_cdc.cdc.operate import lag

        hook = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id)
        accessor = accessor_of(context, self.offset_asset)
        store = hook.get_offset_store(cfg, accessor=accessor, offset_conn_id=self.offset_conn_id)
        self._drained = lag.DrainedOffset.from_state(store.load())
        current_lag = lag.measure_lag(self._drained, lag.read_binlog_state(cfg, self._drained), self._thresholds())
        send_gauges(cfg.topic_prefix, lambda: lag_gauges(current_lag))
        self.log.info("%s: %s.", "Done" if current_lag.reached else "Waiting", current_lag.reason)
        return PokeReturnValue(current_lag.reached, current_lag.to_json() if current_lag.reached else None)

    def trigger(self, arguments: Mapping[str, Any]) -> MySqlBinlogTrigger:
        """Return the trigger that compares the binlog with the offset that ``check`` has read."""
        from airflow_provider_mysql_cdc.triggers.binlog import MySqlBinlogTrigger

        assert self._drained is not None  # check() comes first
        drained, thresholds = self._drained.to_json(), self._thresholds().to_json()
        return MySqlBinlogTrigger(drained=drained, thresholds=thresholds, **arguments)

    def _thresholds(self) -> Thresholds:
        from airflow_provider_mysql_cdc.cdc.operate.lag import Thresholds

        return Thresholds(
            _whole_number("bytes_behind", self.bytes_behind),
            _whole_number("transactions_behind", self.transactions_behind),
            None if _is_unset(self.seconds_behind) else parse_seconds(self.seconds_behind, "seconds_behind"),
        )


def _is_unset(value: Any) -> bool:
    """Return whether an argument has no value; a template renders None as text."""
    return value in (None, "", "None")


def _whole_number(name: str, value: int | str | None) -> int | None:
    try:
        return None if _is_unset(value) else int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{value!r} is not a whole number", where=name, remedy="use a whole number, or remove the argument"
        ) from (error)
