"""Whole transactions through the native kernel: what is walked, what is left to Python, and where a walk ends."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kit.binlog_bytes import UUID_TEXT, error_packet, event_bytes, packets
from kit.cases import for_each
from kit.native_identity import BothWalks
from kit.transaction_bytes import COMMIT_US, Sent, begin_body, gtid_body, learn, map_body, route, rows_body

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.decode.native_rows import JSON_ROWS, NativeRowDecoder
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import (
    BATCH_FULL,
    DECLINED,
    TRUNCATED,
    MarkedContext,
    NativeTransactions,
)
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.murmur2 import partition

pytestmark = [pytest.mark.quick, pytest.mark.native]
T = Table(TableId("d", "t"), (Column("id", 1, "INT", nullable=False), Column("n", 2, "INT")), ("id",))
WIRES = (WireType(wt.LONG), WireType(wt.LONG))
MAP, SKIPPED = b"\1\0\1d\0\1t\0", b"\1\0\1d\0\1s\0"
NO_LIMIT = 1 << 63


def row(key: int, n: int = 5) -> bytes:
    return b"\0" + struct.pack("<ii", key, n)


class Walk:
    """A walker that knows one table, and passes over the rows of another."""

    def __init__(
        self, *, by_event: bool = False, partitions: int = 1, mine: frozenset[int] | None = None, **options: Any
    ) -> None:
        module = kernel().module
        self.tally = Tally(module.Tally())
        self.walker = BothWalks(module, self.tally, by_event=by_event)
        envelope = EnvelopeText(None, None)
        owned = None if mine is None else OwnedKeys(partitions, mine, partition)
        python = RowDecoder(T, WIRES, DecoderOptions(**options), envelope, owned=owned)
        self.decoder = NativeRowDecoder(python, WIRES, JSON_ROWS, module, self.tally)
        self.route = route(self.decoder)
        learn(self.walker, MAP, self.route, partitions)
        skipped = route(self.decoder)
        skipped.decoder = skipped.source = None
        self.walker.learn(SKIPPED, skipped, None, None)

    def of(self, sent: Sent | bytes, *, limit: int = NO_LIMIT, at: int = 0, tail: int = 4) -> NativeTransactions:
        data = sent if isinstance(sent, bytes) else bytes(sent.data)
        return self.walker.decode_transactions(data, at, "b.000001", 1000, limit, tail)


def insert(sent: Sent, *keys: int, number: int = 1, table: bytes = MAP) -> Sent:
    sent.begin(number).add(c.TABLE_MAP_EVENT, map_body(90, table))
    rows = b"".join(map(row, keys))
    return sent.add(c.WRITE_ROWS_EVENT_V2, rows_body(90, c.WRITE_ROWS_EVENT_V2, 2, rows)).end()


def keys(found: NativeTransactions) -> list[bytes]:
    return [record[0] for _, records, *_ in found.segments for record in records]


@pytest.mark.parametrize("crc", [True, False])
def test_transactions_of_a_known_table(crc: bool) -> None:
    sent, walk = Sent(crc=crc), Walk()
    insert(insert(insert(sent, 1), 2, 3, number=2), 4, number=9)
    found = walk.of(sent, tail=sent.tail())
    assert (found.at, found.pos, found.end_reason) == (len(sent.data), sent.pos, TRUNCATED)
    assert keys(found) == [b'{"id":%d}' % key for key in (1, 2, 3, 4)]
    size = sum(len(key) + len(value) for _, records, *_ in found.segments for key, value, *_ in records)
    assert [(of is walk.route, *rest) for of, _, *rest in found.segments] == [(True, 0, None, 0, size)]
    assert found.gtids == [(UUID_TEXT, 1, 3), (UUID_TEXT, 9, 10)]
    assert found.last_transaction == (7, f"{UUID_TEXT}:9", COMMIT_US, 11)
    assert (found.changes, found.totals) == ([(4, 0, 0)], (3, 0))
    assert walk.tally.counts().rows == 4
    value = found.segments[0][1][0][1]
    assert b'"gtid":"%s:1","file":"b.000001","pos":' % UUID_TEXT.encode() in value and b'"thread":11' in value


def test_a_gtid_of_another_server_than_the_last_one_with_its_server_id_is_left_to_python() -> None:
    sent, walk, other = insert(Sent(), 1), Walk(), "aaaaaaaa-0000-0000-0000-000000000001"
    for signers, reason in (({7: other}, DECLINED), ({7: UUID_TEXT}, TRUNCATED), ({8: other}, DECLINED)):
        walk.walker.sign(signers)
        assert walk.of(sent).end_reason == reason


def test_the_end_of_the_batch_is_not_passed() -> None:
    sent, walk = Sent(), Walk()
    insert(insert(sent, 1), 2, number=2)
    at, pos = sent.ends[0]
    found = walk.of(sent, limit=pos)
    assert (found.at, found.pos, found.end_reason) == (at, pos, BATCH_FULL)
    assert walk.of(sent, limit=pos - 1).last_transaction is None


def test_a_transaction_that_is_cut_off_is_waited_for() -> None:
    sent = insert(Sent(), 1)
    for size in range(len(sent.data)):
        found = Walk().of(bytes(sent.data[:size]))
        assert (found.at, found.end_reason, found.last_transaction) == (0, TRUNCATED, None), size


def test_a_large_transaction_is_not_waited_for() -> None:
    sent = Sent().begin().add(c.TABLE_MAP_EVENT, map_body(90, MAP))
    sent.add(c.WRITE_ROWS_EVENT_V2, rows_body(90, c.WRITE_ROWS_EVENT_V2, 2, row(1) * 8000))
    assert Walk().of(sent).end_reason == DECLINED
    assert Walk().of(sent.end()).end_reason == DECLINED


def test_what_a_statement_brings_is_not_waited_for() -> None:
    """Nothing has to follow a statement in the binlog for a long time."""
    sent = Sent().add(c.GTID_LOG_EVENT, gtid_body()).add(c.QUERY_EVENT, begin_body(sql=b"CREATE TABLE x (i INT)"))
    found = Walk().of(sent)
    assert (found.at, found.end_reason) == (0, DECLINED)


def test_an_error_of_the_server_is_not_waited_for() -> None:
    sent = insert(Sent(), 1)
    for cut in (sent.ends[0][0] - 36, sent.ends[0][0]):
        data = bytes(sent.data[:cut]) + error_packet(1236, "gone")
        found = Walk().of(data)
        assert found.end_reason == DECLINED


def changed_byte(sent: Sent, at: int) -> bytes:
    data = bytearray(sent.data)
    data[at] ^= 1
    return bytes(data)


def test_damage_is_left_to_python() -> None:
    sent = insert(Sent(), 1)
    frames = {at + n for at in starts(bytes(sent.data)) for n in range(4)}
    for at in range(len(sent.data)):
        found = Walk().of(changed_byte(sent, at))
        # The length of a packet, or its number, which nobody looks at.
        assert found.last_transaction is None or at in frames, at


def starts(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 4 + int.from_bytes(data[at : at + 3], "little")
    return found


LEFT_TO_PYTHON = {
    "another statement": lambda s: s.begin().add(c.QUERY_EVENT, begin_body(sql=b"SAVEPOINT a")).end(),
    "a table that is not known": lambda s: insert(s, 1, table=b"another"),
    "rows without a table": lambda s: (
        s.begin().add(c.WRITE_ROWS_EVENT_V2, rows_body(90, c.WRITE_ROWS_EVENT_V2, 2, row(1))).end()
    ),
    "a partial update": lambda s: s.begin().add(c.TABLE_MAP_EVENT, map_body(90, MAP)).add(39, bytes(30)).end(),
    "rows that leave a column out": lambda s: (
        s.begin()
        .add(c.TABLE_MAP_EVENT, map_body(90, MAP))
        .add(c.WRITE_ROWS_EVENT_V2, b"\x5a\0\0\0\0\0\1\0\2\0\2\1\0\1\0\0\0")
        .end()
    ),
    "no rows": insert,
    "a row too short": lambda s: (
        s.begin()
        .add(c.TABLE_MAP_EVENT, map_body(90, MAP))
        .add(c.WRITE_ROWS_EVENT_V2, rows_body(90, c.WRITE_ROWS_EVENT_V2, 2, row(1)[:-1]))
        .end()
    ),
    "another clock": lambda s: s.begin(clock=1).end(),
    "GTID number 0": lambda s: s.begin(0).end(),
    "a compressed transaction": lambda s: s.add(c.GTID_LOG_EVENT, gtid_body()).add(40, bytes(9)),
}


@for_each("what", LEFT_TO_PYTHON)
def test_what_is_left_to_python(what: str) -> None:
    """A transaction is left as a whole, and what stands before it is walked."""
    sent, walk = insert(Sent(), 1, number=1), Walk()
    LEFT_TO_PYTHON[what](sent)
    insert(sent, 2, number=3)
    found = walk.of(sent)
    assert (found.at, found.pos) == sent.ends[0]
    assert found.end_reason == DECLINED and keys(found) == [b'{"id":1}'] and walk.tally.counts().declined == {}
    assert walk.of(bytes(sent.data), at=found.at).last_transaction is None


def test_events_are_distinguished_by_gtid_and_number() -> None:
    sent, walk = Sent(), Walk(by_event=True)
    sent.begin(4).add(c.TABLE_MAP_EVENT, map_body(90, SKIPPED)).add(c.TABLE_MAP_EVENT, map_body(91, MAP))
    for table, some in ((91, (1, 2)), (90, (3,)), (91, (4,)), (91, (5,))):
        rows = b"".join(map(row, some))
        sent.add(c.WRITE_ROWS_EVENT_V2, rows_body(table, c.WRITE_ROWS_EVENT_V2, 2, rows))
    insert(sent.end(), 6, number=5)
    found = walk.of(sent)
    told = [(len(records), gtid, event) for _, records, _, gtid, event, _ in found.segments]
    four, five = f"{UUID_TEXT}:4", f"{UUID_TEXT}:5"
    assert told == [(2, four, 1), (1, four, 3), (1, four, 4), (1, five, 1)]


def test_events_without_a_gtid_are_not_distinguished() -> None:
    sent = Sent().add(c.ANONYMOUS_GTID_LOG_EVENT, gtid_body()).add(c.QUERY_EVENT, begin_body())
    sent.add(c.TABLE_MAP_EVENT, map_body(90, MAP))
    sent.add(c.WRITE_ROWS_EVENT_V2, rows_body(90, c.WRITE_ROWS_EVENT_V2, 2, row(1))).end()
    assert Walk().of(sent).last_transaction is not None and Walk(by_event=True).of(sent).last_transaction is None


def test_rows_of_other_tables_are_skipped() -> None:
    sent = insert(insert(Sent(), 1), 2, number=2, table=SKIPPED)
    found = Walk().of(sent)
    assert (found.at, found.pos) == sent.ends[1] and keys(found) == [b'{"id":1}']
    assert found.gtids == [(UUID_TEXT, 1, 3)]


@pytest.mark.parametrize("by_event", [True, False])
def test_records_are_distinguished_by_partition(by_event: bool) -> None:
    sent, walk = Sent(), Walk(by_event=by_event, partitions=3)
    insert(insert(sent, *range(50)), *range(40, 90), number=2)
    found = walk.of(sent)
    for part in range(3):
        told = [record for _, records, at, *_ in found.segments for record in records if at == part]
        wanted = [b'{"id":%d}' % key for key in (*range(50), *range(40, 90))]
        assert [record[0] for record in told] == [key for key in wanted if partition(key, 3) == part]
    assert len(found.segments) == (6 if by_event else 3) and walk.tally.counts().rows == 100


def test_rows_of_other_writers_are_passed_over_and_keep_their_numbers() -> None:
    sent, walk = insert(insert(Sent(), *range(50)), *range(50), number=2), Walk(partitions=3, mine=frozenset({0, 2}))
    found = walk.of(sent)
    mine = [n for n in range(50) if partition(b'{"id":%d}' % n, 3) != 1]
    assert {part for _, _, part, *_ in found.segments} == {0, 2}
    assert sorted(record[2] for _, records, *_ in found.segments for record in records) == sorted(mine * 2)
    assert walk.tally.counts().rows == 2 * len(mine) and found.gtids == [(UUID_TEXT, 1, 3)]


@for_each("mine", [None, frozenset[int](), frozenset({0, 1})])
@for_each("tombstones", [True, False])
def test_an_update_that_changes_a_key_has_records_of_both_keys_whoever_has_them(mine: Any, tombstones: bool) -> None:
    sent = Sent().begin().add(c.TABLE_MAP_EVENT, map_body(90, MAP))
    rows = row(1) + row(1, 6) + row(2) + row(7)
    sent.add(c.UPDATE_ROWS_EVENT_V2, rows_body(90, c.UPDATE_ROWS_EVENT_V2, 2, rows)).end()
    found = Walk(partitions=2, mine=mine, tombstones=tombstones).of(sent)
    told = [(*record[2:4], record[0], record[4], part) for _, some, part, *_ in found.segments for record in some]
    new, old = ("__debezium.newkey", b'{"id":7}'), ("__debezium.oldkey", b'{"id":2}')
    wanted = [(0, 0, b'{"id":1}', None)] if mine is None or partition(b'{"id":1}', 2) in mine else []
    split = [(1, 0, b'{"id":2}', new), (1, 1, b'{"id":2}', new), (1, 2, b'{"id":7}', old)]
    wanted += split if tombstones else split[::2]
    assert sorted(told) == [(*some, partition(some[2], 2)) for some in wanted]
    assert tuple(map(sum, zip(*found.changes, strict=True))) == (1, len(wanted) - (3 if tombstones else 2), 1)


def test_updates_deletes_and_tombstones() -> None:
    sent = Sent().begin(original=COMMIT_US - 5).add(c.TABLE_MAP_EVENT, map_body(90, MAP))
    sent.add(c.UPDATE_ROWS_EVENT_V2, rows_body(90, c.UPDATE_ROWS_EVENT_V2, 2, row(1) + row(1, 6)))
    sent.add(c.ROWS_QUERY_LOG_EVENT, b"\5DELETE FROM t")
    sent.add(c.DELETE_ROWS_EVENT_V2, rows_body(90, c.DELETE_ROWS_EVENT_V2, 2, row(1) + row(2))).end()
    found = Walk().of(sent)
    assert [record[2:4] for record in found.segments[0][1]] == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 1)]
    assert found.last_transaction == (7, f"{UUID_TEXT}:1", COMMIT_US - 5, 11)


def test_transactions_without_a_gtid_and_without_times() -> None:
    sent = Sent().add(c.ANONYMOUS_GTID_LOG_EVENT, gtid_body(us=0)).add(c.QUERY_EVENT, begin_body(thread=0))
    sent.add(c.TABLE_MAP_EVENT, map_body(90, MAP))
    sent.add(c.WRITE_ROWS_EVENT_V2, rows_body(90, c.WRITE_ROWS_EVENT_V2, 2, row(1))).end()
    found = Walk().of(sent)
    assert found.last_transaction == (7, None, 0, 0) and found.gtids == []
    assert b'"ts_us":1700000000000000,' in found.segments[0][1][0][1]


def test_a_position_that_jumps_is_left_to_python() -> None:
    sent = insert(Sent(pos=2000), 1)
    assert Walk().of(sent).last_transaction is None


def test_positions_beyond_four_gigabytes() -> None:
    sent = insert(Sent(pos=(1 << 32) - 20), 1)
    found = Walk().walker.decode_transactions(bytes(sent.data), 0, "b.000001", (1 << 32) - 20, NO_LIMIT, 4)
    assert (found.at, found.pos) == sent.ends[0]


def test_an_operation_that_is_left_out_is_left_to_python() -> None:
    sent = insert(Sent(), 1)
    assert Walk(skipped_ops=frozenset("c")).of(sent).last_transaction is None


def test_decoding_of_transactions_ends_when_its_records_are_many() -> None:
    sent = Sent()
    for number in range(1, 5000):
        insert(sent, *range(number, number + 3), number=number)
    found = Walk().of(sent)
    assert found.end_reason == BATCH_FULL and found.at < len(sent.data)
    assert sum(len(record[1]) for record in found.segments[0][1]) < (1 << 20) + 10_000


def test_forgotten_tables_are_left_to_python() -> None:
    walk, sent = Walk(), insert(Sent(), 1)
    walk.walker.forget()
    assert walk.of(sent).last_transaction is None


def test_tables_that_cannot_be_decoded_in_whole_transactions_are_not_learnt() -> None:
    walk, sent = Walk(), insert(Sent(), 1, table=b"other")
    walk.walker.learn(b"other", walk.route, object(), MarkedContext(EventContext()))
    walk.walker.learn(b"other", walk.route, walk.decoder, None)
    assert walk.of(sent).last_transaction is None


def test_a_table_is_learnt_once_and_no_more_than_there_is_room_for() -> None:
    walker = Walk().walker
    assert not walker.needs_table(MAP) and walker.needs_table(b"other")
    for number in range(5000):
        if walker.needs_table(b"%d" % number):
            walker.learn(b"%d" % number, None, None, None)
    assert not walker.needs_table(b"other")
    walker.forget()
    assert walker.needs_table(b"other") and walker.needs_table(MAP)


def test_a_packet_of_another_kind_is_left_to_python() -> None:
    for data in (packets(b"\0"), packets(b""), packets(b"\0" + event_bytes(33, b"", 1019)), b"\xff\xff\xff\0\0" * 9):
        assert Walk().of(data).last_transaction is None
