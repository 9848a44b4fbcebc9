"""How far a stream is behind its source: the age of the first change that is not in Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import PREFIX, Sample

LAG_METRICS = {
    f"{PREFIX}_lag_seconds": "Age of the first change of a captured table that is not in Kafka, by the source's "
    "clock; 0 when there is none. It grows while nobody drains, whatever the reason; on an idle source it stays 0. At "
    "most so old where the change was not searched further (after 200,000 events of other tables).",
    f"{PREFIX}_lag_bytes": "Bytes of binlog, of all tables, between what is in Kafka and the end.",
    f"{PREFIX}_lag_known": "1 where the lag could be measured, otherwise 0 and the two above are missing: the source "
    "cannot be reached, it no longer has the position in its binlog, or the stream has not begun.",
    f"{PREFIX}_run_active": "1 while a run of the stream holds its lock on the source.",
    f"{PREFIX}_progress_age_seconds": "Seconds since the active run last reported; a run that hangs reports nothing. "
    "Missing while no batch is under way: a run that waits for changes, or verifies, has nothing to report.",
    f"{PREFIX}_last_batch_timestamp_seconds": "When the last batch or snapshot ended, since 1970.",
    f"{PREFIX}_last_batch_ok": "1 where it was completed, 0 where it ended with an error.",
    f"{PREFIX}_unread_tables": "Captured tables that joined the stream with older rows and were never read.",
    f"{PREFIX}_measured_timestamp_seconds": "When these metrics were gathered, since 1970: a file that nobody writes "
    "any more is old.",
}
"""Metrics that Debezium does not have, by their name in Prometheus."""


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Say how far a stream is behind.

    Args:
        milliseconds: Age of the first change that is not in Kafka, by the source's clock; 0 when there is none; None
            when it cannot be measured.
        bytes: Bytes of binlog between what is in Kafka and the end; None when they cannot be counted.
        first_change_ms: When that change was committed, milliseconds since 1970; None when there is none.
        position: Up to where everything is in Kafka, ``file:position``; empty before the stream has begun.
        upper_bound: Whether the change was not found yet, and is at most as old.
        why: Why it cannot be measured.
    """

    milliseconds: int | None = None
    bytes: int | None = None
    first_change_ms: int | None = None
    position: str = ""
    upper_bound: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def lag_samples(stream: str, lag: StreamLag) -> Iterator[Sample]:
    """Yield the samples of a lag.

    Args:
        stream: ``topic.prefix``.
        lag: The lag.
    """
    seconds = None if lag.milliseconds is None else lag.milliseconds / 1000
    values = {"lag_seconds": seconds, "lag_bytes": lag.bytes}
    for name, value in values.items():
        if value is not None:
            yield own_sample(stream, name, value)
    yield own_sample(stream, "lag_known", lag.milliseconds is not None)


def own_sample(stream: str, name: str, value: float) -> Sample:
    """Return the sample of a metric that Debezium does not have.

    Args:
        stream: ``topic.prefix``.
        name: Its name without the prefix, from ``LAG_METRICS``.
        value: Its value.
    """
    full_name = f"{PREFIX}_{name}"
    return Sample(full_name, "gauge", LAG_METRICS[full_name], (("server", stream),), float(value))
