"""Metrics of a stream out of a task: Airflow's own metrics, a text file for Prometheus, and the task's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import Gauge, airflow_metrics_on, emit_gauges

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus


def numbers_of(families: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the metrics that are numbers, and truth values as 0 and 1.

    Args:
        families: Attributes by Debezium's name, by family.
    """
    return {
        family: {name: int(value) for name, value in attributes.items() if isinstance(value, (int, float))}
        for family, attributes in families.items()
    }


def result_metrics(metrics: StreamMetrics) -> dict[str, Any]:
    """Return what a task's result says of metrics: the numbers; nothing where there are none.

    Args:
        metrics: The stream's metrics at the end of the job.
    """
    families = numbers_of(metrics.stopped().families(metrics.at_ms)) if metrics.at_ms else {}
    return {"metrics": families} if families else {}


@contextmanager
def publishing_metrics(
    read_config: Callable[[], ConnectorConfig], metrics_file: str | None, log: Callable[..., None]
) -> Iterator[None]:
    """Publish the stream's metrics at the end of a try, whatever it ends with, except where it only defers.

    Args:
        read_config: Returns the connector's configuration.
        metrics_file: File to write; None for none.
        log: Takes a line with its arguments.
    """
    ended = True
    try:
        yield
    except (TaskDeferred, AirflowTaskTimeout):
        ended = False
        raise
    finally:
        if ended and (metrics_file or airflow_metrics_on()):
            _publish(read_config, metrics_file, log)


def _publish(read_config: Callable[[], ConnectorConfig], metrics_file: str | None, log: Callable[..., None]) -> None:
    """Publish metrics; an error is logged, because it must not hide how the task has ended."""
    from airflow_provider_mysql_cdc.cdc.metrics.metrics_file import write_metrics_file
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status

    try:
        status = read_status(read_config())
        if metrics_file:
            write_metrics_file(metrics_file, status.prometheus())
    except CdcError as error:
        log("The metrics could not be published: %s", error.message())
        return
    if airflow_metrics_on():
        emit_gauges(status.stream, status_gauges(status))


def status_gauges(status: StreamStatus) -> Iterator[Gauge]:
    """Yield what Airflow's metrics get of a status.

    Args:
        status: The status.
    """
    for family, attributes in numbers_of(status.families()).items():
        for name, value in attributes.items():
            yield f"{family}.{name}", value
    lag = {"lag.milliseconds": status.lag.milliseconds, "lag.bytes": status.lag.bytes}
    yield from ((name, value) for name, value in lag.items() if value is not None)
