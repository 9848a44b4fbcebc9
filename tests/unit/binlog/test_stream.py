"""The event stream over crafted bytes: positions, ends, checksums, packets, silence."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from itertools import islice

import pytest
from kit.binlog_bytes import SERVER_ID, TIMESTAMP, Dump, error_packet, event_bytes, packets, stream_of
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream, Event
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    BinlogPurgedError,
    ServerIdInUseError,
    SourceConnectionError,
    SourceError,
    StateError,
    UnsupportedEventError,
)
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

START = BinlogOffset("binlog.000001", 4)


def seen(events: Iterator[Event]) -> list[tuple[int, str, int, int, bytes]]:
    return [(e.type, e.file, e.start_pos, e.end_pos, e.buf[e.body : e.end]) for e in events]


@pytest.mark.parametrize("crc", [True, False])
def test_events_come_with_header_positions_and_body_without_checksum(crc: bool) -> None:
    dump = Dump(crc=crc).begin().transaction(3)
    with stream_of(dump.data, START) as stream:
        events = list(stream.events(dump.offset()))
    assert seen(iter(events)) == dump.events
    assert {(e.timestamp, e.server_id, e.flags, e.inner) for e in events} == {(TIMESTAMP, SERVER_ID, 0, False)}
    assert events[0].where() == "binlog.000001:127"


@for_each("size", [1, 3, 24, 25, 1000])
def test_packets_may_arrive_in_any_pieces(size: int) -> None:
    dump = Dump().begin().transaction(2).heartbeat().transaction()
    pieces = [bytes(dump.data[i : i + size]) for i in range(0, len(dump.data), size)]
    with stream_of(pieces, START) as stream:
        assert seen(stream.events(dump.offset())) == dump.events


@pytest.mark.req("FAULT-11")
@pytest.mark.parametrize("pos", [4, 157])
def test_a_dump_of_a_file_that_was_replaced_since_it_was_looked_at_is_refused(pos: int) -> None:
    dump = Dump(pos=pos).begin().transaction()
    with stream_of(dump.data, BinlogOffset("binlog.000001", pos, origin=f"{TIMESTAMP}.head.first")) as stream:
        assert seen(stream.events(dump.offset())) == dump.events
    with (
        stream_of(dump.data, BinlogOffset("binlog.000001", pos, origin=f"{TIMESTAMP - 1}.head.first")) as stream,
        pytest.raises(BinlogPurgedError, match="replaced"),
    ):
        list(stream.events(dump.offset()))


def test_buffers_stay_valid_after_the_stream_went_on() -> None:
    dump = Dump().begin()
    for _ in range(200):
        dump.transaction(30)
    pieces = (bytes(dump.data[i : i + 10_000]) for i in range(0, len(dump.data), 10_000))
    with stream_of(pieces, START) as stream:
        assert seen(iter(list(stream.events(dump.offset())))) == dump.events


def test_stops_exactly_at_the_end_and_goes_on_from_there() -> None:
    dump = Dump().begin().transaction()
    first, count = dump.offset(), len(dump.events)
    dump.transaction()
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(first)) == dump.events[:count]
        assert seen(stream.events(first)) == []
        assert seen(stream.events(dump.offset())) == dump.events[count:]


def test_an_iteration_left_early_goes_on_with_the_next_event() -> None:
    dump = Dump().begin().transaction(2)
    with stream_of(dump.data, START) as stream:
        events = stream.events(dump.offset())
        head = seen(islice(events, 2))
        events.close()
        assert head + seen(stream.events(dump.offset())) == dump.events


def test_nothing_is_read_when_start_is_end() -> None:
    with stream_of([], START, close=False) as stream:
        assert list(stream.events(START)) == []


def test_an_end_before_the_start_is_refused() -> None:
    with (
        stream_of(b"", BinlogOffset("binlog.000002", 500)) as stream,
        pytest.raises(StateError, match="before its start"),
    ):
        list(stream.events(BinlogOffset("binlog.000001", 900)))


def test_start_inside_a_file() -> None:
    dump = Dump(pos=5000).begin().transaction()
    with stream_of(dump.data, BinlogOffset("binlog.000001", 5000)) as stream:
        assert seen(stream.events(dump.offset())) == dump.events
    assert dump.events[0][2] == 5000


def test_real_rotate_events_are_yielded_and_made_up_ones_are_not() -> None:
    dump = Dump("binlog.999999").begin().transaction().rotate("binlog.1000000").transaction()
    with stream_of(dump.data, BinlogOffset("binlog.999999", 4)) as stream:
        events = list(stream.events(dump.offset()))
    assert seen(iter(events)) == dump.events
    assert [e.type for e in events].count(c.ROTATE_EVENT) == 1
    assert [e.file for e in events] == ["binlog.999999"] * 6 + ["binlog.1000000"] * 5


def test_the_start_of_the_next_file_ends_the_stream_after_rotate() -> None:
    dump = Dump().begin().transaction().rotate("binlog.000002").transaction()
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(BinlogOffset("binlog.000002", 4)))[-1][0] == c.ROTATE_EVENT


def test_the_end_of_a_file_ends_the_stream_after_its_rotate() -> None:
    dump = Dump().begin().transaction().rotate("binlog.000002").transaction()
    rotate = next(e for e in dump.events if e[0] == c.ROTATE_EVENT)
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(BinlogOffset("binlog.000001", rotate[3])))[-1] == rotate


def test_a_file_may_end_without_rotate_after_a_crash() -> None:
    dump = Dump().begin().transaction().rotate("binlog.000002", real=False)
    middle = dump.offset().with_position("binlog.000002", 4)
    dump.transaction()
    with stream_of(dump.data, START) as stream:
        assert len(seen(stream.events(middle))) == 5
        assert seen(stream.events(dump.offset())) == dump.events[5:]


def test_checksums_may_change_from_file_to_file() -> None:
    dump = Dump(crc=False).begin().transaction()
    dump.add(c.ROTATE_EVENT, struct.pack("<Q", 4) + b"binlog.000002")
    dump.file, dump.pos = "binlog.000002", 4
    dump.artificial(c.ROTATE_EVENT, struct.pack("<Q", 4) + b"binlog.000002")
    dump.crc = True
    dump.format().transaction()
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(dump.offset())) == dump.events


def test_a_damaged_event_is_named_and_those_before_it_are_yielded() -> None:
    dump = Dump().begin().transaction()
    good, where = len(dump.events), str(dump.offset())
    at = len(dump.data)
    dump.add(c.QUERY_EVENT, b"UPDATE")
    dump.data[at + 30] ^= 1
    got: list[Event] = []
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="checksum") as caught:
        for event in stream.events(dump.offset()):
            got.append(event)
    assert len(got) == good and caught.value.where == where and not caught.value.can_retry


@for_each("kind", [c.ROTATE_EVENT, c.TRANSACTION_PAYLOAD_EVENT, c.IGNORABLE_LOG_EVENT, 99])
def test_a_damaged_event_of_a_special_kind_is_refused_too(kind: int) -> None:
    dump = Dump().begin()
    at = len(dump.data)
    dump.add(kind, bytes(8) + b"binlog.000002", flags=c.LOG_EVENT_IGNORABLE_F)
    dump.data[at + 30] ^= 1
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="checksum"):
        list(stream.events(dump.offset()))


def test_the_format_event_is_checked_with_its_in_use_flag_cleared() -> None:
    dump = Dump().begin()
    flags = dump.data.rindex(b"9.7.4") - 2 - 2
    dump.data[flags] |= c.LOG_EVENT_BINLOG_IN_USE_F
    dump.transaction()
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(dump.offset())) == dump.events


@pytest.mark.parametrize(
    ("change", "why"),
    [({"version": 3}, "binlog version 3"), ({"algorithm": 2}, "algorithm 2"), ({"lengths": {19: 6}}, "type 19 have 6")],
)
def test_an_unknown_format_is_refused(change: dict[str, int], why: str) -> None:
    dump = Dump()
    dump.artificial(c.ROTATE_EVENT, struct.pack("<Q", 4) + b"binlog.000001")
    dump.format(**change)
    with stream_of(dump.data, START) as stream, pytest.raises(UnsupportedEventError) as caught:
        list(stream.events(None))
    assert why in caught.value.why and "9.7.4" in caught.value.why


@for_each("extra", [-1, 0, 1, 70_000])
def test_payloads_of_sixteen_megabytes_and_more_are_joined(extra: int) -> None:
    body = bytes(range(256)) * ((0xFFFFFF >> 8) + 1)
    body = (body + body)[: 0xFFFFFF - 1 - 19 - 4 + extra]
    dump = Dump().begin().transaction().add(c.WRITE_ROWS_EVENT_V2, body).transaction()
    pieces = (bytes(dump.data[i : i + 300_000]) for i in range(0, len(dump.data), 300_000))
    with stream_of(pieces, START) as stream:
        assert seen(stream.events(dump.offset())) == dump.events


def test_a_payload_of_three_packets_is_joined() -> None:
    dump = Dump().begin().add(c.WRITE_ROWS_EVENT_V2, bytes(2 * 0xFFFFFF + 5)).transaction()
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(dump.offset())) == dump.events


def test_positions_beyond_four_gigabytes_are_counted() -> None:
    start = (1 << 32) - 100
    dump = Dump(pos=start).begin().transaction(3)
    with stream_of(dump.data, BinlogOffset("binlog.000001", start)) as stream:
        assert seen(stream.events(dump.offset())) == dump.events
    assert dump.pos > 1 << 32


def test_an_end_that_is_no_event_boundary_is_refused_before_anything_after_it_comes() -> None:
    dump = Dump().begin().transaction()
    inside = BinlogOffset("binlog.000001", dump.events[-1][2] + 1)
    got: list[Event] = []
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="not an event boundary"):
        for event in stream.events(inside):
            got.append(event)
    assert len(got) == len(dump.events) - 1


@pytest.mark.parametrize("real", [True, False])
def test_a_file_that_ends_before_the_end_is_refused(real: bool) -> None:
    dump = Dump().begin().transaction()
    dump.rotate("binlog.000002", real=real).transaction()
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="ends before"):
        list(stream.events(BinlogOffset("binlog.000001", 100_000)))


def test_positions_must_follow_each_other() -> None:
    dump = Dump().begin().transaction()
    dump.pos += 1000
    dump.transaction()
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="contradicts"):
        list(stream.events(dump.offset()))


def test_positions_may_jump_where_the_server_leaves_out_transactions_by_gtid() -> None:
    dump = Dump("binlog.000005").begin()
    dump.pos += 1000
    dump.transaction()
    with stream_of(dump.data, BinlogOffset("binlog.000001", 77), by_gtid=True) as stream:
        assert seen(stream.events(dump.offset())) == dump.events


def test_a_heartbeat_after_the_end_ends_a_stream_by_gtid() -> None:
    dump = Dump("binlog.000005").begin()
    dump.pos += 1000
    dump.heartbeat()
    with stream_of(dump.data, BinlogOffset("binlog.000005", 77), by_gtid=True, close=False) as stream:
        assert seen(stream.events(dump.offset())) == []


def test_a_later_file_ends_a_stream_by_gtid() -> None:
    dump = Dump("binlog.000007").begin().transaction()
    with stream_of(dump.data, START, by_gtid=True) as stream:
        assert seen(stream.events(BinlogOffset("binlog.000005", 100))) == []


def test_heartbeats_of_version_two_are_understood() -> None:
    position = (1 << 32) + 500
    name = b"binlog.000005"
    body = b"\1" + bytes([len(name)]) + name + b"\2\x09\xfe" + struct.pack("<Q", position) + b"\0"
    dump = Dump("binlog.000005").begin().artificial(c.HEARTBEAT_LOG_EVENT_V2, body)
    with stream_of(dump.data, START, by_gtid=True, close=False) as stream:
        assert seen(stream.events(BinlogOffset("binlog.000005", position))) == []
        assert stream.heartbeats == 1


def test_unknown_events_marked_ignorable_are_left_out_and_counted() -> None:
    dump = Dump().begin().transaction()
    dump.add(99, flags=c.LOG_EVENT_IGNORABLE_F, listed=False).add(c.IGNORABLE_LOG_EVENT, listed=False).transaction()
    with stream_of(dump.data, START) as stream:
        assert seen(stream.events(dump.offset())) == dump.events
        assert stream.skipped == 2


@for_each("kind", [1, 20, 99, 163])
def test_unknown_events_stop_the_stream(kind: int) -> None:
    dump = Dump().begin()
    where = str(dump.offset())
    dump.add(kind)
    with stream_of(dump.data, START) as stream, pytest.raises(UnsupportedEventError, match=f"type {kind}") as caught:
        list(stream.events(dump.offset()))
    assert caught.value.where == where


def test_an_incident_stops_the_stream() -> None:
    dump = Dump().begin().add(c.INCIDENT_EVENT, b"\1\0\x04lost")
    with stream_of(dump.data, START) as stream, pytest.raises(BinlogCorruptError, match="incident 1 lost"):
        list(stream.events(dump.offset()))


@for_each(
    ("code", "text", "error", "retriable"),
    [
        (1236, "Could not find first log file name in binary log index file", BinlogPurgedError, False),
        (
            1236,
            "A replica with the same server_uuid/server_id as this replica has connected",
            ServerIdInUseError,
            False,
        ),
        (1236, "bogus data in log event", BinlogCorruptError, False),
        (1053, "Server shutdown in progress", SourceConnectionError, True),
        (1064, "You have an error", SourceError, False),
    ],
)
def test_an_error_packet_becomes_a_named_error(code: int, text: str, error: type[SourceError], retriable: bool) -> None:
    dump = Dump().begin().transaction()
    dump.raw(error_packet(code, text))
    with stream_of(dump.data, START) as stream, pytest.raises(error) as caught:
        list(stream.events(None))
    assert type(caught.value) is error and text in caught.value.why and caught.value.can_retry is retriable
    assert caught.value.where == str(dump.offset())


def test_a_short_error_packet_at_the_very_end_is_read() -> None:
    dump = Dump().begin().raw(packets(b"\xff\x25\x04#08S01"))
    with stream_of(dump.data, START) as stream, pytest.raises(SourceError, match="1061"):
        list(stream.events(None))


@pytest.mark.parametrize("padding", [0, 40])
def test_an_end_of_file_packet_is_a_retriable_error(padding: int) -> None:
    dump = Dump().begin().raw(packets(b"\xfe\0\0\2\0" + bytes(padding)))
    with stream_of(dump.data, START) as stream, pytest.raises(SourceConnectionError, match="ended the dump"):
        list(stream.events(None))


def test_a_closed_connection_is_a_retriable_error() -> None:
    dump = Dump().begin().transaction()
    with stream_of(dump.data[:-3], START) as stream, pytest.raises(SourceConnectionError, match="broke") as caught:
        list(stream.events(dump.offset()))
    assert caught.value.can_retry


@pytest.mark.parametrize("data", [packets(b""), packets(b"\0" * 10), packets(b"\0" + event_bytes(2, b"", 0) + b"x")])
def test_a_packet_that_is_no_event_is_refused(data: bytes) -> None:
    with stream_of(Dump().begin().data + data, START) as stream, pytest.raises(BinlogCorruptError):
        list(stream.events(None))


@pytest.mark.req("FAULT-06")
def test_silence_is_a_retriable_error_after_the_deadline() -> None:
    dump = Dump().begin().transaction()
    began = time.monotonic()
    with (
        stream_of(dump.data, START, silence_s=0.3, close=False) as stream,
        pytest.raises(SourceConnectionError, match=r"0\.3 s") as caught,
    ):
        list(stream.events(None))
    assert 0.3 <= time.monotonic() - began < 30 and caught.value.can_retry


def test_heartbeats_keep_a_quiet_stream_alive() -> None:
    dump = Dump().begin().transaction()
    beat = bytes(Dump(pos=dump.pos).heartbeat().data)
    last = bytes(Dump(pos=dump.pos).transaction().data)

    def pieces() -> Iterator[bytes]:
        yield bytes(dump.data)
        for _ in range(6):
            time.sleep(0.2)
            yield beat
        yield last

    end = BinlogOffset("binlog.000001", dump.pos + (dump.pos - dump.events[0][2]))
    with stream_of(pieces(), START, silence_s=0.6) as stream:
        assert len(list(stream.events(end))) == 10
        assert stream.heartbeats == 6


def test_close_closes_the_connection_once() -> None:
    class Connection:
        closed = 0

        def close(self) -> None:
            self.closed += 1
            raise OSError("already gone")

    connection = Connection()
    with stream_of(b"", START) as source, BinlogStream(source._packets, START, connection=connection) as stream:
        pass
    stream.close()
    assert connection.closed == 1
