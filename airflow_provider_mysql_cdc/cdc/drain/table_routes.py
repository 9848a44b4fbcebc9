"""From a TABLE_MAP event to everything a writer needs for the rows that follow it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro.avro_source import AvroSource
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import check_rows, rows_header, usual_headers
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, parse_table_map
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import KnownTopic, changed_error, topic_record
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode import native_kernel
from airflow_provider_mysql_cdc.cdc.decode import native_transactions as native_walk
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.owned_keys import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.row_functions import RowFunctions
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow, Tolerant
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import KeyFilters
from airflow_provider_mysql_cdc.cdc.drain.topic_precreation import TopicsAhead
from airflow_provider_mysql_cdc.cdc.drain.window_keys import TouchedKeys
from airflow_provider_mysql_cdc.cdc.emit import source_block as source_of
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.emit.topic_names import TopicOwners
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SchemaError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import AvroRows, direct_rows
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetters
from airflow_provider_mysql_cdc.cdc.formats.partition_share import TopicShare, partition_of, share_of
from airflow_provider_mysql_cdc.cdc.formats.record_format import IdHeaders, TableForm
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcForm
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import FlatRows, flat_rows
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalReader, SignalRows
from airflow_provider_mysql_cdc.cdc.sink.record_writer import SideRecord
from airflow_provider_mysql_cdc.cdc.ticdc import ticdc_source as flat_source
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import FlatSource

log = logging.getLogger(__name__)
ROOM = 1_000
"""Routes that are kept without a look whether their tables are still there."""
DecodeRows = Callable[[bytes, int, int, Any, list[Any]], int]


@dataclass(frozen=True, slots=True)
class Route:
    """Hold what one table version needs.

    Args:
        table: The table's name.
        topic: Its topic.
        share: What this writer owns of the topic.
        source: Writer of the source block.
        decoder: The generated decoder; None when this writer skips the table.
        decode: The decoder's functions for write, update and delete rows and for partial updates.
        signals: Reads rows of the signal table; None for other tables.
        path: The table's name as counts have it (``TableId.path``).
        form: The form of its records, but those that know their partition; None for what the decoder gives.
        ids: Headers that records get beside their other ones, or None.
        fill: Puts the source block of an event into the decoder's context.
        headers: What stands before the rows of most events, by event type (``usual_headers``); empty where each event
            is looked at in full.
    """

    table: TableId
    topic: str
    share: TopicShare
    source: SourceBlock | AvroSource | FlatSource | None
    decoder: RowFunctions | None
    decode: tuple[DecodeRows, ...]
    signals: SignalReader | None = None
    path: str = ""
    form: TableForm | None = None
    ids: IdHeaders | None = None
    fill: Callable[..., None] = source_of.fill
    headers: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Kept:
    """Hold a route, the structure that it was made for, and after how many statements that was last seen in force."""

    route: Route
    version: Table | None
    seen: int


def _functions(decoder: RowFunctions | Tolerant) -> tuple[DecodeRows, ...]:
    return decoder.write, decoder.update, decoder.delete, decoder.partial_update


def _counted(decode: tuple[DecodeRows, ...], decoder: RowFunctions, tally: native_kernel.Tally) -> Iterator[DecodeRows]:
    """Yield a decoder's functions; those that never ask the native kernel count their events."""
    native = getattr(decoder, "native", False)
    whole = "table" if isinstance(decoder, RowDecoder) else "format"
    for function, partial in zip(decode, (False, False, False, True), strict=True):
        reason = "partial_update" if native and partial else whole
        yield function if native and not partial else tally.counting(function, reason)


def _told(
    cfg: ConnectorConfig, table: TableId, block: SourceBlock, rows: AvroRows | None
) -> tuple[SourceBlock | AvroSource | FlatSource, Callable[..., None]]:
    """Return what writes the source block of a table's rows, and what puts it into a context."""
    if rows is None:
        return block, source_of.fill_time if cfg.ticdc else source_of.fill
    if isinstance(rows, FlatRows):
        return FlatSource(block, wiring.ticdc_modes(cfg).extension), flat_source.fill
    return avro_source.avro_source(table, cfg[F.TOPIC_PREFIX], block), avro_source.fill


def _named(changes: Iterable[TableChange]) -> set[TableId] | None:
    """Return the tables that changes name; None where they do not name all: a database, or what was not understood."""
    found: set[TableId] = set()
    for change in changes:
        if change.id is None:
            return None
        found.add(change.id)
        if change.previous_id is not None:
            found.add(change.previous_id)
    return found or None


