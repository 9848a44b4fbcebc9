"""Tell by its key which row, or which key of Kafka's, a record is about that is no event, or that a repair has written.

A record that is no event is settled by a later one of a repair with the same key in the same partition. That may be the
row of its key or a delete; where the key names no row, it is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair, settled_places
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes

OF_ANY_TABLE = b"any"
"""Value of the entry of a tombstone that does not name its table."""
OF_PLACE = b"place"
"""Value of the entry of a record without a key that a repair has settled, at that record's place."""
FOREIGN_KEY = "its key is not in the bytes that the stream writes: compaction keeps it beside the row's"
_KEY_MEMBER = "\0key"
_RAW_START = b'{"\\u0000key":'
MAX_REASON_CHARACTERS = 300


def raw_identity(key: bytes) -> bytes:
    """Return what stands for a key that names no row.

    Args:
        key: The record's key.
    """
    return row_bytes({_KEY_MEMBER: key.hex()})


def is_raw(identity: bytes) -> bool:
    """Return whether an identity stands for a key that names no row.

    Args:
        identity: The identity.
    """
    return identity.startswith(_RAW_START)


class RecordKeys:
    """Make the entries of records that are no events, and of those that repairs have written, of one topic.

    Args:
        tables: The tables of the topic.
        reader: Reads its records.
    """

    def __init__(self, tables: Sequence[ComparedTable], reader: EventReader) -> None:
        self._tables, self._reader = tables, reader
        only = tables[0] if len(tables) == 1 else None
        self._only = only if only is not None and only.alone else None

    def unreadable(self, record: TopicRecord, reason: str) -> FoldEntry | None:
        """Return the entry of a record that is no event; None if no later record can settle it.

        Args:
            record: The record.
            reason: Why it is no event.
        """
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
        only = self._only
        if only is None:
            return None
        if _names_row(only, key):
            return only.number, _identity(only, key)
        columns: Mapping[str, Any] = only.columns.declared
        if only.identity.key_fields and any(name in columns for name in key.key or ()):
            return None
        return only.number, raw_identity(record.key)


def named_row(compared: ComparedTable, reader: EventReader, record: TopicRecord) -> bytes | None:
    """Return the identity of the row that a record's key names, in whatever bytes; None for one that names none.

    Args:
        compared: The record's table.
        reader: Reads its records.
        record: The record.
    """
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
