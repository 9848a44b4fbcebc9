"""Which rows the events after a low watermark changed, by keys as the server has them.

Which rows the events after a low watermark changed; the rows of a view opened after it are not used for them.

A view that is opened after the low watermark contains every transaction before the watermark, and some or none of those
after it. Whoever reads in such a view, when the stream has reached the batch's end, therefore leaves out rows whose key
an event after the watermark had: the stream has produced their changes already (INC-20 to INC-27).

A row is identified by the columns of its table's own key, whatever key its events have (``message.key.columns``,
converters), and by the values that the server has (``row_key_options``). Of an UPDATE both rows count: the view may
contain
either.

A change of which the stream has no record does not count: its operation is skipped (``skipped.operations``), or a value
cannot be written (``event.processing.failure.handling.mode``). The row is read, unless a record of another change of it
was written: the view may be older than that one. Where such a change moves a row to another key, two views, one before
and one after it, may both lack the row, so its table is read in a later window. So is a key range with rows that cannot
be written, if such a change was of one of its rows: it may have mended the row after the view was opened.

The keys by which a window recognises a row of its view in the stream: those of the table, as the server has them.

The keys of events are not enough, because several rows may have the same one: dates with a month or day 0 become the
first day of 1970, years below 100 become others, and all numbers but 0 of a BOOL become true. Here these are MySQL's
own text.

Some values have the same text in MySQL itself. A row event holds the number of an ENUM's member, the bits of a SET and
the bytes of a text, but SELECT shows ``''`` for an invalid ENUM and for a member ``''``, and ``?`` for each character
that Unicode does not have. A view can then not tell which of the rows an event changed (``shared_key_check``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass, field, replace
from functools import partial

import orjson

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMapLike
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.native_rows import RowEventDecoder
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shared_characters
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NEW_KEY, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

TextCheck = Callable[[str], bool]


def row_key_options(table: Table) -> DecoderOptions:
    """Return the options of a decoder that gives the columns of the table's own key as the key of its records.

    Args:
        table: The table.
    """
    options = DecoderOptions(
        key_columns=table.key_columns(), included=(), tombstones=False, skipped_ops=frozenset(), read_op="r"
    )
    converted = any(
        column.family in TEMPORAL_FAMILIES or options.boolean_test(column) for column in key_columns(table, options)
    )
    return replace(options, flat=converted)


def shared_key_check(table: Table) -> Callable[[bytes], bool] | None:
    """Return what says whether another row may have the same key; None where each row has its own.

    Args:
        table: The table.
    """
    checks = {
        column.name: check
        for column in key_columns(table, row_key_options(table))
        if (check := _text_check(column)) is not None
    }
    if not checks:
        return None

    def is_shared(key: bytes) -> bool:
        values = orjson.loads(key)
        return any(check(values[name]) for name, check in checks.items())

    return is_shared


def _enum_check(column: Column) -> TextCheck | None:
    # The number 0, an invalid member, is shown as ''.
    shared = frozenset(text for text, count in Counter(("", *column.enum_values)).items() if count > 1)
    return shared.__contains__ if shared else None


def _set_check(column: Column) -> TextCheck | None:
    members = ("", *column.enum_values)
    return None if len(members) == len({*members}) else lambda text: True


def _characters_check(column: Column) -> TextCheck | None:
    name = column.charset or "utf8mb4"
    return None if name == "binary" or not shared_characters(name) else partial(_has_shared_character, name)


def _has_shared_character(charset: str, text: str) -> bool:
    return not shared_characters(charset).isdisjoint(text)


_CHECKS: dict[Family, Callable[[Column], TextCheck | None]] = {
    Family.ENUM: _enum_check,
    Family.SET: _set_check,
    Family.TEXT: _characters_check,
}


def _text_check(column: Column) -> TextCheck | None:
    make_check = _CHECKS.get(column.family)
    return None if make_check is None else make_check(column)


MAX_KEYS = 100_000
"""Keys of one table that are remembered; a table with more changed rows is read in a later window."""
_OPERATION_LETTERS = "cudu"
"""Letters of ``skipped.operations`` by the number in ``EventRows``."""
_MOVED = "a change of which the stream has no record gave one of its rows another key"
_SHARED = "a row of it was changed in the meantime whose key MySQL shows as it shows the keys of others"
_UNWRITTEN = "changes of its rows could not be written, and these rows cannot be distinguished from others"


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


@dataclass(slots=True)
class WindowKeys:
    """Remember the keys of rows that were changed after a low watermark.

    Args:
        tables: The tables that the window reads.
        low_watermark: The low watermark as a position, before which the view contains every transaction; None where it
            is a row of the signal table.
        low_watermark_id: Id of that row, or None.
        keys: Keys by table, as the decoder of ``row_key_options`` writes them, with the number of their changes.
        unreadable: Tables that cannot be read in this window, each with the reason.
        skipped_ops: Operations of which the stream produces no records (``skipped.operations``): the window still reads
            their rows.
        unwritten: Other changes that this writer has not produced a record of.
    """

    tables: Collection[TableId]
    low_watermark: BinlogOffset | None = None
    low_watermark_id: str | None = None
    keys: dict[TableId, dict[bytes, int]] = field(default_factory=dict)
    unreadable: dict[TableId, str] = field(default_factory=dict)
    skipped_ops: frozenset[str] = frozenset()
    unwritten: UnwrittenRows = field(default_factory=UnwrittenRows)
    _unwritten_keys: dict[TableId, Set[bytes]] = field(default_factory=dict)
    _watermark_passed: bool = False
    _restarted: bool = False
    _last_rows: tuple[TableId, list[RowRecord]] | None = None
    _decoders: dict[TableId, RowEventDecoder | None] = field(default_factory=dict)
    _shared_key_checks: dict[TableId, Callable[[bytes], bool] | None] = field(default_factory=dict)

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
        Changes are then counted twice.
        """
        self._watermark_passed = False
        self._restarted = True

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
                decoder = compile_decoder(table, table_map, row_key_options(table), EnvelopeText())
                self._shared_key_checks[table.id] = shared_key_check(table)
            self._decoders[table.id] = decoder

    def add_rows(self, table: TableId, rows: EventRows, commit_event: Event) -> None:
        """Remember the rows of an event.

        Args:
            table: Their table.
            rows: Where they are in the event.
            commit_event: The event, or the one that commits its XA transaction.
        """
        self._last_rows = None
        if table not in self.tables or not self.is_after_watermark(commit_event):
            return
        decoded: list[RowRecord] = []
        self._last_rows = table, decoded
        letter = _OPERATION_LETTERS[rows.operation]
        skipped = letter in self.skipped_ops
        if table in self.unreadable or (skipped and letter != "u"):
            return
        decoder = self._decoders.get(table)
        if decoder is None:
            self.unreadable[table] = (
                "rows of it were changed in the meantime, and without a primary key it is not known which"
            )
            return
        decode = (decoder.write, decoder.update, decoder.delete, decoder.partial_update)[rows.operation]
        try:
            decode(rows.event.buf, rows.pos, rows.event.end, EventContext(), decoded)
        except ValueDecodeError:
            self.unreadable[table] = "a row that was changed in the meantime cannot be decoded"
            return
        if not skipped:
            self._count(table, decoded)
        elif any(number == NEW_KEY for _, _, _, number, _, _ in decoded):
            self.unreadable[table] = _MOVED

    def _count(self, table: TableId, records: Iterable[RowRecord]) -> None:
        keys, is_shared = self.keys.setdefault(table, {}), self._shared_key_checks.get(table)
        for key, *_ in records:
            if key is not None:
                if is_shared is not None and key not in keys and is_shared(key):
                    self.unreadable[table] = _SHARED
                keys[key] = keys.get(key, 0) + 1
        if len(keys) > MAX_KEYS:
            self.unreadable[table] = f"more than {MAX_KEYS:,} of its rows were changed in the meantime"
            del self.keys[table]

    def on_unread_rows(self) -> None:
        """Note rows that cannot be read any more: it is not known which tables they change."""
        for table in self.tables:
            self.unreadable[table] = "rows of an XA transaction that were changed in the meantime are purged"

    def on_unwritten_row(self, row: int) -> None:
        """Note a row of the event whose rows were added last: the stream has no record of it.

        Args:
            row: The row's number in the event.
        """
        if self._last_rows is None:
            return
        table, records = self._last_rows
        keys = [record[0] for record in records if record[2] == row]
        if len(keys) == 1 and keys[0] is not None:
            self.unwritten.add(table, keys[0])
        else:
            self.unwritten.add_table(table)

    def exclude_unwritten(self, unwritten: UnwrittenRows) -> None:
        """Let changes of which the stream has no record not count, when the batch has ended.

        Args:
            unwritten: Those of all writers of the batch.
        """
        for table in unwritten.tables:
            self.unreadable.setdefault(table, _UNWRITTEN)
        for table, changes in unwritten.keys.items():
            self._unwritten_keys[table] = changes.keys()
            if self._restarted:
                self.unreadable.setdefault(table, _UNWRITTEN)
            keys = self.keys.get(table, {})
            for key, count in changes.items():
                if (written := keys.pop(key, 0) - count) > 0:
                    keys[key] = written

    def keys_of(self, table: TableId) -> Set[bytes]:
        """Return the keys of rows that a record of the stream changed.

        Args:
            table: Their table.
        """
        return self.keys.get(table, {}).keys()

    def unwritten_keys_of(self, table: TableId) -> Set[bytes]:
        """Return the keys of rows with changes of which the stream has no record.

        Args:
            table: Their table.
        """
        return self._unwritten_keys.get(table, frozenset())

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
