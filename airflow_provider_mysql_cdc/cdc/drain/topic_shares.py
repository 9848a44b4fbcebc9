"""Which partitions of each table's topic a writer produces, and how topics that are missing are created.

Topics of tables that a batch is about to meet, created many at once.

A topic created by itself takes six requests and 25 ms. A batch that contains thousands of CREATE TABLE statements meets
the tables one by one; but the server has them all already, so a writer that has created a few topics lists the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from confluent_kafka.admin import AdminClient

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic, topic_record, topics_changed_error
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.topic_names import TopicOwners
from airflow_provider_mysql_cdc.cdc.errors import SinkError, SourceError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare, topic_share
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
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


class TopicShares:
    """Give a writer its share of each table's topic, and create topics that the batch plan does not know.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        writer: The writer's index, from 0.
        side_records: Gets a ledger record of each topic created inside the batch, for the next commit.
        recorded_topics: Topics as the ledger knew them when the writer started; gets those that it creates.
        tables: The tables at the batch's start, whose recorded topics the driver has compared.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        plan: BatchPlan,
        writer: int,
        side_records: list[SideRecord],
        recorded_topics: dict[str, RecordedTopic] | None = None,
        tables: Collection[TableId] = (),
    ) -> None:
        self._cfg, self._plan, self._writer = cfg, plan, writer
        self._side_records, self._tables = side_records, tables
        self._recorded_topics = {} if recorded_topics is None else recorded_topics
        self._created_topics = set[str]()
        self._precreation = TopicPrecreation(cfg, self._missing_topic)
        self._owners: TopicOwners | None = None

    def on_schema_change(
        self, before: SchemaState, after: SchemaState, where: str, changes: Iterable[TableChange] = ()
    ) -> None:
        """Check that no table that a statement created or renamed shares its topic with another table.

        Args:
            before: Table structures before the statement.
            after: Table structures after the statement.
            where: The statement's ``file:position``, for the error.
            changes: What it did.

        Raises:
            ConfigError: Two tables would share a topic (FAULT-32).
        """
        if self._owners is None:
            self._owners = record_topics.topic_owners(self._cfg, before.tables)
        self._owners.update_tables(after.tables.keys(), where, _named_tables(changes))

    def share_of(self, table: TableId) -> TopicShare:
        """Return the writer's share of a captured table's topic, whether the topic exists or not.

        Args:
            table: The table.
        """
        topic = record_topics.table_topic_name(self._cfg, table)
        if self._cfg.chain is not None:
            # A name before the transforms; the topic behind them is found by the writer (``formats.chain_writer``).
            return TopicShare(topic, 1, frozenset({0}), True)
        recorded = self._recorded_topics.get(topic)
        default = self._cfg.topic_partitions(topic) if recorded is None else recorded.partitions
        return topic_share(self._plan, self._writer, topic, default)

    def ensure_share(self, table: TableId) -> TopicShare:
        """Return the writer's share of a captured table's topic; a topic of which it produces anything exists then.

        Args:
            table: The table.

        Raises:
            SinkError: The topic cannot be created.
            TopicChangedError: An earlier attempt at this batch found another topic of that name.
        """
        share = self.share_of(table)
        if self._is_missing(table, share):
            # A table created inside the batch, or one whose topic did not exist when the batch was planned.
            return self._create_topic(table, share.topic)
        return share

    def _create_topic(self, table: TableId, topic: str) -> TopicShare:
        """Create a topic unless it exists, and take over its partition count whoever created it.

        The topic's ledger record is committed with its first record, so that the batch's other attempts find the same
        topic.
        """
        topic_info, recorded = self._precreation.create(topic), self._recorded_topics.get(topic)
        # Spark may start a writer again within one attempt of the driver, which has compared the topics before.
        if (
            recorded is not None
            and recorded.epoch == self._plan.epoch
            and (difference := recorded.difference(topic_info))
        ):
            raise topics_changed_error({topic: difference}, self._plan, has_commits=True)
        self._created_topics.add(topic)
        created = self._recorded_topics[topic] = RecordedTopic(topic_info.partitions, topic_info.id, self._plan.epoch)
        self._side_records.append(topic_record(self._cfg.ledger_topic, topic, created))
        return self.share_of(table)

    def _missing_topic(self, table: TableId) -> str | None:
        """Return a captured table's topic when this writer will have to create it; None otherwise."""
        share = self.share_of(table)
        return share.topic if self._is_missing(table, share) else None

    def _is_missing(self, table: TableId, share: TopicShare) -> bool:
        is_known = share.topic in self._recorded_topics and table in self._tables
        return (
            self._cfg.chain is None
            and bool(share.assigned)
            and not is_known
            and share.topic not in self._plan.partitions
            and share.topic not in self._created_topics
        )


def _named_tables(changes: Iterable[TableChange]) -> set[TableId] | None:
    """Return the tables that changes name; None where they do not name all: a database, or what was not understood."""
    tables: set[TableId] = set()
    for change in changes:
        if change.id is None:
            return None
        tables.add(change.id)
        if change.previous_id is not None:
            tables.add(change.previous_id)
    return tables or None
