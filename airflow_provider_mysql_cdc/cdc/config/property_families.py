"""Properties with a free part in their name: settings of topics and of groups of them, driver options, Kafka
settings.

Groups of topics that are created otherwise than the rest: ``topic.creation.groups`` and ``topic.creation.NAME.*``.

As Kafka Connect does: the first group in the list counts whose ``include`` has an expression that matches the whole
name of the topic, and whose ``exclude`` has none. Partitions and replicas that it does not set are the default's;
other settings are not. Source: KIP-158, ``TopicCreationGroup`` of Kafka Connect 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import column_rules, kafka, parse_value
from airflow_provider_mysql_cdc.cdc.config import kafka as kafka_names
from airflow_provider_mysql_cdc.cdc.config.column_rules import ColumnFamilies
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.parse_value import INT32_MAX, as_text, integer
from airflow_provider_mysql_cdc.cdc.config.property_names import closest_name
from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import TopicTransforms
from airflow_provider_mysql_cdc.cdc.transforms.transform import TransformChain

PREFIX = "topic.creation."
DEFAULT = "default"
_EXPRESSIONS, _NUMBERS = ("include", "exclude"), {"partitions": (1, 100_000), "replication.factor": (-1, 32_767)}


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Hold one group.

    Args:
        name: Its name.
        include: Expressions of its topics.
        exclude: Expressions of topics that are not in it.
        partitions: Partitions of its topics; None for the default's.
        replication: Replicas of its topics; None for the default's.
        settings: Their settings.
    """

    name: str
    include: tuple[Expression, ...] = ()
    exclude: tuple[Expression, ...] = ()
    partitions: int | None = None
    replication: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def matches(self, topic: str) -> bool:
        """Return whether a topic is in the group."""
        return any(e.fullmatch(topic) for e in self.include) and not any(e.fullmatch(topic) for e in self.exclude)


@dataclass(slots=True)
class TopicGroups:
    """Hold all groups in their order, and what is wrong with them."""

    groups: tuple[TopicGroup, ...] = ()
    problems: list[Problem] = field(default_factory=list)


def read_groups(names: Sequence[str], members: Mapping[str, str]) -> TopicGroups:
    """Read the groups of a configuration.

    Args:
        names: The groups that ``topic.creation.groups`` lists.
        members: Properties without the prefix: ``NAME.include`` and the like.
    """
    out = TopicGroups()
    settings: dict[str, dict[str, str]] = {name: {} for name in names}
    for member, text in members.items():
        owner = next((n for n in sorted(names, key=len, reverse=True) if member.startswith(f"{n}.")), None)
        if owner is None:
            fix = f"Remove it, or add its group to {PREFIX}groups"
            out.problems.append(Problem(PREFIX + member, f"belongs to no group that {PREFIX}groups lists", fix, text))
        else:
            settings[owner][member.removeprefix(f"{owner}.")] = text
    if without := [n for n, of in settings.items() if n != DEFAULT and not of.get("include", "").strip()]:
        fix = f"Set {PREFIX}NAME.include to expressions of topics, or take the group out"
        out.problems.append(Problem(f"{PREFIX}groups", "lists a group without include", fix, ", ".join(without)))
    out.groups = tuple(_group(name, of, out.problems) for name, of in settings.items() if name != DEFAULT)
    return out


def _group(name: str, members: Mapping[str, str], problems: list[Problem]) -> TopicGroup:
    expressions: dict[str, tuple[Expression, ...]] = {}
    numbers: dict[str, int | None] = {}
    for part in _EXPRESSIONS:
        try:
            texts = parse_value.split_list(members.get(part, ""))
            expressions[part] = tuple(parse_value.pattern(text, ignore_case=False) for text in texts)
        except ValueError as error:
            problems.append(Problem(f"{PREFIX}{name}.{part}", str(error), "Correct the expression", members[part]))
    for part, bounds in _NUMBERS.items():
        try:
            numbers[part] = parse_value.integer(*bounds)(members[part]) if part in members else None
        except ValueError as error:
            problems.append(Problem(f"{PREFIX}{name}.{part}", str(error), "Correct the value", members[part]))
    settings = {k: v.strip() for k, v in members.items() if k not in (*_EXPRESSIONS, *_NUMBERS)}
    include, exclude = expressions.get("include", ()), expressions.get("exclude", ())
    return TopicGroup(name, include, exclude, numbers.get("partitions"), numbers.get("replication.factor"), settings)


TOPIC_CREATION_PREFIX = "topic.creation.default."
DRIVER_PREFIX = "database."
REPLICA_PREFIX = "verify.replica.database."
"""The server that a verification reads in place of the source: members of ``database.*``, from a connection alone."""
SELECT_OVERRIDES_PREFIX = "snapshot.select.statement.overrides."

DRIVER_OPTIONS: dict[str, tuple[Callable[[str], str | int], str]] = {
    "bind_address": (as_text, "local address to connect from"),
    "program_name": (as_text, "name shown in the server's performance_schema"),
    "unix_socket": (as_text, "socket file of a server on the same machine; host and port are then not used"),
    "read_timeout": (integer(1, INT32_MAX), "longest wait for data, in seconds"),
    "write_timeout": (integer(1, INT32_MAX), "longest wait while sending, in seconds"),
    "max_allowed_packet": (integer(1_024, 2**30), "longest packet sent, in bytes"),
}
"""Options of ``pymysql.connect`` that may be set as ``database.<option>``: parser and meaning."""


