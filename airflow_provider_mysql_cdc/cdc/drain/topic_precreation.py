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
from airflow_provider_mysql_cdc.cdc.formats import topic_routing
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, describe_created, ensure_topics

log = logging.getLogger(__name__)
LIST_TABLES_AFTER = 8
"""Topics that are made by themselves before the server is asked for more tables; twice as many before the next time."""
TOPICS_PER_REQUEST = 250
"""Topics that are made together: about a second in which the writer's Kafka transaction stays open."""


class TopicPrecreation:
    """Make topics when they are first needed, and with them those that will be.

    Args:
        cfg: The connector's configuration.
        topic_to_create: Gives the topic of a captured table when this writer will have to make it; None otherwise.
    """

    def __init__(self, cfg: ConnectorConfig, topic_to_create: Callable[[TableId], str | None]) -> None:
        self._cfg, self._topic_to_create = cfg, topic_to_create
        self._single_creations, self._list_after = 0, LIST_TABLES_AFTER
        self._expected_topics: dict[str, None] = {}
        self._created: dict[str, TopicInfo] = {}

    def create(self, topic: str) -> TopicInfo:
        """Make a topic, unless it is there, and return what it is.

        Args:
            topic: Its name.

        Raises:
            SinkError: It cannot be made, or is gone again.
        """
        if (topic_info := self._created.pop(topic, None)) is not None:
            return topic_info
        admin = make_admin(self._cfg.kafka_settings())
        if topic not in self._expected_topics:
            self._single_creations += 1
            if self._single_creations >= self._list_after:
                self._list_after *= 2
                self._list_tables()
        if topic in self._expected_topics:
            self._create_with_others(admin, topic)
            if (topic_info := self._created.pop(topic, None)) is not None:
                return topic_info
        return self._create_topics(admin, [topic])[topic]

    def _list_tables(self) -> None:
        """Ask the server which captured tables there are by now."""
        try:
            with connect(self._cfg.connection_settings()) as conn:
                tables = captured_tables(conn, self._cfg)
        except SourceError as error:
            log.info("topics are made one by one: %s", error.message())
            return
        self._expected_topics = dict.fromkeys(
            topic for table in tables if (topic := self._topic_to_create(table)) is not None
        )

    def _create_with_others(self, admin: AdminClient, topic: str) -> None:
        other_topics = islice((name for name in self._expected_topics if name != topic), TOPICS_PER_REQUEST - 1)
        topics = [topic, *other_topics]
        for name in topics:
            del self._expected_topics[name]
        try:
            self._created |= self._create_topics(admin, topics)
        except SinkError as error:
            # It may be about another one, which nobody needs yet.
            log.info("topics are made one by one: %s", error.message())
            self._expected_topics.clear()

    def _create_topics(self, admin: AdminClient, topics: list[str]) -> dict[str, TopicInfo]:
        ensure_topics(admin, dict.fromkeys(topics, topic_routing.table_topic_spec(self._cfg)))
        return describe_created(admin, topics, broker_addresses(self._cfg.kafka_settings()))
