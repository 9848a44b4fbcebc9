"""Topic names, and the check that no two tables share one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_INVALID = re.compile(r"[^a-zA-Z0-9._-]")
_BEYOND_BMP = re.compile(r"[\U00010000-\U0010FFFF]")
HEARTBEAT_PREFIX = "__debezium-heartbeat"
MAX_LENGTH = 249


def sanitised(name: str) -> str:
    """Return a name with every character that Kafka topics cannot hold replaced by an underscore.

    Java counts characters outside the basic plane as two, so they become two underscores.
    """
    return _INVALID.sub("_", _BEYOND_BMP.sub("__", name))


def topic_name(prefix: str, table: TableId) -> str:
    """Return the topic of a table's events: ``prefix.db.table``, sanitised (TOPIC-01, EVT-04)."""
    return sanitised(f"{prefix}.{table.db}.{table.table}")


def schema_change_topic(prefix: str) -> str:
    """Return the topic of schema changes (TOPIC-06)."""
    return sanitised(prefix)


def transaction_topic(prefix: str, name: str = "transaction") -> str:
    """Return the topic of transaction metadata (TXN-06).

    Args:
        prefix: ``topic.prefix``.
        name: ``topic.transaction``.
    """
    return sanitised(f"{prefix}.{name}")


def heartbeat_topic(prefix: str, heartbeat_prefix: str = HEARTBEAT_PREFIX) -> str:
    """Return the topic of heartbeats (TOPIC-09).

    Args:
        prefix: ``topic.prefix``.
        heartbeat_prefix: ``topic.heartbeat.prefix``.
    """
    return sanitised(f"{heartbeat_prefix}.{prefix}")


def table_topics(
    prefix: str,
    tables: Iterable[TableId],
    *,
    reserved: Iterable[str] = (),
    route: Callable[[str], str] = str,
) -> dict[TableId, str]:
    """Return every table's topic.

    Names are compared before they are routed: tables that transforms bring together share a topic because somebody
    asked for it.

    Args:
        prefix: ``topic.prefix``.
        tables: The captured tables.
        reserved: Topics that tables must not use (schema changes, transactions, heartbeats, ledger, history).
        route: Gives the topic that the transforms make of a name (TOPIC-05).

    Raises:
        ConfigError: Two tables, or a table and a reserved topic, get the same name after replacement, or a name is
            longer than Kafka allows (FAULT-32, EVT-05).
    """
    topics = {table: topic_name(prefix, table) for table in tables}
    routed = {table: route(topic) for table, topic in topics.items()}
    check_collisions(topics, reserved=reserved, longest=routed.values())
    return routed


def check_collisions(
    topics: Mapping[TableId, str], *, reserved: Iterable[str] = (), longest: Iterable[str] | None = None
) -> None:
    """Refuse topic names that cannot be told apart or are too long.

    Args:
        topics: Topic by table.
        reserved: Topics that tables must not use.
        longest: The names whose length counts; None means all of ``topics``.

    Raises:
        ConfigError: See ``table_topics``; the message names every collision.
    """
    users: dict[str, list[str]] = {name: [f"the topic {name} itself"] for name in reserved}
    for table, topic in sorted(topics.items()):
        users.setdefault(topic, []).append(str(table))
    problems = [f"{topic}: {', '.join(names)}" for topic, names in sorted(users.items()) if len(names) > 1]
    problems += [
        f"{topic}: longer than {MAX_LENGTH} characters"
        for topic in sorted(set(users if longest is None else longest))
        if len(topic) > MAX_LENGTH
    ]
    if problems:
        raise ConfigError(
            "tables cannot get a topic of their own",
            where="; ".join(problems),
            why="characters that topic names cannot hold are replaced by underscores, so different names become equal",
            remedy="exclude one table of each group with table.exclude.list, or rename it",
        )
