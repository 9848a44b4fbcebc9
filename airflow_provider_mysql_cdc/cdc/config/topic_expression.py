"""Topic expressions of dispatchers: ``tidb_{schema}_{table}`` (AVRO-59 to AVRO-61, FAULT-29)."""

from __future__ import annotations

import re

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
