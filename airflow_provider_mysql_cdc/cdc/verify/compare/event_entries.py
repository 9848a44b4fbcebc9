"""Turn records into entries: the events of a topic, rows as the product's encoders write them, and records of repairs.

A record that is no event is settled by a later one of a repair with the same key in the same partition. That may be the
row of its key or a delete; where the key names no row, it is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.compare.key_state import StreamPasses, event_mark
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import step_bytes
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    EventReader,
    EventRecord,
    UnreadableRecord,
    row_bytes,
)
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import WrittenRow, is_repair, settled_places
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable, named_table

OF_ANY_TABLE = b"any"
"""Value of the entry of a tombstone that does not name its table."""
OF_PLACE = b"place"
"""Value of the entry of a record without a key that a repair has settled, at that record's place."""
TRUNCATED = b"its topic has TRUNCATE events, and without a key it is not known which rows they delete"
_OLDER = b"its topic has events of an earlier structure, and without a key it is not known which rows they are of"
_AGAIN = b"changes came again that a snapshot contains, and without a key it is not known which rows they are of"
FOREIGN_KEY = "its key is not in the bytes that the stream writes: compaction keeps it beside the row's"
_KEY_MEMBER = "\0key"
_RAW_START = b'{"\\u0000key":'
MAX_REASON_CHARACTERS = 300


def raw_identity(key: bytes) -> bytes:
    """Return what stands for a key that names no row."""
    return row_bytes({_KEY_MEMBER: key.hex()})


def is_raw(identity: bytes) -> bool:
    """Return whether an identity stands for a key that names no row."""
    return identity.startswith(_RAW_START)


class RecordKeys:
    """Make the entries of records that are no events, and of those that repairs have written, of one topic."""

    def __init__(self, tables: Sequence[ComparedTable], reader: EventReader) -> None:
        self._tables, self._reader = tables, reader
        only = tables[0] if len(tables) == 1 else None
        self._only = only if only is not None and only.alone else None

    def unreadable(self, record: TopicRecord, reason: str) -> FoldEntry | None:
        """Return the entry of a record that is no event; None if no later record can settle it."""
        found = self._row_or_key(record) if record.key is not None else self._row_of_values(record)
        if found is None:
            return None
        kind, value = EntryKind.UNREADABLE, reason[:MAX_REASON_CHARACTERS].encode()
        if record.value is None and is_repair(record.headers):
            kind, value = EntryKind.REPAIRED, b""
        return FoldEntry(found[0], kind, record.partition, record.offset, 0, found[1], value)

    def repaired(self, record: TopicRecord, number: int | None) -> Iterator[FoldEntry]:
        """Yield the entries of a record that a repair has written; none where it settles nothing.

        Args:
            record: The record; its key can be read.
            number: The number of its table; None for a tombstone that does not name one.
        """
        settled = list(settled_places(record.headers))
        if (settled or record.key is None) and (of_values := self._row_of_values(record)) is not None:
            table, identity = of_values
            for partition, offset in settled or [(record.partition, record.offset)]:
                yield FoldEntry(table, EntryKind.REPAIRED, partition, offset, 0, identity, OF_PLACE if settled else b"")
        if record.key is None:
            return
        found = self._row_or_key(record)
        rows, place, of_any = [] if found is None else [found], (record.partition, record.offset), b""
        if found is None:
            # Equal keys go to the same partition. So what a tombstone is to forget in another one is misplaced for
            # every table of the topic.
            fields = self._reader.read(record.key, None, record.headers)
            tables = [t for t in self._tables if _names_row(t, fields) and number in (None, t.number)]
            rows, of_any = [(t.number, _identity(t, fields)) for t in tables], OF_ANY_TABLE
        for table, identity in rows:
            value = b"" if record.value is not None else of_any
            yield FoldEntry(table, EntryKind.REPAIRED, *place, 0, identity, value)

    def _row_of_values(self, record: TopicRecord) -> tuple[int, bytes] | None:
        """Return table number and identity of the row that an event without a key is about; None if it does not say."""
        with suppress(UnreadableRecord):
            event = self._reader.read(None, record.value, record.headers)
            name = (event.source.get("db"), event.source.get("table"))
            for table in self._tables:
                if table.keyless or (table is not self._only and name != (table.table.id.db, table.table.id.table)):
                    continue
                before, after = table.identity.before_and_after(table.completed(event))
                identity = after or before
                return None if identity is None else (table.number, identity)
        return None

    def _row_or_key(self, record: TopicRecord) -> tuple[int, bytes] | None:
        """Return table number and identity; None where the key may be that of a row which is not known.

        Keys of an earlier primary key, and those that message.key.columns chooses, are such.
        """
        if record.key is None:
            return None
        try:
            key = self._reader.read(record.key, None, record.headers)
        except UnreadableRecord:
            return self._tables[0].number, raw_identity(record.key)
        only = self._only or named_table(self._tables, key.key)
        if only is None:
            return None
        if _names_row(only, key):
            return only.number, _identity(only, key)
        columns: Mapping[str, Any] = only.columns.declared
        if only.identity.key_fields and any(name in columns for name in key.key or ()):
            return None
        return only.number, raw_identity(record.key)


