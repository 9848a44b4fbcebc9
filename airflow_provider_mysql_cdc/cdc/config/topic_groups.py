"""Groups of topics that are created otherwise than the rest: ``topic.creation.groups`` and ``topic.creation.NAME.*``.

As Kafka Connect does: the first group in the list counts whose ``include`` has an expression that matches the whole
name of the topic, and whose ``exclude`` has none. Partitions and replicas that it does not set are the default's;
other settings are not. Source: KIP-158, ``TopicCreationGroup`` of Kafka Connect 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.model.expression import Expression

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
