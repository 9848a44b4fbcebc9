"""Airflow's own metrics: gauges of streams, and what sensors and triggers measure while they wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Stats, conf

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import SnapshotStatus
    from airflow_provider_mysql_cdc.cdc.operate.lag import Lag


STATS_PREFIX = "mysql_cdc"
_BACKENDS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")

Gauge = tuple[str, float]
"""A name below ``STATS_PREFIX``, and a value."""


def airflow_metrics_on() -> bool:
    """Return whether Airflow sends metrics anywhere (section ``[metrics]`` of its configuration)."""
    return any(conf.getboolean("metrics", name, fallback=False) for name in _BACKENDS)


def emit_gauges(stream: str, gauges: Iterable[Gauge], stats: Any = Stats) -> None:
    """Send gauges through Airflow's metrics, with the stream as tag ``server``.

    As Airflow does for its own metrics, names that contain the stream are sent too where ``legacy_names_on`` is set:
    a StatsD server without tags cannot tell streams apart otherwise.

    Args:
        stream: ``topic.prefix``.
        gauges: Names and values.
        stats: Airflow's metrics of this process.
    """
    in_names = conf.getboolean("metrics", "legacy_names_on", fallback=False)
    for name, value in gauges:
        stats.gauge(f"{STATS_PREFIX}.{name}", value, tags={"server": stream})
        if in_names:
            stats.gauge(f"{STATS_PREFIX}.{_NO_NAME.sub('_', stream)}.{name}", value)


def lag_gauges(lag: Lag) -> Iterator[Gauge]:
    """Yield the numbers of a lag; those that are not known are left out.

    Args:
        lag: The lag.
    """
    from airflow_provider_mysql_cdc.cdc.metrics.metric_table import LAG_BATCH_AGE, LAG_BYTES, LAG_TRANSACTIONS

    behind = lag.bytes is None or lag.bytes > 0
    age = lag.seconds if behind else 0.0
    values = {LAG_BYTES: lag.bytes, LAG_TRANSACTIONS: lag.transactions, LAG_BATCH_AGE: age}
    yield from ((name, value) for name, value in values.items() if value is not None)


def snapshot_gauges(status: SnapshotStatus) -> Iterator[Gauge]:
    """Yield the numbers of an ad-hoc snapshot.

    Args:
        status: Its status.
    """
    from airflow_provider_mysql_cdc.cdc.metrics.metric_table import ADHOC_ROWS, ADHOC_TABLES_LEFT

    tables = status.tables.values()
    yield ADHOC_TABLES_LEFT, sum(table.state in ("waiting", "running") for table in tables)
    yield ADHOC_ROWS, sum(table.rows for table in tables)


def send_gauges(stream: str, gauges: Callable[[], Iterable[Gauge]]) -> None:
    """Send gauges where Airflow sends metrics anywhere; nothing that goes wrong with them reaches the caller.

    Args:
        stream: ``topic.prefix``.
        gauges: Returns names and values.
    """
    with suppress(Exception):
        if airflow_metrics_on():
            emit_gauges(stream, gauges(), airflow_stats())


def count(name: str, conn_id: str) -> None:
    """Add one to a counter, as ``send_gauges``.

    Args:
        name: The name below ``STATS_PREFIX``.
        conn_id: The connection, for the tag.
    """
    with suppress(Exception):
        if airflow_metrics_on():
            airflow_stats().incr(f"{STATS_PREFIX}.{name}", tags={"connection": conn_id})


def airflow_stats() -> Any:
    """Return Airflow's metrics of this process.

    Airflow 3.3 initialises those of the task SDK in tasks. The triggerer initialises others, which code that is loaded
    by tasks too must not import; so there they are initialised here, from the same settings.
    """
    from airflow.sdk._shared.observability.metrics import stats as shared
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    if getattr(shared, "_factory", stats) is None:
        legacy = conf.getboolean("metrics", "legacy_names_on", fallback=True)
        stats.initialize(factory=get_stats_factory(), export_legacy_names=legacy)
    return stats
