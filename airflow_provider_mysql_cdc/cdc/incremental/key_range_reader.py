"""One task of a round when the stream stands at the batch's end: reads stretches in its view and writes their rows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.selected_columns import selected_columns
from airflow_provider_mysql_cdc.cdc.drain.window_keys import TouchedKeys, row_key_options
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.errors import (
    RecordTooLargeError,
    SchemaMismatchError,
    SourceConnectionError,
    SourceError,
)
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import TextRows, snapshot_source, text_rows
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import done_key
from airflow_provider_mysql_cdc.cdc.incremental.key_range_queue import passes, where_of
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneStretch, Stretch
from airflow_provider_mysql_cdc.cdc.incremental.window_filter import OwnKeys, untouched, with_last
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import join_with_less
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import chunk_columns, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import dates_as_stored
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import EmitTo, RowEmitter, out_of_time
from airflow_provider_mysql_cdc.cdc.snapshot.row_spool import RowSpool
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock, stream_blocks
from airflow_provider_mysql_cdc.cdc.snapshot.select import rows_sql

NAMES_MISSING = (1054, 1146)
"""ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE."""


class NotNow(Exception):
    """Say why a stretch cannot be read in this round.

    Args:
        why: The reason.
        hopeless: Whether no later round can read it either.
    """

    def __init__(self, why: str, *, hopeless: bool = False) -> None:
        super().__init__(why)
        self.hopeless = hopeless


@dataclass(frozen=True, slots=True)
class Asked:
    """Say what the driver asks of a stretch.

    Args:
        kind: ``incremental`` or ``blocking``.
        condition: SQL that rows have to fulfil, or None.
        first_table: Whether the table is the first of a blocking snapshot.
        last_table: Whether it is the last.
        by_key: Whether the table is cut by its own key.
    """

    kind: str
    condition: str | None
    first_table: bool
    last_table: bool
    by_key: bool = True

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Asked:
        """Read the driver's answer."""
        return cls(
            str(reply["kind"]), reply["condition"], bool(reply["first"]), bool(reply["last"]), bool(reply["by_key"])
        )

    def marker(self, stretch: Stretch, *, first: bool, last: bool) -> str:
        """Return ``source.snapshot`` of a row.

        Args:
            stretch: The stretch.
            first: Whether the row is its first.
            last: Whether it is its last.
        """
        if self.kind == "incremental":
            return "incremental"
        return source.snapshot_marker(
            first_row=first and stretch.number == 0,
            last_row=last and stretch.final,
            first_table=self.first_table,
            last_table=self.last_table,
        )


@dataclass(frozen=True, slots=True)
class _Version:
    """Hold what reading one table takes.

    Args:
        table: The table as of the batch's end.
        columns: The columns that are read: those of the events, and those of the table's own key.
        rows: Makes the records.
        keys: Reads rows' own keys; None for a table without a key.
        partitions: Partitions of its topic.
        topic: Its topic.
    """

    table: Table
    columns: tuple[Column, ...]
    rows: TextRows
    keys: OwnKeys | None
    partitions: int
    topic: str


