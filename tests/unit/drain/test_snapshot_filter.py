"""Which records of the stream the chunks of a resumed snapshot hold back: views, names, versions of the table."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import body, column, image, table, table_map
from kit.memory_job import config
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.drain import snapshot_filter as key_filters
from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import ChunkLookup
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import UNKNOWN_TRANSACTION, ChunkVisibility
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import EventRows, SnapshotFilter
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import dropped_chunk_members
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import DroppedChunk, NameSpan, spans_to_json
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START

T = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
MAP = table_map((wt.LONG, 0), (wt.LONG, 0))
WRITE, UPDATE, DELETE = 0, 1, 2
NEW_NAME = TableId("d", "new")


def at(pos: int) -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos)


def upto(high: int) -> SnapshotChunk:
    return SnapshotChunk(T.id, 0, ("id",), None, (high,), kinds=("SIGNED",))


def event(pos: int, buf: bytes = b"", end: int = 0) -> Any:
    return SimpleNamespace(file="binlog.000001", end_pos=pos, buf=buf, end=end, where=lambda: f"binlog.000001:{pos}")


# -- from the ledger's records ----------------------------------------------------------------------------------------


def record(pos: int, *spans: NameSpan) -> dict[str, Any]:
    return {"offset": at(pos).to_json(), "chunk": upto(5).to_json(), "spans": spans_to_json(spans)}


def filters(*records: dict[str, Any]) -> SnapshotFilter | None:
    return SnapshotFilter.from_chunks(config(), records, plan(start=at(100), end=at(900)))


def contained(found: SnapshotFilter | None, name: TableId, *places: int) -> list[int]:
    """Return the places whose events of a name are contained in some chunk."""
    assert found is not None
    return [
        p for p in places if any(held.contains(event(p), UNKNOWN_TRANSACTION) for held in found.lookups.get(name, ()))
    ]


def test_chunks_that_were_read_where_the_batch_begins_hold_nothing_back() -> None:
    assert filters() is None and filters(record(100), record(50)) is None


def test_a_chunk_read_later_holds_back_what_lies_before_its_view() -> None:
    found = filters(record(100), record(300))
    assert contained(found, T.id, 150, 300, 301) == [150, 300] and contained(found, NEW_NAME, 150) == []
    assert [len(held.chunks) for held in found.lookups[T.id]] == [1], "the one that was read at 100 contains nothing"
    two = filters(record(300), record(400))
    assert contained(two, T.id, 300, 301, 400, 401) == [300, 301, 400]
    assert two is not None and [held.dropped for held in two.lookups[T.id]] == [False, False]


def test_chunks_of_one_view_are_searched_together() -> None:
    second = record(300) | {"chunk": SnapshotChunk(T.id, 1, ("id",), (5,), None, kinds=("SIGNED",)).to_json()}
    found = filters(record(300), second)
    assert found is not None and [len(held.chunks) for held in found.lookups[T.id]] == [2]


def test_each_name_counts_while_it_was_the_tables() -> None:
    found = filters(record(300, (T.id, START, (1, 200)), (NEW_NAME, (1, 200), None)))
    assert contained(found, T.id, 150, 200, 201, 250) == [150, 200]
    assert contained(found, NEW_NAME, 150, 200, 201, 300, 301) == [201, 300]


def test_of_rows_that_were_gone_the_place_up_to_which_the_table_was_followed_counts() -> None:
    """Their records stand at the first view, because the drain begins there."""
    gone = record(100) | dropped_chunk_members(at(300), DroppedChunk(upto(5), ((T.id, START, (1, 250)),)))
    found = filters(gone)
    assert contained(found, T.id, 150, 250, 251, 300) == [150, 250]
    assert found is not None and [held.dropped for held in found.lookups[T.id]] == [True]


# -- for records of events --------------------------------------------------------------------------------------------


def row(number: int, n: int) -> bytes:
    return image(2, struct.pack("<ii", number, n))


def kept(filters: SnapshotFilter, kind: int, *rows: bytes, pos: int = 50, legs: tuple[int, ...] = ()) -> list[int]:
    """Return the numbers of the records that are kept; each row of the event has one, of leg 0 if nothing is said."""
    buf, start, end = body(*rows, columns=2, images=2 if kind == UPDATE else 1)
    count = len(rows) // (2 if kind == UPDATE else 1)
    records: list[Any] = [(b"", b"", i, legs[i] if legs else 0, None, None) for i in range(count)]
    here = event(pos, buf, end)
    return [r[2] for r in filters.outside_chunks(T.id, records, here, EventRows(here, start, kind))]


def learned(*held: ChunkLookup) -> SnapshotFilter:
    found = SnapshotFilter(config(), {T.id: list(held)})
    found.prepare_table(T, MAP)
    return found


def test_written_updated_and_deleted_rows_are_recognised_by_their_keys() -> None:
    found = learned(ChunkLookup([upto(5)], ChunkVisibility(at(100))))
    assert kept(found, WRITE, row(5, 0), row(6, 0)) == [1]
    assert kept(found, DELETE, row(6, 0), row(5, 0)) == [0]
    assert kept(found, UPDATE, row(5, 0), row(5, 1), row(6, 0), row(6, 1)) == [1]


def test_an_update_whose_event_key_stays_is_recognised_by_the_row_afterwards() -> None:
    """message.key.columns: the chunk's key changes, the event's does not."""
    found = learned(ChunkLookup([upto(5)], ChunkVisibility(at(100))))
    assert kept(found, UPDATE, row(6, 0), row(5, 0)) == []
    assert kept(found, UPDATE, row(5, 0), row(6, 0)) == [0]


def test_events_after_the_view_are_kept_and_each_view_counts_for_its_own_chunks() -> None:
    found = learned(ChunkLookup([upto(5)], ChunkVisibility(at(100))), ChunkLookup([upto(9)], ChunkVisibility(at(200))))
    rows = [row(5, 0), row(7, 0), row(10, 0)]
    assert kept(found, WRITE, *rows, pos=100) == [2]
    assert kept(found, WRITE, *rows, pos=150) == [2], "contained in the second view only, with the first one's keys"
    assert kept(found, WRITE, *rows, pos=201) == [0, 1, 2]
    first = learned(ChunkLookup([upto(5)], ChunkVisibility(at(200))), ChunkLookup([upto(9)], ChunkVisibility(at(100))))
    assert kept(first, WRITE, *rows, pos=150) == [1, 2]


def test_a_row_whose_key_nobody_could_read_is_kept() -> None:
    found = learned(ChunkLookup([upto(5)], ChunkVisibility(at(100))))
    buf, start, end = body(row(5, 0), columns=2)
    records: list[Any] = [(b"", b"", 0, 0, None, None), (b"", b"", 7, 0, None, None)]
    here = event(50, buf, end)
    assert found.outside_chunks(T.id, records, here, EventRows(here, start, WRITE)) == records[1:]


def test_the_rows_of_a_new_version_are_read_as_that_version() -> None:
    """ALTER TABLE moves the key behind another column; the earlier decoder would take that for the key."""
    found = learned(ChunkLookup([upto(5)], ChunkVisibility(at(100))))
    assert kept(found, WRITE, row(5, 9), row(9, 5)) == [1]
    found.prepare_table(table(column("n", "INT"), column("id", "INT", nullable=False), key=("id",)), MAP)
    assert kept(found, WRITE, row(5, 9), row(9, 5)) == [0]


def test_a_decoder_is_made_once_for_a_version_and_outlives_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    plain = key_filters.compile_decoder
    monkeypatch.setattr(key_filters, "compile_decoder", lambda *args: made.append(args) or plain(*args))
    found = SnapshotFilter(config(), {T.id: [ChunkLookup([upto(5)], ChunkVisibility(at(100)))], NEW_NAME: []})
    found.prepare_table(T, MAP)
    assert kept(found, WRITE, row(5, 9)) == kept(found, WRITE, row(4, 9)) == []
    found.prepare_table(replace(T, id=NEW_NAME), MAP)
    assert kept(found, WRITE, row(5, 9)) == [] and len(made) == 1


@pytest.mark.parametrize(
    ("columns", "was"),
    [
        ((column("key", "INT", nullable=False), column("n", "INT")), "did not have it at this position"),
        ((column("id", "JSON", nullable=False), column("n", "INT")), "there it was JSON"),
        ((column("id", "DATE", nullable=False), column("n", "INT")), "there it was DATE"),
    ],
    ids=["renamed", "no key any more", "of another kind"],
)
def test_a_key_that_was_changed_stops(columns: Any, was: str) -> None:
    found = SnapshotFilter(config(), {T.id: [ChunkLookup([upto(5)], ChunkVisibility(at(100)))]})
    found.prepare_table(table(*columns, key=("n",)), MAP)
    with pytest.raises(SchemaError, match="cannot be compared with the table's events") as caught:
        kept(found, WRITE, row(5, 0))
    assert caught.value.why.endswith(was) and "bounded by id as SIGNED" in caught.value.why
    assert str(T.id) in caught.value.where and "again=true" in caught.value.remedy


def test_a_key_of_another_form_is_not_compared() -> None:
    chunk = SnapshotChunk(T.id, 0, ("id",), None, ("2024-01-01",), kinds=("DATE",))
    found = learned(ChunkLookup([chunk], ChunkVisibility(at(100))))
    (held,) = found.lookups[T.id]
    assert found._key_values(b'{"id":"2024-02-03"}', held, event(50)) == ("2024-02-03",)
    with pytest.raises(SchemaError, match="a key of an event cannot be compared") as caught:
        found._key_values(b'{"id":"03.02.2024"}', held, event(50))
    assert caught.value.where.endswith(", binlog.000001:50") and "DATE" in caught.value.why
    assert "again=true" in caught.value.remedy


def test_the_source_is_asked_over_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def connect(settings: Any) -> Any:
        opened.append(SimpleNamespace(closed=0))
        opened[-1].close = lambda conn=opened[-1]: setattr(conn, "closed", conn.closed + 1)
        return opened[-1]

    monkeypatch.setattr(key_filters, "connect", connect)
    monkeypatch.setattr(key_filters, "fetch_all", lambda conn, sql: [(opened.index(conn), sql)])
    found = learned()
    found.close()
    assert [found._run_query("a"), found._run_query("b")] == [[(0, "a")], [(0, "b")]]
    found.close()
    found.close()
    assert [conn.closed for conn in opened] == [1]
    assert found._run_query("c") == [(1, "c")]