_PREFIXES = (
    TOPIC_CREATION_PREFIX,
    PREFIX,
    SELECT_OVERRIDES_PREFIX,
    REPLICA_PREFIX,
    *column_rules.PREFIXES,
    *kafka.PREFIXES,
)


@dataclass(slots=True, repr=False)
class PropertyFamilies:
    """Hold what the families of a configuration say.

    Args:
        topic_settings: Topic settings by name.
        topic_groups: Groups of topics that are created otherwise.
        driver_options: Driver options as (name, value) pairs.
        kafka_settings: librdkafka settings by family prefix.
        columns: How columns are treated.
        select_overrides: Statements of ``snapshot.select.statement.overrides`` by table.
        transforms: What ``transforms`` does, where it only renames topics.
        chain: What it does otherwise; None where it only renames topics.
        behind_chain: The parsed values behind the chain; those of the configuration are for records before it.
        replica: Parsed values of the replica by the name that the source's property has.
        notes: What a person should know.
        problems: What cannot be used.
    """

    topic_settings: dict[str, str] = field(default_factory=dict)
    topic_groups: tuple[TopicGroup, ...] = ()
    driver_options: tuple[tuple[str, str | int], ...] = ()
    kafka_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    columns: ColumnFamilies = field(default_factory=ColumnFamilies)
    select_overrides: dict[str, str] = field(default_factory=dict)
    transforms: TopicTransforms = field(default_factory=TopicTransforms)
    chain: TransformChain | None = None
    behind_chain: Mapping[str, Any] = field(default_factory=dict)
    replica: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def prefix_of(name: str) -> str | None:
    """Return the prefix of the family a property belongs to, or None."""
    if name.startswith(DRIVER_PREFIX) and name.removeprefix(DRIVER_PREFIX) in DRIVER_OPTIONS:
        return DRIVER_PREFIX
    prefixes = (p for p in _PREFIXES if name.startswith(p) and len(name) > len(p))
    return next(prefixes, None)


def read_families(
    members: Mapping[str, Mapping[str, str]],
    converters: Mapping[str, Mapping[str, str]],
    groups: Sequence[str] = (),
) -> PropertyFamilies:
    """Read all families.

    Args:
        members: Property text by family prefix and by name without it.
        converters: Settings of each converter by its name.
        groups: The groups that ``topic.creation.groups`` lists.
    """
    out = PropertyFamilies()
    read = read_groups(groups, members.get(PREFIX, {}))
    out.topic_groups, out.problems = read.groups, read.problems
    _read_topic_settings(out, members.get(TOPIC_CREATION_PREFIX, {}))
    _read_driver_options(out, members.get(DRIVER_PREFIX, {}))
    out.select_overrides = {
        table: text.strip().rstrip(";") for table, text in members.get(SELECT_OVERRIDES_PREFIX, {}).items()
    }
    out.columns = column_rules.read_column_rules(members)
    column_rules.read_converters(out.columns, converters)
    out.problems += out.columns.problems
    for prefix in kafka.PREFIXES:
        if prefix in members:
            translated = kafka.translate_settings(prefix, members[prefix])
            out.kafka_settings[prefix] = translated.settings
            out.problems += translated.problems
            _note_unused(out, prefix, translated.settings)
    return out


def _read_topic_settings(out: PropertyFamilies, members: Mapping[str, str]) -> None:
    for name, value in members.items():
        closest = closest_name(name, kafka_names.TOPIC_SETTINGS | {"partitions", "replication.factor"}, cutoff=0.85)
        if name in kafka_names.TOPIC_SETTINGS or closest is None:
            out.topic_settings[name] = value.strip()
            if name not in kafka_names.TOPIC_SETTINGS:
                out.notes.append(
                    f"{TOPIC_CREATION_PREFIX}{name} is given to Kafka as it is; Kafka 4 does not name such a setting"
                )
        else:
            fix = f"Write {TOPIC_CREATION_PREFIX}{closest}, if that is meant"
            out.problems.append(Problem(TOPIC_CREATION_PREFIX + name, "Kafka has no such topic setting", fix, value))


def _read_driver_options(out: PropertyFamilies, members: Mapping[str, str]) -> None:
    options: list[tuple[str, str | int]] = []
    for name, value in members.items():
        try:
            options.append((name, DRIVER_OPTIONS[name][0](value)))
        except ValueError as e:
            out.problems.append(Problem(DRIVER_PREFIX + name, str(e), "Correct the value", value))
    out.driver_options = tuple(options)


def _note_unused(out: PropertyFamilies, prefix: str, settings: Mapping[str, str]) -> None:
    if prefix in (kafka.HISTORY_PRODUCER_PREFIX, kafka.HISTORY_CONSUMER_PREFIX):
        for name in sorted(settings.keys() - kafka.security_settings(settings).keys()):
            out.notes.append(f"{prefix}{name} has no effect: the history is written by the writers' own producer")
