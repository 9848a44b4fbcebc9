"""Properties of TiCDC's Avro protocol, and its dispatchers with table filters and topic expressions (CFG-123 to
CFG-132).

TiDB's table filter, by which dispatchers say which tables they are for.

A rule is ``database.table``. In both parts ``*`` stands for any text, ``?`` for one character, ``[a-z]`` and ``[!a-z]``
for one of or none of a set; a part in backticks or double quotes is taken as it is, one between slashes is a regular
expression. A rule that begins with ``!`` takes tables out again; the last rule that fits a table decides. Names are
compared without case (TiDB documentation, "Table Filter").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import TicdcBigintUnsignedMode, TicdcDecimalMode, ValueFormat
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, Lookup, SetBy
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import DISPATCHER_NAMES, PartitionRule

_QUOTES = {"`": "`", '"': '"'}
_WILDCARDS = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class _FilterRule:
    includes: bool
    database: re.Pattern[str]
    table: re.Pattern[str]


class TableFilter:
    """Say which tables the rules of a matcher fit.

    Args:
        rules: The rules in order.
        where: The property, for errors.

    Raises:
        ConfigError: A rule cannot be read.
    """

    def __init__(self, rules: Sequence[str], where: str) -> None:
        self._rules = tuple(_parse_filter_rule(text, where) for text in rules)

    def matches(self, table: TableId) -> bool:
        """Return whether a table is meant."""
        for rule in reversed(self._rules):
            if rule.database.fullmatch(table.db) and rule.table.fullmatch(table.table):
                return rule.includes
        return False


def _parse_filter_rule(text: str, where: str) -> _FilterRule:
    includes = not text.startswith("!")
    try:
        database, remainder = _parse_part(text if includes else text[1:])
        if not remainder.startswith("."):
            raise ValueError("a dot between database and table is missing")
        table, remainder = _parse_part(remainder[1:])
        if remainder:
            raise ValueError(f"{remainder!r} follows the table")
    except (ValueError, re.error) as error:
        raise ConfigError(
            f"the rule {text!r} cannot be read",
            where=where,
            why=str(error),
            remedy="write database.table, for example 'shop.*', '*.orders', '!shop.tmp_*' or '/^shop[0-9]+$/.orders'",
        ) from None
    return _FilterRule(includes, database, table)


def _parse_part(text: str) -> tuple[re.Pattern[str], str]:
    """Return the pattern of the first part of a rule, and what stands behind it."""
    first = text[:1]
    if first in _QUOTES:
        end = text.find(_QUOTES[first], 1)
        if end < 0:
            raise ValueError(f"the closing {first} is missing")
        return _compile(re.escape(text[1:end])), text[end + 1 :]
    if first == "/":
        end = text.find("/", 1)
        if end < 0:
            raise ValueError("the closing / is missing")
        return _compile(f".*(?:{text[1:end]}).*" if end > 1 else ".*"), text[end + 1 :]
    pieces = list(_part_patterns(text))
    if not pieces:
        raise ValueError("the name of the database or of the table is missing")
    return _compile("".join(piece for piece, _ in pieces)), text[sum(size for _, size in pieces) :]


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _part_patterns(text: str) -> Iterator[tuple[str, int]]:
    """Yield the regular expression of each piece of a part up to its dot, and the piece's length."""
    pos = 0
    while pos < len(text) and text[pos] != ".":
        size = 1
        if text[pos] == "[":
            end = text.find("]", pos + 2)
            if end < 0:
                raise ValueError("the closing ] is missing")
            size = end + 1 - pos
            inner = text[pos + 1 : end]
            yield f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]".replace("\\", "\\\\"), size
        else:
            yield _WILDCARDS.get(text[pos], re.escape(text[pos])), size
        pos += size


_VALID_EXPRESSION = re.compile(r"[A-Za-z0-9._-]*\{schema\}[A-Za-z0-9._-]*\{table\}[A-Za-z0-9._-]*")
_FORBIDDEN_CHARACTER = re.compile(r"[^A-Za-z0-9._-]")
# Kafka's limit on a topic's name.
_MAX_TOPIC_LENGTH = 249


