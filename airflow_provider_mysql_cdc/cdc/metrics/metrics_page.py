"""Render docs/metrics.md from the table: ``python -m airflow_provider_mysql_cdc.cdc.metrics.metrics_page``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.metrics.metric_table import METRICS, WAIT_METRICS, Metric, MetricFamily, ValueType
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import LAG_METRICS, PREFIX, prometheus_name

_PLACES = (
    ("`mysql-cdc status`", "all of them as JSON, for a stream that runs or not, also while its DAG is paused"),
    (
        "`mysql-cdc status --format prometheus --output FILE`",
        "numbers for node_exporter's textfile collector; `FILE` is replaced as a whole",
    ),
    ("argument `metrics_file` of the operators", "the same text, written at the end of each try"),
    (
        "Airflow's own metrics (StatsD, OpenTelemetry, Datadog)",
        f"numbers as gauges `{PREFIX}.<family>.<name>` with tag `server`, at the end of each try; with `[metrics] "
        f"legacy_names_on` also `{PREFIX}.<server>.<family>.<name>`",
    ),
    ("the task's result (XCom)", "numbers, as `metrics`"),
)
_HEADER = """# Metrics

Generated from the tables in `airflow_provider_mysql_cdc/cdc/metrics`; write it again with
`python -m airflow_provider_mysql_cdc.cdc.metrics.metrics_page docs/metrics.md`.

Names and meanings are Debezium's; a sentence says where one differs. Debezium shows them by JMX under
`debezium.mysql:type=connector-metrics,context=<family>,server=<topic.prefix>`. Here the families have the same names,
and `topic.prefix` is the label `server`, in all of these places:

{places}

Writers and tasks measure; the driver adds up. Every 10 seconds it writes the sums into the ledger, from which
`mysql-cdc status` reads them. At the end of a batch they are part of the transaction that completes it, so each event
counts once, whatever fails in between; counts of the family `streaming` go on from run to run.

While a snapshot runs, `mysql-cdc status` also has `snapshot_tables`: for up to 100 tables that are not read completely,
rows of the estimated number, chunks, and seconds left. The driver's log says the same every 30 seconds.

The family `snapshot` exists while a snapshot runs, and in the run that took one. `ChunkId` and the like exist once a
run has read an ad-hoc snapshot.

## Lag

A drain reads up to an end that was fixed before, and the next one may be far off; so the last event's lag alone says
little. `mysql-cdc status` and the operators measure it at the source: they read the binlog from what is committed in
Kafka up to the first change of a captured table.

"""


_WAITING = f"""## While something waits

Sensors and triggers send these through Airflow's own metrics (StatsD, OpenTelemetry, Datadog) at each poll, from the
worker or the triggerer. Triggers that share a poll send once. The tag `server` is `topic.prefix`; counters have the
tag `connection`. Names begin with `{PREFIX}.`; with `[metrics] legacy_names_on` they are sent with the tag's value in
the name too, as `{PREFIX}.<server>.lag.bytes`."""


def _waiting_rows() -> Iterator[tuple[str, ...]]:
    for name, (kind, source, meaning) in WAIT_METRICS.items():
        yield f"`{PREFIX}.{name}`", kind, source, meaning


def _table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _rows(family: MetricFamily) -> Iterator[tuple[str, ...]]:
    for metric in METRICS:
        if metric.family is family:
            yield f"`{metric.name}`", _type(metric), _meaning(metric), _prometheus(metric)


def _type(metric: Metric) -> str:
    return f"{metric.type}, {metric.unit}" if metric.unit else str(metric.type)


def _meaning(metric: Metric) -> str:
    return f"**absent**: {metric.absent}" if metric.absent else metric.meaning


def _prometheus(metric: Metric) -> str:
    numeric = metric.type not in (ValueType.TEXT, ValueType.TEXTS)
    return f"`{prometheus_name(metric)}`" if numeric and not metric.absent else ""


def render_page() -> str:
    """Return the whole page."""
    places = "\n".join(_table(("Place", "What it has"), iter(_PLACES)))
    lines = [_HEADER.format(places=places).rstrip("\n"), ""]
    lines += _table(("Metric", "Meaning"), ((f"`{name}`", text) for name, text in LAG_METRICS.items()))
    for family in MetricFamily:
        lines += ["", f"## {family.capitalize()}", ""]
        lines += _table(("Debezium's name", "Type", "Here", "Prometheus"), _rows(family))
    lines += ["", *_WAITING.splitlines(), ""]
    lines += _table(("Metric", "Type", "From", "Meaning"), _waiting_rows())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/metrics.md").write_text(render_page(), encoding="utf-8")
