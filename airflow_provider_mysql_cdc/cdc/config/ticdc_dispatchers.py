"""The property ``dispatchers``: topic and partition rules by table, the first that fits counts (AVRO-60, CFG-132)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.table_filter import TableFilter
from airflow_provider_mysql_cdc.cdc.config.topic_expression import topic_of_table, validate_expression
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.partition_rule import DISPATCHER_NAMES, PartitionRule
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