def validate_expression(text: str, where: str) -> str:
    """Return an expression that gives each table a topic.

    Args:
        text: The expression.
        where: The property, for errors.

    Raises:
        ConfigError: ``{schema}`` and ``{table}`` do not both stand in it in this order, or it has characters that
            no topic has.
    """
    if _VALID_EXPRESSION.fullmatch(text):
        return text
    missing = [mark for mark in ("{schema}", "{table}") if mark not in text]
    raise ConfigError(
        f"the topic rule {text!r} cannot be used with Avro",
        where=where,
        why=f"{' and '.join(missing)} is missing, so that several tables would share a topic and its schema"
        if missing
        else "a topic's name has letters, digits, dots, underscores and hyphens only, and {schema} before {table}",
        remedy="write for example tidb_{schema}_{table}",
    )


def topic_of_table(expression: str, table: TableId) -> str:
    """Return the topic that an expression gives a table; what no topic's name may hold becomes an underscore.

    Args:
        expression: From ``validate_expression``.
        table: The table.

    Raises:
        ConfigError: The name is longer than Kafka allows. (TiCDC cuts it, so that two tables may share it.)
    """
    database, name = (_FORBIDDEN_CHARACTER.sub("_", part) for part in (table.db, table.table))
    topic = expression.replace("{schema}", database).replace("{table}", name)
    if len(topic) > _MAX_TOPIC_LENGTH:
        raise ConfigError(
            f"the topic of table {table} would have {len(topic)} characters: {topic}",
            where=f"dispatchers, topic {expression}",
            why=f"Kafka allows {_MAX_TOPIC_LENGTH}",
            remedy="shorten the expression, or exclude the table",
        )
    return {".": "_", "..": "__"}.get(topic, topic)


WHERE = "dispatchers"
_MEMBERS = ("matcher", "topic", "partition", "dispatcher", "index", "columns")
_EXAMPLE = '[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"}]'


@dataclass(frozen=True, slots=True)
class DispatchRule:
    """Say where tables' rows go.

    Args:
        tables: Which tables the rule is for.
        topic: Topic expression.
        partition: How rows are spread over partitions.
    """

    tables: TableFilter
    topic: str
    partition: PartitionRule

    def topic_of(self, table: TableId) -> str:
        """Return a table's topic."""
        return topic_of_table(self.topic, table)


def dispatch_rules(text: str) -> tuple[DispatchRule, ...]:
    """Return the rules of the property's text.

    Args:
        text: A JSON list of objects with ``matcher`` (a list of table filters), ``topic`` and, if wanted,
            ``partition`` (or its older name ``dispatcher``) with ``index`` or ``columns``.

    Raises:
        ConfigError: It is not of this form.
    """
    try:
        items = json.loads(text)
    except ValueError as error:
        raise _invalid("is not JSON", str(error)) from None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _invalid("is not a list of objects", text)
    return tuple(_parse_rule(item, number) for number, item in enumerate(items, 1))


def rule_for(rules: tuple[DispatchRule, ...], table: TableId) -> DispatchRule:
    """Return the first rule that fits a table.

    Args:
        rules: From ``dispatch_rules``.
        table: The table.

    Raises:
        ConfigError: None fits.
    """
    for rule in rules:
        if rule.tables.matches(table):
            return rule
    raise ConfigError(
        f"no dispatcher fits table {table}, so that it has no topic",
        where=WHERE,
        remedy='add a last rule for all others: {"matcher": ["*.*"], "topic": "tidb_{schema}_{table}"}, or exclude it',
    )


def _parse_rule(item: Mapping[str, Any], number: int) -> DispatchRule:
    where = f"{WHERE}, rule {number}"
    unknown = [name for name in item if name not in _MEMBERS]
    if unknown:
        raise _invalid(f"has an unknown member {unknown[0]}", f"the members are {', '.join(_MEMBERS)}", where)
    matcher = _text_list(item, "matcher", where)
    if not matcher:
        raise _invalid("has no matcher", "a rule needs the tables that it applies to", where)
    topic = item.get("topic")
    if not isinstance(topic, str):
        raise _invalid("has no topic", "with Avro each table needs a topic of its own", where)
    name = item.get("partition", item.get("dispatcher", "default"))
    if name not in DISPATCHER_NAMES:
        raise _invalid(f"has partition {name!r}", f"known are {', '.join(DISPATCHER_NAMES)}", where)
    rule = PartitionRule(name, str(item.get("index", "")), tuple(_text_list(item, "columns", where)))
    return DispatchRule(TableFilter(matcher, where), validate_expression(topic, where), rule)