def named_row(compared: ComparedTable, reader: EventReader, record: TopicRecord) -> bytes | None:
    """Return the identity of the row that a record's key names, in whatever bytes; None for one that names none."""
    with suppress(UnreadableRecord):
        fields = reader.read(record.key, None, record.headers)
        return compared.identity.record_key(fields) if _names_row(compared, fields) else None
    return None


def _identity(compared: ComparedTable, record: EventRecord) -> bytes:
    if record.key_bytes is None or compared.writes_key(record):
        return compared.identity.record_key(record)
    return raw_identity(record.key_bytes)


def _names_row(compared: ComparedTable, record: EventRecord) -> bool:
    return compared.own_key and not compared.identity.has_other_key(record)


def _is_of(compared: ComparedTable, record: EventRecord) -> bool:
    """Return whether a record without a value is of a table, of whose topic it is."""
    return compared.alone or compared.is_named_by(record.key)


def event_entries(
    compared: ComparedTable,
    record: EventRecord,
    place: tuple[int, int],
    headers: Headers = (),
    passes: StreamPasses | None = None,
) -> Iterator[FoldEntry]:
    """Yield the entries of an event; none for a message, nor for a tombstone that does not name one row.

    Args:
        compared: The event's table.
        record: The event.
        place: Its partition and offset.
        headers: Its headers.
        passes: The passes over the binlog that the topic's records before it belong to; None if it is read alone.

    Raises:
        UnreadableRecord: The event does not say which row it is about.
    """
    partition, offset = place
    if not compared.writes_key(record):
        yield from _foreign_entries(compared, record, place, headers)
        return
    if not record.op:
        if _names_row(compared, record) and _is_of(compared, record):
            row = compared.identity.record_key(record)
            yield FoldEntry(compared.number, EntryKind.TOMBSTONE, partition, offset, 0, row, b"")
        return
    # A repair deletes a row as its event has it: without a key perhaps, or with columns that the history does not know.
    if compared.written is not None and not (record.op == "d" and is_repair(headers)):
        compared.written.require_own(record, has_key=bool(compared.identity.key_fields))
    record = compared.completed(record)
    number, order = compared.number, compared.order_of(record.source)
    if record.op == "t":
        kind, reason = (EntryKind.UNDECIDABLE, TRUNCATED) if compared.keyless else (EntryKind.TRUNCATE, b"")
        yield FoldEntry(number, kind, partition, offset, order, b"", reason)
        return
    if compared.names_no_row(record):
        begin = 0 if compared.written is None else compared.written.key_begin
        yield FoldEntry(number, EntryKind.UNPLACED, partition, offset, begin, b"", b"")
        return
    if not compared.own_key and not compared.identity.has_own_key(record):
        raise UnreadableRecord("its key has other values than its row: consumers by key take it for another one")
    before, after = compared.identity.before_and_after(record)
    if compared.keyless:
        mark = event_mark(record, place, headers, passes or StreamPasses(), compared)
        for kind, key in ((EntryKind.REMOVED, before), (EntryKind.ADDED, after)):
            if key is not None:
                yield FoldEntry(number, kind, partition, offset, order, key, mark)
        return
    yield from _keyed_entries(compared, record, place, before, after)


def _keyed_entries(
    compared: ComparedTable, record: EventRecord, place: tuple[int, int], before: bytes | None, after: bytes | None
) -> Iterator[FoldEntry]:
    """Yield the entries of an event that names one row before and one after it."""
    number, order = compared.number, compared.order_of(record.source)
    has_other_key = compared.identity.has_other_key(record)
    other_key = compared.own_key and has_other_key
    if not compared.own_key and not has_other_key:
        record_key = compared.identity.record_key(record)
        for row, exists in {before: b"\0", after: b"\1"}.items():
            if row is not None:
                yield FoldEntry(number, EntryKind.KEPT, *place, order, row, exists + record_key)
    if before is not None and before != after:
        kind = EntryKind.DEAD_UNDER_OTHER_KEY if other_key else EntryKind.DEAD
        yield FoldEntry(number, kind, *place, order, before, b"")
    if after is not None:
        kind = EntryKind.ALIVE_UNDER_OTHER_KEY if other_key else EntryKind.ALIVE
        value = _stored(compared, compared.with_added_columns(record))
        yield FoldEntry(number, kind, *place, order, after, value)


