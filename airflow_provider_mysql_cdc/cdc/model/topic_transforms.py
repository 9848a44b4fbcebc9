"""Where records go: topic, schema names and added key fields after the transforms, partitions by TiCDC's rules.

Where records go: topic, schema names and added key fields after the transforms that rename topics.

Source: ``RegexRouter`` of Kafka 4.1 and ``ByLogicalTableRouter`` of Debezium 3.6.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.model import avro_names
from airflow_provider_mysql_cdc.cdc.model.expression import Expression

_GROUP_NAME = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Rewrite a whole name as Java's ``matches`` and then ``replaceFirst`` do.

    Args:
        pattern: The expression.
        parts: The replacement: texts, and the numbers of groups.
    """

    pattern: Expression
    parts: tuple[str | int, ...]

    def __call__(self, name: str) -> str | None:
        """Return the new name, or None when the expression does not match the whole name.

        ``replaceFirst`` searches anew, so its match may be shorter than the whole name; the rest then stays.
        """
        if self.pattern.fullmatch(name) is None or (match := self.pattern.search(name)) is None:
            return None
        replaced = "".join(part if isinstance(part, str) else match[part] or "" for part in self.parts)
        return name[: match.start()] + replaced + name[match.end() :]


def parse_replacement(text: str, pattern: Expression) -> tuple[str | int, ...]:
    r"""Return the parts of a Java replacement: ``$1`` and ``${name}`` are groups, a backslash quotes a character.

    Args:
        text: The replacement.
        pattern: The expression whose groups it names.

    Raises:
        ValueError: It is no replacement for this expression.
    """
    parts: list[str | int] = []
    i = 0
    while i < len(text):
        char = text[i]
        i += 1
        if char == "\\":
            if i == len(text):
                raise ValueError("ends in a backslash that escapes nothing")
            parts.append(text[i])
            i += 1
        elif char == "$":
            group, i = _group_reference(text, i, pattern)
            parts.append(group)
        else:
            parts.append(char)
    return tuple(parts)


def _group_reference(text: str, i: int, pattern: Expression) -> tuple[int, int]:
    """Return the number of the group that a dollar refers to, and the index behind the reference."""
    if (match := _GROUP_NAME.match(text, i)) is not None:
        if match[1] not in pattern.groupindex:
            raise ValueError(f"refers to the group {match[1]!r}, which the expression does not have")
        return pattern.groupindex[match[1]], match.end()
    if i == len(text) or text[i] not in "0123456789":
        raise ValueError(r"has a dollar without the number of a group; write \$ for the character")
    group = int(text[i])
    i += 1
    if group > pattern.groups:
        raise ValueError(f"refers to group {group}; the expression has {pattern.groups}")
    # As many digits belong to the number as leave a group that exists.
    while i < len(text) and text[i] in "0123456789" and group * 10 + int(text[i]) <= pattern.groups:
        group = group * 10 + int(text[i])
        i += 1
    return group, i


@dataclass(frozen=True, slots=True)
class LogicalTableOptions:
    """Say what ``ByLogicalTableRouter`` changes beside the topic.

    Args:
        key_field: Name of the field that keys get, or None (``key.enforce.uniqueness=false``).
        identifier: Makes the field's value of the old topic name; the name itself where it does not match.
        adjustment: Its ``schema.name.adjustment.mode``.
        keep_leading_digit: Whether Avro names keep a leading digit behind its underscore; in contract 1.9 they do not.
    """

    key_field: str | None
    identifier: Rewrite | None = None
    adjustment: str = "none"
    keep_leading_digit: bool = True


@dataclass(frozen=True, slots=True)
class TopicPredicate:
    """Select topics, as Kafka's ``TopicNameMatches`` does.

    Args:
        pattern: Matches the whole topic name.
        negated: Whether the other topics are selected.
    """

    pattern: Expression
    negated: bool = False

    def selects(self, topic: str) -> bool:
        """Return whether a topic is selected."""
        return (self.pattern.fullmatch(topic) is not None) != self.negated


@dataclass(frozen=True, slots=True)
class Router:
    """Rename topics.

    Args:
        rewrite: Makes the new name.
        logical: What else changes; None for ``RegexRouter``.
        predicate: Selects the topics that it applies to, by their names before it; None for all.
    """

    rewrite: Rewrite
    logical: LogicalTableOptions | None = None
    predicate: TopicPredicate | None = None

    def apply(self, destination: Destination) -> Destination:
        """Return where the records of a destination go behind this router."""
        if self.predicate is not None and not self.predicate.selects(destination.topic):
            return destination
        topic = self.rewrite(destination.topic)
        if topic is None:
            return destination
        if self.logical is None:
            return Destination(
                topic, destination.key_name, destination.value_name, destination.envelope_name, destination.key_fields
            )
        if not topic:
            return destination
        logical, key_fields = self.logical, destination.key_fields
        if logical.key_field is not None:
            key_value = logical.identifier(destination.topic) if logical.identifier is not None else None
            key_fields = (*key_fields, (logical.key_field, destination.topic if key_value is None else key_value))
        key, value, envelope = (
            avro_names.schema_name(f"{topic}.{part}", logical.adjustment, keep_leading_digit=logical.keep_leading_digit)
            for part in ("Key", "Value", "Envelope")
        )
        return Destination(topic, key, value, envelope, key_fields)


@dataclass(frozen=True, slots=True)
class Destination:
    """Say where the records of one source topic go and how they are named there.

    Args:
        topic: The topic.
        key_name: Name of the key schema; None leaves it as it is.
        value_name: Name of the row schema of row events; None leaves it as it is.
        envelope_name: Name of the envelope schema of row events; None leaves it as it is.
        key_fields: Names and values of the fields at the end of every key.
    """

    topic: str
    key_name: str | None = None
    value_name: str | None = None
    envelope_name: str | None = None
    key_fields: tuple[tuple[str, str], ...] = ()

    def schema_names(self) -> dict[str, str]:
        """Return the names of changed schemas by part (``Key``, ``Value``, ``Envelope``)."""
        names = {"Key": self.key_name, "Value": self.value_name, "Envelope": self.envelope_name}
        return {part: name for part, name in names.items() if name is not None}


@dataclass(frozen=True, slots=True)
class TopicTransforms:
    """Hold the transforms of a configuration.

    Args:
        routers: Those that rename topics, in their order.
        read_is_create: Whether snapshot rows have op ``c`` in place of ``r``.
    """

    routers: tuple[Router, ...] = ()
    read_is_create: bool = False

    def route(self, topic: str) -> Destination:
        """Return where the records of a topic go.

        Args:
            topic: Its name before all transforms.
        """
        destination = Destination(topic)
        for router in self.routers:
            destination = router.apply(destination)
        return destination


DISPATCHER_NAMES = ("default", "table", "index-value", "columns", "ts")
"""Known dispatchers; ``ticdc.partition_dispatcher`` says what each does."""


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Say how rows are spread over partitions.

    Args:
        name: One of ``DISPATCHER_NAMES``.
        index: Name of the unique index for ``index-value``; empty for the key.
        columns: Names of the columns for ``columns``.
    """

    name: str = "default"
    index: str = ""
    columns: tuple[str, ...] = ()
