"""Properties with a free part in their name: topic settings, driver options, Kafka settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config import column_rules, kafka, kafka_names
from airflow_provider_mysql_cdc.cdc.config.column_rules import ColumnFamilies
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.parse_value import INT32_MAX, integer, text
from airflow_provider_mysql_cdc.cdc.config.property_names import suggestion
from airflow_provider_mysql_cdc.cdc.model.routing import Transforms

TOPIC_CREATION = "topic.creation.default."
DRIVER = "database."
SELECT_OVERRIDES = "snapshot.select.statement.overrides."

DRIVER_OPTIONS: dict[str, tuple[Callable[[str], str | int], str]] = {
    "bind_address": (text, "local address to connect from"),
    "program_name": (text, "name shown in the server's performance_schema"),
    "unix_socket": (text, "socket file of a server on the same machine; host and port are then not used"),
    "read_timeout": (integer(1, INT32_MAX), "longest wait for data, in seconds"),
    "write_timeout": (integer(1, INT32_MAX), "longest wait while sending, in seconds"),
    "max_allowed_packet": (integer(1_024, 2**30), "longest packet sent, in bytes"),
}
"""Options of ``pymysql.connect`` that may be set as ``database.<option>``: parser and meaning."""


_PREFIXES = (TOPIC_CREATION, SELECT_OVERRIDES, *column_rules.PREFIXES, *kafka.PREFIXES)


@dataclass(slots=True, repr=False)
class Families:
    """Hold what the families of a configuration say.

    Args:
        topic: Topic settings by name.
        driver: Driver options as (name, value) pairs.
        kafka: librdkafka settings by family prefix.
        columns: How columns are treated.
        selects: Statements of ``snapshot.select.statement.overrides`` by table.
        transforms: What ``transforms`` does.
        notes: What a person should know.
        problems: What cannot be used.
    """

    topic: dict[str, str] = field(default_factory=dict)
    driver: tuple[tuple[str, str | int], ...] = ()
    kafka: dict[str, dict[str, str]] = field(default_factory=dict)
    columns: ColumnFamilies = field(default_factory=ColumnFamilies)
    selects: dict[str, str] = field(default_factory=dict)
    transforms: Transforms = field(default_factory=Transforms)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def prefix_of(name: str) -> str | None:
    """Return the prefix of the family a property belongs to, or None."""
    if name.startswith(DRIVER) and name.removeprefix(DRIVER) in DRIVER_OPTIONS:
        return DRIVER
    found = (p for p in _PREFIXES if name.startswith(p) and len(name) > len(p))
    return next(found, None)


def read(given: Mapping[str, Mapping[str, str]], converters: Mapping[str, Mapping[str, str]]) -> Families:
    """Read all families.

    Args:
        given: Property text by family prefix and by name without it.
        converters: Settings of each converter by its name.
    """
    out = Families()
    _read_topic(out, given.get(TOPIC_CREATION, {}))
    _read_driver(out, given.get(DRIVER, {}))
    out.selects = {table: text.strip().rstrip(";") for table, text in given.get(SELECT_OVERRIDES, {}).items()}
    out.columns = column_rules.read(given)
    column_rules.read_converters(out.columns, converters)
    out.problems += out.columns.problems
    for prefix in kafka.PREFIXES:
        if prefix in given:
            translated = kafka.translate(prefix, given[prefix])
            out.kafka[prefix] = translated.settings
            out.problems += translated.problems
            _note_unused(out, prefix, translated.settings)
    return out


def _read_topic(out: Families, given: Mapping[str, str]) -> None:
    for name, value in given.items():
        near = suggestion(name, kafka_names.TOPIC_SETTINGS | {"partitions", "replication.factor"}, cutoff=0.85)
        if name in kafka_names.TOPIC_SETTINGS or near is None:
            out.topic[name] = value.strip()
            if name not in kafka_names.TOPIC_SETTINGS:
                out.notes.append(
                    f"{TOPIC_CREATION}{name} is given to Kafka as it is; Kafka 4 does not name such a setting"
                )
        else:
            fix = f"Write {TOPIC_CREATION}{near}, if that is meant"
            out.problems.append(Problem(TOPIC_CREATION + name, "Kafka has no such topic setting", fix, value))


def _read_driver(out: Families, given: Mapping[str, str]) -> None:
    options: list[tuple[str, str | int]] = []
    for name, value in given.items():
        try:
            options.append((name, DRIVER_OPTIONS[name][0](value)))
        except ValueError as e:
            out.problems.append(Problem(DRIVER + name, str(e), "Correct the value", value))
    out.driver = tuple(options)


def _note_unused(out: Families, prefix: str, settings: Mapping[str, str]) -> None:
    if prefix in (kafka.HISTORY_PRODUCER, kafka.HISTORY_CONSUMER):
        for name in sorted(settings.keys() - kafka.security(settings).keys()):
            out.notes.append(f"{prefix}{name} has no effect: the history is written by the writers' own producer")
