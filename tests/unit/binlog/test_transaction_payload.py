"""Compressed transactions come out as the events they hold, with the outer positions."""

from __future__ import annotations

import pytest
import zstandard
from kit.binlog_bytes import Dump, event_bytes, payload_body, stream_of
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import control_events
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, UnsupportedEventError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

START = BinlogOffset("binlog.000001", 4)
INNER = [
    (c.QUERY_EVENT, b"BEGIN"),
    (c.TABLE_MAP_EVENT, b"map"),
    (c.WRITE_ROWS_EVENT_V2, b"rows" * 900),
    (c.XID_EVENT, b"xid"),
]
RAW = b"".join(event_bytes(kind, body, 0, crc=False) for kind, body in INNER)


def compressed(data: bytes, level: int = 3) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def dump_of(body: bytes) -> Dump:
    return Dump().begin().add(c.GTID_LOG_EVENT, bytes(58)).add(c.TRANSACTION_PAYLOAD_EVENT, body).transaction()


def inner_events(body: bytes) -> list[tuple[int, bytes]]:
    dump = dump_of(body)
    with stream_of(dump.data, START) as stream:
        events = list(stream.events(dump.offset()))
    outer = dump.events[1]
    found = [e for e in events if e.inner]
    assert all((e.start_pos, e.end_pos, e.file) == (outer[2], outer[3], outer[1]) for e in found)
    assert [e.type for e in events if not e.inner] == [e[0] for e in dump.events if e[0] != c.TRANSACTION_PAYLOAD_EVENT]
    return [(e.type, e.buf[e.body : e.end]) for e in found]


@for_each("piece", [1, 20, 1000, 1 << 20])
def test_inner_events_are_yielded(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_events, "PIECE_BYTES", piece)
    assert inner_events(payload_body(compressed(RAW), size=len(RAW))) == INNER


def test_a_payload_may_consist_of_several_zstd_frames() -> None:
    assert inner_events(payload_body(compressed(RAW[:50]) + compressed(RAW[50:]), size=len(RAW))) == INNER


def test_a_payload_may_be_uncompressed() -> None:
    assert inner_events(payload_body(RAW, compression=255)) == INNER


def test_an_end_after_a_compressed_transaction_yields_all_of_it() -> None:
    dump = dump_of(payload_body(compressed(RAW)))
    end = BinlogOffset("binlog.000001", dump.events[1][3])
    with stream_of(dump.data, START) as stream:
        assert [e.type for e in stream.events(end)] == [c.GTID_LOG_EVENT, *(kind for kind, _ in INNER)]
        assert len(list(stream.events(dump.offset()))) == 5


def test_an_unknown_inner_event_is_skipped_only_when_ignorable() -> None:
    skippable = event_bytes(99, b"?", 0, crc=False, flags=c.LOG_EVENT_IGNORABLE_F)
    assert inner_events(payload_body(compressed(skippable + RAW))) == INNER
    with pytest.raises(UnsupportedEventError, match="type 99"):
        inner_events(payload_body(compressed(RAW + event_bytes(99, b"?", 0, crc=False))))


@for_each(
    "body",
    [
        payload_body(compressed(RAW))[:-10],
        payload_body(b"this is no zstd frame"),
        payload_body(compressed(RAW[:-1])),
        payload_body(compressed(RAW + b"tail")),
        payload_body(compressed(RAW + bytes(19))),
        payload_body(compressed(RAW[: 19 + 5]), size=len(RAW)),
        b"\x01",
        b"",
    ],
    ids=["short", "no-zstd", "cut-event", "tail", "no-length", "cut-between", "cut-field", "empty"],
)
def test_a_damaged_payload_is_refused(body: bytes) -> None:
    with pytest.raises(BinlogCorruptError, match="compressed transaction"):
        inner_events(body)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(UnsupportedEventError, match="type 7"):
        inner_events(payload_body(RAW, compression=7))
