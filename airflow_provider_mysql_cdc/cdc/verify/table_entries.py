"""Make the entries of one table: of the events of its topic, and of its rows."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.equal_rows import StreamPasses
from airflow_provider_mysql_cdc.cdc.verify.event_entries import event_entries, row_entry
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, EventRecord
from airflow_provider_mysql_cdc.cdc.verify.row_records import WrittenRow


class TableEntries:
    """Make the entries of one table.

    Args:
        compared: The table.
        reader: Reads the records of its topic.
    """

    def __init__(self, compared: ComparedTable, reader: EventReader) -> None:
        self.compared, self._reader = compared, reader
        self._has_older, self._is_viewed, self._has_unplaced = False, False, False
        self._passes = StreamPasses()

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
        return row_entry(self.compared, self._reader.read(key, value, headers), partition)
