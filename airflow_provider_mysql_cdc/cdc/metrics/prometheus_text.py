"""Metrics as text for Prometheus (text exposition format 0.0.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.metrics.metric_table import Metric, ValueType, metric

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
