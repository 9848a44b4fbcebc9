"""From a TABLE_MAP event to everything a writer needs for the rows that follow it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, parse_table_map
from airflow_provider_mysql_cdc.cdc.commit.known_topics import KnownTopic, changed_error, topic_record
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.compile import RowDecoder, compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.decode.tolerant import BadRow, Tolerant
from airflow_provider_mysql_cdc.cdc.drain.key_filters import KeyFilters
from airflow_provider_mysql_cdc.cdc.drain.touched_keys import TouchedKeys
from airflow_provider_mysql_cdc.cdc.emit.source import SourceBlock
from airflow_provider_mysql_cdc.cdc.emit.topic_names import TopicOwners
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SchemaError
from airflow_provider_mysql_cdc.cdc.job import wiring
from airflow_provider_mysql_cdc.cdc.job.dead_letter import DeadLetters
from airflow_provider_mysql_cdc.cdc.job.owner import TopicShare, share_of
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalReader, SignalRows
from airflow_provider_mysql_cdc.cdc.sink.api import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import brokers
from airflow_provider_mysql_cdc.cdc.sink.topics import describe_made, ensure_topics

log = logging.getLogger(__name__)
DecodeRows = Callable[[bytes, int, int, Any, list[Any]], int]


@dataclass(frozen=True, slots=True)
class Route:
    """Hold what one table version needs.

    Args:
        table: The table's name.
        topic: Its topic.
        share: What this writer owns of the topic.
        source: Constant texts of the source block.
        decoder: The generated decoder; None when this writer skips the table.
        decode: The decoder's functions for write, update and delete rows and for partial updates.
        signals: Reads rows of the signal table; None for other tables.
        path: The table's name as counts have it (``TableId.path``).
    """

    table: TableId
    topic: str
    share: TopicShare
    source: SourceBlock | None
    decoder: RowDecoder | None
    decode: tuple[DecodeRows, ...]
    signals: SignalReader | None = None
    path: str = ""


def _functions(decoder: RowDecoder | Tolerant) -> tuple[DecodeRows, ...]:
    return decoder.write, decoder.update, decoder.delete, decoder.partial_update


class Routes:
    """Make and remember routes; forget them when a DDL statement changes a table.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        writer: This writer's index.
        run_id: Id of the run, for the context headers.
        filters: Gets to know each table version; None when there are none.
        topics: Topics as the ledger knows them.
        touched: Gets to know each version of a table under snapshot; None outside of a round.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        plan: BatchPlan,
        writer: int,
        run_id: str,
        filters: KeyFilters | None = None,
        topics: Mapping[str, KnownTopic] = MappingProxyType({}),
        touched: TouchedKeys | None = None,
    ) -> None:
        self._filters, self._topics, self._touched = filters, topics, touched
        self._cfg, self._plan, self._writer = cfg, plan, writer
        self._cache: dict[bytes, Route] = {}
        # Rows of the last event that could not be decoded; None when such a row stops the run.
        self.failed: list[BadRow] | None = [] if DeadLetters.wanted(cfg) else None
        self.options = wiring.decoder_options(cfg)
        self._born: dict[str, int] = {}
        self._owners: TopicOwners | None = None
        # Ledger records of topics born inside the batch and of signals, for the next commit.
        self.learned: list[SideRecord] = []
        waits = touched is not None and touched.low_row is not None
        on_watermark = touched.watermark if touched is not None and waits else None
        self.signals = SignalRows.wanted(cfg, plan.epoch, writer, self.learned, on_watermark)
        self.identity: bool = cfg[F.CDC_ID_HEADER]
        self.headers: list[tuple[str, bytes]] = wiring.headers(cfg, run_id)

    def forget(self, before: SchemaState, after: SchemaState, where: str) -> None:
        """Drop all routes, because a statement changed tables.

        Args:
            before: Structures before it.
            after: Structures behind it.
            where: Its place, for the error.

        Raises:
            ConfigError: A table that came with it would share its topic with another (FAULT-32).
        """
        self._cache.clear()
        if self._owners is None:
            self._owners = wiring.topic_owners(self._cfg, before.tables)
        self._owners.follow(after.tables.keys(), where)

    def of_table_map(self, event: Event, state: SchemaState) -> tuple[int, Route]:
        """Return the table id and the route of a TABLE_MAP event.

        Args:
            event: The event.
            state: Table structures as of this event.
        """
        buf, body = event.buf, event.body
        table_id = int.from_bytes(buf[body : body + 6], "little")
        raw = bytes(buf[body + 6 : event.end])
        route = self._cache.get(raw)
        if route is None:
            table_map = parse_table_map(event)
            route = self._make(table_map, state, event)
            if self.signals is not None:
                known = state.tables.get(route.table)
                route = replace(route, signals=self.signals.reader(known, table_map, event.where()))
            self._cache[raw] = route
        return table_id, route

    def _make(self, table_map: TableMap, state: SchemaState, event: Event) -> Route:
        cfg = self._cfg
        table_id = TableId(table_map.db, table_map.table)
        if not cfg.captures(table_id):
            return Route(table_id, "", TopicShare("", 0, frozenset(), False), None, None, ())
        if self._touched is not None and (known := state.tables.get(table_id)) is not None:
            self._touched.learn(known, table_map)
        share = self.ready_share(table_id)
        topic = share.topic
        if not share.mine and not cfg[F.PROVIDE_TRANSACTION_METADATA]:
            return Route(table_id, topic, share, None, None, ())
        table = state.tables.get(table_id)
        if table is None and self._unknown_passes(table_id, event):
            return Route(table_id, topic, share, None, None, ())
        if table is None:
            raise SchemaError(
                "rows of a table that the schema history does not know",
                where=f"{event.file}:{event.start_pos}, table {table_id}",
                why="the table was not captured when its CREATE TABLE passed, or the history topic is incomplete",
                remedy="take a snapshot of the table (snapshot.mode=recovery rebuilds the schema history)",
            )
        check_table_map(table, table_map)
        options = wiring.table_options(cfg, table)
        decoder = compile_decoder(table, table_map, options, wiring.envelope_text(cfg, table, options))
        if self._filters is not None:
            self._filters.learn(table, table_map)
        return Route(
            table_id,
            topic,
            share,
            wiring.table_source(cfg, table_id),
            decoder,
            _functions(decoder if self.failed is None else Tolerant(decoder, self.failed)),
            path=table_id.path(),
        )

    def ready_share(self, table: TableId) -> TopicShare:
        """Return what this writer owns of a captured table's topic; what it owns something of exists then.

        Args:
            table: The table.

        Raises:
            SinkError: The topic cannot be made.
            TopicChangedError: An earlier attempt at this batch found another topic of that name.
        """
        share = self.share(table)
        topic = share.topic
        if share.mine and topic not in self._plan.partitions and topic not in self._born:
            # A table created inside the batch, or one whose topic did not exist when the batch was planned.
            return self._bear(table, topic)
        return share

    def _bear(self, table: TableId, topic: str) -> TopicShare:
        """Create a topic, unless an earlier attempt, a transform or somebody else did; it is as large as it is found.

        The commit of its first record takes along what the topic is, so that the rest of the batch finds it the same.
        """
        cfg = self._cfg
        admin = make_admin(cfg.kafka_settings())
        ensure_topics(admin, {topic: wiring.table_topic(cfg)})
        found, before = describe_made(admin, [topic], brokers(cfg.kafka_settings()))[topic], self._topics.get(topic)
        # Spark may start a writer again within one attempt of the driver, which has compared the topics before.
        if before is not None and before.epoch == self._plan.epoch and (text := before.difference(found)):
            raise changed_error({topic: text}, self._plan, begun=True)
        self._born[topic] = found.partitions
        known = KnownTopic(found.partitions, found.id, self._plan.epoch)
        self.learned.append(topic_record(cfg.ledger_topic, topic, known))
        return self.share(table)

    def _unknown_passes(self, table: TableId, event: Event) -> bool:
        """Return whether rows of an unknown table are left out (inconsistent.schema.handling.mode, STRM-24)."""
        mode = self._cfg[F.INCONSISTENT_SCHEMA_HANDLING_MODE]
        if mode == "warn":
            log.warning("rows of %s are left out from %s on: its structure is not known", table, event.where())
        return mode != "fail"

    def share(self, table: TableId) -> TopicShare:
        """Return what this writer owns of a captured table's topic."""
        topic = wiring.topic_of(self._cfg, table)
        return share_of(self._plan, self._writer, topic, self._born.get(topic, self._cfg[F.TOPIC_CREATION_PARTITIONS]))

    def unknown_table(self, event: Event, table_id: int) -> BinlogCorruptError:
        """Return the error for rows without a TABLE_MAP before them."""
        return BinlogCorruptError(
            f"a row event refers to table id {table_id}, which no TABLE_MAP event announced",
            where=f"{event.file}:{event.start_pos}",
            why="the start position is not a transaction boundary, or the binlog is damaged",
            remedy="check the binlog with mysqlbinlog --verify-binlog-checksum around this position",
        )
