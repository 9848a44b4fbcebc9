"""The trigger of an asset watcher: an event when a stream needs a drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import count, lag_gauges
from airflow_provider_mysql_cdc.triggers.base import MySqlCdcTrigger, Subscription

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.due_drain import DrainRequest, StreamState
    from airflow_provider_mysql_cdc.cdc.operate.lag import Thresholds

LAST_REQUEST = "last_request/"
"""Key, before the connection, of the asset's state that holds the last request for a drain, so that a new triggerer
process knows it. One asset may have watchers of several streams, for a fleet: a request of one says nothing of the
others."""

MAX_PAUSE_S = 300.0
"""Longest time between two polls that fail, in seconds."""


class MySqlBinlogWatchTrigger(MySqlCdcTrigger, BaseEventTrigger):  # type: ignore[misc]
    """Fire each time that a stream needs a drain; the trigger of an ``AssetWatcher``.

    It fires when the binlog is a threshold ahead of the stream's ledger (without thresholds, at any new transaction),
    or when a signal waits: of the channel ``airflow``, or in the Kafka signal topic if that channel is enabled. Work
    that was asked for is not asked for again until it is done, or ``retry_after`` has passed. A server or Kafka that
    does not answer is a warning, and the watch goes on.

    The event's payload has ``lag`` and ``end``, the binlog's end. Watchers of one connection share a poll, and those of
    one signal topic its consumer.

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``.
        kafka_conn_id: Connection of type ``kafka``; None when the first connection names Kafka.
        properties: Connector properties of the stream that the connection does not have; no secrets.
        bytes_behind: Bytes of binlog after which a drain is due.
        transactions_behind: Transactions after which it is due, counted by GTIDs.
        seconds_behind: Seconds since the last batch after which it is due, when anything is new.
        poll_interval: Seconds between two polls.
        retry_after: Seconds after which work that is not done is asked for again.

    Raises:
        ConfigError: A threshold is below 1.
    """

    def __init__(
        self,
        *,
        mysql_cdc_conn_id: str,
        kafka_conn_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
        bytes_behind: int | None = None,
        transactions_behind: int | None = None,
        seconds_behind: float | None = None,
        poll_interval: float = 5.0,
        retry_after: float = 600.0,
    ) -> None:
        super().__init__(
            mysql_cdc_conn_id=mysql_cdc_conn_id,
            kafka_conn_id=kafka_conn_id,
            properties=properties or {},
            poll_interval=poll_interval,
        )
        self.bytes_behind = bytes_behind
        self.transactions_behind = transactions_behind
        self.seconds_behind = seconds_behind
        self.retry_after = retry_after
        self._last: DrainRequest | None = None
        self.thresholds()

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        return {
            "bytes_behind": self.bytes_behind,
            "transactions_behind": self.transactions_behind,
            "seconds_behind": self.seconds_behind,
            "retry_after": self.retry_after,
        }

    def thresholds(self) -> Thresholds:
        """Return the lag at which a drain is due."""
        from airflow_provider_mysql_cdc.cdc.operate.lag import Thresholds

        return Thresholds(self.bytes_behind, self.transactions_behind, self.seconds_behind)

    def read(self, cfg: ConnectorConfig) -> StreamState:
        """Read the stream's ledger and the server's binlog."""
        from airflow_provider_mysql_cdc.cdc.operate.due_drain import read_stream_state

        return read_stream_state(cfg)

    def gauges(self, result: StreamState) -> Iterable[tuple[str, float]]:
        """Return the stream's lag, and how many signals wait."""
        from airflow_provider_mysql_cdc.cdc.metrics.metric_table import SIGNALS_WAITING
        from airflow_provider_mysql_cdc.cdc.operate.lag import Thresholds, measure_lag

        yield from lag_gauges(measure_lag(result.drained, result.binlog, Thresholds()))
        yield SIGNALS_WAITING, len(result.signals)

    def evaluate(self, result: StreamState) -> dict[str, Any] | None:
        """Return the event's content when a drain is due that was not asked for yet."""
        from airflow_provider_mysql_cdc.cdc.operate.due_drain import next_request

        found = next_request(result, self.thresholds(), self._last, retry_after_s=self.retry_after)
        if found is None:
            return None
        self._last, lag = found
        return {"lag": lag.to_json(), "end": self._last.end.to_json(), "mysql_cdc_conn_id": self.mysql_cdc_conn_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each drain that is due, without end."""
        from airflow_provider_mysql_cdc.cdc.metrics.metric_table import POLL_FAILURES, WATCH_REQUESTS

        await self._load()
        pause = self.poll_interval
        while True:
            try:
                self._subscription = Subscription(self._poll_key(), self._read, self.poll_interval)
                async for result in self._subscription.results():
                    pause = self.poll_interval
                    if (event := self.evaluate(result)) is not None:
                        count(WATCH_REQUESTS, self.mysql_cdc_conn_id)
                        yield TriggerEvent(event)
                        # The event comes first: a process that ends between the two asks again.
                        await self._save()
            except CdcError as error:
                self.log.warning("The stream cannot be watched: %s", error.message())
            except Exception as error:
                self.log.warning("The stream cannot be watched: %s", type(error).__name__, exc_info=True)
            finally:
                await self.cleanup()
            count(POLL_FAILURES, self.mysql_cdc_conn_id)
            pause = min(pause * 2, max(MAX_PAUSE_S, self.poll_interval))
            await asyncio.sleep(pause)

    @property
    def _request_key(self) -> str:
        return LAST_REQUEST + self.mysql_cdc_conn_id

    async def _load(self) -> None:
        from airflow_provider_mysql_cdc.cdc.operate.due_drain import DrainRequest

        if self.asset_state_store is None:
            return
        try:
            stored = await self.asset_state_store.aget(self._request_key, None)
            self._last = None if stored is None else DrainRequest.from_json(stored)
        except Exception as error:
            self.log.warning("The last request cannot be read, so it may be made again: %s", type(error).__name__)

    async def _save(self) -> None:
        if self.asset_state_store is None or self._last is None:
            return
        try:
            await self.asset_state_store.aset(self._request_key, self._last.to_json())
        except Exception as error:
            self.log.warning("The request is not stored, so a new triggerer makes it again: %s", type(error).__name__)
