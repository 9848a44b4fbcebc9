"""Metrics of a stream out of a task: Airflow's own metrics, a text file for Prometheus, and the task's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkConnectionError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import Gauge, airflow_metrics_on, emit_gauges

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus

MAX_THREADS = 16
"""Streams whose metrics are published at the same time."""
KAFKA_TIMEOUT_S = 3.0
"""Seconds for Kafka's first answer after a try that could not reach it; the ledger's reader waits for 17 s."""


@dataclass(frozen=True, slots=True)
class PublishedStream:
    """Name a stream whose metrics are published.

    Args:
        read_config: Returns the connector's configuration.
        file: File to write; None for none.
        lost_kafka: Whether the try could not reach its Kafka.
    """

    read_config: Callable[[], ConnectorConfig]
    file: str | None
    lost_kafka: bool = False


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
    """Publish the stream's metrics at the end of a try, as ``publishing_each``.

    Args:
        read_config: Returns the connector's configuration.
        metrics_file: File to write; None for none.
        log: Takes a line with its arguments.
    """
    stream = PublishedStream(read_config, metrics_file)
    with publishing_each(lambda: [stream], log):
        try:
            yield
        except Exception as error:
            stream = replace(stream, lost_kafka=isinstance(getattr(error, "error", error), SinkConnectionError))
            raise


@contextmanager
def publishing_each(streams: Callable[[], Sequence[PublishedStream]], log: Callable[..., None]) -> Iterator[None]:
    """Publish the metrics of streams at the end of a try, whatever it ends with, except where it only defers.

    Args:
        streams: Returns the streams; called at the end.
        log: Takes a line with its arguments.
    """
    ended = True
    try:
        yield
    except (TaskDeferred, AirflowTaskTimeout):
        ended = False
        raise
    finally:
        if ended:
            _publish_each([stream for stream in streams() if stream.file or airflow_metrics_on()], log)


def _publish_each(streams: Sequence[PublishedStream], log: Callable[..., None]) -> None:
    if len(streams) == 1:
        _publish(streams[0], log)
    elif streams:
        with ThreadPoolExecutor(min(MAX_THREADS, len(streams))) as pool:
            list(pool.map(lambda stream: _publish(stream, log), streams))


def _publish(stream: PublishedStream, log: Callable[..., None]) -> None:
    """Publish metrics; an error is logged, because it must not hide how the task has ended."""
    from airflow_provider_mysql_cdc.cdc.metrics.metrics_file import write_metrics_file
    from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status
    from airflow_provider_mysql_cdc.cdc.sink.topics import accepts_clients

    try:
        cfg = stream.read_config()
        if stream.lost_kafka and not accepts_clients(cfg.kafka_settings(), KAFKA_TIMEOUT_S):
            log("The metrics could not be published: Kafka cannot be reached.")
            return
        status = read_status(cfg)
        if stream.file:
            write_metrics_file(stream.file, status.prometheus())
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