class Routes:
    """Make and remember routes, each as long as its table has the structure that it was made for.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        writer: This writer's index.
        run_id: Id of the run, for the context headers.
        filters: Gets to know each table version; None when there are none.
        topics: Topics as the ledger knows them.
        touched: Gets to know each version of a table under snapshot; None outside of a round.
        forms: The forms of records; None when all is JSON.
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
        forms: Forms | None = None,
    ) -> None:
        self._forms = forms
        # Called before a route is made, which can mean a question to the registry.
        self.before_making: Callable[[], None] = lambda: None
        self._filters, self._topics, self._touched = filters, topics, touched
        self._cfg, self._plan, self._writer = cfg, plan, writer
        self._cache: dict[bytes, _Kept] = {}
        self._statements, self._room = 0, ROOM
        # Rows of the last event that could not be decoded; None when such a row stops the run.
        self.failed: list[BadRow] | None = [] if DeadLetters.wanted(cfg) else None
        self.options, self._treats_tables = wiring.decoder_options(cfg), wiring.treats_tables(cfg)
        self._born: dict[str, int] = {}
        self._ahead = TopicsAhead(cfg, self._unborn)
        self._owners: TopicOwners | None = None
        # Ledger records of topics born inside the batch and of signals, for the next commit.
        self.learned: list[SideRecord] = []
        waits = touched is not None and touched.low_row is not None
        on_watermark = touched.watermark if touched is not None and waits else None
        self.signals = SignalRows.wanted(cfg, plan.epoch, writer, self.learned, on_watermark)
        self.identity: bool = cfg[F.CDC_ID_HEADER]
        self._tally = native_kernel.kernel().tally()
        self.headers: list[tuple[str, bytes]] = wiring.headers(cfg, run_id)

    def forget(self, before: SchemaState, after: SchemaState, where: str, changes: Iterable[TableChange] = ()) -> None:
        """Look at the structures anew, because a statement changed tables.

        Args:
            before: Structures before it.
            after: Structures behind it.
            where: Its place, for the error.
            changes: What it did.

        Raises:
            ConfigError: A table that came with it would share its topic with another (FAULT-32).
        """
        self._statements += 1
        if self._owners is None:
            self._owners = wiring.topic_owners(self._cfg, before.tables)
        self._owners.follow(after.tables.keys(), where, _named(changes))

    def native(self) -> NativeCounts:
        """Return what the native kernel has decoded of the batch."""
        return NativeCounts() if self._tally is None else self._tally.counts()

    def walker(self) -> native_walk.NativeWalker | None:
        """Return what walks whole transactions; None where each event is looked at in Python."""
        if self._tally is None or self._filters is not None or self._touched is not None:
            return None
        if self._cfg[F.PROVIDE_TRANSACTION_METADATA] or self._cfg[F.INCLUDE_QUERY]:
            return None
        return native_walk.NativeWalker(native_kernel.kernel().module, self._tally, by_event=self.identity)

    def of_table_map(self, event: Event, state: SchemaState) -> tuple[int, Route]:
        """Return the table id and the route of a TABLE_MAP event.

        Args:
            event: The event.
            state: Table structures as of this event.
        """
        buf, body = event.buf, event.body
        table_id = int.from_bytes(buf[body : body + 6], "little")
        raw = buf[body + 6 : event.end]
        kept = self._cache.get(raw)
        if kept is None or (kept.seen != self._statements and not self._in_force(kept, state)):
            table_map = parse_table_map(event)
            self.before_making()
            route = self._make(table_map, state, event)
            known = state.tables.get(route.table)
            if (
                self.signals is not None
                and (reader := self.signals.reader(known, table_map, event.where())) is not None
            ):
                route = replace(route, signals=reader, headers={})
            self._make_room(state)
            kept = self._cache[raw] = _Kept(route, known, self._statements)
        return table_id, kept.route

    def of_rows(self, event: Event, tables: Mapping[int, Route]) -> tuple[Route, int]:
        """Return the route of a row event and the offset of its first row, whatever its header looks like.

        Args:
            event: The event.
            tables: Routes by the numbers that TABLE_MAP events announced.

        Raises:
            BinlogCorruptError: No TABLE_MAP event stands before it, or it cannot belong to its table.
        """
        header = rows_header(event)
        route = tables.get(header.table_id)
        if route is None:
            raise self.unknown_table(event, header.table_id)
        if route.signals is not None:
            # Also of events that are committed: the transaction's end may not be.
            route.signals.take(event, header, c.ROWS_VERSIONS[event.type])
        if route.decoder is not None:
            check_rows(event, header, len(route.decoder.table.columns))
        return route, header.pos

    def _make_room(self, state: SchemaState) -> None:
        """Drop routes of tables that are gone or changed, before there are twice as many as tables."""
        if len(self._cache) >= self._room:
            self._cache = {raw: kept for raw, kept in self._cache.items() if self._in_force(kept, state)}
            self._room = max(ROOM, 2 * len(self._cache))

    def _in_force(self, kept: _Kept, state: SchemaState) -> bool:
        """Return whether a table has still the structure that a route was made for."""
        if state.tables.get(kept.route.table) is not kept.version:
            return False
        kept.seen = self._statements
        return True

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
        options = wiring.table_options(cfg, table, self.options) if self._treats_tables else self.options
        # Both schemas are registered here, before the first record of this version.
        form = None if self._forms is None or not share.mine else self._forms.of_table(table, options, topic)
        envelope, block = wiring.envelope_text(cfg, table, options), wiring.table_source(cfg, table_id)
        given = table, table_map, options, envelope
        rows = None if form is None else self._direct(form, *given, share)
        source, fill = _told(cfg, table_id, block, rows)
        # Keys that are formed behind the decoder are not those that it makes.
        decoder = rows or compile_decoder(*given, self._tally, self._owned(share) if form is None else None)
        if self._filters is not None:
            self._filters.learn(table, table_map)
        decode = _functions(decoder if self.failed is None else Tolerant(decoder, self.failed))
        return Route(
            table_id,
            topic,
            share,
            source,
            decoder,
            decode if self._tally is None else tuple(_counted(decode, decoder, self._tally)),
            path=table_id.path(),
            form=form if rows is None or isinstance(rows, FlatRows) else None,
            ids=None if form is None else form.ids(),
            fill=fill,
            headers=usual_headers(len(table.columns)),
        )

    def _owned(self, share: TopicShare) -> OwnedKeys | None:
        """Return what tells this writer's rows; None where it has all, or where something looks at those of others.

        Transactions are counted with all rows, and rows that fail, or that chunks may hold, are told by each writer.
        """
        looked_at = self.failed is not None, self._filters is not None, self._cfg[F.PROVIDE_TRANSACTION_METADATA]
        if share.whole or any(looked_at):
            return None
        return OwnedKeys(share.partitions, share.mine, partition_of)

    def _direct(
        self,
        form: TableForm,
        table: Table,
        table_map: TableMap,
        options: DecoderOptions,
        envelope: EnvelopeText,
        share: TopicShare,
    ) -> AvroRows | None:
        """Return what writes a table's rows in their form at once, or None."""
        given = table, table_map, options, envelope
        if isinstance(form, TicdcForm):
            return flat_rows(form, *given, share.partitions, self._tally)
        return direct_rows(self._cfg, form, *given, self._tally, self._owned(share))

    def ready_share(self, table: TableId) -> TopicShare:
        """Return what this writer owns of a captured table's topic; what it owns something of exists then.

        Args:
            table: The table.

        Raises:
            SinkError: The topic cannot be made.
            TopicChangedError: An earlier attempt at this batch found another topic of that name.
        """
        share = self.share(table)
        if self._is_unborn(share):
            # A table created inside the batch, or one whose topic did not exist when the batch was planned.
            return self._bear(table, share.topic)
        return share

    def _bear(self, table: TableId, topic: str) -> TopicShare:
        """Create a topic, unless an earlier attempt, a transform or somebody else did; it is as large as it is found.

        The commit of its first record takes along what the topic is, so that the rest of the batch finds it the same.
        """
        found, before = self._ahead.make(topic), self._topics.get(topic)
        # Spark may start a writer again within one attempt of the driver, which has compared the topics before.
        if before is not None and before.epoch == self._plan.epoch and (text := before.difference(found)):
            raise changed_error({topic: text}, self._plan, begun=True)
        self._born[topic] = found.partitions
        known = KnownTopic(found.partitions, found.id, self._plan.epoch)
        self.learned.append(topic_record(self._cfg.ledger_topic, topic, known))
        return self.share(table)

    def _unborn(self, table: TableId) -> str | None:
        """Return a captured table's topic when this writer owns something of it and it is not made; None otherwise."""
        share = self.share(table)
        return share.topic if self._is_unborn(share) else None

    def _is_unborn(self, share: TopicShare) -> bool:
        return bool(share.mine) and share.topic not in self._plan.partitions and share.topic not in self._born

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