@dataclass(slots=True)
class StretchReader:
    """Read stretches until the driver has none left.

    Args:
        cfg: The connector's configuration.
        plan: The round's batch; the stream stands at its end.
        index: The task's index.
        conn: The connection that holds the view.
        sink: The transactional producer.
        channel: Calls to the driver.
        state: Table structures at the batch's end.
        touched: Which rows the view is not believed for.
        run_id: Id of the run, for the context headers.
        last: Server id and GTID of the batch's last transaction.
        counts: Records by topic, which goes on changing.
        forms: The forms of records; None when all is JSON.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: Any
    sink: TransactionalWriter
    channel: CoordinatorClient
    state: SchemaState
    touched: TouchedKeys
    run_id: str
    last: tuple[int, str | None] = (0, None)
    counts: dict[str, int] = field(default_factory=dict)
    forms: Forms | None = None
    _versions: dict[TableId, _Version] = field(default_factory=dict)

    def run(self) -> dict[str, int]:
        """Ask for stretches and read them; return records by topic."""
        while True:
            reply = self.channel.call("next")
            if reply.get("stretch") is None:
                return self.counts
            stretch = Stretch.from_json(reply["stretch"])
            try:
                done = self._write(stretch, Asked.of(reply))
            except NotNow as reason:
                self.channel.call("back", stretch=stretch.to_json(), reason=str(reason), hopeless=reason.hopeless)
                continue
            self.channel.call("done", done=done.to_json())

    def _write(self, stretch: Stretch, asked: Asked) -> DoneStretch:
        """Write one stretch, and again with smaller batches where its topic takes none as large."""
        while True:
            try:
                return self._read(stretch, asked)
            except RecordTooLargeError as error:
                line = join_with_less(self.cfg, self.plan, self.sink, self.index, error)
                self.channel.call("progress", once=line, at=str(self.plan.end), records=0)

    def _read(self, stretch: Stretch, asked: Asked) -> DoneStretch:
        """Read a stretch in full, then write its rows and the record that says so in one Kafka transaction."""
        where = f"{asked.kind} snapshot of {stretch}"
        version = self._version(stretch, asked)
        with RowSpool(where) as spool:
            self._fill(spool, stretch, version, asked.condition, where)
            faults.fault_point("incremental.stretch_read", self.index)
            given = 0
            emitter = self._emitter(version, where, stretch, asked)
            for block, last in with_last(self._untouched(spool, version)):
                if given:
                    self._require_time(given, spool.rows)
                emitter.block(block, given, edges(stretch, asked, given + block.rows if last else 0))
                given += block.rows
            left_out = spool.rows - given
        written = given - emitter.left_out
        done = DoneStretch(stretch, written, left_out)
        topic, key, value = ledger_record(self.cfg, done_key(stretch), done.to_json())
        self.sink.produce(topic, key, value, 0)
        faults.fault_point("incremental.before_commit", self.index)
        self.sink.commit()
        faults.fault_point("incremental.after_commit", self.index)
        self.counts[version.topic] = self.counts.get(version.topic, 0) + written
        return done

    def _require_time(self, given: int, rows: int) -> None:
        """Give a stretch up while its transaction can be ended in good order; a later round would come no further.

        Raises:
            NotNow: Its rows cannot be written within one Kafka transaction.
        """
        if out_of_time(self.cfg, self.sink):
            self.sink.abort()
            raise NotNow(
                f"{given:,} of {rows:,} rows took as long as one Kafka transaction may last: lower "
                "incremental.snapshot.chunk.size, or raise transaction.timeout.ms where the table cannot be cut",
                hopeless=True,
            )

    def _fill(self, spool: RowSpool, stretch: Stretch, version: _Version, condition: str | None, where: str) -> None:
        wanted = where_of(stretch.columns, stretch.kinds, stretch.low, stretch.high, condition)
        sql = rows_sql(stretch.table, version.columns, wanted, stretch.columns)
        try:
            with dates_as_stored(self.conn, stretch.kinds):
                spool.fill(stream_blocks(self.conn, sql, where), lambda _: None)
        except SchemaMismatchError as error:
            # The view holds the table as the stream knows it, so a name that is missing is one of the condition. A
            # table that was rebuilt between the view and its lock (error 1412) can be read in the next view.
            missing = isinstance(error.__cause__, pymysql.MySQLError) and error.__cause__.args[0] in NAMES_MISSING
            raise NotNow(error.why, hopeless=missing and condition is not None) from error
        except SourceError as error:
            passing = passes(error.__cause__)
            if isinstance(error, SourceConnectionError) and not passing:
                raise
            raise NotNow(error.message(), hopeless=not passing) from error

    def _untouched(self, spool: RowSpool, version: _Version) -> Iterable[RowBlock]:
        """Return the rows that no event behind the low watermark touched."""
        touched = self.touched.keys.get(version.table.id)
        if not touched or version.keys is None:
            return spool.blocks()
        return untouched(spool.blocks(), version.keys, touched)

    def _version(self, stretch: Stretch, asked: Asked) -> _Version:
        """Return what reading a table takes.

        Raises:
            NotNow: It cannot be read in this round.
        """
        table_id = stretch.table
        reason = self.touched.unseen() or self.touched.spoiled.get(table_id)
        if reason is not None:
            raise NotNow(reason)
        table = self.state.tables.get(table_id)
        if table is None:
            raise NotNow("the stream does not know the table")
        cut_otherwise = asked.by_key and stretch.columns != chunk_columns(table)
        if cut_otherwise or tuple(key_kind(table, name) for name in stretch.columns) != stretch.kinds:
            raise NotNow("its key is another one than when the snapshot began")
        found = self._versions.get(table_id)
        if found is None:
            found = self._versions[table_id] = self._compile(table)
        return found

    def _compile(self, table: Table) -> _Version:
        topic = wiring.topic_of(self.cfg, table.id)
        partitions = self.plan.partitions.get(topic)
        if partitions is None:
            raise NotNow(f"its topic {topic} was made within this batch")
        options = wiring.table_options(self.cfg, table)
        own = row_key_options(table)
        wanted = {*selected_columns(table, options), *(c for c in table.columns if c.name in (own.key_columns or ()))}
        columns = tuple(c for c in table.columns if c in wanted)
        form = None if self.forms is None else self.forms.of_table(table, options, topic)
        return _Version(
            table,
            columns,
            text_rows(self.cfg, form, table, options, columns),
            OwnKeys(table, own, columns) if own.key_columns else None,
            partitions,
            topic,
        )

    def _emitter(self, version: _Version, where: str, stretch: Stretch, asked: Asked) -> RowEmitter:
        rows = version.rows
        texts = snapshot_source(self.cfg, version.table.id, direct=rows.direct)
        end, last, now_ms = self.plan.end, self.last, time.time_ns() // 1_000_000

        def fill(context: EventContext, marker: str) -> None:
            texts.fill(context, end, now_ms, marker, last)

        return RowEmitter(
            cfg=self.cfg,
            table=version.table,
            decode=rows.decode,
            fill=fill,
            texts=texts,
            where=where,
            to=EmitTo(
                self.sink,
                version.topic,
                version.partitions,
                wiring.headers(self.cfg, self.run_id),
                self.index,
                rows.form,
                rows.ids,
            ),
            counts=self.counts,
            identity=f"{asked.kind}/{self.plan.epoch}/{stretch.scan}",
            marker=asked.marker(stretch, first=False, last=False),
        )


def edges(stretch: Stretch, asked: Asked, end: int) -> dict[int, str]:
    """Return ``source.snapshot`` of the first row and of the last one by their numbers, where they are told apart.

    Args:
        stretch: The stretch.
        asked: What the driver asks of it.
        end: Number of its rows; 0 where the last one is still to come.
    """
    if asked.kind == "incremental":
        return {}
    ends = {1, end} if end else {1}
    return {number: asked.marker(stretch, first=number == 1, last=number == end) for number in ends}
