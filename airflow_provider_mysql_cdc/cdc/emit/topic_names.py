"""Topic names, and the check that no two tables share one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

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
    return name if _INVALID.search(name) is None else _INVALID.sub("_", _BEYOND_BMP.sub("__", name))


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
    route_topic: Callable[[str], str] = str,
    name: Callable[[TableId], str] | None = None,
) -> dict[TableId, str]:
    """Return every table's topic.

    Names are compared before they are routed: tables that transforms route to one topic share it on
    purpose.

    Args:
        prefix: ``topic.prefix``.
        tables: The captured tables.
        reserved: Topics that tables must not use (schema changes, transactions, heartbeats, ledger, history).
        route_topic: Returns the topic to which the transforms route a name (TOPIC-05).
        name: Returns a table's topic before them; None means ``topic_name``.

    Raises:
        ConfigError: Two tables, or a table and a reserved topic, get the same name after replacement, a name is longer
            than Kafka allows (FAULT-32, EVT-05), or two tables cannot be told apart (``check_names``).
    """
    check_names(tables := tuple(tables))
    topics = {table: topic_name(prefix, table) if name is None else name(table) for table in tables}
    routed = {table: route_topic(topic) for table, topic in topics.items()}
    check_collisions(topics, reserved=reserved, longest=routed.values())
    return routed


class TopicOwners:
    """Track which table has which topic while a drain applies DDL.

    A table that is created with, or renamed to, another table's topic would mix its rows with the other's: equal keys
    are different rows there, and the delete of one removes the other from a compacted topic.

    Args:
        name: Returns a table's topic before transforms.
        route_topic: Returns the topic to which the transforms route a name.
        is_captured: Says whether a table is captured.
        reserved: Topics that tables must not use.
        tables: The tables at the start.
    """

    def __init__(
        self,
        name: Callable[[TableId], str],
        route_topic: Callable[[str], str],
        is_captured: Callable[[TableId], bool],
        reserved: Iterable[str],
        tables: Iterable[TableId],
    ) -> None:
        self._name, self._route_topic, self._is_captured = name, route_topic, is_captured
        self._reserved = frozenset(reserved)
        self._tables: set[TableId] = set(tables)
        captured = [t for t in self._tables if is_captured(t)]
        self._table_by_topic: dict[str, TableId] = {name(t): t for t in captured}
        self._table_by_text: dict[str, TableId] = {str(t): t for t in captured}

    def update_tables(
        self, tables: AbstractSet[TableId], where: str, affected: Collection[TableId] | None = None
    ) -> None:
        """Record the tables that exist after a statement.

        Args:
            tables: All tables there are now.
            where: The statement's position, for the error.
            affected: Tables that the statement may have created or removed; None compares all, which with thousands of
                tables costs more than the statement.

        Raises:
            ConfigError: A new table would share a topic (FAULT-32), or its topic name is not allowed by Kafka.
        """
        previous = self._tables
        added = tables - previous if affected is None else {t for t in affected if t in tables and t not in previous}
        removed = previous - tables if affected is None else {t for t in affected if t in previous and t not in tables}
        self._tables -= removed
        self._tables |= added
        for table in removed:
            for owners, owned in ((self._table_by_topic, self._name(table)), (self._table_by_text, str(table))):
                if owners.get(owned) in removed:
                    del owners[owned]
        for table in sorted(filter(self._is_captured, added)):
            topic = self._name(table)
            other = self._table_by_topic.get(topic)
            shared = {table: topic} if other is None else {table: topic, other: topic}
            try:
                check_names((table, self._table_by_text.get(str(table), table)))
                check_collisions(shared, reserved=self._reserved & {topic}, longest=[self._route_topic(topic)])
            except ConfigError as error:
                raise ConfigError(
                    error.what,
                    where=f"{where}; {error.where}",
                    why=error.why,
                    remedy=f"{error.remedy}. A batch that has begun refuses other lists of tables: discard it first "
                    "with DAG mysql_cdc_reset_offset, offset=stored (committed records come again)",
                ) from error
            self._table_by_topic[topic] = self._table_by_text[str(table)] = table


def check_names(tables: Iterable[TableId]) -> None:
    """Refuse tables whose names have dots at different places of one text, as ``d.x`` with ``y``, ``d`` with ``x.y``.

    Debezium's names of topics and lists of tables, and so signals and the ledger, have this text only.

    Args:
        tables: The captured tables.

    Raises:
        ConfigError: The message names each group.
    """
    by_text: dict[str, set[TableId]] = {}
    for table in tables:
        by_text.setdefault(str(table), set()).add(table)
    groups = [sorted(group) for _, group in sorted(by_text.items()) if len(group) > 1]
    if groups:
        raise ConfigError(
            "captured tables cannot be told apart",
            where="; ".join(" and ".join(table.debezium_id() for table in group) for group in groups),
            why=f"names with dots: each group is one text ({groups[0][0]}) in topics, lists of tables and signals",
            remedy="exclude one database of each group with database.exclude.list (a list of tables matches both "
            "tables), or rename a table",
        )


def check_collisions(
    topics: Mapping[TableId, str], *, reserved: Iterable[str] = (), longest: Iterable[str] | None = None
) -> None:
    """Refuse topic names that are equal or too long.

    Args:
        topics: Topic by table.
        reserved: Topics that tables must not use.
        longest: The names whose length is checked; None means all of ``topics``.

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
            "tables cannot have a topic of their own",
            where="; ".join(problems),
            why="characters that topic names cannot hold are replaced by underscores, so different names become equal; "
            "or a topic of the stream itself has the name of a table's topic",
            remedy="exclude one table of each group with table.exclude.list, or rename it; where it is the ledger, the "
            "schema history or another topic of the stream itself, give that one another name (ledger.topic, "
            "schema.history.internal.kafka.topic ...)",
        )
