"""Which rows the events behind a low watermark touched, so that a view opened behind it is not believed for them.

A view that is opened after the low watermark contains every transaction before it. Of those behind it, it contains some
or none. So whoever reads in such a view, when the stream has come to the batch's end, leaves out the rows whose keys an
event behind the watermark had: the stream has told of them already (INC-20 to INC-27).

A row is known by the columns of its table's own key, whatever key its events have (``message.key.columns``,
converters). Of an UPDATE both rows count: the view may hold either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import EventRows
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

MAX_KEYS = 100_000
"""Keys of one table that are remembered; a table of which more are touched is read in a later round."""


def row_key_options(table: Table) -> DecoderOptions:
    """Return the options of a decoder that gives the columns of the table's own key as the key of its records.

    Args:
        table: The table.
    """
    return DecoderOptions(
        key_columns=table.key_columns(), included=(), tombstones=False, skipped_ops=frozenset(), read_op="r"
    )


@dataclass(slots=True)
class WindowKeys:
    """Remember the keys of rows that were touched behind a low watermark.

    Args:
        tables: The tables that are about to be read.
        low_watermark: The low watermark as a position, before which every transaction can be seen; None where it is a
            row of the signal table.
        low_watermark_id: Id of that row, or None.
        keys: Keys by table, as the decoder of ``row_key_options`` writes them.
        unreadable: Tables that cannot be read in this round, each with the reason.
        skipped_ops: Operations of which the stream tells nothing (``skipped.operations``): their rows are still to be
            read.
    """

    tables: Collection[TableId]
    low_watermark: BinlogOffset | None = None
    low_watermark_id: str | None = None
    keys: dict[TableId, set[bytes]] = field(default_factory=dict)
    unreadable: dict[TableId, str] = field(default_factory=dict)
    skipped_ops: frozenset[str] = frozenset()
    _watermark_passed: bool = False
    _decoders: dict[TableId, RowDecoder | None] = field(default_factory=dict)

    def on_watermark(self, row_id: str, kind: str) -> None:
        """Take note of a watermark row whose transaction has ended in the stream.

        Args:
            row_id: Its id.
            kind: Its type.
        """
        self._watermark_passed = self._watermark_passed or (
            self.low_watermark_id is not None and row_id == self.low_watermark_id
        )

    def watermark_handler(self) -> Callable[[str, str], None] | None:
        """Return what takes note of watermark rows; None where the low watermark is a position."""
        return None if self.low_watermark_id is None else self.on_watermark

    def restart(self) -> None:
        """Begin anew at the batch's start.

        What is known of rows and tables stays: the same events come again, those that a writer has committed as well.
        """
        self._watermark_passed = False

    def is_after_watermark(self, event: Event) -> bool:
        """Return whether a transaction is behind the low watermark.

        Args:
            event: An event of it; of an XA transaction the one that commits it.
        """
        return self._watermark_passed or (
            self.low_watermark is not None and not self.low_watermark.covers(event.file, event.end_pos)
        )

    def missing_watermark(self) -> str | None:
        """Return why nothing can be read in this round although the stream is at its end; None when it can."""
        if self.low_watermark_id is None or self._watermark_passed:
            return None
        return "the low watermark did not come along in the binlog"

    def prepare_table(self, table: Table, table_map: TableMapLike) -> None:
        """Prepare for the rows of a table version.

        Args:
            table: The table.
            table_map: The TABLE_MAP event that announces the rows.
        """
        if table.id in self.tables:
            decoder = None
            if table.key_columns():
                options = replace(row_key_options(table), skipped_ops=self.skipped_ops)
                decoder = compile_decoder(table, table_map, options, EnvelopeText())
            self._decoders[table.id] = decoder

    def add_rows(self, table: TableId, rows: EventRows, commit_event: Event) -> None:
        """Remember the rows of an event.

        Args:
            table: Their table.
            rows: Where they stand.
            commit_event: The event, or the one that commits it.
        """
        if table not in self.tables or table in self.unreadable or not self.is_after_watermark(commit_event):
            return
        decoder = self._decoders.get(table)
        if decoder is None:
            self.unreadable[table] = "rows of it were changed meanwhile, and without a key it cannot be told which"
            return
        decoded: list[Any] = []
        decode = (decoder.write, decoder.update, decoder.delete, decoder.partial_update)[rows.operation]
        try:
            decode(rows.event.buf, rows.pos, rows.event.end, EventContext(), decoded)
        except ValueDecodeError:
            self.unreadable[table] = "a row that was changed meanwhile cannot be decoded"
            return
        keys = self.keys.setdefault(table, set())
        keys.update(record[0] for record in decoded if record[0] is not None)
        if len(keys) > MAX_KEYS:
            self.unreadable[table] = f"more than {MAX_KEYS:,} of its rows were changed meanwhile"
            del self.keys[table]

    def on_statement(
        self, changes: Iterable[TableChange], event: Event, moved_row_tables: Iterable[TableId] = ()
    ) -> None:
        """Take note of a statement that changed, emptied or moved tables, wherever in the batch it stands.

        Before the low watermark it may have given the name to another table than the scan has begun with; the next
        round's driver finds that in the schema history.

        Args:
            changes: What it did.
            event: The statement's event.
            moved_row_tables: Tables that rows came to or left without row events.
        """
        for table in {*moved_row_tables, *(t for change in changes for t in (change.id, change.previous_id))} & {
            *self.tables
        }:
            if table is not None:
                self.unreadable[table] = f"it was changed by a statement at {event.where()}"
