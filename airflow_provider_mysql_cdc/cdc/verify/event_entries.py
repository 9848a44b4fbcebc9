"""Turn records into entries: the events of a topic, and the rows of a table as the product's encoders write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import orjson

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.equal_rows import StreamPasses, event_mark
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.key_history import step_bytes
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes

_ONE_NUMBER = re.compile(rb'\{"([ !#-\[\]-~]*)":(?:0|-?[1-9][0-9]{0,17})\}')
"""A key of one whole number, which is canonical as it is."""
_WITH_SCHEMA = frozenset({"schema", "payload"})


def key_bytes_of(key: bytes, fields: frozenset[str]) -> bytes | None:
    """Return the canonical bytes of a key in JSON, with or without its schema; None if it has other fields.

    Args:
        key: The record's key.
        fields: The fields of the table's key.

    Raises:
        UnreadableRecord: It is not a key.
    """
    if (number := _ONE_NUMBER.fullmatch(key)) is not None:
        return key if len(fields) == 1 and number[1].decode() in fields else None
    try:
        document = orjson.loads(key)
        # A key may consist of columns of these names, but their values are no objects.
        with_schema = document.keys() == _WITH_SCHEMA and isinstance(document["schema"], dict)
        row = document["payload"] if with_schema else document
        return row_bytes(row) if row.keys() == fields else None
    except (ValueError, TypeError, AttributeError) as error:
        raise UnreadableRecord(f"the key cannot be read: {error}") from None


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
    record = compared.completed(record)
    if compared.written is not None:
        # A repair deletes the row of an event without a key by another one.
        compared.written.require_own(record, has_key=bool(compared.identity.key_fields) and not is_repair(headers))
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
        yield FoldEntry(number, kind, partition, offset, order, after, _stored(compared, record))


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
    if not compared.own_key or record.key is None or record.op == "t":
        return None
    record = compared.completed(record)
    order = compared.order_of(record.source)
    if unit_fields := compared.columns.unit_fields():
        before, after = (_without(row, unit_fields) for row in (record.before, record.after))
        value = step_bytes(replace(record, before=before, after=after), order, headers, compared.columns.is_unknown)
    else:
        value = step_bytes(record, order, headers, compared.columns.is_unknown)
    step_order, key = compared.step_order(record.source), compared.identity.record_key(record)
    return FoldEntry(compared.number, EntryKind.STEP, *place, step_order, key, value)


def _without(row: Row | None, fields: frozenset[str]) -> Row | None:
    return None if row is None else {name: value for name, value in row.items() if name not in fields}


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
