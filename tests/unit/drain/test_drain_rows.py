"""Row events as a writer of a drain takes them: most by comparing their header, others by looking at it in full."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.cases import for_each
from kit.drain_rig import Rig

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import (
    DELETE_ROWS,
    UPDATE_ROWS,
    WRITE_ROWS,
    WRITE_ROWS_V1,
    common_headers,
    rows_header,
)
from airflow_provider_mysql_cdc.cdc.drain import table_routes as routes_module
from airflow_provider_mysql_cdc.cdc.drain.table_route import TableRoute
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, CdcError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model.table import TableId

WIDTH = 2
USUAL = b"\x02\x00\x02\xff"


def event(kind: int, behind_flags: bytes, table: int = 7) -> Event:
    data = b"..." + struct.pack("<IHH", table, 0, 1) + behind_flags + b"crc!"
    return Event(kind, 1, 1, 0, "binlog.000001", 4, 99, data, 3, len(data) - 4)


@for_each("width", [1, 8, 9, 250])
@for_each("kind", [WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS])
def test_a_usual_header_is_one_that_says_the_same_when_it_is_looked_at(kind: int, width: int) -> None:
    usual = common_headers(width)[kind]
    header = rows_header(event(kind, usual + b"rows"))
    assert header.has_all_columns() and (header.width, header.pos) == (width, 3 + 8 + len(usual))


@for_each("width", [251, 255, 256, 4096])
def test_wide_tables_have_no_usual_header_because_their_width_takes_more_than_a_byte(width: int) -> None:
    assert common_headers(width) == {}


class Looked:
    """A writer with one route, and where it read rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig, self.read, self.in_full = Rig(monkeypatch, **{"heartbeat.interval.ms": "0"}), [], 0

        def decode(buf: bytes, pos: int, end: int, ctx: Any, out: list[Any]) -> None:
            self.read.append(buf[pos:end])

        def header(given: Any) -> Any:
            self.in_full += 1
            return rows_header(given)

        monkeypatch.setattr(routes_module, "rows_header", header)
        decoder: Any = SimpleNamespace(table=SimpleNamespace(columns=range(WIDTH)))
        self.rig.writer.routes.by_id[7] = TableRoute(
            TableId("d", "t"), "p.d.t", TopicShare("p.d.t", 1, frozenset([0]), True), decoder, decoder, (decode,) * 4,
            write_source_block=lambda *_: None, headers=common_headers(WIDTH),
        )  # fmt: skip

    def run(self, *events: Event) -> None:
        def stream(_: Any) -> Iterator[Any]:
            yield from events

        self.rig.run(stream)


def test_most_row_events_are_not_looked_at_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    looked.run(event(WRITE_ROWS, USUAL + b"a"), event(UPDATE_ROWS, USUAL + b"\xffb"), event(DELETE_ROWS, USUAL + b"c"))
    assert (looked.read, looked.in_full) == ([b"a", b"b", b"c"], 0)


@for_each(
    ("kind", "behind", "rows"),
    [
        (WRITE_ROWS, b"\x04\x00..\x02\xff", b"extra data"),
        (WRITE_ROWS, b"\x02\x00\x02\x01", b"some columns"),
        (WRITE_ROWS, b"\x02\x00\x02\x03", b"spare bits not set"),
        (UPDATE_ROWS, USUAL + b"\x02", b"some columns behind"),
        (WRITE_ROWS_V1, b"\x02\xff", b"another layout"),
    ],
)
def test_any_other_header_is_looked_at(monkeypatch: pytest.MonkeyPatch, kind: int, behind: bytes, rows: bytes) -> None:
    looked = Looked(monkeypatch)
    looked.run(event(kind, behind + rows))
    assert (looked.read, looked.in_full) == ([rows], 1)


@pytest.mark.parametrize(
    "given",
    [
        event(WRITE_ROWS, USUAL),  # no rows
        event(WRITE_ROWS, b"\x02\x00\x03\xffrows"),  # another width
        event(WRITE_ROWS, USUAL[:3]),  # cut off
    ],
)
def test_a_row_event_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, given: Event) -> None:
    with pytest.raises(BinlogCorruptError):
        Looked(monkeypatch).run(given)


def test_rows_that_no_table_was_announced_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CdcError):
        Looked(monkeypatch).run(event(WRITE_ROWS, USUAL + b"a", table=8))


def test_a_dead_letter_has_the_whole_source_of_a_record_that_shows_little_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, letters = Rig(monkeypatch, **{"heartbeat.interval.ms": "0"}), list[tuple[str, str]]()

    def decode(buf: bytes, pos: int, end: int, ctx: Any, out: list[Any]) -> None:
        assert "binlog.000001" not in ctx.src_head
        out.append((b'{"id":1}', b'{"op":"c","before":null,"after":{"id":1}}', 0, 0, None, None))

    def refuse(_: bytes) -> bytes:
        raise ValueDecodeError("it has no form")

    form: Any = SimpleNamespace(key_bytes=lambda key: key, value_bytes=refuse, partition=lambda *_: 0)
    writer: Any = rig.writer
    report = lambda topic, bad, ctx, _: letters.append((topic, ctx.src_head))  # noqa: E731
    writer.handlers.rows.dead_letters = SimpleNamespace(report=report)
    writer.output.tolerant = True
    table, decoder = TableId("d", "t"), SimpleNamespace(table=SimpleNamespace(columns=range(WIDTH)))
    writer.routes.by_id[7] = TableRoute(
        table,
        "p.d.t",
        TopicShare("p.d.t", 1, frozenset([0]), True),
        source.source_block(table, prefix="p"),
        cast(Any, decoder),
        cast(Any, (decode,) * 4),
        record_format=form,
        write_source_block=source.fill_time,
        headers=common_headers(WIDTH),
    )
    rig.run(lambda _: iter([event(WRITE_ROWS, USUAL + b"a")]))
    ((topic, head),) = letters
    assert topic == "p.d.t" and '"file":"binlog.000001","pos":4,"row":' in head
