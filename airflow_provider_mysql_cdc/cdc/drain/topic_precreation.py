"""Topics of tables that a batch is about to meet, made many at once.

A topic made by itself takes six requests and 25 ms. A batch in which somebody creates thousands of tables meets them
one by one; but they stand on the server already, so a writer that has made a few topics asks for the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError, SourceError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import brokers
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, describe_made, ensure_topics

log = logging.getLogger(__name__)
AFTER = 8
"""Topics that are made by themselves before the server is asked for more tables; twice as many before the next time."""
AT_ONCE = 250
"""Topics that are made together: about a second in which the writer's Kafka transaction stays open."""


class TopicsAhead:
    """Make topics when they are first needed, and with them those that will be.

    Args:
        cfg: The connector's configuration.
        wanted: Gives the topic of a captured table when this writer will have to make it; None otherwise.
    """

    def __init__(self, cfg: ConnectorConfig, wanted: Callable[[TableId], str | None]) -> None:
        self._cfg, self._wanted = cfg, wanted
        self._alone, self._look = 0, AFTER
        self._coming: dict[str, None] = {}
        self._made: dict[str, TopicInfo] = {}

    def make(self, topic: str) -> TopicInfo:
        """Make a topic, unless it is there, and return what it is.

        Args:
            topic: Its name.

        Raises:
            SinkError: It cannot be made, or is gone again.
        """
        if (made := self._made.pop(topic, None)) is not None:
            return made
        admin = make_admin(self._cfg.kafka_settings())
        if topic not in self._coming:
            self._alone += 1
            if self._alone >= self._look:
                self._look *= 2
                self._ask()
        if topic in self._coming:
            self._make_with_others(admin, topic)
            if (made := self._made.pop(topic, None)) is not None:
                return made
        return self._make(admin, [topic])[topic]

    def _ask(self) -> None:
        """Ask the server which captured tables there are by now."""
        try:
            with connect(self._cfg.connection_settings()) as conn:
                tables = captured_tables(conn, self._cfg)
        except SourceError as error:
            log.info("topics are made one by one: %s", error.message())
            return
        self._coming = dict.fromkeys(topic for table in tables if (topic := self._wanted(table)) is not None)

    def _make_with_others(self, admin: AdminClient, topic: str) -> None:
        others = islice((name for name in self._coming if name != topic), AT_ONCE - 1)
        names = [topic, *others]
        for name in names:
            del self._coming[name]
        try:
            self._made |= self._make(admin, names)
        except SinkError as error:
            # It may be about another one, which nobody needs yet.
            log.info("topics are made one by one: %s", error.message())
            self._coming.clear()

    def _make(self, admin: AdminClient, names: list[str]) -> dict[str, TopicInfo]:
        ensure_topics(admin, dict.fromkeys(names, wiring.table_topic(self._cfg)))
        return describe_made(admin, names, brokers(self._cfg.kafka_settings()))