def _text_list(item: Mapping[str, Any], name: str, where: str) -> list[str]:
    texts = item.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _invalid(f"has a {name} that is not a list of texts", repr(texts), where)
    return texts


def _invalid(what: str, why: str, where: str = WHERE) -> ConfigError:
    subject = "the property" if where == WHERE else "the rule"
    return ConfigError(f"{subject} {what}", where=where, why=why, remedy=f"write for example {_EXAMPLE}")


def _parse_dispatchers(value: str) -> tuple[DispatchRule, ...]:
    if not value.strip():
        return ()
    try:
        return dispatch_rules(value)
    except ConfigError as error:
        raise ValueError(f"{error.what} [{error.where}]: {error.why}; {error.remedy}") from None


VALUE_FORMAT: Field[ValueFormat] = Field(
    "value.format",
    parse_value.choice(ValueFormat),
    ValueFormat.DEBEZIUM,
    "What the records of tables are. With `ticdc-avro` keys and values are Avro, with one registry for both "
    "(`schema-registry`).",
    Group.TICDC,
    enum=ValueFormat.docs(),
    provider_specific=True,
    refs=("AVRO-01", "CFG-123"),
    set_by=SetBy.RUN,
)
TIDB_EXTENSION: Field[bool] = Field(
    "enable-tidb-extension",
    parse_value.boolean,
    False,
    "Add operation and commit timestamp to each value: `_tidb_op`, `_tidb_commit_ts`, `_tidb_commit_physical_time`.",
    Group.TICDC,
    provider_specific=True,
    refs=("CFG-124",),
    set_by=SetBy.RUN,
)
TICDC_DECIMAL: Field[TicdcDecimalMode] = Field(
    "avro-decimal-handling-mode",
    parse_value.choice(TicdcDecimalMode),
    TicdcDecimalMode.PRECISE,
    "How DECIMAL is written.",
    Group.TICDC,
    enum=TicdcDecimalMode.docs(),
    provider_specific=True,
    refs=("CFG-125",),
    set_by=SetBy.RUN,
)
TICDC_BIGINT_UNSIGNED: Field[TicdcBigintUnsignedMode] = Field(
    "avro-bigint-unsigned-handling-mode",
    parse_value.choice(TicdcBigintUnsignedMode),
    TicdcBigintUnsignedMode.LONG,
    "How BIGINT UNSIGNED is written.",
    Group.TICDC,
    enum=TicdcBigintUnsignedMode.docs(),
    provider_specific=True,
    refs=("CFG-126",),
    set_by=SetBy.RUN,
)
TICDC_NAMESPACE: Field[str] = Field(
    "ticdc.namespace",
    str.strip,
    "default",
    "What the Avro namespace of schemas begins with; the database follows. TiCDC has its changefeed's namespace there.",
    Group.TICDC,
    provider_specific=True,
)
DISPATCHERS: Field[tuple[DispatchRule, ...]] = Field(
    "dispatchers",
    _parse_dispatchers,
    (),
    "Topics and partitions by table, as a JSON list of TiCDC's rules: "
    '`[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"}]`. The first rule that fits '
    "a table counts. Without rules topics are named `topic.prefix.database.table`, and a table stays in one partition.",
    Group.TICDC,
    provider_specific=True,
    refs=("CFG-132",),
)

TICDC_FIELDS: tuple[Field[Any], ...] = (
    TIDB_EXTENSION,
    TICDC_DECIMAL,
    TICDC_BIGINT_UNSIGNED,
    TICDC_NAMESPACE,
    DISPATCHERS,
)
"""Properties that only its records have."""


def is_ticdc(get: Lookup) -> bool:
    """Say whether records of tables are written in TiCDC's protocol."""
    return get[VALUE_FORMAT] is ValueFormat.TICDC_AVRO
