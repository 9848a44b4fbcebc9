"""Topics of tables that a batch is about to meet, created many at once.

A topic created by itself takes six requests and 25 ms. A batch that contains thousands of CREATE TABLE statements meets
the tables one by one; but the server has them all already, so a writer that has created a few topics lists the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkError, SourceError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, describe_created, ensure_topics

log = logging.getLogger(__name__)
LIST_TABLES_AFTER = 8
"""Topics that are created singly before the writer lists the server's tables; twice as many before the next time."""
TOPICS_PER_REQUEST = 250
"""Topics of one request: about a second in which the writer's Kafka transaction stays open."""


class TopicPrecreation:
    """Create topics when they are first needed, together with those that will be needed.

    Args:
        cfg: The connector's configuration.
        topic_to_create: Returns the topic of a captured table when this writer has to create it; None otherwise.
    """

    def __init__(self, cfg: ConnectorConfig, topic_to_create: Callable[[TableId], str | None]) -> None:
        self._cfg, self._topic_to_create = cfg, topic_to_create
        self._single_creations, self._list_after = 0, LIST_TABLES_AFTER
        self._expected_topics: dict[str, None] = {}
        self._created: dict[str, TopicInfo] = {}

    def create(self, topic: str) -> TopicInfo:
        """Create a topic, unless it exists, and describe it.

        Args:
            topic: Its name.

        Raises:
            SinkError: It cannot be created, or no longer exists.
        """
        if (topic_info := self._created.pop(topic, None)) is not None:
            return topic_info
        admin = make_admin(self._cfg.kafka_settings("admin"))
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
        """List the captured tables that the server has now."""
        try:
            with connect(self._cfg.connection_settings()) as conn:
                tables = captured_tables(conn, self._cfg)
        except SourceError as error:
            log.info("topics are created one by one: %s", error.message())
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
            # The error may concern another topic, which is not needed yet.
            log.info("topics are created one by one: %s", error.message())
            self._expected_topics.clear()

    def _create_topics(self, admin: AdminClient, topics: list[str]) -> dict[str, TopicInfo]:
        ensure_topics(admin, {topic: record_topics.table_topic_spec(self._cfg, topic) for topic in topics})
        return describe_created(admin, topics, broker_addresses(self._cfg.kafka_settings()))
