"""Metrics and lag of streams as text for Prometheus (text exposition format 0.0.4), and as a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.metrics.metric_table import Metric, ValueType, metric
from airflow_provider_mysql_cdc.cdc.replaced_file import replace_file

PREFIX = "mysql_cdc"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNIT_ENDINGS = {"ms": "_seconds", "s": "_seconds", "bytes": "_bytes"}
_PER_UNIT = {"ms": 1000}
"""Prometheus has base units: what a value in another one is divided by."""
_TEXT_METRICS = {"BinlogFilename", "Status"}
"""Texts with few values, which are labels of a sample with value 1; other texts are left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold one sample.

    Args:
        name: The metric's name in Prometheus.
        kind: ``counter`` or ``gauge``.
        help: Its description.
        labels: Names and values of its labels.
        value: Its value.
    """

    name: str
    kind: str
    help: str
    labels: tuple[tuple[str, str], ...]
    value: float


def prometheus_name(described: Metric) -> str:
    """Return the name of a metric in Prometheus: its family and its words, a unit and ``_total`` of counters.

    Units are seconds and bytes, and only histograms have a name that ends with ``_count`` (``promtool check metrics``).

    Args:
        described: The metric.
    """
    words = _WORD.sub("_", described.name.replace("MilliSeconds", "Seconds")).lower()
    words = re.sub("_count$", "s", words)
    base = f"{PREFIX}_{described.family.replace('-', '_')}_{words}"
    unit = described.unit
    ending = _UNIT_ENDINGS.get(unit, "")
    if ending and ending.strip("_") not in base:
        base += ending
    return f"{base}_total" if described.type is ValueType.COUNTER else base


def family_samples(stream: str, families: Mapping[str, Mapping[str, Any]]) -> Iterator[Sample]:
    """Yield the samples of a stream's metrics.

    Args:
        stream: ``topic.prefix``, the label ``server`` (MET-57 to MET-59).
        families: Attributes by Debezium's name, by family.
    """
    for family, attributes in families.items():
        for name, value in attributes.items():
            yield from _samples(metric(family, name), value, (("server", stream),))


def _samples(described: Metric, value: Any, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
    kind = "counter" if described.type is ValueType.COUNTER else "gauge"
    name, text = prometheus_name(described), described.meaning
    if described.type in (ValueType.NUMBER, ValueType.COUNTER, ValueType.FLAG):
        yield Sample(name, kind, text, labels, float(value) / _PER_UNIT.get(described.unit, 1))
    elif described.type is ValueType.NUMBERS:
        for table, number in value.items():
            yield Sample(name, kind, text, (*labels, ("table", table)), float(number))
    elif described.type is ValueType.NAMES:
        yield Sample(name, kind, f"Number of: {text}", labels, float(len(value)))
    elif described.name in _TEXT_METRICS:
        yield Sample(f"{name}_info", kind, text, (*labels, ("value", value)), 1.0)


def render_text(samples: Iterable[Sample]) -> str:
    """Return samples as text; those of one name stand together, as the format demands.

    Args:
        samples: The samples, of any number of streams.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, group in by_name.items():
        lines += [f"# HELP {name} {_escaped(group[0].help, quotes=False)}", f"# TYPE {name} {group[0].kind}"]
        lines += [f"{name}{_labels(sample.labels)} {_number_text(sample.value)}" for sample in group]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels) + "}"


def _escaped(text: str, *, quotes: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


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


_FILE_MODE = 0o644
"""The collector runs as another account; metrics contain no secrets."""


def write_metrics_file(path: str, text: str) -> None:
    """Replace a file as a whole: who reads it at the same time sees the old text or the new one.

    Args:
        path: The file. node_exporter reads those that end with ``.prom``; the part that is being written does not.
        text: Its text.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        replace_file(Path(path), text, _FILE_MODE)
    except OSError as error:
        raise ConfigError(
            "the file with the metrics cannot be written",
            where=path,
            why=error.strerror or str(error),
            remedy="name a file in a folder that exists, and that this account may write into",
        ) from error
