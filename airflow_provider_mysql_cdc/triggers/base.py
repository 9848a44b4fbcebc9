"""The base of this provider's triggers: their arguments, the shared poll, and errors that become events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import send_gauges
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.triggers.shared_poll import Subscription

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


class MySqlCdcTrigger(BaseTrigger):  # type: ignore[misc]
    """Poll a condition of a stream, together with all triggers of this process that poll the same, and fire once.

    The triggerer reads the connections at each poll, so neither this object nor its serialised form holds a secret, and
    a changed password applies from the next poll on. Properties from the environment are those of the triggerer.

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``.
        kafka_conn_id: Connection of type ``kafka``, or None.
        properties: The task's connector properties.
        poll_interval: Seconds between two polls.
    """

    def __init__(
        self,
        *,
        mysql_cdc_conn_id: str,
        kafka_conn_id: str | None,
        properties: Mapping[str, Any],
        poll_interval: float,
    ) -> None:
        super().__init__()
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.properties = dict(properties)
        self.poll_interval = poll_interval
        self._subscription: Subscription | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments in the form that Airflow stores."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "mysql_cdc_conn_id": self.mysql_cdc_conn_id,
            "kafka_conn_id": self.kafka_conn_id,
            "properties": self.properties,
            "poll_interval": self.poll_interval,
            **self.extra_arguments(),
        }

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        raise NotImplementedError

    def poll_scope(self) -> tuple[str, ...]:
        """Return what distinguishes polls over the same connections, for example an id."""
        return ()

    def read(self, cfg: ConnectorConfig) -> Any:
        """Read the polled state once; it may block.

        Args:
            cfg: The connector's configuration.

        Raises:
            CdcError: The state cannot be read.
        """
        raise NotImplementedError

    def gauges(self, result: Any) -> Iterable[tuple[str, float]]:
        """Return what Airflow's metrics get of a poll (``cdc.metrics.wait_metrics``).

        Args:
            result: What ``read`` returned.
        """
        return ()

    def evaluate(self, result: Any) -> dict[str, Any] | None:
        """Return the event's content when the condition holds, or None.

        Args:
            result: What ``read`` returned, of this trigger or of one that shares its poll.

        Raises:
            CdcError: The condition can never hold.
        """
        raise NotImplementedError

    async def report(self) -> None:
        """Write into the task's log what there is to say beside the polled state; called before each ``evaluate``."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then yield one event: ``{"status": "ready", ...}`` or ``{"status": "failed", "error": {...}}``."""
        try:
            self._subscription = Subscription(self._poll_key(), self._read, self.poll_interval)
            async for result in self._subscription.results():
                await self.report()
                if (event := self.evaluate(result)) is not None:
                    yield TriggerEvent({"status": "ready", **event})
                    return
        except CdcError as error:
            yield TriggerEvent({"status": "failed", "error": error.to_json()})
        except Exception as error:
            self.log.exception("The poll failed.")
            yield TriggerEvent({"status": "failed", "error": _unexpected_error(error).to_json()})
        finally:
            await self.cleanup()

    async def cleanup(self) -> None:
        """Leave the poll; it ends with its last subscriber."""
        if self._subscription is not None:
            self._subscription.leave()

    def _poll_key(self) -> tuple[str, ...]:
        settings = json.dumps(self.properties, sort_keys=True, default=str)
        return type(self).__qualname__, self.mysql_cdc_conn_id, self.kafka_conn_id or "", settings, *self.poll_scope()

    def _read(self) -> Any:
        cfg = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self.properties)
        result = self.read(cfg)
        send_gauges(cfg.topic_prefix, lambda: self.gauges(result))
        return result


def _unexpected_error(error: Exception) -> CdcError:
    """Return an error for an unexpected exception; its text may contain secrets, so it stays in the log."""
    return CdcError(
        "the trigger could not poll",
        why=type(error).__name__,
        remedy="read the triggerer's log; the triggerer needs this package, the connections and the network",
        retriable=True,
    )
