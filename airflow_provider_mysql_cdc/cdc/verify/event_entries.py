"""Turn records into entries: the events of a topic, and the rows of a table as the product's encoders write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.equal_rows import StreamPasses, event_mark
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.key_history import step_bytes
from airflow_provider_mysql_cdc.cdc.verify.record_keys import FOREIGN_KEY, raw_identity
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes


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
        if (
            compared.own_key
            and compared.alone
            and record.key is not None
            and not compared.identity.has_other_key(record)
        ):
            row = compared.identity.record_key(record)
            yield FoldEntry(compared.number, EntryKind.TOMBSTONE, partition, offset, 0, row, b"")
        return
    # A repair deletes a row as its event has it: without a key perhaps, or with columns that the history does not know.
    if compared.written is not None and not (record.op == "d" and is_repair(headers)):
        compared.written.require_own(record, has_key=bool(compared.identity.key_fields))
    record = compared.completed(record)
    number, order = compared.number, compared.order_of(record.source)
    if record.op == "t":
        yield FoldEntry(number, EntryKind.TRUNCATE, partition, offset, order, b"", b"")
        return
    if compared.names_no_row(record):
        begin = 0 if compared.written is None else compared.written.key_begin
        yield FoldEntry(number, EntryKind.UNPLACED, partition, offset, begin, b"", b"")
        return
    before, after = compared.identity.before_and_after(record)
    if compared.keyless:
        written = compared.written
        view = (None, None) if written is None else (written.view_ts, written.repeated)
        mark = event_mark(record, place, headers, passes or StreamPasses(), *view)
        for kind, key in ((EntryKind.REMOVED, before), (EntryKind.ADDED, after)):
            if key is not None:
                yield FoldEntry(number, kind, partition, offset, 0, key, mark)
        return
    other_key = compared.own_key and compared.identity.has_other_key(record)
    if before is not None and before != after:
        kind = EntryKind.DEAD_UNDER_OTHER_KEY if other_key else EntryKind.DEAD
        yield FoldEntry(number, kind, partition, offset, order, before, b"")
    if after is not None:
        kind = EntryKind.ALIVE_UNDER_OTHER_KEY if other_key else EntryKind.ALIVE
        value = _stored(compared, compared.with_added_columns(record))
        yield FoldEntry(number, kind, partition, offset, order, after, value)


def _foreign_entries(
    compared: ComparedTable, record: EventRecord, place: tuple[int, int], headers: Headers
) -> Iterator[FoldEntry]:
    """Yield the entries of a record whose key is not in the bytes that the stream writes, but may read as a row's.

    Consumers by key keep it beside the row, so the bytes are its identity, which no row has.

    Raises:
        UnreadableRecord: The key chooses no row, or it is not known which table it is of.
    """
    if not compared.own_key or record.key_bytes is None or not (record.op or compared.alone):
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
    """Return the entry of a record in the history of its key; None where the key is not the row's.

    Args:
        compared: The record's table.
        record: The record.
        place: Its partition and offset.
        headers: Its headers.
    """
    if not compared.own_key or record.key is None or record.op == "t" or not compared.writes_key(record):
        return None
    record = compared.completed(record)
    order = compared.order_of(record.source)
    value = step_bytes(record, order, headers, compared.columns.is_unknown)
    step_order, key = compared.step_order(record.source), compared.identity.record_key(record)
    return FoldEntry(compared.number, EntryKind.STEP, *place, step_order, key, value)


def row_entry(compared: ComparedTable, record: EventRecord, partition: int) -> FoldEntry:
    """Return the entry of a row of the table.

    Args:
        compared: The table.
        record: The row, as a record that the product's encoders have written.
        partition: The record's partition.

    Raises:
        UnreadableRecord: The record does not say which row it is about.
    """
    key = compared.identity.before_and_after(record)[1]
    if key is None:
        raise UnreadableRecord("a row has no values")
    if compared.keyless:
        return FoldEntry(compared.number, EntryKind.KEYLESS_ROW, partition, 0, 0, key, b"")
    if record.forms is None and compared.row_forms is not None:
        record = replace(record, forms=compared.row_forms)
    return FoldEntry(compared.number, EntryKind.ROW, partition, 0, 0, key, _stored(compared, record))


def _stored(compared: ComparedTable, record: EventRecord) -> bytes:
    """Return the canonical bytes of the row after an event, with the forms that it has to carry."""
    return row_bytes(compared.carrier.row_with_forms(record.after or {}, record.forms))
