"""Which rows the events behind a low watermark touched, so that a view opened behind it is not believed for them.

A view that is opened after the low watermark contains every transaction before it. Of those behind it, it contains some
or none. So whoever reads in such a view, when the stream has come to the batch's end, leaves out the rows whose keys an
event behind the watermark had: the stream has told of them already (INC-20 to INC-27).

A row is known by the columns of its table's own key, whatever key its events have (``message.key.columns``,
converters). Of an UPDATE both rows count: the view may hold either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import RowsAt
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
class TouchedKeys:
    """Remember the keys of rows that were touched behind a low watermark.

    Args:
        tables: The tables that are about to be read.
        low: The low watermark as a position, before which every transaction can be seen; None where it is a row of the
            signal table.
        low_row: Id of that row, or None.
        keys: Keys by table, as the decoder of ``row_key_options`` writes them.
        spoiled: Tables that cannot be read in this round, each with the reason.
        skipped: Operations of which the stream tells nothing (``skipped.operations``): their rows are still to be read.
    """

    tables: Collection[TableId]
    low: BinlogOffset | None = None
    low_row: str | None = None
    keys: dict[TableId, set[bytes]] = field(default_factory=dict)
    spoiled: dict[TableId, str] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    _passed: bool = False
    _decoders: dict[TableId, RowDecoder | None] = field(default_factory=dict)

    def watermark(self, row: str, kind: str) -> None:
        """Take note of a watermark row whose transaction has ended in the stream.

        Args:
            row: Its id.
            kind: Its type.
        """
        self._passed = self._passed or (self.low_row is not None and row == self.low_row)

    def again(self) -> None:
        """Begin anew at the batch's start.

        What is known of rows and tables stays: the same events come again, those that a writer has committed as well.
        """
        self._passed = False

    def behind(self, event: Event) -> bool:
        """Return whether a transaction is behind the low watermark.

        Args:
            event: An event of it; of an XA transaction the one that commits it.
        """
        return self._passed or (self.low is not None and not self.low.covers(event.file, event.end_pos))

    def unseen(self) -> str | None:
        """Return why nothing can be read in this round although the stream is at its end; None when it can."""
        if self.low_row is None or self._passed:
            return None
        return "the low watermark did not come along in the binlog"

    def learn(self, table: Table, table_map: TableMapLike) -> None:
        """Prepare for the rows of a table version.

        Args:
            table: The table.
            table_map: The TABLE_MAP event that announces the rows.
        """
        if table.id in self.tables:
            made = None
            if table.key_columns():
                options = replace(row_key_options(table), skipped_ops=self.skipped)
                made = compile_decoder(table, table_map, options, EnvelopeText())
            self._decoders[table.id] = made

    def rows(self, table: TableId, rows: RowsAt, by: Event) -> None:
        """Remember the rows of an event.

        Args:
            table: Their table.
            rows: Where they stand.
            by: The event, or the one that commits it.
        """
        if table not in self.tables or table in self.spoiled or not self.behind(by):
            return
        decoder = self._decoders.get(table)
        if decoder is None:
            self.spoiled[table] = "rows of it were changed meanwhile, and without a key it cannot be told which"
            return
        made: list[Any] = []
        decode = (decoder.write, decoder.update, decoder.delete, decoder.partial_update)[rows.kind]
        try:
            decode(rows.event.buf, rows.pos, rows.event.end, EventContext(), made)
        except ValueDecodeError:
            self.spoiled[table] = "a row that was changed meanwhile cannot be decoded"
            return
        keys = self.keys.setdefault(table, set())
        keys.update(record[0] for record in made if record[0] is not None)
        if len(keys) > MAX_KEYS:
            self.spoiled[table] = f"more than {MAX_KEYS:,} of its rows were changed meanwhile"
            del self.keys[table]

    def statement(self, changes: Iterable[TableChange], event: Event, moved: Iterable[TableId] = ()) -> None:
        """Take note of a statement that changed, emptied or moved tables, wherever in the batch it stands.

        Before the low watermark it may have given the name to another table than the scan has begun with; the next
        round's driver finds that in the schema history.

        Args:
            changes: What it did.
            event: The statement's event.
            moved: Tables that rows came to or left without row events.
        """
        for table in {*moved, *(t for change in changes for t in (change.id, change.previous_id))} & {*self.tables}:
            if table is not None:
                self.spoiled[table] = f"it was changed by a statement at {event.where()}"
