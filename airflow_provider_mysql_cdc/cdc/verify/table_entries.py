"""Make the entries of one table: of the events of its topic, and of its rows."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.equal_rows import StreamPasses
from airflow_provider_mysql_cdc.cdc.verify.event_entries import event_entries, key_bytes_of, row_entry
from airflow_provider_mysql_cdc.cdc.verify.event_layout import EventLayout
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, EventRecord
from airflow_provider_mysql_cdc.cdc.verify.json_slices import EventSlice, slice_event, source_members
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.row_records import WrittenRow
from airflow_provider_mysql_cdc.cdc.verify.source_place import position_order


class TableEntries:
    """Make the entries of one table.

    Args:
        compared: The table.
        reader: Reads the records of its topic.
        prefix: What values in JSON begin with, where they need not be read (``json_slices.value_prefix``).
        ordered: Whether the places of events in the binlog are wanted.
        layout: The members of events that need not be read; None where these may have any.
    """

    def __init__(
        self,
        compared: ComparedTable,
        reader: EventReader,
        *,
        prefix: bytes | None,
        ordered: bool,
        layout: EventLayout | None = None,
    ) -> None:
        self._layout = layout
        self.compared, self._reader = compared, reader
        self._members = source_members(compared.table.id)
        # A text that is not read carries no forms.
        self._prefix = prefix if compared.own_key and compared.unchanged else None
        written = compared.written
        # Positions of several binlogs do not order events, and a text that is not read does not say their times.
        self._sliced = self._prefix is not None and not (ordered and written is not None and not written.one_binlog)
        self._is_older = None if written is None or compared.columns.has_schemas else written.is_older
        self._ordered = ordered or self._is_older is not None
        self._has_older, self._is_viewed, self._has_unplaced = False, False, False
        self._passes = StreamPasses()

    def of_value(self, record: TopicRecord) -> FoldEntry | None:
        """Return the entry of an event that need not be read; None for any other.

        Args:
            record: The record.
        """
        if not self._sliced or self._prefix is None or record.key is None or record.value is None:
            return None
        if record.headers and is_repair(record.headers):
            return None
        if self._layout is not None and not self._layout.has_own_members(record.value, len(self._prefix)):
            return None
        event = slice_event(record.value, self._prefix, ordered=self._ordered, members=self._members)
        if event is None or event.op not in _ROW_OPERATIONS or (event.op == _DELETE) is bool(event.after):
            return None
        return self._sliced_entry(record, event)

    def _sliced_entry(self, record: TopicRecord, event: EventSlice) -> FoldEntry | None:
        assert record.key is not None
        order = position_order(event.file_number, event.pos)
        if self._is_older is not None and self._is_older(order):
            return None
        kind = EntryKind.ALIVE if event.after else EntryKind.DEAD
        key = key_bytes_of(record.key, self.compared.identity.key_fields)
        if key is None:
            return None
        return FoldEntry(self.compared.number, kind, record.partition, record.offset, order, key, event.after)

    def of_event(self, event: EventRecord, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entries of an event that was read; errors as for ``event_entries``."""
        place = (record.partition, record.offset)
        for entry in event_entries(self.compared, event, place, record.headers, self._passes):
            if entry.kind is not EntryKind.UNPLACED:
                yield entry
            elif not self._has_unplaced:
                self._has_unplaced = True
                yield entry
        written = self.compared.written
        if (
            not self._is_viewed
            and self.compared.keyless
            and written is not None
            and written.shows_view(event, record.headers)
        ):
            self._is_viewed = True
            yield FoldEntry(self.compared.number, EntryKind.VIEWED, record.partition, record.offset, 0, b"", b"")
        if self.compared.keyless and not self._has_older and self._has_other_columns(event):
            self._has_older = True
            yield FoldEntry(self.compared.number, EntryKind.OLDER, record.partition, record.offset, 0, b"", b"")

    def _has_other_columns(self, event: EventRecord) -> bool:
        row, written = event.after or event.before, self.compared.written
        if not row:
            return False
        if row.keys() != self.compared.columns.declared.keys():
            return True
        return written is not None and written.has_other_columns(event)

    def of_row(self, row: WrittenRow) -> FoldEntry:
        """Return the entry of a row; errors as for ``row_entry``."""
        key, value, partition, headers = row
        if self._prefix is not None and key is not None and value is not None:
            event = slice_event(value, self._prefix, ordered=False)
            identity = key_bytes_of(key, self.compared.identity.key_fields)
            if event is not None and event.after and identity is not None:
                return FoldEntry(self.compared.number, EntryKind.ROW, partition, 0, 0, identity, event.after)
        return row_entry(self.compared, self._reader.read(key, value, headers), partition)


_ROW_OPERATIONS, _DELETE = frozenset("crud"), "d"
