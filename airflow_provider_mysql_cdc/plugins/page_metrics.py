"""The metrics of all pipelines in one text for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import PREFIX, Sample, render_text
from airflow_provider_mysql_cdc.plugins.pipelines import Pipeline
from airflow_provider_mysql_cdc.plugins.status_cache import StatusCache

READ = f"{PREFIX}_page_pipeline_read"
READ_HELP = "1 where Kafka could be read for this pipeline, otherwise 0: its other metrics are missing."
MAX_AGE_S = 90.0
"""Age of a reading from which it is not that of now; a scrape in a minute has what the one before has begun to read."""


def metrics_text(
    cache: StatusCache,
    pipelines: Iterable[Pipeline],
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Return the metrics as text; pipelines that take longer have those of the reading before, or none if it is old.

    Args:
        cache: Reads the pipelines.
        pipelines: The pipelines.
        wait_s: Seconds to wait in all.
        clock: Monotonic time in seconds.
    """
    deadline, chosen = clock() + wait_s, list(pipelines)
    for pipeline in chosen:
        cache.get(pipeline.main_task, 0.0)  # all of them begin before the first is waited for
    samples: list[Sample] = []
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for pipeline in chosen:
        reading = cache.get(pipeline.main_task, max(0.0, deadline - clock()), patient=True)
        if reading.content is None or reading.age_s > MAX_AGE_S:
            continue  # no value is better than one of minutes ago
        for sample in (_read_sample(pipeline, bool(reading.content.samples)), *reading.content.samples):
            # Two connections may lead to one stream; Prometheus refuses a sample that comes twice.
            if (sample.name, sample.labels) not in seen:
                seen.add((sample.name, sample.labels))
                samples.append(sample)
    return render_text(samples)


def _read_sample(pipeline: Pipeline, done: bool) -> Sample:
    return Sample(READ, "gauge", READ_HELP, (("connection", pipeline.conn_id),), float(done))
