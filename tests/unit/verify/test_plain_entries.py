"""Which records of a topic are left to be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from kit.fold_entries import read_entries
from kit.table_records import SOURCE, TableRecords

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable, compared_table
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryBlocks, EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.plain_entries import PlainEntries, plain_entries
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import REPAIR_HEADER
from airflow_provider_mysql_cdc.cdc.verify.source_place import position_order
from airflow_provider_mysql_cdc.cdc.verify.structure_versions import StructureVersion, TableVersions
from airflow_provider_mysql_cdc.cdc.verify.written_structures import WrittenStructures

pytestmark = pytest.mark.quick
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
ROW, OTHER = {"id": 1, "n": 5}, {"id": 1, "n": None}
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n INT)"


class Message:
    """A record as the client returns it."""

    def __init__(self, offset: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        self._offset, self._key, self._value, self._headers = offset, key, value, headers

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return self._headers


def event(records: TableRecords, op: str, before: Any, after: Any, **source: Any) -> tuple[bytes, bytes]:
    key, value, _ = records.event({"id": 1}, op=op, before=before, after=after, source=SOURCE | source)
    assert key is not None and value is not None
    return key, value


def plain(records: TableRecords, compared: ComparedTable | None = None, *, ordered: bool = False) -> PlainEntries:
    found = plain_entries(records.cfg, compared or compared_table(records.cfg, 0, records.table), ordered=ordered)
    assert found is not None
    return found


def added(entries: PlainEntries, *messages: Message) -> tuple[list[FoldEntry], list[int]]:
    """Return the entries, and the offsets of the records that are left."""
    blocks = EntryBlocks(1)
    left = entries.add_events(cast(Any, messages), 3, blocks)
    return list(read_entries(block for _, block in blocks.take_rest())), [int(each.offset() or 0) for each in left]


@pytest.mark.parametrize("properties", [PLAIN, SCHEMAS])
def test_events_like_one_that_was_read_are_plain(properties: dict[str, str]) -> None:
    records = TableRecords(TABLE, properties)
    entries = plain(records)
    first = Message(1, *event(records, "c", None, ROW))
    assert added(entries, first) == ([], [1]) and entries.knows_none
    entries.learn(first.value() or b"")
    assert not entries.knows_none
    later = Message(2, *event(records, "u", ROW, OTHER, pos=5000)), Message(3, *event(records, "d", OTHER, None))
    found, left = added(entries, first, *later)
    order, key = position_order(7, 4711), b'{"id":1}'
    assert left == []
    assert found == [
        FoldEntry(0, EntryKind.ALIVE, 3, 1, order, key, b'{"id":1,"n":5}'),
        FoldEntry(0, EntryKind.ALIVE, 3, 2, position_order(7, 5000), key, b'{"id":1,"n":null}'),
        FoldEntry(0, EntryKind.DEAD, 3, 3, order, key, b""),
    ]


def test_other_records_are_left() -> None:
    records = TableRecords(TABLE, PLAIN)
    entries = plain(records)
    key, value = event(records, "c", None, ROW)
    entries.learn(value)
    found, left = added(
        entries,
        Message(1, None, value),
        Message(2, key, None),
        Message(3, key, value, ((REPAIR_HEADER, b"run"),)),
        Message(4, b'{"n":1}', value),
        Message(5, key, value, (("other", b"x"),)),
        Message(6, key, value[:-1]),
    )
    assert [entry.offset for entry in found] == [5] and left == [1, 2, 3, 4, 6]


def with_versions(records: TableRecords, *, one_binlog: bool) -> ComparedTable:
    old = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, n BIGINT)", PLAIN).table
    places = (BinlogOffset("binlog.000007", 4), old), (BinlogOffset("binlog.000007", 4000), records.table)
    versions = TableVersions(tuple(StructureVersion(place, table) for place, table in places), one_binlog)
    compared = compared_table(records.cfg, 0, records.table)
    return replace(compared, written=WrittenStructures(records.cfg, records.table, versions))


def test_events_of_an_earlier_structure_are_left_where_records_do_not_say_it() -> None:
    records = TableRecords(TABLE, PLAIN)
    entries = plain(records, with_versions(records, one_binlog=True))
    now, earlier = (Message(n, *event(records, "c", None, ROW, pos=pos)) for n, pos in ((1, 4000), (2, 3999)))
    entries.learn(now.value() or b"")
    assert added(entries, now, earlier)[1] == [2]


def test_no_event_is_plain_where_positions_of_several_servers_are_to_be_ordered() -> None:
    records = TableRecords(TABLE, SCHEMAS)
    compared = with_versions(records, one_binlog=False)
    message = Message(1, *event(records, "c", None, ROW))
    for ordered in (True, False):
        entries = plain(records, compared, ordered=ordered)
        entries.learn(message.value() or b"")
        assert added(entries, message)[1] == ([1] if ordered else [])
        assert not entries.knows_none


def test_rows_that_are_not_written_as_events_are_left() -> None:
    records = TableRecords(TABLE, SCHEMAS)
    entries, blocks = plain(records), EntryBlocks(1)
    key, value, _ = records.row("1", None)
    rows = [(key, value, 2, ()), (None, value, 0, ()), (key, b"{}", 0, ())]
    assert entries.add_rows(rows, blocks) == rows[1:]
    (entry,) = read_entries(block for _, block in blocks.take_rest())
    assert entry == FoldEntry(0, EntryKind.ROW, 2, 0, 0, b'{"id":1}', b'{"id":1,"n":null}')
