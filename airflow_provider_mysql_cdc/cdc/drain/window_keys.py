"""Which rows the events after a low watermark changed; the rows of a view opened after it are not used for them.

A view that is opened after the low watermark contains every transaction before the watermark, and some or none of those
after it. Whoever reads in such a view, when the stream has reached the batch's end, therefore leaves out rows whose key
an event after the watermark had: the stream has produced their changes already (INC-20 to INC-27).

A row is identified by the columns of its table's own key, whatever key its events have (``message.key.columns``,
converters). Of an UPDATE both rows count: the view may contain either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_rows import RowEventDecoder
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

MAX_KEYS = 100_000
"""Keys of one table that are remembered; a table with more changed rows is read in a later window."""


@dataclass(frozen=True, slots=True)
class EventRows:
    """Locate the rows of an event.

    Args:
        event: The row event itself, not the one that commits it.
        pos: Offset of the first row.
        operation: 0 for written rows, 1 updated, 2 deleted, 3 partially updated.
    """

    event: Event
    pos: int
    operation: int


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
    """Remember the keys of rows that were changed after a low watermark.

    Args:
        tables: The tables that the window reads.
        low_watermark: The low watermark as a position, before which the view contains every transaction; None where it
            is a row of the signal table.
        low_watermark_id: Id of that row, or None.
        keys: Keys by table, as the decoder of ``row_key_options`` writes them.
        unreadable: Tables that cannot be read in this window, each with the reason.
        skipped_ops: Operations of which the stream produces no records (``skipped.operations``): the window still reads
            their rows.
    """

    tables: Collection[TableId]
    low_watermark: BinlogOffset | None = None
    low_watermark_id: str | None = None
    keys: dict[TableId, set[bytes]] = field(default_factory=dict)
    unreadable: dict[TableId, str] = field(default_factory=dict)
    skipped_ops: frozenset[str] = frozenset()
    _watermark_passed: bool = False
    _decoders: dict[TableId, RowEventDecoder | None] = field(default_factory=dict)

    def on_watermark(self, row_id: str, kind: str) -> None:
        """Note a watermark row whose transaction has ended in the stream.

        Args:
            row_id: Its id.
            kind: Its type.
        """
        self._watermark_passed = self._watermark_passed or (
            self.low_watermark_id is not None and row_id == self.low_watermark_id
        )

    def watermark_handler(self) -> Callable[[str, str], None] | None:
        """Return what notes watermark rows; None where the low watermark is a position."""
        return None if self.low_watermark_id is None else self.on_watermark

    def restart(self) -> None:
        """Start again at the batch's start.

        Keys and unreadable tables are kept: the writer reads the same events again, those that it has committed too.
        """
        self._watermark_passed = False

    def is_after_watermark(self, event: Event) -> bool:
        """Return whether a transaction is after the low watermark.

        Args:
            event: An event of it; of an XA transaction the one that commits it.
        """
        return self._watermark_passed or (
            self.low_watermark is not None and not self.low_watermark.covers(event.file, event.end_pos)
        )

    def missing_watermark(self) -> str | None:
        """Return why nothing can be read in this window although the batch has ended; None when tables can be read."""
        if self.low_watermark_id is None or self._watermark_passed:
            return None
        return "the low watermark row did not appear in the binlog"

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
            rows: Where they are in the event.
            commit_event: The event, or the one that commits its XA transaction.
        """
        if table not in self.tables or table in self.unreadable or not self.is_after_watermark(commit_event):
            return
        decoder = self._decoders.get(table)
        if decoder is None:
            self.unreadable[table] = (
                "rows of it were changed in the meantime, and without a primary key it is not known which"
            )
            return
        decoded: list[RowRecord] = []
        decode = (decoder.write, decoder.update, decoder.delete, decoder.partial_update)[rows.operation]
        try:
            decode(rows.event.buf, rows.pos, rows.event.end, EventContext(), decoded)
        except ValueDecodeError:
            self.unreadable[table] = "a row that was changed in the meantime cannot be decoded"
            return
        keys = self.keys.setdefault(table, set())
        keys.update(record[0] for record in decoded if record[0] is not None)
        if len(keys) > MAX_KEYS:
            self.unreadable[table] = f"more than {MAX_KEYS:,} of its rows were changed in the meantime"
            del self.keys[table]

    def on_statement(
        self, changes: Iterable[TableChange], event: Event, moved_row_tables: Iterable[TableId] = ()
    ) -> None:
        """Note a statement that changed, emptied or moved tables, wherever in the batch it is.

        Before the low watermark it may have given the name to another table than the one whose scan has begun; the next
        window's driver finds that in the schema history.

        Args:
            changes: What it did.
            event: The statement's event.
            moved_row_tables: Tables whose rows the statement moved without row events.
        """
        for table in {*moved_row_tables, *(t for change in changes for t in (change.id, change.previous_id))} & {
            *self.tables
        }:
            if table is not None:
                self.unreadable[table] = f"it was changed by a statement at {event.where()}"