def _foreign_entries(
    compared: ComparedTable, record: EventRecord, place: tuple[int, int], headers: Headers
) -> Iterator[FoldEntry]:
    """Yield the entries of a record whose key is not in the bytes that the stream writes, but may read as a row's.

    Consumers by key keep it beside the row, so the bytes are its identity, which no row has.

    Raises:
        UnreadableRecord: The key chooses no row, or it is not known which table it is of.
    """
    if not compared.own_key or record.key_bytes is None or not (record.op or _is_of(compared, record)):
        raise UnreadableRecord(FOREIGN_KEY)
    key, order = raw_identity(record.key_bytes), compared.order_of(record.source)
    if record.after is not None:
        value = _stored(compared, compared.completed(record))
        yield FoldEntry(compared.number, EntryKind.ALIVE, *place, order, key, value)
        return
    if not is_repair(headers):  # it takes nothing away by its bytes, and a row by its values
        yield FoldEntry(compared.number, EntryKind.UNREADABLE, *place, 0, key, FOREIGN_KEY.encode())
    kind = EntryKind.DEAD if record.op else EntryKind.TOMBSTONE
    yield FoldEntry(compared.number, kind, *place, order, key, b"")


def history_entry(
    compared: ComparedTable, record: EventRecord, place: tuple[int, int], headers: Headers
) -> FoldEntry | None:
    """Return the entry of a record in the history of its key; None where the key is not the row's."""
    if not compared.own_key or record.key is None or record.op == "t" or not compared.writes_key(record):
        return None
    record = compared.completed(record)
    order = compared.order_of(record.source)
    value = step_bytes(record, order, headers, compared.columns.is_unknown)
    step_order, key = compared.step_order(record.source), compared.identity.record_key(record)
    return FoldEntry(compared.number, EntryKind.STEP, *place, step_order, key, value)


def row_entry(compared: ComparedTable, record: EventRecord, partition: int) -> FoldEntry:
    """Return the entry of a row of the table.

    Raises:
        UnreadableRecord: The record does not say which row it is about.
    """
    key = compared.identity.before_and_after(record)[1]
    if key is None:
        raise UnreadableRecord("a row has no values")
    if compared.keyless:
        return FoldEntry(compared.number, EntryKind.KEYLESS_ROW, partition, 0, 0, key, b"")
    return FoldEntry(compared.number, EntryKind.ROW, partition, 0, 0, key, _stored(compared, record))


def _stored(compared: ComparedTable, record: EventRecord) -> bytes:
    """Return the canonical bytes of the row after an event, with the forms that it has to carry."""
    return row_bytes(compared.carrier.row_with_forms(record.after or {}, record.forms))


class TableEntries:
    """Make the entries of one table."""

    def __init__(self, compared: ComparedTable, reader: EventReader) -> None:
        self.compared, self._reader = compared, reader
        self._is_undecidable, self._has_unplaced = False, False
        self._passes = StreamPasses()

    def of_event(self, event: EventRecord, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entries of an event that was read; errors as for ``event_entries``."""
        place = (record.partition, record.offset)
        if event.key is None and record.value is None and not is_repair(record.headers) and self._always_has_key(event):
            raise UnreadableRecord("the record has neither a key nor a value, although its table has a key")
        written = self.compared.written
        by_key = self.compared.keyless and written is not None and written.changes_by_key(event)
        entries = event_entries(self.compared, event, place, record.headers, self._passes)
        for entry in () if by_key else entries:
            if entry.kind is not EntryKind.UNPLACED:
                yield entry
            elif not self._has_unplaced:
                self._has_unplaced = True
                yield entry
        if self._is_undecidable or not self.compared.keyless:
            return
        moved_back = written is not None and written.moved_back
        if by_key or moved_back or self._has_other_columns(event) or self._replaces_by_key(event, record):
            self._is_undecidable, reason = True, _AGAIN if moved_back else _OLDER
            yield FoldEntry(self.compared.number, EntryKind.UNDECIDABLE, *place, 0, b"", reason)

    def _has_other_columns(self, event: EventRecord) -> bool:
        row, written = event.after or event.before, self.compared.written
        if not row:
            return False
        if row.keys() != self.compared.columns.declared.keys():
            return True
        return written is not None and written.has_other_columns(event)

    def _always_has_key(self, event: EventRecord) -> bool:
        """Return whether all records of the topic have keys; tombstones behind deletes without one have none either."""
        written = self.compared.written
        keyed = written is not None and written.always_keyed and not written.is_before_history(event)
        return keyed and self.compared.alone

    def _replaces_by_key(self, event: EventRecord, record: TopicRecord) -> bool:
        """Return whether an event may replace the row of before by its key, as one that is written once more does."""
        written, has_key = self.compared.written, bool(self.compared.identity.key_fields)
        if written is None or not (event.before or event.after):
            return False
        if written.was_keyed(event):
            return is_repair(record.headers) or written.reads_again(event)
        return event.key is not None and not has_key  # chosen by message.key.columns then, or by other hands

    def of_row(self, row: WrittenRow) -> FoldEntry:
        """Return the entry of a row; errors as for ``row_entry``."""
        key, value, partition, headers = row
        return row_entry(self.compared, self._reader.read(key, value, headers), partition)
